"""The page on arrays in storage, from lines of `array_bench`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

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


def gathers(line_bytes: int, cache_bytes: int, *, chosen: bool, **rates: float) -> list[str]:
    """What `array_bench` prints of random rows, by each way's million rows a second."""
    explained: dict[str, Any] = {"bytes": 1 << 30, "line_bytes": line_bytes, "zero_copy": chosen}
    if chosen:
        explained |= {"cache_seconds": 0.05, "zero_copy_seconds": 0.04}
    shared = {"case": "gather", "rows": "random", "line_bytes": line_bytes, "row_count": 1 << 20}
    return [
        json.dumps(
            shared
            | {"cache_bytes": cache_bytes, "way": way.replace("_", " "), "rounds": 9}
            | {"million_a_second": rate, "wrong": 0, "explain": explained}
        )
        for way, rate in rates.items()
    ]


def test_gathers_are_held_to_the_better_of_both_ways(lines: Path, tmp_path: Path) -> None:
    made = lines.read_text().splitlines()
    made += gathers(4096, 1 << 29, chosen=False, automatic=9.0, cache=20.0, zero_copy=12.0)
    made += gathers(512, 64 << 20, chosen=True, automatic=47.0, cache=36.0, zero_copy=48.0)
    made += gathers(512, 1 << 29, chosen=False, automatic=60.0, cache=60.0)  # was cut off
    lines.write_text("\n".join(made) + "\n")
    page = array_page.page_lines([lines], tmp_path / "page.md", plots=False)
    assert [line for line in page if "better of both" in line] == [
        "| automatic to the better of both ways, rows: random ones, cache of 64 MiB "
        "| 512 B | ≥ 0.95 | 0.98 | met |",
        "| automatic to the better of both ways, rows: random ones, cache of 512 MiB "
        "| 4 KiB | ≥ 0.95 | 0.45 | not met |",
    ]
    assert "| random ones | 512 B | 64 MiB | zero-copy | 47 | 36 | 41.9 | 48 | 52.4 |" in page
    assert "| random ones | 4 KiB | 512 MiB | cache | 9 | 20 |  | 12 |  |" in page
    assert "1,048,576 rows of a line each, out of 1 GiB" in "\n".join(page)


def test_each_part_is_of_the_last_run_that_has_it(lines: Path, tmp_path: Path) -> None:
    without = array_page.page_lines([lines], tmp_path / "page.md", plots=False)
    assert not any("gathered" in line for line in without)
    later = tmp_path / "later.jsonl"
    made = gathers(512, 64 << 20, chosen=True, automatic=47.0, cache=36.0, zero_copy=48.0)
    later.write_text("\n".join([lines.read_text().splitlines()[0], *made]) + "\n")
    page = array_page.page_lines([later, lines], tmp_path / "page.md", plots=False)
    assert page[: len(without)] == without
    assert page[len(without)] == "### Rows gathered on a stream"
    alone = array_page.page_lines([later], tmp_path / "page.md", plots=False)
    assert alone == [*page[:2], *page[len(without) :]]
