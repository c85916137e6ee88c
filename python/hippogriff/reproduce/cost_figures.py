"""What programs cost beside their time: page faults, CPU seconds, instructions, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hippogriff.reproduce import papers
from hippogriff.reproduce.callgrind import moved_instructions
from hippogriff.reproduce.figures import (
    NOT_MEASURED,
    WAY_TITLES,
    Figure,
    Measurements,
    Panel,
    Value,
    average_of,
    cpu_seconds,
    program_places,
    relative,
    usage,
    with_average,
)
from hippogriff.reproduce.programs import BY_HAND, CONVENTIONAL, OURS, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hippogriff.reproduce.journal import Record
    from hippogriff.reproduce.papers import Said

_RELATIVE = "relative to conventional, lower is better"
_COSTS: dict[str, Callable[[Record], float]] = {
    "page faults": lambda record: usage("minor_faults")(record) + usage("major_faults")(record),
    "CPU seconds": cpu_seconds,
    "context switches": lambda record: (
        usage("voluntary_switches")(record) + usage("involuntary_switches")(record)
    ),
    "peak of resident memory": usage("peak_resident_bytes"),
}


def _panel(
    title: str, series: dict[str, list[Value | None]], said: tuple[Said, ...] = (), theirs: str = ""
) -> Panel:
    return Panel(title, _RELATIVE, program_places(), series, said, theirs=theirs, base=1.0)


def _cost_panel(measured: Measurements, scale: str, name: str) -> Panel:
    series: dict[str, list[Value | None]] = {}
    for way in (OURS, BY_HAND):
        values = [
            measured.ratio((program.name, scale, "cold"), (way, CONVENTIONAL), _COSTS[name])
            for program in PROGRAMS
        ]
        series[WAY_TITLES[way]] = with_average(values)
    theirs = ""
    if name == "page faults":
        size = scale if scale in papers.SCALES else papers.SCALES[0]
        theirs = f"papers: {size} inputs ({papers.PAGE_FAULTS_WHERE})"
        known = [papers.PAGE_FAULTS[program.name][size] for program in PROGRAMS]
        known.append(papers.PAGE_FAULTS_AVERAGE[size])
        series[theirs] = [Value.of([value]) for value in known]
    said = papers.INSTRUCTIONS if name == "CPU seconds" else ()
    return _panel(f"{name}, {scale} inputs, cold", series, said, theirs)


def costs(measured: Measurements) -> Figure:
    """Table 3 and what else a process takes; page faults by size, as the papers have them."""
    scales = list(reversed(measured.scales()))
    panels = [
        _cost_panel(measured, scale, name)
        for name in _COSTS
        for scale in (scales if name == "page faults" else scales[:1])
    ]
    words = [
        f"{mean:.0%} ({panel.title.split(', ')[1]})"
        for panel in panels
        if panel.title.startswith("page faults")
        and (mean := average_of(panel, WAY_TITLES[OURS])) is not None
    ]
    why = NOT_MEASURED
    if words:
        faults = average_of(panels[0], WAY_TITLES[OURS])
        saved = faults is not None and faults < 1
        why = (
            f"Page faults are {', '.join(words)} of the conventional program's on average (the "
            "papers: 68 to 79 %): "
            + ("memory of the input's size is not made" if saved else "nothing is saved here")
            + ". CPU seconds stand beside the papers' instructions, which a virtual machine has no "
            "counter for (those of the process alone are in the next figure); on device host they "
            "are the kernels', too."
        )
    return Figure(
        "costs",
        "E4",
        "CPU seconds, page faults, context switches, memory",
        "Gullfoss, table 3 and figure 9; figure 3.13",
        tuple(panels),
        why,
        ("Of whole processes, with what making a GPU's context costs.",),
    )


def _by_counter(measured: Measurements) -> list[Panel]:
    """Return whole processes' instructions, where the processor counts them, of each size."""
    panels = []
    for scale in reversed(measured.scales()):
        for of in ("user and kernel", "user"):

            def count(record: Record, of: str = of) -> float:
                counter: dict[str, Any] = record.get("counter", {})
                return float(counter["count"]) if counter.get("of") == of else float("nan")

            series = {}
            for way in (OURS, BY_HAND):
                values = [
                    measured.ratio((program.name, scale, "cold"), (way, CONVENTIONAL), count)
                    for program in PROGRAMS
                ]
                series[WAY_TITLES[way]] = with_average(values)
            title = f"instructions ({of}) of whole processes by the counter, {scale} inputs, cold"
            panels.append(_panel(title, series, papers.INSTRUCTIONS))
    return [panel for panel in panels if not panel.empty]


def _by_callgrind(scale: str, records: list[Record]) -> list[Panel]:
    def of(program: str, way: str, figure: Callable[[Record], float]) -> Value | None:
        return Value.of(
            figure(record)
            for record in records
            if (record["program"], record["way"]) == (program, way)
        )

    def copying(record: Record) -> float:
        counts = record["instructions"]
        return float(counts["copy_in"]) / float(counts["read"] + counts["copy_in"])

    series = {}
    for way in (OURS, BY_HAND):
        values = [
            relative(
                of(program.name, way, moved_instructions),
                of(program.name, CONVENTIONAL, moved_instructions),
            )
            for program in PROGRAMS
        ]
        series[WAY_TITLES[way]] = with_average(values)
    where = f"{scale} inputs, device host, cached"
    shares = [of(program.name, CONVENTIONAL, copying) for program in PROGRAMS]
    return [
        _panel(f"user-level instructions of data movement, {where}", series, papers.INSTRUCTIONS),
        Panel(
            f"copying to the device, conventional, {where}",
            "share of the user-level instructions of reading and copying",
            program_places()[:-1],
            {WAY_TITLES[CONVENTIONAL]: shares},
            papers.COPYING_SHARE,
        ),
    ]


def instructions(measured: Measurements) -> Figure:
    """Figures 3.10 and 3.13: by the processor's counter where there is one, and by callgrind."""
    panels = _by_counter(measured)
    words = ["the processor's counter"] if panels else []
    for scale, records in measured.by_scale("instructions"):
        panels += _by_callgrind(scale, records)
        words.append("callgrind")
    notes = [
        f"No counter of the processor here: {record['counter']['why_absent']}."
        for record in measured.good
        if "why_absent" in record.get("counter", {})
    ]
    if "callgrind" in words:
        notes.append(
            "callgrind counts the process and not the kernel, which copies out of the page cache "
            "for all ways, and it runs no GPU: these are small inputs on device host, where the "
            "processor copies to the device, by vectors. Neither start nor kernels are in the "
            "numbers (so Gaussian has 1024 rows at most, and others few iterations); threads and "
            "their bookkeeping are, which do not grow with the input. hippogriff's depend on the "
            "route: direct copies nothing here, a send that is parked because its memory is not "
            "there yet, which the slowness makes likelier, copies all."
        )
    why = NOT_MEASURED
    if panels:
        means = [
            f"{panel.title} {mean:.2f}"
            for panel in panels
            if (mean := average_of(panel, WAY_TITLES[OURS])) is not None
        ]
        why = (
            f"By {' and '.join(dict.fromkeys(words))}, hippogriff relative to conventional: "
            f"{'; '.join(means)}. The papers' are of user and kernel, moving files of 4 GB (3.13) "
            "and 4 to 32 MB (3.10) to a GPU, where the driver's work for each copied page counts, "
            "too."
        )
    return Figure(
        "instructions",
        "E4",
        "CPU instructions",
        "figures 3.10, 3.13; Gullfoss, figure 9",
        tuple(panels),
        why,
        tuple(dict.fromkeys(notes)),
    )
