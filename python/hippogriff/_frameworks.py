"""Whose arrays a file's bytes become: torch's, NumPy's, CuPy's; imported when asked for."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import itertools
import operator
from typing import TYPE_CHECKING, Any, Protocol

from hippogriff._huge_pages import ask_for_huge_pages
from hippogriff._node import claim
from hippogriff._regions import Nothing, Region
from hippogriff._runtime import device_name
from hippogriff._torch_pages import SMALL_BYTES, Pages, rounded
from hippogriff.errors import HippogriffError, InvalidArgument, OutOfHostMemory, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from contextlib import AbstractContextManager

# What safetensors calls an element type, by what NumPy, ml_dtypes and torch call it.
_NUMPY_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
    "C64": "complex64",
}
_ML_DTYPES_NAMES = {
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_TORCH_NAMES = {**_NUMPY_NAMES, **_ML_DTYPES_NAMES, "F4": "float4_e2m1fn_x2"}

_NAMES = {theirs: name for name, theirs in _TORCH_NAMES.items()}
# Names that are the same everywhere; NumPy has those of ml_dtypes where that is installed.
_PLAIN_NUMPY_NAMES = frozenset({*_NUMPY_NAMES.values(), "complex128"})
_PLAIN_TORCH_NAMES = frozenset({*_TORCH_NAMES.values(), "complex128"})

_ALIASES = {
    "pt": "pt",
    "torch": "pt",
    "pytorch": "pt",
    "np": "np",
    "numpy": "np",
    "cupy": "cupy",
    "cp": "cupy",
}

# Less than this is not worth getting at once.
_PREPARED_BYTES = 64 << 20

_HOST = Region(0, 0, "host", True, None, None)

_UNKNOWN = object()

# Of arrays with fewer none is large: an element has 16 bytes at most.
_MANY_ELEMENTS = (4 << 20) // 16


class Framework(Protocol):
    """Makes arrays and tells about them."""

    @property
    def region(self) -> Region:
        """What `Request` needs to know of memory made just now; address and size do not count."""

    @property
    def starts_gpu(self) -> bool:
        """Whether a GPU was unused until now: its context, to come, takes a tenth of a second."""

    def empty(self, dtype: Any, shape: tuple[int, ...], order: str = "C") -> Any:
        """Make an array that owns its memory, in C or Fortran (``"F"``) order.

        `dtype` is safetensors' name ("BF16"), the common one ("bfloat16"), or a dtype of NumPy's.
        """

    def prepare(self, sizes_bytes: Sequence[int]) -> None:
        """Tell that arrays of these sizes will be made now."""

    def empties(self, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        """Make thousands of arrays at the price of few, in C order; all or none."""

    def address(self, array: Any) -> int:
        """Return where its bytes are."""

    def addresses(self, arrays: list[Any]) -> list[int]:
        """Return where the bytes of each are: for thousands, at the price of few."""

    def copy_of(self, array: Any) -> Any:
        """Copy an array that may be on another device; it may take until `synchronize`."""

    def synchronize(self) -> None:
        """Wait for copies."""

    def current_stream(self) -> Callable[[], AbstractContextManager[object]]:
        """Return what makes the stream that is current here current on another thread."""


def make_framework(name: str, device: object) -> Framework:
    """Find a framework by safetensors' name for it, for arrays on one device.

    Raises
    ------
    InvalidArgument
        When there is no such framework, or it has no arrays on such a device.
    Unsupported
        When it is not installed.
    """
    found = _ALIASES.get(name)
    if found is None:
        raise InvalidArgument(f'framework {name!r} is none of "pt", "np", "cupy"')
    if found == "pt":
        return _Torch(device)
    return _Numpy(device) if found == "np" else _Cupy(device)


def is_torch(name: str) -> bool:
    """Whether a framework's name is one of torch's."""
    return _ALIASES.get(name) == "pt"


def make_array(framework: Framework, dtype: Any, shape: tuple[int, ...], order: str = "C") -> Any:
    """Make an array as `Framework.empty` does; what it refuses is raised as our errors.

    Raises
    ------
    Unsupported
        When the framework has no such element type, or no arrays of this shape.
    OutOfHostMemory
        When the host has no room.
    """
    try:
        return framework.empty(dtype, shape, order)
    except HippogriffError:
        raise
    except (ValueError, OverflowError) as error:
        raise Unsupported(f"an array of shape {shape!r:.100}: {error}") from None
    except MemoryError as error:
        raise OutOfHostMemory(f"an array of shape {shape!r:.100}: {error}") from error


def framework_of(array: Any) -> tuple[str, object]:
    """Return the framework and the device of an array; NumPy's for what is none of them."""
    module = type(array).__module__.partition(".")[0]
    if module == "cupy":
        return "cupy", f"cuda:{array.device.id}"
    if module == "numpy" or not hasattr(array, "copy_"):
        return "np", "cpu"
    return "pt", array.device


def transposed(array: Any) -> Any:
    """Return an array with its dimensions in reverse, without a copy."""
    if hasattr(array, "permute"):
        return array.permute(*range(len(array.shape) - 1, -1, -1)) if array.shape else array
    return array.transpose()


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unsupported(f"{module} is not here ({error}): pip install {package}") from error


@functools.cache
def numpy_dtype(name: str) -> Any:
    """Return NumPy's dtype for safetensors' name or the common one.

    Raises
    ------
    Unsupported
        When NumPy has none, or has it from ml_dtypes, which is not installed.
    """
    numpy = _import("numpy", "numpy")
    plain = _TORCH_NAMES.get(name, name)
    if plain in _PLAIN_NUMPY_NAMES:
        return numpy.dtype(plain)
    if plain in _ML_DTYPES_NAMES.values():
        return numpy.dtype(getattr(_import("ml_dtypes", "ml-dtypes"), plain))
    raise Unsupported(f"NumPy has no element type for {name}")


def dtype_name(array: Any) -> str:
    """Return safetensors' name for an array's element type.

    Raises
    ------
    InvalidArgument
        When it has none.
    """
    dtype = getattr(array, "dtype", None)
    name = _name_of(dtype)
    if dtype is None:
        raise InvalidArgument(f"it is of the type {type(array).__name__}, and no array")
    if name is None:
        raise InvalidArgument(f"safetensors has no element type for {dtype!r:.100}")
    return name


def shape_in_file(array: Any, name: str) -> tuple[int, ...]:
    """Return the shape that an array of safetensors' element type `name` has in a file.

    Raises
    ------
    InvalidArgument
        When it can have none.
    """
    shape = tuple(array.shape)
    if name != "F4":
        return shape
    if not shape:
        raise InvalidArgument("torch packs F4 by two: it has no dimension for the two elements")
    return (*shape[:-1], 2 * shape[-1])


@functools.lru_cache(maxsize=256)
def _name_of(dtype: Hashable) -> str | None:
    return _NAMES.get(str(dtype).removeprefix("torch."))  # NumPy takes microseconds for it.


def _strides(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return torch's strides of an array in C order; None where one is beyond 63 bits."""
    if not shape:
        return ()
    lengths = [max(length, 1) for length in shape[:0:-1]]
    strides = tuple(itertools.accumulate(lengths, operator.mul, initial=1))[::-1]
    return strides if max(strides[0], shape[0]) < 1 << 63 else None


@contextlib.contextmanager
def _no_room_as_memory_error() -> Iterator[None]:
    """Raise what Python and NumPy raise where torch's allocator for the CPU has no memory."""
    try:
        yield
    except RuntimeError as error:
        if "DefaultCPUAllocator" not in str(error):
            raise
        raise MemoryError(str(error).partition("\n")[0]) from error


class _Torch:
    def __init__(self, device: object) -> None:
        self._torch = _import("torch", "torch")
        self._empty = self._torch.empty
        self._device = self._find_device(device)
        self.starts_gpu = False
        if self._device.type == "cuda":
            self.starts_gpu = not self._torch.cuda.is_initialized()
            self._start_cuda()
            index = self._device.index
            index = self._torch.cuda.current_device() if index is None else index
            self._device = self._torch.device("cuda", index)
        elif self._device.type != "cpu":
            raise InvalidArgument(f"torch device {self._device} is neither a CPU nor a CUDA device")
        self._name = str(self._device)
        self._dtypes: dict[str, Any] = {}  # By what `empty` was asked for.
        self._strided: Any = _UNKNOWN
        self._pages = Pages(self._torch)

    def _find_device(self, device: Any) -> Any:
        # "host" is our own name of it.
        try:
            return self._torch.device("cpu" if device in (None, "host") else device)
        except (RuntimeError, TypeError) as error:
            words = str(error).partition("\n")[0]
            raise InvalidArgument(f"device {device!r}: {words}") from None

    def _start_cuda(self) -> None:
        try:
            self._torch.cuda.init()
        except AssertionError as error:  # What torch raises where it was built for CPUs alone.
            raise Unsupported(
                f"device {self._device}: torch {self._torch.__version__}: {error}"
            ) from error

    @property
    def region(self) -> Region:
        if self._device.type == "cpu":
            return _HOST
        # Memory may come from torch's cache, with work on it still under way.
        stream = int(self._torch.cuda.current_stream(self._device).cuda_stream)
        return Region(0, 0, self._name, False, stream, None)

    def empties(self, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        make = functools.partial(self._make_all, dtypes, shapes)
        if self._device.type == "cpu":
            with _no_room_as_memory_error():
                return self._ask_for_huge_pages(make())
        claim(self._device)
        with self._torch.cuda.device(self._device):
            return self._pages.make(make)

    def _make_all(self, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        kinds = set(dtypes)
        if self._strided is _UNKNOWN:
            self._strided = self._find_strided()
        make = self._strided
        strides = {shape: _strides(shape) for shape in set(shapes)}
        if make is None or "F4" in kinds or None in strides.values():
            return self._make_alike(dtypes, shapes)
        theirs = {dtype: self._dtypes.get(dtype) or self._find_dtype(dtype) for dtype in kinds}
        return [
            make(shape, strides[shape], theirs[dtype])
            for dtype, shape in zip(dtypes, shapes, strict=True)
        ]

    def _make_alike(self, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        # `empty_like` takes two thirds of the time of `empty`, and models have many alike.
        like, arrays = self._torch.empty_like, []
        alike: dict[tuple[str, tuple[int, ...]], Any] = {}
        for kind in zip(dtypes, shapes, strict=True):
            first = alike.get(kind)
            if first is None:
                first = alike[kind] = self.empty(*kind)
                arrays.append(first)
            else:
                arrays.append(like(first))
        return arrays

    def _find_strided(self) -> Callable[..., Any] | None:
        """Find what torch's compiler has its code make tensors with; None where it is not as known.

        The same allocator makes the same tensors, without the way there through the dispatcher. It
        is not public, and makes tensors on the device that is current.
        """
        try:
            found = getattr(self._torch._C._dynamo.guards, f"_empty_strided_{self._device.type}")
            made, dtype = found((2, 3), (3, 1), self._torch.int16), self._torch.int16
            plain = self._torch.empty((2, 3), dtype=dtype, device=self._device)
            right = type(made) is type(plain) and all(
                getattr(made, fact) == getattr(plain, fact)
                for fact in ("device", "dtype", "shape", "layout", "requires_grad")
            )
            right = right and made.stride() == plain.stride() and made.storage_offset() == 0
        except (AttributeError, TypeError, RuntimeError):
            return None
        return found if right else None

    def _find_dtype(self, dtype: Any) -> Any:
        plain = _TORCH_NAMES.get(dtype, dtype) if isinstance(dtype, str) else ""
        theirs = getattr(self._torch, plain, None) if plain in _PLAIN_TORCH_NAMES else None
        if theirs is None:
            raise Unsupported(f"torch {self._torch.__version__} has no element type for {dtype}")
        self._dtypes[dtype] = theirs
        return theirs

    def prepare(self, sizes_bytes: Sequence[int]) -> None:
        """Get the memory from the driver at once, for torch's cache to cut the arrays out of.

        It takes as long for one array as for all, and holds up copies under way. Small arrays have
        pages of their own (`Pages`).
        """
        if self._device.type != "cuda":
            return
        self._pages.expect(sizes_bytes)
        large = sum(rounded(size) for size in sizes_bytes if size > SMALL_BYTES)
        if large < _PREPARED_BYTES:
            return
        cuda = self._torch.cuda
        stats = cuda.memory_stats(self._device)
        reserved, allocated = (
            stats[f"{kind}_bytes.large_pool.current"] for kind in ("reserved", "allocated")
        )
        if reserved - allocated >= large:
            return
        claim(self._device)
        with contextlib.suppress(cuda.OutOfMemoryError):
            self._torch.empty(large, dtype=self._torch.uint8, device=self._device)

    def empty(self, dtype: Any, shape: tuple[int, ...], order: str = "C") -> Any:
        theirs = self._dtypes.get(dtype) or self._find_dtype(dtype)
        if self._device.type == "cuda":
            claim(self._device)
        if order == "F":
            return transposed(self.empty(dtype, shape[::-1]))
        if dtype == "F4":  # Two to a byte, and to an element.
            if not shape or shape[-1] % 2:
                raise Unsupported(
                    f"torch packs F4 by two: shape {shape} does not end in an even number"
                )
            shape = (*shape[:-1], shape[-1] // 2)
        with _no_room_as_memory_error():
            array = self._empty(shape, dtype=theirs, device=self._device)
        if self._device.type == "cpu":
            self._ask_for_huge_pages([array])
        return array

    @staticmethod
    def _ask_for_huge_pages(arrays: list[Any]) -> list[Any]:
        """Do for torch's what NumPy does itself."""
        ask_for_huge_pages(
            (array.data_ptr(), array.numel() * array.element_size())
            for array in arrays
            if array.numel() >= _MANY_ELEMENTS
        )
        return arrays

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def addresses(self, arrays: list[Any]) -> list[int]:
        return list(map(self._torch.Tensor.data_ptr, arrays))

    def copy_of(self, array: Any) -> Any:
        return array.to(self._device, non_blocking=True, copy=True)

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.current_stream(self._device).synchronize()

    def current_stream(self) -> Callable[[], AbstractContextManager[object]]:
        if self._device.type == "cpu":
            return contextlib.nullcontext
        cuda = self._torch.cuda
        return functools.partial(cuda.stream, cuda.current_stream(self._device))


class _Numpy:
    starts_gpu = False

    def __init__(self, device: object) -> None:
        if device_name(device) not in {None, "host"}:
            raise InvalidArgument(f'NumPy\'s arrays are on the CPU: device {device!r} is not "cpu"')
        self._ndarray = _import("numpy", "numpy").ndarray  # `empty` would change dtype "S0"
        self.region = _HOST

    def empty(self, dtype: Any, shape: tuple[int, ...], order: str = "C") -> Any:
        theirs = numpy_dtype(dtype) if isinstance(dtype, str) else dtype
        return self._ndarray(shape, theirs, order=order)

    def empties(self, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        return list(map(self._ndarray, shapes, map(numpy_dtype, dtypes)))

    def prepare(self, sizes_bytes: Sequence[int]) -> None:
        pass

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def addresses(self, arrays: list[Any]) -> list[int]:
        try:  # A fifth of what `ctypes.data` takes.
            return [ctypes.addressof(Nothing.from_buffer(array)) for array in arrays]
        except (TypeError, ValueError, BufferError):  # of element types that NumPy lacks
            return [array.ctypes.data for array in arrays]

    def copy_of(self, array: Any) -> Any:
        return array.copy()

    def synchronize(self) -> None:
        pass

    def current_stream(self) -> Callable[[], AbstractContextManager[object]]:
        return contextlib.nullcontext


class _Cupy:
    starts_gpu = False  # It does not tell, and has asked the driver by now.

    def __init__(self, device: object) -> None:
        self._cupy = _import("cupy", "cupy-cuda13x")
        name = device_name(device)
        if name is not None and not name.startswith("cuda:"):
            raise InvalidArgument(f"CuPy's arrays are on GPUs: device {device!r} is none")
        index = self._cupy.cuda.Device().id if name is None else int(name.removeprefix("cuda:"))
        self._device = self._cupy.cuda.Device(index)

    @property
    def region(self) -> Region:
        with self._device:
            stream = int(self._cupy.cuda.get_current_stream().ptr)
        return Region(0, 0, f"cuda:{self._device.id}", False, stream, None)

    def empty(self, dtype: Any, shape: tuple[int, ...], order: str = "C") -> Any:
        if not isinstance(dtype, str):
            raise Unsupported(f"CuPy has no element type for {dtype}")
        claim(self._device.id)
        with self._device:
            return self._cupy.empty(shape, dtype=numpy_dtype(dtype), order=order)

    def empties(self, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        claim(self._device.id)
        with self._device:
            return list(map(self._cupy.empty, shapes, map(numpy_dtype, dtypes)))

    def prepare(self, sizes_bytes: Sequence[int]) -> None:
        pass

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def addresses(self, arrays: list[Any]) -> list[int]:
        return [array.data.ptr for array in arrays]

    def copy_of(self, array: Any) -> Any:
        with self._device:
            return self._cupy.array(array, copy=True)

    def synchronize(self) -> None:
        with self._device:
            self._cupy.cuda.get_current_stream().synchronize()

    def current_stream(self) -> Callable[[], AbstractContextManager[object]]:
        with self._device:
            stream = self._cupy.cuda.get_current_stream()
        return lambda: stream
