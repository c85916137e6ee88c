"""Checksums of files: made once, compared at every later look.

A file's checksums lie beside it, in ``NAME.xxh3``: XXH3 of every 256 KiB of every tensor, of the
array of an `.npy` file, or of another file. `hippogriff.safetensors` and
`hippogriff.arrays.load_npy` compare what they load with them when they are asked to
(``verify=True``).

Examples
--------
>>> from hippogriff.integrity import verify_checksums, write_checksums
>>> write_checksums("model.safetensors")
'model.safetensors.xxh3'
>>> verify_checksums("model.safetensors")
"""

from __future__ import annotations

import contextlib
import os
import stat
from array import array
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._compare import (
    check_head,
    checksum_head,
    expect_same,
    mismatches_in,
    raise_mismatches,
    read_checksums,
    target_sidecar,
)
from hippogriff._file import File
from hippogriff._flights import stop
from hippogriff._regions import describe
from hippogriff._save import alone_with
from hippogriff._sidecar import (
    BLOCK_BYTES,
    Layout,
    Sidecar,
    SidecarError,
    SidecarWriter,
    check_count,
    lay_out,
)
from hippogriff._xxh3 import checksum_parts, count_blocks
from hippogriff.arrays._header import PREFIX_BYTES, ArrayFormatError, header_end
from hippogriff.errors import ChecksumMismatch, InvalidArgument, Mismatch, io_error
from hippogriff.safetensors._files import read_header
from hippogriff.safetensors._header import Header, SafetensorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hippogriff._runtime import PathLike
    from hippogriff._transfer import Transfer

    Tell = Callable[[int, int], object]

__all__ = ["ChecksumMismatch", "Mismatch", "SidecarError", "verify_checksums", "write_checksums"]

# Two of these are filled and hashed in turns.
_CHUNK_BYTES = 16 << 20


def write_checksums(
    path: PathLike, where: PathLike | None = None, *, progress: Tell | None = None
) -> str:
    """Compute the checksums of a file and write them beside it.

    Thread-safe. The file is read by the best route: from the page cache where it is there.

    Parameters
    ----------
    path : path-like
        Any file; of a safetensors file each tensor gets checksums of its own, of an `.npy` file
        its array.
    where : path-like, optional
        A folder for the checksums, or a file for them.
    progress : callable, optional
        Called on this thread with the bytes done and all bytes.

    Returns
    -------
    str
        The file of checksums, which was replaced as a whole if it was there.

    Raises
    ------
    IoError, ShortFile
        When the file cannot be read, or its checksums cannot be written.
    InvalidArgument
        When it is no regular file, or `where` is empty or this file.
    ChecksumMismatch
        When the file was replaced meanwhile. Checksums that were there stay.
    SafetensorError
        When its name ends in ``.safetensors``, and it is no safetensors file.
    """
    target = target_sidecar(path, where)
    with File(path) as file:
        _expect_another(file, target)
        layout = layout_of(file, BLOCK_BYTES)
        sidecar = Sidecar(
            layout.file_bytes,
            layout.head_bytes,
            layout.block_bytes,
            checksum_head(file, layout.head_bytes),
            _checksum_file(file, layout, progress),
        )
        writer = SidecarWriter(target, sidecar, of=file.path)
        try:
            with alone_with(file.path):
                expect_same(file, "these checksums are not the new file's: make them again")
                writer.commit()
        except BaseException as error:
            writer.discard(error)
            raise
    return target


def verify_checksums(
    path: PathLike, where: PathLike | None = None, *, progress: Tell | None = None
) -> None:
    """Compare a file with its checksums.

    Parameters
    ----------
    path, where, progress
        As in `write_checksums`. Without `where` the checksums of a file behind a symbolic link may
        lie beside the link, or beside the file.

    Raises
    ------
    ChecksumMismatch
        When it has not the bytes that its checksums were made of; names all blocks that differ.
    SidecarError
        When its checksums are damaged or of another kind of file.
    IoError
        When one of both cannot be read; also FileNotFoundError.
    """
    with File(path) as file:
        sidecar = read_checksums(file, where)
        check_head(file, sidecar.head_bytes, sidecar)
        layout = layout_of(file, sidecar.block_bytes, head_bytes=sidecar.head_bytes)
        check_head(file, layout.head_bytes, sidecar)
        check_count(sidecar, layout.block_count, file.path)
        found = _checksum_file(file, layout, progress)
        raise_mismatches(file.path, _mismatches(layout, sidecar.checksums, found))


def layout_of(file: File, block_bytes: int, *, head_bytes: int | None = None) -> Layout:
    """Say how a file is cut: by its tensors where it is a safetensors file.

    An `.npy` file is cut from where its array begins, unless its checksums say that it has no head.
    """
    with file.borrowed() as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidArgument(f"{file.path} is no regular file", object=file.path)
    file_bytes = file.size
    header = _find_header(file)
    if header is None:
        begin = 0 if head_bytes == 0 else _array_offset(file)
        rest = [("", begin, file_bytes - begin)] if begin < file_bytes else []
        return lay_out(file_bytes, begin, rest, block_bytes)
    tensors = header.tensors.values()
    spans = [(each.name, each.offset, each.size_bytes) for each in tensors if each.size_bytes]
    return lay_out(file_bytes, header.data_offset, spans, block_bytes)


def _expect_another(file: File, target: str) -> None:
    """Refuse to replace the file, by whatever name, by its own checksums."""
    with contextlib.suppress(OSError), file.borrowed() as descriptor:
        if os.path.samestat(Path(target).stat(), os.fstat(descriptor)):
            words = f"{target} is the file itself, which its checksums would replace"
            raise InvalidArgument(words, object=target)


def _find_header(file: File) -> Header | None:
    try:
        return read_header(file)
    except SafetensorError:
        if file.path.endswith(".safetensors"):
            raise
        return None


def _array_offset(file: File) -> int:
    """Return where the array of an `.npy` file begins; 0 in other files."""
    try:
        with file.borrowed() as descriptor:
            end = header_end(os.pread(descriptor, PREFIX_BYTES, 0))
    except ArrayFormatError:
        return 0
    except OSError as error:
        raise io_error("read", file.path, error) from None
    return end if end <= file.size else 0


def _mismatches(layout: Layout, expected: array[int], found: array[int]) -> Iterator[Mismatch]:
    """Name the blocks that differ."""
    if expected == found:
        return
    for span in layout.spans:
        begin = span.first_block
        end = begin + count_blocks(span.size_bytes, layout.block_bytes)
        yield from mismatches_in(span, layout.block_bytes, expected[begin:end], found[begin:end])


class _Chunk(NamedTuple):
    """Adjacent bytes of a file: where, and the sizes of the parts that are cut by themselves."""

    offset: int
    sizes: list[int]


def _chunks(layout: Layout) -> Iterator[_Chunk]:
    """Cut a file into chunks of whole blocks."""
    step = _CHUNK_BYTES // layout.block_bytes * layout.block_bytes
    chunk, chunk_bytes = _Chunk(layout.head_bytes, []), 0
    for span in layout.spans:
        for start in range(0, span.size_bytes, step):
            size = min(step, span.size_bytes - start)
            if chunk.sizes and chunk_bytes + size > _CHUNK_BYTES:
                yield chunk
                chunk, chunk_bytes = _Chunk(span.offset + start, []), 0
            chunk.sizes.append(size)
            chunk_bytes += size
    if chunk.sizes:
        yield chunk


def _checksum_file(file: File, layout: Layout, progress: Tell | None) -> array[int]:
    """Compute the checksums of all blocks; a chunk is read while the one before is hashed."""
    checksums = array("Q")
    total = sum(span.size_bytes for span in layout.spans)
    buffer_bytes = min(_CHUNK_BYTES, total)
    free = [bytearray(buffer_bytes) for _ in range(2)]
    flying: deque[tuple[Transfer[int], bytearray, _Chunk]] = deque()
    done = 0

    def finish() -> None:
        nonlocal done
        transfer, buffer, chunk = flying[0]
        transfer.wait()
        flying.popleft()
        region = describe(buffer, writable=False)
        parts, address = [], region.address
        for size in chunk.sizes:
            parts.append((address, size))
            address += size
        checksums.extend(checksum_parts(parts, region, layout.block_bytes))
        free.append(buffer)
        done += sum(chunk.sizes)
        if progress is not None:
            progress(done, total)

    try:
        for chunk in _chunks(layout):
            if not free:
                finish()
            buffer = free.pop()
            transfer = file.read_into_async(buffer, chunk.offset, sum(chunk.sizes))
            flying.append((transfer, buffer, chunk))
        while flying:
            finish()
    except BaseException:
        stop(transfer for transfer, _, _ in flying)
        raise
    return checksums
