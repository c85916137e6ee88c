"""XXH3 of memory, computed by the library where the memory is."""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING

from hippogriff import _abi
from hippogriff._buffer import Buffer
from hippogriff._library import lib
from hippogriff._runtime import ensure
from hippogriff._scatter import interleave
from hippogriff._transfer import Request
from hippogriff.errors import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hippogriff._regions import Region

_MEMORY_POINTER = ctypes.POINTER(_abi.Memory)
_CHECKSUM_POINTER = ctypes.POINTER(ctypes.c_uint64)
# Signals are seen between calls: so many bytes take at most some tenths of a second.
_CALL_BYTES = 1 << 30
_OF_HOST_MEMORY = _abi.Options(
    struct_size=ctypes.sizeof(_abi.Options), flags=int(_abi.Flags.HOST_MEMORY)
)


def count_blocks(size_bytes: int, block_bytes: int) -> int:
    """Return how many blocks so many bytes have."""
    return -(-size_bytes // block_bytes)


def checksum_parts(
    parts: Sequence[tuple[int, int]], region: Region, block_bytes: int
) -> array[int]:
    """Compute the checksums of each block of each part, which is an address and a size in bytes.

    Parameters, the result and errors are those of `checksum_memory`.
    """
    addresses = array("Q", [address for address, _ in parts])
    sizes = array("Q", [size for _, size in parts])
    return checksum_memory(addresses, sizes, region, block_bytes)


def checksum_memory(
    addresses: array[int],
    sizes_bytes: array[int],
    region: Region,
    block_bytes: int,
    count: int | None = None,
    between: Callable[[], object] | None = None,
) -> array[int]:
    """Compute the checksums of each block of some parts of memory.

    Parameters
    ----------
    addresses, sizes_bytes : array of unsigned 64-bit integers
        Where each part is; it is cut every `block_bytes` from its own beginning.
    region : Region
        Says the device of all of them, and the stream whose work comes before.
    count : int, optional
        How many blocks they have, for who has counted them.
    between : callable, optional
        Called where there is time to stop, after some tenths of a second each; may raise.

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
    if sum(sizes_bytes) <= _CALL_BYTES:
        return _call(addresses, sizes_bytes, region, block_bytes, count)
    checksums = array("Q")
    for some in _pieces(addresses, sizes_bytes, block_bytes):
        if between is not None:
            between()
        checksums.extend(_call(*some, region, block_bytes))
    return checksums


def _call(
    addresses: array[int],
    sizes_bytes: array[int],
    region: Region,
    block_bytes: int,
    count: int | None = None,
) -> array[int]:
    words = interleave(addresses, sizes_bytes)
    if count is None:
        count = sum([-(-size // block_bytes) for size in sizes_bytes])
    found = array("Q", bytes(8 * count))
    request = Request("auto", region=region)
    check(
        lib.hippogriff_checksum(
            ctypes.cast(words.buffer_info()[0], _MEMORY_POINTER),
            len(addresses),
            block_bytes,
            ctypes.byref(request.options),
            ctypes.cast(found.buffer_info()[0], _CHECKSUM_POINTER),
            count,
        )
    )
    return found


def checksum_bytes(data: bytes | bytearray | memoryview) -> int:
    """Compute the checksum of host memory as a whole, with as little around it as there can be."""
    held = Buffer(data, writable=False)
    if not held.size_bytes:
        return EMPTY_CHECKSUM
    ensure()
    part = _abi.Memory(held.address, held.size_bytes)
    found = ctypes.c_uint64()
    check(
        lib.hippogriff_checksum(
            ctypes.byref(part),
            1,
            held.size_bytes,
            ctypes.byref(_OF_HOST_MEMORY),
            ctypes.cast(ctypes.byref(found), _CHECKSUM_POINTER),
            1,
        )
    )
    return found.value


#: XXH3 of no bytes.
EMPTY_CHECKSUM = 0x2D06800538D394C2


def _pieces(
    addresses: array[int], sizes_bytes: array[int], block_bytes: int
) -> Iterator[tuple[array[int], array[int]]]:
    """Put parts together, or cut them between blocks, so that no call takes long."""
    step = max(_CALL_BYTES // block_bytes, 1) * block_bytes
    some = array("Q"), array("Q")
    room = step
    for address, size in zip(addresses, sizes_bytes, strict=True):
        for offset in range(0, size, step):
            piece = min(step, size - offset)
            if piece > room:
                yield some
                some, room = (array("Q"), array("Q")), step
            some[0].append(address + offset)
            some[1].append(piece)
            room -= piece
    if some[0]:
        yield some
