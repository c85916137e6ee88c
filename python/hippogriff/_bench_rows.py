"""Where `bench array` has rows, and how it moves them without an array."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

from hippogriff._array import empty
from hippogriff._file import File
from hippogriff._host_rows import numpy_module
from hippogriff._measurement import warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hippogriff._array import Array

    Move = Callable[[Any, Any], object]  # rows by their numbers, to or from memory

PAST = "array, past the page cache"
IN_ORDER = "in order"
ZERO_COPY = "zero-copy"
_MAPPED = "mmap, then copied"
_COPIED = "copied, then pwrite"
_ROWS_BYTES_MAX = 1 << 30
_HITS_EACH = 16  # on a GPU, which is done with them at once
_FIRST_BYTES = 1 << 20


class HostRows:
    """Rows and their numbers in host memory, moved by threads."""

    ways: ClassVar[dict[str, tuple[str, ...]]] = {
        "cold": ("array", PAST, "mmap", "pread"),
        "cached": ("array", "mmap", "pread"),
        "hit": ("array", "memory"),
        "write": ("array", "pwrite"),
    }
    _rows_max: ClassVar[dict[str, int]] = {
        "cold": 20_000,
        "cached": 200_000,
        "hit": 1_000_000,
        "write": 20_000,
    }

    def __init__(self, path: Path, threads: int) -> None:
        self._path = path
        self._threads = threads
        self._numpy = numpy_module()

    def start(self) -> None:
        """Do what only the first time takes long."""

    def count_of(self, case: str, there: int, line: int) -> int:
        """Tell how many of the rows that there are a case moves."""
        return min(there, self._rows_max[case], max(1, _ROWS_BYTES_MAX // line))

    def hits_of(self, inside: int, line: int) -> int:
        """Tell how many rows are asked for of those in the cache."""
        return self.count_of("hit", inside, line)

    def numbers(self, wanted: Any) -> Any:
        """Return row numbers where an array takes them."""
        return wanted

    def empty(self, count: int, line: int) -> Any:
        """Return memory for rows."""
        return self._numpy.empty((count, line), "uint8")

    def filled(self, values: Any) -> Any:
        """Return memory with rows."""
        return values

    def seen(self, rows: Any) -> Any:
        """Return rows as the host sees them."""
        return rows

    def from_memory(self, inside: Any, wanted: Any, out: Any) -> None:
        """Gather rows of a NumPy array."""

        def part(begin: int, end: int) -> None:
            inside.take(wanted[begin:end], axis=0, out=out[begin:end], mode="clip")

        self._share(len(wanted), part)

    @contextlib.contextmanager
    def reader(self, way: str, out: Any) -> Iterator[Move]:
        """Yield what gathers rows of the file into such memory."""
        if way == "mmap":
            line = out.shape[1]
            shape = (self._path.stat().st_size // line, line)
            mapped = self._numpy.memmap(self._path, "uint8", "r", shape=shape)
            yield lambda wanted, out: self.from_memory(mapped, wanted, out)
            return
        with self._descriptor(os.O_RDONLY) as descriptor:
            yield lambda wanted, out: self._each(os.preadv, descriptor, wanted, out)

    @contextlib.contextmanager
    def writer(self, way: str, _values: Any) -> Iterator[tuple[Move, Callable[[], object]]]:
        """Yield what scatters such rows to the file, and what has the disk keep them."""
        assert way == "pwrite"
        with self._descriptor(os.O_RDWR) as descriptor:

            def write(wanted: Any, values: Any) -> None:
                self._each(os.pwritev, descriptor, wanted, values)

            yield write, lambda: os.fdatasync(descriptor)

    @contextlib.contextmanager
    def _descriptor(self, flags: int) -> Iterator[int]:
        descriptor = os.open(self._path, flags | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _each(self, move: Callable[..., int], descriptor: int, wanted: Any, rows: Any) -> None:
        line = rows.shape[1]
        offsets = (wanted * line).tolist()
        memory = memoryview(rows).cast("B")

        def part(begin: int, end: int) -> None:
            for row in range(begin, end):
                move(descriptor, [memory[row * line : (row + 1) * line]], offsets[row])

        self._share(len(wanted), part)

    def _share(self, count: int, part: Callable[[int, int], None]) -> None:
        bounds = [count * thread // self._threads for thread in range(self._threads + 1)]
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(part, bounds, bounds[1:]))


class DeviceRows(HostRows):
    """Rows and their numbers in a GPU's memory."""

    ways: ClassVar[dict[str, tuple[str, ...]]] = {
        "cold": ("array", PAST, _MAPPED, IN_ORDER),
        "cached": ("array", ZERO_COPY, _MAPPED, IN_ORDER),
        "hit": ("array",),
        "write": ("array", _COPIED, IN_ORDER),
    }
    # Cold ones by mmap take 0.1 ms each, one after the other.
    _rows_max: ClassVar[dict[str, int]] = {
        "cold": 20_000,
        "cached": 1 << 20,
        "hit": 1 << 21,
        "write": 1 << 20,
    }

    def __init__(self, path: Path, threads: int, device: str) -> None:
        super().__init__(path, threads)
        self._device = device

    def start(self) -> None:
        """Have the runtime's memory and threads there, by a first transfer."""
        warm(self._path)
        with File(self._path) as file:
            size = min(file.size, _FIRST_BYTES)
            file.read_into(empty(size, device=self._device))

    def hits_of(self, inside: int, line: int) -> int:
        """Tell how many rows are asked for of those in the cache, each several times."""
        return self.count_of("hit", inside * _HITS_EACH, line)

    def numbers(self, wanted: Any) -> Array:
        """Return row numbers in the GPU's memory."""
        return self._there(wanted.astype("int64"))

    def empty(self, count: int, line: int) -> Array:
        """Return memory of the GPU for rows."""
        return empty((count, line), "uint8", self._device)

    def filled(self, values: Any) -> Array:
        """Return memory of the GPU with rows."""
        return self._there(values)

    def seen(self, rows: Array) -> Any:
        """Return rows as the host sees them."""
        return rows.to_numpy()

    @contextlib.contextmanager
    def reader(self, way: str, out: Any) -> Iterator[Move]:
        """Yield what gathers rows of the file into such memory, or reads as many bytes in order."""
        if way == IN_ORDER:
            with File(self._path) as file:
                yield lambda _, out: file.read_into(out)
            return
        rows = self._touched(out.shape)
        with super().reader("mmap", rows) as gather:

            def read(wanted: Any, out: Array) -> None:
                gather(wanted, rows)
                out.copy_from(rows)

            yield read

    @contextlib.contextmanager
    def writer(self, way: str, _values: Any) -> Iterator[tuple[Move, Callable[[], object]]]:
        """Yield what scatters such rows, or writes as many bytes in order, and what syncs."""
        if way == IN_ORDER:
            with File(self._path, "r+") as file:
                yield (
                    lambda _, values: file.write_from(values),
                    lambda: os.fdatasync(file.fileno()),
                )
            return
        rows = self._touched(_values.shape)
        with super().writer("pwrite", rows) as (scatter, sync):

            def write(wanted: Any, values: Array) -> None:
                values.copy_to(rows)
                scatter(wanted, rows)

            yield write, sync

    def _touched(self, shape: tuple[int, ...]) -> Any:
        """Return host memory that has its pages: they are no part of what is measured."""
        return self._numpy.full(shape, 1, "uint8")

    def _there(self, values: Any) -> Array:
        array = empty(values.shape, values.dtype, self._device)
        array.copy_from(self._numpy.ascontiguousarray(values))
        return array
