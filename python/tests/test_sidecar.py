"""The file of checksums: written, parsed, and refused when it is damaged or hostile."""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippogriff._compare import find_sidecar
from hippogriff._sidecar import Sidecar, format_sidecar, parse_sidecar, read_sidecar
from hippogriff.integrity import SidecarError

if TYPE_CHECKING:
    from pathlib import Path


def _make_sidecar(count: int = 3, **more: int) -> Sidecar:
    fields: dict[str, Any] = {"file_bytes": 10**6, "head_bytes": 8, "block_bytes": 4096}
    fields |= {"head_checksum": 5, **more}
    return Sidecar(**fields, checksums=array("Q", range(count)))


@given(st.integers(0, 200), st.integers(10**6, 2**63 - 1), st.integers(0, 2**64 - 1))
def test_sidecars_are_parsed_as_they_were_written(count: int, size: int, head: int) -> None:
    sidecar = _make_sidecar(
        count, file_bytes=size, head_bytes=min(size // 2, 10**8), head_checksum=head
    )
    assert parse_sidecar(format_sidecar(sidecar)) == sidecar


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SidecarError):
        parse_sidecar(data)


@given(st.integers(0, 64 + 24 + 7), st.integers(0, 7), st.integers(0, 90))
@settings(deadline=None)
def test_any_changed_bit_and_any_missing_byte_is_refused(
    place: int, bit: int, missing: int
) -> None:
    data = bytearray(format_sidecar(_make_sidecar()))
    with pytest.raises(SidecarError):
        parse_sidecar(bytes(data[: len(data) - 1 - missing]))
    with pytest.raises(SidecarError):
        parse_sidecar(bytes(data) + bytes(missing + 1))
    data[place] ^= 1 << bit
    if data[12:16] == bytes(4) or bit:
        with pytest.raises(SidecarError):
            parse_sidecar(bytes(data))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"block_bytes": 0}, "blocks of 0"),
        ({"block_bytes": 1 << 40}, "blocks of"),
        ({"head_bytes": 10**6 + 1}, "of a head"),
        ({"file_bytes": 2**64 - 1}, "bytes"),
        ({"file_bytes": 9999, "count": 4}, "4 blocks"),
        ({"file_bytes": 10**10, "head_bytes": 10**9}, "of a head"),
    ],
)
def test_fields_beyond_bounds_are_refused(fields: dict[str, int], words: str) -> None:
    with pytest.raises(SidecarError, match=words):
        parse_sidecar(format_sidecar(_make_sidecar(**fields)))


def test_size_that_is_told_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "sidecar"
    path.write_bytes(format_sidecar(_make_sidecar()))
    with path.open("ab") as file:
        file.truncate(200_000)
    with pytest.raises(SidecarError, match="it has 200000 bytes, not those of 3 checksums"):
        read_sidecar(str(path), "model", 10**6)


def test_reads_that_are_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sidecar"
    sidecar = _make_sidecar()
    path.write_bytes(format_sidecar(sidecar))
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, min(size, 7)))
    assert read_sidecar(str(path), "model", 10**6) == sidecar


def test_checksums_beside_the_file_are_found_where_those_beside_its_link_lead_nowhere(
    tmp_path: Path,
) -> None:
    (tmp_path / "model").write_bytes(b"model")
    (tmp_path / "model.xxh3").write_bytes(b"checksums")
    link = tmp_path / "link"
    link.symlink_to("model")
    assert find_sidecar(link, None) == str(tmp_path / "model.xxh3")
    (tmp_path / "link.xxh3").symlink_to("nothing")
    assert find_sidecar(link, None) == str(tmp_path / "model.xxh3")
    (tmp_path / "nothing").touch()
    assert find_sidecar(link, None) == str(tmp_path / "link.xxh3")


def test_checksums_of_what_cannot_be_looked_at_are_where_they_would_be() -> None:
    name = "y" * 300
    assert find_sidecar(name, None) == name + ".xxh3"
