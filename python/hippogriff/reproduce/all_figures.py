"""The figures of the report, one function each, from what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff._sizes import format_size
from hippogriff.reproduce import papers
from hippogriff.reproduce.energy_figures import energy, modelled_energy
from hippogriff.reproduce.experiments import DEFAULTS, ONE_CHANNEL
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    Figure,
    Measurements,
    Panel,
    Value,
    average_of,
    inverse,
    movement_seconds,
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
from hippogriff.reproduce.together import CONFIGURATIONS

if TYPE_CHECKING:
    from hippogriff.reproduce.journal import Record

_TRANSFER_TITLES = {
    CONVENTIONAL: "read + copy",
    ONE_CHANNEL: "hippogriff, one channel",
    OURS: "hippogriff",
}


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
            series[title] = values
        title = f"file to device, {state}" if direction == "send" else "device to file"
        said = papers.THROUGHPUT if (direction, state) == ("send", "cold") else ()
        panels.append(
            Panel(
                title,
                "GB/s",
                tuple(format_size(size) for size in sizes),
                series,
                said,
                numbers=tuple(map(float, sizes)),
            )
        )
        if (direction, state) == ("send", "cold"):
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
        ("The first transfer of each process, which pins memory, is left out, as in the papers.",),
    )


def together(measured: Measurements) -> Figure:
    """Figure 3.20: eight programs at once."""
    records = measured.of_kind("together")
    workloads = list(dict.fromkeys(record["workload"] for record in records))

    def speeds(name: str) -> list[Value | None]:
        values: list[Value | None] = []
        for workload in workloads:
            base = Value.of(
                r["seconds"]
                for r in records
                if (r["workload"], r["configuration"]) == (workload, "in_turns")
                and not r["failures"]
            )
            # Programs that did not do their work were not fast.
            of = Value.of(
                r["seconds"]
                for r in records
                if (r["workload"], r["configuration"]) == (workload, name) and not r["failures"]
            )
            values.append(
                inverse(
                    Value(
                        of.median / base.median,
                        of.least / base.median,
                        of.most / base.median,
                        of.count,
                    )
                )
                if base is not None and of is not None
                else None
            )
        return with_average(values)

    series = {each.title: speeds(each.name) for each in CONFIGURATIONS}
    panel = Panel(
        "eight at once, cold, memory for a third of them",
        "speed-up over unmodified programs one after another",
        (*workloads, "average"),
        {title: values for title, values in series.items() if any(values)},
        papers.TOGETHER,
    )
    notes = ["hippogriff's programs are started by `hippogriff run`, whose start is in their time."]
    for each in CONFIGURATIONS:
        failures = sum(r["failures"] for r in records if r["configuration"] == each.name)
        if failures:
            runs = sum(len(r["runs"]) for r in records if r["configuration"] == each.name)
            notes.append(f"{each.title}: {failures} of {runs} programs failed.")
    why = NOT_MEASURED
    everything = average_of(panel, "everything")
    direct = average_of(panel, "always the direct-most route")
    if everything is not None and direct is not None:
        why = (
            f"Everything is {everything:.2f} times as fast as the programs one after another, the "
            f"direct-most route always {direct:.2f}. The papers' baseline are the unmodified "
            "programs at once, changed so that they fit; here unmodified ones fail when there is "
            "no memory (see below), so those one after another are the measure."
        )
    return Figure(
        "together",
        "E7",
        "Eight programs at once under memory pressure",
        "figure 3.20; Gullfoss, figure 15",
        (panel,),
        why,
        tuple(notes),
    )


def sensitivity(measured: Measurements) -> Figure:
    """Show what each setting does to data movement, relative to the default."""
    records = measured.of_kind("setting")
    panels = []
    best: list[str] = []
    for setting in dict.fromkeys(record["setting"] for record in records):
        mine = [record for record in records if record["setting"] == setting]
        values = list(dict.fromkeys(str(record["value"]) for record in mine))
        cases = list(dict.fromkeys(_case(record) for record in mine))
        series = {}
        for case in cases:
            found = [
                Value.of(_seconds(r) for r in mine if _case(r) == case and str(r["value"]) == value)
                for value in values
            ]
            default = DEFAULTS[setting]
            base = found[values.index(default)] if default in values else None
            series[case] = [
                None
                if value is None or base is None or base.median <= 0
                else Value(
                    value.median / base.median,
                    value.least / base.median,
                    value.most / base.median,
                    value.count,
                )
                for value in found
            ]
        ratios = [v.median for row in series.values() for v in row if v is not None]
        if ratios:
            best.append(f"{setting} {min(ratios):.2f}")
        panels.append(Panel(setting, "seconds, of the default's", tuple(values), series))
    why = NOT_MEASURED
    if best:
        why = (
            "The papers do not vary these. The best of all cases takes, of the default's time: "
            f"{', '.join(best)}."
        )
    return Figure("sensitivity", "E8", "Sensitivity to settings", "none", tuple(panels), why)


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
