"""Loading: which parts of which files go where, in as few transfers as keep everything busy."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff._file import File
from hippogriff._scatter import start_scatter
from hippogriff._transfer import Request
from hippogriff.errors import HippogriffError, Unsupported, io_error
from hippogriff.safetensors._frameworks import make_framework
from hippogriff.safetensors._header import (
    HEADER_BYTES_MAX,
    Header,
    SafetensorError,
    TensorInfo,
    header_bytes,
    parse_header,
)
from hippogriff.safetensors._verify import open_verifiers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hippogriff._runtime import PathLike
    from hippogriff._transfer import Transfer
    from hippogriff.safetensors._frameworks import Framework
    from hippogriff.safetensors._verify import Verifier, Verify

# While a transfer is under way the tensors of the next are made: so many at least, which takes some
# milliseconds, and so many bytes, which take longer.
_BATCH_TENSORS = 1024
_BATCH_BYTES = 256 << 20
# One at work, one that waits for its turn.
_IN_FLIGHT = 2
# A hole larger than this between wanted tensors is not read.
_GAP_BYTES = 1 << 20
# A cancelled transfer finishes within this time; else its memory is kept until it does.
_SETTLE_SECONDS = 10.0


def read_header(file: File) -> Header:
    """Read and check the header of an open file.

    Raises
    ------
    SafetensorError
        When it is not one; the message names the file.
    """
    try:
        size = file.size
        with file.borrowed() as descriptor:
            text_bytes = header_bytes(_read(descriptor, 0, min(8, size)), size)
            return parse_header(_read(descriptor, 8, text_bytes), size)
    except SafetensorError as error:
        raise SafetensorError(f"{file.path}: {error}", object=file.path) from None
    except OSError as error:
        raise io_error("read", file.path, error) from None


def _read(descriptor: int, offset: int, size: int) -> bytes:
    text = bytearray()
    while len(text) < size:
        piece = os.pread(descriptor, size - len(text), offset + len(text))
        if not piece:
            raise SafetensorError("the file ends early; was it truncated meanwhile?")
        text += piece
    return bytes(text)


def open_file(path: PathLike) -> tuple[File, Header]:
    """Open a file and read its header; nothing stays open when that fails."""
    file = File(path)
    try:
        return file, read_header(file)
    except BaseException:
        file.close()
        raise


@contextlib.contextmanager
def opened_files(
    paths: PathLike | Iterable[PathLike],
) -> Iterator[list[tuple[File, Header]]]:
    """Open all files for a scope, before anything is loaded, and refuse a name in two of them."""
    names: set[str] = set()
    with contextlib.ExitStack() as stack:
        opened = []
        for path in files_of(paths):
            file, header = open_file(path)
            opened.append((stack.enter_context(file), header))
            twice = names & header.tensors.keys()
            if twice:
                raise SafetensorError(
                    f"{path}: tensor {min(twice)!r} is also in a file before it", object=path
                )
            names |= header.tensors.keys()
        yield opened


def load_tensors(
    file: File,
    tensors: Iterable[TensorInfo],
    framework: Framework,
    verifier: Verifier | None = None,
) -> dict[str, Any]:
    """Load tensors of an open file into arrays of their own, ascending in the file.

    Whatever ends it early stops the transfers under way before it is raised.
    """
    loaded: dict[str, Any] = {}
    flying: deque[Transfer[int]] = deque()
    to_verify: deque[tuple[list[TensorInfo], list[int]]] = deque()

    def verify_first() -> None:
        if verifier is not None:
            verifier.check(*to_verify.popleft(), framework.region)

    # What is verified is so while the next is under way: there should be a next.
    tensors_min = _BATCH_TENSORS if verifier is None else 1
    try:
        for batch in _batches(sorted(tensors, key=lambda tensor: tensor.offset), tensors_min):
            arrays = [make_array(framework, tensor) for tensor in batch]
            loaded.update(zip((tensor.name for tensor in batch), arrays, strict=True))
            addresses = [framework.address(array) for array in arrays]
            parts = [
                (tensor.offset, tensor.size_bytes, address)
                for tensor, address in zip(batch, addresses, strict=True)
                if tensor.size_bytes > 0
            ]
            if not parts:
                continue
            full = len(flying) == _IN_FLIGHT
            if full:
                flying.popleft().wait()
            request = Request("auto", region=framework.region)
            flying.append(start_scatter(file, parts, request, arrays, cancel_when_dropped=True))
            to_verify.append((batch, addresses))
            if full:
                verify_first()
        while flying:
            flying.popleft().wait()
            verify_first()
    except BaseException:
        stop(flying)
        raise
    return loaded


def make_array(framework: Framework, tensor: TensorInfo) -> Any:
    """Make the array of a tensor; what the framework cannot have is told with the name."""
    try:
        return framework.empty(tensor.dtype, tensor.shape)
    except HippogriffError as error:
        raise type(error)(f"tensor {tensor.name!r}: {error}") from None
    except (ValueError, OverflowError) as error:
        raise Unsupported(
            f"tensor {tensor.name!r} of shape {tensor.shape!r:.100}: {error}"
        ) from None


def stop(transfers: Iterable[Transfer[int]]) -> None:
    """Cancel transfers and wait until they use their memory no more."""
    transfers = list(transfers)
    for transfer in transfers:
        transfer.cancel()
    for transfer in transfers:
        with contextlib.suppress(HippogriffError):
            transfer.wait(_SETTLE_SECONDS)


def _batches(tensors: list[TensorInfo], tensors_min: int) -> Iterator[list[TensorInfo]]:
    """Cut an ascending list where a hole is, or where a batch is large enough."""
    batch: list[TensorInfo] = []
    batch_bytes = 0
    for tensor in tensors:
        large = len(batch) >= tensors_min and batch_bytes >= _BATCH_BYTES
        if batch and (
            large or tensor.offset - batch[-1].offset - batch[-1].size_bytes > _GAP_BYTES
        ):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(tensor)
        batch_bytes += tensor.size_bytes
    if batch:
        yield batch


def files_of(paths: PathLike | Iterable[PathLike]) -> list[str]:
    """Return the files that a path, a list of paths or an index of shards means.

    Raises
    ------
    SafetensorError
        When an index is none, or names a file outside its folder.
    """
    given = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)
    files: dict[str, None] = {}
    for path in map(os.fsdecode, given):
        names = _shards(Path(path)) if path.endswith(".index.json") else [path]
        files.update(dict.fromkeys(names))
    return list(files)


def _shards(index: Path) -> list[str]:
    text = _read_index(index)
    try:
        shards = json.loads(text)["weight_map"]
        names = list(dict.fromkeys(shards.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SafetensorError(
            f"{index} is no index of shards: it has no weight_map of names ({error})"
        ) from None
    for name in names:
        # Indexes come with checkpoints from anywhere.
        if not isinstance(name, str) or not _is_file_name(name):
            raise SafetensorError(f"{index} names the shard {name!r:.200}, which is no file name")
    return [str(index.parent / name) for name in names]


def _read_index(index: Path) -> bytes:
    try:
        # A pipe must not keep us waiting for its other end.
        with File(index) as file, file.borrowed() as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SafetensorError(f"{index} is no file")
            size = os.fstat(descriptor).st_size
            if size > HEADER_BYTES_MAX:
                raise SafetensorError(f"{index} has {size} bytes; {HEADER_BYTES_MAX} are the most")
            return _read(descriptor, 0, size)
    except HippogriffError:
        raise
    except OSError as error:
        raise io_error("read", str(index), error) from None


def _is_file_name(name: str) -> bool:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return False
    return b"\0" not in encoded and Path(name).name == name and name not in {"", ".", ".."}


def load_file(
    paths: PathLike | Iterable[PathLike],
    device: object = "cpu",
    *,
    framework: str = "pt",
    verify: Verify = False,
) -> dict[str, Any]:
    """Load all tensors of a safetensors file, or of several.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        Files; an index of shards (``model.safetensors.index.json``) stands for its files.
    device : str, int or torch.device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``1``.
    framework : {"pt", "np", "cupy"}
        Whose arrays. NumPy's and CuPy's bfloat16 and float8 need ml_dtypes.
    verify : bool or path-like
        Compare all bytes, where they are loaded, with checksums that `hippogriff checksum` or
        ``save_file(..., checksum=True)`` made; True: beside each file; a path: that file, or the
        folder they are in.

    Returns
    -------
    dict of str to array
        Each array owns its memory. Ordered after the work on torch's or CuPy's current stream.

    Raises
    ------
    SafetensorError
        When a file is no safetensors file, or a name is in two of them.
    Unsupported
        When the framework is not installed or has no such element type.
    ChecksumMismatch
        When what was loaded is not what the checksums are of; names tensors and bytes.
    SidecarError
        When the checksums are damaged, or of a file of another kind.
    IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
        When loading fails; nothing is under way then.
    """
    maker = make_framework(framework, device)
    loaded: dict[str, Any] = {}
    with opened_files(paths) as files:
        verifiers = open_verifiers(files, verify)
        for (file, header), verifier in zip(files, verifiers, strict=True):
            loaded.update(load_tensors(file, header.tensors.values(), maker, verifier))
    return loaded
