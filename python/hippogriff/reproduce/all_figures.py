"""The figures of the report, one function each, from what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff._sizes import parse_size
from hippogriff.reproduce import papers
from hippogriff.reproduce.energy_figures import energy, modelled_energy
from hippogriff.reproduce.experiments import DEFAULTS, ONE_CHANNEL
from hippogriff.reproduce.figures import (
    AVERAGE,
    NOT_MEASURED,
    Figure,
    Measurements,
    Panel,
    Value,
    average_of,
    inverse,
    movement_seconds,
    relative,
    with_average,
)
from hippogriff.reproduce.program_figures import (
    costs,
    movement_speedup,
    weak_cpus,
    where_time_goes,
    whole_speedup,
)
from hippogriff.reproduce.programs import CONVENTIONAL, OURS
from hippogriff.reproduce.together import CONFIGURATIONS, IN_TURNS

if TYPE_CHECKING:
    from hippogriff.reproduce.journal import Record

_TRANSFER_TITLES = {
    OURS: "hippogriff",
    ONE_CHANNEL: "hippogriff, one channel",
    CONVENTIONAL: "conventional: read and copy",
}


def _size(size_bytes: int) -> str:
    """Return a size for an axis."""
    return f"{size_bytes >> 30} GiB" if size_bytes >= 1 << 30 else f"{size_bytes >> 20} MiB"


def throughput(measured: Measurements) -> Figure:
    """Figure 3.12: GB/s by size, direction, state and width."""
    records = measured.of_kind("transfer")
    sizes = sorted({int(record["bytes"]) for record in records})
    panels = []
    fastest = 0.0
    for direction, state in (("send", "cold"), ("send", "cached"), ("recv", "cold")):
        series: dict[str, list[Value | None]] = {}
        for way, title in _TRANSFER_TITLES.items():
            values = []
            for size in sizes:
                found = [
                    size / seconds / 1e9
                    for record in records
                    if (record["direction"], record["state"]) == (direction, state)
                    and (record["way"], record["bytes"]) == (way, size)
                    for seconds in record["result"]["seconds"]
                    if seconds > 0
                ]
                values.append(Value.of(found))
            series[
                title if direction == "send" else title.replace("read and copy", "copy, write")
            ] = values
        cold = (direction, state) == ("send", "cold")
        panels.append(
            Panel(
                f"file to device, {state}" if direction == "send" else "device to file, durable",
                "GB/s, higher is better",
                tuple(_size(size) for size in sizes),
                series,
                papers.THROUGHPUT if cold else (),
                numbers=tuple(map(float, sizes)),
            )
        )
        if cold:
            fastest = max((v.median for v in series[_TRANSFER_TITLES[OURS]] if v), default=0.0)
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
        "Throughput by transfer size and width",
        "figure 3.12; Gullfoss, figure 8",
        tuple(panels),
        why,
        (
            "The first transfer of each process, which pins memory, is left out, as in the papers; "
            "the conventional way has memory that was made and touched before.",
        ),
    )


def _speeds(records: list[Record], workloads: list[str], name: str) -> list[Value | None]:
    """Return a configuration's speed-up over the programs one after another, by workload."""

    def seconds(workload: str, name: str) -> Value | None:
        # Programs that did not do their work were not fast.
        return Value.of(
            record["seconds"]
            for record in records
            if (record["workload"], record["configuration"]) == (workload, name)
            and not record["failures"]
        )

    values = [
        inverse(relative(seconds(workload, name), seconds(workload, IN_TURNS)))
        for workload in workloads
    ]
    # An average of those that worked would not be one of all.
    return with_average(values) if all(values) else [*values, None]


def together(measured: Measurements) -> Figure:
    """Figure 3.20: eight programs at once."""
    panels, notes = [], []
    for scale, records in measured.by_scale("together"):
        workloads = list(dict.fromkeys(record["workload"] for record in records))
        panels.append(
            Panel(
                f"eight at once, cold, memory for a third of them, {scale} inputs",
                "speed-up over unmodified programs one after another, higher is better",
                (*workloads, AVERAGE),
                {
                    each.title: _speeds(records, workloads, each.name)
                    for each in CONFIGURATIONS
                    if each.name != IN_TURNS
                },
                papers.TOGETHER,
                base=1.0,
            )
        )
        for each in CONFIGURATIONS:
            mine = [record for record in records if record["configuration"] == each.name]
            failures = sum(record["failures"] for record in mine)
            if failures:
                runs = sum(len(record["runs"]) for record in mine)
                notes.append(
                    f"{each.title}, {scale} inputs: {failures} of {runs} programs failed; a "
                    "configuration has no bar where any did."
                )
    why = NOT_MEASURED
    if panels:
        everything = average_of(panels[0], "everything")
        direct = average_of(panels[0], "always the direct-most route")
        if everything is not None and direct is not None:
            why = (
                f"Everything is {everything:.2f} times as fast as the programs one after another, "
                f"the direct-most route always {direct:.2f}. The papers' numbers (of large inputs) "
                "are over the unmodified programs at once, changed so that they fit; here "
                "unmodified ones fail when there is no memory (see below), so those one after "
                "another are the measure."
            )
    notes += [
        "hippogriff's programs are started by `hippogriff run`, whose start (an interpreter's, and "
        "the queue for memory) is in their time; of tiny inputs it is most of it.",
        "Each program reads a file of its own, which is not in the page cache when it starts.",
    ]
    return Figure(
        "together",
        "E7",
        "Eight programs at once under memory pressure",
        "figure 3.20; Gullfoss, figure 15",
        tuple(panels),
        why,
        tuple(notes),
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
                        for record in mine
                        if (_case(record), str(record["value"])) == (case, value)
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
        "A bar without a line for its spread is of one run: a difference there may be chance.",
    )
    return Figure("sensitivity", "E8", "Sensitivity to settings", "none", tuple(panels), why, notes)


def _case(record: Record) -> str:
    return f"{record.get('program') or record.get('workload')} {record.get('state', '')}".strip()


def _seconds(record: Record) -> float:
    return movement_seconds(record) if "result" in record else float(record["seconds"])


BUILDERS = (
    where_time_goes,
    throughput,
    whole_speedup,
    movement_speedup,
    costs,
    energy,
    modelled_energy,
    weak_cpus,
    together,
    sensitivity,
)


def figures(measured: Measurements) -> list[Figure]:
    """Return all figures; those without measurements are empty."""
    return [build(measured) for build in BUILDERS]
