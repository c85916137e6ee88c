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

from hippogriff.safetensors._tensor import DTYPE_BITS, Columns, count_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

# An unsigned number as JSON has it; eighteen digits do not overflow 63 bits.
_NUMBER = "(?:0|[1-9][0-9]{0,17})"
_SHAPE = re.compile(rf":\[({_NUMBER}(?:,{_NUMBER})*)?\],")
_END = re.compile(r"\} *\Z")
# So much text is taken at a time: a hundred entries or two, so that the first are found soon.
_PIECE = 1 << 14
# An entry, split at its quotes: how many fields, and which are of interest.
_FIELDS, _NAME, _DTYPE, _LENGTHS = 10, 1, 5, 8


class _Kind(NamedTuple):
    """What all tensors of one dtype and shape have in common."""

    shape: tuple[int, ...]
    size_bytes: int
    # What an entry has between its name and its offsets.
    written: str


class Entries:
    """Iterates over some tensors at a time, as long as entries are as writers write them.

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

    def __iter__(self) -> Iterator[Columns]:
        kinds: dict[tuple[str, str], _Kind | None] = {}
        offset = self._data_offset
        while not self.complete:
            tensors = self._take(kinds, offset)
            if tensors is None:
                return
            offset = tensors.offsets[-1] + tensors.sizes[-1]
            yield tensors

    def _take(self, kinds: dict[tuple[str, str], _Kind | None], offset: int) -> Columns | None:
        """Return the tensors of the next piece of text; None when it is not as it should be.

        What is found in the piece is right when a writer would write the same text of it.
        """
        piece = self._text[self._position : self._position + _PIECE]
        last = self._position + len(piece) == len(self._text)
        fields = piece.split('"')
        # The last of its entries may be cut off, unless it is the header's last.
        stop = (len(fields) - (1 if last else 2)) // _FIELDS * _FIELDS
        names, dtypes, lengths = (fields[first:stop:_FIELDS] for first in (_NAME, _DTYPE, _LENGTHS))
        keys = list(zip(dtypes, lengths, strict=True))
        for key in {*keys} - kinds.keys():
            kinds[key] = _read_kind(*key)
        found = [kind for key in keys if (kind := kinds[key])]
        sizes = [kind.size_bytes for kind in found]
        offsets = list(itertools.accumulate(sizes, initial=offset - self._data_offset))
        end = self._data_offset + offsets[-1]
        together = "".join(names)
        if (
            not names
            or len(found) != len(names)
            or end > self._file_bytes
            # Escapes, and what JSON has only as escapes.
            or "\\" in together
            or not together.isprintable()
            or len(set(names)) != len(names)
            or not self.names.isdisjoint(names)
            or "__metadata__" in names
        ):
            return None
        written = ",".join(
            f'"{name}{kind.written}{begin},{behind}]}}'
            for name, kind, begin, behind in zip(names, found, offsets, offsets[1:], strict=False)
        )
        if not last:
            written += ","
        if not piece.startswith(written):
            return None
        self._position += len(written)
        self.complete = last and self._is_complete(end)
        if last and not self.complete:
            return None
        self.names.update(names)
        shapes = [kind.shape for kind in found]
        begins = [self._data_offset + begin for begin in offsets[:-1]]
        return Columns(names, dtypes, shapes, begins, sizes)

    def _is_complete(self, offset: int) -> bool:
        """Whether only the closing brace is left of the header, and nothing of the file."""
        return offset == self._file_bytes and bool(_END.match(self._text, self._position))


def _read_kind(dtype: str, lengths: str) -> _Kind | None:
    match = _SHAPE.fullmatch(lengths)
    if dtype not in DTYPE_BITS or match is None:
        return None
    shape = tuple(map(int, match[1].split(","))) if match[1] else ()
    bits = count_bits(DTYPE_BITS[dtype], shape)
    if bits < 0 or bits % 8:
        return None
    return _Kind(shape, bits // 8, f'":{{"dtype":"{dtype}","shape"{lengths}"data_offsets":[')
