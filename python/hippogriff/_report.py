"""What a load or a save tells: a bar while it goes on, and a report of how it went."""

from __future__ import annotations

import contextlib
import functools
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hippogriff._console import printable
from hippogriff._progress import bar_for, check_progress
from hippogriff._scatter import asked_bytes
from hippogriff._sizes import format_size
from hippogriff.errors import Cancelled

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from hippogriff._handle import Progress
    from hippogriff._progress import Bar
    from hippogriff._transfer import ProgressCallback, Transfer

    Explain = bool | Callable[["LoadReport"], object]

# How the printed report tells of a route: of what is read, and of what is written.
_WORDS = {
    "direct": ("read straight into place", "written straight from the array"),
    "caller": ("read by the calling thread", "written by the calling thread"),
}


@dataclass
class FileReport:
    """How the tensors, or arrays, of one file were loaded or saved.

    Attributes
    ----------
    path : str
        The file.
    device : str
        Where to, where that is several.
    tensors, bytes : int
        How many, and their bytes that were read, not copied from another device; of a save the
        bytes of all of the file.
    bytes_by_route : dict of str to int
        For example ``{"mapped": 805306368, "pipelined": 3489660928}``: what each moved, also
        where several carried one transfer, with the rows around a slice where it was cut out of
        these. ``"direct"`` reads nothing else; the other routes are told with the gaps between
        arrays or rows (1 MiB each at most), of which they read all or some. Beside the routes of
        transfers, ``"caller"`` is what the calling thread itself read or wrote,
        ``"decompressed"`` what it decompressed.
    bytes_from_page_cache, bytes_from_disk : int
        Where the bytes that transfers read came from; where ``"direct"`` left gaps out, by the
        share that the whole with its gaps had.
    seconds : float
        From the first of its transfers to the end of the last.
    waiting_seconds : float
        Of these, waiting for transfers, and for what the calling thread itself reads, writes and
        syncs; the rest is parsing the header and making arrays.
    cpu_seconds : float
        Of the runtime's threads, and of the calling thread where it reads or writes itself.
    """

    path: str
    device: str = ""
    tensors: int = 0
    bytes: int = 0
    bytes_by_route: dict[str, int] = field(default_factory=dict)
    bytes_from_page_cache: int = 0
    bytes_from_disk: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def gb_per_second(self) -> float:
        """In 10^9 bytes per second."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    def take(self, route: str, size_bytes: int) -> None:
        """Add a tensor that came by a way of its own, not from the file."""
        self.tensors += 1
        self.bytes_by_route[route] = self.bytes_by_route.get(route, 0) + size_bytes


@dataclass
class LoadReport:
    """How a load, or a save, went.

    Attributes
    ----------
    files : list of FileReport
        In the order in which they were loaded.
    seconds : float
        The whole call.
    waiting_seconds : float
        Of these, waiting for bytes; the rest is reading headers and making arrays.
    host_memory_bytes : int
        The most pinned host memory that it might use, where that was said; else 0.
    operation : str
        ``"load"``; ``"save"``, of a new file; ``"write"``, in place.
    """

    files: list[FileReport] = field(default_factory=list)
    seconds: float = 0.0
    waiting_seconds: float = 0.0
    host_memory_bytes: int = 0
    operation: str = "load"

    @property
    def bytes(self) -> int:
        """Of all files' tensors."""
        return sum(file.bytes for file in self.files)

    @property
    def gb_per_second(self) -> float:
        """In 10^9 bytes per second, of the whole call."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    def add(self, later: LoadReport) -> None:
        """Make it the report of both, one after the other."""
        self.files += later.files
        self.seconds += later.seconds
        self.waiting_seconds += later.waiting_seconds

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = asdict(self)
        for file, each in zip(self.files, facts["files"], strict=True):
            each["gb_per_second"] = file.gb_per_second
        return {**facts, "bytes": self.bytes, "gb_per_second": self.gb_per_second}

    def __str__(self) -> str:
        written = self.operation != "load"
        lines = [_line(file, written) for file in self.files]
        lines.append(
            f"{format_size(self.bytes)} in {self.seconds:.3f} s, {self.gb_per_second:.2f} GB/s; "
            f"{self.waiting_seconds:.3f} s of it {'writing' if written else 'waiting for bytes'}"
        )
        if self.host_memory_bytes:
            lines[-1] += f"; with at most {format_size(self.host_memory_bytes)} of host memory"
        return "\n".join(lines)


def _line(file: FileReport, written: bool) -> str:
    routes = [
        f"{format_size(size)} {_WORDS.get(route, (route, route))[written]}"
        for route, size in file.bytes_by_route.items()
    ]
    facts = [", ".join(routes) or "nothing to move"]
    if file.bytes_from_page_cache or file.bytes_from_disk:
        facts.append(
            f"{format_size(file.bytes_from_page_cache)} from the page cache, "
            f"{format_size(file.bytes_from_disk)} from the drive"
        )
    facts.append(f"{file.waiting_seconds:.3f} s waiting, {file.cpu_seconds:.3f} CPU s")
    to = file.device and f" to {file.device}"
    count = "1 tensor" if file.tensors == 1 else f"{file.tensors} tensors"
    return (
        f"{printable(file.path)}{to}: {count}, {format_size(file.bytes)}, "
        f"{file.gb_per_second:.2f} GB/s ({'; '.join(facts)})"
    )


class Watch:
    """Follows the transfers of a load or a save. Used from one thread, as a context manager.

    Parameters
    ----------
    explain : bool or callable
        True prints the report at the end; a callable gets it.
    progress : bool, optional
        As `Bar` has it.
    host_memory : int
        For the report: the budget in bytes, or 0.
    operation : str
        What is going on, as `LoadReport` has it.
    """

    def __init__(
        self,
        explain: Explain = False,
        progress: bool | None = None,
        host_memory: int = 0,
        operation: str = "load",
    ) -> None:
        check_progress(progress)
        self.report = LoadReport(host_memory_bytes=host_memory, operation=operation)
        self._explain = explain
        self._progress = progress
        self._bar: Bar | None = None
        self._stopping: threading.Event | None = None
        self._expected_bytes = self._done_bytes = 0
        self._begin = time.monotonic()
        self._file_begin = 0.0

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is not None or not self._explain:
            return
        self.report.seconds = time.monotonic() - self._begin
        if callable(self._explain):
            self._explain(self.report)
        else:
            print(self.report)

    @property
    def shown(self) -> bool:
        """Whether there is, or will be, a bar to see."""
        return self._bar is not None

    def expect(self, size_bytes: int) -> None:
        """Tell how much more there will be, before the first of it."""
        self._expected_bytes += size_bytes
        if self._bar is not None:
            self._bar.expect(size_bytes)
        else:
            self._bar = bar_for(self._expected_bytes, self._progress, self.report.operation)

    def part(self, stopping: threading.Event) -> Watch:
        """Return one for a part of the load on a thread of its own, with the same bar.

        When `stopping` is set, waiting ends with `Cancelled`.
        """
        part = Watch(bool(self._explain), progress=False)
        part._bar, part._stopping = self._bar, stopping
        return part

    def open(self, path: str, device: str = "") -> None:
        """Tell that what follows is of this file."""
        files = self.report.files
        if not self._explain or (files and (files[-1].path, files[-1].device) == (path, device)):
            return
        files.append(FileReport(path, device))
        self._file_begin = time.monotonic()

    def start(self, tensors: int, size_bytes: int) -> None:
        """Tell that tensors are being loaded."""
        if self._explain:
            report = self.report.files[-1]
            report.tensors += tensors
            report.bytes += size_bytes

    def wait(self, transfer: Transfer[int]) -> None:
        """Wait for a transfer; its failure is raised."""
        begin = time.monotonic()
        asked = asked_bytes(transfer) if self._bar is not None or self._explain else 0
        transfer.complete(None, self.tell and functools.partial(self._tell, asked=asked))
        self.add(asked)
        if self._explain:
            facts = transfer.report()
            carried: dict[str, int] = facts.get("bytes_by_route", {})
            self._count(begin, carried, float(facts.get("cpu_seconds", 0.0)))
            if "bytes_from_disk" in facts:
                report = self.report.files[-1]
                cold, span, moved = facts["bytes_from_disk"], facts["bytes"], sum(carried.values())
                cold = min(moved, int(cold) * moved // span) if span else 0
                report.bytes_from_disk += cold
                report.bytes_from_page_cache += moved - cold

    @contextlib.contextmanager
    def caller(self, size_bytes: int) -> Iterator[None]:
        """While this thread itself reads or writes so much."""
        begin, begin_cpu = time.monotonic(), time.thread_time()
        yield
        if self._explain:
            self._count(begin, {"caller": size_bytes}, time.thread_time() - begin_cpu)

    def read(self, size_bytes: int, read: Callable[[], bool], *, expected: bool = False) -> bool:
        """Let this thread itself read so much; False, where it could not: nothing is told then.

        `expected`: the bar was told of these bytes before.
        """
        if not self._explain and self._bar is None:
            return read()
        begin, begin_cpu = time.monotonic(), time.thread_time()
        if not read():
            return False
        if self._bar is not None:
            if not expected:
                self._bar.expect(size_bytes)
            self.add(size_bytes)
        if self._explain:
            self._count(begin, {"caller": size_bytes}, time.thread_time() - begin_cpu)
        return True

    def decompressed(self, size_bytes: int) -> None:
        """Tell that so much more is decompressed, and where it should be."""
        self.add(size_bytes)
        if self._explain:
            self._count(time.monotonic(), {"decompressed": size_bytes}, 0.0)

    def add(self, size_bytes: int) -> None:
        """Tell the bar alone that so much more is done."""
        if self._bar is not None:
            self._done_bytes += size_bytes
            self._bar.tell(self, self._done_bytes)

    def check(self) -> None:
        """Raise `Cancelled` when another part of the load has failed or was interrupted."""
        if self._stopping is not None and self._stopping.is_set():
            raise Cancelled("load: stopped because another part of it failed", operation="load")

    @property
    def tell(self) -> ProgressCallback | None:
        """What tells how far the transfer is that is waited for now."""
        return self._tell if self._bar is not None or self._stopping is not None else None

    def _tell(self, progress: Progress, asked: int | None = None) -> None:
        """Tell the bar; a transfer that was asked for fewer bytes than it spans has its share."""
        self.check()
        if self._bar is not None:
            done = progress.bytes_done
            if asked is not None and progress.bytes_total:
                done = done * asked // progress.bytes_total
            self._bar.tell(self, self._done_bytes + done)

    def _count(self, begin: float, carried: dict[str, int], cpu_seconds: float) -> None:
        """Report what moved since `begin`, for which this thread waited."""
        now = time.monotonic()
        self.report.waiting_seconds += now - begin
        report = self.report.files[-1]
        report.waiting_seconds += now - begin
        report.seconds = now - self._file_begin
        report.cpu_seconds += cpu_seconds
        for route, size_bytes in carried.items():
            if size_bytes:
                report.bytes_by_route[route] = report.bytes_by_route.get(route, 0) + size_bytes
