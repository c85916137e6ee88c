"""Comparing what was loaded with its file's checksums, where it is now."""

from __future__ import annotations

import itertools
import os
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff._compare import check_head, mismatch_at, raise_mismatches
from hippogriff._regions import describe
from hippogriff._sidecar import BLOCK_BYTES, Sidecar, check_count, read_sidecar, sidecar_path
from hippogriff._xxh3 import checksum_bytes, checksum_parts, count_blocks
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hippogriff._file import File
    from hippogriff._frameworks import Framework
    from hippogriff._regions import Region
    from hippogriff._runtime import PathLike
    from hippogriff.safetensors._header import Header
    from hippogriff.safetensors._load import Batch
    from hippogriff.safetensors._tensor import TensorInfo

    Verify = bool | PathLike | None


class Verifier:
    """The checksums of one file, which agree with its header. Thread-safe.

    Raises
    ------
    ChecksumMismatch
        When the file's size or header is not what the checksums were made of.
    SidecarError, IoError
        When there are no checksums, or they are damaged.
    """

    def __init__(self, file: File, header: Header, where: PathLike | None) -> None:
        sidecar = read_sidecar(sidecar_path(file.path, where), file.path, file.size)
        check_head(file, header.data_offset, sidecar)
        self._path = file.path
        self._sidecar = sidecar
        self._first_blocks: dict[str, int] = {}
        block, block_bytes = 0, sidecar.block_bytes
        for tensor in header.tensors.values():  # in the order of their data
            self._first_blocks[tensor.name] = block
            block += -(-tensor.size_bytes // block_bytes)
        check_count(sidecar, block, file.path)

    def check(
        self, tensors: Sequence[TensorInfo], addresses: Iterable[int], region: Region
    ) -> None:
        """Compare tensors that lie at these addresses, of the device and stream of `region`.

        Raises
        ------
        ChecksumMismatch
            When some differ; names the tensors and bytes.
        """
        parts = [
            (address, tensor.size_bytes)
            for tensor, address in zip(tensors, addresses, strict=True)
            if tensor.size_bytes
        ]
        if not parts:
            return
        block_bytes = self._sidecar.block_bytes
        expected = self._expected(tensors)
        found = checksum_parts(parts, region, block_bytes)
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

    def _expected(self, tensors: Iterable[TensorInfo]) -> array[int]:
        """Return the checksums of some tensors, which often follow each other in the file."""
        checksums, block_bytes = self._sidecar.checksums, self._sidecar.block_bytes
        expected = array("Q")
        begin = end = 0
        for tensor in tensors:
            first = self._first_blocks[tensor.name]
            if first != end:
                expected.extend(checksums[begin:end])
                begin = end = first
            end += -(-tensor.size_bytes // block_bytes)
        expected.extend(checksums[begin:end])
        return expected


def open_verifiers(files: Sequence[tuple[File, Header]], verify: Verify) -> list[Verifier | None]:
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
    return [Verifier(file, header, where) for file, header in files]


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
