"""What a drive alone takes to read and write what programs do: their limit."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hippogriff._huge_pages import touched_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_BLOCK_BYTES = 4096


@dataclass(frozen=True)
class Job:
    """A file that is read whole, and one of so many bytes that is written then."""

    source: Path
    target: Path
    target_bytes: int


@dataclass(frozen=True)
class Shape:
    """How many jobs are under way, and pieces of each; whole blocks."""

    jobs: int
    pieces: int
    piece_bytes: int


# Virtual drives get slower when much is under way, others when little is. Of several jobs some read
# while others write.
SHAPES = (Shape(1, 2, 1 << 20), Shape(1, 4, 1 << 20), Shape(3, 2, 1 << 20))


@dataclass(frozen=True)
class Moved:
    """What jobs took; `direct`: nothing of them went through the page cache."""

    seconds: float
    direct: bool


class _Mover:
    """Moves files between a drive and memory that nobody looks at."""

    def __init__(self, shape: Shape, timeout_seconds: float) -> None:
        self._shape = shape
        self._deadline = time.monotonic() + timeout_seconds
        self._stopped = threading.Event()
        noise = os.urandom(_BLOCK_BYTES)  # Zeros may not be written at all.
        count = shape.jobs * shape.pieces
        self._memory = [touched_memory(shape.piece_bytes, noise) for _ in range(count)]
        self.direct = True

    def stop(self) -> None:
        self._stopped.set()

    def _open(self, path: Path, flags: int) -> int:
        with contextlib.suppress(OSError):  # Some file systems have no direct I/O.
            return os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)
        self.direct = False
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def _pieces(self, size_bytes: int, move: Callable[[memoryview, int], int]) -> None:
        """Move each piece of a file once. The last one's memory ends with a whole block."""
        piece_bytes, pieces = self._shape.piece_bytes, self._shape.pieces

        def work(first: int) -> None:
            memory = self._memory.pop()
            try:
                for offset in range(first * piece_bytes, size_bytes, pieces * piece_bytes):
                    if self._stopped.is_set() or time.monotonic() > self._deadline:
                        raise TimeoutError("its time was over")
                    wanted = min(piece_bytes, size_bytes - offset)
                    moved = move(memory[: -(-wanted // _BLOCK_BYTES) * _BLOCK_BYTES], offset)
                    if moved < wanted:
                        raise OSError(f"{moved} of {wanted} bytes were moved at {offset}")
            finally:
                self._memory.append(memory)  # Another job's, also where this one failed.

        with ThreadPoolExecutor(pieces) as pool:
            list(pool.map(work, range(pieces)))

    def run(self, job: Job) -> None:
        """Read one file, then write the other, to the drive."""
        descriptor = self._open(job.source, os.O_RDONLY)
        try:
            size_bytes = os.fstat(descriptor).st_size
            self._pieces(size_bytes, lambda to, at: os.preadv(descriptor, [to], at))
        finally:
            os.close(descriptor)
        descriptor = self._open(job.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.posix_fallocate(descriptor, 0, max(job.target_bytes, 1))
            self._pieces(job.target_bytes, lambda of, at: os.pwritev(descriptor, [of], at))
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
    mover = _Mover(shape, timeout_seconds)
    begin = time.monotonic()
    with ThreadPoolExecutor(shape.jobs) as pool:
        try:
            list(pool.map(mover.run, jobs))
        except BaseException:
            mover.stop()  # The others need not go on.
            raise
    return Moved(time.monotonic() - begin, mover.direct)
