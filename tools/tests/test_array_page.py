"""The page on arrays in storage, from lines of `array_bench`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench import array_page

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """What `array_bench` prints, for two sizes of lines."""
    path = tmp_path / "array.jsonl"
    about = {"device": "GPU", "host_pointers": 1, "cores": 2, "data_bytes": 1 << 30}
    made = [json.dumps(about)]
    for size, millions in ((512, 40.0), (4096, 12.0)):
        for name in (*array_page._READS, *array_page._RATES):
            share = 0.7 if name == "misses" else 1
            entry = {"case": name, "line_bytes": size, "gb_a_second": 500.0}
            made.append(json.dumps(entry | {"million_a_second": share * millions}))
        made.append(json.dumps({"case": "flush", "line_bytes": size, "seconds": 1}))
    path.write_text("\n".join(made) + "\n")
    return path


def test_goals_are_judged_for_each_size(lines: Path, tmp_path: Path) -> None:
    assert array_page.is_array_bench(lines)
    page = "\n".join(array_page.page_lines([lines], tmp_path / "page.md", plots=False))
    assert "| misses, a warp a line, million a second | 512 B | ≥ 30 | 28 | not met |" in page
    assert "| misses, a warp a line, to zero-copy reads | 4 KiB | ≥ 0.8 | 0.70 | not met |" in page
    assert "lane, million a second | 4 KiB | ≥ 10 | 12 | met |" in page
    assert "each thread, GB/s | 512 B | ≥ 1000 | 500 | not met |" in page
    assert "neighbours, GB/s | 4 KiB | ≥ 430 | 500 | met |" in page
    assert "| zero-copy reads of the same blocks, million a second | 40 | 12 |" in page
    assert array_page.page_lines([], tmp_path / "page.md", plots=True) == []


def test_other_files_are_none(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"schema": "x"}')
    assert not array_page.is_array_bench(path)
