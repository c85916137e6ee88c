"""A file beside its checksums: what is compared, and how what differs is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hippogriff._xxh3 import checksum_bytes
from hippogriff.errors import ChecksumMismatch, Mismatch, io_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hippogriff._file import File
    from hippogriff._sidecar import Sidecar

_TOLD_MAX = 3


def checksum_head(file: File, head_bytes: int) -> int:
    """Compute the checksum of a file's first bytes."""
    head = bytearray()
    try:
        with file.borrowed() as descriptor:
            while len(head) < head_bytes:
                piece = os.pread(descriptor, head_bytes - len(head), len(head))
                if not piece:
                    break  # Truncated meanwhile: not what was there before.
                head += piece
    except OSError as error:
        raise io_error("read", file.path, error) from None
    return checksum_bytes(head)


def check_head(file: File, head_bytes: int, sidecar: Sidecar) -> None:
    """Refuse a file whose head is another."""
    found = checksum_head(file, head_bytes)
    if head_bytes != sidecar.head_bytes or found != sidecar.head_checksum:
        mismatch = Mismatch("", 0, head_bytes, 0, sidecar.head_checksum, found)
        raise_mismatches(file.path, [mismatch])


def raise_mismatches(path: str, mismatches: Iterable[Mismatch]) -> None:
    """Raise an error that names them, if there are any."""
    found = tuple(mismatches)
    if not found:
        return
    told = "; ".join(map(str, found[:_TOLD_MAX]))
    more = f"; and {len(found) - _TOLD_MAX} blocks more" if len(found) > _TOLD_MAX else ""
    raise ChecksumMismatch(
        f"{path} does not have the bytes its checksums were made of: {told}{more}",
        mismatches=found,
        object=path,
        missing=_ranges(found),
    )


def _ranges(mismatches: tuple[Mismatch, ...]) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for each in mismatches:
        if ranges and sum(ranges[-1]) == each.offset:
            ranges[-1] = ranges[-1][0], ranges[-1][1] + each.size
        else:
            ranges.append((each.offset, each.size))
    return tuple(ranges)


def mismatch_at(span: Any, number: int, block_bytes: int, expected: int, found: int) -> Mismatch:
    """Name one block of something with a name, an offset and a size."""
    start = number * block_bytes
    size = min(block_bytes, span.size_bytes - start)
    return Mismatch(span.name, span.offset + start, size, start, expected, found)
