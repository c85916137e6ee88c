"""One transfer from many parts of a file, each to memory of its own."""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING

from hippogriff import _abi
from hippogriff._library import lib
from hippogriff._transfer import bytes_moved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hippogriff._transfer import Request, Transfer

_SEGMENT_POINTER = ctypes.POINTER(_abi.Segment)


def pack_segments(parts: Iterable[tuple[int, int, int]]) -> array[int]:
    """Put (offset, size, address) of each part into memory as C wants them."""
    words = array("Q")
    for part in parts:
        words.extend(part)
    return words


def start_scatter(
    descriptor: int,
    segments: array[int],
    request: Request,
    keep: object,
    cancel_when_dropped: bool = False,
) -> Transfer[int]:
    """Start a transfer of packed segments; `keep` holds their memory until it is finished."""
    address, words = segments.buffer_info()
    return request.start(
        lib.hippogriff_sendv_async,
        descriptor,
        ctypes.cast(address, _SEGMENT_POINTER),
        words // 3,
        keep=keep,
        finish=bytes_moved,
        cancel_when_dropped=cancel_when_dropped,
    )
