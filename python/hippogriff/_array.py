"""Arrays in a device's memory that hippogriff allocated."""

from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING, Any

from hippogriff import _dlpack
from hippogriff._buffer import Buffer
from hippogriff._dtypes import DType, find_dtype, fit_shape, known_size_bytes
from hippogriff._library import lib
from hippogriff._node import claim
from hippogriff._runtime import default_device, device_name, encode_device, ensure, runtime
from hippogriff.errors import Forked, InvalidArgument, NotInitialized, check

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    import numpy

runtime.before_stop.append(_dlpack.sweep)


class Allocation:
    """Device memory, given back when the last array, view or transfer that uses it is gone."""

    def __init__(self, address: int, size_bytes: int, device: str) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.device = device
        self.generation = runtime.generation
        self.process_count = runtime.process_count
        if address:
            runtime.live_allocations.add((self.generation, address))

    def __reduce__(self) -> Any:
        # A copy would have the address and free the memory as well.
        raise TypeError(
            f"cannot copy or pickle memory on {self.device}: write it to a file, or copy it to an "
            "array of NumPy, CuPy or torch"
        )

    def __del__(self, _runtime: Any = runtime, _lib: Any = lib, _check: Any = check) -> None:
        # Memory of a runtime that has ended is gone already; a parent's is not ours to free.
        if self.address and self.generation == _runtime.generation:
            _runtime.live_allocations.discard((self.generation, self.address))
            _check(_lib.hippogriff_free(self.address))

    def require(self) -> None:
        """Raise unless the memory is there in this process."""
        if self.process_count != runtime.process_count and self.device != "host":
            raise Forked(f"the array's memory on {self.device} belongs to the parent process")
        if self.process_count == runtime.process_count and self.generation != runtime.generation:
            raise NotInitialized("the array's memory went when the runtime was stopped")


class Array:
    """An array in device memory, C-contiguous.

    Made by `read` and `empty`. It goes to NumPy, torch, CuPy and others without a copy: by DLPack
    (``torch.from_dlpack(array)``), by ``__cuda_array_interface__`` on a GPU, and by
    ``numpy.asarray(array)`` or ``memoryview`` (Python 3.12) on the host device. The memory is given
    back when the array and everything made from it are gone.

    Reading attributes is safe from any thread. Contents are not guarded: finish a transfer before
    using the memory it moves.
    """

    def __init__(self, allocation: Allocation, dtype: DType, shape: tuple[int, ...]) -> None:
        self._allocation: Allocation | None = allocation
        self._dtype = dtype
        self._shape = shape

    @property
    def allocation(self) -> Allocation:
        """The memory behind the array; for hippogriff's own use."""
        if self._allocation is None:
            raise InvalidArgument("the array was freed")
        self._allocation.require()
        return self._allocation

    @property
    def address(self) -> int:
        """The device address of the first element; 0 when the array is empty."""
        return self.allocation.address

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        size_bytes = known_size_bytes(self._shape, self._dtype.itemsize_bytes)
        return 0 if size_bytes is None else size_bytes

    @property
    def dtype(self) -> str:
        """The element type's name, for example ``"float32"``; ``numpy.dtype`` takes it."""
        return self._dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths, in elements."""
        return self._shape

    @property
    def device(self) -> str:
        """The device's name, for example ``"cuda:0"`` or ``"host"``."""
        return self.allocation.device

    def free(self) -> None:
        """Let go of the memory now; views and DLPack consumers keep it until they are gone."""
        self._allocation = None
        _dlpack.sweep()

    def __enter__(self) -> Array:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of an array without dimensions")
        return self._shape[0]

    def __repr__(self) -> str:
        where = "freed" if self._allocation is None else repr(self._allocation.device)
        return f"hippogriff.Array(shape={self._shape}, dtype={self.dtype!r}, device={where})"

    def view(self, dtype: object = None, shape: int | Sequence[int] | None = None) -> Array:
        """Show the same memory as another element type or shape.

        Parameters
        ----------
        dtype : dtype-like, optional
            The element type; this one's if not given.
        shape : int or sequence of int, optional
            The lengths in elements, one of which may be -1; one dimension if not given.

        Raises
        ------
        InvalidArgument
            When the bytes do not fill the shape exactly.
        """
        kind = self._dtype if dtype is None else find_dtype(dtype)
        fitted = fit_shape(shape, kind.itemsize_bytes, self.nbytes)
        return Array(self.allocation, kind, fitted)

    def to_numpy(self) -> numpy.ndarray[Any, Any]:
        """Copy the array to a new NumPy array.

        Raises
        ------
        ImportError
            Without NumPy.
        InvalidArgument
            When NumPy has no such element type: use ``view("uint16").to_numpy()`` or the like.
        """
        module = importlib.import_module("numpy")
        try:
            dtype = module.dtype(self.dtype)
        except TypeError:
            raise InvalidArgument(
                f"NumPy has no {self.dtype}; "
                f'try view("uint{8 * self._dtype.itemsize_bytes}").to_numpy()'
            ) from None
        result: numpy.ndarray[Any, Any] = module.empty(self._shape, dtype)
        self.copy_to(result)
        return result

    def copy_to(self, target: Any) -> None:
        """Copy the array to host memory of the same size, and wait until it is there.

        Parameters
        ----------
        target : buffer
            Anything with the buffer protocol, C-contiguous and writable, for example a NumPy array.

        Raises
        ------
        InvalidArgument
            When the sizes differ.
        BufferError, TypeError, ValueError
            When it is not contiguous, not writable, or not a buffer.
        """
        buffer = self._host_buffer(target, writable=True)
        address = self.address
        if self.nbytes:
            check(lib.hippogriff_copy_to_host(buffer.address, address, self.nbytes))

    def copy_from(self, source: Any) -> None:
        """Fill the array from host memory of the same size, and wait until it is there.

        Parameters
        ----------
        source : buffer
            Anything with the buffer protocol, C-contiguous, for example a NumPy array.

        Raises
        ------
        InvalidArgument
            When the sizes differ.
        BufferError, TypeError, ValueError
            When it is not contiguous or not a buffer.
        """
        buffer = self._host_buffer(source, writable=False)
        address = self.address
        if self.nbytes:
            check(lib.hippogriff_copy_to_device(address, buffer.address, self.nbytes))

    def _host_buffer(self, other: object, *, writable: bool) -> Buffer:
        buffer = Buffer(other, writable=writable)
        if buffer.size_bytes != self.nbytes:
            raise InvalidArgument(
                f"the host memory has {buffer.size_bytes} bytes, the array {self.nbytes}"
            )
        return buffer

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.device.startswith("cuda:"):
            raise AttributeError(f"an array on {self.device} has no __cuda_array_interface__")
        return {
            "shape": self._shape,
            "typestr": self._dtype.typestr,
            "data": (self.address, False),
            "strides": None,
            "stream": None,  # Its contents are there: nothing to wait for.
            "version": 3,
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self._shape,
            "typestr": self._dtype.typestr,
            "data": self._host_bytes(AttributeError),
            "version": 3,
        }

    def __buffer__(self, flags: int, /) -> memoryview:
        if not self._dtype.buffer_format or 0 in self._shape:
            raise BufferError(f"an array of {self.dtype} with shape {self._shape} is no buffer")
        flat = memoryview(self._host_bytes(BufferError)).cast("B")
        return flat.cast(self._dtype.buffer_format, self._shape)  # type: ignore[call-overload,no-any-return]

    def _host_bytes(self, refusal: type[Exception]) -> Any:
        """Return the memory as a ctypes array that keeps it alive."""
        allocation = self.allocation
        if allocation.device != "host":
            raise refusal(f"memory of {allocation.device} cannot be used on the host: to_numpy()")
        if not self.nbytes:
            return (ctypes.c_char * 0)()
        data = (ctypes.c_char * self.nbytes).from_address(allocation.address)
        data.allocation = allocation  # type: ignore[attr-defined]
        return data

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self.device
        if device.startswith("cuda:"):
            return _dlpack.CUDA, int(device.removeprefix("cuda:"))
        return _dlpack.CPU, 0

    def __dlpack__(
        self,
        *,
        stream: object = None,  # Its contents are there: no stream has to wait.
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(int(part) for part in dl_device) != device:
            raise BufferError(f"the array lies on {self.device}; moving it is not supported")
        if copy:
            raise BufferError("the array is exported without a copy only")
        allocation = self.allocation
        exported = _dlpack.Exported(
            allocation.address, device, self._dtype, self._shape, allocation
        )
        return _dlpack.make_capsule(exported, versioned=bool(max_version and max_version[0] >= 1))


def empty(shape: int | Sequence[int], dtype: object = "uint8", device: object = None) -> Array:
    """Allocate an array on a device; its contents are undefined. Thread-safe.

    Parameters
    ----------
    shape : int or sequence of int
        The lengths in elements.
    dtype : dtype-like
        The element type: a name, or a NumPy or torch dtype.
    device : str, optional
        ``"cuda:0"``, ``"host"``; the default device if not given.

    Raises
    ------
    OutOfDeviceMemory
        When there is no room on the device.
    InvalidArgument
        When there is no such device or element type, or a length is negative.
    """
    kind = find_dtype(dtype)
    size_bytes = known_size_bytes(shape, kind.itemsize_bytes)
    if size_bytes is None:
        raise InvalidArgument(f"empty: shape {shape} has an open length")
    ensure()
    name = device_name(device) or default_device()
    address = ctypes.c_void_p()
    if size_bytes:
        claim(name)
        check(
            lib.hippogriff_malloc(encode_device(name), size_bytes, ctypes.byref(address)),
        )
    allocation = Allocation(address.value or 0, size_bytes, name)
    return Array(allocation, kind, fit_shape(shape, kind.itemsize_bytes, size_bytes))
