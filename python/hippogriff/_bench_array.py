"""`hippogriff bench array`: rows by number through a `StorageArray`, beside other ways.

On device host these are a mapping, and pread or pwrite by threads. On a GPU rows and their numbers
are in its memory, and the library's own kernels move the array's rows; beside them a mapping whose
rows are copied there, as many bytes moved in order, which is what link and storage give, and
zero-copy reads of the same rows, the least that a miss can cost.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from hippogriff._bench_rows import PAST, ZERO_COPY, DeviceRows, HostRows
from hippogriff._host_rows import numpy_module
from hippogriff._measurement import cached_fraction, make_cold, warm
from hippogriff._storage_array import StorageArray
from hippogriff.errors import HippogriffError, InvalidArgument, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_COLD_FRACTION = 0.1
_CACHE_SHARE = 16  # of the file: rows that are asked for once are not there
_HIT_BYTES = 64 << 20  # of the file, in a cache of twice the size


@dataclass(frozen=True)
class ArrayRow:
    """Rows of one length, moved in one way: rows a second of each repetition."""

    case: str
    line: int
    way: str
    rates: tuple[float, ...]
    ratio: (
        float | None
    )  # of the median to that of the fastest way that is no array, if there is one

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
    """What to measure: a file that is there, lengths of lines in bytes, how often, for whom."""

    path: Path
    lines: tuple[int, ...]
    repetitions: int
    threads: int
    device: str = "host"


class ArrayBench:
    """Measures a file, which it writes to. `tell` is called with the steps done so far and a note.

    What comes out of arrays, and what they wrote, is compared with the file.
    """

    def __init__(self, plan: Plan, tell: Callable[[int, str], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._done = 0
        self._numpy = numpy_module()
        self._size = plan.path.stat().st_size
        if self._size < 64 * max(plan.lines):
            raise InvalidArgument(f"{plan.path} has fewer than 64 rows of {max(plan.lines)} bytes")
        self._rows: HostRows | DeviceRows = (
            HostRows(plan.path, plan.threads)
            if plan.device == "host"
            else DeviceRows(plan.path, plan.threads, plan.device)
        )

    @property
    def steps(self) -> int:
        """How often `tell` is called at most."""
        return (
            sum(map(len, self._rows.ways.values())) * len(self._plan.lines) * self._plan.repetitions
        )

    def run(self) -> list[ArrayRow]:
        """Measure; what is compared takes turns, so that a drift hits all alike."""
        rows: list[ArrayRow] = []
        self._rows.start()
        for line in self._plan.lines:
            make_cold(self._plan.path)
            if cached_fraction(self._plan.path) <= _COLD_FRACTION:  # a file in memory is never cold
                rows += self._misses("cold", line, make_cold)
            rows += self._misses("cached", line, warm)
            rows += self._hits(line)
            rows += self._writes(line)
        return rows

    def _misses(self, case: str, line: int, prepare: Callable[[Path], None]) -> list[ArrayRow]:
        rates = self._rates(case)
        for turn in range(self._plan.repetitions):
            wanted = self._wanted(case, line, turn)
            for way, samples in rates.items():
                prepare(self._plan.path)
                self._step(f"{case}, {line} bytes: {way}")
                try:
                    samples.append(self._read_rate(way, line, wanted))
                except Unsupported:  # where the GPU cannot read the page cache
                    if way != ZERO_COPY:
                        raise
        return _rows(case, line, rates)

    def _read_rate(self, way: str, line: int, wanted: Any) -> float:
        out = self._rows.empty(len(wanted), line)
        if not way.startswith("array") and way != ZERO_COPY:
            with self._rows.reader(way, out) as read:
                return _rate(lambda: read(wanted, out), len(wanted))
        with self._array(line, "r", "direct" if way == PAST else "cached") as array:
            numbers = self._rows.numbers(wanted)
            take = array._take_in_place if way == ZERO_COPY else array.take
            rate = _rate(lambda: take(numbers, out), len(wanted))
        self._compare(line, wanted, self._rows.seen(out))
        return rate

    def _hits(self, line: int) -> list[ArrayRow]:
        """Rows of a file whose first part is in the cache, or in an array in memory."""
        size = min(self._size, _HIT_BYTES) // line * line
        rates = self._rates("hit")
        inside = self._numpy.fromfile(self._plan.path, "uint8", size).reshape(-1, line)
        count = self._rows.hits_of(len(inside), line)
        out = self._rows.empty(count, line)
        # Twice the room: lines meet in sets, of which some would overflow.
        with StorageArray(
            self._plan.path,
            "uint8",
            inside.shape,
            cache=2 * size,
            line=line,
            device=self._plan.device,
        ) as array:
            every = self._rows.numbers(self._numpy.arange(len(inside)))
            array.take(every, out=self._rows.empty(len(inside), line))
            for turn in range(self._plan.repetitions):
                generator = self._numpy.random.default_rng(turn)
                wanted = generator.permutation(self._numpy.arange(count) % len(inside))
                numbers = self._rows.numbers(wanted)
                for way, samples in rates.items():
                    self._step(f"hit, {line} bytes: {way}")
                    if way == "array":
                        samples.append(_rate(lambda: array.take(numbers, out=out), count))  # noqa: B023 (called at once)
                        self._compare(line, wanted, self._rows.seen(out))
                    else:
                        samples.append(
                            _rate(lambda: self._rows.from_memory(inside, wanted, out), count)  # noqa: B023 (called at once)
                        )
        return _rows("hit", line, rates)

    def _writes(self, line: int) -> list[ArrayRow]:
        """Rows that are overwritten: until the call returns, and until the disk has them."""
        rates = self._rates("write")
        durable = self._rates("write")
        for turn in range(self._plan.repetitions):
            wanted = self._wanted("write", line, turn)
            pattern = self._numpy.arange(line, dtype="uint8")
            values = (wanted % 251 + turn).astype("uint8")[:, None] + pattern
            for way in rates:
                warm(self._plan.path)
                self._step(f"write, {line} bytes: {way}")
                seconds = self._write_seconds(way, line, wanted, values)
                rates[way].append(len(wanted) / seconds[0])
                durable[way].append(len(wanted) / seconds[1])
        return _rows("write", line, rates) + _rows("write, durable", line, durable)

    def _write_seconds(self, way: str, line: int, wanted: Any, values: Any) -> tuple[float, float]:
        given = self._rows.filled(values)
        if way != "array":
            with self._rows.writer(way, given) as (write, sync):
                return _seconds(lambda: write(wanted, given), sync)
        with self._array(line, "r+", "cached") as array:
            numbers = self._rows.numbers(wanted)
            seconds = _seconds(lambda: array.put(numbers, given), array.flush)
        self._compare(line, wanted, values)
        return seconds

    @contextlib.contextmanager
    def _array(self, line: int, mode: str, io: str) -> Iterator[StorageArray]:
        """Open the file as rows of a line each, and use them once: a GPU loads its kernels then."""
        with StorageArray(
            self._plan.path,
            "uint8",
            (self._size // line, line),
            device=self._plan.device,
            mode=mode,
            cache=max(line, self._size // _CACHE_SHARE),
            line=line,
            io=io,
            load="none",
        ) as array:
            first = self._rows.numbers(self._numpy.zeros(1, "int64"))
            array.take(first, out=self._rows.empty(1, line))
            yield array

    def _compare(self, line: int, wanted: Any, found: Any) -> None:
        shape = (self._size // line, line)
        mapped = self._numpy.memmap(self._plan.path, "uint8", "r", shape=shape)
        part = 1 << 14  # of the rows at a time
        for begin in range(0, len(wanted), part):
            expected = mapped[wanted[begin : begin + part]]
            if not self._numpy.array_equal(found[begin : begin + part], expected):
                raise HippogriffError(f"rows of {line} bytes are not those of {self._plan.path}")

    def _rates(self, case: str) -> dict[str, list[float]]:
        return {way: [] for way in self._rows.ways[case]}

    def _wanted(self, case: str, line: int, turn: int) -> Any:
        """Return the numbers of rows, each once, in no order."""
        count = self._size // line
        generator = self._numpy.random.default_rng(turn)
        return generator.permutation(count)[: self._rows.count_of(case, count, line)]

    def _step(self, note: str) -> None:
        self._tell(self._done, note)
        self._done += 1


def _seconds(write: Callable[[], object], sync: Callable[[], object]) -> tuple[float, float]:
    begin = time.perf_counter()
    write()
    written = time.perf_counter() - begin
    sync()
    return written, time.perf_counter() - begin


def _rate(move: Callable[[], object], count: int) -> float:
    """Return rows a second."""
    begin = time.perf_counter()
    move()
    return count / (time.perf_counter() - begin)


def _rows(case: str, line: int, rates: dict[str, list[float]]) -> list[ArrayRow]:
    rates = {way: values for way, values in rates.items() if values}
    medians = {way: median(values) for way, values in rates.items()}
    others = [rate for way, rate in medians.items() if not way.startswith("array")]
    return [
        ArrayRow(case, line, way, tuple(values), medians[way] / max(others) if others else None)
        for way, values in rates.items()
    ]
