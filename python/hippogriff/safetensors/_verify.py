"""Comparing what was loaded with its file's checksums, where it is now."""

from __future__ import annotations

import itertools
import os
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._compare import check_head, mismatch_at, raise_mismatches, read_checksums
from hippogriff._sidecar import (
    BLOCK_BYTES,
    Sidecar,
    SidecarError,
    check_count,
)
from hippogriff._xxh3 import checksum_bytes, checksum_memory, checksum_parts, count_blocks
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._files import data_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hippogriff._file import File
    from hippogriff._regions import Region
    from hippogriff._runtime import PathLike
    from hippogriff.safetensors._tensor import Columns, TensorInfo

    Verify = bool | PathLike | None


class Landed(NamedTuple):
    """Tensors that are there: their addresses and sizes, and the checksums they should have."""

    pieces: list[Columns]
    addresses: array[int]
    sizes: array[int]
    expected: array[int]
    found: array[int]  # those that were computed as the bytes landed, or none


class _BlockCounts(dict[int, int]):
    """How many blocks a size has. Models have few sizes, and one that is here costs no Python."""

    def __init__(self, block_bytes: int) -> None:
        super().__init__()
        self._block_bytes = block_bytes

    def __missing__(self, size_bytes: int) -> int:
        count = self[size_bytes] = count_blocks(size_bytes, self._block_bytes)
        return count


class Verifier:
    """The checksums of one file, made of its head as it is. Thread-safe once it knows the tensors.

    Raises
    ------
    ChecksumMismatch
        When the file's size or header is not what the checksums were made of.
    SidecarError, SafetensorError, IoError
        When there are no checksums, or they are damaged, or the file has no header.
    """

    def __init__(self, file: File, where: PathLike | None) -> None:
        self._sidecar = read_checksums(file, where)
        self._path = file.path
        # Before what the file itself says of its header's length, which may be what is damaged.
        check_head(file, self._sidecar.head_bytes, self._sidecar)
        head_bytes = data_offset(file)
        if head_bytes != self._sidecar.head_bytes:
            check_head(file, head_bytes, self._sidecar)
        self._counts = _BlockCounts(self._sidecar.block_bytes)
        self._first_blocks: dict[str, int] = {}

    @property
    def block_bytes(self) -> int:
        """The bytes of a block that has a checksum, the last one of each tensor excepted."""
        return self._sidecar.block_bytes

    def know(self, tensors: Mapping[str, TensorInfo]) -> None:
        """Take all tensors of the file, in the order of their data: then `find` finds any of them.

        Raises
        ------
        SidecarError
            When the checksums are not as many.
        """
        sizes = [tensor.size_bytes for tensor in tensors.values()]
        firsts = list(itertools.accumulate(self.count(sizes), initial=0))
        self.finish(firsts.pop())
        self._first_blocks = dict(zip(tensors, firsts, strict=True))

    def find(self, names: Sequence[str], sizes_bytes: Iterable[int]) -> array[int]:
        """Return the checksums of some tensors, which nearly always follow each other."""
        counts = list(self.count(sizes_bytes))
        begin = self._first_blocks[names[0]]
        end = begin + sum(counts)
        if self._first_blocks[names[-1]] + counts[-1] == end:
            return self._sidecar.checksums[begin:end]
        expected = array("Q")
        for name, count in zip(names, counts, strict=True):
            first = self._first_blocks[name]
            expected.extend(self._sidecar.checksums[first : first + count])
        return expected

    def count(self, sizes_bytes: Iterable[int]) -> Iterable[int]:
        """Count the blocks of each size."""
        return map(self._counts.__getitem__, sizes_bytes)

    def cut(self, begin: int, end: int) -> array[int]:
        """Return the checksums of some blocks of the file.

        Raises
        ------
        SidecarError
            When there are fewer.
        """
        checksums = self._sidecar.checksums
        if end > len(checksums):
            raise SidecarError(
                f"{self._path} has more blocks than its checksums: make them anew with "
                "`hippogriff checksum`",
                object=self._path,
            )
        return checksums[begin:end]

    def finish(self, block_count: int) -> None:
        """Refuse checksums that are not as many as the file's blocks.

        Raises
        ------
        SidecarError
            When their numbers differ.
        """
        check_count(self._sidecar, block_count, self._path)

    def compare(
        self, landed: Landed, region: Region, between: Callable[[], object] | None = None
    ) -> None:
        """Compare tensors that lie on the device of `region`, after the work on its stream.

        `between` is called now and then; what it raises ends it.

        Raises
        ------
        ChecksumMismatch
            When some differ; names the tensors and bytes.
        """
        pieces, addresses, sizes, expected, found = landed
        if not expected:
            return
        block_bytes = self.block_bytes
        if not found:
            found = checksum_memory(addresses, sizes, region, block_bytes, len(expected), between)
        if found != expected:
            pairs = iter(zip(expected, found, strict=True))
            raise_mismatches(
                self._path,
                [
                    mismatch_at(tensor, number, block_bytes, right, wrong)
                    for piece in pieces
                    for tensor in piece.tensors()
                    for number in range(count_blocks(tensor.size_bytes, block_bytes))
                    for right, wrong in [next(pairs)]
                    if right != wrong
                ],
            )


class Follower:
    """Finds the checksums of a file's tensors as they come, in the order of their data."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self._block = 0

    def find(self, _: Sequence[str], sizes_bytes: Iterable[int]) -> array[int]:
        """Return the checksums of the tensors that come next.

        Raises
        ------
        SidecarError
            When there are fewer.
        """
        begin = self._block
        self._block += sum(self.verifier.count(sizes_bytes))
        return self.verifier.cut(begin, self._block)

    def finish(self) -> None:
        """Tell that all tensors have come.

        Raises
        ------
        SidecarError
            When there are more checksums.
        """
        self.verifier.finish(self._block)


def room_for(
    verifier: Verifier | None, region: Region, sizes_bytes: Iterable[int]
) -> array[int] | None:
    """Return room for the checksums of what lands in host memory; None elsewhere, or unasked."""
    if verifier is None or not region.host_memory:
        return None
    return array("Q", bytes(8 * sum(verifier.count(sizes_bytes))))


def open_verifiers(files: Sequence[File], verify: Verify) -> list[Verifier | None]:
    """Find the checksums of files, before anything is loaded; None each where none are wanted.

    `verify` is True, or says where they are: a file, or a folder for those of several.
    """
    if verify is None or verify is False:
        return [None] * len(files)
    where = None if verify is True else verify
    if where is not None and len(files) > 1 and not Path(os.fsdecode(where)).is_dir():
        raise InvalidArgument(
            f"verify={where!r:.200} is one file, and there are {len(files)} to verify: name a "
            "folder"
        )
    return [Verifier(file, where) for file in files]


def make_sidecar(header: bytes, regions: Sequence[Region]) -> Sidecar:
    """Compute the checksums of a file of arrays in this order, where they are."""
    checksums = array("Q")
    for _, group in itertools.groupby(regions, lambda region: region[2:5]):
        together = list(group)
        parts = [(region.address, region.size_bytes) for region in together]
        checksums.extend(checksum_parts(parts, together[0], BLOCK_BYTES))
    file_bytes = len(header) + sum(region.size_bytes for region in regions)
    return Sidecar(file_bytes, len(header), BLOCK_BYTES, checksum_bytes(header), checksums)
