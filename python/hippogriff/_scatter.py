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

# Offset in the file and size, both in bytes, and address.
Part = tuple[int, int, int]

_SEGMENT_POINTER = ctypes.POINTER(_abi.Segment)


def interleave(*columns: array[int]) -> array[int]:
    """Put the first of each of some arrays after each other, then the second of each, and so on."""
    count = len(columns)
    rows = array("Q", bytes(8 * count * len(columns[0])))
    for number, column in enumerate(columns):
        rows[number::count] = column
    return rows


def start_scatter(
    file: File,
    parts: Iterable[Part],
    request: Request,
    keep: object,
    cancel_when_dropped: bool = False,
) -> Transfer[int]:
    """Start a transfer of some parts.

    `keep` holds their memory until it is finished.
    """
    segments = array("Q", itertools.chain.from_iterable(parts))
    return start_segments(file, segments, request, keep, cancel_when_dropped)


def start_segments(
    file: File,
    segments: array[int],
    request: Request,
    keep: object,
    cancel_when_dropped: bool = False,
) -> Transfer[int]:
    """Start a transfer of parts whose offsets, sizes and addresses follow each other in an array.

    `keep` as in `start_scatter`.
    """
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
