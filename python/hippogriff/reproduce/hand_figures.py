"""Whether the pipelines by hand are as good as they can be tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff.reproduce.experiments import DEFAULT_SHAPE
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    Figure,
    Measurements,
    Panel,
    Value,
    relative,
    total_seconds,
)

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


def _case(record: Record) -> str:
    return f"{record['program']} {record['state']}"


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
                tuple(shapes),
                series,
                base=1.0,
            )
        )
        for case, values in series.items():
            known = [
                (value.median, shape)
                for value, shape in zip(values, shapes, strict=True)
                if value is not None
            ]
            if known:
                least, shape = min(known)
                best.append(f"{case} {least:.2f} ({shape})")
    why = NOT_MEASURED
    if best:
        why = (
            "The default is up to 12 threads with pieces of 4 MiB, less for small files. The best "
            f"shape takes, of the default's time: {', '.join(best)}. The papers do not say how "
            "theirs was tuned."
        )
    title = "The pipeline by hand, tuned"
    return Figure("by_hand", "E3", title, "Gullfoss, NVMe-pipeline", tuple(panels), why)


def best_shape(measured: Measurements, program: str, state: str) -> float | None:
    """Return the seconds of the fastest shape over the default's, of large inputs."""
    records = dict(measured.by_scale("shape")).get("large", [])
    shapes = list(dict.fromkeys(str(record["shape"]) for record in records))
    found = _row(records, f"{program} {state}", shapes)
    return min((value.median for value in found if value is not None), default=None)
