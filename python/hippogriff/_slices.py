"""Parts of an array in a file: which bytes an index names, and reading only those."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._file import small_bytes
from hippogriff._flights import Flights
from hippogriff._frameworks import make_array
from hippogriff._host_memory import share_out
from hippogriff._scatter import start_scatter
from hippogriff._transfer import Request
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hippogriff._file import File
    from hippogriff._flights import Wait
    from hippogriff._frameworks import Framework
    from hippogriff._regions import Region
    from hippogriff._report import Watch
    from hippogriff._transfer import Transfer

# Of arrays in storage, in one call.
CALL_BYTES = 64 << 20
_LINE_BYTES_MAX = 1 << 20
# So few are read on the calling thread: a transfer would take longer to start.
_SMALL_RUNS = 16
# Runs of bytes are read one by one while they are few, or so far apart (from one's beginning to the
# next one's) that reading what is between takes longer than one more copy.
_RUNS_FEW = 256
_RUN_DISTANCE_BYTES = 64 << 10
_RUN_DISTANCE_BYTES_HOST = 8 << 10
# A hole larger than this is not read.
_GAP_BYTES = 1 << 20
_PARTS_MAX = 65536
_IN_FLIGHT = 8
# What is cut out of the rows around it comes in blocks of this size, two at a time.
_BLOCK_BYTES = 8 << 20


class Extent(NamedTuple):
    """A C-contiguous array in a file. `dtype` is what `Framework.empty` takes."""

    offset: int
    shape: tuple[int, ...]
    dtype: Any
    itemsize_bytes: int

    @property
    def size_bytes(self) -> int:
        """The bytes of all elements."""
        return math.prod(self.shape) * self.itemsize_bytes

    @property
    def strides(self) -> list[int]:
        """Bytes from one index of a dimension to the next."""
        strides = [self.itemsize_bytes] * len(self.shape)
        for number in range(len(self.shape) - 2, -1, -1):
            strides[number] = strides[number + 1] * self.shape[number + 1]
        return strides


class Selection(NamedTuple):
    """What an index names of each dimension, and whether the dimension stays."""

    starts: list[int]
    counts: list[int]
    steps: list[int]
    kept: list[bool]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return tuple(itertools.compress(self.counts, self.kept))


class Runs(NamedTuple):
    """The bytes of a selection: `number` runs of `size_bytes`, in the dimensions before `outer`."""

    number: int
    size_bytes: int
    outer: int
    places: list[range]  # For each outer dimension the offsets in it; those of the others first.

    def offsets(self) -> Iterator[int]:
        """Return where the runs begin, ascending, from the array's first byte."""
        return map(sum, itertools.product(*self.places))


class Target(NamedTuple):
    """A C-contiguous array to fill. Without a framework nothing can be assigned to its parts."""

    array: Any
    address: int
    region: Region
    framework: Framework | None


def target_of(framework: Framework, array: Any) -> Target:
    """Return an array that a framework made as what is to be filled."""
    return Target(array, framework.address(array), framework.region, framework)


def resolve(index: Any, shape: tuple[int, ...]) -> Selection:
    """Find what an index of integers, slices and at most one ellipsis names.

    Raises
    ------
    InvalidArgument
        When it has anything else, or a step that is not positive.
    IndexError
        When an integer is out of its dimension, or there are too many.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    places = [number for number, part in enumerate(parts) if part is Ellipsis]
    if len(places) > 1:
        raise InvalidArgument("an index can have only one ellipsis")
    missing = len(shape) - (len(parts) - len(places))
    if missing < 0:
        raise IndexError(f"too many indices for the shape {shape}")
    place = places[0] if places else len(parts)
    parts[place : place + len(places)] = [slice(None)] * missing
    starts, counts, steps = [], [], []
    for number, (part, length) in enumerate(zip(parts, shape, strict=True)):
        start, stop, step = _resolve_one(part, length, number)
        count = len(range(start, stop, step))
        starts.append(start)
        counts.append(count)
        steps.append(step if count > 1 else 1)
    return Selection(starts, counts, steps, [isinstance(part, slice) for part in parts])


def is_basic(index: Any) -> bool:
    """Whether an index has nothing but integers, slices and at most one ellipsis."""
    parts = index if isinstance(index, tuple) else (index,)
    ellipses = sum(part is Ellipsis for part in parts)
    return ellipses <= 1 and all(
        part is Ellipsis or isinstance(part, slice) or _is_integer(part) for part in parts
    )


def _is_integer(part: Any) -> bool:
    if type(part) is int:
        return True
    return not _is_truth(part) and hasattr(part, "__index__") and getattr(part, "shape", ()) == ()


def _is_truth(part: Any) -> bool:
    return isinstance(part, bool) or str(getattr(part, "dtype", "")).endswith("bool")


def _resolve_one(part: Any, length: int, number: int) -> tuple[int, int, int]:
    if isinstance(part, slice):
        try:
            start, stop, step = part.indices(length)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{part!r:.100}: {error}") from None
        if step < 1:
            raise InvalidArgument(f"a slice's step is {step}; it must be positive")
        return start, stop, step
    try:
        if type(part) is not int and _is_truth(part):
            raise TypeError
        place = operator.index(part)
    except TypeError:
        words = f"an index is an integer, a slice or ..., not {part!r:.100}"
        raise InvalidArgument(words) from None
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of the {length} of dimension {number}")
    return place % length, place % length + 1, 1


def find_runs(extent: Extent, selection: Selection) -> Runs:
    """Find which bytes of a selection lie together."""
    starts, counts, steps, _ = selection
    strides = extent.strides
    size_bytes, outer = extent.itemsize_bytes, len(extent.shape)
    while outer > 0 and steps[outer - 1] == 1:
        outer -= 1
        size_bytes *= counts[outer]
        if counts[outer] != extent.shape[outer]:
            break
    begin = sum(map(operator.mul, starts[outer:], strides[outer:]))
    places = [range(begin, begin + 1), *_places(strides, selection, outer)]
    return Runs(math.prod(counts[:outer]), size_bytes, outer, places)


def find_pieces(
    extent: Extent, selection: Selection, address: int
) -> Iterator[tuple[int, int, int]]:
    """Yield calls that move a selection of an array in storage: offset, address in memory, bytes.

    An interrupt is seen between them; no line is cut.
    """
    runs = find_runs(extent, selection)
    if runs.size_bytes == 0:
        return
    addresses = itertools.count(address, runs.size_bytes)
    for offset, memory in zip(runs.offsets(), addresses, strict=False):
        for begin, size in _cut_range(offset, runs.size_bytes):
            yield begin, memory + begin - offset, size


def _cut_range(offset: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    end = offset + size_bytes
    while offset < end:
        stop = min(end, (offset + CALL_BYTES) // _LINE_BYTES_MAX * _LINE_BYTES_MAX)
        yield offset, stop - offset
        offset = stop


def _places(strides: list[int], selection: Selection, outer: int) -> list[range]:
    """Return the offsets that the selection has in each of the dimensions before `outer`."""
    starts, counts, steps, _ = selection
    return [
        range(start * stride, (start + n * step) * stride, step * stride)
        for start, n, step, stride in zip(
            starts[:outer], counts[:outer], steps[:outer], strides[:outer], strict=True
        )
    ]


def fill(
    file: File,
    extent: Extent,
    selection: Selection,
    target: Target,
    watch: Watch,
    host_memory: int = 0,
) -> None:
    """Read a selection into an array of its shape; what a failure leaves in it is undefined.

    `watch` is told what will be read, and what was, by transfers or by this thread itself.
    `host_memory` is the most of the pinbuffer that its transfers use together, in bytes; 0: any.
    """
    if 0 in selection.counts or extent.itemsize_bytes == 0:
        return
    runs = find_runs(extent, selection)
    if target.framework is not None and runs.number > _RUNS_FEW:
        # From the first run's beginning to the last one's.
        distance = sum(place[-1] - place[0] for place in runs.places)
        host = target.region.host_memory
        near = _RUN_DISTANCE_BYTES_HOST if host else _RUN_DISTANCE_BYTES
        if distance // (runs.number - 1) <= near:
            watch.expect(_bytes_of_blocks(extent, selection))
            _cut_from_blocks(file, extent, selection, target, host_memory, watch.wait)
            return
    size_bytes = runs.number * runs.size_bytes
    if runs.number <= _SMALL_RUNS and size_bytes <= small_bytes(target.region):
        read_small = functools.partial(_read_small, file, runs, extent.offset, target)
        if watch.read(size_bytes, read_small):
            return
    watch.expect(size_bytes)
    in_flight, each = share_out(host_memory, _IN_FLIGHT)
    with Flights(in_flight, watch.wait) as flights:
        for parts in _batches(runs, extent.offset, target.address):
            flights.make_room()
            request = Request("auto", region=target.region, host_memory=each)
            flights.add(_start(file, parts, request, target.array))


def _read_small(file: File, runs: Runs, offset: int, target: Target) -> bool:
    """Read a little at once, on this thread; False: failed, and a transfer says why."""
    address = target.address
    for begin in runs.offsets():
        part = target.region.at(address, runs.size_bytes)
        if not file.read_small(part, offset + begin):
            return False
        address += runs.size_bytes
    return True


def _start(
    file: File, parts: list[tuple[int, int, int]], request: Request, keep: object
) -> Transfer[int]:
    return start_scatter(file, parts, request, keep, loading=True)


def _batches(runs: Runs, offset: int, address: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield parts of a transfer each: cut where a hole is, or where they are many."""
    parts: list[tuple[int, int, int]] = []
    end = 0
    for begin in map(offset.__add__, runs.offsets()):
        if parts and (begin - end > _GAP_BYTES or len(parts) == _PARTS_MAX):
            yield parts
            parts = []
        parts.append((begin, runs.size_bytes, address))
        end = begin + runs.size_bytes
        address += runs.size_bytes
    yield parts


def _cut_from_blocks(
    file: File,
    extent: Extent,
    selection: Selection,
    target: Target,
    host_memory: int,
    wait: Wait,
) -> None:
    """Read the rows that hold the selection, a block at a time, and copy it out of them."""
    framework = target.framework
    assert framework is not None
    split = _row_dimension(extent, selection)
    start, count, step = (each[split] for each in selection[:3])
    row_bytes = extent.strides[split]
    count_max = min(count, max(1, _BLOCK_BYTES // (row_bytes * step)))
    shape = ((count_max - 1) * step + 1, *extent.shape[split + 1 :])
    buffers = [make_array(framework, extent.dtype, shape) for _ in range(2)]
    inside = _inside(selection, split + 1)
    whole = target.array.reshape(selection.counts)
    numbers = itertools.product(*map(range, selection.counts[:split]))
    offsets = map(sum, itertools.product(*_places(extent.strides, selection, split)))
    blocks = itertools.product(zip(numbers, offsets, strict=True), range(0, count, count_max))
    in_flight, each = share_out(host_memory, 2)
    with Flights(in_flight, wait) as flights:
        for turn, ((place, offset), first) in enumerate(blocks):
            flights.make_room()
            buffer = buffers[turn % 2]
            end = min(first + count_max, count)
            rows = (end - first - 1) * step + 1
            begin = extent.offset + offset + (start + first * step) * row_bytes
            part = (begin, rows * row_bytes, framework.address(buffer))
            cut = buffer[(slice(0, rows, step), *inside)]
            take = functools.partial(operator.setitem, whole, (*place, slice(first, end)), cut)
            request = Request("auto", region=framework.region, host_memory=each)
            flights.add(_start(file, [part], request, buffer), take)


def _bytes_of_blocks(extent: Extent, selection: Selection) -> int:
    """Return how much is read of the rows that hold the selection, or a little more."""
    split = _row_dimension(extent, selection)
    rows = (selection.counts[split] - 1) * selection.steps[split] + 1
    return math.prod(selection.counts[:split]) * rows * extent.strides[split]


def _row_dimension(extent: Extent, selection: Selection) -> int:
    """Return the outermost dimension of which blocks hold some rows, and no hole too large."""
    split, span_bytes = len(extent.shape) - 1, extent.itemsize_bytes
    for number in range(split, -1, -1):
        pitch_bytes = extent.strides[number] * selection.steps[number]
        if pitch_bytes > _BLOCK_BYTES or pitch_bytes - span_bytes > _GAP_BYTES:
            break
        split = number
        span_bytes += (selection.counts[number] - 1) * pitch_bytes
    return split


def _inside(selection: Selection, outer: int) -> list[slice]:
    """Return what is to be taken of the dimensions from `outer` on, all of which stay."""
    return [
        slice(start, start + (count - 1) * step + 1, step)
        for start, count, step in zip(
            selection.starts[outer:], selection.counts[outer:], selection.steps[outer:], strict=True
        )
    ]
