"""What a load tells: a bar while it goes on, and a report of how it went."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hippogriff._progress import Bar
from hippogriff._sizes import format_size
from hippogriff.errors import Cancelled

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from hippogriff._handle import Progress
    from hippogriff._transfer import Transfer


@dataclass
class FileReport:
    """How the tensors of one file were loaded.

    Attributes
    ----------
    path : str
        The file.
    device : str
        Where to, where that is several.
    tensors, bytes : int
        How many, and their bytes in the file.
    bytes_by_route : dict of str to int
        For example ``{"pipelined": 4294967296}``.
    bytes_from_page_cache, bytes_from_disk : int
        Where the bytes came from.
    seconds : float
        From the first of its transfers to the end of the last.
    waiting_seconds : float
        Of these, waiting for bytes; the rest is parsing the header and making arrays.
    cpu_seconds : float
        Of the runtime's threads.
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


@dataclass
class LoadReport:
    """How a load went.

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
    """

    files: list[FileReport] = field(default_factory=list)
    seconds: float = 0.0
    waiting_seconds: float = 0.0
    host_memory_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Of all files' tensors."""
        return sum(file.bytes for file in self.files)

    @property
    def gb_per_second(self) -> float:
        """In 10^9 bytes per second, of the whole call."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = asdict(self)
        for file, each in zip(self.files, facts["files"], strict=True):
            each["gb_per_second"] = file.gb_per_second
        return {**facts, "bytes": self.bytes, "gb_per_second": self.gb_per_second}

    def __str__(self) -> str:
        lines = [_line(file) for file in self.files]
        lines.append(
            f"{format_size(self.bytes)} in {self.seconds:.3f} s, {self.gb_per_second:.2f} GB/s; "
            f"{self.waiting_seconds:.3f} s of it waiting for bytes"
        )
        if self.host_memory_bytes:
            lines[-1] += f"; with at most {format_size(self.host_memory_bytes)} of host memory"
        return "\n".join(lines)


def _line(file: FileReport) -> str:
    routes = ", ".join(
        f"{route} {format_size(size)}" for route, size in file.bytes_by_route.items() if size
    )
    to = file.device and f" to {file.device}"
    return (
        f"{file.path}{to}: {file.tensors} tensors, {format_size(file.bytes)}, "
        f"{file.gb_per_second:.2f} GB/s ({routes or 'nothing to move'}; "
        f"{format_size(file.bytes_from_page_cache)} from the page cache, "
        f"{format_size(file.bytes_from_disk)} from the drive; "
        f"{file.waiting_seconds:.3f} s waiting, {file.cpu_seconds:.3f} CPU s)"
    )


class Watch:
    """Follows the transfers of a load. Used from one thread, as a context manager.

    Parameters
    ----------
    explain : bool or callable
        True prints the report at the end; a callable gets it.
    progress : bool, optional
        As `Bar` has it.
    bar : Bar, optional
        One that others tell too.
    stopping : threading.Event, optional
        When it is set, waiting ends with `Cancelled`.
    host_memory : int
        For the report: the budget in bytes, or 0.
    """

    def __init__(
        self,
        explain: bool | Callable[[LoadReport], object] = False,
        progress: bool | None = None,
        bar: Bar | None = None,
        stopping: threading.Event | None = None,
        host_memory: int = 0,
    ) -> None:
        self.report = LoadReport(host_memory_bytes=host_memory)
        self._explain = explain
        self._bar = bar or Bar(progress)
        self._stopping = stopping
        self._done_bytes = 0
        self._begin = time.monotonic()
        self._file_begin = 0.0

    def __enter__(self) -> Watch:
        self._begin = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.report.seconds = time.monotonic() - self._begin
        self._bar.close()
        if kind is None and self._explain:
            if callable(self._explain):
                self._explain(self.report)
            else:
                print(self.report)

    def expect(self, size_bytes: int) -> None:
        """Tell how much more there will be."""
        self._bar.expect(size_bytes)

    def part(self, stopping: threading.Event) -> Watch:
        """Return one for a part of the load on a thread of its own, with the same bar."""
        return Watch(bool(self._explain), bar=self._bar, stopping=stopping)

    def open(self, path: str, device: str = "") -> None:
        """Tell that what follows is of this file."""
        files = self.report.files
        if files and (files[-1].path, files[-1].device) == (path, device):
            return
        self.report.files.append(FileReport(path, device))
        self._file_begin = time.monotonic()

    def start(self, tensors: int, size_bytes: int) -> None:
        """Tell that tensors are being loaded."""
        report = self.report.files[-1]
        report.tensors += tensors
        report.bytes += size_bytes

    def wait(self, transfer: Transfer[int]) -> None:
        """Wait for a transfer; its failure is raised."""
        begin = time.monotonic()
        transfer.complete(None, self._tell if self._bar.shown or self._stopping else None)
        now = time.monotonic()
        self.report.waiting_seconds += now - begin
        self._done_bytes += transfer.progress.bytes_total
        report = self.report.files[-1]
        report.waiting_seconds += now - begin
        report.seconds = now - self._file_begin
        if self._explain:
            _add(report, transfer.report())

    def wait_uncounted(self, transfer: Transfer[int]) -> None:
        """Wait for a transfer whose bytes are not those of tensors; else as `wait`."""
        transfer.complete(None, lambda _: self.check())

    def check(self) -> None:
        """Raise `Cancelled` when another part of the load has failed or was interrupted."""
        if self._stopping is not None and self._stopping.is_set():
            raise Cancelled("load: stopped because another part of it failed", operation="load")

    def _tell(self, progress: Progress) -> None:
        self.check()
        if self._bar.shown:
            self._bar.tell(self, self._done_bytes + progress.bytes_done)


def _add(report: FileReport, facts: Mapping[str, Any]) -> None:
    route = str(facts.get("route", "none"))
    moved = int(facts.get("bytes", 0))
    report.bytes_by_route[route] = report.bytes_by_route.get(route, 0) + moved
    report.bytes_from_page_cache += int(facts.get("bytes_from_page_cache", 0))
    report.bytes_from_disk += int(facts.get("bytes_from_disk", 0))
    report.cpu_seconds += float(facts.get("cpu_seconds", 0.0))
