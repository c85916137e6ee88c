"""Memory in huge pages: from small ones some drives read and write at half their rate."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_HUGE_BYTES = 2 << 20
_NOISE_BYTES = 64 << 10
# As NumPy does it for its own.
_LARGE_BYTES = 4 << 20

_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]


def ask_for_huge_pages(memory: Iterable[tuple[int, int]]) -> None:
    """Ask for huge pages where large arrays are, told by addresses and bytes, before the first use.

    The kernel clears a huge page in less than half the time that it takes for 512 small ones. Where
    it has none to give, small ones do. Whole pages are asked for, so that mappings side by side
    stay one: a process may have 65,530.
    """
    for address, size_bytes in memory:
        if size_bytes >= _LARGE_BYTES:
            begin = address // mmap.PAGESIZE * mmap.PAGESIZE
            end = -(-(address + size_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
            _madvise(begin, end - begin, mmap.MADV_HUGEPAGE)


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
