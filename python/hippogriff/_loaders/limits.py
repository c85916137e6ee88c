"""What the machine does at most: copies of pinned memory, direct reads and writes of a drive."""

from __future__ import annotations

import concurrent.futures
import contextlib
import mmap
import os
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK_BYTES = 8 << 20
_THREADS = 8
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
    """Read a file by O_DIRECT with several threads, once; GB/s, None where that is impossible."""
    return _direct(path, os.O_RDONLY, os.preadv, path.stat().st_size)


def write_limit(path: Path, size_bytes: int) -> float | None:
    """Write a new file by O_DIRECT with several threads, to the drive; GB/s or None."""
    try:
        return _direct(path, os.O_RDWR | os.O_CREAT, os.pwritev, size_bytes)
    finally:
        path.unlink(missing_ok=True)


def _direct(
    path: Path, flags: int, move: Callable[[int, list[mmap.mmap], int], int], size_bytes: int
) -> float | None:
    try:
        descriptor = os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        if flags & os.O_CREAT:
            os.posix_fallocate(descriptor, 0, size_bytes)
        blocks = size_bytes // _BLOCK_BYTES
        if blocks == 0:
            return None

        def work(first: int) -> None:
            with mmap.mmap(-1, _BLOCK_BYTES) as buffer:
                for block in range(first, blocks, _THREADS):
                    move(descriptor, [buffer], block * _BLOCK_BYTES)

        begin = time.perf_counter()
        try:
            with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(work, range(_THREADS)))
            if flags & os.O_CREAT:
                os.fsync(descriptor)
        except OSError:
            return None
        return blocks * _BLOCK_BYTES / (time.perf_counter() - begin) / 1e9
