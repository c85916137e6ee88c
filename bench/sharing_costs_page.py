"""The part of docs/performance.md on what sharing costs, from `bench.sharing_costs`' results."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "hippogriff-sharing-costs/1"
_STAGES = ("initialise", "pre-allocate", "post-free", "shutdown", "handover")
# What a pair of calls may take more: 200 ns each.
_PAIR_NS = 400


def is_costs(path: Path) -> bool:
    """Whether a file holds results of these costs."""
    return bool(json.loads(path.read_text()).get("schema") == SCHEMA)


def _ratios(program: dict[str, Any]) -> list[float]:
    pairs = zip(program["alone_seconds"], program["run_seconds"], strict=False)
    return [run / alone for alone, run in pairs]


def _goal(text: str, bound: str, value: float, limit: float) -> str:
    return f"| {text} | {bound} | {value:.3g} | {'met' if value <= limit else 'not met'} |"


def goal_lines(results: dict[str, Any]) -> list[str]:
    """Return a table of the aims."""
    stages = {
        name: stage["median"] for name, stage in results["stages_us"]["shared memory"].items()
    }
    lines = [
        "| goal | bound | measured | |",
        "|---|--:|--:|---|",
        _goal("reserve and release, µs", "≤ 2", stages["pre-allocate"] + stages["post-free"], 2),
        _goal("free memory to the waiting process running, µs", "≤ 50", stages["handover"], 50),
    ]
    for call in results["calls"]:
        if "both" in call["call"]:
            more = call["shim_ns"] - call["driver_ns"]
            lines.append(_goal(f"{call['call']}: more, ns", "≤ 400", more, _PAIR_NS))
    lines += [
        _goal(f"{program['program']}: ratio", "≤ 1.01", statistics.median(_ratios(program)), 1.01)
        for program in results["programs"]
        if _ratios(program)
    ]
    return [*lines, ""]


def tables(results: dict[str, Any]) -> list[str]:
    """Return the aims, and the tables behind them."""
    ways = results["stages_us"]
    lines = [
        *goal_lines(results),
        "Stages of a program's life (the thesis' figure 6.9), µs, median and 99th per cent; the "
        "server's own start and end come once:",
        "",
        f"| | {' | '.join(ways)} |",
        f"|---|{'--:|' * len(ways)}",
    ]
    for stage in _STAGES:
        cells = [
            f"{way[stage]['median']:.2f} ({way[stage]['p99']:.2f})" if stage in way else ""
            for way in ways.values()
        ]
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    lines += [
        "",
        "| call, ns, least of 9 rounds | driver | behind the shim | more |",
        "|---|--:|--:|--:|",
        *(
            f"| {call['call']} | {call['driver_ns']:.1f} | {call['shim_ns']:.1f} "
            f"| {call['shim_ns'] - call['driver_ns']:.1f} |"
            for call in results["calls"]
        ),
        "",
        "| program, µs a step | alone | under `hippogriff run` | ratio, median | least to most "
        "| rounds |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for program in results["programs"]:
        ratios = _ratios(program)
        if ratios:
            alone, run = (
                statistics.median(program[name]) * 1e6 for name in ("alone_seconds", "run_seconds")
            )
            lines.append(
                f"| {program['program']} | {alone:.2f} | {run:.2f} "
                f"| {statistics.median(ratios):.4f} | {min(ratios):.4f} to {max(ratios):.4f} "
                f"| {len(ratios)} |"
            )
    return [*lines, ""]


def page_lines(paths: list[Path]) -> list[str]:
    """Return the part of the page: of the last of several runs."""
    if not paths:
        return []
    documents = sorted(
        (json.loads(path.read_text()) for path in paths), key=lambda each: str(each["started"])
    )
    results = documents[-1]
    machine = results["machine"]
    return [
        "## What sharing costs",
        "",
        f"{machine['device']['model']}; {machine['processor']}, {machine['cores']} cores; "
        f"{machine['kernel']}; {results['started']}, commit {results['commit']}: "
        f"`{results['command_line']}`",
        "",
        *tables(results),
    ]
