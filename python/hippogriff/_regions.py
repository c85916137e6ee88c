"""What memory an array of somebody else's is: address, size, device, stream."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff import _dlpack
from hippogriff._array import Array
from hippogriff._buffer import Buffer
from hippogriff._runtime import runtime
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

_LEGACY_STREAM = 1
#: `ctypes.addressof(Nothing.from_buffer(array))` is the quickest way to an array's address.
Nothing = ctypes.c_char * 0


class Region(NamedTuple):
    """Contiguous memory for a transfer. `owner` keeps it alive; `stream` is a CUstream.

    Without a device the address says where it is. `stream` None: no work on it is under way that
    a transfer would have to wait for.
    """

    address: int
    size_bytes: int
    device: str | None
    host_memory: bool
    stream: int | None
    owner: object

    def at(self, address: int, size_bytes: int) -> Region:
        """Return other memory of the same kind."""
        return Region(address, size_bytes, self.device, self.host_memory, self.stream, self.owner)


# The current stream of each of torch's devices, where it is asked for thousands of times at once.
Streams = dict[Any, tuple[str, int]]


def describe(array: object, *, writable: bool, streams: Streams | None = None) -> Region:
    """Find the memory of anything that shows it: hippogriff, torch, CuPy, NumPy, DLPack, buffers.

    Parameters
    ----------
    array : object
        With ``__cuda_array_interface__``, the buffer protocol or DLPack.
    writable : bool
        Whether a transfer will write into it.
    streams : dict, optional
        Keeps torch's current streams from one call to the next.

    Raises
    ------
    InvalidArgument
        When it is not contiguous, holds Python objects, or is read-only where it will be written.
    TypeError
        When it shows no memory at all.
    """
    region = _describe_torch(array, streams) or _describe_numpy(array)
    if region is not None:
        return region
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, getattr(cupy, "ndarray", ())):
        return _describe_cupy(array, cupy)
    if getattr(getattr(array, "dtype", None), "hasobject", False):
        raise InvalidArgument("an array of Python objects holds pointers, not data")
    if isinstance(array, Array):
        allocation = array.allocation
        # In a forked child the parent's host memory is there, but unknown to the child's runtime.
        inherited = allocation.process_count != runtime.process_count
        on_gpu = allocation.device.startswith("cuda:")
        stream = _current_stream() if on_gpu else None
        return Region(
            allocation.address, array.nbytes, allocation.device, inherited, stream, allocation
        )
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        try:
            return _describe_cuda(array, interface, writable=writable)
        except InvalidArgument:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidArgument(
                f"{type(array).__name__}'s __cuda_array_interface__ is none: {error!r:.100}"
            ) from error
    region = _describe_buffer(array, writable=writable)
    if region is None and hasattr(array, "__dlpack__"):
        region = _describe_dlpack(array, writable=writable)
    if region is None:
        raise TypeError(
            f"{type(array).__name__} shows no memory: it has neither __cuda_array_interface__ nor "
            "__dlpack__ nor the buffer protocol"
        )
    return region


def note_changes(arrays: Iterable[object]) -> None:
    """Tell torch's autograd that arrays change, if they are torch's.

    What it saved of them for a backward pass is then refused there, and gives no wrong gradient.
    """
    torch = sys.modules.get("torch")
    tensor_type = getattr(torch, "Tensor", None)
    if torch is None or tensor_type is None:
        return
    increment = getattr(torch.autograd.graph, "increment_version", _increment_version)
    for array in arrays:
        # Those of inference mode have no version.
        if isinstance(array, tensor_type) and not array.is_inference():
            increment(array)


def _increment_version(tensor: Any) -> None:
    """Do what torch before 2.1 has no call for: change a tensor in place, none of its elements."""
    tensor.detach().reshape(-1)[:0].zero_()


def stream_pointer(stream: object) -> int:
    """Find the CUstream behind an integer or a torch, CuPy, Numba or cuda.core stream.

    Raises
    ------
    TypeError
        When it is no stream.
    """
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1]
    for name in ("cuda_stream", "ptr", "handle"):
        stream = getattr(stream, name, stream)
    value = getattr(stream, "value", stream)
    if not isinstance(value, int):
        raise TypeError(f"{stream!r} is not a stream")
    return value


def _current_stream() -> int:
    """Return the stream that work on our arrays is likely on: torch's, else the default."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return _stream_of(torch, torch.cuda.current_device())
    return 0


def _describe_torch(array: object, streams: Streams | None) -> Region | None:
    """Describe a torch tensor, on a GPU as in use on its current stream; None for others."""
    torch = sys.modules.get("torch")
    tensor_type = getattr(torch, "Tensor", None)
    if torch is None or tensor_type is None or not isinstance(array, tensor_type):
        return None
    tensor: Any = array
    if tensor.layout != torch.strided:
        raise InvalidArgument(f"the tensor is sparse ({tensor.layout}): use tensor.to_dense()")
    if not tensor.is_contiguous():
        raise InvalidArgument("the tensor is not contiguous: use tensor.contiguous()")
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidArgument(
            "the tensor is conjugated or negated only by name: use "
            "tensor.resolve_conj().resolve_neg()"
        )
    size_bytes = tensor.numel() * tensor.element_size()
    device = tensor.device
    if device.type == "cpu":
        address = tensor.data_ptr()
        if address == 0 and size_bytes:
            raise InvalidArgument("the tensor has no memory now: its storage was freed")
        return Region(address, size_bytes, "host", True, None, tensor)
    if device.type != "cuda":
        raise InvalidArgument(
            f"the tensor is on the device {device}, neither a CPU nor a CUDA device"
        )
    known = None if streams is None else streams.get(device)
    if known is None:
        known = f"cuda:{device.index}", _stream_of(torch, device.index)
        if streams is not None:
            streams[device] = known
    name, stream = known
    return Region(tensor.data_ptr(), size_bytes, name, False, stream, tensor)


def _stream_of(torch: Any, index: int) -> int:
    """Return torch's current stream of a device; making a Stream object of it takes longer."""
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return int(torch.cuda.current_stream(index).cuda_stream if raw is None else raw(index))


def _describe_cupy(array: Any, cupy: Any) -> Region:
    """Describe a CuPy array, in use on CuPy's current stream, without its slow interface."""
    if not array.flags.c_contiguous:
        raise InvalidArgument("the array is not C-contiguous: use cupy.ascontiguousarray")
    stream = cupy.cuda.get_current_stream().ptr
    return Region(array.data.ptr, array.nbytes, None, False, stream, array)


def _describe_cuda(array: object, interface: dict[str, Any], *, writable: bool) -> Region:
    address, read_only = interface["data"]
    if writable and read_only:
        raise InvalidArgument("the array is read-only")
    if interface.get("mask") is not None:
        raise InvalidArgument("the array has a mask")
    itemsize_bytes = int(interface["typestr"][2:])
    shape = tuple(interface["shape"])
    strides_bytes = interface.get("strides")
    if strides_bytes is not None:
        _require_contiguous(shape, tuple(strides_bytes), itemsize_bytes)
    stream = interface.get("stream")
    if stream == _LEGACY_STREAM:
        stream = 0
    size_bytes = math.prod(shape) * itemsize_bytes
    return Region(int(address or 0), size_bytes, None, False, stream, array)


def _describe_numpy(array: Any) -> Region | None:
    """Describe most of NumPy's arrays, of which models have thousands; None for others.

    Also for those that are not contiguous, read-only, or of element types that no buffer can have:
    what describes others says why.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or type(array) is not numpy.ndarray or array.dtype.hasobject:
        return None
    try:
        address = ctypes.addressof(Nothing.from_buffer(array))
    except (TypeError, ValueError, BufferError):
        return None
    return Region(address, array.nbytes, "host", True, None, array)


def _describe_buffer(array: object, *, writable: bool) -> Region | None:
    try:
        buffer = Buffer(array, writable=writable)
    except TypeError:
        return None
    except (BufferError, ValueError) as error:
        raise InvalidArgument(f"the array cannot be used: {error}") from error
    # NumPy's memory stays as long as the array; models have many, and a buffer takes 200 bytes.
    numpy = sys.modules.get("numpy")
    owner = array if numpy is not None and type(array) is numpy.ndarray else buffer
    return Region(buffer.address, buffer.size_bytes, "host", True, None, owner)


def _describe_dlpack(array: Any, *, writable: bool) -> Region:
    kind = int(array.__dlpack_device__()[0])
    arguments: dict[str, Any] = {}
    if kind in (_dlpack.CUDA, _dlpack.CUDA_MANAGED):
        arguments["stream"] = _LEGACY_STREAM
    try:
        capsule = array.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:
        capsule = array.__dlpack__(**arguments)
    tensor = _dlpack.open_capsule(capsule)
    if writable and tensor.read_only:
        raise InvalidArgument("the array is read-only")
    if tensor.strides is not None:
        _require_contiguous(tensor.shape, tensor.strides, 1)
    size_bytes = math.prod(tensor.shape) * tensor.itemsize_bytes
    if kind in (_dlpack.CPU, _dlpack.CUDA_HOST):
        return Region(tensor.address, size_bytes, "host", True, None, capsule)
    if kind in (_dlpack.CUDA, _dlpack.CUDA_MANAGED):
        device = f"cuda:{tensor.device[1]}"
        return Region(tensor.address, size_bytes, device, False, 0, capsule)
    raise InvalidArgument(f"DLPack device type {kind} is neither the host nor a CUDA device")


def _require_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], unit: int) -> None:
    if 0 in shape:
        return
    expected = unit
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            raise InvalidArgument(
                f"the array is not C-contiguous: shape {shape}, strides {strides}; copy it first"
            )
        expected *= length
