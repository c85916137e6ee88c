"""An open file: its parts verified, and refused as the safetensors package refuses them."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from damage import flip
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hippogriff
from hippogriff import _sidecar
from hippogriff.arrays import load_npy
from hippogriff.integrity import write_checksums
from hippogriff.safetensors import SafetensorError, safe_open, save_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK = _sidecar.BLOCK_BYTES


def _elements(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(5).integers(0, 1 << 15, shape, np.int16)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), block_bytes=st.sampled_from([4096, 4099, _BLOCK]))
def test_verified_parts_are_numpys(
    tmp_path: Path, draw_index: Any, data: st.DataObject, block_bytes: int
) -> None:
    shape = data.draw(st.sampled_from([(70, 9, 31), (3, 5000), (1, 1, 9000), (20000,), (0, 4), ()]))
    array, path = _elements(shape), tmp_path / "parts.safetensors"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hippogriff.safetensors._verify.BLOCK_BYTES", block_bytes)
        save_file({"w": np.zeros(7, np.uint8), "x": array}, path, checksum=True)
    index = draw_index(data, shape)
    try:
        expected = array[index]
    except IndexError:
        expected = None
    with safe_open(path, "np", verify=True) as file:
        if expected is None:
            with pytest.raises(IndexError):
                file.get_slice("x")[index]
            return
        found = file.get_slice("x")[index]
    assert found.shape == np.shape(expected)
    assert (found == expected).all()
    assert found.base is None


@pytest.mark.parametrize(
    ("index", "block"),
    [
        (np.s_[:], 5),
        (np.s_[...], 0),
        (np.s_[300:500], 2),
        (np.s_[500:501], 2),
        (np.s_[::2, 3], 6),
        (np.s_[511, 511], 1),
        (np.s_[900:100:9], None),
        (np.s_[0:256], 2),
        (np.s_[256:512], 0),
        (np.s_[1500:], 6),
    ],
)
def test_a_part_is_compared_where_it_lies(tmp_path: Path, index: Any, block: int | None) -> None:
    """Rows have 1 KiB, and 256 of them are a block."""
    path, array = tmp_path / "x.safetensors", _elements((1700, 512))
    save_file({"a": np.zeros(3), "x": array}, path, checksum=True)
    with safe_open(path, "np", verify=True) as file:
        before = file._header.tensors["x"].offset
        assert (file.get_slice("x")[index] == array[index]).all()
        if block is None:
            return
        flip(path, before + block * _BLOCK + 9)
        touched = np.zeros(array.shape, bool)
        touched[index] = True
        rows = np.flatnonzero(touched.any(axis=1))
        if not rows[0] // 256 <= block <= rows[-1] // 256:
            assert (file.get_slice("x")[index] == array[index]).all()
            return
        with pytest.raises(hippogriff.ChecksumMismatch, match="tensor 'x', bytes") as caught:
            file.get_slice("x")[index]
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    (mismatch,) = caught.value.mismatches
    assert (mismatch.tensor, mismatch.tensor_offset) == ("x", block * _BLOCK)
    assert mismatch.offset == before + block * _BLOCK
    assert caught.value.missing == ((mismatch.offset, mismatch.size),)


def test_only_the_blocks_of_a_part_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "sparse.safetensors"
    with path.open("wb") as file:
        header = b'{"x":{"dtype":"U8","shape":[1048576,1024],"data_offsets":[0,1073741824]}}'
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (1 << 30))
    write_checksums(path)
    reports: list[Any] = []
    with safe_open(path, "np", verify=True, explain=reports.append) as opened:
        part = opened.get_slice("x")[700_000:700_001, 3:5]
    assert part.shape == (1, 2)
    assert sum(each.bytes for each in reports[0].files) == _BLOCK


@pytest.mark.parametrize(
    ("index", "kind"),
    [
        (99, IndexError),
        ((0, -5), IndexError),
        ((0, 0, 0), hippogriff.InvalidArgument),
        ((..., ...), hippogriff.InvalidArgument),
        (np.s_[::-1], hippogriff.InvalidArgument),
        ("a", ValueError),
        ([0, 1], ValueError),
    ],
)
def test_refused_parts_are_errors_of_both_packages(
    tmp_path: Path, index: Any, kind: type[Exception]
) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": np.zeros((4, 4))}, path)
    with safe_open(path, "np") as file, pytest.raises(kind, match="tensor 'a'") as caught:
        file.get_slice("a")[index]
    for each in (safetensors.SafetensorError, SafetensorError, hippogriff.InvalidArgument):
        assert isinstance(caught.value, each)
    assert caught.value.object == str(path)  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert pickle.loads(pickle.dumps(type(caught.value))) is type(caught.value)


def test_the_reference_refuses_indices_by_its_own_error(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": np.zeros((4, 4))}, path)
    with safetensors.safe_open(path, "np") as file, pytest.raises(safetensors.SafetensorError):
        file.get_slice("a")[99]


def test_parts_of_a_closed_file_are_refused_as_its_tensors_are(tmp_path: Path) -> None:
    save_file({"a": np.zeros((4, 4))}, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", "np") as file:
        part = file.get_slice("a")
    with pytest.raises(safetensors.SafetensorError, match="is closed"):
        part[0]


def test_what_was_truncated_meanwhile_is_told_with_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors = {name: _elements((4, 40_000)) for name in "ab"}
    save_file(tensors, path)
    with safe_open(path, "np") as file:
        begin, size = file._header.tensors["b"][3:]
        end, left = path.stat().st_size, begin - 100_000
        rows = tuple((begin + number * size // 4 + 14, 4) for number in (1, 2, 3))
        calls: list[tuple[Callable[[], object], tuple[tuple[int, int], ...]]] = [
            (lambda: file.get_tensor("b"), ((begin, size),)),
            (lambda: file.get_tensors(["b", "a"]), ((left, end - left),)),
            (lambda: file.get_slice("b")[3], ((end - size // 4, size // 4),)),
            (lambda: file.get_slice("b")[1:, 7:9], rows),
        ]
        os.truncate(path, left)
        for call, missing in calls:
            with pytest.raises(hippogriff.ShortFile, match="when it was opened") as caught:
                call()
            error = caught.value
            assert (error.object, error.offset, error.missing) == (str(path), left, missing)
        os.truncate(path, end - 2)
        with pytest.raises(hippogriff.ShortFile) as caught:
            file.get_tensor("b")
        assert caught.value.missing == ((end - 2, 2),)


def test_load_npy_tells_of_what_was_truncated_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, array = tmp_path / "x.npy", _elements((400, 400))
    np.save(path, array)

    def truncate(*_: Any) -> None:
        os.truncate(path, 1000)

    monkeypatch.setattr("hippogriff._report.Watch.open", truncate)
    with pytest.raises(hippogriff.ShortFile) as caught:
        load_npy(path)
    assert caught.value.missing == ((1000, 128 + array.nbytes - 1000),)


@pytest.mark.parametrize("wrong", [["a.st", "b.st"], None, 3])
def test_what_is_no_path_of_one_file_is_told(wrong: Any) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match="load_file, load_into and load_plan"):
        safe_open(wrong, "np")


def test_an_index_of_shards_is_no_file_to_open(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors.index.json").write_bytes(b'{"weight_map": {"a": "x.safetensors"}}')
    with pytest.raises(SafetensorError, match="load_file, load_into and load_plan take"):
        safe_open(tmp_path / "x.safetensors.index.json", "np")
