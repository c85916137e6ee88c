"""What `hippogriff ps` and `hippogriff top` show."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from hippogriff._console import make_table, stdout
from hippogriff._node import node_status
from hippogriff._sizes import format_size
from hippogriff.sharing.arrays import ArrayRates, arrays_table, uncounted
from hippogriff.sharing.transfers import (
    TransferRates,
    traffic,
    traffic_table,
    transfers_table,
    unshown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console, RenderableType
    from rich.table import Table

_COMMAND_LENGTH_MAX = 60
_LONGEST_SECONDS = 86400.0  # less than what a sleep refuses


def command_of(pid: int) -> str:
    """Return a process's command line; empty when it has ended or is another container's."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = " ".join(part.decode(errors="replace") for part in arguments).strip()
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable[:_COMMAND_LENGTH_MAX]


def with_commands(status: dict[str, Any]) -> dict[str, Any]:
    """Add the command lines of the processes."""
    for entry in (*status["reservations"], *status["clients"]):
        entry["command"] = command_of(entry["pid"])
    return status


def with_traffic(status: dict[str, Any]) -> dict[str, Any]:
    """Add the sums of transfers by drive and link."""
    status["traffic"] = traffic(status)
    return status


def show_status() -> None:
    """Print devices and reservations once."""
    _print(stdout(), ArrayRates(), TransferRates())


def _print(console: Console, rates: ArrayRates, transfer_rates: TransferRates) -> None:
    for part in parts(with_commands(node_status()), rates, transfer_rates):
        console.print(part)


def follow_status(seconds: float) -> None:
    """Show the same, again and again, until it is interrupted.

    What is no terminal, or has no screen, gets one view below the other.
    """
    rates, transfer_rates = ArrayRates(), TransferRates()
    console = stdout()
    seconds = min(seconds, _LONGEST_SECONDS)
    while not console.is_terminal or console.is_dumb_terminal:
        _print(console, rates, transfer_rates)
        time.sleep(seconds)
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                status = with_commands(node_status())
                live.update(Group(*parts(status, rates, transfer_rates)), refresh=True)
                time.sleep(seconds)
    finally:  # Also of an interrupt that came as the screen was taken.
        console.set_alt_screen(False)
        console.show_cursor(True)


def parts(
    status: Mapping[str, Any], rates: ArrayRates, transfer_rates: TransferRates
) -> list[RenderableType]:
    """Return the tables."""
    shown: list[RenderableType] = [Text(f"{status['node']}: {status['policy']}"), _devices(status)]
    if status["reservations"]:
        shown.append(_reservations(status))
    else:
        shown.append(Text("nothing is reserved"))

    def name(uuid: str) -> str:
        return _name(status, uuid)

    if status.get("transfers"):
        transfer_rates.add_to(status)
        shown += [transfers_table(status, name), traffic_table(status, name)]
        if more := unshown(status):
            shown.append(Text(f"{more} more transfers are in flight, of programs with many"))
    if status.get("arrays"):
        rates.add_to(status)
        shown.append(arrays_table(status, name))
        if why := uncounted(status):
            shown.append(Text(why))
    return shown


def _devices(status: Mapping[str, Any]) -> Table:
    numbers = ("memory", "promised", "outside", "free", "used", "busy")
    table = make_table("", ("device", "model", *numbers), numbers=numbers)
    known = {device["uuid"] for device in status["devices"]}
    strangers = [
        {**gpu, "promised_bytes": 0, "outside_bytes": gpu["used_bytes"]}
        for gpu in status["gpus"]
        if gpu["uuid"] not in known
    ]
    for device in (*status["devices"], *strangers):
        free = device["memory_bytes"] - device["promised_bytes"] - device["outside_bytes"]
        busy = device.get("utilization_pct")
        table.add_row(
            _name(status, device["uuid"]),
            device.get("model", ""),
            format_size(device["memory_bytes"]),
            format_size(device["promised_bytes"]),
            format_size(device["outside_bytes"]),
            format_size(max(free, 0)),
            format_size(device["used_bytes"]),
            "" if busy is None else f"{busy} %",
        )
    return table


def _reservations(status: Mapping[str, Any]) -> Table:
    numbers = ("pid", "promised", "used", "priority")
    columns = ("pid", "device", "promised", "used", "priority", "state", "command")
    table = make_table("", columns, numbers=numbers)
    for entry in status["reservations"]:
        state = "holds"
        if entry["deferred"]:
            state = f"has yet to use {format_size(entry['wanted_bytes'])}"
        if entry["waits"]:
            state = (
                f"waits {entry['waited_seconds']:.0f} s for {format_size(entry['wanted_bytes'])}"
            )
        table.add_row(
            str(entry["pid"]),
            _name(status, entry["device"]),
            format_size(entry["size_bytes"]),
            format_size(_used(status, entry)),
            str(entry["priority"]),
            state,
            entry["command"],
        )
    return table


def _used(status: Mapping[str, Any], entry: Mapping[str, Any]) -> int:
    """Return what the client, and those who follow it, use of the device."""
    return sum(
        client["used_bytes"].get(entry["device"], 0)
        for client in status["clients"]
        if client["leader"] == entry["client"]
    )


def _name(status: Mapping[str, Any], uuid: str) -> str:
    index = next((gpu["index"] for gpu in status["gpus"] if gpu["uuid"] == uuid), None)
    return uuid if index is None else f"GPU {index}"
