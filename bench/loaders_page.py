"""The part of docs/performance.md on loaders of models, from `hippogriff bench loaders --json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import drawing

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "hippogriff-loaders/1"
# More than this beyond what was measured as a limit, and it was none: drives are slower at times.
_NO_LIMIT_FROM = 1.05
_OURS = "hippogriff"
_FAST_GB_PER_SECOND = 20
_LARGE, _SMALL = 70, 10_000


class Case(NamedTuple):
    """One table: a file system, a state of the page cache, a number of tensors."""

    filesystem: str
    state: str
    tensors: int
    size_bytes: int

    def __str__(self) -> str:
        """Return a title."""
        what = "saved to" if self.state == "save" else f"{self.state}, from"
        size = self.size_bytes / 2**30
        return f"{self.tensors} tensors in {size:.3g} GiB, {what} {self.filesystem}"


Row = dict[str, Any]


def read_rows(paths: list[Path]) -> tuple[list[Row], list[dict[str, Any]]]:
    """Return all rows of result files, each with its GPU, and the files' own words."""
    documents = [json.loads(path.read_text()) for path in paths]
    documents.sort(key=lambda document: str(document["started"]))
    rows = [
        {**row, "gpu": document["machine"]["device"]["model"]}
        for document in documents
        for row in document["rows"]
    ]
    return rows, documents


def is_loaders(path: Path) -> bool:
    """Whether a file holds results of loaders."""
    return bool(json.loads(path.read_text()).get("schema") == SCHEMA)


def by_case(rows: list[Row]) -> dict[Case, list[Row]]:
    """Group rows; of one contender in one case the last run counts in which it took part.

    Raises ValueError where a case is of several machines.
    """
    cases: dict[Case, dict[str, Row]] = {}
    gpus: dict[Case, str] = {}
    for row in rows:
        case = Case(row["filesystem"], row["state"], row["tensors"], row["size_bytes"])
        if gpus.setdefault(case, row["gpu"]) != row["gpu"]:
            message = f"{case}: of several machines: {gpus[case]}, {row['gpu']}"
            raise ValueError(message)
        rows_of_case = cases.setdefault(case, {})
        if row["gb_per_second"] or row["contender"] not in rows_of_case:
            rows_of_case[row["contender"]] = row
    return {case: list(named.values()) for case, named in cases.items()}


def _is_limit(row: Row) -> bool:
    return str(row["contender"]).startswith("limit")


def _rate(row: Row) -> float:
    return float(row["gb_per_second"] or 0)


def _find(rows: list[Row], *, ours: bool) -> list[Row]:
    return [
        row
        for row in rows
        if not _is_limit(row) and (row["contender"] == _OURS) == ours and row["gb_per_second"]
    ]


def _measured_limit(rows: list[Row]) -> float:
    return max(map(_rate, filter(_is_limit, rows)), default=0.0)


def _limit(rows: list[Row]) -> float:
    """Return what nothing can be beyond, and is; 0 without such a thing."""
    measured = _measured_limit(rows)
    return measured if max(map(_rate, rows), default=0.0) <= _NO_LIMIT_FROM * measured else 0.0


def goal_lines(cases: dict[Case, list[Row]]) -> list[str]:
    """Return a table of what loading shall reach, and did."""
    lines = ["| goal | case | bound | measured | |", "|---|---|--:|--:|---|"]

    def add(goal: str, case: Case, bound: float, value: float, *, most: bool = False) -> None:
        met = value <= bound if most else value >= bound
        sign = "≤" if most else "≥"
        verdict = "met" if met else "not met"
        lines.append(f"| {goal} | {case} | {sign} {bound:.3g} | {value:.3g} | {verdict} |")

    for case, rows in cases.items():
        own, peers = _find(rows, ours=True), _find(rows, ours=False)
        if not own:
            continue
        ours = own[0]
        best = max(map(_rate, peers), default=0.0)
        if case.state == "cached":
            add("GB/s", case, 40 if case.tensors >= _SMALL else 48, _rate(ours))
            if best:
                add("ratio to the best peer", case, 1, _rate(ours) / best)
            first = max((float(row["first_gb_per_second"] or 0) for row in peers), default=0.0)
            if first:
                ratio = float(ours["first_gb_per_second"]) / first
                add("first load: ratio to the best peer's", case, 1, ratio)
            fast = [row for row in peers if _rate(row) > _FAST_GB_PER_SECOND]
            if fast:
                least = min(float(row["cpu_seconds_per_gb"]) for row in fast)
                ratio = float(ours["cpu_seconds_per_gb"]) / least
                add("CPU s/GB: ratio to the least of fast peers", case, 1, ratio, most=True)
            most = max(int(each["device_bytes"]) for each in ours["processes"]) / 2**20
            if most >= 0:
                add("GPU memory beside the tensors, MiB", case, 32, most, most=True)
        elif _measured_limit(rows):
            bound = 0.95 if case.state == "save" else 0.97
            most = max(_measured_limit(rows), best, _rate(ours))  # What is measured may be passed.
            add("share of what the drive gave at most", case, bound, _rate(ours) / most)
    return [*lines, ""]


def table_lines(case: Case, rows: list[Row]) -> list[str]:
    """Return the table of one case, the fastest first."""
    lines = [
        f"### {str(case)[0].upper()}{str(case)[1:]}, {rows[0]['gpu']}",
        "",
        "| loader | version | GB/s | first GB/s | of the limit | CPU s/GB "
        "| GPU memory beside | host memory beside |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    limit = _limit(rows)
    for row in sorted(rows, key=_rate, reverse=True):
        if not row["gb_per_second"]:
            continue
        name = f"**{row['contender']}**" if row["contender"] == _OURS else row["contender"]
        share = f"{_rate(row) / limit:.2f}" if limit else ""
        cpu = row["cpu_seconds_per_gb"]
        cells = [
            name,
            row["version"],
            f"{_rate(row):.2f}",
            f"{row['first_gb_per_second']:.2f}",
            share,
            "" if cpu is None or _is_limit(row) else f"{cpu:.3f}",
            _memory(row, "device_bytes"),
            _memory(row, "host_bytes"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if _measured_limit(rows) != _limit(rows):
        lines += ["", "What was measured as the limit was slower than a loader: it is none."]
    absent = [f"{row['contender']} ({row['why_not']})" for row in rows if row["why_not"]]
    if absent:
        lines += ["", f"Not measured: {'; '.join(absent)}."]
    return [*lines, ""]


def _memory(row: Row, name: str) -> str:
    sizes = [int(each[name]) for each in row["processes"]]
    return f"{max(sizes) / 2**20:.0f} MiB" if sizes and max(sizes) >= 0 else ""


def plot(case: Case, rows: list[Row], folder: Path) -> Path:
    """Draw a bar for each loader, and a mark for its first load."""
    plt = drawing.pyplot()
    shown = sorted((row for row in rows if row["gb_per_second"]), key=_rate)
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.28 * len(shown)), layout="constrained")
    colours = [
        "tab:orange" if row["contender"] == _OURS else "silver" if _is_limit(row) else "tab:blue"
        for row in shown
    ]
    names = [row["contender"] for row in shown]
    axes.barh(names, [_rate(row) for row in shown], color=colours)
    loaders = [row for row in shown if not _is_limit(row)]
    axes.plot(
        [row["first_gb_per_second"] for row in loaders],
        [row["contender"] for row in loaders],
        "|",
        color="tab:red",
        markersize=10,
        label="first load of a process",
    )
    axes.set_xlabel("GB/s, median of later loads")
    axes.set_title(str(case))
    axes.grid(alpha=0.3, axis="x")
    axes.legend(fontsize=7, loc="lower right")
    name = f"load_{case.filesystem}_{case.state}_{case.tensors}.svg"
    return drawing.save(plt, figure, folder / name)


def _machine(document: dict[str, Any]) -> str:
    machine = document["machine"]
    return (
        f"- {machine['device']['model']}; {machine['processor']}, {machine['cores']} cores; "
        f"{machine['kernel']}; torch {document['versions']['torch']}"
    )


def page_lines(paths: list[Path], output: Path, *, plots: bool) -> list[str]:
    """Return the part of the page; its plots go into a folder beside it."""
    if not paths:
        return []
    rows, documents = read_rows(paths)
    cases = by_case(rows)
    lines = [
        "## Loading models",
        "",
        *dict.fromkeys(map(_machine, documents)),
        "",
        "Each loader runs in "
        "fresh processes, in turns; `first` is a process's first load, with all that it starts but "
        "torch and the GPU's context; the rest are medians of later loads. Memory beside the "
        "tensors is the most seen in one more load, with what torch's allocator rounds up. What "
        "was loaded was compared with sums of the contents.",
        "",
        *(f"- {each['started']}{_commit(each)}: `{each['command_line']}`" for each in documents),
        "",
        *goal_lines(cases),
    ]
    folder = output.parent / "performance"
    for case, of_case in cases.items():
        lines += table_lines(case, of_case)
        if plots:
            folder.mkdir(parents=True, exist_ok=True)
            path = plot(case, of_case, folder)
            lines += [f"![{case}]({path.relative_to(output.parent)})", ""]
    return lines


def _commit(document: dict[str, Any]) -> str:
    commit = document.get("commit")
    return f", commit {commit}" if commit else ""
