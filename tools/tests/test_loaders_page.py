"""The page on loaders of models: goals, tables, what is left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.loaders_page import is_loaders, page_lines

if TYPE_CHECKING:
    from pathlib import Path


def row(contender: str, rate: float | None, state: str = "cached", **more: Any) -> dict[str, Any]:
    """What the command prints of one loader in one case."""
    process = {"device_bytes": 3 << 20, "host_bytes": -1}
    return {
        "filesystem": "ext4",
        "state": state,
        "tensors": 70,
        "size_bytes": 4 << 30,
        "contender": contender,
        "version": "1",
        "gb_per_second": rate,
        "first_gb_per_second": rate and rate / 2,
        "cpu_seconds_per_gb": rate and 4 / rate,
        "processes": [process] if rate else [],
        "why_not": "" if rate else "not installed",
        **more,
    }


def document(rows: list[dict[str, Any]], model: str = "a GPU") -> dict[str, Any]:
    machine = {"device": {"model": model}, "processor": "p", "cores": 16, "kernel": "k"}
    return {
        "schema": "hippogriff-loaders/1",
        "started": f"2026-{model}",
        "command_line": "hippogriff bench loaders",
        "versions": {"torch": "2"},
        "machine": machine,
        "rows": rows,
    }


def test_goals_and_tables_are_made_of_the_rows(tmp_path: Path) -> None:
    rows = [
        row("limit: copies of pinned memory", 55.0),
        row("hippogriff", 50.0),
        row("other", 25.0),
        row("absent", None),
        row("limit: O_DIRECT, 4 x 512 KiB", 2.0, "cold"),
        row("hippogriff", 1.5, "cold"),
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document(rows)))
    assert is_loaders(path)
    page = "\n".join(page_lines([path], tmp_path / "page.md", plots=False))
    assert "| GB/s | 70 tensors in 4 GiB, cached, from ext4 | ≥ 48 | 50 | met |" in page
    assert (
        "| ratio to the best peer | 70 tensors in 4 GiB, cached, from ext4 | ≥ 1 | 2 | met" in page
    )
    assert "| 0.5 | met |" in page  # CPU seconds beside the other's
    assert "cold, from ext4 | ≥ 0.97 | 0.75 | not met |" in page
    assert "| **hippogriff** | 1 | 50.00 | 25.00 | 0.91 | 0.080 | 3 MiB |  |" in page
    assert "Not measured: absent (not installed)." in page
    assert page_lines([], tmp_path / "page.md", plots=True) == []


def test_what_a_loader_is_beyond_is_no_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for other, judged, share in ((2.05, True, 0.927), (2.2, False, 0.864)):
        rows = [row("limit: O_DIRECT", 2.0, "cold"), row("hippogriff", 1.9, "cold")]
        path.write_text(json.dumps(document([*rows, row("other", other, "cold")])))
        page = "\n".join(page_lines([path], tmp_path / "page.md", plots=False))
        assert f"cold, from ext4 | ≥ 0.97 | {share} | not met |" in page
        assert ("slower than a loader: it is none" in page) != judged


def test_who_gets_most_out_of_a_drive_has_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    rows = [row("limit: O_DIRECT", 2.0, "cold"), row("hippogriff", 2.5, "cold")]
    path.write_text(json.dumps(document(rows)))
    page = "\n".join(page_lines([path], tmp_path / "page.md", plots=False))
    assert "cold, from ext4 | ≥ 0.97 | 1 | met |" in page


def test_a_case_is_of_one_machine(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, model in zip(paths, ("one", "another"), strict=True):
        path.write_text(json.dumps(document([row("hippogriff", 50.0)], model)))
    with pytest.raises(ValueError, match="several machines: another, one"):
        page_lines(paths, tmp_path / "page.md", plots=False)
    paths[1].write_text(json.dumps(document([row("hippogriff", 2.0, "cold")], "another")))
    page = page_lines(paths, tmp_path / "page.md", plots=False)
    assert "- one; p, 16 cores; k; torch 2" in page
    assert "- another; p, 16 cores; k; torch 2" in page
    assert "### 70 tensors in 4 GiB, cached, from ext4, one" in page
    assert "### 70 tensors in 4 GiB, cold, from ext4, another" in page
