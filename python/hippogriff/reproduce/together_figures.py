"""The figure of eight programs at once, with what the drive alone takes."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from hippogriff.reproduce import papers
from hippogriff.reproduce.figures import (
    AVERAGE,
    NOT_MEASURED,
    Figure,
    Measurements,
    Panel,
    Value,
    average_of,
    inverse,
    relative,
    with_average,
)
from hippogriff.reproduce.together import CONFIGURATIONS, DRIVE, IN_TURNS, UNMODIFIED

if TYPE_CHECKING:
    from hippogriff.reproduce.journal import Record

LIMIT = "the drive alone, the same reads and writes"


def _seconds(records: list[Record], workload: str, name: str) -> Value | None:
    # Programs that did not do their work were not fast.
    return Value.of(
        record["seconds"]
        for record in records
        if (record["workload"], record["configuration"]) == (workload, name)
        and not record["failures"]
    )


def _averaged(values: list[Value | None]) -> list[Value | None]:
    # An average of those that worked would not be one of all.
    return with_average(values) if all(values) else [*values, None]


def _speeds(
    records: list[Record], workloads: list[str], name: str, base: str
) -> list[Value | None]:
    """Return a configuration's speed-up over another, by workload."""
    return _averaged(
        [
            inverse(relative(_seconds(records, workload, name), _seconds(records, workload, base)))
            for workload in workloads
        ]
    )


def over_direct(measured: Measurements, scale: str) -> list[float]:
    """Return how many times as fast as always the direct-most route everything is, by workload."""
    records = dict(measured.by_scale("together")).get(scale, [])
    ratios = []
    for workload in dict.fromkeys(record["workload"] for record in records):
        ours = _seconds(records, workload, "everything")
        direct = _seconds(records, workload, "direct_most")
        if ours is not None and direct is not None:
            ratios.append(direct.median / ours.median)
    return ratios


def most_over(measured: Measurements, scale: str, name: str) -> float | None:
    """Return how much faster than a configuration the drive would let anything be."""
    records = dict(measured.by_scale("together")).get(scale, [])
    ratios = []
    for workload in dict.fromkeys(record["workload"] for record in records):
        seconds, least = (_seconds(records, workload, each) for each in (name, DRIVE))
        if seconds is not None and least is not None:
            ratios.append(seconds.median / least.median)
    return statistics.geometric_mean(ratios) if ratios else None


def _panel(scale: str, records: list[Record], base: str, words: str) -> Panel:
    workloads = list(dict.fromkeys(record["workload"] for record in records))
    series = {
        each.title: _speeds(records, workloads, each.name, base)
        for each in CONFIGURATIONS
        if each.name != base
    }
    series[LIMIT] = _speeds(records, workloads, DRIVE, base)
    return Panel(
        f"eight at once, cold, memory for a third of them, {scale} inputs, over {words}",
        f"speed-up over unmodified programs {words}, higher is better",
        (*workloads, AVERAGE),
        series,
        base=1.0,
    )


def _panels(scale: str, records: list[Record]) -> list[Panel]:
    """Return the speeds over both ways of the unmodified programs, the papers' with theirs."""
    turns = _panel(scale, records, IN_TURNS, "one after another")
    at_once = _panel(scale, records, UNMODIFIED, "at once")
    said = papers.of_scale(papers.TOGETHER, scale)
    if at_once.empty:
        return [replace(turns, said=said)]
    return [turns, replace(at_once, said=said)]


def _failures(scale: str, records: list[Record]) -> list[str]:
    notes = []
    for each in CONFIGURATIONS:
        mine = [record for record in records if record["configuration"] == each.name]
        failures = sum(record["failures"] for record in mine)
        if failures:
            runs = sum(len(record["runs"]) for record in mine)
            notes.append(
                f"{each.title}, {scale} inputs: {failures} of {runs} programs failed; a "
                "repetition in which any did is in no bar."
            )
    return notes


def together(measured: Measurements) -> Figure:
    """Figure 3.20: eight programs at once."""
    panels: list[Panel] = []
    notes: list[str] = []
    for scale, records in measured.by_scale("together"):
        panels += _panels(scale, records)
        notes += _failures(scale, records)
    why = NOT_MEASURED
    if panels:
        everything = average_of(panels[0], "everything")
        direct = average_of(panels[0], "always the direct-most route")
        if everything is not None and direct is not None:
            why = (
                f"Everything is {everything:.2f} times as fast as the programs one after another, "
                f"the direct-most route always {direct:.2f}. The papers' numbers are over the "
                "unmodified programs at once, changed so that they fit. Here unmodified ones fail "
                "when there is no memory (see below): at once they are the measure where there are "
                "repetitions in which none did, one after another they always are."
            )
    if any(any(panel.series[LIMIT]) for panel in panels):
        notes.append(
            "The drive alone reads the same files and writes as many bytes by direct I/O, one "
            "program's after the other or eight at once, whichever is best: no GPU, and nothing "
            "that starts. Programs of which one reads while another writes may be faster."
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
