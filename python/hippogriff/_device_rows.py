"""Rows of a storage array and their numbers in a GPU's memory: torch's, CuPy's, anybody's."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff import _storage_abi
from hippogriff._array import Array, empty
from hippogriff._dtypes import find_dtype
from hippogriff._frameworks import make_array, make_framework
from hippogriff._regions import describe
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from hippogriff._dtypes import DType

_NUMBERS = {"int32", "int64", "uint32", "uint64"}


class Tensor(NamedTuple):
    """A C-contiguous array on a GPU. `stream` is the CUstream on which it is in use."""

    framework: str
    device: str
    address: int
    dtype: DType
    shape: tuple[int, ...]
    stream: int

    @property
    def in_order(self) -> bool:
        """Whether its memory, once dropped, is used again on this stream only: no need to wait."""
        return self.framework in {"torch", "cupy"}


def is_on_gpu(array: object) -> bool:
    """Tell whether an array is in the memory of a GPU, as far as it shows that."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, getattr(torch, "Tensor", ())):
        return bool(array.is_cuda)  # type: ignore[attr-defined]
    if isinstance(array, Array):
        return array.device.startswith("cuda:")
    return hasattr(array, "__cuda_array_interface__")


def find_tensor(what: str, array: Any, device: str, *, writable: bool = False) -> Tensor:
    """Look at an array on a GPU.

    Raises
    ------
    InvalidArgument
        When it is not in that GPU's memory, or not C-contiguous, or has no element type of ours.
    """
    if not is_on_gpu(array):
        raise InvalidArgument(f"{what} is in host memory, not on {device}: move it there first")
    try:
        region = describe(array, writable=writable)
        module = type(array).__module__.partition(".")[0]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(array, torch.Tensor):
            module = "torch"
        if module in {"torch", "cupy"} or isinstance(array, Array):
            dtype = find_dtype(array.dtype)
        else:
            dtype = find_dtype(array.__cuda_array_interface__["typestr"])
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}") from None
    lies_on = f"cuda:{array.device.id}" if module == "cupy" else region.device or device
    if lies_on != device:
        raise InvalidArgument(f"{what} is on {lies_on}, the array on {device}")
    shape = tuple(int(length) for length in array.shape)
    return Tensor(module, device, region.address, dtype, shape, region.stream or 0)


def find_numbers(indices: Any, device: str) -> Tensor:
    """Look at row numbers on a GPU.

    Raises
    ------
    InvalidArgument
        As `find_tensor`, and when they are no integers of 32 or 64 bits.
    """
    numbers = find_tensor("the indices", indices, device)
    if numbers.dtype.name not in _NUMBERS:
        raise InvalidArgument(
            f"indices on {device} are int32 or int64 (or uint), not {numbers.dtype.name}"
        )
    return numbers


def new_rows(numbers: Tensor, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Make an array beside the row numbers, of their framework; ours where that is unknown."""
    if numbers.in_order:
        framework = {"torch": "pt", "cupy": "cupy"}[numbers.framework]
        return make_array(make_framework(framework, numbers.device), dtype, shape)
    return empty(shape, dtype, numbers.device)


def rows_for(
    numbers: Tensor, rows: Any, dtype: Any, shape: tuple[int, ...], *, writable: bool
) -> _storage_abi.DeviceRows:
    """Return what C wants, of row numbers and rows that fit each other.

    Raises
    ------
    InvalidArgument
        As `find_tensor`, and when shape, element type or stream are others than wanted.
    """
    what = "out" if writable else "the array of values"
    memory = find_tensor(what, rows, numbers.device, writable=writable)
    wanted = find_dtype(dtype)
    if memory.dtype.name != wanted.name or memory.shape != shape:
        raise InvalidArgument(
            f"{what} has shape {memory.shape} and elements {memory.dtype.name}, not {shape} and "
            f"{wanted.name}"
        )
    if memory.stream != numbers.stream:
        raise InvalidArgument(f"{what} and the indices are in use on different streams")
    row_shape = shape[len(numbers.shape) :]
    found = numbered(numbers, math.prod(row_shape) * wanted.itemsize_bytes)
    found.memory = memory.address
    return found


def numbered(numbers: Tensor, row_bytes: int) -> _storage_abi.DeviceRows:
    """Return what C wants, of row numbers without memory for the rows."""
    found = _storage_abi.device_rows()
    found.numbers = numbers.address
    found.count = math.prod(numbers.shape)
    found.row_size = row_bytes
    found.number_size = numbers.dtype.itemsize_bytes
    found.number_signed = numbers.dtype.name.startswith("int")
    found.stream = numbers.stream
    return found


def current_streams(device: str) -> set[int]:
    """Return the streams on which frameworks queue work for a GPU here, but the default one."""
    index = int(device.removeprefix("cuda:"))
    streams = {0}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        streams.add(int(torch.cuda.current_stream(index).cuda_stream))
    cupy = sys.modules.get("cupy")
    if cupy is not None and hasattr(cupy, "cuda"):
        streams.add(int(cupy.cuda.get_current_stream(index).ptr))
    return streams - {0}
