"""The part of docs/performance.md on programs over arrays, of `bench.arrays_workloads`."""

from __future__ import annotations

import json
import re
import statistics
from typing import TYPE_CHECKING, Any

from bench import drawing

if TYPE_CHECKING:
    from pathlib import Path

_ALWAYS = ("array", "resident", "zero-copy", "tiled")
_DIRECT, _LIMIT = "past page cache", "io_uring"
# Columns of the runs that have them.
_MODES = (*_ALWAYS, "numpy", "torch", "loaded before", _DIRECT, _LIMIT)
_LIMIT_SHARE = 0.95
# Those whose time to the array's is shown, and the column.
_RATIOS = {"resident": "ratio", "zero-copy": "to zero-copy", "tiled": "to tiled"}
# How lines of cold files are read, and what that is called.
_COLD_WAYS = {"array": "by default, through the page cache,", _DIRECT: "past it"}
# How many times the array's time another way shall take, by program.
_OTHERS = {
    "zero-copy": "loaded into host memory, zero-copy",
    "resident": "loaded into device memory",
    "tiled": "tiled by hand",
}
_BOUNDS = {
    ("bfs", "zero-copy"): 1.0,
    ("bfs", "resident"): 1.0,
    ("cc", "zero-copy"): 1.49,
    ("cc", "resident"): 1.49,
    ("vectoradd", "tiled"): 1.0,
}
_QUERY, _QUERIES_BOUND = re.compile(r"Q\d"), 5.3
_GRAPHS = ("bfs", "cc", "pagerank")

SCHEMA = "hippogriff-arrays-workloads/1"


def is_arrays_workloads(path: Path) -> bool:
    """Whether a file holds results of the programs over arrays."""
    return bool(json.loads(path.read_text()).get("schema") == SCHEMA)


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    if "summary" not in entry:
        return f"absent: {entry['why_absent']}"
    found = entry["summary"]
    return f"{found['seconds_median']:.3g}"


def _times_faster(entries: dict[str, dict[str, Any]], mode: str) -> float | None:
    """Return how many times the array's time another way takes; None where either is absent."""
    array, other = (entries.get(each, {}).get("summary") for each in ("array", mode))
    if not array or not other or not array["seconds_median"]:
        return None
    return float(other["seconds_median"] / array["seconds_median"])


def _row(entries: dict[str, dict[str, Any]], modes: list[str], others: list[str]) -> str:
    """Return a line of the table: the modes of a case, and what others take of the array's time."""
    array = entries.get("array", {}).get("summary")

    def ratio(mode: str) -> str:
        found = _times_faster(entries, mode)
        return "" if found is None else f"{found:.2f}"

    ratios = " | ".join(ratio(mode) for mode in others)
    amplification = array["amplification_median"] if array else None
    read = "" if amplification is None else f"{amplification:.2f}"
    first = next(iter(entries.values()))
    size = f"{first['data_bytes'] / 1e9:.3g}, {first['cache_bytes'] / 1e9:.3g}"
    times = [_cell(entries.get(mode)) for mode in modes]
    return (
        f"| {first['case']}, {first['state']} | {size} | {' | '.join(times)} | {ratios} | {read} |"
    )


def _table_lines(cases: list[dict[str, dict[str, Any]]]) -> list[str]:
    """Return a table with a line for each case, a column for each mode."""
    if not cases:
        return []
    known = {mode for entries in cases for mode in entries}
    modes = [mode for mode in _MODES if mode in _ALWAYS or mode in known]
    ratios = {mode: name for mode, name in _RATIOS.items() if mode != "tiled" or mode in known}
    return [
        f"| | data and cache, GB | {' | '.join([*modes, *ratios.values()])} | read |",
        f"|---|{'--:|' * (len(modes) + len(ratios) + 2)}",
        *(_row(entries, modes, list(ratios)) for entries in cases),
        "",
    ]


def _is_of_blocks(case: str) -> bool:
    return case.startswith("blocks ")


def _goal_row(name: str, state: str, other: str, bound: float, found: float) -> str:
    verdict = "met" if found >= bound else "not met"
    return f"| {name} | {state} | {other} | ≥ {bound:g} | {found:.3f} | {verdict} |"


def _goal_lines(runs: list[dict[str, Any]]) -> list[str]:
    """Return a table of the aims: the last run of each program and state counts."""
    cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for run in runs:
        of_run: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        for entry in run["cases"]:
            of_run.setdefault((entry["case"], entry["state"]), {})[entry["mode"]] = entry
        cases |= {
            key: entries for key, entries in of_run.items() if "summary" in entries.get("array", {})
        }
    rows = []
    best: dict[tuple[str, str], float] = {}  # of the queries, of which BaM tells the best
    for (name, state), entries in cases.items():
        for mode in ("zero-copy", "resident", "tiled"):
            found = _times_faster(entries, mode)
            if found is None:
                continue
            if _QUERY.fullmatch(name) and mode != "tiled":
                best[state, mode] = max(best.get((state, mode), 0), found)
            elif (bound := _BOUNDS.get((name.split()[0], mode))) is not None:
                rows.append(_goal_row(name, state, _OTHERS[mode], bound, found))
    rows += [
        _goal_row("the best of the queries", state, _OTHERS[mode], _QUERIES_BOUND, found)
        for (state, mode), found in best.items()
    ]
    if not rows:
        return []
    return [
        "How many times the array's time the others take. BaM's ratios (1.0 for breadth-first "
        "search, 1.49 for connected components, up to 5.3 for the queries) are to programs that "
        "load files into host memory and read that from the GPU, or copy columns and then compute.",
        "",
        "| | file | other | bound | measured | |",
        "|---|---|---|--:|--:|---|",
        *rows,
        "",
    ]


def _limit_lines(entries: dict[str, dict[str, Any]]) -> list[str]:
    """Say how near cold reads come to what io_uring gives in the same run."""
    if not entries.get(_LIMIT, {}).get("repetitions"):
        return []
    rates = {
        mode: statistics.median(each["reads"] / each["seconds"]["compute"] for each in repetitions)
        for mode in (*_COLD_WAYS, _LIMIT)
        if (repetitions := entries.get(mode, {}).get("repetitions"))
    }
    limit = rates.pop(_LIMIT)
    if not rates:
        return []
    ways = [
        f"{_COLD_WAYS[mode]} {rate / 1e3:.3g} thousand lines a second, {rate / limit:.2f}, "
        + ("met" if rate >= _LIMIT_SHARE * limit else "not met")
        for mode, rate in rates.items()
    ]
    return [
        "Cold misses, without opening, to random reads of a line by io_uring alone, at its best "
        f"depth (≥ {_LIMIT_SHARE}): {'; '.join(ways)}. "
        "`loaded before` is what `resident` takes once everything is there; `numpy` and `torch` "
        "gather rows on the host, which are then copied.",
        "",
    ]


def _blocks_lines(cases: list[dict[str, dict[str, Any]]]) -> list[str]:
    """Return a table of random blocks, whose limit is measured in turns with the array."""
    rows = []
    for entries in cases:
        rates = {
            mode: statistics.median(each["blocks_per_second"] for each in repetitions)
            for mode in (_DIRECT, _LIMIT)
            if (repetitions := entries.get(mode, {}).get("repetitions"))
        }
        about = next(iter(entries.values()))
        told = [
            f"{rates[mode] / 1e3:.3g}" if mode in rates else _cell(entries.get(mode))
            for mode in (_DIRECT, _LIMIT)
        ]
        depth, ratio, verdict = "", "", ""
        if _LIMIT in rates:
            depth = str(entries[_LIMIT]["repetitions"][0]["depth"])
        if len(rates) == 2:
            share = rates[_DIRECT] / rates[_LIMIT]
            ratio = f"{share:.3f}"
            if about["verb"] == "read":
                verdict = "met" if share >= _LIMIT_SHARE else "not met"
        bound = f"≥ {_LIMIT_SHARE}" if about["verb"] == "read" else ""
        size = f"{about['data_bytes'] / 1e9:.3g}, {about['cache_bytes'] / 1e9:.3g}"
        rows.append(
            f"| {about['verb']} {about['count']:,} of {about['block_bytes']} B | {size} | "
            f"{' | '.join(told)} | {depth} | {bound} | {ratio} | {verdict} |"
        )
    if not rows:
        return []
    return [
        "Random blocks, each read or overwritten once (BaM's figure 4), through an array past the "
        "page cache, and by io_uring alone with as many under way as are best for the drive, on "
        "the same file in turns; thousand blocks a second, medians, without opening, writes with "
        "flush.",
        "",
        "| blocks | data and cache, GB | array | io_uring | under way | bound | ratio | |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
        *rows,
        "",
    ]


def plot_seconds(title: str, entries: list[dict[str, Any]], path: Path) -> Path:
    """Draw a group of bars for each case: what it takes in each mode."""
    plt = drawing.pyplot()
    known = [entry for entry in entries if "summary" in entry]
    cases = list(dict.fromkeys(f"{entry['case']}, {entry['state']}" for entry in known))
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.5 * len(cases)), layout="constrained")
    modes = [mode for mode in _MODES if any(entry["mode"] == mode for entry in known)]
    height = 0.8 / len(modes)
    for number, mode in enumerate(modes):
        of_mode = [entry for entry in known if entry["mode"] == mode]
        axes.barh(
            [
                cases.index(f"{entry['case']}, {entry['state']}") + number * height
                for entry in of_mode
            ],
            [entry["summary"]["seconds_median"] for entry in of_mode],
            height,
            label=mode,
        )
    middle = (len(modes) - 1) * height / 2
    axes.set_yticks([place + middle for place in range(len(cases))], cases)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="minor", labelsize=6)
    axes.set_xlabel("seconds, median, with opening, loading and writing")
    axes.set_title(title)
    axes.grid(alpha=0.3, axis="x")
    axes.legend(fontsize=7, framealpha=0)
    return drawing.save(plt, figure, path)


def _plot_lines(runs: list[dict[str, Any]], output: Path) -> list[str]:
    """Draw all runs, a plot for each program."""
    folder = output.parent / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    programs: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        for entry in run["cases"]:
            is_query = _QUERY.fullmatch(entry["case"]) is not None
            name = "queries" if is_query else entry["case"].split()[0]
            programs.setdefault("graphs" if name in _GRAPHS else name, []).append(entry)
    lines = []
    for name, entries in programs.items():
        if not any("summary" in entry for entry in entries):
            continue
        drawn = plot_seconds(f"{name} over arrays", entries, folder / f"arrays_{name}.svg")
        lines += [f"![{name} over arrays]({drawn.relative_to(output.parent)})", ""]
    return lines


def page_lines(paths: list[Path], output: Path, *, plots: bool) -> list[str]:
    """Return the part of the page: plots, and a table of each run."""
    if not paths:
        return []
    runs = [json.loads(path.read_text()) for path in sorted(paths)]
    lines = [
        "## Programs over arrays in storage",
        "",
        "Seconds, medians, with opening, loading and writing. `resident` loads everything into "
        "device memory first, `zero-copy` into pinned host memory, which kernels read (what BaM "
        "compares with), `tiled` reads all of it by tiles, once or for each pass, into as much "
        "device memory as the cache has (of vectoradd two tiles of five), the next ones while "
        "kernels work on one; the ratios are their times to the array's. Bytes read for one that "
        "is needed are the array's, all passes counted.",
        "",
        *_goal_lines(runs),
        *(_plot_lines(runs, output) if plots else []),
    ]
    for results in runs:
        about = results["machine"]
        cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        for entry in results["cases"]:
            cases.setdefault((entry["case"], entry["state"]), {})[entry["mode"]] = entry
        of_blocks = [entries for (name, _), entries in cases.items() if _is_of_blocks(name)]
        others = [entries for (name, _), entries in cases.items() if not _is_of_blocks(name)]
        line = f"lines of {results['line_bytes']} bytes; " if others else ""
        lines += [
            f"{about['device']['model']}, {about['cores']} cores; {line}"
            f"{results['started']}, commit {results['commit']}: "
            f"`{results['command_line']}`",
            "",
        ]
        lines += _table_lines(others)
        for entries in others:
            lines += _limit_lines(entries)
        lines += _blocks_lines(of_blocks)
    return lines
