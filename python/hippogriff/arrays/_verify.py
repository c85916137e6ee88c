"""Comparing an array that was loaded with the checksums of its `.npy` file."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._compare import check_head, mismatches_in, raise_mismatches, read_checksums
from hippogriff._sidecar import SidecarError, Span, check_count
from hippogriff._xxh3 import checksum_memory, count_blocks
from hippogriff.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hippogriff._file import File
    from hippogriff._regions import Region
    from hippogriff._runtime import PathLike
    from hippogriff._scatter import Part
    from hippogriff._transfer import Request
    from hippogriff.arrays._header import ArrayHeader

    Verify = bool | PathLike | None

# A load is cut into so many pieces at most, of so many bytes at least: what is left to compare when
# all is there takes little of its time, and as few transfers as may be carry it.
_PIECES = 8
_PIECE_BYTES_MIN = 64 << 20


class Checksums(NamedTuple):
    """Those of one file's array, and where the array is in the file."""

    path: str
    span: Span
    block_bytes: int
    blocks: array[int]

    def begin(self, address: int, region: Region) -> Comparison:
        """Begin to compare the array that is to be at `address`, on the device of `region`."""
        return Comparison(self, address, region)


class Comparison:
    """Of an array that is loaded in pieces: each is hashed on its device once it is there.

    So all but the last is hashed while others are under way, and in host memory as it lands.
    """

    def __init__(self, checksums: Checksums, address: int, region: Region) -> None:
        self._checksums = checksums
        self._address = address
        # A piece that has landed: no work on the array's stream is under way.
        self._region = region._replace(address=0, size_bytes=0, stream=None, owner=None)
        span = checksums.span
        blocks = -(-len(checksums.blocks) // _PIECES)
        self._as_it_lands = _is_hashed_as_it_lands(region)
        if self._as_it_lands:  # Nothing is left for the end.
            blocks = len(checksums.blocks)
        step = max(blocks, _PIECE_BYTES_MIN // checksums.block_bytes, 1)
        self._steps = range(0, span.size_bytes, step * checksums.block_bytes)
        self._found = array("Q")
        self._taken = 0

    def pieces(self) -> Iterator[list[Part]]:
        """Cut the array between blocks, so that each piece can be loaded, and then compared."""
        offset = self._checksums.span.offset
        for begin, size in map(self._piece, self._steps):
            yield [(offset + begin, size, self._address + begin)]

    def room(self, request: Request, part: Part) -> array[int] | None:
        """Have a piece's checksums computed as it lands in host memory; None elsewhere."""
        if not self._as_it_lands:
            return None
        block_bytes = self._checksums.block_bytes
        found = array("Q", bytes(8 * count_blocks(part[1], block_bytes)))
        request.compute_checksums(found, block_bytes)
        return found

    def take(self, found: array[int] | None) -> None:
        """Take the next piece, which is there, and its checksums if it has some."""
        begin, size = self._piece(self._steps[self._taken])
        self._taken += 1
        if found is not None:
            self._found += found
            return
        address = array("Q", [self._address + begin])
        block_bytes = self._checksums.block_bytes
        self._found += checksum_memory(address, array("Q", [size]), self._region, block_bytes)

    def finish(self) -> None:
        """Tell that all pieces have been taken.

        Raises
        ------
        ChecksumMismatch
            When some have other bytes; names them all.
        """
        checksums = self._checksums
        raise_mismatches(
            checksums.path,
            mismatches_in(checksums.span, checksums.block_bytes, checksums.blocks, self._found),
        )

    def _piece(self, begin: int) -> tuple[int, int]:
        return begin, min(self._steps.step, self._checksums.span.size_bytes - begin)


def _is_hashed_as_it_lands(region: Region) -> bool:
    return region.host_memory


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
