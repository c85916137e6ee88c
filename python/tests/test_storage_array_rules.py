"""Where arrays in storage keep to NumPy's rules, and what they say where they do not."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest

import hippogriff
from hippogriff import _frameworks

if TYPE_CHECKING:
    from pathlib import Path

np = pytest.importorskip("numpy")


@pytest.fixture
def numbers(tmp_path: Path) -> tuple[Path, Any]:
    """Return a file of 50 rows of 7 numbers, and what is in it."""
    expected = np.random.default_rng(11).random((50, 7), dtype="float32")
    path = tmp_path / "numbers"
    path.write_bytes(expected.tobytes())
    return path, expected


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda call: call.__name__
)
def test_an_open_array_is_not_copied(numbers: tuple[Path, Any], again: Any) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (50, 7)) as array:
        with pytest.raises(TypeError, match="cannot pickle or copy an open array"):
            again(array)
        np.testing.assert_array_equal(array[...], expected)


@pytest.mark.parametrize("index", [5, -1, np.int64(3), np.array(7), [], [[1, 2], [3, 4]]])
def test_rows_have_the_shape_that_numpy_gives_them(numbers: tuple[Path, Any], index: Any) -> None:
    path, expected = numbers
    rows = index if np.size(index) else np.array(index, int)
    with hippogriff.StorageArray(path, "float32", (50, 7), mode="r+") as array:
        wanted = expected[rows]
        found = array.take(index)
        assert found.shape == wanted.shape
        np.testing.assert_array_equal(found, wanted)
        array.put(index, wanted + 1)
        expected[rows] += 1
        np.testing.assert_array_equal(array[...], expected)
    with hippogriff.StorageArray(path, "float32") as array:
        assert type(array.take(3)) is np.float32
        assert array.take(3) == expected[0, 3]


def test_numpy_takes_all_of_it_at_once(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (50, 7)) as array:
        before = array.statistics()["accesses"]
        np.testing.assert_array_equal(np.asarray(array), expected)
        assert array.statistics()["accesses"] - before == 1
        assert np.asarray(array, "float64").dtype == "float64"
        assert np.sum(array) == pytest.approx(expected.sum())
        with pytest.raises(ValueError, match="without a copy"):
            array.__array__(copy=False)


def test_an_array_without_dimensions_has_no_length(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(np.float64(3).tobytes())
    with hippogriff.StorageArray(path, "float64", ()) as array:
        with pytest.raises(TypeError, match="no length"):
            len(array)
        assert np.asarray(array) == 3


@pytest.mark.parametrize("shape", [(1, 1, 7), (1, 3, 7), (1, 1, 1, 1)])
def test_leading_ones_of_what_is_assigned_do_not_matter(
    numbers: tuple[Path, Any], shape: tuple[int, ...]
) -> None:
    path, expected = numbers
    values = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    expected[3:6] = values
    with hippogriff.StorageArray(path, "float32", (50, 7), mode="r+") as array:
        array[3:6] = values
        np.testing.assert_array_equal(array[...], expected)
        array.put([3, 4, 5], values)
        with pytest.raises(ValueError, match=r"dimensions|broadcast"):
            array[3:6] = np.ones((2, 3, 7))


@pytest.mark.parametrize("shape", [0, (0, 5), (10, 0)])
def test_a_shape_without_elements_is_refused_as_it_was_given(
    numbers: tuple[Path, Any], shape: Any
) -> None:
    with pytest.raises(hippogriff.InvalidArgument) as told:
        hippogriff.StorageArray(numbers[0], "float32", shape)
    assert f"shape {shape} has no elements" in str(told.value)


def test_lengths_are_whatever_is_an_integer(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    for shape in ((np.int32(-1), np.uint8(7)), np.array([50, 7])):
        with hippogriff.StorageArray(path, "float32", shape) as array:
            np.testing.assert_array_equal(array[...], expected)
    with hippogriff.StorageArray(path, "float32", np.int64(10)) as array:
        assert array.shape == (10,)
    for wrong in (2.5, (5, 7.0), "7"):
        with pytest.raises(hippogriff.InvalidArgument, match="neither an integer nor"):
            hippogriff.StorageArray(path, "float32", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_element_types_of_ml_dtypes_are_read_where_it_is(
    numbers: tuple[Path, Any], name: str
) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path, _ = numbers
    expected = np.fromfile(path, getattr(ml_dtypes, name))
    with hippogriff.StorageArray(path, name) as array:
        assert array.dtype == getattr(ml_dtypes, name)
        assert array[...].tobytes() == expected.tobytes()


def test_element_types_that_numpy_lacks_are_refused_before_they_are_used(
    numbers: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    _frameworks.numpy_dtype.cache_clear()
    with pytest.raises(hippogriff.Unsupported, match="pip install ml-dtypes"):
        hippogriff.StorageArray(numbers[0], "bfloat16")


def test_a_new_array_that_cannot_be_opened_leaves_the_files(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    for paths, count, options in (
        (path, 1 << 38, {"cache": 1 << 41}),
        ([path, path.parent / "none" / "b"], 10, {"layout": "replicated"}),
    ):
        with pytest.raises((hippogriff.OutOfDeviceMemory, hippogriff.IoError)):
            hippogriff.StorageArray(paths, "float32", count, mode="w+", **options)
        assert path.read_bytes() == expected.tobytes()


def test_a_copy_that_lost_its_end_is_told_and_not_served(numbers: tuple[Path, Any]) -> None:
    path, _ = numbers
    expected = np.arange(1 << 16, dtype="float32")
    paths = [path, path.with_name("copy")]
    for each in paths:
        expected.tofile(each)
    array = hippogriff.StorageArray(paths, "float32", mode="r+", layout="replicated", cache="64KiB")
    os.truncate(path, 8192)
    assert (array[...] == expected).all()
    array[-1] = 3
    with pytest.raises(hippogriff.ShortFile, match="left out") as told:
        array.__exit__(None, None, None)
    assert array.closed
    assert str(path) in str(told.value)
    assert path.stat().st_size == 8192
    assert np.fromfile(paths[1], "float32")[-1] == 3
    with pytest.raises(hippogriff.InvalidArgument, match="as long as each other") as refused:
        hippogriff.StorageArray(paths, "float32", layout="replicated")
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("io", ["cached", "direct"])
def test_arrays_of_parts_of_a_file_write_only_their_own(tmp_path: Path, io: str) -> None:
    path = tmp_path / "parts"
    np.zeros(5000, "float32").tofile(path)
    bounds = [0, 100, 1025, 2049, 3000, 5000]
    parts = list(itertools.pairwise(bounds))
    arrays = [
        hippogriff.StorageArray(path, "float32", end - begin, mode="r+", offset=4 * begin, io=io)
        for begin, end in parts
    ]
    for array in arrays:
        array[...]  # Each has its lines before the others write.
    for number, array in enumerate(arrays):
        array[[0, -1]] = number + 1
    for array in reversed(arrays):
        array.flush()
        array.close()
    expected = np.zeros(5000, "float32")
    for number, (begin, end) in enumerate(parts):
        expected[[begin, end - 1]] = number + 1
    np.testing.assert_array_equal(np.fromfile(path, "float32"), expected)
