"""The figures of the report, one function each, from what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff._sizes import parse_size
from hippogriff.reproduce import papers
from hippogriff.reproduce.bench import ROUTES
from hippogriff.reproduce.cost_figures import costs, instructions
from hippogriff.reproduce.energy_figures import energy, idle_energy, modelled_energy
from hippogriff.reproduce.experiments import DEFAULTS, ONE_CHANNEL
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    Figure,
    Measurements,
    Panel,
    Value,
    movement_seconds,
    relative,
)
from hippogriff.reproduce.hand_figures import by_hand
from hippogriff.reproduce.kernel_figures import kernel_energy, kernels
from hippogriff.reproduce.program_figures import (
    copying,
    movement_speedup,
    where_time_goes,
    whole_speedup,
)
from hippogriff.reproduce.programs import CONVENTIONAL, OURS
from hippogriff.reproduce.together_figures import together
from hippogriff.reproduce.weak_figures import modelled_weak_energy, weak_cpus, weak_energy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hippogriff.reproduce.journal import Record
    from hippogriff.reproduce.papers import Said

_TRANSFER_TITLES = {
    OURS: "hippogriff",
    ONE_CHANNEL: "hippogriff, one channel",
    CONVENTIONAL: "conventional: read and copy",
}
_BACK_TITLES = {CONVENTIONAL: "conventional: copy, write"}


def _size(size_bytes: int) -> str:
    """Return a size for an axis."""
    return f"{size_bytes >> 30} GiB" if size_bytes >= 1 << 30 else f"{size_bytes >> 20} MiB"


def _rates(records: list[Record], way: str, size: int) -> Value | None:
    """Return the GB/s of transfers of a size by a way."""
    return Value.of(
        size / seconds / 1e9
        for record in records
        if (record["way"], record["bytes"]) == (way, size)
        for seconds in record["result"]["seconds"]
        if seconds > 0
    )


def _transfer_panel(
    title: str, records: list[Record], ways: Mapping[str, str], said: tuple[Said, ...] = ()
) -> Panel:
    sizes = sorted({int(record["bytes"]) for record in records})
    return Panel(
        title,
        "GB/s, higher is better",
        tuple(_size(size) for size in sizes),
        {words: [_rates(records, way, size) for size in sizes] for way, words in ways.items()},
        said,
        numbers=tuple(map(float, sizes)),
    )


def throughput(measured: Measurements) -> Figure:
    """Figure 3.12: GB/s by size, direction, state, width and route."""
    panels = []
    fastest = 0.0
    for direction, state in (("send", "cold"), ("send", "cached"), ("recv", "cold")):
        records = [
            record
            for record in measured.of_kind("transfer")
            if (record["direction"], record["state"]) == (direction, state)
        ]
        send, cold = direction == "send", (direction, state) == ("send", "cold")
        title = f"file to device, {state}" if send else "device to file, durable"
        ways = _TRANSFER_TITLES if send else _TRANSFER_TITLES | _BACK_TITLES
        width = [record for record in records if record["way"] in ways]
        said = papers.THROUGHPUT if cold else ()
        panels.append(_transfer_panel(title, width, ways, said))
        if cold:
            ours = panels[-1].series[_TRANSFER_TITLES[OURS]]
            fastest = max((value.median for value in ours if value), default=0.0)
        routes = {route: f"{route} route" for route in ROUTES} | {OURS: _TRANSFER_TITLES[OURS]}
        sizes = {record["bytes"] for record in records if record["way"] in ROUTES}
        routed = [record for record in records if record["bytes"] in sizes]
        panels.append(_transfer_panel(f"by route: {title}", routed, routes, said))
    panels = [panel for panel in panels if not panel.empty]
    why = NOT_MEASURED
    if fastest:
        why = (
            "The papers' drive gives 2.2 GB/s, their numbers are of 4 GB files; here cold files "
            f"reach {fastest:.2f} GB/s. What is cached does not come from the drive at all, which "
            "the papers do not measure."
        )
    return Figure(
        "throughput",
        "E2",
        "Throughput by transfer size, width and route",
        "figure 3.12; Gullfoss, figure 8",
        tuple(panels),
        why,
        (
            "The first transfer of each process, which pins memory, is left out, as in the papers; "
            "the conventional way has memory that was made and touched before.",
            "A route is asked for by name; one that does not exist here is missing. Pages that it "
            "cannot take (those that are not cached, of mapped) go another way.",
        ),
    )


_SETTING_TITLES = {
    "piece": "size of the pieces that data moves in (HIPPOGRIFF_PIECE)",
    "pinbuffer": "size of the pinned memory (HIPPOGRIFF_PINBUFFER)",
    "channels": "parallel channels (HIPPOGRIFF_CHANNELS)",
    "calibration": "calibrated rates of links and drives, times a factor",
    "parking": "host memory for parking (HIPPOGRIFF_PARKING), eight programs at once",
}


def _by_size(value: str) -> float:
    """Return what values of a setting are ordered by."""
    try:
        return float(parse_size(value)) if not value.replace(".", "").isdigit() else float(value)
    except ValueError:
        return -1.0  # default, off


def sensitivity(measured: Measurements) -> Figure:
    """Show what each setting does to data movement, relative to the default."""
    panels = []
    best: list[str] = []
    for scale, records in measured.by_scale("setting"):
        for setting in dict.fromkeys(record["setting"] for record in records):
            mine = [record for record in records if record["setting"] == setting]
            values = sorted({str(record["value"]) for record in mine}, key=_by_size)
            default = DEFAULTS[setting]
            series = {}
            for case in dict.fromkeys(_case(record) for record in mine):
                found = {
                    value: Value.of(
                        _seconds(record)
                        # By default all is as it is in the other settings' default runs.
                        for record in (records if value == default else mine)
                        if _case(record) == case and _is_at(record, value, default)
                    )
                    for value in values
                }
                series[case] = [relative(found[value], found.get(default)) for value in values]
            ratios = [value.median for row in series.values() for value in row if value is not None]
            if ratios:
                best.append(f"{setting} {min(ratios):.2f}")
            places = tuple(
                f"{value} (default)" if value == default != "default" else value for value in values
            )
            title = f"{_SETTING_TITLES[setting]}, {scale} inputs"
            what = "all eight" if setting == "parking" else "data movement"
            unit = f"seconds of {what} relative to the default's, lower is better"
            panels.append(Panel(title, unit, places, series, base=1.0))
    why = NOT_MEASURED
    if best:
        why = (
            "The papers do not vary these. The best of all cases takes, of the default's time: "
            f"{', '.join(best)}."
        )
    notes = (
        "The default's seconds are of the default runs of all settings together. A bar without a "
        "line for its spread is of one run: a difference there may be chance.",
    )
    return Figure("sensitivity", "E8", "Sensitivity to settings", "none", tuple(panels), why, notes)


def _is_at(record: Record, value: str, default: str) -> bool:
    wanted = DEFAULTS[record["setting"]] if value == default else value
    return str(record["value"]) == wanted


def _case(record: Record) -> str:
    return f"{record.get('program') or record.get('workload')} {record.get('state', '')}".strip()


def _seconds(record: Record) -> float:
    return movement_seconds(record) if "result" in record else float(record["seconds"])


BUILDERS = (
    where_time_goes,
    copying,
    kernels,
    throughput,
    whole_speedup,
    movement_speedup,
    by_hand,
    costs,
    instructions,
    idle_energy,
    kernel_energy,
    energy,
    modelled_energy,
    weak_cpus,
    weak_energy,
    modelled_weak_energy,
    together,
    sensitivity,
)


def figures(measured: Measurements) -> list[Figure]:
    """Return all figures; those without measurements are empty."""
    return [build(measured) for build in BUILDERS]
