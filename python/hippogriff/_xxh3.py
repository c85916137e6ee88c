"""XXH3 of memory, computed by the library where the memory is."""

from __future__ import annotations

import ctypes
import itertools
from array import array
from typing import TYPE_CHECKING

from hippogriff import _abi
from hippogriff._library import lib
from hippogriff._regions import describe
from hippogriff._runtime import ensure
from hippogriff._transfer import Request
from hippogriff.errors import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hippogriff._regions import Region

_MEMORY_POINTER = ctypes.POINTER(_abi.Memory)
_CHECKSUM_POINTER = ctypes.POINTER(ctypes.c_uint64)
# Signals are seen between calls: so many bytes take at most some tenths of a second.
_CALL_BYTES = 1 << 30


def count_blocks(size_bytes: int, block_bytes: int) -> int:
    """Return how many blocks so many bytes have."""
    return -(-size_bytes // block_bytes)


def checksum_parts(
    parts: Sequence[tuple[int, int]], region: Region, block_bytes: int
) -> array[int]:
    """Compute the checksums of each block of each part.

    Parameters
    ----------
    parts : sequence of (int, int)
        Address and size in bytes; each is cut every `block_bytes` from its own beginning.
    region : Region
        Says the device of all of them, and the stream whose work comes before.

    Returns
    -------
    array of unsigned 64-bit integers
        XXH3, 64 bits, seed 0, in the order of the parts.

    Raises
    ------
    Busy
        While a transfer writes the memory.
    InvalidArgument, DeviceError, OutOfHostMemory
        When the memory is not the device's, or the device fails.
    """
    ensure()
    checksums = array("Q")
    for some in _calls(parts, block_bytes):
        words = array("Q", itertools.chain.from_iterable(some))
        count = sum([-(-size // block_bytes) for _, size in some])
        found = array("Q", bytes(8 * count))
        request = Request("auto", region=region)
        check(
            lib.hippogriff_checksum(
                ctypes.cast(words.buffer_info()[0], _MEMORY_POINTER),
                len(some),
                block_bytes,
                ctypes.byref(request.options),
                ctypes.cast(found.buffer_info()[0], _CHECKSUM_POINTER),
                count,
            )
        )
        checksums.extend(found)
    return checksums


def checksum_bytes(data: object) -> int:
    """Compute the checksum of something with the buffer protocol, as a whole."""
    region = describe(data, writable=False)
    if not region.size_bytes:
        return EMPTY_CHECKSUM
    return checksum_parts([(region.address, region.size_bytes)], region, region.size_bytes)[0]


#: XXH3 of no bytes.
EMPTY_CHECKSUM = 0x2D06800538D394C2


def _calls(
    parts: Sequence[tuple[int, int]], block_bytes: int
) -> Iterable[Sequence[tuple[int, int]]]:
    """Put parts together, or cut them between blocks, so that no call takes long."""
    if parts and sum([size for _, size in parts]) <= _CALL_BYTES:
        yield parts
        return
    step = max(_CALL_BYTES // block_bytes, 1) * block_bytes
    some: list[tuple[int, int]] = []
    size_bytes = 0
    for address, size in parts:
        for offset in range(0, size, step):
            piece = min(step, size - offset)
            if some and size_bytes + piece > step:
                yield some
                some, size_bytes = [], 0
            some.append((address + offset, piece))
            size_bytes += piece
    if some:
        yield some
