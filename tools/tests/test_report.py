"""The page of measurements is what its generator makes of the committed results."""

from __future__ import annotations

import itertools
from pathlib import Path

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
