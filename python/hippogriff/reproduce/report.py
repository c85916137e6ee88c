"""The report: one HTML page with every figure of the papers beside ours."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from hippogriff.errors import InvalidArgument
from hippogriff.reproduce import papers
from hippogriff.reproduce.all_figures import figures
from hippogriff.reproduce.chance import in_brackets
from hippogriff.reproduce.effort import EXPERIMENTS
from hippogriff.reproduce.figures import NOT_MEASURED, Measurements
from hippogriff.reproduce.journal import Results, differences, load
from hippogriff.reproduce.targets import Target, targets, to_hand
from hippogriff.reproduce.together_figures import LIMIT

if TYPE_CHECKING:
    from pathlib import Path

    from hippogriff.reproduce.figures import Figure, Panel, Value
    from hippogriff.reproduce.journal import Record

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; display: block;
  overflow-x: auto }
td, th { padding: 2px 8px; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
img { max-width: 100%; height: auto }
.failed { color: #b00020 } .note { color: #555; font-size: 14px }
code { font-size: 13px; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b } td, th { border-color: #444 } .note { color: #aaa }
  .failed { color: #ff6b6b } a { color: #8ab4f8 } }
"""


def merged(paths: list[Path], *, builds_differ: bool = False) -> Results:
    """Return several results of one context together; the last of a key counts.

    With `builds_differ` they may be of several builds.

    Raises
    ------
    InvalidArgument
        When there is nothing, or their last runs were of several machines, builds, drives,
        efforts or settings.
    """
    runs: list[Record] = []
    records: dict[str, Record] = {}
    left_out = 0
    for path in paths:
        found = load(path)
        if runs and found.runs and runs[-1]["context"] != found.runs[-1]["context"]:
            differ = differences(runs[-1], found.runs[-1], but="build" if builds_differ else "")
        else:
            differ = ""
        if differ:
            raise InvalidArgument(f"{path} has results that differ from the others' in {differ}")
        runs += found.runs
        left_out += found.left_out
        for record in found.records:
            known = records.get(record["key"])
            # A failure does not replace what was measured elsewhere.
            if known is None or not record.get("failure") or known.get("failure"):
                records[record["key"]] = record
    return Results(runs, list(records.values()), left_out)


def _text(value: Value | None, *, ours: bool) -> str:
    """Return a median with its spread and of how many it is, which the papers do not say."""
    if value is None:
        return ""
    if not ours or value.of_programs:
        return f"{value.median:.3g}"
    # Of a ratio the count is the lesser of both: one of them may have a spread all the same.
    if value.count == 1 and value.least == value.most:
        return f"{value.median:.3g} <small>(once)</small>"
    spread = f"{value.least:.3g} to {value.most:.3g} of {value.count}"
    return f"{value.median:.3g} <small>({spread})</small>"


def _table(panel: Panel) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in panel.series)
    rows = []
    for index, place in enumerate(panel.places):
        cells = "".join(
            f"<td>{_text(values[index], ours=name not in (panel.theirs, LIMIT))}</td>"
            for name, values in panel.series.items()
        )
        rows.append(f"<tr><td>{html.escape(place)}</td>{cells}</tr>")
    caption = html.escape(f"{panel.title}: {panel.unit}")
    said = "".join(
        f"<tr><td>{html.escape(each.label)}</td><td>{each.value:.3g}</td></tr>"
        for each in panel.said
    )
    return (
        f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{''.join(rows)}{said}</table>"
    )


def _section(figure: Figure, plots: list[Path]) -> list[str]:
    title = html.escape(f"{figure.experiment}: {figure.title}")
    lines = [
        f'<h2 id="{figure.name}">{title}</h2>',
        f'<p class="note">In the papers: {html.escape(figure.papers)}.</p>',
    ]
    if figure.empty:
        lines.append(f"<p>{NOT_MEASURED}</p>")
        return lines + [f'<p class="note">{html.escape(note)}</p>' for note in figure.notes]
    for path in plots:
        if path.suffix == ".svg":
            png = path.with_suffix(".png").name
            lines.append(f'<p><img src="{path.name}" alt="{title}"> <a href="{png}">PNG</a></p>')
    lines.append(f"<p>{html.escape(figure.why)}</p>")
    lines += [f'<p class="note">{html.escape(note)}</p>' for note in figure.notes]
    tables = "".join(_table(panel) for panel in figure.panels if not panel.empty)
    return [*lines, f"<details><summary>Numbers</summary>{tables}</details>"]


def _targets(large: Measurements, every: Measurements) -> list[str]:
    """Show targets: they are for large inputs, but for what is never to be slower."""
    lines = ['<h2 id="targets">What it should show</h2>']
    found: list[Target] = []
    if any(record.get("scale") == "large" for record in large.good):
        found = targets(large, {figure.name: figure for figure in figures(large)})
    else:
        lines.append("<p>Targets are for large inputs, of which none were measured.</p>")
    # Tiny inputs are there to show that it works.
    found += [to_hand(every, scale) for scale in every.scales() if scale not in ("tiny", "large")]
    if not found:
        return lines
    rows = [
        f"<tr><td>{html.escape(each.text)}</td><td>{'≤' if each.at_most else '≥'} {each.bound:g}"
        f"</td><td>{_measured(each)}</td>"
        f"<td>{each.verdict}</td><td>{'' if each.limit is None else f'{each.limit:.3g}'}</td></tr>"
        for each in found
    ]
    head = "<tr><th>averages over programs</th><th>wanted</th><th>measured</th><th></th>"
    head += "<th>the drive alone</th></tr>"
    lines.append(f"<table>{head}{''.join(rows)}</table>")
    if any(each.between for each in found):
        lines.append(
            '<p class="note">In brackets: where nine of ten such ratios lie if repetitions are '
            "drawn anew from those that there are, of several programs the most of either end. "
            "Where the bound lies between, nothing can be told.</p>"
        )
    return lines


def _measured(target: Target) -> str:
    if target.measured is None:
        return ""
    return f"{target.measured:.3g}{in_brackets(target.between)}"


def _coverage(found: Results) -> list[str]:
    """Say what is measured of each experiment, and of how much: slices come one by one."""
    wanted = found.runs[-1].get("wanted", {}) if found.runs else {}
    rows = []
    for name, what in EXPERIMENTS.items():
        mine = [record for record in found.records if name in record.get("experiments", ())]
        failed = sum(bool(record.get("failure")) for record in mine)
        absent = sum(bool(record.get("absent")) for record in mine)
        numbers = (len(mine) - failed - absent, absent, failed, wanted.get(name, ""))
        cells = "".join(f"<td>{number}</td>" for number in numbers)
        rows.append(f"<tr><td>{name}: {html.escape(what)}</td>{cells}</tr>")
    head = "".join(
        f"<th>{each}</th>" for each in ("", "measured", "not possible", "failed", "of a whole run")
    )
    return [f'<table id="coverage"><tr>{head}</tr>{"".join(rows)}</table>']


def _warning(found: Results) -> list[str]:
    """Say what numbers of tiny inputs are good for."""
    scales = {record["scale"] for record in found.records if "scale" in record}
    if scales - {"tiny"} or not scales:
        return []
    return [
        "<p><strong>Tiny inputs:</strong> this page shows that all of it works here. Its numbers "
        "are mostly what programs cost to start, and chance; the papers' sizes are measured by "
        "<code>hippogriff reproduce --full</code> on a GPU.</p>"
    ]


def _problems(records: list[Record]) -> list[str]:
    failed = [record for record in records if record.get("failure")]
    absent: dict[str, list[str]] = {}
    for record in records:
        if record.get("absent"):
            absent.setdefault(record["absent"], []).append(record["key"])
    lines = ['<h2 id="failures">What failed, and what could not be measured</h2>', "<ul>"]
    for record in failed:
        words = html.escape(f"{record['key']}: {record['failure']}")
        lines.append(f'<li class="failed">FAILED {words}</li>')
    for why, keys in absent.items():
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        lines.append(f"<li>{html.escape(f'{keys[0]}{more}: {why}')}</li>")
    if not failed and not absent:
        lines.append("<li>Nothing.</li>")
    return [*lines, "</ul>"]


def _build_of(run: Record) -> str:
    return ", ".join(f"{name} {value}" for name, value in run["build"].items() if value)


def _machine(found: Results) -> list[str]:
    runs = found.runs
    if not runs:
        return ["<p>Nothing is known of the machine.</p>"]
    last = runs[-1]
    machine, files, also = last["machine"], last.get("files", {}), last.get("also", {})
    facts = (
        f"{machine['device']}; {machine['processor']}, {machine['cores']} cores, "
        f"{also.get('memory', '?')}; {also.get('kernel', '?')}; files on "
        f"{files.get('filesystem', '?')} ({files.get('drive', '?')})"
    )
    if also.get("nvidia_driver"):
        facts += f"; NVIDIA's driver {also['nvidia_driver']}, CUDA {also.get('cuda') or '?'}"
    facts += f". The papers': {papers.MACHINE}."
    lines = [f"<p>{html.escape(facts)} {len(found.records)} measurements ({last['effort']}).</p>"]
    builds = {_build_of(run) for run in runs}
    if len(builds) > 1:
        lines.append(
            f"<p><strong>Of {len(builds)} builds</strong>, named below: within an experiment, what "
            "stands side by side was mostly measured by one of them.</p>"
        )
    if found.left_out:
        lines.append(
            f"<p>{found.left_out} measurements of other builds, machines, drives or settings are "
            "in the same results, and not on this page.</p>"
        )
    lines.append("<details><summary>Runs</summary><ul>")
    for run in runs:
        build = _build_of(run)
        host = run.get("also", {}).get("host", "")
        words = f"{run['started']} {host}, {build}: "
        command = html.escape(run["command_line"])
        lines.append(f"<li>{html.escape(words)}<code>{command}</code></li>")
    return [*lines, "</ul></details>"]


def write_page(
    paths: list[Path], folder: Path, *, plots: bool, builds_differ: bool = False
) -> Path:
    """Write the page, and its plots where asked, into a folder; return the page.

    It is made from whatever there is: what was not measured says so.
    """
    found = merged(paths, builds_differ=builds_differ)
    runs, records = found.runs, found.records
    measured = Measurements(runs, records)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>hippogriff: the papers' experiments</title>",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>The papers' experiments, on this machine</h1>",
        "<p>Made by <code>hippogriff reproduce</code>. Bars and points are medians, with the least "
        "and the most; averages are geometric means; dashed red lines are the papers' numbers. "
        "GB are 10<sup>9</sup> bytes.</p>",
        *_warning(found),
        *_machine(found),
        *_coverage(found),
    ]
    large = [
        record
        for record in records
        if record.get("scale") == "large" or record.get("idle") or record["key"] == "calibration"
    ]
    lines += _targets(Measurements(runs, large), measured)
    for figure in figures(measured):
        drawn = []
        if plots:
            from hippogriff.reproduce.plots import draw

            drawn = draw(figure, folder)
        lines += _section(figure, drawn)
    lines += _problems(records)
    lines += ["</body></html>", ""]
    page = folder / "report.html"
    page.write_text("\n".join(lines))
    return page
