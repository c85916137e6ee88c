"""The part of docs/performance.md on programs over arrays, of `bench.arrays_workloads`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

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


def _row(entries: dict[str, dict[str, Any]]) -> str:
    """Return a line of the table: the modes of a case, and what they take of the array's time."""
    array = entries.get("array", {}).get("summary")

    def ratio(mode: str) -> str:
        other = entries.get(mode, {}).get("summary")
        if not array or not other:
            return ""
        return f"{other['seconds_median'] / array['seconds_median']:.2f}"

    ratios = f"{ratio('resident')} | {ratio('zero-copy')}"
    read = "" if not array else f"{array['amplification_median']:.2f}"
    first = next(iter(entries.values()))
    size = f"{first['data_bytes'] / 1e9:.3g}, {first['cache_bytes'] / 1e9:.3g}"
    others = [_cell(entries.get(mode)) for mode in ("array", "resident", "zero-copy", "tiled")]
    return (
        f"| {first['case']}, {first['state']} | {size} | {' | '.join(others)} | {ratios} | {read} |"
    )


def page_lines(paths: list[Path]) -> list[str]:
    """Return the part of the page: a table of each run."""
    if not paths:
        return []
    lines = [
        "## Programs over arrays in storage",
        "",
        "Seconds, medians, with opening, loading and writing. `resident` loads everything into "
        "device memory first, `zero-copy` into pinned host memory, which kernels read (what BaM "
        "compares with); the ratios are their times to the array's. Bytes read for one that is "
        "needed are the array's, all passes counted.",
        "",
    ]
    for path in sorted(paths):
        results = json.loads(path.read_text())
        about = results["machine"]
        lines += [
            f"{about['device']['model']}, {about['cores']} cores; lines of "
            f"{results['line_bytes']} bytes; {results['started']}, commit {results['commit']}: "
            f"`{results['command_line']}`",
            "",
            "| | data and cache, GB | array | resident | zero-copy | tiled | ratio | to zero-copy "
            "| read |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        for entry in results["cases"]:
            cases.setdefault((entry["case"], entry["state"]), {})[entry["mode"]] = entry
        lines += [_row(entries) for entries in cases.values()]
        lines.append("")
    return lines
