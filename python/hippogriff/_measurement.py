"""Timed moves between files and devices: hippogriff's, and the naive read and copy beside them."""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hippogriff import _file, _path, _runtime
from hippogriff._array import empty

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from hippogriff._array import Array
    from hippogriff._transfer import ProgressCallback

_TOUCHED_BYTES = 64 << 20
_READ_BYTES = 1 << 30  # One read call gives less than 2 GiB.


class Stopwatch:
    """Wall time and the CPU time of all threads of this process, in seconds, over a `with`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._begin = (0.0, 0.0)

    def __enter__(self) -> Stopwatch:
        self._begin = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds += time.perf_counter() - self._begin[0]
        self.cpu_seconds += time.process_time() - self._begin[1]


@dataclass(frozen=True)
class Sample:
    """One move: the route it took, its bytes, its seconds and CPU seconds."""

    route: str
    size_bytes: int
    seconds: float
    cpu_seconds: float

    @property
    def gb_per_second(self) -> float:
        """In 10^9 bytes per second."""
        return self.size_bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def cpu_seconds_per_gb(self) -> float:
        """In seconds for 10^9 bytes."""
        return self.cpu_seconds / self.size_bytes * 1e9 if self.size_bytes else 0.0

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "route": self.route,
            "bytes": self.size_bytes,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "gb_per_second": self.gb_per_second,
            "cpu_seconds_per_gb": self.cpu_seconds_per_gb,
        }


def median(samples: list[Sample]) -> Sample:
    """Return a sample of median seconds and median CPU seconds, with the first one's route."""
    return Sample(
        samples[0].route,
        samples[0].size_bytes,
        statistics.median(sample.seconds for sample in samples),
        statistics.median(sample.cpu_seconds for sample in samples),
    )


def backed(size_bytes: int, device: str) -> Array:
    """Allocate bytes that have pages behind them, as a GPU's always have.

    Host memory gets them at the first touch, which is no part of a transfer's cost.
    """
    array = empty(size_bytes, device=device)
    if array.device == "host" and array.address:
        for at in range(0, size_bytes, _TOUCHED_BYTES):  # Ctrl-C ends it between two.
            ctypes.memset(array.address + at, 0, min(_TOUCHED_BYTES, size_bytes - at))
    return array


def time_read(
    path: Path, array: Array, route: str = "auto", progress: ProgressCallback | None = None
) -> Sample:
    """Move a file into an array of its size."""
    with _file.File(path) as file, Stopwatch() as watch:
        transfer = file.read_into_async(array, route=route)
        size_bytes = transfer.complete(None, progress)
    return Sample(transfer.route or route, size_bytes, watch.seconds, watch.cpu_seconds)


def time_write(
    path: Path, array: Array, route: str = "auto", progress: ProgressCallback | None = None
) -> Sample:
    """Move an array to a new file, durably."""
    path.unlink(missing_ok=True)
    with Stopwatch() as watch:
        transfer = _path.write_async(path, array, route=route)
        size_bytes = transfer.complete(None, progress)
    return Sample(transfer.route or route, size_bytes, watch.seconds, watch.cpu_seconds)


def touched(size_bytes: int) -> bytearray:
    """Allocate host memory that has its pages."""
    return bytearray(b"\1") * size_bytes  # Zeros would be pages that are not there yet.


def time_naive_read(path: Path, array: Array, staging: bytearray | None = None) -> Sample:
    """Move a file the usual way: allocate host memory, read, copy.

    With memory for `staging`, of the array's size, it is read and copy alone.
    """
    with path.open("rb", buffering=0) as file, Stopwatch() as watch:
        if staging is None:
            staging = bytearray(array.nbytes)
        view, done = memoryview(staging), 0
        while done < array.nbytes:
            count = file.readinto(view[done : done + _READ_BYTES])
            if not count:
                raise EOFError(f"{path} ends at {done} bytes")
            done += count
        array.copy_from(staging)
    return Sample("read + copy", array.nbytes, watch.seconds, watch.cpu_seconds)


def time_naive_write(path: Path, array: Array, staging: bytearray | None = None) -> Sample:
    """Move an array to a new file the usual way: allocate, copy, write, make durable.

    With memory for `staging`, of the array's size, nothing is allocated.
    """
    path.unlink(missing_ok=True)
    with Stopwatch() as watch:
        if staging is None:
            staging = bytearray(array.nbytes)
        array.copy_to(staging)
        view, done = memoryview(staging), 0
        with path.open("xb", buffering=0) as file:
            while done < array.nbytes:
                done += file.write(view[done : done + _READ_BYTES]) or 0
            os.fdatasync(file.fileno())
    return Sample("copy + write", array.nbytes, watch.seconds, watch.cpu_seconds)


def cached_fraction(path: Path) -> float:
    """Tell how much of a file is in the page cache, from 0 to 1."""
    # Whatever the device is: no GPU has to be started for it.
    return float(_runtime.explain(path, device="host")["cached_fraction"])


def warm(path: Path) -> None:
    """Bring a file into the page cache."""
    staging = bytearray(8 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(staging):
            pass


def make_cold(path: Path) -> None:
    """Ask the kernel to drop a file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
