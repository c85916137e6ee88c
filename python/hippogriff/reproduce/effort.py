"""How much is measured: everything quickly on any machine, or in full on one with a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from hippogriff.reproduce.programs import PROGRAMS
from hippogriff.reproduce.together import MIXED

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


@dataclass(frozen=True)
class Effort:
    """Sizes and repetitions. `scale` is the experiments' that take one."""

    name: str
    scales: tuple[str, ...]
    scale: str
    repetitions: int
    few: int  # repetitions of what takes long
    transfer_bytes: tuple[int, ...]
    energy_seconds: float
    energy_programs: tuple[str, ...]
    core_programs: tuple[str, ...]
    core_scale: str
    workloads: tuple[str, ...]
    setting_programs: tuple[str, ...]
    setting_repetitions: int
    calibrates: bool


QUICK = Effort(
    name="quick",
    scales=("tiny",),
    scale="tiny",
    repetitions=2,
    few=1,
    transfer_bytes=(_MIB, 16 * _MIB),
    energy_seconds=0.3,
    energy_programs=("nn",),
    core_programs=("nn", "hotspot"),
    core_scale="tiny",
    workloads=("hotspot", MIXED),
    setting_programs=("hybridsort",),
    setting_repetitions=1,
    calibrates=False,
)
FULL = Effort(
    name="full",
    scales=("small", "medium", "large"),
    scale="large",
    repetitions=5,
    few=3,
    transfer_bytes=tuple(_MIB * size for size in (1, 4, 16, 64, 256, 1024, 4096)),
    energy_seconds=2.0,
    energy_programs=_ALL,
    core_programs=_ALL,
    core_scale="medium",
    workloads=(*_ALL, MIXED),
    setting_programs=("nn", "hybridsort", "hotspot"),
    setting_repetitions=5,
    calibrates=True,
)
EFFORTS = {effort.name: effort for effort in (QUICK, FULL)}
