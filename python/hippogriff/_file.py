"""Open files whose parts go to arrays and come from them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import threading
import weakref
from typing import TYPE_CHECKING, Any

from hippogriff import _abi
from hippogriff._handle import NoHandle
from hippogriff._library import lib
from hippogriff._regions import Region, describe, note_changes
from hippogriff._runtime import check_extent, encode_path, ensure
from hippogriff._scatter import start_scatter
from hippogriff._transfer import Flight, Request, Transfer, bytes_moved, check_onlooker
from hippogriff.errors import InvalidArgument, check, io_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from hippogriff._runtime import PathLike
    from hippogriff._transfer import Onlooker

    Part = tuple[int, Region]

# What hippogriff_send and hippogriff_recv move without a transfer.
_SMALL_BYTES = 2 << 20
# More of them come sooner by several threads.
_SMALL_HOST_BYTES = 256 << 10
# To see any of them by. Of each size it would be a type of its own, which takes longer to make than
# the bytes to read.
_SmallMemory = ctypes.c_char * _SMALL_HOST_BYTES
_MODES = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
}


# Open in this process; a forked child has them too.
_files: weakref.WeakSet[File] = weakref.WeakSet()


class File:
    """An open file whose parts go to arrays and come from them. Made by `open`. Thread-safe."""

    def __init__(self, path: PathLike, mode: str = "r") -> None:
        if mode not in _MODES:
            raise InvalidArgument(f"mode {mode!r} is not one of {', '.join(_MODES)}")
        self._encoded_path = encode_path(path)
        self.mode = mode
        self._lock = threading.Lock()
        self._descriptor = self._closing = -1
        self._borrowers = 0
        _files.add(self)
        try:
            # A pipe must not keep us waiting for its other end: its first transfer is refused.
            flags = _MODES[mode] | os.O_CLOEXEC | os.O_NONBLOCK
            self._descriptor = os.open(self._encoded_path, flags, 0o666)
            os.set_blocking(self._descriptor, True)
        except OSError as error:
            raise io_error("open", self.path, error) from None

    @property
    def path(self) -> str:
        """The path it was opened by."""
        return os.fsdecode(self._encoded_path)

    def fileno(self) -> int:
        """Return the descriptor; it belongs to this object."""
        if self._descriptor < 0:
            raise InvalidArgument(f"{self.path} is closed", object=self.path)
        return self._descriptor

    @property
    def size(self) -> int:
        """The file's size in bytes, now."""
        with self.borrowed() as descriptor:
            return _size_of(descriptor)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._descriptor < 0

    def close(self) -> None:
        """Close the file. Transfers in flight go on: they have a descriptor of their own."""
        with self._lock:
            if self._descriptor < 0:
                return
            self._closing, self._descriptor = self._descriptor, -1
            self._close_unless_borrowed()

    def _borrow(self) -> int:
        """Keep the descriptor open, so that its number does not become another file's."""
        with self._lock:
            descriptor = self.fileno()
            self._borrowers += 1
        return descriptor

    def _give_back(self) -> None:
        with self._lock:
            self._borrowers -= 1
            self._close_unless_borrowed()

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[int]:
        """Give the descriptor for a scope, in which the file stays open."""
        descriptor = self._borrow()
        try:
            yield descriptor
        finally:
            self._give_back()

    def _close_unless_borrowed(self) -> None:
        if self._closing >= 0 and self._borrowers == 0:
            # In this order, so that an interrupt in between closes nobody else's.
            descriptor, self._closing = self._closing, -1
            os.close(descriptor)

    def __enter__(self) -> File:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # An interrupt can have left a borrower counted that is none.
        for descriptor in (getattr(self, "_descriptor", -1), getattr(self, "_closing", -1)):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle an open file: open {self.path} in the worker process")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"mode {self.mode!r}"
        return f"<hippogriff.File {self.path!r}, {state}>"

    def prefetch(self, offset: int = 0, size: int | None = None) -> None:
        """Begin to read a part of the file into the page cache, for a read to a GPU that will come.

        Meanwhile a GPU's context is made, or a program starts. A hint: see `hippogriff.prefetch`.

        Parameters
        ----------
        offset : int
            In bytes, in the file.
        size : int, optional
            In bytes; the rest of the file if not given.

        Raises
        ------
        InvalidArgument
            When the file ends before the extent does, or is closed.
        """
        check_extent(offset, size)
        ensure()
        with self.borrowed() as descriptor:
            if size != 0:
                check(lib.hippogriff_prefetch(descriptor, offset, size or 0))

    def read_into(
        self,
        array: Any,
        offset: int = 0,
        size: int | None = None,
        *,
        route: str = "auto",
        stream: object = None,
        progress: Onlooker = None,
        timeout: float | None = None,
    ) -> int:
        """Fill an array, or its beginning, with bytes of the file.

        Parameters
        ----------
        array : array
            C-contiguous and writable: as `write` takes them.
        offset : int
            In bytes, in the file.
        size : int, optional
            In bytes; the whole array if not given.
        route, stream, progress, timeout
            As in `write`.

        Returns
        -------
        int
            The number of bytes read.

        Raises
        ------
        InvalidArgument
            When the file ends before the extent does or is closed, or the array is too small, not
            contiguous or read-only.
        ShortFile
            When the file is truncated meanwhile; ``missing`` says which bytes are not there.
        IoError, TypeError, TimedOut
            As in `write`.
        """
        check_onlooker(progress)
        region = describe(array, writable=True)
        if route == "auto" and stream is None and _unwatched(progress, timeout):
            moved = self._move_small(region, offset, size, writable=True)
            if moved:
                note_changes([array])
                return moved
        with Request(route, region=region, stream=stream) as request:
            transfer = self._start_read(request, region, offset, size)
            note_changes([array])  # Takes a while, in which bytes move.
            return transfer.show(timeout, progress, "read")

    def read_into_async(
        self,
        array: Any,
        offset: int = 0,
        size: int | None = None,
        *,
        route: str = "auto",
        stream: object = None,
        before_stream: bool = False,
    ) -> Transfer[int]:
        """Start a `read_into` and return at once.

        Parameters
        ----------
        before_stream : bool
            Work put on the stream after this call waits for the transfer. Look at the transfer's
            outcome all the same: the stream goes on also when it failed. Run that work's kernels
            once before: loading one may wait for the stream and hold up the transfer, which then
            fails after 30 s.
        """
        region = describe(array, writable=True)
        request = Request(route, region=region, stream=stream, before_stream=before_stream)
        with request:
            transfer = self._start_read(request, region, offset, size)
            note_changes([array])
            return transfer

    def read_into_many(
        self,
        parts: Iterable[tuple[int, Any]],
        *,
        route: str = "auto",
        stream: object = None,
        progress: Onlooker = None,
        timeout: float | None = None,
    ) -> int:
        """Fill many arrays from as many places of the file, as one transfer.

        Parameters
        ----------
        parts : iterable of (int, array)
            The offset in the file, in bytes, and the array to fill, as `read_into` takes it. In any
            order; all on one device; they overlap neither in the file nor in memory.
        route, stream, progress, timeout
            As in `write`.

        Returns
        -------
        int
            The number of bytes from the first part's first one to the last part's last one.

        Raises
        ------
        InvalidArgument, ShortFile, IoError, TypeError, TimedOut
            As in `read_into`.
        """
        check_onlooker(progress)
        described = _describe_parts(parts)
        with Request(route, region=_common_region(described), stream=stream) as request:
            return self._start_many(request, described).show(timeout, progress, "read")

    def read_into_many_async(
        self,
        parts: Iterable[tuple[int, Any]],
        *,
        route: str = "auto",
        stream: object = None,
        before_stream: bool = False,
    ) -> Transfer[int]:
        """Start a `read_into_many` and return at once. `before_stream` as in `read_into_async`."""
        described = _describe_parts(parts)
        region = _common_region(described)
        request = Request(route, region=region, stream=stream, before_stream=before_stream)
        return self._start_many(request, described)

    def write_from(
        self,
        array: Any,
        offset: int = 0,
        size: int | None = None,
        *,
        route: str = "auto",
        stream: object = None,
        durable: bool = False,
        progress: Onlooker = None,
        timeout: float | None = None,
    ) -> int:
        """Write an array, or its beginning, into the file in place.

        Parameters
        ----------
        array : array
            C-contiguous: as `write` takes them.
        offset : int
            In bytes, in the file, which grows if need be.
        size : int, optional
            In bytes; the whole array if not given.
        durable : bool
            Return when the bytes are on the disk (fdatasync).
        route, stream, progress, timeout
            As in `write`.

        Returns
        -------
        int
            The number of bytes written.

        Raises
        ------
        IoError, InvalidArgument, TypeError, TimedOut
            As in `write`; ``missing`` says which bytes were not written.
        """
        check_onlooker(progress)
        region = describe(array, writable=False)
        if route == "auto" and stream is None and not durable and _unwatched(progress, timeout):
            moved = self._move_small(region, offset, size, writable=False)
            if moved:
                return moved
        with Request(route, region=region, stream=stream) as request:
            transfer = self._start_write(request, region, offset, size, durable=durable)
            return transfer.show(timeout, progress, "write")

    def write_from_async(
        self,
        array: Any,
        offset: int = 0,
        size: int | None = None,
        *,
        route: str = "auto",
        stream: object = None,
        before_stream: bool = False,
        durable: bool = False,
    ) -> Transfer[int]:
        """Start a `write_from` and return at once.

        The array must not change until the transfer is finished or `Transfer.wait_released`
        returned. `before_stream` makes later work on the stream wait for that.
        """
        region = describe(array, writable=False)
        request = Request(route, region=region, stream=stream, before_stream=before_stream)
        return self._start_write(request, region, offset, size, durable=durable)

    def write_region_async(
        self, region: Region, offset: int, host_memory: int = 0
    ) -> Transfer[int]:
        """Start to write memory that was described; `host_memory` is as `Request` has it."""
        request = Request("auto", region=region, host_memory=host_memory)
        return self._start_write(request, region, offset, None, durable=False)

    def _start_read(
        self, request: Request, region: Region, offset: int, size: int | None
    ) -> Transfer[int]:
        call, memory = lib.hippogriff_send_async, ctypes.byref(ctypes.c_void_p(region.address))
        return self._start(request, region, (call, memory), offset, size)

    def _start_many(self, request: Request, parts: list[Part]) -> Transfer[int]:
        filled = [
            (o, region.size_bytes, region.address) for o, region in parts if region.size_bytes
        ]
        if not filled:
            return Transfer(Flight(NoHandle(), None, bytes_moved))
        return start_scatter(self, filled, request, keep=parts)

    def _start_write(
        self, request: Request, region: Region, offset: int, size: int | None, *, durable: bool
    ) -> Transfer[int]:
        if durable:
            request.add(_abi.Flags.DURABLE)
        call = lib.hippogriff_recv_async
        return self._start(request, region, (call, region.address), offset, size)

    def read_small(self, region: Region, offset: int) -> bool:
        """Fill a few bytes of memory at once, on this thread; False: failed, a transfer says why.

        Ordered as `_move_small`; they are `small_bytes` at most, and one at least.
        """
        return self._move_small(region, offset, None, writable=True) > 0

    def read_small_parts(
        self, addresses: Sequence[int], sizes_bytes: Sequence[int], offset: int
    ) -> bool:
        """Fill parts of host memory with what follows each other in the file, as `read_small`."""
        parts = zip(addresses, sizes_bytes, strict=True)
        memory = [
            memoryview(_SmallMemory.from_address(address))[:size] for address, size in parts if size
        ]
        size = sum(sizes_bytes)
        descriptor = self._borrow()
        try:
            return _read_small(descriptor, memory, offset, size) == size
        finally:
            self._give_back()

    def _move_small(self, region: Region, offset: int, size: int | None, *, writable: bool) -> int:
        """Move a few bytes at once, on this thread; 0: not so, or failed, and a transfer says why.

        Ordered as the plain C calls are: after the work on CUDA's legacy default stream.
        """
        size = region.size_bytes if size is None else size
        if type(offset) is not int or type(size) is not int or not 0 < size <= small_bytes(region):
            return 0
        if size > region.size_bytes or offset < 0 or (region.host_memory and not writable):
            return 0
        if not region.host_memory:
            ensure()
        descriptor = self._borrow()
        try:
            if region.host_memory:
                memory = memoryview(_SmallMemory.from_address(region.address))[:size]
                moved = _read_small(descriptor, [memory], offset, size)
            elif writable:
                pointer = ctypes.c_void_p(region.address)
                moved = lib.hippogriff_send(descriptor, ctypes.byref(pointer), offset, size)
            else:
                moved = lib.hippogriff_recv(descriptor, region.address, offset, size)
        finally:
            self._give_back()
        return size if moved == size else 0

    def _start(
        self,
        request: Request,
        region: Region,
        call: tuple[Callable[..., int], Any],
        offset: int,
        size: int | None,
    ) -> Transfer[int]:
        check_extent(offset, size)
        size = region.size_bytes if size is None else size
        if size > region.size_bytes:
            raise InvalidArgument(f"size {size} is more than the array's {region.size_bytes} bytes")
        with request, self.borrowed() as descriptor:
            if size == 0:
                return Transfer(Flight(NoHandle(), None, bytes_moved))
            return request.start(
                call[0], descriptor, call[1], offset, size, keep=region, finish=lambda _: size
            )


def _unwatched(progress: Onlooker, timeout: float | None) -> bool:
    """Whether nobody follows a transfer or bounds its time: else it must be one."""
    return timeout is None and not callable(progress)


def _read_small(descriptor: int, memory: list[memoryview], offset: int, size: int) -> int:
    """Read into host memory what the file has, all of it; 0, and nothing is changed, otherwise."""
    try:
        if os.fstat(descriptor).st_size < offset + size:  # also of what is no file of a fixed size
            return 0
        return os.preadv(descriptor, memory, offset)
    except OSError:
        return 0


def _after_fork() -> None:
    """Give files locks that no thread of the parent holds."""
    for file in list(_files):
        file._lock = threading.Lock()
        file._borrowers = 0


os.register_at_fork(after_in_child=_after_fork)


def small_bytes(region: Region) -> int:
    """Return how many bytes may move at once to or from such memory; after a stream none, 0."""
    if region.host_memory:
        return _SMALL_HOST_BYTES
    return 0 if region.stream else _SMALL_BYTES


def _describe_parts(parts: Iterable[tuple[int, Any]]) -> list[Part]:
    """Describe arrays to fill, each with its offset in the file."""
    parts = list(parts)
    described = [(offset, describe(array, writable=True)) for offset, array in parts]
    note_changes(array for _, array in parts)
    for offset, region in described:
        check_extent(offset, region.size_bytes)
    return described


def _common_region(parts: list[Part]) -> Region | None:
    """Return a region that says what all of them say; None where all are empty."""
    filled = [region for _, region in parts if region.size_bytes]
    for region in filled:
        for what in ("device", "host_memory", "stream"):
            if getattr(region, what) != getattr(filled[0], what):
                raise InvalidArgument(
                    f"the arrays differ in {what}: {getattr(filled[0], what)} and "
                    f"{getattr(region, what)}; read them in one call for each"
                )
    return filled[0] if filled else None


def expect_bytes(file: File) -> None:
    """Refuse what has no bytes to begin with: pipes and the like, folders, files without a size.

    Raises
    ------
    InvalidArgument
        Says what it is instead of a file or a block device.
    """
    with file.borrowed() as descriptor:
        facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) and not stat.S_ISBLK(facts.st_mode):
        kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        kind = kinds.get(stat.S_IFMT(facts.st_mode), "character device")
        raise InvalidArgument(
            f"{file.path} is a {kind}, not a file or block device", object=file.path
        )
    if not facts.st_size:
        refuse_without_size(file.path)


def refuse_without_size(path: PathLike) -> None:
    """Refuse an empty file from which bytes can be read: how many there are cannot be known.

    Raises
    ------
    InvalidArgument
        When it is such a file, as most of /proc are.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    try:
        if os.pread(descriptor, 1, 0) and _size_of(descriptor) == 0:
            text = f"{os.fsdecode(path)} has bytes but no size, as files of /proc"
            raise InvalidArgument(f"{text}: read it by other means", object=os.fsdecode(path))
    except OSError:
        return
    finally:
        os.close(descriptor)


def _size_of(descriptor: int) -> int:
    facts = os.fstat(descriptor)
    if stat.S_ISBLK(facts.st_mode):
        # On a description of our own: the file's position is the caller's.
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.lseek(own, 0, os.SEEK_END)
        finally:
            os.close(own)
    return facts.st_size
