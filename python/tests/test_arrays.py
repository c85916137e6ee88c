"""Loading and saving `.npy` and `.npz` files, beside NumPy."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import hippogriff
from hippogriff.arrays import (
    ArrayFormatError,
    _inflate,
    _load,
    load_npy,
    load_npz,
    open_npy,
    save_npy,
)

if TYPE_CHECKING:
    from pathlib import Path

_quick = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60
)


def assert_same(found: Any, expected: Any) -> None:
    """Compare element types, shapes, orders and bytes."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.flags.f_contiguous == expected.flags.f_contiguous
    assert found.tobytes() == expected.tobytes()
    assert found.flags.owndata
    assert found.flags.writeable


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Draw arrays of all element types but objects, of all orders and byte orders."""
    dtype = draw(nps.scalar_dtypes() | nps.array_dtypes(max_size=3) | nps.nested_dtypes())
    assume(dtype.itemsize > 0 and dtype.subdtype is None)
    assume(all(field[0].itemsize for field in (dtype.fields or {}).values()))
    shape = draw(nps.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    count = int(np.prod(shape))
    seed = draw(st.integers(0, 2**32))
    data = np.random.default_rng(seed).integers(0, 128, count * dtype.itemsize, np.uint8)
    array = np.frombuffer(data.tobytes(), dtype, count).reshape(shape)
    return np.array(array, order="F" if draw(st.booleans()) else "C")


@_quick
@given(array=arrays(), version=st.sampled_from([None, (1, 0), (2, 0), (3, 0)]))
def test_what_numpy_saved_is_loaded(
    tmp_path: Path, array: np.ndarray[Any, Any], version: tuple[int, int] | None
) -> None:
    path = tmp_path / "x.npy"
    with path.open("wb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            np.lib.format.write_array(file, array, version)
        except (UnicodeEncodeError, ValueError):
            assume(False)
    assert_same(load_npy(path), np.load(path))
    with open_npy(path) as opened:
        assert opened.shape == array.shape
        assert opened[...].tobytes() == array.tobytes()


@_quick
@given(array=arrays())
def test_what_is_saved_is_byte_for_byte_numpys(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    expected = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.save(expected, array)
        save_npy(tmp_path / "x.npy", array)
    assert (tmp_path / "x.npy").read_bytes() == expected.getvalue()


@_quick
@given(data=st.data(), order=st.sampled_from("CF"))
def test_parts_of_npy_files_are_loaded_and_written(
    tmp_path: Path, data: st.DataObject, order: str, draw_index: Any
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 7), max_size=4)))
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    array = np.array(array, order="F" if order == "F" else "C")
    np.save(tmp_path / "x.npy", array)
    index = draw_index(data, shape)
    with open_npy(tmp_path / "x.npy", "r+") as file:
        try:
            expected = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                file[index]
            return
        found = file[index]
        assert found.shape == np.shape(expected)
        assert (found == expected).all()
        target = np.zeros(found.shape, np.int16, order="F" if file.fortran_order else "C")
        file.read_into(target, index)
        assert (target == expected).all()
        file[index] = -target
        array[index] = -array[index]
    assert (np.load(tmp_path / "x.npy") == array).all()


@_quick
@given(
    members=st.dictionaries(st.text("abcé/_ü0", min_size=1, max_size=8), arrays(), max_size=5),
    compressed=st.booleans(),
)
def test_what_numpy_put_into_an_archive_is_loaded(
    tmp_path: Path, members: dict[str, np.ndarray[Any, Any]], compressed: bool
) -> None:
    assume(not any(name.endswith("/") for name in members))
    path = tmp_path / "x.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save: Any = np.savez_compressed if compressed else np.savez
        save(path, **members)
    found = load_npz(path, verify=True)
    with np.load(path) as theirs:
        assert list(found) == theirs.files
        for name, array in found.items():
            assert_same(array, theirs[name])


def test_all_stored_arrays_come_by_one_transfer(folder: Path) -> None:
    path = folder / "x.npz"
    np.savez(path, **{f"a{number}": np.full(1000, number) for number in range(500)})  # type: ignore[arg-type]
    before = hippogriff.stats()["transfers_finished"]
    found = load_npz(path)
    assert hippogriff.stats()["transfers_finished"] - before == 1
    assert all((array == int(name[1:])).all() for name, array in found.items())
    some = load_npz(path, names=["a7", "a3", "a7"])
    assert list(some) == ["a7", "a3"]
    with pytest.raises(ArrayFormatError, match=r"x\.npz: it has no array 'b'"):
        load_npz(path, names=["b"])
    with pytest.raises(hippogriff.InvalidArgument, match="one string"):
        load_npz(path, names="a7")


def test_arrays_far_apart_are_loaded_without_what_is_between(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    middle = np.zeros(3 << 20, np.uint8)
    np.savez(path, a=np.arange(5), middle=middle, b=np.arange(6))
    found = load_npz(path, names=["a", "b"])
    assert (found["a"] == np.arange(5)).all()
    assert (found["b"] == np.arange(6)).all()


def test_archives_of_other_programs_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    array = np.arange(10.0)
    data = io.BytesIO()
    np.save(data, array)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("folder/", b"")
        archive.writestr("folder/a.npy", data.getvalue())
        archive.writestr("no suffix", data.getvalue() + b"more")
        with archive.open("zip64.npy", "w", force_zip64=True) as member:
            member.write(data.getvalue())
        archive.writestr("README", b"What this is.")
        archive.comment = b"a comment"
    names = ["folder/a", "no suffix", "zip64"]
    found = load_npz(path, names=names, verify=True)
    assert all((found[name] == array).all() for name in names)
    with pytest.raises(ArrayFormatError, match="'README': it begins with b'What t'"):
        load_npz(path)
    path.write_bytes(b"PK\5\6" + bytes(18))
    assert load_npz(path) == {}


def _with_local(data: bytearray, offset: int, field: bytes) -> None:
    """Change the local header of the first member."""
    data[offset : offset + len(field)] = field


def _with_central(data: bytearray, offset: int, field: bytes) -> None:
    """Change the first entry of the directory."""
    begin = data.index(b"PK\1\2") + offset
    data[begin : begin + len(field)] = field


@pytest.mark.parametrize(
    ("change", "offset", "field", "words"),
    [
        (_with_local, 0, b"XX", "not as .npz does"),
        (_with_local, 8, b"\x08", "does not agree"),
        (_with_local, 6, b"\x01", "encrypted"),
        (_with_local, 26, b"\x02", "header has the name b'a.'"),
        (_with_local, 28, b"\xff\xff", "end at"),
        (_with_local, 28, b"\x00\x00", "not as .npy does"),
        (_with_local, 30, b"z", "header has the name"),
        (_with_central, 8, b"\x01", "encrypted"),
        (_with_central, 10, b"\x0c", "does not agree"),
        (_with_central, 20, b"\xff\x00", "bytes, and"),
        (_with_central, 20, b"\xff\xff\xff\xff\xff\xff\xff\xff", "in the directory"),
        (_with_central, 20, struct.pack("<II", 2**31, 2**31), "in the directory"),
        (_with_central, 42, b"\x01", "does not agree"),
        (_with_central, 42, b"\xff\xff\xff\x7f", "beyond the file"),
        (_with_central, 46, b"b", "header has the name"),
        (_with_central, 16, b"\0\0\0\0", "CRC-32"),
    ],
)
def test_archives_that_are_not_sound_are_refused(
    tmp_path: Path, change: Any, offset: int, field: bytes, words: str
) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(100.0), c=np.arange(7))
    data = bytearray(path.read_bytes())
    change(data, offset, field)
    path.write_bytes(data)
    with pytest.raises((ArrayFormatError, hippogriff.Unsupported), match=words) as caught:
        load_npz(path, verify=True)
    assert str(path) in str(caught.value)


def test_arrays_of_one_name_or_place_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    data = io.BytesIO()
    np.save(data, np.arange(50))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", data.getvalue())
        archive.writestr("a", data.getvalue())
    with pytest.raises(ArrayFormatError, match="'a' twice"):
        load_npz(path)
    np.savez(path, aa=np.arange(50), ab=np.arange(50))
    both = bytearray(path.read_bytes())
    second = both.index(b"PK\1\2", both.index(b"PK\1\2") + 1)
    both[second + 42 : second + 46] = bytes(4)  # where the first is
    both[second + 47 : second + 48] = b"a"
    both[second + 46 : second + 48] = b"aa"
    path.write_bytes(both)
    with pytest.raises(ArrayFormatError, match="twice"):
        load_npz(path)


def test_an_archive_in_an_array_is_refused(tmp_path: Path) -> None:
    # The data of one holds the header of another: both are sound, but they overlap.
    inner = io.BytesIO()
    np.savez(inner, b=np.arange(50))
    outer = tmp_path / "x.npz"
    with zipfile.ZipFile(outer, "w") as archive:
        data = io.BytesIO()
        np.save(data, np.frombuffer(inner.getvalue(), np.uint8))
        archive.writestr("a.npy", data.getvalue())
        archive.writestr("b.npy", b"")
    both = bytearray(outer.read_bytes())
    theirs = inner.getvalue().index(b"PK\1\2")
    place = both.index(b"PK\3\4", 4)  # in the data of a
    entry = bytearray(inner.getvalue()[theirs : theirs + 46])
    ours = both.rindex(b"PK\1\2")
    both[ours + 10 : ours + 28] = entry[10:28]
    both[ours + 42 : ours + 46] = place.to_bytes(4, "little")
    outer.write_bytes(both)
    with pytest.raises(ArrayFormatError, match=r"overlaps 'a'"):
        load_npz(outer)


def test_what_claims_more_than_deflate_can_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(1 << 20, np.uint8))
    data = bytearray(path.read_bytes())
    _with_central(data, 24, (1 << 31).to_bytes(4, "little"))
    path.write_bytes(data)
    with pytest.raises(ArrayFormatError, match="cannot hold"):
        load_npz(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", bytes(1000))
    with pytest.raises(hippogriff.Unsupported, match="method 14"):
        load_npz(path)


def test_compressed_arrays_go_to_devices_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(1_000_003)
    np.savez_compressed(tmp_path / "x.npz", a=array, e=np.zeros(0))

    monkeypatch.setattr(_inflate, "_CHUNK_BYTES", 1 << 20)
    monkeypatch.setattr(_inflate, "_is_host", lambda _: False)
    found = load_npz(tmp_path / "x.npz")
    assert (found["a"] == array).all()
    assert found["e"].shape == (0,)


def test_corrupted_bytes_are_told_where_they_are_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for save, verify in ((np.savez, True), (np.savez_compressed, False)):
        save(path, a=np.random.default_rng(1).integers(0, 255, 1 << 20, np.uint8))
        data = bytearray(path.read_bytes())
        data[1 << 19] ^= 1
        path.write_bytes(data)
        with pytest.raises(ArrayFormatError, match=r"'a'"):
            load_npz(path, verify=verify)


def test_failed_saves_leave_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"before")
    masked = np.ma.masked_array([1, 2], [True, False])
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for wrong, words in (
        (np.zeros((4, 4))[:, ::2], "contiguous"),
        (np.array([object()]), "Python objects"),
        (masked, "mask"),
        (np.zeros(3, ml_dtypes.bfloat16), "bfloat16; safetensors"),
        (np.zeros(3, ml_dtypes.int4), "int4"),
    ):
        with pytest.raises(hippogriff.InvalidArgument, match=words):
            save_npy(path, wrong)
    with pytest.raises(TypeError, match="no array"):
        save_npy(path, [1, 2])
    with pytest.raises(hippogriff.IoError):
        save_npy(tmp_path / "absent" / "x.npy", np.zeros(1))
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_our_own_arrays_are_saved(tmp_path: Path) -> None:
    array = hippogriff.empty((2, 3), "int16", "host")
    array.copy_from(np.arange(6, dtype=np.int16))
    save_npy(tmp_path / "x.npy", array)
    assert np.load(tmp_path / "x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_paths_that_are_no_such_files_are_told(tmp_path: Path) -> None:
    pipe, short = tmp_path / "pipe", tmp_path / "short"
    os.mkfifo(pipe)
    short.write_bytes(b"\x93NUM")
    for load in (load_npy, load_npz, open_npy):
        for path in (tmp_path, tmp_path / "absent", pipe, short):
            with pytest.raises(hippogriff.HippogriffError) as caught:
                load(path)
            assert str(path) in str(caught.value)
    with pytest.raises(FileNotFoundError):
        load_npy(tmp_path / "absent")
    np.savez(tmp_path / "x.npz", a=np.zeros(1))
    with pytest.raises(ArrayFormatError, match="load_npz"):
        load_npy(tmp_path / "x.npz")
    with pytest.raises(hippogriff.InvalidArgument, match="save_npy"):
        open_npy(tmp_path / "x.npz", "w")


def test_a_file_truncated_meanwhile_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1 << 20))
    with open_npy(tmp_path / "x.npy") as file:
        os.truncate(tmp_path / "x.npy", 1 << 20)
        with pytest.raises(hippogriff.ShortFile, match=r"x\.npy"):
            file[...]


def test_threads_load_side_by_side(folder: Path) -> None:
    array = np.random.default_rng(2).random((300, 1000))
    np.save(folder / "x.npy", array)
    wrong: list[object] = []
    with open_npy(folder / "x.npy") as file:

        def load(number: int) -> None:
            try:
                rows = range(number, 300, 16)
                wrong.extend(r for r in rows if (file[r, ::7] != array[r, ::7]).any())
                if (load_npy(folder / "x.npy") != array).any():
                    wrong.append(number)
            except BaseException as error:  # To the thread that can fail the test.
                wrong.append(error)

        threads = [threading.Thread(target=load, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_small_arrays_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a transfer was started")

    path = tmp_path / "small.npy"
    expected = np.arange(30_000.0).reshape(200, 150)
    for order in ("C", "F"):
        np.save(path, np.asarray(expected, order=order))
        with monkeypatch.context() as patched:
            patched.setattr(_load, "start_scatter", refuse)
            reports: list[Any] = []
            for explain in (False, reports.append):
                found = load_npy(path, explain=explain)
                np.testing.assert_array_equal(found, expected)
                assert found.flags["F_CONTIGUOUS" if order == "F" else "C_CONTIGUOUS"]
            assert "by the calling thread" in str(reports[0])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArrayFormatError, match="follow the header"):
        load_npy(path)


def test_fields_that_an_array_renames_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "records.npy"
    np.save(path, np.zeros(3, [("a", "<f4"), ("b", "<i4")]))
    load_npy(path).dtype.names = ("other", "names")
    assert load_npy(path).dtype.names == ("a", "b")
