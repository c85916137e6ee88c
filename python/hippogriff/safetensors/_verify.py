"""Comparing what was loaded with its file's checksums, where it is now."""

from __future__ import annotations

import itertools
import os
from array import array
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff._compare import check_head, mismatch_at, raise_mismatches
from hippogriff._regions import describe
from hippogriff._sidecar import (
    BLOCK_BYTES,
    Sidecar,
    SidecarError,
    check_count,
    read_sidecar,
    sidecar_path,
)
from hippogriff._xxh3 import checksum_bytes, checksum_parts, count_blocks
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._files import data_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hippogriff._file import File
    from hippogriff._frameworks import Framework
    from hippogriff._regions import Region
    from hippogriff._runtime import PathLike
    from hippogriff.safetensors._header import Header
    from hippogriff.safetensors._load import Batch
    from hippogriff.safetensors._tensor import TensorInfo

    Verify = bool | PathLike | None


class Verifier:
    """The checksums of one file, made of its head as it is. Thread-safe once it has followed it.

    Raises
    ------
    ChecksumMismatch
        When the file's size or header is not what the checksums were made of.
    SidecarError, SafetensorError, IoError
        When there are no checksums, or they are damaged, or the file has no header.
    """

    def __init__(self, file: File, where: PathLike | None) -> None:
        self._sidecar = read_sidecar(sidecar_path(file.path, where), file.path, file.size)
        check_head(file, data_offset(file), self._sidecar)
        self._path = file.path
        self._first_blocks: dict[str, int] = {}

    def follow(self, tensors: Iterable[TensorInfo]) -> Iterator[TensorInfo]:
        """Pass on all tensors of the file, in the order of their data: then they can be checked.

        Raises
        ------
        SidecarError
            At their end, when the checksums are not as many.
        """
        block, block_bytes = 0, self._sidecar.block_bytes
        for tensor in tensors:
            self._first_blocks[tensor.name] = block
            block += -(-tensor.size_bytes // block_bytes)
            yield tensor
        check_count(self._sidecar, block, self._path)

    def check(
        self, tensors: Sequence[TensorInfo], addresses: Iterable[int], region: Region
    ) -> None:
        """Compare tensors that lie at these addresses, of the device and stream of `region`.

        They are given in the order of their data.

        Raises
        ------
        ChecksumMismatch
            When some differ; names the tensors and bytes.
        """
        sizes = [tensor.size_bytes for tensor in tensors]
        parts = [each for each in zip(addresses, sizes, strict=True) if each[1]]
        if not parts:
            return
        block_bytes = self._sidecar.block_bytes
        expected = self._expected(tensors, sizes)
        found = checksum_parts(parts, region, block_bytes)
        if len(found) != len(expected):
            raise SidecarError(
                f"{self._path} has more blocks than its checksums: make them anew with "
                "`hippogriff checksum`",
                object=self._path,
            )
        if found != expected:
            pairs = iter(zip(expected, found, strict=True))
            raise_mismatches(
                self._path,
                [
                    mismatch_at(tensor, number, block_bytes, right, wrong)
                    for tensor in tensors
                    for number in range(count_blocks(tensor.size_bytes, block_bytes))
                    for right, wrong in [next(pairs)]
                    if right != wrong
                ],
            )

    def _expected(self, tensors: Sequence[TensorInfo], sizes_bytes: Iterable[int]) -> array[int]:
        """Return the checksums of some tensors, which nearly always follow each other."""
        checksums, block_bytes = self._sidecar.checksums, self._sidecar.block_bytes
        counts = [-(-size_bytes // block_bytes) for size_bytes in sizes_bytes]
        begin = self._first_blocks[tensors[0].name]
        end = begin + sum(counts)
        if self._first_blocks[tensors[-1].name] + counts[-1] == end:
            return checksums[begin:end]
        expected = array("Q")
        for tensor, count in zip(tensors, counts, strict=True):
            first = self._first_blocks[tensor.name]
            expected.extend(checksums[first : first + count])
        return expected


def open_verifiers(files: Sequence[File], verify: Verify) -> list[Verifier | None]:
    """Find the checksums of files, before anything is loaded; None each where none are wanted.

    `verify` is True, or says where they are: a file, or a folder for those of several.
    """
    if verify is None or verify is False:
        return [None] * len(files)
    where = None if verify is True else verify
    if where is not None and len(files) > 1 and not Path(os.fsdecode(where)).is_dir():
        raise InvalidArgument(
            f"verify={where!r} is one file, and there are {len(files)} to verify: name a folder"
        )
    return [Verifier(file, where) for file in files]


def verifiers_of(files: Sequence[tuple[File, Header]], verify: Verify) -> list[Verifier | None]:
    """Find the checksums of files whose headers are read."""
    verifiers = open_verifiers([file for file, _ in files], verify)
    for verifier, (_, header) in zip(verifiers, files, strict=True):
        if verifier is not None:
            deque(verifier.follow(header.tensors.values()), maxlen=0)
    return verifiers


def check_batches(
    verifier: Verifier | None, framework: Framework
) -> Callable[[Batch], None] | None:
    """Return what compares batches that have landed; None where nothing is compared."""
    if verifier is None:
        return None
    return lambda batch: verifier.check(batch.tensors, batch.addresses, framework.region)


def make_sidecar(header: bytes, tensors: Iterable[Any]) -> Sidecar:
    """Compute the checksums of a file of these arrays, in this order, where they are."""
    checksums = array("Q")
    regions = [describe(tensor, writable=False) for tensor in tensors]
    for _, group in itertools.groupby(regions, lambda region: region[2:5]):
        together = list(group)
        parts = [(region.address, region.size_bytes) for region in together]
        checksums.extend(checksum_parts(parts, together[0], BLOCK_BYTES))
    file_bytes = len(header) + sum(region.size_bytes for region in regions)
    return Sidecar(file_bytes, len(header), BLOCK_BYTES, checksum_bytes(header), checksums)
