"""New files from a header and arrays: complete and on the disk, or not there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hippogriff._file import File
from hippogriff._flights import Flights
from hippogriff._host_memory import share_out
from hippogriff._regions import describe
from hippogriff._replacement import Replacement
from hippogriff._runtime import encode_path
from hippogriff.errors import InvalidArgument, io_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hippogriff._regions import Region
    from hippogriff._report import Watch
    from hippogriff._runtime import PathLike

_IN_FLIGHT = 8
# What one call of the system takes at most, and enough for one.
_GATHER_REGIONS = 1024
_GATHER_BYTES = 8 << 20
# About so much is written at a time where somebody looks on.
_SHOWN_BYTES = 64 << 20
# Of memory of the host so much is written by a transfer, past the page cache.
_LARGE_BYTES = 8 << 20
# To copy so little takes less time than to make a view of it.
_COPIED_BYTES = 4 << 10
_LOCK_SECONDS = 10.0  # of two names that change; a process that is killed holds no lock


class Part(NamedTuple):
    """An array's memory, to be written at an offset of the file."""

    region: Region
    offset: int


class Beside(Protocol):
    """A file that goes with another one, written and not in its place yet."""

    def remove_old(self) -> None:
        """Remove what is there of the file before."""

    def commit(self) -> None:
        """Put it in its place."""

    def discard(self, failure: BaseException | None = None) -> None:
        """Remove it. Where it stays, `failure` has that as a note."""


def save_parts(
    filename: PathLike,
    header: bytes,
    parts: list[Part],
    watch: Watch,
    make_beside: Callable[[str], Beside] | None = None,
    host_memory: int = 0,
) -> None:
    """Write a file: the header, then each part, ascending and without holes.

    `make_beside` writes what goes with the file of a name. A crash leaves the file before or the
    new one, and beside it its own or nothing. `host_memory` is the most of the pinbuffer that
    transfers take, of what is on devices or large, in bytes; 0: any.

    Raises
    ------
    InvalidArgument
        When the target is no regular file.
    IoError
        When writing fails; nothing of the new file is left then. But of operation "sync folder": it
        has taken its place, and a crash may undo that.
    """
    replacement = _replacement(filename)
    beside: Beside | None = None
    try:
        size_bytes = len(header) + sum(region.size_bytes for region, _ in parts)
        replacement.create(0o666, size_bytes)
        with File(replacement.temporary, "r+") as file:
            watch.expect(size_bytes)
            watch.open(replacement.name)
            watch.start(len(parts), size_bytes)
            _write(file, header, parts, watch, host_memory)
            with watch.caller(0):
                _sync(file, replacement.name)
        if make_beside is None:
            replacement.commit()
            return
        beside = make_beside(replacement.name)
        ours = os.fstat(replacement.fileno())
        with alone_with(replacement.name):
            beside.remove_old()
            replacement.commit()
            if _is_at(replacement.name, ours):
                beside.commit()
            else:  # Who had no patience left has put another one there.
                beside.discard()
    except BaseException as error:
        replacement.discard(error)
        if beside is not None:
            beside.discard(error)
        raise


@contextlib.contextmanager
def alone_with(name: str) -> Iterator[None]:
    """While nobody else puts a file, or what goes with one, into its folder: they could be mixed.

    Where the file system has no locks, or somebody keeps this one, it goes on without.
    """
    with contextlib.ExitStack() as stack:
        end = time.monotonic() + _LOCK_SECONDS
        with contextlib.suppress(OSError):
            folder = Path(os.path.realpath(name)).parent
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(_let_go, descriptor)
            while not _try_lock(descriptor) and time.monotonic() < end:
                time.sleep(0.001)
        yield


def _let_go(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # A forked child may keep what is closed here.
    os.close(descriptor)


def _is_at(name: str, facts: os.stat_result) -> bool:
    try:
        return os.path.samestat(Path(name).stat(), facts)
    except OSError:
        return False


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replacement(filename: PathLike) -> Replacement:
    """Return what will become the file; refuse what names a folder."""
    encoded = encode_path(filename)
    name = os.fsdecode(encoded)
    if name.endswith("/"):
        raise InvalidArgument(f"{name} names a folder", object=name)
    return Replacement(encoded)


def _sync(file: File, name: str) -> None:
    try:
        os.fsync(file.fileno())
    except OSError as error:
        raise io_error("sync", name, error) from None


def _write(file: File, header: bytes, parts: list[Part], watch: Watch, host_memory: int) -> None:
    """Write small parts on the host by this thread, and all others by transfers beside it."""
    host = _HostWriter(file, watch)
    host_is_linked = "HIPPOGRIFF_HOST_LINK" in os.environ  # It takes no ordinary memory then.
    in_flight, each = share_out(host_memory, _IN_FLIGHT)
    with Flights(in_flight, watch.wait) as flights:
        host.write(describe(header, writable=False), 0)
        for region, offset in parts:
            if region.size_bytes == 0:
                continue
            if region.host_memory and (region.size_bytes < _LARGE_BYTES or host_is_linked):
                host.write(region, offset)
                continue
            flights.make_room()
            flights.add(file.write_region_async(region, offset, each))
        host.flush()


class _HostWriter:
    """Gathers adjacent memory, so that many small arrays are written by few calls."""

    def __init__(self, file: File, watch: Watch) -> None:
        self._file = file
        self._watch = watch
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
        with self._watch.caller(self._bytes):
            self._write_all()
        self._regions.clear()
        self._bytes = 0

    def _write_all(self) -> None:
        views = [_view(region) for region in self._regions]
        while views:
            try:
                now = _begin(views) if self._watch.shown else views
                written = os.pwritev(self._file.fileno(), now, self._offset)
                if written == 0:
                    raise OSError(errno.EIO, "nothing more is written")
            except OSError as error:
                raise io_error("write", self._file.path, error) from None
            self._offset += written
            self._watch.add(written)
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]


def _begin(views: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return views of as much of the beginning as is written at a time; of the first one a part."""
    ends = itertools.accumulate(map(len, views))
    count = sum(1 for _ in itertools.takewhile(lambda end: end <= _SHOWN_BYTES, ends))
    return views[:count] or [memoryview(views[0])[:_SHOWN_BYTES]]


def _view(region: Region) -> bytes | memoryview:
    """Return memory as the system's calls take it."""
    if region.size_bytes <= _COPIED_BYTES:
        return ctypes.string_at(region.address, region.size_bytes)
    return memoryview((ctypes.c_char * region.size_bytes).from_address(region.address)).cast("B")
