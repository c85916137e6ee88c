"""Whole files, or extents of them, by path: into new arrays and from arrays."""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff import _abi
from hippogriff._array import Allocation, Array
from hippogriff._dtypes import find_dtype, fit_shape, known_size_bytes
from hippogriff._file import refuse_without_size
from hippogriff._handle import Handle, NoHandle
from hippogriff._host_memory import host_memory_bytes
from hippogriff._library import lib
from hippogriff._regions import describe
from hippogriff._replacement import Replacement
from hippogriff._runtime import (
    check_extent,
    default_device,
    device_name,
    encode_device,
    encode_path,
    ensure,
)
from hippogriff._transfer import Flight, Request, Transfer, bytes_moved, check_onlooker
from hippogriff.errors import InvalidArgument, check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hippogriff._regions import Region
    from hippogriff._runtime import PathLike
    from hippogriff._transfer import Onlooker

    Shape = int | Sequence[int] | None

_LONGEST_SECONDS = 1e9  # for ever, in milliseconds that C counts


def read(
    path: PathLike,
    *,
    device: object = None,
    offset: int = 0,
    size: int | None = None,
    dtype: object = "uint8",
    shape: Shape = None,
    route: str = "auto",
    progress: Onlooker = None,
    timeout: float | None = None,
    memory_timeout: float | None = None,
    host_memory: int | str | None = None,
) -> Array:
    """Read a file, or a part of one, into new memory of a device.

    Thread-safe; other Python threads run while it waits. KeyboardInterrupt cancels the transfer.

    Parameters
    ----------
    path : path-like
        The file.
    device : str, optional
        ``"cuda:0"``, ``"host"``, a torch device; else the current GPU, or the host without one.
    offset, size : int
        The extent in bytes; without a size what `shape` says, else the rest of the file.
    dtype : dtype-like
        The element type: a name, or a NumPy or torch dtype. Bytes are not swapped.
    shape : int or sequence of int, optional
        The lengths in elements, one of which may be -1; one dimension if not given.
    route : {"auto", "direct", "mapped", "pipelined", "parked"}
        The way to go; the best one at that moment if not given.
    progress : bool or callable, optional
        Whether to show a bar on stderr; else on a terminal, when it takes a while. A callable is
        given a `Progress` on this thread, about 20 times a second and at the end.
    timeout, memory_timeout : float, optional
        Seconds, after which the transfer is cancelled; how many to wait for device memory: 10 if
        not given, 0 fails at once.
    host_memory : int or str, optional
        The most pinned host memory that it uses at one time, as in `safetensors.load_file`.

    Returns
    -------
    Array
        With memory of its own.

    Raises
    ------
    IoError, ShortFile
        When it cannot be read (also FileNotFoundError and the like), or is truncated: ``missing``
        says which bytes are not there.
    InvalidArgument
        When there is no such device, route, extent or budget, or bytes do not fill the shape.
    OutOfDeviceMemory, TimedOut, Unsupported
        No room on the device within `memory_timeout`; `timeout` ended first; no such route here.
    """
    check_onlooker(progress)
    with _read_request(route, memory_timeout, host_memory) as request:
        transfer = _start_read(request, path, device, (offset, size), dtype, shape)
        return transfer.show(timeout, progress, "read")


def read_async(
    path: PathLike,
    *,
    device: object = None,
    offset: int = 0,
    size: int | None = None,
    dtype: object = "uint8",
    shape: Shape = None,
    route: str = "auto",
    memory_timeout: float | None = None,
    host_memory: int | str | None = None,
) -> Transfer[Array]:
    """Start a `read` and return at once; the transfer's result is the array.

    A transfer that is dropped before it is finished is cancelled. Parameters and errors are those
    of `read`.
    """
    request = _read_request(route, memory_timeout, host_memory)
    return _start_read(request, path, device, (offset, size), dtype, shape)


def _read_request(
    route: str, memory_timeout: float | None, host_memory: int | str | None
) -> Request:
    request = Request(route, host_memory=host_memory_bytes(host_memory))
    request.options.memory_timeout_ms = _memory_timeout_ms(memory_timeout)
    return request


def _start_read(
    request: Request,
    path: PathLike,
    device: object,
    extent: tuple[int, int | None],
    dtype: object,
    shape: Shape,
) -> Transfer[Array]:
    kind = find_dtype(dtype)
    offset, size = extent
    check_extent(offset, size)
    if size is None:
        size = known_size_bytes(shape, kind.itemsize_bytes)
    encoded = encode_path(path)
    rest = _rest_of_file(encoded, offset)
    if size == 0 and rest is None:
        raise InvalidArgument(f"cannot read 0 bytes of {os.fsdecode(encoded)} at offset {offset}")
    expected = rest if size is None else size
    if expected is not None:
        fit_shape(shape, kind.itemsize_bytes, expected)
    name = device_name(device) or default_device()
    memory = ctypes.c_void_p()

    def finish(handle: Handle) -> Array:
        size_bytes = handle.progress().bytes_total
        allocation = Allocation(handle.address(), size_bytes, name)
        return Array(allocation, kind, fit_shape(shape, kind.itemsize_bytes, size_bytes))

    if expected == 0:
        if size is None and rest == offset == 0:
            refuse_without_size(path)
        return Transfer(Flight(NoHandle(), None, finish))
    request.options.device = encode_device(name)
    return request.start(
        lib.hippogriff_send_path_async,
        encoded,
        ctypes.byref(memory),
        offset,
        size or 0,
        keep=memory,
        finish=finish,
        cancel_when_dropped=True,
    )


def prefetch(path: PathLike, offset: int = 0, size: int | None = None) -> None:
    """Begin to read a part of a file into the page cache, for a read to a GPU that will come.

    Returns at once; `read` and the loaders go on from where this got to. For the time in which a
    GPU's context is made, a program imports, or another one has the memory. `read` needs no such
    hint where it makes the context itself: it reads meanwhile. ``safetensors.load_file`` gives it
    where torch has not used a GPU.

    A hint: of all that was asked for in the last half minute and has not been read yet, as much is
    read as ``HIPPOGRIFF_PARKING`` says, and nothing where that is ``off``, or of files in memory.
    It waits while transfers, also of other processes that share the node, use the drive.
    Thread-safe.

    Parameters
    ----------
    path : path-like
        The file.
    offset : int
        In bytes, in the file.
    size : int, optional
        In bytes; the rest of the file if not given.

    Raises
    ------
    InvalidArgument
        When the file ends before the extent does.
    IoError
        When it cannot be opened.
    """
    check_extent(offset, size)
    if size == 0:
        return
    ensure()
    check(lib.hippogriff_prefetch_path(encode_path(path), offset, size or 0))


def write(
    path: PathLike,
    array: Any,
    *,
    route: str = "auto",
    stream: object = None,
    progress: Onlooker = None,
    timeout: float | None = None,
    host_memory: int | str | None = None,
) -> int:
    """Write an array as a whole file, replacing what was there, all or nothing.

    The bytes go to a temporary name in the same folder, are made durable, and are renamed: a crash
    leaves the old file. Use ``open(path, "r+")`` to write into a file. A block device is written in
    place, from its beginning, and made durable. Thread-safe; other Python threads run while it
    waits. KeyboardInterrupt cancels the transfer.

    Parameters
    ----------
    path : path-like
        The file.
    array : array
        C-contiguous: hippogriff's, torch's, CuPy's, NumPy's, or anything with
        ``__cuda_array_interface__``, DLPack or the buffer protocol.
    route : {"auto", "direct", "mapped", "pipelined", "parked"}
        The way to go; the best one at that moment if not given.
    stream : int or stream, optional
        The transfer waits for the work on it; if not given torch's and CuPy's current stream, or
        the one the array names.
    progress : bool or callable, optional
        Whether to show a bar on stderr; without it on a terminal, when it takes a while. A callable
        is called on this thread with a `Progress`, about 20 times a second and at the end.
    timeout : float, optional
        In seconds, after which the transfer is cancelled.
    host_memory : int or str, optional
        As in `read`.

    Returns
    -------
    int
        The number of bytes written.

    Raises
    ------
    IoError
        When the file cannot be written; also PermissionError and the like.
    InvalidArgument
        When the array is not contiguous, there is no such route, or `host_memory` is as in `read`.
    TypeError
        When `array` shows no memory.
    TimedOut
        When `timeout` ended first.
    """
    check_onlooker(progress)
    region = describe(array, writable=False)
    budget = host_memory_bytes(host_memory)
    with Request(route, region=region, stream=stream, host_memory=budget) as request:
        return _start_write(request, path, region).show(timeout, progress, "write")


def write_async(
    path: PathLike,
    array: Any,
    *,
    route: str = "auto",
    stream: object = None,
    host_memory: int | str | None = None,
) -> Transfer[int]:
    """Start a `write` and return at once; the transfer's result is the number of bytes.

    The array must not change until the transfer is finished (`Transfer.wait_released`); it is kept
    alive until then. Parameters and errors are those of `write`.
    """
    region = describe(array, writable=False)
    budget = host_memory_bytes(host_memory)
    request = Request(route, region=region, stream=stream, host_memory=budget)
    return _start_write(request, path, region)


def _start_write(request: Request, path: PathLike, region: Region) -> Transfer[int]:
    encoded = encode_path(path)
    if not region.size_bytes:
        _write_empty(encoded)
        return Transfer(Flight(NoHandle(), None, bytes_moved))
    request.add(_abi.Flags.REPLACE)
    return request.start(
        lib.hippogriff_recv_path_async,
        encoded,
        region.address,
        0,
        region.size_bytes,
        keep=region,
        finish=bytes_moved,
    )


def _write_empty(path: bytes) -> None:
    """Replace a file by an empty one: for C, size 0 is all that the memory has."""
    if path.endswith(b"/"):
        raise InvalidArgument(f"{os.fsdecode(path)} names no file", object=os.fsdecode(path))
    replacement = Replacement(path)
    try:
        replacement.write_empty()
    except BaseException:
        replacement.discard()  # an interrupt would leave what has a name
        raise


def _rest_of_file(path: bytes, offset: int) -> int | None:
    """Return the bytes after `offset`; None where the library has to find out or complain."""
    try:
        facts = Path(os.fsdecode(path)).stat()
    except OSError:
        return None
    if not stat.S_ISREG(facts.st_mode) or offset > facts.st_size:
        return None
    return facts.st_size - offset


def _memory_timeout_ms(seconds: float | None) -> int:
    """C's word for it: 0 is the default there, less fails at once."""
    if seconds is None:
        return 0
    return max(1, round(min(seconds, _LONGEST_SECONDS) * 1000)) if seconds > 0 else -1
