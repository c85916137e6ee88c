"""The page on what sharing costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench import sharing_costs_page

if TYPE_CHECKING:
    from pathlib import Path


def results(handover_us: float, run_seconds: list[float]) -> dict[str, Any]:
    stage = {"median": 0.6, "p99": 1.0, "count": 9}
    ours = dict.fromkeys(("initialise", "pre-allocate", "post-free", "shutdown"), stage)
    return {
        "schema": sharing_costs_page.SCHEMA,
        "commit": "abc",
        "started": "2026-01-01T00:00:00Z",
        "command_line": "python3 -m bench.sharing_costs",
        "machine": {
            "device": {"model": "GPU"},
            "processor": "CPU",
            "cores": 2,
            "kernel": "Linux",
        },
        "stages_us": {
            "shared memory": {**ours, "handover": {"median": handover_us, "p99": 90, "count": 9}},
            "server": {"initialise": stage},
        },
        "calls": [{"call": "cuMemAlloc and cuMemFree, both", "driver_ns": 1000, "shim_ns": 1500}],
        "calls_of_null_driver": [
            {"call": "cuMemAlloc and cuMemFree, both", "driver_ns": 80, "shim_ns": 180}
        ],
        "programs": [
            {"program": "a step", "alone_seconds": [1.0, 1.0, 2.0], "run_seconds": run_seconds}
        ],
    }


def test_goals_are_judged_by_the_least_of_the_rounds(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(results(30, [1.0, 1.1, 2.0])))
    assert sharing_costs_page.is_costs(path)
    page = "\n".join(sharing_costs_page.page_lines([path]))
    assert "| reserve and release, µs | ≤ 2 | 1.2 | met |" in page
    assert "running, µs | ≤ 50 | 30 | met |" in page
    assert "| cuMemAlloc and cuMemFree, both: more, ns | ≤ 400 | 500 | not met |" in page
    assert "both, null driver: more, ns | ≤ 400 | 100 | met |" in page
    assert "| a step: ratio | ≤ 1.01 | 1 | met |" in page
    assert "| a step | 1000000.00 (1000000.00) | 1000000.00 (1100000.00) | 1.0000 | 3 |" in page
    assert "| initialise | 0.60 (1.00) | 0.60 (1.00) |" in page


def test_the_last_run_counts_and_what_is_slower_is_not_met(tmp_path: Path) -> None:
    first, last = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(results(30, [1.0])))
    last.write_text(json.dumps({**results(60, [1.2]), "started": "2026-02-01T00:00:00Z"}))
    page = "\n".join(sharing_costs_page.page_lines([last, first]))
    assert "running, µs | ≤ 50 | 60 | not met |" in page
    assert "| a step: ratio | ≤ 1.01 | 1.2 | not met |" in page
    assert sharing_costs_page.page_lines([]) == []
