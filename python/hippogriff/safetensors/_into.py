"""Loading into arrays that are there already: a model's parameters, without a second copy."""

from __future__ import annotations

import bisect
import functools
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._flights import Flights
from hippogriff._frameworks import framework_of, make_framework
from hippogriff._host_memory import host_memory_bytes, share_out
from hippogriff._regions import note_changes
from hippogriff._report import Watch
from hippogriff._scatter import start_scatter
from hippogriff._transfer import Request
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._checks import Checks
from hippogriff.safetensors._holes import between_holes
from hippogriff.safetensors._load import Batch, by_offset, load_tensors
from hippogriff.safetensors._opened import opened_files
from hippogriff.safetensors._targets import copies_in, find_place, memory_of
from hippogriff.safetensors._tensor import Columns, TensorInfo
from hippogriff.safetensors._verify import room_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hippogriff._file import File
    from hippogriff._regions import Region, Streams
    from hippogriff._report import LoadReport
    from hippogriff._runtime import PathLike
    from hippogriff._transfer import Transfer
    from hippogriff.safetensors._header import Header
    from hippogriff.safetensors._verify import Verifier, Verify

    # What the parts of one transfer have in common: device, whether in host memory, and stream.
    _Key = tuple[Any, ...]

# So many bytes at most are converted at a time, or one tensor.
_CONVERTED_BYTES = 256 << 20
# While one transfer fills so many arrays the places of the next are looked up.
_TENSORS_TOGETHER = 512
_IN_FLIGHT = 4
# So many names that a target lacks are told, and so much of each.
_TOLD_MAX, _NAME_MAX = 100, 200


class LoadedNames(NamedTuple):
    """Names that did not meet their like, sorted; torch's `load_state_dict` returns the same."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def load_into(
    target: Any,
    paths: PathLike | Iterable[PathLike],
    *,
    strict: bool = True,
    convert: bool = False,
    verify: Verify = False,
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> LoadedNames:
    """Fill a module's or a mapping's arrays from safetensors files, in place.

    Parameters
    ----------
    target : torch.nn.Module or mapping of str to array
        Anything with ``state_dict()``, or the mapping itself. Arrays may be on different devices.
    paths : path-like or iterable of path-like
        As `load_file` takes them. Arrays that share memory are filled in the order of the file;
        after them those that are strided, or converted.
    strict : bool
        Refuse names that are only here or only there, but for arrays that are the memory of
        another one, as tied weights are. Shapes must always agree.
    convert : bool
        Convert element types, on the device, where nothing but precision is lost. Without it they
        must agree. Hooks of `load_state_dict` do not run.
    verify, host_memory, explain, progress
        As in `load_file`.

    Returns
    -------
    LoadedNames
        What was left out; nothing when `strict`.

    Raises
    ------
    InvalidArgument
        When names, shapes or element types do not agree, or an array cannot be filled: it is
        read-only, sparse, expanded, on a device without memory, as meta, or a copy that a hook of
        `state_dict()` makes. Nothing was loaded then.
    SafetensorError, ChecksumMismatch, SidecarError, IoError, ShortFile, DeviceError
        As `load_file`. Arrays may be filled in part then.
    """
    budget = host_memory_bytes(host_memory)
    state = target.state_dict() if hasattr(target, "state_dict") else target
    if not isinstance(state, Mapping):
        raise InvalidArgument(f"{type(target).__name__} is neither a module nor a mapping")
    for name in state:
        if not isinstance(name, str):
            raise InvalidArgument(f"{type(target).__name__} has the key {name!r:.100}, no name")
    with (
        Watch(explain, progress, host_memory=budget) as watch,
        opened_files(paths, verify) as files,
    ):
        found = _all_tensors([each.header for each in files])
        places, reasons = _find_places(state, found, convert)
        reasons += _copied(target, state, found)
        missing = sorted(state.keys() - found.keys() - _tied(state, places))
        names = LoadedNames(missing, sorted(found.keys() - state.keys()))
        _check(target, names if strict else LoadedNames([], []), reasons)
        note_changes(state[name] for name, place in places.items() if place is not None)
        watch.expect(sum(found[name].size_bytes for name in places))
        for file, header, verifier in files:
            wanted = [tensor for tensor in header.tensors.values() if tensor.name in state]
            watch.open(file.path)
            job = _Job(file, state, places, verifier, budget, watch)
            others = _fill(job, wanted)
            _convert(job, others)
    return names


def _all_tensors(headers: list[Header]) -> Mapping[str, TensorInfo]:
    """Return the tensors of all files by name; those of one as they are, which are many."""
    if len(headers) == 1:
        return headers[0].tensors
    return {name: tensor for header in headers for name, tensor in header.tensors.items()}


def _find_places(
    state: Mapping[str, Any], found: Mapping[str, TensorInfo], convert: bool
) -> tuple[dict[str, Region | None], list[str]]:
    """Find the memory that is filled straight, and what cannot be filled at all, and why."""
    places: dict[str, Region | None] = {}
    reasons = []
    streams: Streams = {}
    for name in filter(found.__contains__, state):
        places[name], reason = find_place(state[name], found[name], streams, convert=convert)
        if reason:
            reasons.append(_listed([name]) + reason)
    return places, reasons


def _copied(target: Any, state: Mapping[str, Any], found: Mapping[str, TensorInfo]) -> list[str]:
    copied = sorted(found.keys() & copies_in(target, state))
    why = ": state_dict() copies it, so that nothing would be loaded (load_file, load_state_dict)"
    return [_listed(copied) + why] if copied else []


def _tied(state: Mapping[str, Any], places: dict[str, Region | None]) -> set[str]:
    """Return names without tensors whose arrays are, as a whole, the memory of others with some.

    Files have weights that a module knows by several names once.
    """
    others = state.keys() - places.keys()
    if not others:
        return set()
    filled = {memory_of(state[name]) for name in places} - {None}
    return {name for name in others if memory_of(state[name]) in filled}


def _check(target: Any, names: LoadedNames, reasons: list[str]) -> None:
    """Say all that does not agree at once, as torch does."""
    wrong = list(reasons)
    if names.unexpected_keys:
        wrong.append("unexpected in the files: " + _listed(names.unexpected_keys))
    if names.missing_keys:
        wrong.append("missing in the files: " + ", ".join(names.missing_keys))
    if wrong:
        raise InvalidArgument(f"loading into {type(target).__name__}: " + "; ".join(sorted(wrong)))


def _listed(names: list[str]) -> str:
    """Put names of files after each other, which may be very many, and very long."""
    told = [
        name if len(name) <= _NAME_MAX else f"{name[:_NAME_MAX]}…" for name in names[:_TOLD_MAX]
    ]
    more = [f"and {len(names) - _TOLD_MAX} more"] if len(names) > _TOLD_MAX else []
    return ", ".join(told + more)


class _Job(NamedTuple):
    """A file, the arrays it fills, what they are compared with, the most host memory (0: any).

    `places` has the memory of what is filled straight; `watch` follows the transfers.
    """

    file: File
    state: Mapping[str, Any]
    places: Mapping[str, Region | None]
    verifier: Verifier | None
    host_memory: int
    watch: Watch


class _Part(NamedTuple):
    """A tensor of the file and the memory it belongs to."""

    tensor: TensorInfo
    region: Region


def _fill(job: _Job, tensors: list[TensorInfo]) -> list[TensorInfo]:
    """Read what lies as it should straight into place; return the rest."""
    rest = []
    shared: list[_Part] = []
    filled = _Filled()
    in_flight, each = share_out(job.host_memory, _IN_FLIGHT)
    takes: dict[_Key, Callable[[Batch], None] | None] = {}
    with Checks() as checks, Flights(in_flight, job.watch.wait) as flights:
        for begin in range(0, len(tensors), _TENSORS_TOGETHER):
            together: dict[_Key, list[_Part]] = {}
            for tensor in tensors[begin : begin + _TENSORS_TOGETHER]:
                region = job.places[tensor.name]
                if region is None:
                    rest.append(tensor)
                elif tensor.size_bytes == 0:
                    continue
                elif filled.add(region):
                    key = (
                        region.device or _device_of(job.state[tensor.name]),
                        region.host_memory,
                        region.stream,
                    )
                    together.setdefault(key, []).append(_Part(tensor, region))
                else:
                    shared.append(_Part(tensor, region))
            for key, parts in _between_holes(together):
                if key not in takes:
                    takes[key] = checks.of(job.verifier, parts[0].region)
                flights.make_room()
                batch = _batch_of(job, parts)
                flights.add(_start(job, parts, each, batch), _then(takes[key], batch))
    # What shares memory with something before it, as tied weights do, comes after it: what was
    # there before has been compared by then.
    for part in shared:
        with Checks() as checks, Flights(1, job.watch.wait) as flights:
            take = checks.of(job.verifier, part.region)
            batch = _batch_of(job, [part])
            flights.add(_start(job, [part], job.host_memory, batch), _then(take, batch))
    return rest


def _between_holes(together: dict[_Key, list[_Part]]) -> Iterator[tuple[_Key, list[_Part]]]:
    for key, parts in together.items():
        offsets = [part.tensor.offset for part in parts]
        sizes = [part.tensor.size_bytes for part in parts]
        for first, past in between_holes(offsets, sizes):
            yield key, parts[first:past]


def _batch_of(job: _Job, parts: list[_Part]) -> Batch | None:
    """Return parts as what is compared when they have landed; None unless they are verified."""
    if job.verifier is None:
        return None
    tensors, regions = map(list, zip(*parts, strict=True))
    addresses = array("Q", [region.address for region in regions])
    sizes = array("Q", [tensor.size_bytes for tensor in tensors])
    found = room_for(job.verifier, regions[0], sizes)
    return Batch(Columns.of(tensors), regions, addresses, sizes, found)


def _then(take: Callable[[Batch], None] | None, batch: Batch | None) -> Callable[[], object] | None:
    """Return what is to be done with a batch that has landed."""
    return None if take is None or batch is None else functools.partial(take, batch)


class _Filled:
    """The memory that is filled, or will be: where it begins and ends, in order."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, region: Region) -> bool:
        """Add a region; False when some of it was added before."""
        begin, end = region.address, region.address + region.size_bytes
        first = bisect.bisect_right(self._ends, begin)
        last = bisect.bisect_left(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]
        return first == last


def _start(job: _Job, parts: list[_Part], host_memory: int, batch: Batch | None) -> Transfer[int]:
    segments = [(tensor.offset, tensor.size_bytes, region.address) for tensor, region in parts]
    job.watch.start(len(parts), sum(tensor.size_bytes for tensor, _ in parts))
    request = Request("auto", region=parts[0].region, host_memory=host_memory)
    if job.verifier is not None and batch is not None and batch.found is not None:
        request.compute_checksums(batch.found, job.verifier.block_bytes)
    return start_scatter(job.file, segments, request, (parts, batch), loading=True)


def _convert(job: _Job, tensors: list[TensorInfo]) -> None:
    """Load tensors beside their places, a few at a time, and let the framework copy them."""
    state = job.state
    while tensors:
        count, size_bytes = 0, 0
        first = framework_of(state[tensors[0].name])
        while (
            count < len(tensors)
            and (count == 0 or size_bytes + tensors[count].size_bytes <= _CONVERTED_BYTES)
            and framework_of(state[tensors[count].name]) == first
        ):
            size_bytes += tensors[count].size_bytes
            count += 1
        framework = make_framework(*first)
        chosen = by_offset(tensors[:count])
        with Checks() as checks:
            landed = checks.of(job.verifier, framework.region)
            loaded = load_tensors(
                job.file,
                [chosen],
                framework,
                job.watch,
                landed,
                host_memory=job.host_memory,
                verifier=job.verifier,
            )
        for name, found in loaded.items():
            if first[0] == "pt":
                state[name].detach().copy_(found)
            else:
                state[name][...] = found
        tensors = tensors[count:]


def _device_of(array: Any) -> str:
    """Name the device of an array that shows only an address."""
    return f"cuda:{array.device.id}" if hasattr(getattr(array, "device", None), "id") else ""
