"""The command's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hippogriff._console import make_table, printable, stdout
from hippogriff._measurement import median
from hippogriff._sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hippogriff._bench import Row
    from hippogriff._bench_array import ArrayRow


def show_info(facts: Mapping[str, Any]) -> None:
    """Show what `info` returns: the place, the devices, and each device's routes."""
    console = stdout()
    console.print(f"hippogriff {facts['version']}", markup=False)
    place = facts["path"]
    drive = place.get("drive")
    kind = f"{place['filesystem']}, {format_size(place['free_bytes'])} free"
    if place["filesystem"] == "block":
        kind = f"a block device of {format_size(place['size_bytes'])}"
    console.print(f"{printable(place['path'])}: {kind}, drive {_drive_name(drive)}", markup=False)
    console.print(
        f"reads and writes by {facts['io_queue']}, registered buffers: "
        f"{_verdict(facts['io_registered_buffers'])}, {facts['cores']} cores",
        markup=False,
    )
    for title in ("cuda", "gpudirect_storage"):
        if facts[title]["why_not"]:
            console.print(f"{title.replace('_', ' ')}: no: {facts[title]['why_not']}", markup=False)
    for notice in facts["notices"]:
        console.print(f"slower: {notice}", markup=False)
    columns = ("device", "model", "memory", "free", "calibrated")
    devices = make_table("", columns, numbers=("memory", "free"))
    routes = make_table("", ("device", "route", "file to device", "device to file"))
    for device in facts["devices"]:
        devices.add_row(
            device["name"],
            device["model"],
            format_size(device["memory_total_bytes"]),
            "?"
            if device["memory_free_bytes"] is None
            else format_size(device["memory_free_bytes"]),
            "yes" if device["calibrated"] else "no: hippogriff calibrate",
        )
        for route in device["routes"]:
            verdicts = (_verdict(route["send"]), _verdict(route["recv"]))
            routes.add_row(device["name"], route["route"], *verdicts)
    console.print(devices)
    console.print(routes)
    for unknown, names in _without_context(facts["devices"]).items():
        console.print(f"{', '.join(names)}: not asked, for want of a context: {unknown}")


def _without_context(devices: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return what is not known of which devices, because no context was made on them."""
    unknown: dict[str, list[str]] = {}
    for device in devices:
        for what in device["needs_context"]:
            unknown.setdefault(what, []).append(device["name"])
    return unknown


def _verdict(ability: Mapping[str, Any]) -> str:
    return "yes" if ability["possible"] else f"no: {ability['why_not']}"


def _drive_name(drive: Mapping[str, Any] | None) -> str:
    if drive is None:
        return "none"
    return " ".join(filter(None, (drive["name"], drive["model"])))


def show_outlook(outlook: Mapping[str, Any]) -> None:
    """Show what `explain` returns, and how the transfer went when it was run."""
    console = stdout()
    cached = f"{100 * outlook['cached_fraction']:.0f} % cached, "
    console.print(
        f"{printable(outlook['file'])}: {format_size(outlook['bytes'])} at offset "
        f"{outlook['offset']}, {outlook['filesystem']}, "
        f"{cached if outlook['direction'] == 'send' else ''}{outlook['direction']}, "
        f"device {outlook['device']}",
        markup=False,
    )
    numbers = ("predicted s", "GB/s", "CPU s/GB")
    table = make_table("", ("route", *numbers, "why not"), numbers=numbers)
    for route in outlook["routes"]:
        chosen = " (chosen)" if route["route"] == outlook["chosen"] else ""
        cells = ("", "", "")
        if route["possible"]:
            cells = _speeds(outlook["bytes"], route["seconds"], route["cpu_seconds"])
        table.add_row(f"{route['route']}{chosen}", *cells, route.get("why_not", ""))
    console.print(table)
    for sentence in other_processes(outlook):
        console.print(sentence, markup=False)
    if not outlook["calibrated"]:
        console.print("Predicted from defaults: `hippogriff calibrate` measures this machine.")
    run = outlook.get("run")
    if run is not None:
        seconds, predicted = run["seconds"], run.get("predicted_seconds", 0)  # none of no bytes
        console.print(
            f"run: {run['route']}, {seconds:.4f} s measured, {predicted:.4f} s predicted "
            f"({seconds / predicted if predicted else 0:.2f} times)"
        )


def show_array(told: Mapping[str, Any]) -> None:
    """Show what `StorageArray.explain` returns."""
    console = stdout()
    cached = f", {format_size(told['cached_bytes'])} cached" if "cached_bytes" in told else ""
    in_place = ""
    if "in_place_bytes" in told:
        in_place = f" ({format_size(told['in_place_bytes'])} in place now)"
    load = told.get("load")
    for line in (
        f"{printable(told['array'])}: {format_size(told['bytes'])}, {told['layout']}{cached}, "
        f"device {told['device']}",
        f"cache of {format_size(told['cache_bytes'])}, lines of {told['line_bytes']} bytes",
        f"lines come from {told['source']}{in_place}: {told['reason']}",
        *([f"by {told['io_queue']}"] if "io_queue" in told else []),
        f"rows on a GPU {'past' if told['zero_copy'] else 'through'} the cache: "
        f"{told['zero_copy_reason']}",
        f"better: {told['better']}: {told['why']}",
        *([_load_sentence(load)] if load else []),
    ):
        console.print(line, markup=False)


def _load_sentence(load: Mapping[str, Any]) -> str:
    basis = "" if load["calibrated"] else ", from defaults: `hippogriff calibrate` measures"
    return f"loading all of it: {load['seconds']:.4f} s predicted by {load['route']}{basis}"


def other_processes(outlook: Mapping[str, Any]) -> list[str]:
    """Say in sentences who shares the drive and the link, and what that changed."""
    others = outlook.get("other_processes", {})
    sentences = []
    for part in ("drive", "link"):
        load = others.get(part, {"processes": 0})
        if load["processes"]:
            programs = "program moves" if load["processes"] == 1 else "programs move"
            sentences.append(
                f"{load['processes']} other {programs} {load['bytes_per_second'] / 1e9:.2f} GB/s "
                f"over this {part}: 1 of {load['processes'] + 1} shares is planned with"
            )
    if others.get("want_memory"):
        sentences.append(f"{others['want_memory']} wait for memory of this device")
    if "without_them" in others:
        without = others["without_them"]
        chosen = next(each for each in outlook["routes"] if each["route"] == outlook["chosen"])
        sentences.append(
            f"without them: {without['route']} in {without['seconds']:.6f} s with "
            f"{_widths(without['plan'])}; beside them {_widths(chosen['plan'])}"
        )
    return sentences


def _widths(plan: Mapping[str, Any]) -> str:
    threads = sum(plan[f"{lane}_channels"] for lane in ("direct", "mapped", "buffered"))
    return f"{threads} channels and depth {plan['direct_io_depth']} at the drive"


def _speeds(size_bytes: int, seconds: float, cpu_seconds: float) -> tuple[str, str, str]:
    if not size_bytes or not seconds:
        return f"{seconds:.6f}", "", ""
    return (
        f"{seconds:.6f}",
        f"{size_bytes / seconds / 1e9:.2f}",
        f"{cpu_seconds / size_bytes * 1e9:.3f}",
    )


def show_rows(title: str, rows: Sequence[Row]) -> None:
    """Show what `bench` measured."""
    numbers = ("GB/s", "CPU s/GB", "s")
    table = make_table(
        title, ("case", "asked", "route taken", *numbers, "why not"), numbers=numbers
    )
    case = ""
    for row in rows:
        if row.case != case and case:
            table.add_section()
        case = row.case
        if row.samples:
            middle = median(list(row.samples))
            table.add_row(
                row.case,
                row.asked,
                middle.route,
                f"{middle.gb_per_second:.2f}",
                f"{middle.cpu_seconds_per_gb:.3f}",
                f"{middle.seconds:.4f}",
            )
        else:
            table.add_row(row.case, row.asked, "", "", "", "", row.why_not)
    stdout().print(table)


def show_array_rows(title: str, rows: Sequence[ArrayRow]) -> None:
    """Show what `bench array` measured; the ratio is to the fastest way that is no array."""
    numbers = ("thousand rows/s", "MB/s", "ratio")
    table = make_table(title, ("case", "bytes", "way", *numbers), numbers=("bytes", *numbers))
    before = None
    for row in rows:
        if before not in (None, (row.case, row.line)):
            table.add_section()
        before = (row.case, row.line)
        rate = row.rows_per_second
        table.add_row(
            row.case,
            str(row.line),
            row.way,
            f"{rate / 1e3:.1f}",
            f"{rate * row.line / 1e6:.1f}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
        )
    stdout().print(table)


def show_facts(facts: Mapping[str, Any], indent: str = "") -> None:
    """Show nested facts, one a line."""
    for key, value in facts.items():
        if not isinstance(value, dict):
            shown = f"{value:g}" if isinstance(value, float) else value
            print(f"{indent}{key}: {shown}")
        elif set(value) == {"bytes_per_second", "cpu_seconds_per_byte"}:
            speed, cost = value["bytes_per_second"] / 1e9, value["cpu_seconds_per_byte"] * 1e9
            print(f"{indent}{key}: {speed:.2f} GB/s, {cost:.3f} CPU s/GB")
        else:
            print(f"{indent}{key}:")
            show_facts(value, indent + "  ")
