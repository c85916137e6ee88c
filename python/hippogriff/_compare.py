"""A file beside its checksums: what is compared, and how what differs is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hippogriff._sidecar import read_sidecar, sidecar_path
from hippogriff._xxh3 import checksum_bytes
from hippogriff.errors import ChecksumMismatch, InvalidArgument, Mismatch, io_error

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator

    from hippogriff._file import File
    from hippogriff._runtime import PathLike
    from hippogriff._sidecar import Sidecar, Span

_TOLD_MAX = 3


def target_sidecar(path: PathLike, where: PathLike | None) -> str:
    """Return where the checksums of a file are written: beside it, or as `where` says.

    Raises
    ------
    InvalidArgument
        When `where` is empty, which would mean the working directory.
    """
    if where is not None and not os.fspath(where):
        raise InvalidArgument("the path of the checksums is empty")
    return sidecar_path(path, where)


def find_sidecar(path: PathLike, where: PathLike | None) -> str:
    """Return the checksums of a file that are there; where they would be written if none are.

    A file that is behind a link may have them beside the link, which come first, or beside itself:
    there `save_file` writes them, and so does who makes them before a cache links to the file.
    """
    first = target_sidecar(path, where)
    if _is_there(first):
        return first
    return next(filter(_is_there, _other_places(path, where)), first)


# pathlib raises where a folder cannot be searched or a name is too long.
def _is_there(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110


def _other_places(path: PathLike, where: PathLike | None) -> list[str]:
    if where is None and os.path.islink(os.fsdecode(path)):  # noqa: PTH114
        return [sidecar_path(os.path.realpath(os.fsdecode(path)))]
    return []


def read_checksums(file: File, where: PathLike | None) -> Sidecar:
    """Read the checksums of a file, from beside it or as `where` says.

    Raises what `read_sidecar` does, where there are none with all places that were looked at; and
    ChecksumMismatch when the file was replaced meanwhile.
    """
    replaced = "the checksums may be those of the new file: load it again"
    try:
        sidecar = read_sidecar(find_sidecar(file.path, where), file.path, file.size)
    except ChecksumMismatch:
        expect_same(file, replaced)  # Then they are of another size.
        raise
    except FileNotFoundError as error:
        others = _other_places(file.path, where)
        error.args = ("".join([str(error), *(f" (nor is there {place})" for place in others)]),)
        raise
    expect_same(file, replaced)
    return sidecar


def expect_same(file: File, why: str) -> None:
    """Refuse a file that has been replaced since it was opened.

    Raises
    ------
    ChecksumMismatch
        Says so, and why that matters.
    """
    try:
        now = os.stat(file.path)  # noqa: PTH116 (bytes, too)
        with file.borrowed() as descriptor:
            then = os.fstat(descriptor)
    except OSError:
        return  # It has no name any more: then it has no other one's checksums.
    if not os.path.samestat(now, then):
        raise ChecksumMismatch(
            f"{file.path} was replaced after it was opened, and {why}", object=file.path
        )


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


def mismatches_in(
    span: Span, block_bytes: int, expected: array[int], found: array[int]
) -> Iterator[Mismatch]:
    """Name the blocks of a span that differ; `expected` and `found` have those of it alone."""
    for number, (right, wrong) in enumerate(zip(expected, found, strict=True)):
        if right != wrong:
            yield mismatch_at(span, number, block_bytes, right, wrong)


def mismatch_at(span: Any, number: int, block_bytes: int, expected: int, found: int) -> Mismatch:
    """Name one block of something with a name, an offset and a size."""
    start = number * block_bytes
    size = min(block_bytes, span.size_bytes - start)
    return Mismatch(span.name, span.offset + start, size, start, expected, found)
