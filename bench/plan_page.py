"""The part of docs/performance.md on loading to several GPUs, from `bench.plan_bench`'s results."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "hippogriff-plan/1"


def is_plan(path: Path) -> bool:
    """Whether a file holds results of loading by a plan."""
    return bool(json.loads(path.read_text()).get("schema") == SCHEMA)


def _rates(line: dict[str, Any]) -> tuple[float, float, float, float]:
    """Return GB/s: of the first load, the median of all others, the least and the most."""
    first, *others = (line["arrived_bytes"] / seconds / 1e9 for seconds in line["seconds"])
    return first, statistics.median(others), min(others), max(others)


def page_lines(paths: list[Path]) -> list[str]:
    """Return the part of the page: a table of each run."""
    if not paths:
        return []
    lines = [
        "## Models to several GPUs",
        "",
        "GB/s count what arrives on all GPUs together; warm files.",
        "",
    ]
    for path in sorted(paths):
        results = json.loads(path.read_text())
        lines += [
            f"{len(results['devices'])} x {results['devices'][0]}, {results['machine']['cores']} "
            f"cores; {results['tensors']} tensors, {results['model_bytes'] / 2**30:.3g} GiB; "
            f"{results['started']}, commit {results['commit']}: `{results['command_line']}`",
            "",
            "| | GB/s, median | least to most | the first | runs |",
            "|---|--:|--:|--:|--:|",
        ]
        for line in results["lines"]:
            first, median, least, most = _rates(line)
            lines.append(
                f"| {line['what']} | {median:.1f} | {least:.1f} to {most:.1f} | {first:.1f} "
                f"| {len(line['seconds']) - 1} |"
            )
        lines.append("")
    return lines
