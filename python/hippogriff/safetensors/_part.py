"""Parts of a tensor: which an index names, and which blocks are compared to verify one."""

from __future__ import annotations

import contextlib
import math
import operator
from typing import TYPE_CHECKING, Any

from hippogriff._compare import raise_mismatches
from hippogriff._slices import Extent, Selection, resolve
from hippogriff._xxh3 import count_blocks
from hippogriff.errors import ChecksumMismatch, InvalidArgument
from hippogriff.safetensors._header import SafetensorError, SafetensorIndexError
from hippogriff.safetensors._tensor import DTYPE_BITS, TensorInfo

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Sequence

    from hippogriff.safetensors._verify import Verifier


def extent_of(tensor: TensorInfo) -> Extent:
    """Return where a tensor is that is not packed."""
    return Extent(tensor.offset, tensor.shape, tensor.dtype, DTYPE_BITS[tensor.dtype] // 8)


def select(index: Any, tensor: TensorInfo, path: str, *, packed_whole: bool = False) -> Selection:
    """Find what an index names of a tensor in the file `path`.

    Of packed elements it can name nothing; with `packed_whole` it can name all.

    Raises
    ------
    SafetensorError
        When there can be no such part; an IndexError, too, where an integer is out of its
        dimension.
    """
    try:
        selection = resolve(index, tensor.shape)
        packed = DTYPE_BITS[tensor.dtype] % 8 != 0
        if packed and not (packed_whole and selection == resolve(..., tensor.shape)):
            raise InvalidArgument(f"{tensor.dtype} is packed: load the whole tensor")
        return selection
    except (InvalidArgument, IndexError) as error:
        kind = SafetensorIndexError if isinstance(error, IndexError) else SafetensorError
        words = f"{path}: tensor {tensor.name!r:.100}: {error}"
    raise kind(words, object=path)


class Blocks:
    """The blocks of a tensor, from the first that a part touches to the last, to be compared.

    Parameters
    ----------
    verifier : Verifier
        Knows the tensors.
    tensor : TensorInfo
        With dimensions, and not packed.
    selection : Selection
        A part with elements.

    Attributes
    ----------
    verifier : Verifier
        As given.
    span : TensorInfo
        What is to be loaded: the elements of these blocks, in one dimension.
    """

    def __init__(self, verifier: Verifier, tensor: TensorInfo, selection: Selection) -> None:
        extent, block_bytes = extent_of(tensor), verifier.block_bytes
        self.verifier = verifier
        self._tensor = tensor
        # The part is in some rows of the first dimension of which it has several.
        self._outer = outer = next(
            (number for number, count in enumerate(selection.counts) if count > 1),
            len(tensor.shape) - 1,
        )
        self._index = [
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(*selection[:3], strict=True)
        ]
        begin = sum(map(operator.mul, selection.starts[: outer + 1], extent.strides))
        end = begin + self._row_count * extent.strides[outer]
        # Where an element may be in two blocks, all are loaded.
        whole = block_bytes % extent.itemsize_bytes != 0
        self._numbers = slice(
            0 if whole else begin // block_bytes,
            count_blocks(tensor.size_bytes if whole else end, block_bytes),
        )
        self._start = self._numbers.start * block_bytes
        self._first_element = (begin - self._start) // extent.itemsize_bytes
        size_bytes = min(self._numbers.stop * block_bytes, tensor.size_bytes) - self._start
        self.span = tensor._replace(
            shape=(size_bytes // extent.itemsize_bytes,),
            offset=tensor.offset + self._start,
            size_bytes=size_bytes,
        )

    @property
    def _row_count(self) -> int:
        rows = self._index[self._outer]
        return int(rows.stop - rows.start)

    def find(self, _: Sequence[str], __: Iterable[int]) -> array[int]:
        """Return the checksums that the blocks should have."""
        tensor = self._tensor
        return self.verifier.find([tensor.name], [tensor.size_bytes])[self._numbers]

    def copy(self, span: Any, part: Any) -> None:
        """Copy the part out of the elements that were loaded into an array of its shape."""
        outer, first = self._outer, self._first_element
        row_shape = self._tensor.shape[outer + 1 :]
        rows = span[first : first + self._row_count * math.prod(row_shape)]
        step = self._index[outer].step
        index = (slice(None, None, step), *self._index[outer + 1 :])
        cut = rows.reshape((self._row_count, *row_shape))[index]
        part.reshape(cut.shape)[...] = cut

    @contextlib.contextmanager
    def telling(self, path: str) -> Iterator[None]:
        """Tell mismatches by their places in the tensor, not in the blocks."""
        try:
            yield
            return
        except ChecksumMismatch as error:
            found, notes = error.mismatches, getattr(error, "__notes__", [])
        try:
            raise_mismatches(
                path,
                [each._replace(tensor_offset=each.tensor_offset + self._start) for each in found],
            )
        except ChecksumMismatch as error:
            for note in notes:
                error.add_note(note)
            raise error from None
