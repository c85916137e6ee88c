"""The papers' nine programs, the sizes of their inputs, and where they were built."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hippogriff import _library
from hippogriff.errors import InvalidArgument

SCALES = ("tiny", "small", "medium", "large")
#: How the data moves; the words of the programs' command line.
CONVENTIONAL, BY_HAND, OURS = "baseline", "pipelined", "run"
WAYS = (CONVENTIONAL, BY_HAND, OURS)


@dataclass(frozen=True)
class Program:
    """A program: what follows `generate FILE` for each scale, and how large the input is then."""

    name: str
    title: str  # in the papers' figures
    sizes: tuple[tuple[int, int], ...]  # of each scale: the first number of `generate`, MB
    options: tuple[str, ...] = ()
    # Where only the movement counts: options of short kernels, and a size that they can have.
    short_options: tuple[str, ...] = ()
    short_size_max: int = 1 << 62

    def arguments(self, scale: str, *, short: bool = False) -> list[str]:
        """Return what follows `generate FILE`; `short`: of an input whose kernels take little."""
        size = self.sizes[SCALES.index(scale)][0]
        if short:
            return [str(min(size, self.short_size_max)), *(self.short_options or self.options)]
        return [str(size), *self.options]

    def input_bytes(self, scale: str) -> int:
        """Return about how large the input is."""
        return self.sizes[SCALES.index(scale)][1] * 1_000_000


# Small, medium and large are the papers' (Gullfoss, table 2), as near as the formats come.
PROGRAMS = (
    Program("bfs", "BFS", ((40_000, 1), (1_320_000, 37), (20_960_000, 587), (41_800_000, 1170))),
    Program(
        "cfd",
        "CFD",
        ((14, 1), (34, 16), (112, 573), (120, 705)),
        ("--iterations", "10"),
        ("--iterations", "1"),
    ),
    Program("dwt2d", "DWT2D", ((600, 1), (1528, 7), (3000, 27), (5946, 106))),
    Program(
        "gaussian",
        "Gaussian",
        ((256, 1), (4096, 67), (8192, 268), (16384, 1074)),
        short_size_max=1024,
    ),
    Program(
        "hotspot",
        "HotSpot",
        ((384, 1), (2048, 34), (8192, 537), (16384, 2147)),
        ("--steps", "60"),
        ("--steps", "4"),
    ),
    Program(
        "hybridsort",
        "HybridSort",
        ((250_000, 1), (10_000_000, 40), (50_000_000, 200), (300_000_000, 1200)),
    ),
    Program(
        "kmeans",
        "Kmeans",
        ((8000, 1), (301_000, 41), (1_000_000, 136), (10_000_000, 1360)),
        short_options=("--iterations", "1"),
    ),
    Program("lud", "LUD", ((384, 1), (2048, 17), (8192, 268), (16384, 1074))),
    Program("nn", "NN", ((130_000, 1), (8_875_000, 71), (71_250_000, 570), (142_500_000, 1140))),
)
BY_NAME = {program.name: program for program in PROGRAMS}


def find_programs(named: Path | None = None) -> Path:
    """Return the folder of the programs.

    That is the folder named, else HIPPOGRIFF_PROGRAMS, else what lies beside the library in use:
    `bin` of a build folder, `../libexec/hippogriff` of an installation.

    Raises
    ------
    InvalidArgument
        When they are in none of these.
    """
    library = Path(_library.lib._name).resolve().parent
    variable = os.environ.get("HIPPOGRIFF_PROGRAMS")
    if named is None and variable:
        named = Path(variable)
    if named is not None:
        places = [named, named / "bin"]
    else:
        places = [library / "bin", library.parent / "libexec" / "hippogriff", library]
    for place in places:
        if all(os.access(place / program.name, os.X_OK) for program in PROGRAMS):
            return place.resolve()
    raise InvalidArgument(
        f"the papers' programs are not in {', '.join(map(str, places))}: run `make` in the "
        "repository, or name their folder by --programs or HIPPOGRIFF_PROGRAMS"
    )
