"""The transfers that programs have in flight, each for itself and by drive and link."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hippogriff._console import make_table
from hippogriff._sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.table import Table

    Entry = Mapping[str, Any]

#: What stays the same while a transfer is in flight.
_IDENTITY = ("pid", "client", "device", "drive", "direction", "bytes_total")
# Two transfers of a program may be alike but for when they began, which is known about as well as
# this process runs on at once after it looked.
_SAME_START_SECONDS = 0.25
# Between two looks that are closer a transfer may not have had a chance to say how far it is.
_APART_SECONDS = 0.05


@dataclass
class _Look:
    started: float
    seconds: float
    bytes_done: int
    gb_per_second: float


class TransferRates:
    """What transfers moved between one look and the next; at first, since they began.

    Thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[tuple[Any, ...], list[_Look]] = {}

    def add_to(self, status: Mapping[str, Any]) -> None:
        """Put ``gb_per_second_now`` into each transfer's entry."""
        with self._lock:
            now = self._clock()
            looks: dict[tuple[Any, ...], list[_Look]] = {}
            for entry in status["transfers"]:
                look = self._look(entry, now - entry["seconds"])
                looks.setdefault(_identity(entry), []).append(look)
                entry["gb_per_second_now"] = look.gb_per_second
            self._last = looks

    def _look(self, entry: Entry, started: float) -> _Look:
        seconds, done = entry["seconds"], entry["bytes_done"]
        before = self._take_last(_identity(entry), started, done)
        if before is None:
            return _Look(started, seconds, done, entry["gb_per_second"])
        passed = seconds - before.seconds
        if passed < _APART_SECONDS:
            return before
        return _Look(started, seconds, done, (done - before.bytes_done) / passed / 1e9)

    def _take_last(self, key: tuple[Any, ...], started: float, done: int) -> _Look | None:
        """Return the last look at a transfer, which is no other's then."""
        looks = self._last.get(key, [])
        likely = [
            look
            for look in looks
            if abs(look.started - started) < _SAME_START_SECONDS and look.bytes_done <= done
        ]
        if not likely:
            return None
        nearest = min(likely, key=lambda look: abs(look.started - started))
        looks.remove(nearest)
        return nearest


def _identity(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry[name] for name in _IDENTITY)


def traffic(status: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Sum transfers up by ``drives`` and by ``links``, which have the devices' names.

    Their GB/s are those of the last look where the status has them, else since each began. What is
    read from the page cache is at no drive.
    """
    return {"drives": _sums(status, "drive"), "links": _sums(status, "device")}


def _sums(status: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    entries: dict[str, list[Entry]] = {}
    for entry in status["transfers"]:
        if entry[place]:
            entries.setdefault(entry[place], []).append(entry)
    return [
        {
            place: name,
            "transfers": len(there),
            "programs": len({entry["client"] for entry in there}),
            "send_gb_per_second": _speed(there, "send"),
            "recv_gb_per_second": _speed(there, "recv"),
        }
        for name, there in sorted(entries.items())
    ]


def _speed(entries: list[Entry], direction: str) -> float:
    return float(sum(_now(entry) for entry in entries if entry["direction"] == direction))


def _now(entry: Entry) -> float:
    return float(entry.get("gb_per_second_now", entry["gb_per_second"]))


def traffic_table(status: Mapping[str, Any], device_name: Callable[[str], str]) -> Table:
    """Return how much moves at each drive and over each link."""
    numbers = ("transfers", "programs", "send GB/s", "recv GB/s", "GB/s")
    table = make_table("", ("over", *numbers), numbers=numbers)
    sums = traffic(status)
    named = [(f"drive {entry['drive']}", entry) for entry in sums["drives"]]
    named += [(f"link of {device_name(entry['device'])}", entry) for entry in sums["links"]]
    for name, entry in named:
        send, recv = entry["send_gb_per_second"], entry["recv_gb_per_second"]
        counts = (str(entry["transfers"]), str(entry["programs"]))
        table.add_row(name, *counts, f"{send:.2f}", f"{recv:.2f}", f"{send + recv:.2f}")
    return table


def transfers_table(status: Mapping[str, Any], device_name: Callable[[str], str]) -> Table:
    """Return the transfers of a status, each for itself."""
    numbers = ("pid", "done", "of", "GB/s")
    columns = ("pid", "device", "drive", "direction", "route", "done", "of", "GB/s", "state")
    table = make_table("", columns, numbers=numbers)
    for entry in status["transfers"]:
        state = "waits for memory" if entry["wants_memory"] else entry["phase"]
        table.add_row(
            str(entry["pid"]),
            device_name(entry["device"]),
            entry["drive"],
            entry["direction"],
            entry["route"],
            format_size(entry["bytes_done"]),
            format_size(entry["bytes_total"]),
            f"{_now(entry):.2f}",
            state,
        )
    return table


def unshown(status: Mapping[str, Any]) -> int:
    """Return how many transfers are in flight beyond those that programs show of themselves."""
    return sum(client.get("unshown_transfers", 0) for client in status["clients"])
