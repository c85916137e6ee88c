"""`hippogriff bench array`: rows by number through a `StorageArray`, a mapping and pread."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from hippogriff._measurement import cached_fraction, make_cold, warm
from hippogriff._storage_array import StorageArray
from hippogriff._storage_array import _numpy as numpy_module
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Gather = Callable[[Any], Any]

_PAST = "array, past the page cache"
_WAYS = {
    "cold": ("array", _PAST, "mmap", "pread"),
    "cached": ("array", "mmap", "pread"),
    "hit": ("array", "memory"),
}
_COLD_FRACTION = 0.1
_ROWS_MAX = {"cold": 20_000, "cached": 200_000, "hit": 1_000_000}
_CACHE_SHARE = 16  # of the file: rows that are asked for once are not there


@dataclass(frozen=True)
class ArrayRow:
    """Rows of one length, gathered in one way: rows a second of each repetition."""

    case: str
    line: int
    way: str
    rates: tuple[float, ...]
    ratio: float  # of the median to that of the fastest way that is no array

    @property
    def rows_per_second(self) -> float:
        """The median."""
        return median(self.rates)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "case": self.case,
            "line": self.line,
            "way": self.way,
            "rows_per_second": self.rows_per_second,
            "bytes_per_second": self.rows_per_second * self.line,
            "ratio": self.ratio,
            "samples": list(self.rates),
        }


@dataclass(frozen=True)
class Plan:
    """What to measure: a file that is there, lengths of lines in bytes, how often."""

    path: Path
    lines: tuple[int, ...]
    repetitions: int
    threads: int


class ArrayBench:
    """Measures on device host. `tell` is called with the steps done so far and a note."""

    def __init__(self, plan: Plan, tell: Callable[[int, str], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._done = 0
        self._numpy = numpy_module()
        self._size = plan.path.stat().st_size
        if self._size < 64 * max(plan.lines):
            raise InvalidArgument(f"{plan.path} has fewer than 64 rows of {max(plan.lines)} bytes")

    @property
    def steps(self) -> int:
        """How often `tell` is called at most."""
        return sum(map(len, _WAYS.values())) * len(self._plan.lines) * self._plan.repetitions

    def run(self) -> list[ArrayRow]:
        """Measure; what is compared takes turns, so that a drift hits all alike."""
        rows: list[ArrayRow] = []
        for line in self._plan.lines:
            make_cold(self._plan.path)
            if cached_fraction(self._plan.path) <= _COLD_FRACTION:  # a file in memory is never cold
                rows += self._misses("cold", line, make_cold)
            rows += self._misses("cached", line, warm)
            rows += self._hits(line)
        return rows

    def _misses(self, case: str, line: int, prepare: Callable[[Path], None]) -> list[ArrayRow]:
        rates: dict[str, list[float]] = {way: [] for way in _WAYS[case]}
        for turn in range(self._plan.repetitions):
            wanted = self._wanted(case, line, turn)
            for way in _WAYS[case]:
                prepare(self._plan.path)
                self._step(f"{case}, {line} bytes: {way}")
                rates[way].append(self._rate(way, line, wanted))
        return _rows(case, line, rates)

    def _hits(self, line: int) -> list[ArrayRow]:
        """Rows of a file whose first part is in the cache, or in an array in memory."""
        size = min(self._size, 64 << 20) // line * line
        rates: dict[str, list[float]] = {way: [] for way in _WAYS["hit"]}
        inside = self._numpy.fromfile(self._plan.path, "uint8", size).reshape(-1, line)
        out = self._numpy.empty((min(len(inside), _ROWS_MAX["hit"]), line), "uint8")
        # Twice the room: lines meet in sets, of which some would overflow.
        with StorageArray(
            self._plan.path, "uint8", inside.shape, cache=2 * size, line=line
        ) as array:
            array.take(self._numpy.arange(len(inside)))
            for turn in range(self._plan.repetitions):
                wanted = self._numpy.random.default_rng(turn).permutation(len(inside))[: len(out)]
                gathers: dict[str, Gather] = {
                    "array": lambda rows: array.take(rows, out=out),
                    "memory": lambda rows: self._by_threads(inside, rows, out),
                }
                for way, gather in gathers.items():
                    self._step(f"hit, {line} bytes: {way}")
                    rates[way].append(_time(gather, wanted))
        return _rows("hit", line, rates)

    def _rate(self, way: str, line: int, wanted: Any) -> float:
        out = self._numpy.empty((len(wanted), line), "uint8")
        if way.startswith("array"):
            with StorageArray(
                self._plan.path,
                "uint8",
                (self._size // line, line),
                cache=max(line, self._size // _CACHE_SHARE),
                line=line,
                io="direct" if way == _PAST else "cached",
            ) as array:
                return _time(lambda rows: array.take(rows, out=out), wanted)
        if way == "mmap":
            shape = (self._size // line, line)
            mapped = self._numpy.memmap(self._plan.path, "uint8", "r", shape=shape)
            return _time(lambda rows: self._by_threads(mapped, rows, out), wanted)
        descriptor = os.open(self._plan.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _time(lambda rows: self._pread(descriptor, rows, out), wanted)
        finally:
            os.close(descriptor)

    def _by_threads(self, mapped: Any, wanted: Any, out: Any) -> None:
        def part(begin: int, end: int) -> None:
            mapped.take(wanted[begin:end], axis=0, out=out[begin:end], mode="clip")

        self._share(len(wanted), part)

    def _pread(self, descriptor: int, wanted: Any, out: Any) -> None:
        line = out.shape[1]
        offsets = (wanted * line).tolist()
        memory = memoryview(out).cast("B")

        def part(begin: int, end: int) -> None:
            for row in range(begin, end):
                os.preadv(descriptor, [memory[row * line : (row + 1) * line]], offsets[row])

        self._share(len(wanted), part)

    def _share(self, count: int, part: Callable[[int, int], None]) -> None:
        threads = self._plan.threads
        bounds = [count * thread // threads for thread in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, bounds, bounds[1:]))

    def _wanted(self, case: str, line: int, turn: int) -> Any:
        """Return the numbers of rows, each once, in no order."""
        count = self._size // line
        generator = self._numpy.random.default_rng(turn)
        return generator.permutation(count)[: min(count, _ROWS_MAX[case])]

    def _step(self, note: str) -> None:
        self._tell(self._done, note)
        self._done += 1


def _time(gather: Gather, wanted: Any) -> float:
    """Return rows a second."""
    begin = time.perf_counter()
    gather(wanted)
    return len(wanted) / (time.perf_counter() - begin)


def _rows(case: str, line: int, rates: dict[str, list[float]]) -> list[ArrayRow]:
    medians = {way: median(values) for way, values in rates.items()}

    def ratio(way: str) -> float:
        others = [rate for other, rate in medians.items() if not other.startswith("array")]
        return medians[way] / max(others)

    return [ArrayRow(case, line, way, tuple(values), ratio(way)) for way, values in rates.items()]
