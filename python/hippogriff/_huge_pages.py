"""Memory in huge pages: from small ones some drives read and write at half their rate."""

from __future__ import annotations

import contextlib
import ctypes
import mmap

_HUGE_BYTES = 2 << 20
_NOISE_BYTES = 64 << 10


def touched_memory(size_bytes: int, noise: bytes = b"\1") -> memoryview:
    """Return private memory that begins with a huge page where the machine has them, filled.

    It is the caller's until the last view of it is gone.
    """
    # Python's maps are shared unless that is said, and shared ones get small pages.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    map_ = mmap.mmap(-1, size_bytes + _HUGE_BYTES, flags=flags)
    with contextlib.suppress(OSError):
        map_.madvise(mmap.MADV_HUGEPAGE)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(map_)) % _HUGE_BYTES
    memory = memoryview(map_)[begin : begin + size_bytes]
    for offset in range(0, size_bytes, _NOISE_BYTES):
        block = memory[offset : offset + _NOISE_BYTES]
        block[:] = (noise * -(-len(block) // len(noise)))[: len(block)]
    return memory
