"""Figures as data: what was measured beside what the papers say. Built from whatever there is."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hippogriff.reproduce.bench import cpu_seconds_of, moved_seconds
from hippogriff.reproduce.programs import BY_HAND, CONVENTIONAL, OURS, PROGRAMS, SCALES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hippogriff.reproduce.journal import Record
    from hippogriff.reproduce.papers import Said

AVERAGE = "average"
NOT_MEASURED = "Not measured yet."
WAY_TITLES = {CONVENTIONAL: "conventional", BY_HAND: "pipelined by hand", OURS: "hippogriff"}


@dataclass(frozen=True)
class Value:
    """A median of repetitions, with the least and the most of them; or a mean of programs."""

    median: float
    least: float
    most: float
    count: int
    of_programs: bool = False

    @classmethod
    def of(cls, values: Iterable[float]) -> Value | None:
        """Return it, or None of nothing."""
        found = [value for value in values if math.isfinite(value)]
        if not found:
            return None
        return cls(statistics.median(found), min(found), max(found), len(found))


@dataclass(frozen=True)
class Panel:
    """Bars by place, or lines over numbers; `said` are the papers' numbers as lines across."""

    title: str
    unit: str
    places: tuple[str, ...]
    series: dict[str, list[Value | None]]
    said: tuple[Said, ...] = ()
    stacked: bool = False
    numbers: tuple[float, ...] = ()  # of a plot of lines: where the places lie
    theirs: str = ""  # the series that is the papers'
    base: float | None = None  # what values are relative to, as a line

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return not any(
            value for name, values in self.series.items() for value in values if name != self.theirs
        )


@dataclass(frozen=True)
class Figure:
    """A figure of the report. `why`: what the difference to the papers comes from."""

    name: str
    experiment: str
    title: str
    papers: str
    panels: tuple[Panel, ...]
    why: str
    notes: tuple[str, ...] = field(default=())

    @property
    def empty(self) -> bool:
        """Whether nothing was measured for it."""
        return all(panel.empty for panel in self.panels)


class Measurements:
    """The measurements of one machine, from which figures are made."""

    def __init__(self, runs: list[Record], records: list[Record]) -> None:
        self.runs = runs
        self.records = records
        self.good = [
            record for record in records if not record.get("failure") and not record.get("absent")
        ]
        self._whole: dict[tuple[str, str, str, str], list[Record]] = defaultdict(list)
        for record in self.good:
            if str(record["key"]).startswith("whole/") and "result" in record:
                names = ("program", "scale", "state", "way")
                self._whole[tuple(record[name] for name in names)].append(record)

    @property
    def device(self) -> str:
        """The device's model."""
        if not self.runs:
            return "an unknown device"
        model = str(self.runs[-1]["machine"]["device"])
        return "device host, the CPUs" if model == "host memory" else model

    def by_scale(self, kind: str) -> list[tuple[str, list[Record]]]:
        """Return the good measurements of a kind by size of the input, the largest first.

        Those that have none, such as idle ones, are of each.
        """
        found = [record for record in self.good if str(record["key"]).startswith(f"{kind}/")]
        scales = [
            scale
            for scale in reversed(SCALES)
            if any(record.get("scale") == scale for record in found)
        ]
        return [
            (scale, [record for record in found if record.get("scale", scale) == scale])
            for scale in scales
        ]

    def of_kind(self, kind: str) -> list[Record]:
        """Return the good measurements whose keys begin so, of the largest inputs there are."""
        found = [record for record in self.good if str(record["key"]).startswith(f"{kind}/")]
        scales = {record["scale"] for record in found if "scale" in record}
        largest = max(scales, key=SCALES.index, default=None)
        return [record for record in found if record.get("scale", largest) == largest]

    def whole(self, program: str, scale: str, state: str, way: str) -> list[Record]:
        """Return the repetitions of a whole program."""
        return self._whole.get((program, scale, state, way), [])

    def scales(self) -> list[str]:
        """Return those measured, the smallest first."""
        found = {key[1] for key in self._whole}
        return [scale for scale in SCALES if scale in found]

    def states(self, scale: str) -> list[str]:
        """Return those measured."""
        found = {key[2] for key in self._whole if key[1] == scale}
        return [state for state in ("cold", "cached") if state in found]

    def ratio(
        self, case: tuple[str, str, str], ways: tuple[str, str], figure: Callable[[Record], float]
    ) -> Value | None:
        """Return the figure of the first way over the second's, of a whole program.

        Its least and most are those of the single runs over the other way's median.
        """
        return relative(
            Value.of(map(figure, self.whole(*case, ways[0]))),
            Value.of(map(figure, self.whole(*case, ways[1]))),
        )


def relative(of: Value | None, to: Value | None) -> Value | None:
    """Return a value over another's median."""
    if of is None or to is None or to.median <= 0:
        return None
    base = to.median
    count = min(of.count, to.count)
    return replace(
        of, median=of.median / base, least=of.least / base, most=of.most / base, count=count
    )


def inverse(value: Value | None) -> Value | None:
    """Return 1 / value: of a ratio of seconds the speed-up."""
    if value is None or value.least <= 0:
        return None
    return replace(value, median=1 / value.median, least=1 / value.most, most=1 / value.least)


def with_average(values: list[Value | None]) -> list[Value | None]:
    """Append the geometric mean of the medians, of those there are."""
    medians = [value.median for value in values if value is not None and value.median > 0]
    if not medians:
        return [*values, None]
    mean = statistics.geometric_mean(medians)
    return [*values, Value(mean, mean, mean, len(medians), of_programs=True)]


def program_places() -> tuple[str, ...]:
    """Return the places of a plot by program."""
    return (*(program.title for program in PROGRAMS), AVERAGE)


def process_seconds(record: Record) -> float:
    """Return the seconds of the process, all included."""
    return float(record["seconds"])


def movement_seconds(record: Record) -> float:
    """Return the seconds in which data moved."""
    return moved_seconds(record["result"])


def inward_seconds(record: Record) -> float:
    """Return the seconds in which data moved to the device."""
    seconds = record["result"]["seconds"]
    return float(sum(seconds.get(name, 0) for name in ("send", "read", "copy_in")))


def cpu_seconds(record: Record) -> float:
    """Return the CPU seconds of the process."""
    return cpu_seconds_of(record["result"])


def usage(name: str) -> Callable[[Record], float]:
    """Return the function that takes a number of the process's usage."""
    return lambda record: float(record["result"]["usage"][name])


def average_of(panel: Panel, name: str) -> float | None:
    """Return the average that a panel by programs ends with."""
    values = panel.series.get(name) or [None]
    last = values[-1]
    return None if last is None else last.median
