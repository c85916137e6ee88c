"""One transfer from many parts of a file, each to memory of its own."""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING

from hippogriff import _abi
from hippogriff._handle import Handle
from hippogriff._library import lib
from hippogriff._runtime import ensure
from hippogriff._transfer import Flight, Request, Transfer, bytes_moved
from hippogriff.errors import check

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEGMENT_POINTER = ctypes.POINTER(_abi.Segment)


def pack_segments(parts: Iterable[tuple[int, int, int]]) -> array[int]:
    """Put (offset, size, address) of each part into memory as C wants them."""
    words = array("Q")
    for part in parts:
        words.extend(part)
    return words


def start_scatter(
    descriptor: int, segments: array[int], request: Request, keep: object
) -> Transfer[int]:
    """Start a transfer of packed segments; `keep` holds their memory until it is finished."""
    ensure()
    address, words = segments.buffer_info()
    pointer = ctypes.c_void_p()
    check(
        lib.hippogriff_sendv_async(
            descriptor,
            ctypes.cast(address, _SEGMENT_POINTER),
            words // 3,
            ctypes.byref(request.options),
            ctypes.byref(pointer),
        )
    )
    return Transfer(Flight(Handle(pointer.value or 0), keep, bytes_moved))
