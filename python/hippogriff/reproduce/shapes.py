"""Shapes of the pipeline by hand: threads and pieces, and which of them is the fastest."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from hippogriff.reproduce.bench import AbsentError, MeasurementError, total_seconds
from hippogriff.reproduce.programs import BY_HAND, OURS

if TYPE_CHECKING:
    from hippogriff.reproduce.effort import Effort, Shape
    from hippogriff.reproduce.journal import Journal, Record

DEFAULT_SHAPE = "default"


def name_of(shape: Shape | str) -> str:
    """Return what a shape is called; words name themselves."""
    return shape if isinstance(shape, str) else f"{shape[0]} x {shape[1]}"


def options_of(shape: Shape | str) -> list[str]:
    """Return what a program by hand is told of it."""
    return [] if isinstance(shape, str) else ["--threads", str(shape[0]), "--piece", shape[1]]


def shape_key(case: str, shape: Shape | str, number: int) -> str:
    """Return the key of a repetition; a case is program, scale and state."""
    return f"shape/{case}/{name_of(shape)}/{number}"


def tuned_key(case: str, way: str, number: int) -> str:
    """Return the key of a repetition of the best shape, or of hippogriff beside it."""
    return f"tuned/{case}/{way}/{number}"


def fastest(journal: Journal, effort: Effort, case: str) -> Shape | str:
    """Return the shape that was the fastest, or that was chosen before: a median is of one shape.

    Raises
    ------
    MeasurementError
        When none was measured.
    AbsentError
        When none can be.
    """
    every: list[Shape | str] = [DEFAULT_SHAPE, *effort.shapes]
    shapes = {name_of(shape): shape for shape in every}
    for number in range(effort.tuned_repetitions):
        for way in (OURS, BY_HAND):
            chosen = (journal.get(tuned_key(case, way, number)) or {}).get("shape")
            if chosen in shapes:
                return shapes[chosen]
    found: list[tuple[float, Shape | str]] = []
    known: list[Record] = []
    for shape in every:
        keys = [shape_key(case, shape, number) for number in range(effort.setting_repetitions)]
        records = [record for key in keys if (record := journal.get(key)) is not None]
        seconds = [total_seconds(record) for record in records if "result" in record]
        known += records
        if seconds:
            found.append((statistics.median(seconds), shape))
    if found:
        return min(found, key=lambda each: each[0])[1]
    if known and all("absent" in record for record in known):
        raise AbsentError(str(known[0]["absent"]))
    raise MeasurementError("no shape of the pipeline by hand was measured to choose from")
