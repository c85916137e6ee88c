"""Saving: into a temporary file beside the target, which it becomes when all is on the disk."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff._file import File
from hippogriff._path import Replacement
from hippogriff._regions import describe
from hippogriff._runtime import encode_path
from hippogriff._sidecar import SidecarWriter, sidecar_path
from hippogriff.errors import InvalidArgument, io_error
from hippogriff.safetensors._frameworks import dtype_name
from hippogriff.safetensors._header import (
    DTYPE_BITS,
    SafetensorError,
    TensorInfo,
    check_unicode,
    format_header,
)
from hippogriff.safetensors._load import stop
from hippogriff.safetensors._verify import make_sidecar

if TYPE_CHECKING:
    from hippogriff._regions import Region
    from hippogriff._runtime import PathLike
    from hippogriff._transfer import Transfer

_IN_FLIGHT = 8
# What one call of the system takes at most, and enough for one.
_GATHER_REGIONS = 1024
_GATHER_BYTES = 8 << 20


def save_file(
    tensors: Mapping[str, Any],
    filename: PathLike,
    metadata: Mapping[str, str] | None = None,
    *,
    checksum: bool = False,
) -> None:
    """Save tensors as a safetensors file: complete and on the disk, or not at all.

    Parameters
    ----------
    tensors : mapping of str to array
        C-contiguous arrays of torch, CuPy, NumPy, on any device. Tensors that share memory are
        written once for each.
    filename : path-like
        Replaced when it exists; until the end what was there stays.
    metadata : mapping of str to str, optional
        Kept in the header.
    checksum : bool
        Write checksums too, of the arrays as they are where they are. Those that were there are
        removed before the file is replaced: whatever happens, none stay beside another file.

    Raises
    ------
    InvalidArgument
        When an array is not contiguous or has an element type that safetensors has not.
    IoError
        When writing fails; the temporary file is removed then.
    """
    contents = _lay_out(tensors)
    infos = [info for info, _ in contents]
    header = format_header(infos, _checked_metadata(metadata))
    replacement = _replacement(filename)
    sidecar: SidecarWriter | None = None
    try:
        _create(replacement, len(header) + sum(info.size_bytes for info in infos))
        with File(replacement.temporary, "r+") as file:
            _write_tensors(file, header, contents)
            _sync(file, replacement.name)
        if checksum:
            sums = make_sidecar(header, [each for _, each in contents])
            sidecar = SidecarWriter(sidecar_path(replacement.name), sums)
            sidecar.remove_old()
        replacement.commit()
        if sidecar is not None:
            sidecar.commit()
    except BaseException:
        replacement.discard()
        if sidecar is not None:
            sidecar.discard()
        raise


def _replacement(filename: PathLike) -> Replacement:
    """Return what will become the file; refuse what is no regular file or may not be written."""
    encoded = encode_path(filename)
    name = os.fsdecode(encoded)
    if name.endswith("/"):
        raise InvalidArgument(f"{name} names a folder", object=name)
    replacement = Replacement(encoded)
    try:
        facts = Path(replacement.name).stat()
    except FileNotFoundError:
        return replacement
    except OSError as error:
        raise io_error("replace", name, error) from None
    if not stat.S_ISREG(facts.st_mode):
        raise InvalidArgument(f"{name} is not a regular file", object=name)
    if not os.access(replacement.name, os.W_OK, effective_ids=True):
        denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        raise io_error("replace", name, denied)
    return replacement


def _create(replacement: Replacement, size_bytes: int) -> None:
    """Create the temporary file with its whole size; nobody else may read it before its end."""
    mode = 0o600 if Path(replacement.name).exists() else 0o666
    try:
        descriptor = os.open(replacement.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise io_error("create a temporary file for", replacement.name, error) from None


def _sync(file: File, name: str) -> None:
    try:
        os.fsync(file.fileno())
    except OSError as error:
        raise io_error("sync", name, error) from None


def _checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    if metadata is None:
        return None
    texts = dict(metadata) if isinstance(metadata, Mapping) else None
    if texts is None or not all(isinstance(each, str) for pair in texts.items() for each in pair):
        raise InvalidArgument(f"metadata {metadata!r:.100} does not map strings to strings")
    check_unicode([*texts, *texts.values()])
    return texts


def _lay_out(tensors: Mapping[str, Any]) -> list[tuple[TensorInfo, Any]]:
    """Order tensors as the reference does, the widest elements first, so that all are aligned."""
    described = []
    for name, array in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise SafetensorError(f"{name!r:.100} cannot be a tensor's name")
        if getattr(array, "mask", None) is not None:
            raise InvalidArgument(f"tensor {name!r} has a mask, which would be lost")
        try:
            dtype = dtype_name(array)
            size_bytes = describe(array, writable=False).size_bytes
        except InvalidArgument as error:
            raise InvalidArgument(f"tensor {name!r}: {error}") from None
        info = TensorInfo(name, dtype, tuple(array.shape), 0, size_bytes)
        described.append((info, array))
    check_unicode(info.name for info, _ in described)
    described.sort(key=lambda each: (-DTYPE_BITS[each[0].dtype], each[0].name))
    contents, offset = [], 0
    for info, array in described:
        contents.append((info._replace(offset=offset), array))
        offset += info.size_bytes
    return contents


def _write_tensors(file: File, header: bytes, contents: list[tuple[TensorInfo, Any]]) -> None:
    """Write what is on the host by this thread, and what is on devices by transfers beside it."""
    flying: deque[Transfer[int]] = deque()
    host = _HostWriter(file)
    try:
        host.write(describe(header, writable=False), 0)
        for info, array in contents:
            region, offset = describe(array, writable=False), len(header) + info.offset
            if region.size_bytes != info.size_bytes:
                raise InvalidArgument(f"tensor {info.name!r} has changed its size meanwhile")
            if info.size_bytes == 0:
                continue
            if region.host_memory:
                host.write(region, offset)
                continue
            if len(flying) == _IN_FLIGHT:
                flying.popleft().wait()
            flying.append(file.write_from_async(array, offset, info.size_bytes))
        host.flush()
        while flying:
            flying.popleft().wait()
    except BaseException:
        stop(flying)
        raise


class _HostWriter:
    """Gathers adjacent memory, so that many small arrays are written by few calls."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._regions: list[Region] = []
        self._offset = self._bytes = 0

    def write(self, region: Region, offset: int) -> None:
        """Write memory at an offset, now or with what comes next."""
        adjacent = self._offset + self._bytes == offset
        if not adjacent or self._bytes >= _GATHER_BYTES or len(self._regions) == _GATHER_REGIONS:
            self.flush()
            self._offset = offset
        self._regions.append(region)
        self._bytes += region.size_bytes

    def flush(self) -> None:
        """Write what was gathered."""
        views = [
            memoryview((ctypes.c_char * region.size_bytes).from_address(region.address)).cast("B")
            for region in self._regions
        ]
        while views:
            try:
                written = os.pwritev(self._file.fileno(), views, self._offset)
                if written == 0:
                    raise OSError(errno.EIO, "nothing more is written")
            except OSError as error:
                raise io_error("write", self._file.path, error) from None
            self._offset += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]
        self._regions.clear()
        self._bytes = 0
