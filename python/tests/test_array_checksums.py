"""Arrays of `.npy` files, compared with their checksums where they were loaded."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from damage import flip

from hippogriff import ChecksumMismatch, Unsupported, _sidecar
from hippogriff._scatter import start_scatter
from hippogriff._sidecar import Sidecar, format_sidecar, parse_sidecar
from hippogriff._xxh3 import checksum_bytes
from hippogriff.arrays import ArrayFormatError, load_npy, load_npz
from hippogriff.integrity import SidecarError, verify_checksums, write_checksums

if TYPE_CHECKING:
    from pathlib import Path

    from hippogriff._file import File
    from hippogriff._scatter import Part

_BLOCK = _sidecar.BLOCK_BYTES


@pytest.fixture
def file(folder: Path) -> Path:
    """Return an array of two blocks and some bytes, with its checksums."""
    path = folder / "array.npy"
    np.save(path, np.random.default_rng(1).integers(0, 256, 2 * _BLOCK + 7, np.uint8))
    write_checksums(path)
    return path


def data_offset(path: Path) -> int:
    """Return where the elements begin."""
    with path.open("rb") as npy:
        return 10 + int.from_bytes(npy.read(10)[8:], "little")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(100_000, dtype=">i8"),
        np.asfortranarray(np.arange(150_000.0).reshape(300, 500)),
        np.zeros((0, 3)),
        np.array(2.5),
        np.zeros(3, [("a", "i4"), ("b", "S5")]),
    ],
)
def test_verified_loading_gives_the_same(folder: Path, array: Any) -> None:
    path = folder / "array.npy"
    np.save(path, array)
    write_checksums(path)
    verify_checksums(path)
    loaded = load_npy(path, verify=True)
    assert loaded.dtype == array.dtype
    assert loaded.flags.f_contiguous == array.flags.f_contiguous
    assert loaded.tobytes() == array.tobytes()


@pytest.mark.parametrize("place", [0, 1, _BLOCK - 1, _BLOCK, 2 * _BLOCK, 2 * _BLOCK + 6])
def test_any_changed_byte_is_told_with_its_range(file: Path, place: int) -> None:
    begin = data_offset(file)
    flip(file, begin + place)
    for look in (lambda: load_npy(file, verify=True), lambda: verify_checksums(file)):
        with pytest.raises(ChecksumMismatch, match="of the file: expected") as raised:
            look()
        (mismatch,) = raised.value.mismatches
        assert mismatch.tensor_offset == place // _BLOCK * _BLOCK
        assert mismatch.offset == begin + mismatch.tensor_offset
        assert mismatch.size == min(_BLOCK, 2 * _BLOCK + 7 - mismatch.tensor_offset)
    load_npy(file)


@pytest.mark.parametrize("place", range(0, 128, 5))
def test_a_changed_head_is_told(file: Path, place: int) -> None:
    flip(file, place)
    with pytest.raises(ChecksumMismatch, match="bytes 0 to 128 of the file"):
        verify_checksums(file)
    with pytest.raises((ChecksumMismatch, ArrayFormatError)):
        load_npy(file, verify=True)


def test_an_array_that_is_compared_in_pieces_tells_of_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU.
    monkeypatch.setattr("hippogriff.arrays._verify._is_hashed_as_it_lands", lambda _: False)
    monkeypatch.setattr("hippogriff.arrays._verify._PIECE_BYTES_MIN", _BLOCK)
    transfers: list[Part] = []

    def start(file: File, parts: list[Part], *rest: Any, **options: Any) -> Any:
        transfers.extend(parts)
        return start_scatter(file, parts, *rest, **options)

    monkeypatch.setattr("hippogriff.arrays._load.start_scatter", start)
    path = folder / "array.npy"
    array = np.random.default_rng(2).integers(0, 256, 21 * _BLOCK + 5, np.uint8)
    np.save(path, array)
    write_checksums(path)
    assert np.array_equal(load_npy(path, verify=True), array)
    assert [size for _, size, _ in transfers] == 7 * [3 * _BLOCK] + [5]
    differing = [0, 2, 3, 11, 20, 21]
    for block in differing:
        flip(path, 128 + block * _BLOCK + 4)
    with pytest.raises(ChecksumMismatch) as raised:
        load_npy(path, verify=True)
    assert [each.offset for each in raised.value.mismatches] == [
        128 + block * _BLOCK for block in differing
    ]


def test_another_array_of_the_size_is_told(file: Path) -> None:
    array = np.load(file)
    np.save(file, array[:-1])
    with pytest.raises(ChecksumMismatch, match="not the file they were made of"):
        load_npy(file, verify=True)
    np.save(file, array.view(np.int8))
    with pytest.raises(ChecksumMismatch, match="bytes 0 to 128"):
        load_npy(file, verify=True)


def test_checksums_may_lie_elsewhere_and_must_be_there(file: Path, tmp_path: Path) -> None:
    beside = file.with_name("array.npy.xxh3")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / beside.name).write_bytes(beside.read_bytes())
    beside.unlink()
    with pytest.raises(FileNotFoundError, match="hippogriff checksum"):
        load_npy(file, verify=True)
    for where in (elsewhere, elsewhere / beside.name):
        assert load_npy(file, verify=where).nbytes == 2 * _BLOCK + 7
    beside.write_bytes(b"none")
    with pytest.raises(SidecarError):
        load_npy(file, verify=True)


def test_checksums_that_are_more_or_of_an_archive_are_refused(file: Path) -> None:
    beside = file.with_name("array.npy.xxh3")
    sidecar = parse_sidecar(beside.read_bytes())
    sidecar.checksums.append(1)
    beside.write_bytes(format_sidecar(sidecar))
    with pytest.raises(SidecarError, match="has 3 blocks, and its checksums are 4"):
        load_npy(file, verify=True)
    np.savez(file.with_name("a.npz"), a=np.zeros(3))
    with pytest.raises(ValueError, match="give True or False"):
        load_npz(file.with_name("a.npz"), verify=str(beside))  # type: ignore[arg-type]


def test_checksums_of_the_file_as_a_whole_still_hold_for_it(file: Path) -> None:
    data = file.read_bytes()
    blocks = [data[begin : begin + _BLOCK] for begin in range(0, len(data), _BLOCK)]
    beside = file.with_name("array.npy.xxh3")
    old = parse_sidecar(beside.read_bytes())
    checksums = old.checksums[:0]
    checksums.extend(map(checksum_bytes, blocks))
    beside.write_bytes(
        format_sidecar(Sidecar(len(data), 0, _BLOCK, checksum_bytes(b""), checksums))
    )
    verify_checksums(file)
    with pytest.raises(SidecarError, match="make them anew"):
        load_npy(file, verify=True)


def test_bytes_behind_the_array_are_checked_and_not_loaded(file: Path) -> None:
    with file.open("ab") as npy:
        np.save(npy, np.arange(3))
    write_checksums(file)
    verify_checksums(file)
    with pytest.raises(Unsupported, match="more bytes than its array"):
        load_npy(file, verify=True)
    flip(file, file.stat().st_size - 1)
    with pytest.raises(ChecksumMismatch):
        verify_checksums(file)


@pytest.mark.parametrize(
    "head", [b"\x93NUMPY\x01\x00\xff\xff", b"\x93NUMPY\x09\x00\x10\x00", b"\x93NUM"]
)
def test_what_only_begins_as_an_array_is_a_file_of_bytes(folder: Path, head: bytes) -> None:
    path = folder / "data.npy"
    path.write_bytes(head + random.Random(1).randbytes(1000))
    write_checksums(path)
    assert parse_sidecar(path.with_name("data.npy.xxh3").read_bytes()).head_bytes == 0
    verify_checksums(path)
    flip(path, 500)
    with pytest.raises(ChecksumMismatch):
        verify_checksums(path)
