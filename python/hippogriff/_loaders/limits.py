"""What the machine does at most: copies of pinned memory, direct reads and writes of a drive."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import mmap
import os
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    _Move = Callable[[int, list[memoryview], int], int]

# Threads, and the bytes of what each moves at once: virtual drives get slower when much is under
# way, others when little is.
_SHAPES = ((2, 1 << 20), (8, 4 << 20))
_COPY_BYTES = 256 << 20
_COPIES = 16


def link_limit(device: str, repeat: int = 3) -> float:
    """Copy pinned memory to a GPU, nothing else; the median in GB/s."""
    import torch

    host = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=device)
    rates = []
    for _ in range(repeat + 1):
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        for _ in range(_COPIES):
            there.copy_(host, non_blocking=True)
        torch.cuda.synchronize(device)
        rates.append(_COPIES * _COPY_BYTES / (time.perf_counter() - begin) / 1e9)
    return statistics.median(rates[1:])


def read_limit(path: Path) -> float | None:
    """Read a file by O_DIRECT with few threads, then with several; the better in GB/s.

    None where that is impossible.
    """
    return _best_of(path, os.O_RDONLY, os.preadv, path.stat().st_size)


def write_limit(path: Path, size_bytes: int) -> float | None:
    """Write new files by O_DIRECT, to the drive, as `read_limit` reads; GB/s or None."""
    return _best_of(path, os.O_RDWR | os.O_CREAT, os.pwritev, size_bytes)


def _best_of(path: Path, flags: int, move: _Move, size_bytes: int) -> float | None:
    rates = []
    for threads, block_bytes in _SHAPES:
        try:
            rates.append(
                _direct(path, flags, move, size_bytes // block_bytes, block_bytes, threads)
            )
        finally:
            if flags & os.O_CREAT:
                path.unlink(missing_ok=True)
    return max((rate for rate in rates if rate is not None), default=None)


def _direct(
    path: Path, flags: int, move: _Move, blocks: int, block_bytes: int, threads: int
) -> float | None:
    if blocks == 0:
        return None
    try:
        descriptor = os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        if flags & os.O_CREAT:
            os.posix_fallocate(descriptor, 0, blocks * block_bytes)
        buffers = [stack.enter_context(_buffer(block_bytes)) for _ in range(threads)]

        def work(first: int) -> None:
            with memoryview(buffers[first]) as whole, whole[:block_bytes] as memory:
                for block in range(first, blocks, threads):
                    if move(descriptor, [memory], block * block_bytes) < block_bytes:
                        raise OSError(errno.EIO, "a short read or write", str(path))

        begin = time.perf_counter()
        try:
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                list(pool.map(work, range(threads)))
            if flags & os.O_CREAT:
                os.fsync(descriptor)
        except OSError:
            return None
        return blocks * block_bytes / (time.perf_counter() - begin) / 1e9


def _buffer(size_bytes: int) -> mmap.mmap:
    """Map memory of huge pages where there are some: of small ones drives move half as much."""
    buffer = mmap.mmap(-1, max(size_bytes, 2 << 20))
    with contextlib.suppress(OSError):
        buffer.madvise(mmap.MADV_HUGEPAGE)
    buffer.write(bytes(len(buffer)))
    return buffer
