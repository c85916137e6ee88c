"""The figures of single programs: their time, its parts, and what else they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hippogriff.reproduce import papers
from hippogriff.reproduce.bench import total_seconds
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    WAY_TITLES,
    Figure,
    Measurements,
    Panel,
    Value,
    average_of,
    inverse,
    inward_seconds,
    movement_seconds,
    process_seconds,
    program_places,
    with_average,
)
from hippogriff.reproduce.programs import BY_HAND, CONVENTIONAL, OURS, PROGRAMS, SCALES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hippogriff.reproduce.journal import Record
    from hippogriff.reproduce.papers import Said


def where_time_goes(measured: Measurements) -> Figure:
    """Figure 3.7: data movement and computing of the conventional programs."""
    kinds: dict[str, Callable[[Record], float]] = {
        "data movement": movement_seconds,
        "kernels": lambda record: float(record["result"]["seconds"].get("kernels", 0)),
    }

    def share(program: str, scale: str, kind: str) -> Value | None:
        records = measured.whole(program, scale, "cold", CONVENTIONAL)
        return Value.of(
            kinds[kind](record) / total_seconds(record)
            for record in records
            if total_seconds(record) > 0
        )

    by_program = [
        Panel(
            f"{scale} inputs, cold, conventional",
            "share of the time",
            tuple(program.title for program in PROGRAMS),
            {kind: [share(each.name, scale, kind) for each in PROGRAMS] for kind in kinds},
            (papers.MOVEMENT_SHARE_GULLFOSS,),
            stacked=True,
        )
        for scale in reversed(measured.scales())
    ]
    scales = [each for each in SCALES if each in (*measured.scales(), *papers.SCALES)]
    means = []
    for each in scales:
        shares = [share(program.name, each, "data movement") for program in PROGRAMS]
        found = [value.median for value in shares if value is not None]
        means.append(Value.of([sum(found) / len(found)]) if found else None)
    said = [papers.MOVEMENT_SHARE.get(each) for each in scales]
    theirs = f"papers: {papers.MOVEMENT_SHARE_WHERE}"
    by_scale = Panel(
        "average by size of the input",
        "share of the time in data movement",
        tuple(scales),
        {"here": means, theirs: [Value.of([x]) if x is not None else None for x in said]},
        theirs=theirs,
    )
    words = [
        f"{value.median:.0%} of {scale} inputs"
        for scale, value in zip(scales, means, strict=True)
        if value is not None
    ]
    why = NOT_MEASURED
    if words:
        why = (
            f"Here data movement is {', '.join(words)} of the time, in the papers "
            f"49 to 68 %: both the drive and the device differ (here {measured.device}, in the "
            f"papers {papers.MACHINE}), and the ratio of the two decides."
        )
    return Figure(
        "where_time_goes",
        "E1",
        "Where time goes",
        "figure 3.7; Gullfoss, figure 3",
        (*by_program, by_scale),
        why,
        ("Without making the GPU's context, which no way of moving data changes.",),
    )


def copying(measured: Measurements) -> Figure:
    """Figure 3.11: what of a conventional read is the copy to the device."""

    def share(record: Record) -> float:
        seconds = record["result"]["seconds"]
        copy = float(seconds.get("copy_in", 0))
        both = copy + float(seconds.get("read", 0))
        return copy / both if both > 0 else float("nan")

    panels = []
    for scale in reversed(measured.scales()):
        series = {}
        for state in measured.states(scale):
            values = [
                Value.of(map(share, measured.whole(program.name, scale, state, CONVENTIONAL)))
                for program in PROGRAMS
            ]
            series[state] = with_average(values)
        panels.append(
            Panel(
                f"{scale} inputs, conventional",
                "share of the copy to the device in reading and copying",
                program_places(),
                series,
                papers.COPYING_TIME_SHARE,
            )
        )
    panels = [panel for panel in panels if not panel.empty]
    words = [
        f"{panel.title.split(',')[0]}, {state} {mean:.0%}"
        for panel in panels
        for state in panel.series
        if (mean := average_of(panel, state)) is not None
    ]
    why = NOT_MEASURED
    if words:
        why = (
            f"Here {'; '.join(words)}. The papers read 4 to 32 MB of a drive of 2.2 GB/s through a "
            "link of 8 GB/s; memory that is allocated for the read is in its time here."
        )
    return Figure(
        "copying",
        "E1",
        "Copying's share of reading",
        "figure 3.11",
        tuple(panels),
        why,
    )


def _speedups(
    measured: Measurements,
    figure: Callable[[Record], float],
    said: Mapping[str, tuple[Said, ...]],
    more: tuple[Said, ...] = (),
) -> list[Panel]:
    panels = []
    for scale in reversed(measured.scales()):
        for state in measured.states(scale):
            series = {}
            for way in (OURS, BY_HAND):
                values = [
                    inverse(
                        measured.ratio((program.name, scale, state), (way, CONVENTIONAL), figure)
                    )
                    for program in PROGRAMS
                ]
                series[WAY_TITLES[way]] = with_average(values)
            panels.append(
                Panel(
                    f"{scale} inputs, {state}",
                    "speed-up over conventional, higher is better",
                    program_places(),
                    series,
                    (*papers.of_scale(said, scale), *more) if said and state == "cold" else (),
                    base=1.0,
                )
            )
    return panels


def _speedup_words(panels: list[Panel], what: str) -> str:
    words = []
    for panel in panels:
        ours = average_of(panel, WAY_TITLES[OURS])
        by_hand = average_of(panel, WAY_TITLES[BY_HAND])
        if ours is not None and by_hand is not None:
            words.append(f"{panel.title} {ours:.2f} (by hand {by_hand:.2f})")
    if not words:
        return NOT_MEASURED
    return (
        f"Averages here, {what}: {'; '.join(words)}. The papers' numbers are of cold files on "
        f"{papers.MACHINE}: what can be gained depends on how fast drive, link and memory are to "
        "each other, and on how much of the time is data movement at all (E1)."
    )


def whole_speedup(measured: Measurements) -> Figure:
    """Figure 3.14: whole programs."""
    panels = _speedups(measured, total_seconds, papers.SPEEDUP, (papers.SPEEDUP_ALL,))
    with_start = _speedups(measured, process_seconds, {})
    means = [
        f"{panel.title} {mean:.2f}"
        for panel in with_start
        if (mean := average_of(panel, WAY_TITLES[OURS])) is not None
    ]
    notes = ["Seconds are without making the GPU's context."]
    if means:
        notes.append(f"Of the whole process, context and all: {'; '.join(means)}.")
    return Figure(
        "speedup",
        "E3",
        "Speed-up of whole programs",
        "figure 3.14; Gullfoss, figure 10",
        tuple(panels),
        _speedup_words(panels, "whole programs"),
        tuple(notes),
    )


def movement_speedup(measured: Measurements) -> Figure:
    """Figure 3.15: data movement alone."""
    panels = _speedups(measured, movement_seconds, papers.MOVEMENT_SPEEDUP)
    inward = [
        replace(panel, title=f"to the device alone, {panel.title}", said=())
        for panel in _speedups(measured, inward_seconds, {})
    ]
    return Figure(
        "movement_speedup",
        "E3",
        "Speed-up of data movement",
        "figure 3.15; Gullfoss, figure 11",
        (*panels, *inward),
        _speedup_words(panels, "data movement, memory made for it included"),
    )
