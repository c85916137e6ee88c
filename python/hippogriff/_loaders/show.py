"""The table of `hippogriff bench loaders`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff._console import make_table, stdout
from hippogriff._sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hippogriff._loaders.bench import Plan, Row

_NUMBERS = ("first GB/s", "GB/s", "CPU s/GB", "GPU memory beside", "host memory beside")


def show_loaders(plan: Plan, rows: Sequence[Row]) -> None:
    """Show what was measured, a table for each case."""
    console = stdout()
    cases = list(dict.fromkeys(_title(row) for row in rows))
    for case in cases:
        table = make_table(case, ("loader", *_NUMBERS, "why not"), numbers=_NUMBERS)
        for row in rows:
            if _title(row) == case:
                name = f"{row.contender} {row.version}".strip()
                table.add_row(name, *_cells(row), row.why_not)
        console.print(table)
    console.print(
        f"To {plan.device}; first: of a process, all others: medians of later loads."
        if plan.repeat > 1
        else f"To {plan.device}."
    )
    if plan.device == "cpu":
        console.print(
            "safetensors with torch maps the file on the CPU: nothing is read before it is used."
        )


def _title(row: Row) -> str:
    case = row.case
    return (
        f"{case['folder']}, {case['state']}: {case['tensors']} tensors, "
        f"{format_size(case['size_bytes'])}"
    )


def _cells(row: Row) -> tuple[str, ...]:
    def number(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    def most(sizes: list[int]) -> str:
        return format_size(max(sizes)) if sizes and max(sizes) >= 0 else ""

    return (
        number(row.first(), 2),
        number(row.later(), 2),
        number(row.cpu_seconds_per_gb(), 3),
        most([outcome.device_bytes for outcome in row.outcomes]),
        most([outcome.host_bytes for outcome in row.outcomes]),
    )
