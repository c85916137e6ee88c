"""Files that are an array: opened with an element type, indexed, written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hippogriff

if TYPE_CHECKING:
    from pathlib import Path

_ARRAY = np.arange(60, dtype=np.float32).reshape(5, 4, 3)


@pytest.fixture
def path(folder: Path) -> Path:
    file = folder / "x.bin"
    file.write_bytes(bytes(16) + _ARRAY.tobytes())
    return file


def test_a_typed_file_tells_and_loads_its_parts(path: Path) -> None:
    with hippogriff.open(path, dtype="float32", shape=(-1, 4, 3), offset=16) as file:
        assert (file.shape, file.ndim, file.size, file.nbytes) == ((5, 4, 3), 3, 60, 240)
        assert (file.dtype, file.offset, file.mode, len(file)) == ("float32", 16, "r", 5)
        assert not file.fortran_order
        assert "shape=(5, 4, 3), dtype='float32'" in repr(file)
        part = file[1:3]
        assert (part == _ARRAY[1:3]).all()
        assert part.flags.owndata
        assert (file[-1, ..., 1] == _ARRAY[-1, ..., 1]).all()
        assert (file[::2, 1:, ::2] == _ARRAY[::2, 1:, ::2]).all()
        assert (np.asarray(file, np.float64) == _ARRAY).all()
        assert (np.stack(list(file)) == _ARRAY).all()
        assert file[2, 3, 1] == _ARRAY[2, 3, 1]
        with pytest.raises(IndexError):
            file[5]
        with pytest.raises(ValueError, match="copy"):
            np.asarray(file, copy=False)
    assert file.closed
    with pytest.raises(hippogriff.InvalidArgument, match="closed"):
        file[0]


def test_without_a_shape_it_is_all_that_is_in_the_file(path: Path) -> None:
    with hippogriff.open(path, dtype=np.int16, offset=16) as file:
        assert file.shape == (120,)
        assert file[...].tobytes() == _ARRAY.tobytes()
    pair = np.dtype([("a", "<f4"), ("b", ">u2", (4,))])
    with hippogriff.open(path, dtype=pair, offset=16) as file:
        assert file.dtype == pair
        assert (file[3:5] == np.frombuffer(_ARRAY.tobytes(), pair)[3:5]).all()
    with hippogriff.open(path, dtype="bfloat16") as file:
        assert file[8:10].view(np.uint16).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "float32", "shape": (61,), "offset": 16}, "60 elements"),
        ({"dtype": "float32", "shape": (-1, 7)}, "do not fill"),
        ({"dtype": "complex128", "offset": 20}, "multiple of 16"),
        ({"dtype": "float32", "offset": 257}, "ends before offset 257"),
        ({"dtype": "float32", "offset": -1}, "offset is -1"),
        ({"dtype": "float32", "shape": (-2,)}, "negative"),
        ({"dtype": "float32", "shape": (2**62, 2**62)}, "beyond any file"),
        ({"dtype": "nonsense"}, "nonsense"),
        ({"dtype": object}, "Python objects"),
        ({"dtype": "V0"}, "no element type"),
        ({"shape": (3,)}, "dtype"),
        ({"dtype": "float32", "mode": "a"}, "mode 'a'"),
        ({"dtype": "float32", "framework": "jax"}, "jax"),
        ({"dtype": "float32", "mode": "w"}, "whole shape"),
        ({"dtype": "float32", "mode": "w", "shape": (2, -1)}, "whole shape"),
    ],
)
def test_what_does_not_fit_is_told_and_the_file_stays(
    path: Path, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match=words):
        hippogriff.open(path, **arguments)
    assert path.stat().st_size == 256


def test_existing_arrays_are_filled(path: Path) -> None:
    with hippogriff.open(path, dtype="float32", shape=(5, 4, 3), offset=16) as file:
        target = np.zeros((2, 4), np.float32)
        file.read_into(target, np.s_[1:3, :, 2])
        assert (target == _ARRAY[1:3, :, 2]).all()
        ours = hippogriff.empty((5, 4, 3), "float32", "host")
        file.read_into(ours)
        assert (ours.to_numpy() == _ARRAY).all()
        raw = bytearray(48)
        file.read_into(raw, 4)
        assert bytes(raw) == _ARRAY[4].tobytes()
        for wrong, words in (
            (np.zeros((2, 3), np.float32), "shape"),
            (np.zeros((4, 3), np.int32), "elements are int32"),
            (np.zeros((4, 6), np.float32)[:, ::2], "contiguous"),
            (bytearray(47), "47 bytes"),
        ):
            with pytest.raises(hippogriff.InvalidArgument, match=words):
                file.read_into(wrong, 0)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_parts_are_written_in_place(tmp_path: Path, data: st.DataObject, draw_index: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 6), max_size=3)))
    expected = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    index = draw_index(data, shape)
    with hippogriff.open(tmp_path / "x", "w", dtype="int32", shape=shape, offset=3) as file:
        file[...] = expected
        try:
            values = -np.array(expected[index])
        except IndexError:
            return
        file[index] = values
        expected[index] = values
        assert (file[...] == expected).all()
    assert (tmp_path / "x").read_bytes() == bytes(3) + expected.tobytes()


def test_writing_asks_for_a_mode_a_shape_and_an_element_type(path: Path) -> None:
    with (
        hippogriff.open(path, dtype="float32", offset=16) as file,
        pytest.raises(hippogriff.InvalidArgument, match=r"r\+"),
    ):
        file[0:1] = np.zeros(1, np.float32)
    with hippogriff.open(path, "r+", dtype="float32", shape=(5, 4, 3), offset=16) as file:
        for wrong in (np.zeros((3, 4), np.float32), np.zeros((4, 3)), np.zeros(12, np.float32)):
            with pytest.raises(hippogriff.InvalidArgument):
                file[0] = wrong
        with pytest.raises(TypeError):
            file[0, 0, 0] = 3.0
        assert (file[...] == _ARRAY).all()


@pytest.mark.parametrize(
    "more",
    [
        {"shape": 3},
        {"offset": 4},
        {"device": "cuda:9"},
        {"framework": "nonsense"},
        {"host_memory": "64MiB"},
        {"progress": False},
        {"explain": True},
    ],
)
def test_arguments_of_an_array_ask_for_an_element_type(path: Path, more: Any) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match="give its dtype"):
        hippogriff.open(path, **more)


def test_more_pieces_than_are_written_one_by_one_are_refused(tmp_path: Path) -> None:
    with hippogriff.open(tmp_path / "x", "w", dtype="uint8", shape=(70_000, 2)) as file:
        with pytest.raises(hippogriff.Unsupported, match="whole rows"):
            file[:, 0] = np.ones(70_000, np.uint8)
        file[69_990:, 1] = np.ones(10, np.uint8)
        assert file[:, 1].sum() == 10


def test_a_file_larger_than_memory_is_read_and_written_by_parts(tmp_path: Path) -> None:
    shape = (1 << 22, 1 << 16)  # 1 TiB of which next to nothing is on the disk
    with hippogriff.open(tmp_path / "x", "w", dtype="float32", shape=shape) as file:
        rows = np.random.default_rng(1).random((3, 1 << 16), np.float32)
        file[3_000_000:3_000_003] = rows
        assert (file[3_000_001, 7:9] == rows[1, 7:9]).all()
        assert (file[2_999_999:3_000_003, 100] == [0, *rows[:, 100]]).all()


def test_a_file_truncated_meanwhile_is_told(path: Path) -> None:
    with hippogriff.open(path, dtype="float32", offset=16) as file:
        with path.open("r+b") as other:
            other.truncate(100)
        with pytest.raises(hippogriff.ShortFile, match=r"x\.bin"):
            file[...]
