"""What the machine does at most: copies of pinned memory, direct reads and writes of a drive."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._huge_pages import touched_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    _Move = Callable[[int, list[memoryview], int], int]


class _Shape(NamedTuple):
    threads: int
    block_bytes: int  # what each moves at once

    def __str__(self) -> str:
        return f"O_DIRECT, {self.threads} x {self.block_bytes >> 10} KiB"


class _Extent(NamedTuple):
    offset: int
    size_bytes: int


# Virtual drives get slower when much is under way, others when little is.
_SHAPES = (
    _Shape(2, 1 << 20),
    _Shape(4, 512 << 10),
    _Shape(8, 512 << 10),
    _Shape(8, 4 << 20),
)
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


def read_limits(path: Path, turn: int = 0) -> dict[str, float]:
    """Read each part of a file by O_DIRECT in another way, others in the next turn.

    Returns GB/s by way; nothing where that is impossible.
    """
    part_bytes = path.stat().st_size // len(_SHAPES)
    rates = {}
    for number, shape in enumerate(_SHAPES):
        part = _Extent((number + turn) % len(_SHAPES) * part_bytes, part_bytes)
        rates[str(shape)] = _direct(path, os.O_RDONLY, os.preadv, part, shape)
    return _possible(rates)


def write_limits(
    path: Path, size_bytes: int, ways: Collection[str] | None = None
) -> dict[str, float]:
    """Write new files by O_DIRECT, to the drive, in these of the same ways; GB/s by way."""
    shapes = [each for each in _SHAPES if ways is None or str(each) in ways]
    return _possible({str(shape): _write_new(path, size_bytes, shape) for shape in shapes})


def _possible(rates: dict[str, float | None]) -> dict[str, float]:
    return {way: rate for way, rate in rates.items() if rate is not None}


def _write_new(path: Path, size_bytes: int, shape: _Shape) -> float | None:
    try:
        return _direct(path, os.O_RDWR | os.O_CREAT, os.pwritev, _Extent(0, size_bytes), shape)
    finally:
        path.unlink(missing_ok=True)


def _direct(path: Path, flags: int, move: _Move, extent: _Extent, shape: _Shape) -> float | None:
    threads, block_bytes = shape
    first_block = -(-extent.offset // block_bytes)
    blocks = (extent.offset + extent.size_bytes) // block_bytes - first_block
    if blocks <= 0:
        return None
    try:
        descriptor = os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        if flags & os.O_CREAT:
            os.posix_fallocate(descriptor, 0, blocks * block_bytes)
        buffers = [touched_memory(block_bytes) for _ in range(threads)]

        def work(first: int) -> None:
            for block in range(first, blocks, threads):
                offset = (first_block + block) * block_bytes
                if move(descriptor, [buffers[first]], offset) < block_bytes:
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
