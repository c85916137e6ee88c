"""The figures of the report, one function each, from what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff._sizes import format_size
from hippogriff.reproduce import papers
from hippogriff.reproduce.energy import CORE_WATTS
from hippogriff.reproduce.experiments import DEFAULTS, ONE_CHANNEL
from hippogriff.reproduce.figures import (
    WAY_TITLES,
    Figure,
    Measurements,
    Panel,
    Value,
    average_of,
    cpu_seconds,
    inverse,
    movement_seconds,
    process_seconds,
    program_places,
    total_seconds,
    usage,
    with_average,
)
from hippogriff.reproduce.papers import Said
from hippogriff.reproduce.program_figures import (
    NOT_MEASURED,
    costs,
    movement_speedup,
    weak_cpus,
    where_time_goes,
    whole_speedup,
)
from hippogriff.reproduce.programs import BY_HAND, CONVENTIONAL, OURS, PROGRAMS, WAYS
from hippogriff.reproduce.together import CONFIGURATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

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
            f"The papers' drive gives 2.2 GB/s, and their numbers are of 4 GB files; here cold files "
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


def _energy_of(record: Record, idle_watts: float | None) -> tuple[float, float, bool] | None:
    """Return joules and seconds for one run of the program, and whether all of it is measured."""
    runs, energy = record["runs"], record["energy"]
    seconds = sum(float(run["seconds"]) for run in runs)
    if not runs or seconds <= 0:
        return None
    gpu = energy.get("gpu_joules")
    cpu = energy.get("cpu_joules")
    measured_joules = (gpu or 0.0) - (idle_watts or 0.0) * float(energy["seconds"])
    if gpu is None:
        measured_joules = 0.0
    modelled = CORE_WATTS * sum(cpu_seconds(run) for run in runs)
    joules = measured_joules + (cpu if cpu is not None else modelled)
    return joules / len(runs), seconds / len(runs), gpu is not None and cpu is not None


def energy(measured: Measurements) -> Figure:
    """Figures 3.16 and 3.17: energy and energy-delay."""
    records = measured.of_kind("energy")
    idle = [
        float(record["energy"]["gpu_joules"]) / float(record["energy"]["seconds"])
        for record in records
        if record.get("idle") and "gpu_joules" in record["energy"]
    ]
    idle_value = Value.of(idle)
    idle_watts = None if idle_value is None else idle_value.median
    rows: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    gpu_rows: dict[tuple[str, str, str], list[float]] = {}
    scale = "large"
    for record in records:
        if record.get("idle"):
            continue
        scale = record["scale"]
        key = (record["program"], record["state"], record["way"])
        found = _energy_of(record, idle_watts)
        if found is not None:
            rows.setdefault(key, []).append(found[:2])
        if "gpu_joules" in record["energy"] and record["runs"]:
            gpu_rows.setdefault(key, []).append(
                float(record["energy"]["gpu_joules"]) / len(record["runs"])
            )
    panels = [
        *_gpu_panels(gpu_rows, scale),
        *_energy_panels(
            rows, scale, modelled=not any("cpu_joules" in r["energy"] for r in records)
        ),
    ]
    panels = [panel for panel in panels if not panel.empty]
    words = [
        f"{panel.title} {mean:.2f}"
        for panel in panels
        if (mean := average_of(panel, WAY_TITLES[OURS])) is not None
    ]
    why = NOT_MEASURED
    if words:
        why = (
            f"Of the conventional program's: {'; '.join(words)}. The papers measure the whole "
            "machine at the wall (117.6 W idle); here it is the GPU's board and the CPUs alone."
        )
    notes = [] if idle_watts is None else [f"The idle GPU takes {idle_watts:.1f} W."]
    notes += sorted(
        {
            f"{kind}: {record['energy'][name]}."
            for record in records
            for kind, name in (("GPU", "gpu_why_absent"), ("CPU", "cpu_why_absent"))
            if name in record["energy"]
        }
    )
    return Figure(
        "energy",
        "E5",
        "Energy and energy-delay",
        "figures 3.16, 3.17; Gullfoss, figures 12, 13",
        tuple(panels),
        why,
        tuple(notes),
    )


def _relative(
    values: dict[tuple[str, str, str], Value | None], state: str, way: str
) -> list[Value | None]:
    found: list[Value | None] = []
    for program in PROGRAMS:
        of = values.get((program.name, state, way))
        to = values.get((program.name, state, CONVENTIONAL))
        if of is None or to is None or to.median <= 0:
            found.append(None)
        else:
            base = to.median
            found.append(Value(of.median / base, of.least / base, of.most / base, of.count))
    return with_average(found)


def _gpu_panels(rows: dict[tuple[str, str, str], list[float]], scale: str) -> list[Panel]:
    """What NVML measured, idle energy included, and nothing else."""
    values = {key: Value.of(found) for key, found in rows.items()}
    return [
        Panel(
            f"GPU board, idle included, measured, {scale} inputs, {state}",
            "of the conventional",
            program_places(),
            {WAY_TITLES[way]: _relative(values, state, way) for way in (OURS, BY_HAND)},
        )
        for state in ("cold", "cached")
    ]


def _energy_panels(
    rows: dict[tuple[str, str, str], list[tuple[float, float]]], scale: str, *, modelled: bool
) -> list[Panel]:
    how = f"CPU modelled: {CORE_WATTS:g} W a busy core" if modelled else "CPU by RAPL"
    kinds: dict[str, tuple[Callable[[float, float], float], dict[str, tuple[Said, ...]]]] = {
        "energy": (lambda joules, _: joules, papers.ENERGY),
        "energy-delay": (lambda joules, seconds: joules * seconds, papers.ENERGY_DELAY),
    }
    panels = []
    for name, (combine, said) in kinds.items():
        values = {
            key: Value.of(combine(joules, seconds) for joules, seconds in found)
            for key, found in rows.items()
        }
        for state in ("cold", "cached"):
            panels.append(
                Panel(
                    f"{name} above idle ({how}), {scale} inputs, {state}",
                    "of the conventional",
                    program_places(),
                    {WAY_TITLES[way]: _relative(values, state, way) for way in (OURS, BY_HAND)},
                    said.get(scale, ()) if state == "cold" else (),
                )
            )
    return panels


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
    """What each setting does to data movement, relative to the default."""
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
    weak_cpus,
    together,
    sensitivity,
)


def figures(measured: Measurements) -> list[Figure]:
    """Return all figures; those without measurements are empty."""
    return [build(measured) for build in BUILDERS]
