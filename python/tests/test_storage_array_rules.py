"""Where arrays in storage keep to NumPy's rules, and what they say where they do not."""

from __future__ import annotations

import copy
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import hippogriff

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


def test_a_new_array_that_cannot_be_opened_leaves_the_files(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    for paths, options in (
        (path, {"cache": 1 << 41}),
        ([path, path.parent / "none" / "b"], {"layout": "replicated"}),
    ):
        with pytest.raises((hippogriff.OutOfDeviceMemory, hippogriff.IoError)):
            hippogriff.StorageArray(paths, "float32", 10, mode="w+", **options)
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
