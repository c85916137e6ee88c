"""Which bytes an index names, and reading only those: beside NumPy's indexing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hippogriff
from hippogriff import _frameworks, _slices
from hippogriff._frameworks import make_framework
from hippogriff._report import Watch

if TYPE_CHECKING:
    from pathlib import Path

_OFFSET = 11


def write_array(path: Path, array: np.ndarray[Any, Any]) -> _slices.Extent:
    path.write_bytes(bytes(_OFFSET) + array.tobytes() + bytes(5))
    return _slices.Extent(_OFFSET, array.shape, array.dtype.name, array.itemsize)


def load(path: Path, extent: _slices.Extent, index: Any) -> np.ndarray[Any, Any]:
    framework = make_framework("np", "cpu")
    selection = _slices.resolve(index, extent.shape)
    array: np.ndarray[Any, Any] = framework.empty(extent.dtype, selection.shape)
    array.fill(99)
    with hippogriff.open(path) as file:
        _slices.fill(file, extent, selection, _slices.target_of(framework, array), Watch())
    return array


@pytest.fixture(params=["small", "runs", "holes", "blocks", "rows", "gaps"])
def small_limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every way of reading, on small arrays."""
    limits = {
        "small": {},
        "runs": {"_PARTS_MAX": 50, "_SMALL_RUNS": 0},
        "holes": {"_GAP_BYTES": 3, "_IN_FLIGHT": 2, "_SMALL_RUNS": 0},
        "blocks": {"_RUNS_FEW": 1, "_BLOCK_BYTES": 100},
        "rows": {"_RUNS_FEW": 1, "_BLOCK_BYTES": 1},
        "gaps": {"_RUNS_FEW": 1, "_BLOCK_BYTES": 100, "_GAP_BYTES": 7},
    }
    for name, value in limits[request.param].items():
        monkeypatch.setattr(_slices, name, value)
    return str(request.param)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
@pytest.mark.usefixtures("small_limits")
def test_parts_are_numpys(tmp_path: Path, data: st.DataObject, draw_index: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 9), max_size=4)))
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    extent = write_array(tmp_path / "x", array)
    index = draw_index(data, shape)
    try:
        expected = array[index]
    except IndexError:
        with pytest.raises(IndexError):
            _slices.resolve(index, shape)
        return
    found = load(tmp_path / "x", extent, index)
    assert found.shape == np.shape(expected)
    assert (found == expected).all()


@pytest.mark.parametrize(
    ("index", "number", "size_bytes"),
    [
        (np.s_[2:4], 1, 2 * 60),
        (np.s_[:, 1:3], 5, 2 * 12),
        (np.s_[:, :, 2], 25, 4),
        (np.s_[3, 2], 1, 12),
        (np.s_[3, 2, 1], 1, 4),
        (np.s_[::2], 3, 60),
        (np.s_[::2, :, 1:], 15, 8),
        (np.s_[4::2], 1, 60),
    ],
)
def test_what_lies_together_is_one_run(index: Any, number: int, size_bytes: int) -> None:
    extent = _slices.Extent(0, (5, 5, 3), "int32", 4)
    runs = _slices.find_runs(extent, _slices.resolve(index, extent.shape))
    assert (runs.number, runs.size_bytes) == (number, size_bytes)
    assert len(list(runs.offsets())) == number


def test_holes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # 1 TiB, of which the file system stores nothing
        for row in range(0, 1 << 16, 1 << 14):
            file.seek(row << 24)
            file.write(row.to_bytes(8, "little"))
    extent = _slices.Extent(0, (1 << 16, 1 << 21), "uint64", 8)
    assert load(path, extent, np.s_[:: 1 << 14, 0]).tolist() == list(range(0, 1 << 16, 1 << 14))
    assert load(path, extent, np.s_[1 << 14, :3]).tolist() == [1 << 14, 0, 0]


@pytest.mark.parametrize(
    ("shape", "index", "read_bytes"),
    [
        ((4, 1024, 4096), np.s_[:, :600, 0:1], 4 * 600 * 4096),  # holes of 1.7 MB between four
        ((4, 1024, 4096), np.s_[:, :900, 0:1], 4 * 1024 * 4096),
        ((1, 1024, 4096), np.s_[0, :300, 0:1], 300 * 4096),  # what is behind is no better
    ],
)
def test_blocks_have_no_large_holes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    index: Any,
    read_bytes: int,
) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint32).astype(np.uint8).reshape(shape)
    extent = write_array(tmp_path / "x", array)
    sizes: list[int] = []
    start = _slices._start

    def count(file: Any, parts: Any, *more: Any) -> Any:
        sizes.extend(size for _, size, _ in parts)
        return start(file, parts, *more)

    monkeypatch.setattr(_slices, "_start", count)
    np.testing.assert_array_equal(load(tmp_path / "x", extent, index), array[index])
    assert sum(sizes) == read_bytes


def test_a_column_takes_no_more_memory_than_itself_and_two_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_slices, "_BLOCK_BYTES", 4096)
    array = np.random.default_rng(3).integers(0, 99, (3000, 40, 2), np.uint8)
    extent = write_array(tmp_path / "x", array)
    made: list[int] = []

    class Counting(_frameworks._Numpy):
        def empty(self, dtype: Any, shape: tuple[int, ...], order: str = "C") -> Any:
            made.append(int(np.prod(shape)))
            return super().empty(dtype, shape, order)

    selection = _slices.resolve(np.s_[:, ::3, 1], extent.shape)
    found = np.empty(selection.shape, np.uint8)
    with hippogriff.open(tmp_path / "x") as file:
        _slices.fill(file, extent, selection, _slices.target_of(Counting("cpu"), found), Watch())
    assert (found == array[:, ::3, 1]).all()
    assert made == [4080, 4080]
