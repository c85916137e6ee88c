"""Looking into a safetensors file and loading what is wanted of it."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from hippogriff._file import small_bytes
from hippogriff._frameworks import is_torch, make_framework
from hippogriff._host_memory import host_memory_bytes
from hippogriff._report import Watch
from hippogriff._slices import fill, is_basic, target_of
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._checks import Checks
from hippogriff.safetensors._files import check_backend, only_path
from hippogriff.safetensors._header import SafetensorError, SafetensorIndexError
from hippogriff.safetensors._load import by_offset, load_tensors, make_one
from hippogriff.safetensors._opened import open_file
from hippogriff.safetensors._part import Blocks, extent_of, select
from hippogriff.safetensors._tensor import Columns, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from hippogriff._regions import Region
    from hippogriff._report import LoadReport
    from hippogriff._runtime import PathLike
    from hippogriff._slices import Selection
    from hippogriff.safetensors._header import Header
    from hippogriff.safetensors._verify import Verifier, Verify


class safe_open:  # noqa: N801 (safetensors' name)
    """An open safetensors file: names, shapes and metadata at once, tensors when asked for.

    Parameters
    ----------
    filename : path-like
        The file.
    framework : {"pt", "np", "cupy"}
        Whose arrays.
    device : str, int or torch.device
        Where to; None as the reference has it, the CPU.
    backend : str, optional
        As in `load_file`: the reference's, without effect.
    verify : bool or path-like
        As in `load_file`. Of slices all blocks (256 KiB) between the first and the last that they
        touch are loaded for it.
    host_memory, explain, progress
        As in `load_file`; for each call that loads something.

    Raises
    ------
    SafetensorError
        When it is no safetensors file, or an index of several; of what is called later, when it is
        closed.
    ChecksumMismatch, SidecarError
        When its header is not what the checksums are of, or they cannot be used.
    IoError
        When it cannot be opened.
    InvalidArgument
        When `filename` is no path, and of the others as `load_file`.

    Examples
    --------
    >>> from hippogriff.safetensors import safe_open
    >>> with safe_open("model.safetensors", framework="pt", device="cuda:0") as file:
    ...     head = file.get_slice("head.weight")[:1024]
    """

    def __init__(
        self,
        filename: PathLike,
        framework: str = "pt",
        device: object = "cpu",
        *,
        backend: str | None = None,
        verify: Verify = False,
        host_memory: int | str | None = None,
        explain: bool | Callable[[LoadReport], object] = False,
        progress: bool | None = None,
    ) -> None:
        check_backend(backend)
        self._host_memory = host_memory_bytes(host_memory)
        self._explain = explain
        self._progress = progress
        self._framework = make_framework(framework, device)
        self._indexes_more = is_torch(framework)
        self._file, self._header, self._verifier = open_file(only_path(filename), verify)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __reduce__(self) -> Any:
        return self._file.__reduce__()

    def keys(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._known.tensors)

    def offset_keys(self) -> list[str]:
        """Return the names in the order of their data in the file."""
        return list(self._known.tensors)

    def metadata(self) -> dict[str, str] | None:
        """Return what the file tells beside tensors; None when it has no place for that."""
        metadata = self._known.metadata
        return None if metadata is None else dict(metadata)

    def get_tensor(self, name: str) -> Any:
        """Load a tensor.

        Raises
        ------
        SafetensorError
            When there is none of this name.
        ChecksumMismatch
            When it is to be verified, and differs.
        Unsupported, IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
            As `load_file`; nothing is under way then.
        """
        tensor = self._find(name)
        framework, size_bytes = self._framework, tensor.size_bytes
        region = framework.region
        if 0 < size_bytes <= small_bytes(region) and self._verifier is None:
            array = make_one(framework, name, tensor.dtype, tensor.shape)
            if self._read_small(tensor, region.at(framework.address(array), size_bytes)):
                return array
        return self.get_tensors([name])[name]

    def _read_small(self, tensor: TensorInfo, region: Region) -> bool:
        """Read a tensor at once, on this thread; False: failed, and a transfer says why."""
        file, offset = self._file, tensor.offset
        if not self._explain:
            return file.read_small(region, offset)
        watch = Watch(self._explain, self._progress, self._host_memory)
        watch.open(file.path)
        if not watch.read(tensor.size_bytes, functools.partial(file.read_small, region, offset)):
            return False
        with watch:
            watch.start(1, tensor.size_bytes)
        return True

    def get_tensors(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Load some tensors, or all, by as few transfers as serve them.

        Raises
        ------
        SafetensorError
            When there is none of a name, or the file is closed.
        InvalidArgument
            When `names` is one string.
        ChecksumMismatch
            When they are to be verified, and one differs; names the tensors and bytes.
        Unsupported, IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
            As `load_file`; nothing is under way then.
        """
        if isinstance(names, str):
            raise InvalidArgument("names is one string; get_tensor loads one tensor")
        wanted = self._known.tensors if names is None else dict.fromkeys(names)
        return self._load(by_offset(map(self._find, wanted)))

    def _load(self, tensors: Columns, blocks: Blocks | None = None) -> dict[str, Any]:
        """Load what is whole, or the blocks of a part."""
        with Watch(self._explain, self._progress, self._host_memory) as watch, Checks() as checks:
            watch.expect(sum(tensors.sizes))
            checked = checks.of(self._verifier, self._framework.region, blocks)
            return load_tensors(
                self._file,
                [tensors],
                self._framework,
                watch,
                checked,
                host_memory=self._host_memory,
                verifier=self._verifier,
            )

    def get_slice(self, name: str) -> Slice:
        """Return what can be cut from a tensor without loading the rest of it.

        Raises
        ------
        SafetensorError
            When there is none of this name, or the file is closed.
        """
        return Slice(self, self._find(name))

    @property
    def _known(self) -> Header:
        """The header, as long as the file is open."""
        if self._file.closed:
            path = self._file.path
            raise SafetensorError(f"{path} is closed", object=path)
        return self._header

    def _find(self, name: str) -> TensorInfo:
        try:
            return self._known.tensors[name]
        except KeyError:
            raise SafetensorError(
                f"{self._file.path} has no tensor {name!r:.100}", object=self._file.path
            ) from None


class Slice:
    """A tensor in a file, to be indexed: ``slice[2:5, ..., 7]`` loads only that."""

    def __init__(self, opened: safe_open, tensor: TensorInfo) -> None:
        self._opened = opened
        self._tensor = tensor

    def __reduce__(self) -> Any:
        return self._opened.__reduce__()

    def get_shape(self) -> list[int]:
        """Return the shape of the whole tensor."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """Return safetensors' name of the element type."""
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        """Load a part of the tensor.

        Parameters
        ----------
        index : int, slice, ellipsis or tuple of them
            As NumPy's basic indices; steps are positive, and there is one ellipsis at most. With
            framework "pt" all that torch takes (lists, masks, tensors, None): these load the whole
            tensor, of which the part is a copy.

        Returns
        -------
        array
            Of the part's shape, which lacks the dimensions that have an integer; in memory of its
            own, of the framework and on the device of the `safe_open`. To verify it, all blocks of
            256 KiB of the rows from the first that it touches to the last are loaded, and compared.

        Raises
        ------
        SafetensorError
            When the file is closed, the elements are packed (4 or 6 bits), or there is no such
            part; an IndexError as well where an integer is out of its dimension.
        ChecksumMismatch
            When it is to be verified, and one of those blocks differs.
        Unsupported, IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
            As `load_file`.
        """
        opened = self._opened
        tensor, path = opened._find(self._tensor.name), opened._file.path
        if opened._indexes_more and not is_basic(index):
            return _cut(opened.get_tensor(tensor.name), index, tensor.name, path)
        selection = select(index, tensor, path)
        if opened._verifier is not None and 0 not in selection.counts:
            return self._load_verified(opened._verifier, selection)
        array, extent = self._make(selection), extent_of(tensor)
        target = target_of(opened._framework, array)
        with Watch(opened._explain, opened._progress, opened._host_memory) as watch:
            watch.open(path)
            watch.start(1, math.prod(selection.counts) * extent.itemsize_bytes)
            fill(opened._file, extent, selection, target, watch, opened._host_memory)
        return array

    def _load_verified(self, verifier: Verifier, selection: Selection) -> Any:
        tensor, opened = self._tensor, self._opened
        if selection == select(..., tensor, opened._file.path):
            return opened.get_tensor(tensor.name)
        array, blocks = self._make(selection), Blocks(verifier, tensor, selection)
        with blocks.telling(opened._file.path):
            span = opened._load(Columns.of([blocks.span]), blocks)[tensor.name]
        blocks.copy(span, array)
        return array

    def _make(self, selection: Selection) -> Any:
        tensor = self._tensor
        return make_one(self._opened._framework, tensor.name, tensor.dtype, selection.shape)


def _cut(whole: Any, index: Any, name: str, path: str) -> Any:
    """Return a copy of a part of a torch tensor."""
    try:
        return whole[index].clone()
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        kind = SafetensorIndexError if isinstance(error, IndexError) else SafetensorError
        words = f"{path}: tensor {name!r:.100}: {error}"
    raise kind(words, object=path)
