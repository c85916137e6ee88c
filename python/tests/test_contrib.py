"""The dashboard asks for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hippogriff
from hippogriff.sharing import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTRIB = Path(__file__).parents[2] / "contrib"
NAME = re.compile(r"\bhippogriff_\w+")


def queries(part: Any) -> Iterator[str]:
    """Yield what a dashboard asks for, at any depth."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in {"expr", "query"} and isinstance(value, str):
                yield value
            else:
                yield from queries(value)
    elif isinstance(part, list):
        for each in part:
            yield from queries(each)


def test_every_metric_that_the_dashboard_asks_for_exists() -> None:
    dashboard = json.loads((CONTRIB / "grafana" / "hippogriff.json").read_text(encoding="utf-8"))
    asked = {name for query in queries(dashboard) for name in NAME.findall(query)}
    with hippogriff.reserve("1MiB", device="host"):
        told = set(re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", metrics.text(), re.MULTILINE))
    assert "hippogriff_waiting" in asked
    assert asked <= told


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads((CONTRIB / "grafana" / "hippogriff.json").read_text(encoding="utf-8"))
    cells = []
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns = range(place["x"], place["x"] + place["w"])
        rows = range(place["y"], place["y"] + place["h"])
        cells += [(column, row) for column in columns for row in rows]
    assert len(set(cells)) == len(cells)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
