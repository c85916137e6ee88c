"""Loading to several GPUs: each gets what a plan says, and no byte is read twice."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._frameworks import make_framework
from hippogriff._host_memory import host_memory_bytes
from hippogriff._interrupts import outlast
from hippogriff._report import FileReport, Watch
from hippogriff._slices import Selection, fill, find_runs, resolve, target_of
from hippogriff.errors import Cancelled, ChecksumMismatch, InvalidArgument, OutOfHostMemory
from hippogriff.safetensors._checks import Checks
from hippogriff.safetensors._header import SafetensorError
from hippogriff.safetensors._load import Batch, by_offset, load_tensors, make_one
from hippogriff.safetensors._opened import opened_files
from hippogriff.safetensors._part import Blocks, extent_of, select
from hippogriff.safetensors._tensor import Columns, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hippogriff._file import File
    from hippogriff._frameworks import Framework
    from hippogriff._report import LoadReport
    from hippogriff._runtime import PathLike
    from hippogriff.safetensors._opened import Opened
    from hippogriff.safetensors._verify import Verifier, Verify

    Wishes = Mapping[str, Any] | Iterable[str] | None

# What has landed is handed on while the rest lands: the last batch nothing hides.
_HANDED_ON_BYTES = 256 << 20
# How often a waiting caller looks for Ctrl-C.
_SLICE_SECONDS = 0.05
# Devices that are told to stop do so within this time: each waits for its transfers, then for what
# is being compared. What does not keeps its memory until it does.
_STOP_SECONDS = 30.0


class _Part(NamedTuple):
    """A tensor or a slice of one: the array it becomes, and who wants it.

    `selection` says which elements, when there are some and they are not all.
    """

    whole: TensorInfo
    tensor: TensorInfo
    selection: Selection | None
    together: bool  # Whether its bytes lie so.
    devices: list[Any]


def load_plan(
    paths: PathLike | Iterable[PathLike],
    plan: Mapping[Any, Wishes],
    *,
    framework: str = "pt",
    verify: Verify = False,
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> dict[Any, dict[str, Any]]:
    """Load what several GPUs need; what several of them need is read once, and goes on from there.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        As `load_file` takes them.
    plan : mapping of device to wishes
        What each device gets: None for all tensors; an iterable of names; or a mapping of names
        to what is wanted of each: None for all of it, else integers and slices as in
        ``tensor[...]``.
    framework, verify, explain, progress
        As in `load_file`. Verified is where the bytes are read first, of a slice all blocks (256
        KiB) between the first and the last that it touches. The report has a line for each file and
        device, and one for what goes on from there to another.
    host_memory : int or str, optional
        As in `load_file`, for all devices together: each has an equal share, 4 MiB at least.

    Returns
    -------
    dict of device to dict of str to array
        With the devices as the plan names them. Each array owns its memory. Ordered after the work
        on the caller's current streams.

    Raises
    ------
    SafetensorError
        When a file is no safetensors file, no file has a tensor of the plan, or there is no such
        part of one; an IndexError as well where an integer is out of its dimension.
    InvalidArgument
        When a plan cannot be.
    ChecksumMismatch, SidecarError
        As `load_file`.
    Unsupported, IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
        As `load_file`; nothing is under way then.

    Examples
    --------
    >>> from hippogriff.safetensors import load_plan
    >>> plan = {
    ...     "cuda:0": {"embed.weight": None, "head.weight": slice(0, 8)},
    ...     "cuda:1": {"embed.weight": None, "head.weight": slice(8, 16)},
    ... }
    >>> shards = load_plan("model.safetensors", plan)
    """
    if not isinstance(plan, Mapping):
        raise InvalidArgument(f"the plan is no mapping of devices: {plan!r:.100}")
    makers = {device: make_framework(framework, device) for device in plan}
    if not makers:
        raise InvalidArgument("the plan names no device")
    budget = host_memory_bytes(host_memory, len(plan))
    loaded: dict[Any, dict[str, Any]] = {device: {} for device in plan}
    with (
        Watch(explain, progress, host_memory=budget) as watch,
        opened_files(paths, verify) as files,
    ):
        work = _share_out(files, plan)
        for parts in work.values():
            watch.expect(sum(part.tensor.size_bytes for each in parts for part in each.parts))
        _load_side_by_side(work, makers, loaded, watch, budget // len(plan))
    return loaded


def _add_reports(report: LoadReport, others: Iterable[LoadReport]) -> None:
    """Add what each device's part of a load tells, which went on at the same time."""
    for other in others:
        report.files += [file for file in other.files if file.tensors]
        report.waiting_seconds = max(report.waiting_seconds, other.waiting_seconds)


class _Work(NamedTuple):
    """What one device reads of one file."""

    file: File
    parts: list[_Part]
    verifier: Verifier | None


def _share_out(files: list[Opened], plan: Mapping[Any, Wishes]) -> dict[Any, list[_Work]]:
    """Say for each device what it reads: what several want goes to who has least to read so far."""
    wishes = {device: _by_name(device, wanted) for device, wanted in plan.items()}
    missing = {name for wanted in wishes.values() if wanted is not None for name in wanted}
    work: dict[Any, list[_Work]] = {device: [] for device in plan}
    read_bytes = dict.fromkeys(plan, 0)
    for file, header, verifier in files:
        mine: dict[Any, list[_Part]] = {device: [] for device in plan}
        for tensor in header.tensors.values():
            missing.discard(tensor.name)
            for part in _parts_of(tensor, file.path, wishes):
                reader = min(part.devices, key=lambda device: read_bytes[device])
                read_bytes[reader] += part.tensor.size_bytes
                mine[reader].append(part)
        for device, parts in mine.items():
            work[device].append(_Work(file, parts, verifier))
    if missing:
        raise SafetensorError(f"no file has the tensor {min(missing)!r:.100} of the plan")
    return work


def _by_name(device: Any, wanted: Wishes) -> dict[str, Any] | None:
    if wanted is None:
        return None
    if isinstance(wanted, str):
        raise InvalidArgument(f"what the plan has for {device!r} is one string, not names")
    try:
        named = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted)
    except TypeError:
        named = {None: None}
    if not all(isinstance(name, str) for name in named):
        raise InvalidArgument(
            f"what the plan has for {device!r} is neither None nor names: {wanted!r:.100}"
        )
    return named


def _parts_of(
    tensor: TensorInfo, path: str, wishes: Mapping[Any, dict[str, Any] | None]
) -> list[_Part]:
    """Return the different parts of a tensor that somebody wants, and who each."""
    parts: dict[str, _Part] = {}
    for device, wanted in wishes.items():
        if wanted is not None and tensor.name not in wanted:
            continue
        index = None if wanted is None else wanted[tensor.name]
        selection = None
        if index is not None:
            selection = select(index, tensor, path, packed_whole=True)
            if selection == resolve(..., tensor.shape):
                selection = None
        part = parts.setdefault(repr(selection), _cut(tensor, selection))
        part.devices.append(device)
    return list(parts.values())


def _cut(tensor: TensorInfo, selection: Selection | None) -> _Part:
    if selection is None:
        return _Part(tensor, tensor, None, True, [])
    if 0 in selection.counts:
        nothing = tensor._replace(shape=selection.shape, size_bytes=0)
        return _Part(tensor, nothing, None, True, [])
    runs = find_runs(extent_of(tensor), selection)
    size_bytes = runs.number * runs.size_bytes
    cut = tensor._replace(shape=selection.shape, size_bytes=size_bytes)
    if runs.number == 1:
        offset = tensor.offset + next(runs.offsets())
        return _Part(tensor, cut._replace(offset=offset), selection, True, [])
    return _Part(tensor, cut, selection, False, [])


class _Loader:
    """Loads one device's part, and hands on what others want too. Runs on a thread of its own."""

    def __init__(
        self,
        device: Any,
        makers: Mapping[Any, Framework],
        loaded: dict[Any, dict[str, Any]],
        watch: Watch,
        host_memory: int,
    ) -> None:
        self._device = device
        self._makers = makers
        self._loaded = loaded
        self._watch = watch
        self._host_memory = host_memory

    def load(self, work: list[_Work]) -> None:
        with Checks(self._watch.check) as checks:
            for each in work:
                self._load_one(each, checks)
        for maker in self._makers.values():
            maker.synchronize()

    def _load_one(self, work: _Work, checks: Checks) -> None:
        file, parts, verifier = work
        maker = self._makers[self._device]
        compare = checks.of(verifier, maker.region)
        others = {
            part.tensor.name: [each for each in part.devices if each != self._device]
            for part in parts
        }

        handed_on = {other: FileReport(file.path, str(other)) for other in self._makers}

        def hand_on(tensor: TensorInfo, array: Any) -> None:
            for other in others[tensor.name]:
                self._loaded[other][tensor.name] = self._makers[other].copy_of(array)
                handed_on[other].take(f"copied from {self._device}", tensor.size_bytes)

        def take(batch: Batch) -> None:
            if compare is not None:
                compare(batch)
            for tensor, array in zip(batch.tensors, batch.arrays, strict=True):
                hand_on(tensor, array)

        apart = [
            (part, part.selection)
            for part in parts
            if part.selection is not None and not (part.together and verifier is None)
        ]
        names = {part.tensor.name for part, _ in apart}
        loaded = load_tensors(
            file,
            [by_offset(part.tensor for part in parts if part.tensor.name not in names)],
            maker,
            self._watch,
            take,
            to=str(self._device),
            host_memory=self._host_memory,
            landing_bytes=_HANDED_ON_BYTES,
            verifier=verifier,
        )
        self._loaded[self._device].update(loaded)
        for part, selection in apart:
            self._watch.check()
            if verifier is None:
                array = self._fill(file, part, selection)
            else:
                array = self._load_blocks(file, part, Blocks(verifier, part.whole, selection))
            hand_on(part.tensor, array)
            self._loaded[self._device][part.tensor.name] = array
        self._watch.report.files += handed_on.values()

    def _load_blocks(self, file: File, part: _Part, blocks: Blocks) -> Any:
        """Load the blocks that hold a slice, compare them, and copy it out of them."""
        maker, name = self._makers[self._device], part.tensor.name
        array = make_one(maker, *part.tensor[:3])
        self._watch.expect(blocks.span.size_bytes - part.tensor.size_bytes)
        with blocks.telling(file.path), Checks(self._watch.check) as checks:
            loaded = load_tensors(
                file,
                [Columns.of([blocks.span])],
                maker,
                self._watch,
                checks.of(blocks.verifier, maker.region, blocks),
                to=str(self._device),
                host_memory=self._host_memory,
                verifier=blocks.verifier,
            )
        blocks.copy(loaded[name], array)
        maker.synchronize()  # Other devices copy it next, on streams of theirs.
        return array

    def _fill(self, file: File, part: _Part, selection: Selection) -> Any:
        maker, watch, size_bytes = self._makers[self._device], self._watch, part.tensor.size_bytes
        array = make_one(maker, *part.tensor[:3])
        watch.start(1, size_bytes)
        extent, target = extent_of(part.whole), target_of(maker, array)
        watch.expect(-size_bytes)  # It is told again, maybe with the rows around it.
        fill(file, extent, selection, target, watch, self._host_memory)
        return array


def _load_side_by_side(
    work: Mapping[Any, list[_Work]],
    makers: Mapping[Any, Framework],
    loaded: dict[Any, dict[str, Any]],
    watch: Watch,
    host_memory: int,
) -> None:
    """Let each device do its work on a thread, on the streams that are current here."""
    stopping = threading.Event()
    watches = {device: watch.part(stopping) for device in work}
    streams = [maker.current_stream() for maker in makers.values()]

    def load(device: Any) -> None:
        # A thread that could not be had leaves its task to another, which would begin it late.
        watches[device].check()
        with contextlib.ExitStack() as stack:
            for current in streams:
                stack.enter_context(current())
            _Loader(device, makers, loaded, watches[device], host_memory).load(work[device])

    _run_all([functools.partial(load, device) for device in work], stopping)
    _add_reports(watch.report, [each.report for each in watches.values()])


def _run_all(tasks: list[Callable[[], None]], stopping: threading.Event) -> None:
    """Run tasks on threads; when one fails, or Ctrl-C comes, stop the others and raise that.

    Of several failures a mismatch is raised, which is the worst news, with the others as its notes.
    """
    pool = concurrent.futures.ThreadPoolExecutor(len(tasks), "hippogriff-load")
    futures: list[concurrent.futures.Future[None]] = []
    try:
        try:
            futures.extend(_submit(pool, task) for task in tasks)
            while not _failures(futures) and not _wait(futures, _SLICE_SECONDS):
                pass
        finally:
            if len(futures) < len(tasks) or _failures(futures) or not _wait(futures, 0):
                stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            outlast(functools.partial(_wait, futures), _STOP_SECONDS)
    except BaseException as interrupt:
        for error in _failures(futures):
            if isinstance(error, ChecksumMismatch):
                interrupt.add_note(f"found before: {error}")
        raise
    errors = _failures(futures)
    told = [error for error in errors if not isinstance(error, Cancelled)] or errors[:1]
    told.sort(key=lambda error: not isinstance(error, ChecksumMismatch))
    for error in told[1:]:
        told[0].add_note(f"on another device: {error}")
    for error in told:
        raise error


def _submit(
    pool: concurrent.futures.ThreadPoolExecutor, task: Callable[[], None]
) -> concurrent.futures.Future[None]:
    try:
        return pool.submit(task)
    except RuntimeError as error:  # as it tells that there is no thread
        words = f"start a thread for each device: {error}"
        raise OutOfHostMemory(words, operation="start a thread") from error


def _wait(futures: list[concurrent.futures.Future[None]], seconds: float) -> bool:
    return not concurrent.futures.wait(futures, seconds).not_done


def _failures(futures: list[concurrent.futures.Future[None]]) -> list[BaseException]:
    ended = [each for each in futures if each.done() and not each.cancelled()]
    return [error for each in ended if (error := each.exception()) is not None]
