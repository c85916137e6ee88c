"""What a drive alone takes to read and write what programs do: their limit."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_PIECE_BYTES = 4 << 20
_BLOCK_BYTES = 4096


@dataclass(frozen=True)
class Job:
    """A file that is read whole, and one of so many bytes that is written then."""

    source: Path
    target: Path
    target_bytes: int


@dataclass(frozen=True)
class Shape:
    """How many jobs are under way, and pieces of each."""

    jobs: int
    pieces: int


# Virtual drives get slower when much is under way, others when little is.
SHAPES = (Shape(1, 2), Shape(1, 8), Shape(8, 2))


@dataclass(frozen=True)
class Moved:
    """What jobs took; `direct`: nothing of them went through the page cache."""

    seconds: float
    direct: bool


class _Mover:
    """Moves files between a drive and memory that nobody looks at."""

    def __init__(self, timeout_seconds: float) -> None:
        self._deadline = time.monotonic() + timeout_seconds
        self._stopped = threading.Event()
        self._noise = os.urandom(1 << 20) * (_PIECE_BYTES >> 20)  # Zeros may not be written at all.
        self.direct = True

    def stop(self) -> None:
        self._stopped.set()

    def _open(self, path: Path, flags: int) -> int:
        with contextlib.suppress(OSError):  # Some file systems have no direct I/O.
            return os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)
        self.direct = False
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def _pieces(self, size_bytes: int, pieces: int, move: Callable[[memoryview, int], int]) -> None:
        """Move each piece of a file once. The last one's memory ends with a whole block."""

        def work(first: int) -> None:
            with mmap.mmap(-1, _PIECE_BYTES) as memory, memoryview(memory) as whole:
                with contextlib.suppress(OSError):  # Drives move small pages at half the rate.
                    memory.madvise(mmap.MADV_HUGEPAGE)
                memory.write(self._noise)
                for offset in range(first * _PIECE_BYTES, size_bytes, pieces * _PIECE_BYTES):
                    if self._stopped.is_set() or time.monotonic() > self._deadline:
                        raise TimeoutError("its time was over")
                    wanted = min(_PIECE_BYTES, size_bytes - offset)
                    with whole[: -(-wanted // _BLOCK_BYTES) * _BLOCK_BYTES] as piece:
                        moved = move(piece, offset)
                    if moved < wanted:
                        raise OSError(f"{moved} of {wanted} bytes were moved at {offset}")

        with ThreadPoolExecutor(pieces) as pool:
            list(pool.map(work, range(pieces)))

    def run(self, job: Job, pieces: int) -> None:
        """Read one file, then write the other, to the drive."""
        descriptor = self._open(job.source, os.O_RDONLY)
        try:
            size_bytes = os.fstat(descriptor).st_size
            self._pieces(size_bytes, pieces, lambda to, at: os.preadv(descriptor, [to], at))
        finally:
            os.close(descriptor)
        descriptor = self._open(job.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.posix_fallocate(descriptor, 0, max(job.target_bytes, 1))
            self._pieces(job.target_bytes, pieces, lambda of, at: os.pwritev(descriptor, [of], at))
            os.ftruncate(descriptor, job.target_bytes)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def move(jobs: Sequence[Job], shape: Shape, timeout_seconds: float) -> Moved:
    """Do jobs, so many side by side, by direct I/O where there is any.

    Raises
    ------
    OSError
        When one cannot be read or written; TimeoutError when it takes too long. Targets may be
        there then.
    """
    mover = _Mover(timeout_seconds)
    begin = time.monotonic()
    with ThreadPoolExecutor(shape.jobs) as pool:
        try:
            list(pool.map(lambda job: mover.run(job, shape.pieces), jobs))
        except BaseException:
            mover.stop()  # The others need not go on.
            raise
    return Moved(time.monotonic() - begin, mover.direct)
