"""The entries of a header as writers write them: taken in order, so that loading can begin early.

Every known writer gives each tensor as ``"name":{"dtype":…,"shape":[…],"data_offsets":[…]}``, in
the order of the data and without a blank. Such entries are found faster than JSON is parsed, and
the first tensors may be on their way while the last ones are not read yet. Whatever looks otherwise
is left to the strict parser of `_header`, which alone says what is wrong.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

from hippogriff.safetensors._tensor import DTYPE_BITS, TensorInfo, count_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

# An unsigned number as JSON has it; eighteen digits do not overflow 63 bits.
_NUMBER = "(?:0|[1-9][0-9]{0,17})"
_ENTRY = re.compile(
    r'"([^"\\\x00-\x1f]*)":\{"dtype":"([A-Z0-9_]+)","shape":\[([0-9,]*)\],'
    rf'"data_offsets":\[({_NUMBER}),({_NUMBER})\]\}}([,}}])'
)
_SHAPE = re.compile(rf"(?:{_NUMBER}(?:,{_NUMBER})*)?")
_END = re.compile(r"\} *\Z")
# So much text is taken at a time: some hundred entries.
_PIECE = 1 << 16


class _Kind(NamedTuple):
    """What all tensors of one dtype and shape have in common."""

    shape: tuple[int, ...]
    size_bytes: int


class Entries:
    """Iterates over tensors as long as their entries are as writers write them.

    Parameters
    ----------
    text : str
        The header.
    position : int
        Where in it the first entry begins.
    data_offset, file_bytes : int
        Where the data begins, and where it must end.

    Attributes
    ----------
    names : set of str
        Of the tensors so far.
    complete : bool
        At the end: whether the whole header was taken, and is right.
    """

    def __init__(self, text: str, position: int, data_offset: int, file_bytes: int) -> None:
        self._text = text
        self._data_offset = data_offset
        self._file_bytes = file_bytes
        self.names: set[str] = set()
        self._position = position
        self.complete = self._is_complete(data_offset)

    def __iter__(self) -> Iterator[TensorInfo]:
        kinds: dict[tuple[str, str], _Kind | None] = {}
        offset = self._data_offset
        while not self.complete:
            tensors = self._take(kinds, offset)
            if not tensors:
                return
            offset = tensors[-1].offset + tensors[-1].size_bytes
            yield from tensors

    def _take(self, kinds: dict[tuple[str, str], _Kind | None], offset: int) -> list[TensorInfo]:
        """Return the tensors of the next piece of text; none when it is not as it should be."""
        piece = self._text[self._position : self._position + _PIECE]
        # What is between the entries, their six fields, and what is left of the piece.
        fields = _ENTRY.split(piece)
        between, names, dtypes, lengths, begins, ends, after = (
            fields[number::7] for number in range(7)
        )
        rest = between.pop()
        ended = after[-1:] == ["}"]
        if any(between) or not names or "}" in after[:-1]:
            return []
        keys = list(zip(dtypes, lengths, strict=True))
        for key in {*keys} - kinds.keys():
            kinds[key] = _read_kind(*key)
        found = [kinds[key] for key in keys]
        sizes = [kind.size_bytes if kind else -1 for kind in found]
        offsets = list(itertools.accumulate(sizes, initial=offset))
        end = offsets.pop()
        if (
            None in found
            or end > self._file_bytes
            or [self._data_offset + int(begin) for begin in begins] != offsets
            or [self._data_offset + int(each) for each in ends] != [*offsets[1:], end]
            or len(set(names)) != len(names)
            or not self.names.isdisjoint(names)
            or "__metadata__" in names
        ):
            return []
        self._position += len(piece) - len(rest) - ended
        self.complete = ended and self._is_complete(end)
        if ended and not self.complete:
            return []
        self.names.update(names)
        shapes = [kind.shape for kind in found if kind]
        return list(map(TensorInfo, names, dtypes, shapes, offsets, sizes))

    def _is_complete(self, offset: int) -> bool:
        """Whether only the closing brace is left of the header, and nothing of the file."""
        return offset == self._file_bytes and bool(_END.match(self._text, self._position))


def _read_kind(dtype: str, lengths: str) -> _Kind | None:
    if dtype not in DTYPE_BITS or not _SHAPE.fullmatch(lengths):
        return None
    shape = tuple(map(int, lengths.split(","))) if lengths else ()
    bits = count_bits(DTYPE_BITS[dtype], shape)
    return None if bits < 0 or bits % 8 else _Kind(shape, bits // 8)
