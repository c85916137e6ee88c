"""The page of measurements is what its generator makes of the committed results."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from bench import report

ROOT = Path(__file__).resolve().parents[2]


def without_plots(page: Path) -> list[str]:
    lines = [line for line in page.read_text().splitlines() if not line.startswith("![")]
    # A plot leaves an empty line before and behind it.
    return [line for line, _ in itertools.groupby(lines)]


def test_the_page_is_made_of_the_results(tmp_path: Path) -> None:
    results = sorted((ROOT / "bench" / "results").glob("*.json*"))
    report.write_page(results, tmp_path / "page.md", "Performance", plots=False)
    made = without_plots(tmp_path / "page.md")
    assert made == without_plots(ROOT / "docs" / "performance.md")
    assert len(made) > 100


def document(gpu: str, cases: list[tuple[str, int, float]]) -> dict[str, Any]:
    """Return a document about a GPU: contenders, sizes and rates of cold sends."""
    return {
        "machine": {"device": {"name": "cuda:0", "model": gpu}},
        "latencies": [],
        "results": [
            {
                "contender": contender,
                "size_bytes": size,
                "direction": "send",
                "filesystem": "ext4",
                "state": "cold",
                "summary": {"gb_per_second_median": rate},
            }
            for contender, size, rate in cases
        ],
    }


def test_a_case_is_of_one_device() -> None:
    """The last one that hippogriff was measured on, whoever was measured later elsewhere."""
    results = report.Results(
        [
            document("A", [("hippogriff", 1, 3.0), ("naive", 1, 1.0), ("hippogriff", 2, 3.5)]),
            document("B", [("hippogriff", 1, 2.0), ("drive_limit", 1, 2.5)]),
            document("A", [("kvikio", 1, 9.0), ("kvikio", 2, 1.5)]),
        ]
    )
    cold = report.Setting("send", "ext4", "cold")
    of = {
        (size, name): entry["summary"]["gb_per_second_median"]
        for size in (1, 2)
        for name in ("hippogriff", "naive", "drive_limit", "kvikio")
        if (entry := results.best(cold, size, name))
    }
    assert of == {
        (1, "hippogriff"): 2.0,
        (1, "drive_limit"): 2.5,
        (2, "hippogriff"): 3.5,
        (2, "kvikio"): 1.5,
    }
    assert (results.gpu(cold, 1), results.gpu(cold, 2)) == ("B", "A")
    assert report.gpu_lines(results, cold) == ["1 B: B; 2 B: A.", ""]
