"""Kernels: their time beside the shortest that the device could take, and their energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hippogriff.reproduce import papers
from hippogriff.reproduce.bench import STATES
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    Figure,
    Measurements,
    Panel,
    Value,
    average_of,
    program_places,
    with_average,
)
from hippogriff.reproduce.programs import CONVENTIONAL, PROGRAMS

if TYPE_CHECKING:
    from hippogriff.reproduce.journal import Record

_SHORTEST_SECONDS = 0.002  # What launches and their waits take is more than the kernels below it.


@dataclass(frozen=True)
class Limit:
    """What a device's data sheet says of its memory, float32 arithmetic (no tensors) and power."""

    model: str  # what the device's name has in it
    bytes_per_second: float
    operations_per_second: float
    watts: float


#: The first whose model is in the device's name.
LIMITS = (
    Limit("H200", 4.8e12, 67e12, 700),
    Limit("H100 80GB HBM3", 3.35e12, 67e12, 700),
    Limit("H100 PCIe", 2.0e12, 51e12, 350),
    Limit("A100-SXM4-80GB", 2.039e12, 19.5e12, 400),
    Limit("A100-SXM4-40GB", 1.555e12, 19.5e12, 400),
)


def limit_of(device: str) -> Limit | None:
    """Return a device's limits, or None where its data sheet is not known here."""
    return next((each for each in LIMITS if each.model in device), None)


def _shares(
    measured: Measurements, scale: str, limit: Limit
) -> tuple[dict[str, list[Value | None]], list[str]]:
    """Return what share of the kernels' time each limit accounts for, and what was too short."""
    bandwidth: list[Value | None] = []
    arithmetic: list[Value | None] = []
    short = []
    for program in PROGRAMS:
        records = [
            record["result"]
            for state in ("cold", "cached")
            for record in measured.whole(program.name, scale, state, CONVENTIONAL)
            if "kernel_bytes" in record["result"]
        ]
        seconds = Value.of(float(result["seconds"]["kernels"]) for result in records)
        if seconds is not None and seconds.median < _SHORTEST_SECONDS:
            short.append(f"{program.title} {seconds.median * 1e3:.1f} ms")
        for shares, name, rate in (
            (bandwidth, "kernel_bytes", limit.bytes_per_second),
            (arithmetic, "kernel_operations", limit.operations_per_second),
        ):
            found = [
                float(result[name]) / rate / float(result["seconds"]["kernels"])
                for result in records
                if result["seconds"]["kernels"] > 0 and result[name] > 0
            ]
            shares.append(Value.of(found))
    return {"memory's bandwidth": bandwidth, "float32 arithmetic": arithmetic}, short


def _words(panel: Panel) -> str:
    """Return each program's share of its nearer limit."""
    words = []
    for index, title in enumerate(panel.places):
        found = [values[index] for values in panel.series.values()]
        best = max((value.median for value in found if value is not None), default=None)
        if best is not None:
            words.append(f"{title} {best:.0%}")
    return ", ".join(words)


def _figure(panels: list[Panel], why: str, notes: list[str]) -> Figure:
    title = "Kernels against the device's limits"
    return Figure("kernels", "E1", title, "none", tuple(panels), why, tuple(notes))


def kernels(measured: Measurements) -> Figure:
    """Compare the kernels with what their device could do: none of the baselines is a straw man."""
    limit = limit_of(measured.device)
    if limit is None:
        note = f"No data sheet of {measured.device} is known here to compare with."
        return _figure([], NOT_MEASURED, [note] if measured.scales() else [])
    panels, notes = [], []
    for scale in reversed(measured.scales()):
        series, short = _shares(measured, scale, limit)
        panel = Panel(
            f"{scale} inputs, conventional",
            "the limit's share of the kernels' time, higher is better",
            tuple(program.title for program in PROGRAMS),
            series,
            base=1.0,
        )
        if panel.empty:
            continue
        panels.append(panel)
        if short:
            words = ", ".join(short)
            notes.append(f"Of {scale} inputs starting kernels counts for much: {words}.")
    if not panels:
        return _figure([], NOT_MEASURED, notes)
    why = (
        f"Of the nearer limit, {panels[0].title}: {_words(panels[0])}. The limits are the data "
        f"sheet's, {limit.bytes_per_second / 1e12:g} TB/s and "
        f"{limit.operations_per_second / 1e12:g} Tflop/s, for the bytes and operations that the "
        "kernels cannot do without (each program's README). All ways of moving the data have the "
        "same kernels, and slower ones make the ways more alike. The papers do not compare theirs."
    )
    notes.append("Memory for the kernels' own use and their first start are in their time.")
    return _figure(panels, why, notes)


def _other_share(record: Record, watts: float) -> float:
    """Return what of a measurement's energy is not its kernels', at least."""
    joules = float(record["energy"]["measured"].get("gpu_joules", 0))
    seconds = sum(float(run["result"]["seconds"]["kernels"]) for run in record["runs"])
    return 1 - min(seconds * watts / joules, 1) if joules > 0 else float("nan")


def kernel_energy(measured: Measurements) -> Figure:
    """Figure 3.9: what of the conventional programs' energy goes into moving data, not kernels."""
    limit = limit_of(measured.device)
    watts = limit.watts if limit is not None else 0.0
    panels = []
    for scale, records in measured.by_scale("energy") if watts else []:
        series = {}
        for state in STATES:
            values = [
                Value.of(
                    _other_share(record, watts)
                    for record in records
                    if not record.get("idle")
                    and record["program"] == program.name
                    and (record["state"], record["way"]) == (state, CONVENTIONAL)
                )
                for program in PROGRAMS
            ]
            series[state] = with_average(values)
        said = papers.of_scale(papers.MOVEMENT_ENERGY_SHARE, scale)
        name = f"GPU board, measured, {scale} inputs, conventional"
        unit = "share of the energy that is not the kernels', at least"
        panels.append(Panel(name, unit, program_places(), series, said))
    panels = [panel for panel in panels if not panel.empty]
    why = NOT_MEASURED
    if panels:
        means = {state: average_of(panels[0], state) for state in STATES}
        words = ", ".join(f"{mean:.0%} {state}" for state, mean in means.items() if mean)
        why = (
            f"Moving data, with what starts and ends a program, takes at least {words}: kernels "
            f"take no more than {watts:g} W, the board's limit by its data sheet, in their "
            "time. The counter refreshes too rarely to tell them apart. The papers' machine, at "
            "the wall, takes 117.6 W idle, whatever it does, and their kernels take longer."
        )
    title = "Energy that moving data takes"
    where = "figure 3.9; Gullfoss, figure 4"
    return Figure("kernel_energy", "E5", title, where, tuple(panels), why)
