"""The arrays in storage that programs have open, as ``hippogriff top`` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hippogriff._console import make_table
from hippogriff._sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.table import Table

    Entry = Mapping[str, Any]

_TOTALS = ("seconds", "accesses", "hits", "misses", "read_bytes", "written_bytes")


class ArrayRates:
    """What arrays did between one look and the next; at first, since they were opened."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, ...], tuple[Entry, dict[str, float]]] = {}

    def add_to(self, status: Mapping[str, Any]) -> None:
        """Put ``lately`` into each array's entry: the differences, over ``seconds``."""
        looks = {}
        for entry in status["arrays"]:
            # Another array has another time of opening, also in the same record.
            key = tuple(entry[name] for name in ("pid", "client", "record", "opened_ns"))
            before, lately = self._last.get(key, (dict.fromkeys(_TOTALS, 0), {}))
            # An owner that sleeps writes its counts twice a second: until then the last rates hold.
            if not lately or entry["seconds"] > before["seconds"]:
                lately = {name: max(entry[name] - before[name], 0) for name in _TOTALS}
            entry["lately"] = lately
            looks[key] = (entry, lately)
        self._last = looks


def arrays_table(status: Mapping[str, Any], device_name: Callable[[str], str]) -> Table:
    """Return the arrays of a status that has their rates."""
    sizes = ("size", "cache", "line")
    rates = ("hits", "hits now", "misses/s", "read GB/s", "written GB/s", "in flight")
    columns = ("pid", "device", *sizes, *rates)
    table = make_table("", columns, numbers=("pid", *sizes, *rates))
    for entry in status["arrays"]:
        lately = entry["lately"]
        table.add_row(
            str(entry["pid"]),
            device_name(entry["device"]),
            format_size(entry["size_bytes"]),
            format_size(entry["cache_bytes"]),
            format_size(entry["line_bytes"]),
            _hit_rate(entry, counted=entry["hits_counted"]),
            _hit_rate(lately, counted=entry["hits_counted"]),
            f"{_per_second(lately, 'misses'):.0f}",
            f"{_per_second(lately, 'read_bytes') / 1e9:.2f}",
            f"{_per_second(lately, 'written_bytes') / 1e9:.2f}",
            _in_flight(entry),
        )
    return table


def _in_flight(entry: Entry) -> str:
    # What the process may have at the drive, while others read or write there.
    limit = entry["drive_limit"]
    return f"{entry['in_flight']} (drive: {limit})" if limit else str(entry["in_flight"])


def uncounted(status: Mapping[str, Any]) -> str:
    """Return why some arrays have no hits, or nothing."""
    if all(entry["hits_counted"] for entry in status["arrays"]):
        return ""
    return (
        "not counted: hits of kernels compiled without HIPPOGRIFF_COUNT_ACCESSES "
        "(get_compile_options(count_hits=True))"
    )


def _hit_rate(counts: Entry, *, counted: bool) -> str:
    if not counted:
        return "not counted"
    accesses = counts["accesses"]
    return f"{min(counts['hits'] / accesses, 1):.1%}" if accesses else "-"


def _per_second(counts: Entry, name: str) -> float:
    return float(counts[name] / counts["seconds"]) if counts["seconds"] > 0 else 0.0
