"""What an index of NumPy's names of an array in a file: a box of it, or rows by their numbers."""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._host_rows import broadcast
from hippogriff._slices import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Box(NamedTuple):
    """What integers and slices name, and as what NumPy shows an array of the selection's counts."""

    selection: Selection
    shown: tuple[Any, ...]


class Rows(NamedTuple):
    """What arrays of integers and masks name: rows that lie beside each other in the result."""

    shape: tuple[int, ...]  # of the result
    numbers: Any  # of NumPy's uint64, in one dimension
    elements: int  # of a row


class _Part(NamedTuple):
    """A dimension of the array (-1: none) and its places: a range, or an array of integers.

    An ellipsis for no dimensions has no places (None).
    """

    dimension: int
    places: Any


def find_part(numpy: Any, index: Any, shape: tuple[int, ...]) -> Box | Rows:
    """Find what an index names.

    Raises
    ------
    IndexError
        As NumPy does, in its words.
    TypeError, ValueError
        When a slice has what is no integer, or a step of 0; as NumPy does.
    """
    given = index if isinstance(index, tuple) else (index,)
    parts = tuple(_as_part(numpy, each) for each in given)
    if all(each is None or each is ... or isinstance(each, int | slice) for each in parts):
        box = _find_box(parts, shape)
        if box is not None:
            return box
    # It has no memory of its own. NumPy refuses there what it would, and knows the shape.
    found = numpy.broadcast_to(numpy.False_, shape)[parts]
    return _find_rows(numpy, parts, shape, found.shape)


def as_box(numpy: Any, values: Any, dtype: Any, box: Box, there: Any = None) -> Any:
    """Return values as they lie in a box, without a copy where they lie so already.

    `there` is what is in the box now, if some of that is to stay: what is between fields.
    """
    shown = (*box.shown, *(() if ... in box.shown else (...,)))
    turned = any(isinstance(each, slice) and each.step == -1 for each in shown)
    counts = box.selection.counts
    if turned or there is not None:
        array = numpy.empty(counts, dtype) if there is None else there
        array[shown] = broadcast(numpy, values, dtype, array[shown].shape)
        return array
    shape = numpy.broadcast_to(numpy.False_, counts)[shown].shape
    return numpy.ascontiguousarray(broadcast(numpy, values, dtype, shape).reshape(counts))


def _as_part(numpy: Any, part: Any) -> Any:
    """Return an integer, slice, None or ellipsis as it is, else an array, or what NumPy refuses."""
    if part is None or part is ... or type(part) is int or isinstance(part, slice):
        return part
    if isinstance(part, bool | numpy.bool_):
        return numpy.asarray(part)
    try:
        return operator.index(part)
    except TypeError:
        if isinstance(part, numpy.ndarray):
            return part
    array = numpy.asarray(part)
    if array.size == 0:
        return array.astype("int64")  # a list of none is not one of floats here
    return array if array.dtype.kind in "biu" else part


def _named(parts: Sequence[Any], shape: tuple[int, ...]) -> list[Any] | None:
    """Return the parts with slices for what the ellipsis, or nothing, names; None: too many."""
    missing = len(shape) - sum(map(_dimensions_of, parts))
    places = [number for number, part in enumerate(parts) if part is ...]
    if missing < 0 or len(places) > 1:
        return None
    if places and not missing:
        return list(parts)  # It stands between arrays all the same.
    place = places[0] if places else len(parts)
    return [*parts[:place], *[slice(None)] * missing, *parts[place + len(places) :]]


def _dimensions_of(part: Any) -> int:
    """Return how many dimensions of the array a part names."""
    if part is None or part is ...:
        return 0
    return int(part.ndim) if _is_mask(part) else 1


def _is_mask(part: Any) -> bool:
    return bool(getattr(part, "dtype", None) == "bool")


def _find_box(parts: Sequence[Any], shape: tuple[int, ...]) -> Box | None:
    """Return the box that is meant; None where NumPy has to say what is wrong."""
    every = _named(parts, shape)
    if every is None:
        return None
    selection = Selection([], [], [], [])
    shown: list[Any] = []
    lengths = iter(shape)
    for part in every:
        if part is None or part is ...:
            shown.append(part)
            continue
        length = next(lengths)
        if isinstance(part, slice):
            places = range(*part.indices(length))
            shown.append(slice(None, None, -1) if places.step < 0 else slice(None))
        elif -length <= part < length:
            places = range(part % length, part % length + 1)
            shown.append(0)
        else:
            return None
        count = len(places)
        first = min(places[0], places[-1]) if count else 0
        selection.starts.append(first)
        selection.counts.append(count)
        selection.steps.append(abs(places.step) if count > 1 else 1)
        selection.kept.append(isinstance(part, slice))
    if any(part is ... for part in parts) and ... not in shown:
        shown.append(...)  # With one NumPy gives an array of one element, and no number.
    return Box(selection, tuple(shown))


def _find_rows(
    numpy: Any, parts: Sequence[Any], shape: tuple[int, ...], shown: tuple[int, ...]
) -> Rows:
    if 0 in shown:
        return Rows(shown, numpy.empty(0, "uint64"), 1)
    every = list(_places(numpy, _named(parts, shape) or [], shape))
    strides = [math.prod(shape[number + 1 :]) for number in range(len(shape))]
    elements = 1
    # What is there as a whole behind all else belongs to a row,
    while not isinstance(every[-1].places, numpy.ndarray):
        dimension, places = every.pop()
        if places is None:
            continue
        length = 1 if dimension < 0 else shape[dimension]
        if places != range(length):
            # and of a part as much as rows of one size can begin with.
            if places.step == 1:
                unit = math.gcd(places.start, len(places), length)
                first = places.start // unit
                places = range(first, first + len(places) // unit)
                strides[dimension] *= unit
                elements *= unit
            every.append(_Part(dimension, places))
            break
        elements *= length
    found = _add_up(numpy, every, [stride // elements for stride in strides])
    return Rows(shown, numpy.ascontiguousarray(found, "uint64").reshape(-1), elements)


def _add_up(numpy: Any, parts: Sequence[_Part], strides: Sequence[int]) -> Any:
    """Return the numbers of the rows, with the dimensions where NumPy has them."""
    terms, arrays = [], []
    for number, (dimension, places) in enumerate(parts):
        if places is None:
            terms.append(numpy.zeros((), "int64"))
        elif isinstance(places, range):
            terms.append(numpy.arange(places.start, places.stop, places.step, "int64"))
        else:
            terms.append(places)
            arrays.append(number)
        if dimension >= 0:
            terms[-1] = terms[-1] * strides[dimension]
    together = functools.reduce(numpy.add, [terms[number] for number in arrays])
    first, end = arrays[0], arrays[-1] + 1
    if end - first == len(arrays):
        order = [*terms[:first], together, *terms[end:]]
    else:  # They have no common place, and come first.
        order = [together, *(term for number, term in enumerate(terms) if number not in arrays)]
    return functools.reduce(numpy.add.outer, order)


def _places(numpy: Any, parts: Sequence[Any], shape: tuple[int, ...]) -> Iterator[_Part]:
    """Yield the places that each part names, masks as arrays of integers."""
    dimension = 0
    for part in parts:
        if part is ...:
            yield _Part(-1, None)
        elif part is None:
            yield _Part(-1, range(1))
        elif isinstance(part, slice):
            yield _Part(dimension, range(*part.indices(shape[dimension])))
            dimension += 1
        elif _is_mask(part):
            if part.ndim == 0:
                yield _Part(-1, numpy.zeros(1, "int64"))  # one of none: there is no part
            for places in part.nonzero() if part.ndim else ():
                yield _Part(dimension, places)
                dimension += 1
        else:
            places = numpy.asarray(part).astype("int64")
            yield _Part(dimension, numpy.where(places < 0, places + shape[dimension], places))
            dimension += 1
