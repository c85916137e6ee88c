"""The entries of a header as writers write them: taken in order, so that loading can begin early.

Every known writer gives each tensor as ``"name":{"dtype":…,"shape":[…],"data_offsets":[…]}``, in
the order of the data and without a blank. Such entries are found faster than JSON is parsed, and
the first tensors may be on their way while the last ones are not read yet. Whatever looks otherwise
is left to the strict parser of `_header`, which alone says what is wrong.
"""

from __future__ import annotations

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
        position, offset = self._position, self._data_offset
        for match in _ENTRY.finditer(self._text, position):
            name, dtype, lengths, begin, end, after = match.groups()
            key = dtype, lengths
            if key not in kinds:
                kinds[key] = _read_kind(*key)
            kind, first = kinds[key], self._data_offset + int(begin)
            if (
                kind is None
                or match.start() != position
                or first != offset
                or int(end) - int(begin) != kind.size_bytes
                or name in self.names
                or name == "__metadata__"
            ):
                return
            position, offset = match.end(), offset + kind.size_bytes
            self.names.add(name)
            if after == "}":
                self._position = position - 1
                self.complete = self._is_complete(offset)
            yield TensorInfo(name, dtype, kind.shape, first, kind.size_bytes)
            if after == "}":
                return

    def _is_complete(self, offset: int) -> bool:
        """Whether only the closing brace is left of the header, and nothing of the file."""
        return offset == self._file_bytes and bool(_END.match(self._text, self._position))


def _read_kind(dtype: str, lengths: str) -> _Kind | None:
    if dtype not in DTYPE_BITS or not _SHAPE.fullmatch(lengths):
        return None
    shape = tuple(map(int, lengths.split(","))) if lengths else ()
    bits = count_bits(DTYPE_BITS[dtype], shape)
    return None if bits < 0 or bits % 8 else _Kind(shape, bits // 8)
