"""One transfer from many parts of a file, each to memory of its own."""

from __future__ import annotations

import ctypes
import itertools
from array import array
from typing import TYPE_CHECKING

from hippogriff import _abi
from hippogriff._library import lib
from hippogriff._transfer import bytes_moved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hippogriff._file import File
    from hippogriff._transfer import Request, Transfer

_SEGMENT_POINTER = ctypes.POINTER(_abi.Segment)


def start_scatter(
    file: File,
    parts: Iterable[tuple[int, int, int]],
    request: Request,
    keep: object,
    cancel_when_dropped: bool = False,
) -> Transfer[int]:
    """Start a transfer of (offset, size, address) of each part.

    `keep` holds their memory until it is finished.
    """
    segments = array("Q", itertools.chain.from_iterable(parts))
    address, words = segments.buffer_info()
    with file.borrowed() as descriptor:
        return request.start(
            lib.hippogriff_sendv_async,
            descriptor,
            ctypes.cast(address, _SEGMENT_POINTER),
            words // 3,
            keep=keep,
            finish=bytes_moved,
            cancel_when_dropped=cancel_when_dropped,
        )
