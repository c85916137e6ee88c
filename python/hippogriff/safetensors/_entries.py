"""The entries of a header as writers write them: taken in order, so that loading can begin early.

Every known writer gives each tensor as ``"name":{"dtype":…,"shape":[…],"data_offsets":[…]}``, in
the order of the data and without a blank. Such entries the library finds faster than JSON is
parsed, and the first tensors may be on their way while the last ones are not read yet. Whatever
looks otherwise is left to the strict parser of `_header`, which alone says what is wrong.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from array import array
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._abi import TensorEntry, TensorSearch
from hippogriff._library import lib
from hippogriff.errors import check
from hippogriff.safetensors._tensor import DTYPE_BITS, Columns, count_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

# An unsigned number as JSON has it; eighteen digits do not overflow 63 bits.
_NUMBER = "(?:0|[1-9][0-9]{0,17})"
_KIND = re.compile(rf'([A-Z0-9_]+)","shape":\[({_NUMBER}(?:,{_NUMBER})*)?\]')
_END = re.compile(r"\} *\Z")
# So many are taken at a time, at first fewer, so that they are found soon.
_FIRST, _MOST = 128, 1024
# Of `hippogriff_tensor_entry`: how many, and which are of interest.
_FIELDS, _NAME, _NAME_END, _KIND_BEGIN, _DATA_END = 5, 0, 1, 2, 4
_ENTRIES_POINTER = ctypes.POINTER(TensorEntry)


class _Kind(NamedTuple):
    """What all tensors of one dtype and shape have in common."""

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


class Entries:
    """Iterates over some tensors at a time, as long as entries are as writers write them.

    Parameters
    ----------
    text : bytes
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

    def __init__(self, text: bytes, position: int, data_offset: int, file_bytes: int) -> None:
        self._text = text
        # A letter for each byte: what is of interest has no others, and places are the same.
        self._letters = text.decode("latin-1")
        self._data_offset = data_offset
        self._file_bytes = file_bytes
        self._kinds: dict[str, _Kind | None] = {}
        self.names: set[str] = set()
        self._position = position
        self.complete = self._is_complete(data_offset)

    def __iter__(self) -> Iterator[Columns]:
        offset, most = self._data_offset, _FIRST
        while not self.complete:
            tensors = self._take(offset, most)
            if tensors is None:
                return
            offset, most = tensors.offsets[-1] + tensors.sizes[-1], _MOST
            yield tensors

    def _take(self, offset: int, most: int) -> Columns | None:
        """Return the next tensors; None when what follows is not as it should be."""
        fields, position = self._find(offset - self._data_offset, most)
        begins, ends, kinds = (fields[first::_FIELDS] for first in (_NAME, _NAME_END, _KIND_BEGIN))
        letters = self._letters
        names = [letters[begin:end] for begin, end in zip(begins, ends, strict=True)]
        here = {begin: self._kind(begin) for begin in {*kinds}}
        found = [kind for begin in kinds if (kind := here[begin])]
        sizes = [kind.size_bytes for kind in found]
        offsets = list(itertools.accumulate(sizes, initial=offset))
        behind = [self._data_offset + end for end in fields[_DATA_END::_FIELDS]]
        if (
            not names
            or offsets[1:] != behind
            or behind[-1] > self._file_bytes
            or len(set(names)) != len(names)
            or not self.names.isdisjoint(names)
            or "__metadata__" in names
        ):
            return None
        more = self._letters[position - 1] == ","
        self._position = position
        self.complete = not more and self._is_complete(behind[-1])
        if not more and not self.complete:
            return None
        self.names.update(names)
        return Columns(
            names,
            [kind.dtype for kind in found],
            [kind.shape for kind in found],
            offsets[:-1],
            sizes,
        )

    def _find(self, data_begin: int, most: int) -> tuple[array[int], int]:
        """Return the fields of the next entries, and where in the text the ones after them are."""
        fields = array("Q", bytes(most * ctypes.sizeof(TensorEntry)))
        search = TensorSearch(self._text, len(self._text), self._position, data_begin)
        count = ctypes.c_size_t()
        entries = ctypes.cast(fields.buffer_info()[0], _ENTRIES_POINTER)
        check(lib.hippogriff_find_tensors(ctypes.byref(search), entries, most, ctypes.byref(count)))
        return fields[: count.value * _FIELDS], int(search.position)

    def _kind(self, begin: int) -> _Kind | None:
        text = self._letters[begin : self._letters.index("]", begin) + 1]
        if text not in self._kinds:
            self._kinds[text] = _read_kind(text)
        return self._kinds[text]

    def _is_complete(self, offset: int) -> bool:
        """Whether only the closing brace is left of the header, and nothing of the file."""
        return offset == self._file_bytes and bool(_END.match(self._letters, self._position))


def _read_kind(text: str) -> _Kind | None:
    match = _KIND.fullmatch(text)
    if match is None or match[1] not in DTYPE_BITS:
        return None
    shape = tuple(map(int, match[2].split(","))) if match[2] else ()
    bits = count_bits(DTYPE_BITS[match[1]], shape)
    if bits < 0 or bits % 8:
        return None
    return _Kind(match[1], shape, bits // 8)
