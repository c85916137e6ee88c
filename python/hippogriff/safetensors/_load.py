"""Loading: which parts of which files go where, in as few transfers as keep everything busy."""

from __future__ import annotations

import contextlib
import functools
import itertools
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._collector import Pause
from hippogriff._file import small_bytes
from hippogriff._flights import Flights
from hippogriff._frameworks import make_array, make_framework
from hippogriff._host_memory import host_memory_bytes, share_out
from hippogriff._report import Watch
from hippogriff._scatter import interleave, start_segments
from hippogriff._transfer import Request
from hippogriff.errors import HippogriffError
from hippogriff.safetensors._checks import Checks
from hippogriff.safetensors._files import (
    check_backend,
    expect_new,
    expect_promised,
    open_shard,
    read_header,
    shards_of,
    stream_file,
)
from hippogriff.safetensors._holes import between_holes, is_hole
from hippogriff.safetensors._tensor import Columns
from hippogriff.safetensors._verify import Follower, open_verifiers, room_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hippogriff._file import File
    from hippogriff._frameworks import Framework
    from hippogriff._report import LoadReport
    from hippogriff._runtime import PathLike
    from hippogriff.safetensors._files import Shard
    from hippogriff.safetensors._header import Header
    from hippogriff.safetensors._tensor import TensorInfo
    from hippogriff.safetensors._verify import Verifier, Verify

# While a batch is on its way to a GPU the arrays of the next are made, some microseconds each: a
# batch is sent off when making it has taken about as long as moving it will. The first is small, so
# that it is on its way soon, and those after it grow; large arrays take no time to make, and the
# more there are in one transfer the better.
_FIRST_BYTES = 32 << 20
_BATCH_GROWTH = 8
_BATCH_BYTES = 1 << 40
# What is done with a batch that has landed is done while others fly, so there should be some; but
# where one ends and the next begins a GPU's link waits. To compare this much takes a GPU some
# thousandths of a second.
_LANDING_BYTES = 2 << 30
_FIRST_TENSORS, _BATCH_TENSORS, _BATCH_TENSORS_MAX = 128, 1024, 8192
# So many that a file of few bytes has are read at once.
_SMALL_TENSORS = 64
# Some wait for their turn, so that the next one begins as soon as one ends.
_IN_FLIGHT = 6
# To host memory all goes in one transfer, which is as wide as there are cores for: beside others it
# would be narrow until they end. Of what is compared so much does, so that a difference is told
# long before the end of a large file.
_HOST_LANDING_BYTES = 8 << 30
_JOINED_BYTES = 512 << 20  # of what is joined to that at most


class Batch(NamedTuple):
    """Tensors that one transfer loads, and the arrays they become."""

    columns: Columns
    arrays: list[Any]
    addresses: array[int]
    sizes: array[int]
    found: array[int] | None = None  # checksums that are computed as the bytes land

    @property
    def tensors(self) -> list[TensorInfo]:
        """Each as an object, made anew."""
        return self.columns.tensors()


def load_tensors(
    file: File,
    pieces: Iterable[Columns],
    framework: Framework,
    watch: Watch | None = None,
    landed: Callable[[Batch], object] | None = None,
    to: str = "",
    host_memory: int = 0,
    landing_bytes: int | None = None,
    verifier: Verifier | None = None,
) -> dict[str, Any]:
    """Load tensors of an open file, given in the order of their data, into arrays of their own.

    They come some at a time: to a GPU the first are on their way before the next are asked for; to
    host memory all arrays are made first, and filled at once. `landed` is called for each batch
    once it is there; batches have about `landing_bytes` at most then. `to` names the device in the
    report; `host_memory` is the most of the pinbuffer that all use together, in bytes, 0 for any.
    What lands in host memory is hashed on the way in blocks as `verifier` has them. Whatever ends
    it early stops what is under way first.
    """
    watch = watch or Watch(progress=False)
    watch.open(file.path, to)
    names: list[str] = []
    loaded: list[Any] = []
    most_bytes = _most_bytes(framework, landed, landing_bytes)
    in_flight, each = share_out(host_memory, _IN_FLIGHT)
    # Arrays are what the collector looks through, again and again the more there are: of 10,000 it
    # took a fifth of the time in a process that has imported torch.
    with Flights(in_flight, watch.wait) as flights, Pause() as pause:
        for group, arrays, addresses in _made_of(pieces, framework, most_bytes, pause):
            pause.look()
            names += group.names
            loaded += arrays
            found = room_for(verifier, framework.region, group.sizes)
            batch = Batch(group, arrays, array("Q", addresses), array("Q", group.sizes), found)
            watch.start(len(arrays), sum(group.sizes))
            first = len(names) == len(arrays)
            if first and landed is None and _load_small(file, batch, framework, watch):
                continue
            then = None if landed is None else functools.partial(landed, batch)
            segments = _segments(batch)
            if segments:
                flights.make_room()
                request = _request(batch, framework, each, verifier)
                transfer = start_segments(file, segments, request, (arrays, found), loading=True)
                flights.add(transfer, then)
            elif then is not None:
                then()
        # While the last are on their way.
        return dict(zip(names, loaded, strict=True))


def _most_bytes(framework: Framework, landed: object, landing_bytes: int | None) -> int:
    if landed is None:
        return _BATCH_BYTES
    on_host = framework.region.host_memory
    return landing_bytes or (_HOST_LANDING_BYTES if on_host else _LANDING_BYTES)


class _Made(NamedTuple):
    """Tensors and their arrays, of which nothing has been loaded."""

    columns: Columns
    arrays: list[Any]
    addresses: list[int]


def _made_of(
    pieces: Iterable[Columns], framework: Framework, most_bytes: int, pause: Pause
) -> Iterator[_Made]:
    if not framework.region.host_memory:
        return _made(framework, _batches(pieces, most_bytes), pause)
    # Memory that is asked of the kernel waits for the threads that fill what it gave before.
    groups = _batches(pieces, min(most_bytes, _JOINED_BYTES))
    return _together(list(_made(framework, groups, pause)), most_bytes)


def _made(framework: Framework, groups: Iterable[Columns], pause: Pause) -> Iterator[_Made]:
    for group in groups:
        pause.look()
        framework.prepare(group.sizes)
        arrays = make_arrays(framework, group)
        yield _Made(group, arrays, framework.addresses(arrays))


def _together(groups: Iterable[_Made], bytes_max: int) -> Iterator[_Made]:
    """Join those between which there is no hole, up to so many bytes."""
    joined, size, end = _nothing_made(), 0, 0
    for group in groups:
        more = sum(group.columns.sizes)
        hole = is_hole(group.columns.offsets[0] - end)
        if joined.arrays and (hole or size + more > bytes_max):
            yield joined
            joined, size = _nothing_made(), 0
        joined.columns.extend(group.columns)
        joined.arrays.extend(group.arrays)
        joined.addresses.extend(group.addresses)
        size += more
        end = group.columns.offsets[-1] + group.columns.sizes[-1]
    if joined.arrays:
        yield joined


def _nothing_made() -> _Made:
    return _Made(Columns([], [], [], [], []), [], [])


def _load_small(file: File, batch: Batch, framework: Framework, watch: Watch) -> bool:
    """Load the first batch on this thread, if it is small; False: it is not, or a read failed."""
    region, sizes, offsets = framework.region, batch.sizes, batch.columns.offsets
    size = sum(sizes)
    if len(sizes) > _SMALL_TENSORS or not region.host_memory or not 0 < size <= small_bytes(region):
        return False
    if list(itertools.accumulate(sizes[:-1], initial=offsets[0])) != list(offsets):
        return False
    read = functools.partial(file.read_small_parts, batch.addresses, sizes, offsets[0])
    return watch.read(size, read, expected=True)


def _request(
    batch: Batch, framework: Framework, host_memory: int, verifier: Verifier | None
) -> Request:
    request = Request("auto", region=framework.region, host_memory=host_memory)
    if verifier is not None and batch.found is not None:
        request.compute_checksums(batch.found, verifier.block_bytes)
    return request


def _segments(batch: Batch) -> array[int]:
    """Say where in the file is what, and where it goes, without tensors of no bytes."""
    columns = [array("Q", batch.columns.offsets), batch.sizes, batch.addresses]
    if 0 in batch.columns.sizes:
        columns = [array("Q", itertools.compress(each, batch.sizes)) for each in columns]
    return interleave(*columns)


def make_arrays(framework: Framework, tensors: Columns) -> list[Any]:
    """Make the arrays of tensors; what the framework cannot have is told with the name."""
    try:
        return framework.empties(tensors.dtypes, tensors.shapes)
    except (HippogriffError, ValueError, OverflowError, MemoryError):
        make = functools.partial(make_one, framework)
        return list(map(make, tensors.names, tensors.dtypes, tensors.shapes))


def make_one(framework: Framework, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """Make the array of a tensor or of a part of it, as `make_arrays`."""
    try:
        return make_array(framework, dtype, shape)
    except HippogriffError as error:
        raise type(error)(f"tensor {name!r:.100}: {error}") from None


def by_offset(tensors: Iterable[TensorInfo]) -> Columns:
    """Return tensors in the order of their data, an empty one before what begins where it does."""
    return Columns.of(sorted(tensors, key=lambda tensor: (tensor.offset, tensor.size_bytes)))


class _Gathering:
    """A batch in the making: the rows of it, and how large the next ones may be."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._most_bytes = _FIRST_BYTES
        self._many = _FIRST_TENSORS
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.rows = Columns([], [], [], [], [])
        self.size_bytes = 0

    def take(self, piece: Columns, sums: Sequence[int], begin: int) -> int:
        """Take rows of a piece from one on, as many as fit; return where the next one begins.

        `sums` has the bytes before each row of the piece, and of all.
        """
        count, base = len(self.rows.names), sums[begin] - self.size_bytes
        several = bisect_left(sums, base + _FIRST_BYTES, begin)
        end = min(
            bisect_left(sums, base + self._most_bytes, begin),
            max(several, begin + self._many - count),
            begin + _BATCH_TENSORS_MAX - count,
            len(piece.names),
        )
        self.rows.extend(piece.cut(begin, end))
        self.size_bytes += sums[end] - sums[begin]
        return end

    def finish(self) -> Columns:
        """Return the batch; the next may be larger."""
        batch = self.rows
        self._begin_anew()
        self._most_bytes = min(self._most_bytes * _BATCH_GROWTH, self._bytes_max)
        self._many = min(2 * self._many, _BATCH_TENSORS)
        return batch


def _batches(pieces: Iterable[Columns], bytes_max: int) -> Iterator[Columns]:
    """Cut an ascending stream where a hole is, or where a batch is large enough."""
    gathering, end = _Gathering(bytes_max), 0
    for whole in pieces:
        for first, past in between_holes(whole.offsets, whole.sizes):
            piece = whole if past - first == len(whole.names) else whole.cut(first, past)
            if gathering.rows.names and is_hole(piece.offsets[0] - end):
                yield gathering.finish()
            sums = list(itertools.accumulate(piece.sizes, initial=0))
            position, count = gathering.take(piece, sums, 0), len(piece.names)
            while position < count:
                yield gathering.finish()
                position = gathering.take(piece, sums, position)
            end = piece.offsets[-1] + piece.sizes[-1]
    if gathering.rows.names:
        yield gathering.finish()


def load_file(
    filename: PathLike | Iterable[PathLike],
    device: object = "cpu",
    *,
    backend: str | None = None,
    framework: str = "pt",
    verify: Verify = False,
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Load all tensors of a safetensors file, or of several.

    Parameters
    ----------
    filename : path-like or iterable of path-like
        Files, each loaded once; an index of shards (``model.safetensors.index.json``) stands for
        its files.
    device : str, int or torch.device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``1``; None: the CPU, for CuPy the current GPU.
    backend : {"mmap", "pread"}, optional
        How the reference would read: without effect here.
    framework : {"pt", "np", "cupy"}
        Whose arrays. NumPy's and CuPy's bfloat16 and float8 need ml_dtypes.
    verify : bool or path-like
        Compare all bytes, where they are loaded, with what `hippogriff checksum` or
        ``save_file(..., checksum=True)`` made: beside each file, or in this file or folder.
    host_memory : int or str, optional
        The most pinned host memory that the load uses at one time, in bytes or like ``"64MiB"``;
        4 MiB is the least. Without it only ``HIPPOGRIFF_PINBUFFER`` bounds it. Tensors on the CPU
        need none.
    explain : bool or callable
        True prints for each file the route, GB/s, where the bytes came from and the time spent
        waiting; a callable is given the `LoadReport`.
    progress : bool, optional
        Whether to show a bar on stderr; without it on a terminal, when loading takes a while.

    Returns
    -------
    dict of str to array
        Each array owns its memory. Ordered after the work on torch's or CuPy's current stream.

    Raises
    ------
    SafetensorError
        When a file is none, a name is in two of them, or not in the one that an index says.
    InvalidArgument
        When `filename` is no path, `backend` no backend, or `host_memory` no size or too small.
    Unsupported
        When the framework is not installed or has no such element type.
    ChecksumMismatch, SidecarError
        When the checksums are not of what was loaded (names tensors and bytes), or are damaged.
    IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
        When loading fails; nothing is under way then.
    """
    check_backend(backend)
    budget = host_memory_bytes(host_memory)
    maker = make_framework(framework, device)
    loaded: dict[str, Any] = {}
    with Watch(explain, progress, host_memory=budget) as watch, contextlib.ExitStack() as stack:
        sources = _open(filename, verify, stack)
        for source in sources:
            watch.expect(source.file.size)
        _prefetch(sources, maker)
        checks = stack.enter_context(Checks())
        for source in sources:
            tensors = _load_all(source, maker, watch, checks, budget)
            expect_new(loaded, tensors, source.file)
            loaded = _joined(loaded, tensors)
    return loaded


def _prefetch(sources: Iterable[_Source], maker: Framework) -> None:
    if maker.starts_gpu:
        with contextlib.suppress(HippogriffError):  # It is a hint.
            for source in sources:
                source.file.prefetch()


def _joined(loaded: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """Add to what is loaded; of one file nothing is left to do once all is there."""
    if not loaded:
        return tensors
    loaded.update(tensors)
    return loaded


class _Source(NamedTuple):
    """A file, what it is compared with, and its header where that had to be read before."""

    file: File
    verifier: Verifier | None
    header: Header | None


def _open(
    paths: PathLike | Iterable[PathLike], verify: Verify, stack: contextlib.ExitStack
) -> list[_Source]:
    """Open all files before anything is loaded, so that a missing one is told at once.

    So is a tensor that an index says is there: headers are read before anything else for that.
    """
    shards = shards_of(paths)
    files = [stack.enter_context(open_shard(shard)) for shard in shards]
    verifiers = open_verifiers(files, verify)
    headers = [_read_promised(*each) for each in zip(shards, files, strict=True)]
    return list(map(_Source, files, verifiers, headers))


def _read_promised(shard: Shard, file: File) -> Header | None:
    if not shard.promised:
        return None
    header = read_header(file)
    expect_promised(shard, header)
    return header


def _load_all(
    source: _Source, maker: Framework, watch: Watch, checks: Checks, host_memory: int
) -> dict[str, Any]:
    """Load a file's tensors, to a GPU the first before the last are known."""
    file, verifier, header = source
    follower = None if verifier is None else Follower(verifier)
    landed = checks.of(verifier, maker.region, follower)
    pieces = stream_file(file) if header is None else [Columns.of(header.tensors.values())]
    tensors = load_tensors(
        file, pieces, maker, watch, landed, host_memory=host_memory, verifier=verifier
    )
    if follower is not None:
        follower.finish()
    return tensors
