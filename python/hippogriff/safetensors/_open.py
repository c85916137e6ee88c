"""Looking into a safetensors file and loading what is wanted of it."""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING, Any

from hippogriff._scatter import start_scatter
from hippogriff._transfer import Request
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._frameworks import make_framework
from hippogriff.safetensors._header import DTYPE_BITS, SafetensorError, TensorInfo
from hippogriff.safetensors._load import load_tensors, make_array, open_file
from hippogriff.safetensors._verify import open_verifiers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from hippogriff._runtime import PathLike
    from hippogriff.safetensors._verify import Verify

# A slice of more runs than this is cut out of the rows around it, on the device.
_RUNS_MAX = 65536


class safe_open:  # noqa: N801 (safetensors' name)
    """An open safetensors file: names, shapes and metadata at once, tensors when asked for.

    Parameters
    ----------
    filename : path-like
        The file.
    framework : {"pt", "np", "cupy"}
        Whose arrays.
    device : str, int or torch.device
        Where to.
    verify : bool or path-like
        As in `load_file`; counts for whole tensors, not for slices.

    Raises
    ------
    SafetensorError
        When it is no safetensors file.
    ChecksumMismatch, SidecarError
        When its header is not what the checksums are of, or they cannot be used.
    IoError
        When it cannot be opened.

    Examples
    --------
    >>> with safe_open("model.safetensors", framework="pt", device="cuda:0") as file:
    ...     head = file.get_slice("lm_head.weight")[:1024]
    """

    def __init__(
        self,
        filename: PathLike,
        framework: str = "pt",
        device: object = "cpu",
        *,
        verify: Verify = False,
    ) -> None:
        self._framework = make_framework(framework, device)
        self._file, self._header = open_file(filename)
        try:
            [self._verifier] = open_verifiers([(self._file, self._header)], verify)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._header.tensors)

    def offset_keys(self) -> list[str]:
        """Return the names in the order of their data in the file."""
        return list(self._header.tensors)

    def metadata(self) -> dict[str, str] | None:
        """Return what the file tells beside tensors; None when that is nothing."""
        return dict(self._header.metadata) or None

    def get_tensor(self, name: str) -> Any:
        """Load a tensor.

        Raises
        ------
        SafetensorError
            When there is none of this name.
        ChecksumMismatch
            When it is to be verified, and differs.
        """
        return self.get_tensors([name])[name]

    def get_tensors(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Load some tensors, or all, by as few transfers as serve them."""
        if isinstance(names, str):
            raise InvalidArgument("names is one string; get_tensor loads one tensor")
        wanted = self._header.tensors if names is None else dict.fromkeys(names)
        found = map(self._find, wanted)
        return load_tensors(self._file, found, self._framework, self._verifier)

    def get_slice(self, name: str) -> Slice:
        """Return what can be cut from a tensor without loading the rest of it."""
        return Slice(self, self._find(name))

    def _find(self, name: str) -> TensorInfo:
        try:
            return self._header.tensors[name]
        except KeyError:
            raise SafetensorError(
                f"{self._file.path} has no tensor {name!r}", object=self._file.path
            ) from None


class Slice:
    """A tensor in a file, to be indexed: ``slice[2:5, ..., 7]`` loads only that."""

    def __init__(self, opened: safe_open, tensor: TensorInfo) -> None:
        self._opened = opened
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        """Return the shape of the whole tensor."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """Return safetensors' name of the element type."""
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        tensor = self._tensor
        bounds, kept, steps = _resolve(index, tensor.shape)
        bits = DTYPE_BITS[tensor.dtype]
        if bits % 8:
            raise InvalidArgument(f"{tensor.dtype} is packed: load the whole tensor")
        starts = [start for start, _ in bounds]
        counts = [stop - start for start, stop in bounds]
        framework, file = self._opened._framework, self._opened._file
        if any(step != 1 for step in steps):
            return self._cut_from_rows(bounds, kept, steps)
        shape = tuple(count for count, keep in zip(counts, kept, strict=True) if keep)
        result = make_array(framework, tensor._replace(shape=shape))
        run_bytes, outer = _runs(tensor.shape, counts, bits // 8)
        if run_bytes == 0 or 0 in counts:
            return result
        if math.prod(counts[:outer]) > _RUNS_MAX:
            return self._cut_from_rows(bounds, kept, steps)
        strides = _strides(tensor.shape, bits // 8)
        inner_offset = sum(s * stride for s, stride in zip(starts, strides, strict=True))
        address = framework.address(result)
        offsets = (
            sum(i * stride for i, stride in zip(place, strides, strict=False))
            for place in itertools.product(*map(range, counts[:outer]))
        )
        parts = (
            (tensor.offset + inner_offset + offset, run_bytes, address + number * run_bytes)
            for number, offset in enumerate(offsets)
        )
        request = Request("auto", region=framework.region)
        transfer = start_scatter(file, parts, request, result, cancel_when_dropped=True)
        transfer.complete(None, None)
        return result

    def _cut_from_rows(
        self, bounds: list[tuple[int, int]], kept: list[bool], steps: list[int]
    ) -> Any:
        """Load the rows that hold the slice, and copy it out of them."""
        start, stop = bounds[0]
        tensor = self._tensor
        row_bytes = tensor.size_bytes // max(tensor.shape[0], 1)
        rows = tensor._replace(
            shape=(stop - start, *tensor.shape[1:]),
            offset=tensor.offset + start * row_bytes,
            size_bytes=(stop - start) * row_bytes,
        )
        opened = self._opened
        loaded = load_tensors(opened._file, [rows], opened._framework)[rows.name]
        inside = [(0, stop - start), *bounds[1:]]
        part = loaded[
            tuple(
                slice(begin, end, step) if keep else begin
                for (begin, end), keep, step in zip(inside, kept, steps, strict=True)
            )
        ]
        return part.clone() if hasattr(part, "clone") else part.copy()


def _resolve(
    index: Any, shape: tuple[int, ...]
) -> tuple[list[tuple[int, int]], list[bool], list[int]]:
    """Turn an index into [start, stop), whether it stays, and the step, of each dimension."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if sum(part is Ellipsis for part in parts) > 1:
        raise InvalidArgument("an index can have only one ellipsis")
    places = [number for number, part in enumerate(parts) if part is Ellipsis]
    missing = len(shape) - (len(parts) - len(places))
    if missing < 0:
        raise InvalidArgument(f"too many indices for the shape {shape}")
    place = places[0] if places else len(parts)
    parts[place : place + len(places)] = [slice(None)] * missing
    bounds, steps = [], []
    for number, (part, length) in enumerate(zip(parts, shape, strict=True)):
        start, stop, step = _resolve_one(part, length, number)
        bounds.append((start, max(start, stop)))
        steps.append(step)
    return bounds, [isinstance(part, slice) for part in parts], steps


def _resolve_one(part: Any, length: int, number: int) -> tuple[int, int, int]:
    if isinstance(part, slice):
        start, stop, step = part.indices(length)
        if step < 1:
            raise InvalidArgument(f"a slice's step is {step}; it must be positive")
        return start, stop, step
    try:
        if isinstance(part, bool) or str(getattr(part, "dtype", "")) == "bool":
            raise TypeError
        place = operator.index(part)
    except TypeError:
        words = f"an index is an integer, a slice or ..., not {part!r:.100}"
        raise InvalidArgument(words) from None
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of the {length} of dimension {number}")
    return place % length, place % length + 1, 1


def _strides(shape: tuple[int, ...], itemsize_bytes: int) -> list[int]:
    strides = [itemsize_bytes] * len(shape)
    for number in range(len(shape) - 2, -1, -1):
        strides[number] = strides[number + 1] * shape[number + 1]
    return strides


def _runs(shape: tuple[int, ...], counts: list[int], itemsize_bytes: int) -> tuple[int, int]:
    """Return the bytes that lie together in the file, and how many dimensions go round them."""
    run_bytes = itemsize_bytes
    outer = len(shape)
    while outer > 0:
        outer -= 1
        run_bytes *= counts[outer]
        if counts[outer] != shape[outer]:
            break
    return run_bytes, outer
