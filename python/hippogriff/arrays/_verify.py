"""Comparing an array that was loaded with the checksums of its `.npy` file."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._compare import check_head, mismatches_in, raise_mismatches, read_checksums
from hippogriff._sidecar import SidecarError, Span, check_count
from hippogriff._xxh3 import checksum_memory, count_blocks
from hippogriff.errors import Unsupported

if TYPE_CHECKING:
    from hippogriff._file import File
    from hippogriff._regions import Region
    from hippogriff._runtime import PathLike
    from hippogriff.arrays._header import ArrayHeader

    Verify = bool | PathLike | None


class Checksums(NamedTuple):
    """Those of one file's array, and where the array is in the file."""

    path: str
    span: Span
    block_bytes: int
    blocks: array[int]

    def compare(self, address: int, region: Region) -> None:
        """Compare the array that lies at `address` on the device of `region`, landed there.

        Raises
        ------
        ChecksumMismatch
            When it has other bytes; names them all.
        """
        if not self.blocks:
            return
        landed = region._replace(address=0, size_bytes=0, stream=None, owner=None)
        sizes = array("Q", [self.span.size_bytes])
        found = checksum_memory(array("Q", [address]), sizes, landed, self.block_bytes)
        differing = mismatches_in(self.span, self.block_bytes, self.blocks, found)
        raise_mismatches(self.path, differing)


def find_checksums(file: File, header: ArrayHeader, verify: Verify) -> Checksums | None:
    """Find those of a file whose header is `header`, before its array is loaded; None unless asked.

    `verify` is True, or says in which file or folder they are.

    Raises
    ------
    ChecksumMismatch
        When the file has another size, or another header.
    SidecarError, IoError, FileNotFoundError
        When they are of no array, are damaged, cannot be read, or are not there.
    Unsupported
        When other bytes follow the array's: a block may have some of both.
    """
    if verify is None or verify is False:
        return None
    sidecar = read_checksums(file, None if verify is True else verify)
    if sidecar.head_bytes == 0:
        raise SidecarError(
            f"{file.path} has checksums of its bytes, not of an array in it: make them anew with "
            "`hippogriff checksum`",
            object=file.path,
        )
    check_head(file, header.data_offset, sidecar)
    if header.data_offset + header.size_bytes != sidecar.file_bytes:
        raise Unsupported(
            f"{file.path} has more bytes than its array: `hippogriff checksum --check` compares it",
            object=file.path,
        )
    span = Span("", header.data_offset, header.size_bytes, 0)
    check_count(sidecar, count_blocks(span.size_bytes, sidecar.block_bytes), file.path)
    return Checksums(file.path, span, sidecar.block_bytes, sidecar.checksums)
