"""The part of docs/performance.md on programs that share a GPU, from `bench.sharing`'s results."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from bench import drawing
from bench.sharing_runs import OURS

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "hippogriff-sharing/1"
# The thesis's gains over running one after the other, which are the aims: at 12 instances.
GOALS = {"risk": 10.0, "align": 9.0, "proteins": 1.5, "mixed": 5.0}
TITLES = {
    "risk": "Aggregate risk analysis: little use of the GPU",
    "align": "Sequence alignment: moderate use",
    "proteins": "Protein search: much use",
    "mixed": "A third of the instances of each",
}
_SEQUENTIAL = "sequential"

_POINTS_MAX = 200  # of a line over time

Case = dict[str, Any]


def is_sharing(path: Path) -> bool:
    """Whether a file holds results of sharing."""
    return bool(json.loads(path.read_text()).get("schema") == SCHEMA)


def read_cases(paths: list[Path]) -> tuple[list[Case], list[dict[str, Any]]]:
    """Return the cases measured, of each the last run, and the files' own words."""
    documents = [json.loads(path.read_text()) for path in paths]
    documents.sort(key=lambda document: str(document["started"]))
    machines = {json.dumps(document["machine"]["device"]) for document in documents}
    if len(machines) > 1:
        raise ValueError(f"the results of sharing are of several machines: {sorted(machines)}")
    cases: dict[tuple[str, int, str], Case] = {}
    for document in documents:
        for case in document["cases"]:
            key = (case["workload"], case["instances"], case["mode"])
            if ended(case) or not ended(cases.get(key, case)):
                cases[key] = case | {"gain": gain(document["cases"], case)}
    return list(cases.values()), documents


def ended(case: Case) -> bool:
    """Whether a case came to its end."""
    return "seconds" in case and not case["cut"]


def measured(cases: list[Case], workload: str) -> list[Case]:
    """Return a workload's cases that came to their end."""
    return [case for case in cases if case["workload"] == workload and ended(case)]


def gain(cases: list[Case], case: Case) -> float | None:
    """Return how much faster a case was than the same instances one after the other, in one run."""
    if not ended(case) or case["failures"] or case["wrong"]:
        return None
    for other in cases:
        same = (other["workload"], other["instances"]) == (case["workload"], case["instances"])
        if same and other["mode"] == _SEQUENTIAL and ended(other) and not other["failures"]:
            return float(other["seconds"] / case["seconds"])
    return None


def goal_lines(cases: list[Case]) -> list[str]:
    """Return a table of the aims, and the best that the node's policies reached."""
    lines = ["| goal | instances | bound | measured | by | |", "|---|--:|--:|--:|---|---|"]
    for workload, bound in GOALS.items():
        of_workload = measured(cases, workload)
        ours = [case for case in of_workload if case["mode"].startswith(OURS)]
        most = max((case["instances"] for case in ours), default=0)
        gains = [
            (case["gain"], case["mode"])
            for case in ours
            if case["instances"] == most and case["gain"] is not None
        ]
        if gains:
            value, mode = max(gains)
            verdict = "met" if value >= bound else "not met"
            lines.append(
                f"| {workload}: gain over sequential | {most} | ≥ {bound:g} | {value:.3g} "
                f"| {mode} | {verdict} |"
            )
    return [*lines, ""]


def _percent(case: Case, name: str) -> str:
    value = case["gpu"].get(name)
    return "" if value is None else f"{value:.1f}"


def table_lines(cases: list[Case], workload: str) -> list[str]:
    """Return the table of a workload, by instances and then as the modes were run."""
    lines = [
        f"### {TITLES[workload]}",
        "",
        "| instances | mode | seconds | gain | failed | mean wait, s | mean run, s "
        "| GPU busy, % | GPU memory, % |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    of_workload = measured(cases, workload)
    for case in sorted(of_workload, key=lambda case: int(case["instances"])):
        value = case["gain"]
        mode = f"**{case['mode']}**" if case["mode"].startswith(OURS) else case["mode"]
        cells = [
            str(case["instances"]),
            mode,
            f"{case['seconds']:.2f}",
            "" if value is None else f"{value:.2f}",
            str(case["failures"]),
            f"{statistics.fmean(run['wait_seconds'] for run in case['runs']):.2f}",
            f"{statistics.fmean(run['run_seconds'] for run in case['runs']):.2f}",
            _percent(case, "average_busy_percent"),
            _percent(case, "average_memory_percent"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    absent = {
        f"{case['mode']} ({case.get('why_absent', 'cut short')})"
        for case in cases
        if case["workload"] == workload and not ended(case)
    }
    if absent:
        lines += ["", f"Not measured, or not everywhere: {'; '.join(sorted(absent))}."]
    return [*lines, ""]


def thinned(samples: list[list[float]]) -> list[list[float]]:
    """Return means of neighbours, so few that a plot can show each."""
    step = -(-len(samples) // _POINTS_MAX)
    groups = [samples[first : first + step] for first in range(0, len(samples), step or 1)]
    return [[statistics.fmean(column) for column in zip(*group, strict=True)] for group in groups]


def plot_seconds(cases: list[Case], workload: str, folder: Path) -> Path | None:
    """Draw the time to the end over the number of instances; crosses are cases with failures."""
    of_workload = measured(cases, workload)
    if len({case["instances"] for case in of_workload}) < 2:
        return None
    plt = drawing.pyplot()
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for mode in dict.fromkeys(case["mode"] for case in of_workload):
        line = sorted(
            (case["instances"], case["seconds"], case["failures"])
            for case in of_workload
            if case["mode"] == mode
        )
        style = "-" if mode.startswith(OURS) else "--"
        (drawn,) = axes.plot(
            [point[0] for point in line],
            [point[1] for point in line],
            style,
            marker="o",
            markersize=3,
            label=mode,
        )
        failed = [point for point in line if point[2]]
        axes.plot(
            [point[0] for point in failed],
            [point[1] for point in failed],
            "x",
            color=drawn.get_color(),
            markersize=9,
        )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("instances (x: some failed)")
    axes.set_ylabel("seconds until the last has ended")
    axes.set_title(TITLES[workload])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), framealpha=0)
    return drawing.save(plt, figure, folder / f"sharing_{workload}_seconds.svg")


def plot_use(cases: list[Case], workload: str, folder: Path) -> Path | None:
    """Draw how busy the GPU is, and its memory, over time: a row for each mode."""
    shown = [case for case in measured(cases, workload) if case["gpu"].get("samples")]
    most = max((case["instances"] for case in shown), default=0)
    shown = [case for case in shown if case["instances"] == most]
    if not shown:
        return None
    plt = drawing.pyplot()
    figure, rows = plt.subplots(
        len(shown),
        figsize=(8, 0.4 + 1.1 * len(shown)),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for axes, case in zip(rows[:, 0], shown, strict=True):
        samples, total = thinned(case["gpu"]["samples"]), case["gpu"]["memory_bytes"]
        times = [sample[0] for sample in samples]
        axes.fill_between(
            times, [sample[1] for sample in samples], step="post", alpha=0.4, label="GPU busy"
        )
        memory = [100 * sample[2] / total for sample in samples]
        axes.plot(times, memory, color="tab:orange", label="GPU memory")
        axes.set_ylim(0, 100)
        axes.set_ylabel(case["mode"], rotation=0, ha="right", fontsize=7)
        axes.grid(alpha=0.3)
    rows[0, 0].set_title(f"{TITLES[workload]}, {most} instances, %")
    rows[0, 0].legend(fontsize=7, loc="upper right", framealpha=0)
    rows[-1, 0].set_xlabel("seconds")
    return drawing.save(plt, figure, folder / f"sharing_{workload}_use.svg")


def page_lines(paths: list[Path], output: Path, *, plots: bool) -> list[str]:
    """Return the part of the page; its plots go into a folder beside it."""
    if not paths:
        return []
    cases, documents = read_cases(paths)
    machine = documents[-1]["machine"]
    lines = [
        "## Programs that share a GPU",
        "",
        f"{machine['device']['model']}; {machine['processor']}, {machine['cores']} cores; "
        f"{machine['kernel']}; the programs share {documents[-1]['device_bytes'] / 2**30:.3g} GiB "
        "of device memory. `run-` is `hippogriff run` around unmodified programs, `late-` the same "
        "with `--wait first-use`, `share-` are programs that call schedGPU's functions themselves, "
        "all under the policy named; `packed` knows all sizes beforehand, `all` starts everything "
        "at once. The gain is over `sequential` of the same run, whose machine may be another "
        "one of the kind. What a program of `late-` waits is in its run.",
        "",
        *(f"- {each['started']}: `{each['command_line']}`" for each in documents),
        "",
        *goal_lines(cases),
    ]
    folder = output.parent / "performance"
    for workload in TITLES:
        if not any(case["workload"] == workload for case in cases):
            continue
        lines += table_lines(cases, workload)
        if not plots:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        drawn = plot_seconds(cases, workload, folder), plot_use(cases, workload, folder)
        for path in filter(None, drawn):
            lines += [f"![{TITLES[workload]}]({path.relative_to(output.parent)})", ""]
    return lines
