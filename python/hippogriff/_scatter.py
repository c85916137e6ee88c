"""One transfer from many parts of a file, each to memory of its own."""

from __future__ import annotations

import ctypes
import itertools
from array import array
from typing import TYPE_CHECKING

from hippogriff import _abi
from hippogriff._library import lib
from hippogriff._transfer import bytes_moved
from hippogriff.errors import InvalidArgument, ShortFile

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
    loading: bool = False,
) -> Transfer[int]:
    """Start a transfer of some parts.

    `keep` holds their memory until it is finished. `loading`: the file had them when it was opened.
    What it does not have any more is a `ShortFile` then, and a transfer that is dropped cancelled.
    """
    segments = array("Q", itertools.chain.from_iterable(parts))
    return start_segments(file, segments, request, keep, loading)


def start_segments(
    file: File,
    segments: array[int],
    request: Request,
    keep: object,
    loading: bool = False,
) -> Transfer[int]:
    """Start a transfer of parts whose offsets, sizes and addresses follow each other in an array.

    `keep` and `loading` as in `start_scatter`.
    """
    address, words = segments.buffer_info()
    try:
        with request, file.borrowed() as descriptor:
            transfer = request.start(
                lib.hippogriff_sendv_async,
                descriptor,
                ctypes.cast(address, _SEGMENT_POINTER),
                words // 3,
                keep=keep,
                finish=bytes_moved,
                cancel_when_dropped=loading,
            )
    except InvalidArgument:
        if loading:
            _expect_inside(file, segments)
        raise
    transfer.segments = segments
    return transfer


def asked_bytes(transfer: Transfer[int]) -> int:
    """Return the bytes of a transfer's parts, without those between them."""
    if transfer.segments is None:
        return transfer.progress.bytes_total
    return sum(transfer.segments[1::3])


def _expect_inside(file: File, segments: array[int]) -> None:
    """Raise `ShortFile` where parts are not in the file."""
    size = file.size
    missing: list[tuple[int, int]] = []
    for offset, part_bytes in sorted(zip(segments[::3], segments[1::3], strict=True)):
        begin, end = max(offset, size), offset + part_bytes
        if begin >= end:
            continue
        if missing and sum(missing[-1]) == begin:
            begin, _ = missing.pop()
        missing.append((begin, end - begin))
    if missing:
        last = sum(missing[-1])
        raise ShortFile(
            f"read {file.path}: the file ends at byte {size}, and had bytes up to {last} when it "
            "was opened",
            operation="read",
            object=file.path,
            offset=size,
            missing=tuple(missing),
        ) from None
