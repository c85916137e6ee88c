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
_KIND = re.compile(rf'([A-Z0-9_]+)","shape":\[({_NUMBER}(?:,{_NUMBER}){{0,254}})?\]')
_END = re.compile(rb"\} *\Z")
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
        self._view = memoryview(text)
        self._address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0
        self._fields = array("Q", bytes(_MOST * ctypes.sizeof(TensorEntry)))
        self._data_offset = data_offset
        self._file_bytes = file_bytes
        self._kinds: dict[str, _Kind | None] = {}
        self.names: set[str] = set()
        self._position = position
        self.complete = self._is_complete(position, data_offset)

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
        fields, letters = self._find(offset - self._data_offset, most)
        names = [
            letters[begin:end]
            for begin, end in zip(fields[_NAME::_FIELDS], fields[_NAME_END::_FIELDS], strict=True)
        ]
        kinds = self._kinds_of(letters, fields[_KIND_BEGIN::_FIELDS].tolist())
        if not names or kinds is None:
            return None
        dtypes, shapes, sizes = kinds
        behind = self._data_offset + fields[-_FIELDS:][_DATA_END]
        if offset + sum(sizes) != behind or fields[_DATA_END::_FIELDS] != array(
            "Q", itertools.accumulate(sizes[1:], initial=sizes[0] + offset - self._data_offset)
        ):
            return None
        offsets = list(itertools.accumulate(sizes[:-1], initial=offset))
        position = self._position + len(letters)
        more = letters.endswith(",")
        complete = not more and self._is_complete(position, behind)
        if behind > self._file_bytes or not (more or complete) or not self._take_names(names):
            return None
        self._position, self.complete = position, complete
        return Columns(names, dtypes, shapes, offsets, sizes)

    def _find(self, data_begin: int, most: int) -> tuple[array[int], str]:
        """Return the fields of the next entries, and their text: places in it are from its begin.

        A letter stands for each byte: what is of interest has no others, and places are the same.
        To have all of a large header as letters would take as long as to find hundreds of entries.
        """
        fields = self._fields
        begin = self._position
        search = TensorSearch(self._address + begin, len(self._text) - begin, 0, data_begin)
        count = ctypes.c_size_t()
        entries = ctypes.cast(fields.buffer_info()[0], _ENTRIES_POINTER)
        check(lib.hippogriff_find_tensors(ctypes.byref(search), entries, most, ctypes.byref(count)))
        letters = str(self._view[begin : begin + search.position], "latin-1")
        return fields[: count.value * _FIELDS], letters

    def _kinds_of(
        self, letters: str, begins: list[int]
    ) -> tuple[list[str], list[tuple[int, ...]], list[int]] | None:
        """Return dtypes, shapes and sizes by where the first of each kind is; None: one is none."""
        dtypes, shapes, sizes = {}, {}, {}
        for begin in {*begins}:
            text = letters[begin : letters.index("]", begin) + 1]
            if text not in self._kinds:
                self._kinds[text] = _read_kind(text)
            kind = self._kinds[text]
            if kind is None:
                return None
            dtypes[begin], shapes[begin], sizes[begin] = kind
        # A look-up each, and no object for a tensor.
        return (
            list(map(dtypes.__getitem__, begins)),
            list(map(shapes.__getitem__, begins)),
            list(map(sizes.__getitem__, begins)),
        )

    def _take_names(self, names: list[str]) -> bool:
        """Add names; False, when one of them is none or comes twice: no parser takes them then."""
        count = len(self.names) + len(names)
        self.names.update(names)
        return len(self.names) == count and "__metadata__" not in self.names

    def _is_complete(self, position: int, offset: int) -> bool:
        """Whether only the closing brace is left of the header, and nothing of the file."""
        return offset == self._file_bytes and bool(_END.match(self._text, position))


def _read_kind(text: str) -> _Kind | None:
    match = _KIND.fullmatch(text)
    if match is None or match[1] not in DTYPE_BITS:
        return None
    shape = tuple(map(int, match[2].split(","))) if match[2] else ()
    bits = count_bits(DTYPE_BITS[match[1]], shape)
    if bits < 0 or bits % 8:
        return None
    return _Kind(match[1], shape, bits // 8)
