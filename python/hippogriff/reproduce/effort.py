"""How much is measured: everything quickly on any machine, or in full on one with a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hippogriff.errors import InvalidArgument
from hippogriff.reproduce.programs import PROGRAMS, SCALES
from hippogriff.reproduce.together import CONFIGURATIONS, DRIVE, MIXED

EXPERIMENTS = {
    "E1": "where time goes",
    "E2": "throughput by transfer size and route",
    "E3": "speed of whole programs and of their data movement",
    "E4": "CPU seconds, page faults, context switches, memory",
    "E5": "energy",
    "E6": "weaker CPUs",
    "E7": "eight programs at once under memory pressure",
    "E8": "sensitivity to settings",
}
_MIB = 1 << 20
_ALL = tuple(program.name for program in PROGRAMS)
_CONFIGURATIONS = (DRIVE, *(each.name for each in CONFIGURATIONS))


Shape = tuple[int, str]  # threads, bytes of a piece


@dataclass(frozen=True)
class Effort:
    """Sizes and repetitions. `scale` is the experiments' that take one."""

    name: str
    programs: tuple[str, ...]
    scales: tuple[str, ...]
    scale: str
    repetitions: int
    few: int  # repetitions of what takes long
    transfer_bytes: tuple[int, ...]
    routed_bytes: tuple[int, ...]  # of these, by each route too
    transfer_repetitions: int  # of one process: no slice has fewer
    counted_programs: tuple[str, ...]  # whose instructions callgrind counts
    counted_scale: str
    counted_repetitions: int  # their threads do not take turns alike, nor need routes be the same
    energy_seconds: float
    energy_programs: tuple[str, ...]
    core_programs: tuple[str, ...]
    core_scale: str
    workloads: tuple[str, ...]
    configurations: tuple[str, ...]  # of eight at once
    shapes: tuple[Shape, ...]  # of the pipeline by hand, beside the default
    setting_programs: tuple[str, ...]
    setting_repetitions: int
    tuned_repetitions: int  # of the best shape and hippogriff, in turns
    parking_workloads: tuple[str, ...]
    calibrates: bool


@dataclass(frozen=True)
class Slice:
    """A part of an effort; empty: all of it."""

    programs: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()
    repetitions: int = 0
    configurations: tuple[str, ...] = ()


def _names(option: str, what: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return comma-separated names in their usual order; none where nothing is said."""
    if text is None:
        return ()
    names = {name.strip() for name in text.split(",") if name.strip()}
    if not names:
        words = f"{text!r} names no {what}, which are {', '.join(known)}"
        raise InvalidArgument(words, object=option)
    unknown = sorted(names - set(known))
    if unknown:
        words = f"{', '.join(unknown)}: {what} are {', '.join(known)}"
        raise InvalidArgument(words, object=option)
    return tuple(name for name in known if name in names)


def slice_of(
    programs: str | None, scales: str | None, repetitions: int, configurations: str | None = None
) -> Slice:
    """Read what a command line says of a part.

    Raises
    ------
    InvalidArgument
        For names that are none, or no name.
    """
    return Slice(
        _names("--only", "programs", programs, (*_ALL, MIXED)),
        _names("--sizes", "sizes", scales, SCALES),
        repetitions,
        _names("--configurations", "configurations", configurations, _CONFIGURATIONS),
    )


QUICK = Effort(
    name="quick",
    programs=_ALL,
    scales=("tiny",),
    scale="tiny",
    repetitions=2,
    few=1,
    transfer_bytes=(_MIB, 16 * _MIB),
    routed_bytes=(16 * _MIB,),
    transfer_repetitions=2,
    counted_programs=("nn",),
    counted_scale="tiny",
    counted_repetitions=1,
    energy_seconds=0.3,
    energy_programs=("nn",),
    core_programs=("nn", "hotspot"),
    core_scale="tiny",
    workloads=("hotspot", MIXED),
    configurations=_CONFIGURATIONS,
    shapes=((2, "64KiB"),),
    setting_programs=("hybridsort",),
    setting_repetitions=1,
    tuned_repetitions=1,
    parking_workloads=("hotspot",),
    calibrates=False,
)
FULL = Effort(
    name="full",
    programs=_ALL,
    scales=("small", "medium", "large"),
    scale="large",
    repetitions=5,
    few=5,
    transfer_bytes=tuple(_MIB * size for size in (1, 4, 16, 64, 256, 1024, 4096)),
    routed_bytes=tuple(_MIB * size for size in (4, 64, 1024)),
    transfer_repetitions=5,
    counted_programs=_ALL,
    counted_scale="small",
    counted_repetitions=3,
    energy_seconds=2.0,
    energy_programs=_ALL,
    core_programs=_ALL,
    core_scale="medium",
    workloads=(*_ALL, MIXED),
    configurations=_CONFIGURATIONS,
    # What was never the best of a program is left out: 16 and 24 x 4 MiB, 12 x 8 MiB.
    shapes=(
        *((threads, "1MiB") for threads in (4, 12, 24)),
        *((threads, "4MiB") for threads in (4, 8)),
        (8, "512KiB"),
        (12, "2MiB"),
    ),
    setting_programs=("nn", "hybridsort", "hotspot"),
    setting_repetitions=5,
    tuned_repetitions=31,  # a bound of 3 % where runs vary by a tenth
    parking_workloads=("hotspot", "gaussian", "nn"),
    calibrates=True,
)
EFFORTS = {effort.name: effort for effort in (QUICK, FULL)}


def cut(effort: Effort, part: Slice) -> Effort:
    """Return a part of an effort: the same measurements, by the same keys.

    Experiments of one size that is not among the part's are of the largest of those.
    """

    def of(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if not part.programs or name in part.programs)

    def scale_of(scale: str) -> str:
        return scale if not part.scales or scale in part.scales else part.scales[-1]

    return replace(
        effort,
        programs=of(effort.programs),
        scales=part.scales or effort.scales,
        scale=scale_of(effort.scale),
        core_scale=scale_of(effort.core_scale),
        repetitions=part.repetitions or effort.repetitions,
        few=part.repetitions or effort.few,
        setting_repetitions=part.repetitions or effort.setting_repetitions,
        tuned_repetitions=part.repetitions or effort.tuned_repetitions,
        counted_programs=of(effort.counted_programs),
        counted_repetitions=part.repetitions or effort.counted_repetitions,
        energy_programs=of(effort.energy_programs),
        core_programs=of(effort.core_programs),
        workloads=of(effort.workloads),
        configurations=part.configurations or effort.configurations,
        setting_programs=of(effort.setting_programs),
        parking_workloads=of(effort.parking_workloads),
    )
