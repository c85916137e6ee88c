"""The figures of weaker CPUs: speed, and energy, what was measured of it apart from a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff.reproduce import papers
from hippogriff.reproduce.bench import total_seconds
from hippogriff.reproduce.energy import CORE_WATTS
from hippogriff.reproduce.energy_figures import (
    ABOVE_IDLE,
    SOURCES,
    WITH_IDLE,
    Idle,
    modelled_cpu,
)
from hippogriff.reproduce.experiments import CORES
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    WAY_TITLES,
    Figure,
    Measurements,
    Panel,
    Value,
    inverse,
    relative,
    with_average,
)
from hippogriff.reproduce.programs import CONVENTIONAL, PROGRAMS, WAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hippogriff.reproduce.journal import Record
    from hippogriff.reproduce.papers import Said

    Case = tuple[int, bool, str]  # cores, whether they are busy, the way
    Wanted = Callable[[str, Case], Value | None]  # of a program

_ENERGY_PAPERS = "figure 3.19; Gullfoss, figure 14b"


def _place(count: int, *, busy: bool) -> str:
    return f"{count} core{'s' * (count > 1)}{', busy' * busy}"


def _averages(
    of: Wanted, base: Case, cases: list[tuple[int, bool]]
) -> dict[str, list[Value | None]]:
    """Return, for each way, the means over programs of what a case has of the base's."""
    return {
        WAY_TITLES[way]: [
            with_average(
                [relative(of(each.name, (*case, way)), of(each.name, base)) for each in PROGRAMS]
            )[-1]
            for case in cases
        ]
        for way in WAYS
    }


def _is(record: Record, program: str, case: Case) -> bool:
    found = (record["program"], record["cores"], record["busy"], record["way"])
    return bool(found == (program, *case))


def _speed_panel(scale: str, records: list[Record]) -> Panel:
    most = max(int(record["cores"]) for record in records)

    def seconds(program: str, case: Case) -> Value | None:
        return Value.of(
            total_seconds(run)
            for record in records
            if _is(record, program, case)
            for run in (record, *record.get("repeats", ()))
        )

    cases = [(count, busy) for count in reversed(CORES) for busy in (False, True)]
    times = _averages(seconds, (most, False, CONVENTIONAL), cases)
    return Panel(
        f"average over programs, {scale} inputs, cold",
        f"speed relative to conventional with {most} cores, higher is better",
        tuple(_place(count, busy=busy) for count, busy in cases),
        {name: [inverse(value) for value in values] for name, values in times.items()},
        papers.WEAK_CPU,
        base=1.0,
    )


def weak_cpus(measured: Measurements) -> Figure:
    """Figure 3.18: fewer cores, and cores that somebody else uses, too."""
    panels = [_speed_panel(scale, records) for scale, records in measured.by_scale("cores")]
    why = NOT_MEASURED
    if panels:
        why = (
            "The papers make their CPU slower (1.2 instead of 2.5 GHz). A virtual machine cannot: "
            "here programs are allowed fewer cores, and share each with a loop that never ends "
            "(busy)."
        )
    return Figure(
        "weak_cpus",
        "E6",
        "Weaker CPUs",
        "figure 3.18; Gullfoss, figure 14a",
        tuple(panels),
        why,
        ("A core is what the system counts as one: two may be threads of one of the processor's.",),
    )


def _energy_panel(
    name: str,
    records: list[Record],
    joules: Callable[[Record], float | None],
    said: tuple[Said, ...] = (),
) -> Panel:
    most = max(int(record["cores"]) for record in records)

    def energy(program: str, case: Case) -> Value | None:
        found = []
        for record in records:
            total = joules(record) if _is(record, program, case) else None
            if total is not None:
                found.append(total / (1 + len(record["repeats"])))
        return Value.of(found)

    cases = [(count, False) for count in reversed(CORES)]
    return Panel(
        name,
        f"energy relative to conventional with {most} cores, lower is better",
        tuple(_place(count, busy=False) for count, _ in cases),
        _averages(energy, (most, False, CONVENTIONAL), cases),
        said,
        base=1.0,
    )


def _with_energy(measured: Measurements) -> list[tuple[str, list[Record]]]:
    found = [
        (scale, [record for record in records if "energy" in record])
        for scale, records in measured.by_scale("cores")
    ]
    return [(scale, records) for scale, records in found if records]


def weak_energy(measured: Measurements) -> Figure:
    """Figure 3.19, of what was measured."""
    idle = Idle(measured.of_kind("energy"))
    panels = [
        _energy_panel(
            f"{title}, measured, {kind}, {scale} inputs, cold",
            records,
            idle.measured(sources, kind),
            papers.WEAK_ENERGY,
        )
        for scale, records in _with_energy(measured)
        for sources, title in SOURCES.items()
        for kind in (WITH_IDLE, ABOVE_IDLE)
    ]
    panels = [panel for panel in panels if not panel.empty]
    why = NOT_MEASURED
    if panels:
        why = (
            "The papers measure the whole machine, whose CPU takes less power at 1.2 GHz; fewer "
            "cores here are the same cores at the same clock, and the others stay idle."
        )
    return Figure(
        "weak_energy",
        "E6",
        "Energy with weaker CPUs, measured",
        _ENERGY_PAPERS,
        tuple(panels),
        why,
    )


def modelled_weak_energy(measured: Measurements) -> Figure:
    """Show the same of the CPUs by the model, where they are not measured."""
    panels = [
        _energy_panel(
            f"CPU alone, modelled, {scale} inputs, cold", records, modelled_cpu, papers.WEAK_ENERGY
        )
        for scale, records in _with_energy(measured)
        if not any("cpu_joules" in record["energy"]["measured"] for record in records)
    ]
    panels = [panel for panel in panels if not panel.empty]
    why = NOT_MEASURED
    if panels:
        why = (
            f"A model, not a measurement: each second of a core is {CORE_WATTS:g} J, an idle core "
            "none, so that it shows CPU seconds. The papers measure the whole machine, idle "
            "included."
        )
    return Figure(
        "modelled_weak_energy",
        "E6",
        "Energy with weaker CPUs, modelled",
        _ENERGY_PAPERS,
        tuple(panels),
        why,
    )
