"""Fields of an array of structures in a file: whole elements are read, and single bytes written."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from hippogriff._host_rows import broadcast

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of elements that are read at once, and of what is written at once with its numbers.
_BLOCK_BYTES = 8 << 20


def names_fields(index: Any) -> bool:
    """Return whether the index is the name of a field, or a list of some."""
    if isinstance(index, list):
        return bool(index) and all(isinstance(each, str) for each in index)
    return isinstance(index, str)


def has_gaps(dtype: Any) -> bool:
    """Return whether some bytes of an element belong to no field, or to none of a field's."""
    if dtype.subdtype is not None:
        return has_gaps(dtype.base)
    if dtype.names is None:
        return False
    end = 0
    fields = [dtype.fields[name] for name in dtype.names]
    for kind, place, *_ in sorted(fields, key=operator.itemgetter(1)):
        if place > end or has_gaps(kind):
            return True
        end = max(end, place + kind.itemsize)
    return bool(end < dtype.itemsize)


class Fields:
    """Fields of an array, by a name or a list of names, as NumPy shows them.

    Raises
    ------
    ValueError, IndexError, KeyError
        When there is no such field, as NumPy does.
    """

    def __init__(self, numpy: Any, dtype: Any, shape: tuple[int, ...], names: Any) -> None:
        # It has memory for one element, and tells how NumPy shows the fields.
        found = numpy.broadcast_to(numpy.zeros((), dtype), shape)[names]
        self._numpy = numpy
        self._whole = dtype
        self._names = names
        self._count = math.prod(shape)
        self._dtype = found.dtype
        self._shape = found.shape
        self._inner = found.shape[len(shape) :]  # of a field that is an array

    def empty(self) -> Any:
        """Return an array of the fields, to be filled."""
        return self._numpy.empty(self._shape, self._dtype)

    def blocks(self) -> Iterator[tuple[int, Any]]:
        """Yield memory for the elements, and the number of its first one, one after the other."""
        count_max = max(1, _BLOCK_BYTES // self._whole.itemsize)
        memory = self._numpy.empty(min(count_max, self._count), self._whole)
        for begin in range(0, self._count, count_max):
            yield begin, memory[: self._count - begin]

    def copy(self, block: Any, out: Any, begin: int) -> None:
        """Copy the fields of a block to where they belong."""
        out.reshape(self._count, *self._inner)[begin : begin + len(block)] = block[self._names]

    def pieces(self, values: Any) -> Iterator[tuple[Any, int, Any]]:
        """Yield what to write: numbers of rows, bytes of a row, and what is in them.

        Rows are as long as fields and what is between them allow, so nothing else is written.
        """
        whole = broadcast(self._numpy, values, self._dtype, self._shape)
        if isinstance(self._names, str):
            yield from self._of_one(self._names, whole)
            return
        for name in self._names:
            yield from self._of_one(name, whole[name])

    def _of_one(self, name: str, whole: Any) -> Iterator[tuple[Any, int, Any]]:
        numpy, itemsize = self._numpy, self._whole.itemsize
        kind, place = self._whole.fields[name][:2]
        unit = math.gcd(itemsize, place, kind.itemsize)
        inside = numpy.arange(place // unit, (place + kind.itemsize) // unit, dtype="uint64")
        values = math.prod(whole.shape) // self._count  # of an element
        count_max = max(1, _BLOCK_BYTES // max(1, kind.itemsize + inside.nbytes))
        for begin in range(0, self._count, count_max):
            end = min(begin + count_max, self._count)
            elements = numpy.arange(begin, end, dtype="uint64") * numpy.uint64(itemsize // unit)
            # `flat` copies these alone, also of values that are broadcast.
            array = whole.flat[begin * values : end * values]
            yield numpy.add.outer(elements, inside).reshape(-1), unit, array
