"""Measures what is not measured yet, one after the other, and tells how far it is."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from types import TracebackType

    from hippogriff.reproduce.experiments import Unit
    from hippogriff.reproduce.journal import Journal

_LINE_SECONDS = 5.0


@dataclass
class Summary:
    """How a run went; the numbers are measurements. `done`: they are there, and did not fail."""

    wanted: int
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    out_of_time: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.done + len(self.absent) >= self.wanted


class Estimate:
    """How long what is left takes: as long as its like, else as its guess says, corrected."""

    def __init__(self) -> None:
        self._took: dict[str, list[float]] = defaultdict(list)
        self._ratios: list[float] = []

    def note(self, unit: Unit, seconds: float) -> None:
        """Learn."""
        self._took[unit.group].append(seconds)
        self._ratios.append(seconds / unit.guess_seconds)

    def seconds(self, units: list[Unit]) -> float:
        """Return the estimate for units."""
        ratio = statistics.median(self._ratios) if self._ratios else 1.0
        return sum(self.of(unit, ratio) for unit in units)

    def of(self, unit: Unit, ratio: float = 1.0) -> float:
        """Return the estimate for one."""
        took = self._took.get(unit.group)
        return statistics.fmean(took) if took else unit.guess_seconds * ratio


def clock(seconds: float) -> str:
    """Write a duration."""
    whole = int(seconds + 0.5)
    return f"{whole // 60}:{whole % 60:02d} min"


class Display:
    """A bar on a terminal, else a line every 5 s; both on stderr."""

    def __init__(self, total: int, done: int, *, quiet: bool) -> None:
        self._total, self._done = total, done
        self._quiet = quiet
        self._told = -_LINE_SECONDS
        self._bar: Progress | None = None
        if sys.stderr.isatty() and not quiet:
            self._bar = Progress(
                TextColumn("{task.description}", table_column=None),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("about {task.fields[left]} left"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=total, completed=done, left="?")

    def __enter__(self) -> Display:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, unit: Unit, done: int, left_seconds: float) -> None:
        """Say what is measured next."""
        left = clock(left_seconds)
        if self._bar is not None:
            self._bar.update(self._task, description=unit.key[:60], completed=done, left=left)
        elif not self._quiet and time.monotonic() - self._told >= _LINE_SECONDS:
            self._told = time.monotonic()
            words = f"{done} of {self._total} measured, about {left} left; now {unit.key}"
            print(words, file=sys.stderr, flush=True)

    def warn(self, words: str) -> None:
        """Say that something failed."""
        if self._bar is not None:
            self._bar.console.print(words, highlight=False, markup=False)
        elif not self._quiet:
            print(words, file=sys.stderr, flush=True)


def measure(units: list[Unit], journal: Journal, budget_seconds: float, *, quiet: bool) -> Summary:
    """Measure until all is there, the time is over, or somebody interrupts.

    A measurement begins only when it probably ends within the time.
    """
    deadline = time.monotonic() + budget_seconds
    left = [unit for unit in units if not journal.has(unit.key)]
    summary = Summary(len(units))
    estimate = Estimate()
    with Display(len(units), len(units) - len(left), quiet=quiet) as display:
        while left:
            unit = left[0]
            if time.monotonic() + estimate.of(unit) > deadline:
                summary.out_of_time = True
                break
            display.tell(unit, len(units) - len(left), estimate.seconds(left))
            try:
                record = unit.measure()
            except KeyboardInterrupt:
                summary.interrupted = True
                break
            journal.add(record)
            estimate.note(unit, record["took_seconds"])
            left.pop(0)
            if record.get("failure"):
                display.warn(f"FAILED {unit.key}: {record['failure']}")
    for unit in units:
        known = journal.get(unit.key)
        if known is None:
            continue
        if known.get("failure"):  # Also what failed before, and there was no time for now.
            summary.failed[unit.key] = known["failure"]
        elif known.get("absent"):
            summary.absent[unit.key] = known["absent"]
        else:
            summary.done += 1
    return summary
