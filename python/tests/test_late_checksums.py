"""Checksums of what a GPU loads are read while the first tensors are on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from damage import flip

from hippogriff import ChecksumMismatch, _compare, _scatter
from hippogriff.safetensors import _load, _verify, load_file, load_into, safe_open, save_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Load as into a GPU, where nothing is hashed as it lands; say what begins when."""
    found: list[str] = []
    start, read = _scatter.start_segments, _compare.read_checksums
    monkeypatch.setattr(_load, "room_for", lambda *_: None)
    monkeypatch.setattr(_load, "_FIRST_BYTES", 1000)

    def note_start(*arguments: Any, **named: Any) -> Any:
        found.append("load")
        return start(*arguments, **named)

    def note_read(*arguments: Any) -> Any:
        found.append("read")
        return read(*arguments)

    monkeypatch.setattr(_load, "start_segments", note_start)
    monkeypatch.setattr(_verify, "read_checksums", note_read)
    return found


def make_model(path: Path, name: str = "first") -> None:
    """Write two tensors, a batch each, with their checksums."""
    tensors = {name: np.full(1000, 1, np.uint8), f"{name}.2": np.full(5000, 2, np.uint8)}
    save_file(tensors, path, checksum=True)


def head_bytes(path: Path) -> int:
    """Return how many bytes come before the data."""
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_one_file_is_on_its_way_before_its_checksums_are_read(
    tmp_path: Path, events: list[str]
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path)
    assert load_file(path, framework="np", verify=True)["first.2"].sum() == 10_000
    assert events[0] == "load"
    assert events.count("read") == 1
    with safe_open(path, "np") as file:
        begin = file._header.tensors["first.2"].offset
    flip(path, begin + 4000)
    with pytest.raises(ChecksumMismatch, match=r"tensor 'first\.2', bytes 0 to 5000"):
        load_file(path, framework="np", verify=True)


def test_a_file_without_tensors_is_compared(tmp_path: Path, events: list[str]) -> None:
    path = tmp_path / "none.safetensors"
    save_file({}, path, checksum=True)
    assert load_file(path, framework="np", verify=True) == {}
    assert events == ["read"]
    flip(path, head_bytes(path) - 1)  # a blank behind the header's text, or its brace
    with pytest.raises(ChecksumMismatch, match="bytes 0 to"):
        load_file(path, framework="np", verify=True)


def test_all_of_several_files_are_known_before_anything_is_loaded(
    tmp_path: Path, events: list[str]
) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in "ab"]
    for path in paths:
        make_model(path, path.stem)
    assert len(load_file(paths, framework="np", verify=True)) == 4
    assert events[:3] == ["read", "read", "load"]


def test_arrays_are_not_filled_before_the_header_is_known(
    tmp_path: Path, events: list[str]
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path)
    text = path.read_bytes()
    path.write_bytes(text.replace(b'"first"', b'"farst"', 1))
    arrays = {"farst": np.zeros(1000, np.uint8), "first.2": np.zeros(5000, np.uint8)}
    with pytest.raises(ChecksumMismatch, match="bytes 0 to"):
        load_into(arrays, path, verify=True)
    assert not any(array.any() for array in arrays.values())
    assert "load" not in events


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"first"', b'"farst"'),
        (b'"U8"', b'"I8"'),
        (b'"U8"', b'"X8"'),
        (b"[1000]", b"[1001]"),
        (b'{"', b'["'),
    ],
)
def test_a_damaged_header_is_told_as_that(
    tmp_path: Path, events: list[str], old: bytes, new: bytes
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path)
    text = path.read_bytes()
    assert old in text
    path.write_bytes(text.replace(old, new, 1))
    with pytest.raises(ChecksumMismatch, match="bytes 0 to") as raised:
        load_file(path, framework="np", verify=True)
    assert raised.value.mismatches[0].size == head_bytes(path)
    assert events.count("read") == 1


def test_missing_checksums_are_told_before_anything_is_loaded(
    tmp_path: Path, events: list[str]
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path)
    path.with_name(path.name + ".xxh3").unlink()
    with pytest.raises(FileNotFoundError, match="hippogriff checksum"):
        load_file(path, framework="np", verify=True)
    assert "load" not in events
