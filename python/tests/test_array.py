"""Arrays: memory that lives as long as anybody uses it, and its ways to other packages."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hippogriff
from hippogriff import _dlpack
from hippogriff._dtypes import DTYPES, find_dtype, fit_shape
from hippogriff._runtime import runtime

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    gc.collect()
    exports, live = _dlpack.export_count(), len(runtime.live_allocations)
    yield
    gc.collect()
    assert _dlpack.export_count() == exports
    assert len(runtime.live_allocations) == live


def _counting(count: int = 24) -> hippogriff.Array:
    array = hippogriff.empty(count, "float32", "host")
    array.copy_from(np.arange(count, dtype=np.float32))
    return array


def test_array_tells_what_it_is() -> None:
    array = hippogriff.empty((2, 3, 4), "int16", "host")
    assert (array.shape, array.dtype, array.nbytes) == ((2, 3, 4), "int16", 48)
    assert array.device == "host"
    assert array.address % 256 == 0
    assert len(array) == 2
    assert repr(array) == "hippogriff.Array(shape=(2, 3, 4), dtype='int16', device='host')"


def test_numpy_sees_the_arrays_memory_without_a_copy() -> None:
    array = _counting()
    seen: Any = np.asarray(array)
    assert seen.ctypes.data == array.address
    assert seen.dtype == np.float32
    seen[3] = -1
    assert array.to_numpy()[3] == -1


def test_numpy_view_outlives_the_array() -> None:
    array = _counting()
    seen: Any = np.asarray(array)
    array.free()
    del array
    gc.collect()
    assert seen.sum() == 276


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes show buffers from 3.12 on")
def test_memoryview_shows_shape_and_elements() -> None:
    array = _counting().view(shape=(4, 6))
    view = memoryview(array)  # type: ignore[arg-type,unused-ignore]
    assert (view.shape, view.format, view[1, 2]) == ((4, 6), "f", 8.0)


def test_freed_array_refuses_to_be_used() -> None:
    array = _counting()
    array.free()
    with pytest.raises(hippogriff.InvalidArgument, match="freed"):
        _ = array.address
    assert "freed" in repr(array)


def test_context_manager_frees() -> None:
    with _counting() as array:
        assert array.address
    with pytest.raises(hippogriff.InvalidArgument):
        array.to_numpy()


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
def test_dlpack_capsule_gives_the_memory_and_keeps_it(version: tuple[int, int] | None) -> None:
    array = _counting().view(shape=(6, 4))
    capsule = array.__dlpack__(max_version=version)
    name = "dltensor_versioned" if version and version[0] >= 1 else "dltensor"
    assert f'"{name}"' in repr(capsule)
    tensor = _dlpack.open_capsule(capsule)
    assert (tensor.address, tensor.shape, tensor.strides) == (array.address, (6, 4), (4, 1))
    assert (tensor.itemsize_bytes, tensor.read_only) == (4, False)
    array.free()
    assert len(runtime.live_allocations) >= 1
    del tensor, capsule


def test_numpy_takes_a_dlpack_capsule_and_lets_it_go() -> None:
    array = _counting()
    taken = np.from_dlpack(array)  # type: ignore[arg-type,unused-ignore]
    assert _dlpack.export_count() == 1
    array.free()
    gc.collect()
    assert taken.sum() == 276


def test_a_capsule_that_nobody_takes_lets_its_memory_go() -> None:
    array = _counting()
    for version in (None, (1, 0)):
        array.__dlpack__(max_version=version)
        assert _dlpack.export_count() == 0


def test_unsupported_element_type_reports_the_consumers_error_and_leaks_nothing() -> None:
    array = _counting().view("bfloat16")
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(array)  # type: ignore[arg-type,unused-ignore]
    assert _dlpack.export_count() == 0


def test_dlpack_refuses_another_device_and_a_copy() -> None:
    array = _counting()
    assert array.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        array.__dlpack__(copy=True)


def test_host_array_has_no_cuda_array_interface() -> None:
    assert not hasattr(_counting(), "__cuda_array_interface__")


def test_bfloat16_has_no_numpy_form_but_its_bits_have(monkeypatch: pytest.MonkeyPatch) -> None:
    numpys = np.dtype

    def without_ml_dtypes(name: Any) -> Any:
        """Take what NumPy knows where nobody in the process has imported ml_dtypes."""
        if name == "bfloat16":
            raise TypeError
        return numpys(name)

    monkeypatch.setattr(np, "dtype", without_ml_dtypes)
    array = _counting().view("bfloat16")
    with pytest.raises(hippogriff.InvalidArgument, match="uint16"):
        array.to_numpy()
    assert array.view("uint16").to_numpy().dtype == np.uint16


def test_copies_between_host_and_array_check_sizes_and_access() -> None:
    array = _counting(4)
    target = bytearray(16)
    array.copy_to(target)
    assert np.frombuffer(target, np.float32).tolist() == [0, 1, 2, 3]
    with pytest.raises(hippogriff.InvalidArgument, match="16"):
        array.copy_from(b"too short")
    with pytest.raises(BufferError):
        array.copy_to(bytes(16))


def test_empty_array_has_no_memory() -> None:
    array = hippogriff.empty((0, 5), "float64", "host")
    assert (array.nbytes, array.address, array.to_numpy().shape) == (0, 0, (0, 5))
    seen: Any = np.asarray(array)
    assert seen.shape == (0, 5)


@pytest.mark.parametrize(
    ("shape", "dtype", "device"),
    [((-1,), "uint8", "host"), (4, "float128", "host"), (4, "uint8", "nothing:0")],
)
def test_empty_refuses_what_there_is_not(shape: Any, dtype: str, device: str) -> None:
    with pytest.raises(hippogriff.InvalidArgument):
        hippogriff.empty(shape, dtype, device)


def test_more_than_the_device_holds_is_out_of_device_memory() -> None:
    with pytest.raises(hippogriff.OutOfDeviceMemory) as caught:
        hippogriff.empty(1 << 50, "uint8", "host")
    assert isinstance(caught.value, MemoryError)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_element_types_have_the_sizes_of_their_names(name: str) -> None:
    dtype = DTYPES[name]
    bits = int("".join(filter(str.isdigit, name.split("_")[0])) or 8)
    assert dtype.itemsize_bytes * 8 == bits
    if "V" not in dtype.typestr:
        assert find_dtype(np.dtype(dtype.typestr)) == dtype
        assert find_dtype(np.dtype(name).type) == dtype
        assert np.dtype(name).itemsize == dtype.itemsize_bytes


def test_element_types_are_found_by_many_names() -> None:
    assert find_dtype(float).name == "float64"
    assert find_dtype(bool).name == "bool"
    assert find_dtype("<f4").name == "float32"
    assert (find_dtype("u1").name, find_dtype("i4").name) == ("uint8", "int32")
    with pytest.raises(hippogriff.InvalidArgument):
        find_dtype(np.dtype(">f4"))
    with pytest.raises(hippogriff.InvalidArgument):
        find_dtype("datetime64")


@given(st.lists(st.integers(0, 7), max_size=4), st.sampled_from([1, 2, 4, 8]), st.integers(0, 3))
def test_fitted_shapes_hold_exactly_the_bytes(
    lengths: list[int], itemsize: int, open_axis: int
) -> None:
    count = int(np.prod(lengths, dtype=np.int64))
    shape = list(lengths)
    assert fit_shape(shape, itemsize, count * itemsize) == tuple(lengths)
    with pytest.raises(hippogriff.InvalidArgument):
        fit_shape(shape, itemsize, (count + 1) * itemsize)
    if open_axis < len(shape) and 0 not in lengths:
        shape[open_axis] = -1
        assert fit_shape(shape, itemsize, count * itemsize) == tuple(lengths)


@pytest.mark.parametrize("shape", [(-1, -1), (-2, 4), (-1, 0)])
def test_open_lengths_that_mean_nothing_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(hippogriff.InvalidArgument):
        fit_shape(shape, 4, 16)
