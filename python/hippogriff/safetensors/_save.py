"""Saving: into a temporary file beside the target, which it becomes when all is on the disk."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff._file import File
from hippogriff._regions import describe
from hippogriff.errors import InvalidArgument, io_error
from hippogriff.safetensors._frameworks import dtype_name
from hippogriff.safetensors._header import DTYPE_BITS, SafetensorError, TensorInfo, format_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hippogriff._regions import Region
    from hippogriff._runtime import PathLike
    from hippogriff._transfer import Transfer

_IN_FLIGHT = 8
# What one call of the system takes at most, and enough for one.
_GATHER_REGIONS = 1024
_GATHER_BYTES = 8 << 20


def save_file(
    tensors: Mapping[str, Any], filename: PathLike, metadata: Mapping[str, str] | None = None
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

    Raises
    ------
    InvalidArgument
        When an array is not contiguous or has an element type that safetensors has not.
    IoError
        When writing fails; the temporary file is removed then.
    """
    path = Path(os.fsdecode(filename))
    infos = _lay_out(tensors)
    header = format_header(infos, _checked_metadata(metadata))
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise io_error("create a temporary file for", str(path), error) from None
    try:
        try:
            os.fchmod(descriptor, 0o666 & ~_umask())
            _write_all(descriptor, header)
            if infos:
                os.posix_fallocate(
                    descriptor, 0, len(header) + infos[-1].offset + infos[-1].size_bytes
                )
        except OSError as error:
            raise io_error("write", temporary, error) from None
        finally:
            os.close(descriptor)
        with File(temporary, "r+") as file:
            _write_tensors(file, infos, tensors, len(header))
            _publish(file, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def _umask() -> int:
    """Return the process's umask. Linux tells it without changing it for a moment."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022


def _checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    if metadata is None:
        return None
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgument(f"metadata {key!r}: {value!r:.100} is not a string by a string")
    return dict(metadata)


def _lay_out(tensors: Mapping[str, Any]) -> list[TensorInfo]:
    """Order tensors as the reference does, the widest elements first, so that all are aligned."""
    described = []
    for name, array in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise SafetensorError(f"{name!r:.100} cannot be a tensor's name")
        dtype = dtype_name(array)
        region = describe(array, writable=False)
        described.append((-DTYPE_BITS[dtype], name, dtype, tuple(array.shape), region.size_bytes))
    described.sort()
    infos, offset = [], 0
    for _, name, dtype, shape, size_bytes in described:
        infos.append(TensorInfo(name, dtype, shape, offset, size_bytes))
        offset += size_bytes
    return infos


def _write_all(descriptor: int, text: bytes) -> None:
    written = 0
    while written < len(text):
        written += os.pwrite(descriptor, text[written:], written)


def _write_tensors(
    file: File, infos: list[TensorInfo], tensors: Mapping[str, Any], data_offset: int
) -> None:
    """Write what is on the host by this thread, and what is on devices by transfers beside it."""
    flying: deque[Transfer[int]] = deque()
    host = _HostWriter(file)
    try:
        for info in infos:
            if info.size_bytes == 0:
                continue
            array, offset = tensors[info.name], data_offset + info.offset
            region = describe(array, writable=False)
            if region.host_memory:
                host.write(region, offset)
                continue
            if len(flying) == _IN_FLIGHT:
                flying.popleft().wait()
            flying.append(file.write_from_async(array, offset))
        host.flush()
        while flying:
            flying.popleft().wait()
    except BaseException:
        for transfer in flying:
            transfer.cancel()
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
            except OSError as error:
                raise io_error("write", self._file.path, error) from None
            self._offset += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]
        self._regions.clear()
        self._bytes = 0


def _publish(file: File, path: Path) -> None:
    try:
        os.fsync(file.fileno())
        Path(file.path).replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise io_error("replace", str(path), error) from None
