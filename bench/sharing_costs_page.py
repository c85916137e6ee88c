"""The part of docs/performance.md on what sharing costs, from `bench.sharing_costs`' results."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = "hippogriff-sharing-costs/1"
_STAGES = ("initialise", "pre-allocate", "post-free", "shutdown", "handover")
# What a pair of calls may take more: 200 ns each.
_PAIR_NS = 400
# Of calls that take longer the driver's own time scatters by more than that.
_TELLING_NS = 10_000


def is_costs(path: Path) -> bool:
    """Whether a file holds results of these costs."""
    return bool(json.loads(path.read_text()).get("schema") == SCHEMA)


def _least(program: dict[str, Any]) -> tuple[float, float] | None:
    """Return the least seconds of all rounds, alone and behind: what disturbs only ever adds."""
    alone, run = program["alone_seconds"], program["run_seconds"]
    return (min(alone), min(run)) if alone and run else None


def _goal(text: str, bound: str, value: float, limit: float) -> str:
    return f"| {text} | {bound} | {value:.3g} | {'met' if value <= limit else 'not met'} |"


def _pairs(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the pairs of calls whose difference is the shim's, and what to call them."""
    for call in results["calls"]:
        if "both" in call["call"] and call["driver_ns"] < _TELLING_NS:
            yield call["call"], call
    for call in results.get("calls_of_null_driver", []):
        if "both" in call["call"]:
            yield f"{call['call']}, null driver", call


def _call_lines(title: str, calls: list[dict[str, Any]]) -> list[str]:
    if not calls:
        return []
    return [
        f"| {title}, ns, least of 9 rounds | driver | behind the shim | more |",
        "|---|--:|--:|--:|",
        *(
            f"| {call['call']} | {call['driver_ns']:.1f} | {call['shim_ns']:.1f} "
            f"| {call['shim_ns'] - call['driver_ns']:.1f} |"
            for call in calls
        ),
        "",
    ]


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
    for name, call in _pairs(results):
        more = call["shim_ns"] - call["driver_ns"]
        lines.append(_goal(f"{name}: more, ns", "≤ 400", more, _PAIR_NS))
    lines += [
        _goal(f"{program['program']}: ratio", "≤ 1.01", least[1] / least[0], 1.01)
        for program in results["programs"]
        if (least := _least(program))
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
        *_call_lines("call", results["calls"]),
        *_call_lines("call of a driver that does nothing", results.get("calls_of_null_driver", [])),
        "Programs, µs a step, the least of the rounds (and their median): other machines' work on "
        "the same processor only ever adds, up to a third of a step that waits for Python.",
        "",
        "| program | alone | under `hippogriff run` | ratio | rounds |",
        "|---|--:|--:|--:|--:|",
    ]
    for program in results["programs"]:
        if least := _least(program):
            cells = [
                f"{each * 1e6:.2f} ({statistics.median(program[name]) * 1e6:.2f})"
                for each, name in zip(least, ("alone_seconds", "run_seconds"), strict=True)
            ]
            lines.append(
                f"| {program['program']} | {' | '.join(cells)} | {least[1] / least[0]:.4f} "
                f"| {len(program['run_seconds'])} |"
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
