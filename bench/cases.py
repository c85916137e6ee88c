"""The files that the benchmarks move: where they are, what is in them, how much is cached."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}
STRIPE = 64 * MIB
SEND_SEED, RECV_SEED = 1, 2
STATES = ("cached", "cold", "half_cached", "striped", "empty_file")
FIRST = "first"  # cached, and the first transfer of its process


@dataclass
class Place:
    """A directory for the files and what lies beneath it."""

    directory: Path
    filesystem: str
    in_memory: bool

    @property
    def source(self) -> Path:
        """The file that is sent."""
        return self.directory / "hippogriff_bench_in.bin"

    @property
    def target(self) -> Path:
        """The file that is written."""
        return self.directory / "hippogriff_bench_out.bin"


@dataclass
class Case:
    """One row of the results: the first `size` bytes of a place's file in a cache state."""

    direction: str
    state: str
    place: Place
    size: int

    def cached(self) -> list[tuple[int, int]]:
        """Return the extents (offset, size) that should be in the page cache."""
        if self.state in {"cached", FIRST}:
            return [(0, self.size)]
        if self.state == "half_cached":
            return [(0, self.size // 2)]
        if self.state == "striped":
            starts = range(0, self.size, 2 * STRIPE)
            return [(start, min(STRIPE, self.size - start)) for start in starts]
        return []

    def describe(self) -> dict[str, Any]:
        """Return the fields that name this case in the results."""
        return {
            "direction": self.direction,
            "filesystem": self.place.filesystem,
            "directory": str(self.place.directory),
            "state": self.state,
            "size_bytes": self.size,
        }


def pattern(module: Any, offset: int, size: int, seed: int) -> Any:
    """Return the bytes of a pattern at an offset, as transfer_bench makes them.

    `module` is numpy or cupy and says where the array is.
    """
    index = module.arange(size // 8, dtype=np.uint64)
    index += np.uint64(offset // 8 + (seed << 40))
    index *= np.uint64(0x9E3779B97F4A7C15)
    return index.view(np.uint8)


def filesystem_of(directory: Path) -> str:
    """Return the type of the file system that holds a directory."""
    best = ("", "unknown")
    resolved = f"{directory.resolve()}/"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point, kind = line.split()[1:3]
        prefix = point if point.endswith("/") else point + "/"
        if resolved.startswith(prefix) and len(prefix) >= len(best[0]):
            best = (prefix, kind)
    return best[1]


def cached_share(descriptor: int, offset: int, size: int) -> float:
    """Return the share of an extent that is in the page cache; -1 where nobody knows."""
    cachestat = 451
    extent = (ctypes.c_uint64 * 2)(offset, size)
    found = (ctypes.c_uint64 * 5)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(cachestat, descriptor, extent, found, 0) != 0:
        return -1.0
    pages = -(-(offset + size) // 4096) - offset // 4096
    return float(found[0]) / pages


def drop(descriptor: int, offset: int, size: int) -> None:
    """Take an extent out of the page cache."""
    if size > 0:
        os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)


def warm(descriptor: int, offset: int, size: int) -> None:
    """Read an extent into the page cache as programs do: from the start on, with readahead."""
    drop(descriptor, offset, size)
    buffer = bytearray(4 * MIB)
    end = offset + size
    while offset < end:
        count = os.preadv(descriptor, [memoryview(buffer)[: min(4 * MIB, end - offset)]], offset)
        if count == 0:
            raise EOFError("the source file is too short")
        offset += count


def set_cached(case: Case) -> None:
    """Put into the page cache what the case says, and only that."""
    if case.place.in_memory:
        return
    descriptor = os.open(case.place.source, os.O_RDONLY)
    try:
        for offset, size in case.cached():
            if cached_share(descriptor, offset, size) < 1.0:
                warm(descriptor, offset, size)
        # Last, because readahead reads beyond what is asked for.
        end = 0
        for offset, size in [*case.cached(), (case.size, 0)]:
            drop(descriptor, end, offset - end)
            end = offset + size
    finally:
        os.close(descriptor)


def clear_target(place: Place) -> None:
    """Empty the target file, and wait until its old blocks are free."""
    descriptor = os.open(place.target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        if not place.in_memory:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_data(path: Path) -> None:
    """Make a file's bytes durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def create_source(place: Place, size: int) -> None:
    """Write the source file, unless one of this size is there."""
    if place.source.exists() and place.source.stat().st_size == size:
        return
    piece = bytearray(STRIPE)
    with place.source.open("wb") as file:
        for start in range(0, size, STRIPE):
            file.write(pattern(np, start, min(STRIPE, size - start), SEND_SEED).data)
        file.flush()
        os.fdatasync(file.fileno())
    if place.in_memory:  # The first read of what was written takes longer, whoever comes first.
        with place.source.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass


def parse_size(text: str) -> int:
    """Turn "4KiB" into 4096."""
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)
