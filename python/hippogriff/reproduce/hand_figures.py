"""Whether the pipelines by hand are as good as they can be tuned."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hippogriff.reproduce.bench import total_seconds
from hippogriff.reproduce.chance import ENOUGH, Compared, compare
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    WAY_TITLES,
    Figure,
    Measurements,
    Panel,
    Value,
    relative,
)
from hippogriff.reproduce.programs import BY_HAND, OURS
from hippogriff.reproduce.shapes import DEFAULT_SHAPE

if TYPE_CHECKING:
    from hippogriff.reproduce.journal import Record


def _row(records: list[Record], case: str, shapes: list[str]) -> list[Value | None]:
    found = {
        shape: Value.of(
            total_seconds(record)
            for record in records
            if (_case(record), record["shape"]) == (case, shape)
        )
        for shape in shapes
    }
    return [relative(found[shape], found.get(DEFAULT_SHAPE)) for shape in shapes]


def _least_by_hand(values: list[Value | None], shapes: list[str]) -> tuple[float, str] | None:
    """Return what the fastest shape by hand takes of the default's time, and its name."""
    known = [
        (value.median, shape)
        for value, shape in zip(values, shapes, strict=True)
        if value is not None and shape != OURS
    ]
    return min(known, default=None)


def _ours(values: list[Value | None], shapes: list[str]) -> float | None:
    """Return the same of hippogriff, where it took its turn beside them."""
    found = values[shapes.index(OURS)] if OURS in shapes else None
    return None if found is None else found.median


def _case(record: Record) -> str:
    return f"{record['program']} {record['state']}"


def _tuned(records: list[Record], case: str, way: str) -> list[float]:
    """Return the seconds of what was measured again in turns, of the shape that most are of."""
    mine = [record for record in records if _case(record) == case]
    shapes = Counter(str(record["shape"]) for record in mine if record["way"] == BY_HAND)
    if not shapes:
        return []
    (shape, _) = shapes.most_common(1)[0]
    return [
        total_seconds(record)
        for record in mine
        if (record["way"], str(record["shape"])) == (way, shape)
    ]


def _in_turns(measured: Measurements) -> list[Panel]:
    """Compare hippogriff with the shape that was the fastest, measured again beside it."""
    panels = []
    for scale, records in measured.by_scale("tuned"):
        cases = tuple(dict.fromkeys(_case(record) for record in records))
        by_hand = [Value.of(_tuned(records, case, BY_HAND)) for case in cases]
        ours = [Value.of(_tuned(records, case, OURS)) for case in cases]
        series = {
            "the best shape by hand": [relative(value, value) for value in by_hand],
            WAY_TITLES[OURS]: [relative(*both) for both in zip(ours, by_hand, strict=True)],
        }
        unit = "seconds of the program relative to the best shape's, lower is better"
        title = f"the best shape and hippogriff again, in turns, {scale} inputs"
        panels.append(Panel(title, unit, cases, series, base=1.0))
    return panels


def _again(measured: Measurements) -> list[str]:
    """Say how hippogriff compares with the best shape, by what was measured in turns."""
    found = []
    for scale, records in measured.by_scale("tuned"):
        for case in dict.fromkeys(_case(record) for record in records):
            ratio = compare(_tuned(records, case, OURS), _tuned(records, case, BY_HAND))
            if ratio is not None:
                found.append(f"{case}, {scale}, {ratio}")
    return found


def by_hand(measured: Measurements) -> Figure:
    """Compare shapes of the pipeline by hand, with whose default hippogriff is compared."""
    panels = []
    best: list[str] = []
    for scale, records in measured.by_scale("shape"):
        shapes = list(dict.fromkeys(str(record["shape"]) for record in records))
        cases = list(dict.fromkeys(_case(record) for record in records))
        series = {case: _row(records, case, shapes) for case in cases}
        panels.append(
            Panel(
                f"threads x bytes of a piece, {scale} inputs",
                "seconds of the program relative to the default shape's, lower is better",
                tuple(WAY_TITLES.get(shape, shape) for shape in shapes),
                series,
                base=1.0,
            )
        )
        for case, values in series.items():
            if least := _least_by_hand(values, shapes):
                ours = _ours(values, shapes)
                beside = "" if ours is None else f"; hippogriff beside it {ours:.2f}"
                best.append(f"{case}, {scale}, {least[0]:.2f} ({least[1]}{beside})")
    again = _again(measured)
    said = []
    if best:
        said.append(
            "The default is up to 12 threads with pieces of 4 MiB, less for small files. The best "
            f"shape takes, of the default's time: {', '.join(best)}. As the least of many medians "
            "is less than what that shape takes, it was measured again with hippogriff, where that "
            "is shown. The papers do not say how theirs was tuned."
        )
    if again:
        said.append(f"Hippogriff over the best shape, in turns: {', '.join(again)}.")
    why = " ".join(said) or NOT_MEASURED
    title = "The pipeline by hand, tuned"
    panels += _in_turns(measured)
    return Figure("by_hand", "E3", title, "Gullfoss, NVMe-pipeline", tuple(panels), why)


def over_best_shape(
    measured: Measurements, program: str, state: str, scale: str
) -> Compared | None:
    """Return the seconds of hippogriff over those of the fastest shape.

    By those that were measured for that, where there are enough, for the least of many medians
    flatters the shape that has it; else beside all shapes; else over those of the default, by what
    the shape took of them.
    """
    case = f"{program} {state}"
    again = dict(measured.by_scale("tuned")).get(scale, [])
    ways = [_tuned(again, case, way) for way in (OURS, BY_HAND)]
    if min(map(len, ways)) >= ENOUGH and (found := compare(*ways)):
        return found
    records = dict(measured.by_scale("shape")).get(scale, [])
    shapes = list(dict.fromkeys(str(record["shape"]) for record in records))
    values = _row(records, case, shapes)
    least = _least_by_hand(values, shapes)
    ours = _ours(values, shapes)
    if ours is None:
        ratio = measured.ratio((program, scale, state), (OURS, BY_HAND), total_seconds)
        ours = None if ratio is None else ratio.median
    return None if ours is None or least is None or not least[0] else Compared(ours / least[0])
