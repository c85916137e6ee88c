"""The figures of energy: what was measured in one, what a model says in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff.reproduce import papers
from hippogriff.reproduce.energy import CORE_WATTS
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    WAY_TITLES,
    Figure,
    Measurements,
    Panel,
    Value,
    average_of,
    program_places,
    relative,
    with_average,
)
from hippogriff.reproduce.programs import BY_HAND, CONVENTIONAL, OURS, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hippogriff.reproduce.journal import Record
    from hippogriff.reproduce.papers import Said

    #: Joules of all runs of a measurement, or None where they are not known.
    Joules = Callable[[Record], float | None]

WITH_IDLE, ABOVE_IDLE = "idle included", "above idle"
CPU_MODEL, SUM_MODEL = "CPU alone", "modelled sum"
GPU, CPU = ("gpu",), ("cpu",)
SOURCES = {GPU: "GPU board", CPU: "CPU packages", GPU + CPU: "GPU board and CPU packages"}
_PAPERS = "figures 3.16, 3.17; Gullfoss, figures 12, 13"
_STATES = ("cold", "cached")


class Idle:
    """Watts that were measured while nothing ran, of a machine that had come to rest if any is."""

    def __init__(self, records: list[Record]) -> None:
        self.watts: dict[str, float] = {}
        all_idle = [record for record in records if record.get("idle")]
        rested = [record for record in all_idle if record.get("rested")]
        self.rested = bool(rested)
        idle = [record["energy"] for record in rested or all_idle]
        for source in GPU + CPU:
            name = f"{source}_joules"
            found = [
                each["measured"][name] / each["seconds"]
                for each in idle
                if name in each["measured"]
            ]
            value = Value.of(found)
            if value is not None:
                self.watts[source] = value.median

    def measured(self, sources: tuple[str, ...], kind: str) -> Joules:
        """Return the sum of what was measured of some sources: all of them, or nothing."""

        def joules(record: Record) -> float | None:
            energy = record["energy"]
            total = 0.0
            for source in sources:
                found = energy["measured"].get(f"{source}_joules")
                idle = self.watts.get(source) if kind == ABOVE_IDLE else 0.0
                if found is None or idle is None:
                    return None
                total += found - idle * energy["seconds"]
            return total

        return joules

    def sum_with_model(self, record: Record) -> float | None:
        """Return what was measured of the GPU above idle and what is modelled of the CPUs."""
        gpu = self.measured(GPU, ABOVE_IDLE)(record)
        cpu = modelled_cpu(record)
        return None if gpu is None or cpu is None else gpu + cpu


def modelled_cpu(record: Record) -> float | None:
    """Return what the model says of the CPUs: nothing of them idle is in it."""
    found = record["energy"].get("modelled", {}).get("cpu_joules")
    return None if found is None else float(found)


def _panels(name: str, records: list[Record], scale: str, kinds: dict[str, Joules]) -> list[Panel]:
    """Return energy and energy-delay of each kind, of the conventional program's."""
    panels = []
    for what, said in (("energy", papers.ENERGY), ("energy-delay", papers.ENERGY_DELAY)):
        for state in _STATES:
            series = {}
            for way in (OURS, BY_HAND):
                for kind, joules in kinds.items():
                    values = [
                        _relative(
                            records, (program.name, state, way), joules, delay=what != "energy"
                        )
                        for program in PROGRAMS
                    ]
                    series[f"{WAY_TITLES[way]}, {kind}"] = with_average(values)
            numbers: tuple[Said, ...] = papers.of_scale(said, scale) if state == "cold" else ()
            title = f"{what}, {name}, {scale} inputs, {state}"
            panels.append(
                Panel(
                    title,
                    "relative to conventional, lower is better",
                    program_places(),
                    series,
                    numbers,
                    base=1.0,
                )
            )
    return panels


def _relative(
    records: list[Record], case: tuple[str, str, str], joules: Joules, *, delay: bool
) -> Value | None:
    program, state, way = case

    def values(way: str) -> Value | None:
        found = []
        for record in records:
            known = (record["program"], record["state"], record["way"]) == (program, state, way)
            total = joules(record) if known and record["runs"] else None
            if total is not None:
                count = len(record["runs"])
                seconds = sum(float(run["seconds"]) for run in record["runs"]) / count
                found.append(total / count * (seconds if delay else 1))
        return Value.of(found)

    return relative(values(way), values(CONVENTIONAL))


def _words(panels: list[Panel]) -> str:
    return "; ".join(
        f"{panel.title}, {name.partition(', ')[2]} {mean:.2f}"
        for panel in panels
        for name in panel.series
        if name.startswith(WAY_TITLES[OURS]) and (mean := average_of(panel, name)) is not None
    )


def energy(measured: Measurements) -> Figure:
    """Figures 3.16 and 3.17, of what was measured."""
    panels: list[Panel] = []
    notes: list[str] = []
    for scale, records in measured.by_scale("energy"):
        idle = Idle(records)
        runs = [record for record in records if not record.get("idle")]
        for sources, title in SOURCES.items():
            kinds = {kind: idle.measured(sources, kind) for kind in (WITH_IDLE, ABOVE_IDLE)}
            panels += _panels(f"{title}, measured", runs, scale, kinds)
        words = "" if idle.rested else ", within seconds of a program's end: not at rest"
        notes += [
            f"Idle, the {SOURCES[(source,)]} took {watts:.1f} W{words}."
            for source, watts in idle.watts.items()
        ]
        notes += [
            f"{SOURCES[(source,)]}: not measured here: {why}."
            for record in records
            for source, why in record["energy"]["why_absent"].items()
        ]
    panels = [panel for panel in panels if not panel.empty]
    why = NOT_MEASURED
    if panels:
        why = (
            f"Averages of hippogriff relative to the conventional programs: {_words(panels)}. The "
            "papers measure the whole machine at the wall (117.6 W idle), power supply, drive and "
            "fans with it; here it is what the GPU's board and the CPUs' packages count themselves."
        )
    if panels:
        notes.append(
            "Programs are repeated; between them the next run's file is made cold or cached, which "
            "is in the energy, idle included or not, of all ways alike."
        )
    notes = list(dict.fromkeys(notes))
    return Figure(
        "energy",
        "E5",
        "Energy and energy-delay, measured",
        _PAPERS,
        tuple(panels),
        why,
        tuple(notes),
    )


def idle_energy(measured: Measurements) -> Figure:
    """Figure 3.8: what of the conventional programs' energy the idle machine takes in that time."""
    panels: list[Panel] = []
    for scale, records in measured.by_scale("energy"):
        idle = Idle(records)
        for sources, title in SOURCES.items():
            whole, above = (idle.measured(sources, kind) for kind in (WITH_IDLE, ABOVE_IDLE))

            def share(record: Record, whole: Joules = whole, above: Joules = above) -> float:
                total, busy = whole(record), above(record)
                return 1 - busy / total if total and busy is not None else float("nan")

            series = {}
            for state in _STATES:
                case = (state, CONVENTIONAL)
                values = [
                    Value.of(
                        share(record)
                        for record in records
                        if not record.get("idle")
                        and record["program"] == program.name
                        and (record["state"], record["way"]) == case
                    )
                    for program in PROGRAMS
                ]
                series[state] = with_average(values)
            said = papers.of_scale(papers.IDLE_ENERGY_SHARE, scale)
            unit = "share of what is taken idle, too"
            name = f"{title}, measured, {scale} inputs, conventional"
            panels.append(Panel(name, unit, program_places(), series, said))
    panels = [panel for panel in panels if not panel.empty]
    words = [
        f"{panel.title}, {state} {mean:.0%}"
        for panel in panels
        for state in panel.series
        if (mean := average_of(panel, state)) is not None
    ]
    why = NOT_MEASURED
    if words:
        why = (
            f"Here {'; '.join(words)}. The papers' machine takes 117.6 W idle, at the wall, with "
            "everything in it; here it is what the parts that count themselves take."
        )
    title = "Energy that is taken idle, too"
    return Figure("idle_energy", "E5", title, "figure 3.8", tuple(panels), why)


def modelled_energy(measured: Measurements) -> Figure:
    """Show the same where CPUs are not measured: a model of them, alone and with the GPU."""
    panels: list[Panel] = []
    for scale, records in measured.by_scale("energy"):
        runs = [record for record in records if not record.get("idle")]
        if any("cpu_joules" in record["energy"]["measured"] for record in runs):
            continue  # What is measured needs no model.
        kinds: dict[str, Joules] = {
            CPU_MODEL: modelled_cpu,
            SUM_MODEL: Idle(records).sum_with_model,
        }
        panels += _panels("modelled", runs, scale, kinds)
    panels = [panel for panel in panels if not panel.empty]
    why = NOT_MEASURED
    if panels:
        why = (
            f"A model, not a measurement: each second of a core is {CORE_WATTS:g} J, an idle core "
            "none; the modelled sum adds what was measured of the GPU above idle (the figure "
            "before). Averages of hippogriff relative to the conventional programs: "
            f"{_words(panels)}. The papers measure the whole machine, idle included."
        )
    return Figure(
        "modelled_energy", "E5", "Energy and energy-delay, modelled", _PAPERS, tuple(panels), why
    )
