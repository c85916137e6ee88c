"""What the papers say, in numbers, each with where it stands.

"Gullfoss": Tseng et al., Gullfoss: accelerating and simplifying data movement among heterogeneous
computing and storage resources (2015). "Hippogriff": Liu et al., ICCD 2016, and chapter 3 of Liu's
dissertation. Their machine: 4 cores, a Tesla K20 on 8 GB/s, an SSD of 2.2 GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALES = ("small", "medium", "large")
DRIVE_GB_PER_SECOND = 2.2
LINK_GB_PER_SECOND = 8.0
MACHINE = "4 cores, a Tesla K20 (link 8 GB/s) and an SSD of 2.2 GB/s"


@dataclass(frozen=True)
class Said:
    """One number of the papers."""

    what: str
    value: float
    where: str

    @property
    def label(self) -> str:
        """For a plot."""
        return f"{self.what} ({self.where})"


def of_scale(table: Mapping[str, tuple[Said, ...]], scale: str) -> tuple[Said, ...]:
    """Return what is said of inputs of a size; of tiny ones, which it has not, of small ones."""
    if scale in table:
        return table[scale]
    return tuple(replace(said, what=f"{said.what}, small inputs") for said in table["small"])


#: Share of the execution time in data movement, by size of the input.
MOVEMENT_SHARE = {"small": 0.68, "medium": 0.54, "large": 0.49}
MOVEMENT_SHARE_WHERE = "Hippogriff, figure 3.7"
MOVEMENT_SHARE_GULLFOSS = Said("more than 55 %", 0.55, "Gullfoss, figure 3")

#: Copying to the GPU: share of the time of conventional reads of 4 to 32 MB.
COPYING_TIME_SHARE = (
    Said("at least", 0.33, "Hippogriff, figure 3.11"),
    Said("at most", 0.51, "Hippogriff, figure 3.11"),
)
#: Share of the conventional programs' energy that the idle machine takes in that time.
IDLE_ENERGY_SHARE = {
    "large": (Said("idle", 0.85, "Hippogriff, figure 3.8"),),
    "medium": (Said("idle", 0.87, "Hippogriff, figure 3.8"),),
    "small": (Said("idle", 0.94, "Hippogriff, figure 3.8"),),
}
#: Share of the conventional programs' energy that moving data takes, above idle or not.
MOVEMENT_ENERGY_SHARE = {
    "large": (
        Said("moving data", 0.48, "Hippogriff, figure 3.9"),
        Said("moving data", 0.53, "Gullfoss, figure 4"),
    ),
}
#: GB/s from the drive to the GPU, files of 4 GB.
THROUGHPUT_BYTES = 4e9
THROUGHPUT = (
    Said("Gullfoss", 2.221, "Gullfoss, figure 8"),
    Said("NVMe-pipeline", 1.691, "Gullfoss, figure 8"),
    Said("DirectNVMe, one queue", 1.110, "Gullfoss, figure 8"),
)
SPEEDUP = {
    "large": (Said("Gullfoss", 1.46, "Gullfoss, figure 10"),),
    "medium": (Said("Gullfoss", 1.39, "Gullfoss, figure 10"),),
    "small": (Said("Gullfoss", 1.29, "Gullfoss, figure 10"),),
}
SPEEDUP_ALL = Said("Hippogriff, all sizes", 1.17, "Hippogriff, figure 3.14")
MOVEMENT_SPEEDUP = {
    "large": (
        Said("Gullfoss", 2.0, "Gullfoss, figure 11"),
        Said("Hippogriff", 1.45, "Hippogriff, figure 3.15"),
    ),
    "medium": (Said("Hippogriff", 1.31, "Hippogriff, figure 3.15"),),
    "small": (Said("Hippogriff", 1.24, "Hippogriff, figure 3.15"),),
}
#: Page faults relative to the conventional program's: Gullfoss, table 3.
PAGE_FAULTS_WHERE = "Gullfoss, table 3"
PAGE_FAULTS = {
    "bfs": {"small": 0.6771, "medium": 0.5304, "large": 0.4966},
    "cfd": {"small": 1.0085, "medium": 0.8524, "large": 0.8314},
    "dwt2d": {"small": 0.4060, "medium": 0.4078, "large": 0.3937},
    "gaussian": {"small": 0.8130, "medium": 0.8663, "large": 0.9008},
    "hotspot": {"small": 0.6523, "medium": 0.5735, "large": 0.4827},
    "hybridsort": {"small": 0.8323, "medium": 0.7748, "large": 0.7174},
    "kmeans": {"small": 0.8310, "medium": 0.8303, "large": 0.7806},
    "lud": {"small": 0.9977, "medium": 0.9417, "large": 0.6291},
    "nn": {"small": 0.8944, "medium": 0.8720, "large": 0.8717},
}
PAGE_FAULTS_AVERAGE = {"small": 0.7903, "medium": 0.7388, "large": 0.6782}
#: Instructions of moving 4 GB relative to the conventional way.
INSTRUCTIONS = (
    Said("NVMeDirect's instructions", 1 / 5.5, "Hippogriff, figure 3.13"),
    Said("Gullfoss' instructions", 1 / 3, "Gullfoss, figure 9"),
    Said("NVMe-pipeline's instructions", 1.6, "Gullfoss, figure 9"),
)
#: Share of the conventional way's instructions that copy to the GPU, of reads of 4 to 32 MB.
COPYING_SHARE = (
    Said("at least", 0.25, "Hippogriff, figure 3.10"),
    Said("at most", 0.51, "Hippogriff, figure 3.10"),
)
ENERGY = {
    "large": (
        Said("Gullfoss", 0.72, "Gullfoss, figure 12"),
        Said("NVMeDirect", 0.83, "Hippogriff, figure 3.16"),
    ),
    "medium": (Said("NVMeDirect", 0.85, "Hippogriff, figure 3.16"),),
    "small": (Said("NVMeDirect", 0.86, "Hippogriff, figure 3.16"),),
}
ENERGY_DELAY = {
    "large": (
        Said("Gullfoss", 0.59, "Gullfoss, figure 13"),
        Said("NVMeDirect", 0.74, "Hippogriff, figure 3.17"),
    ),
    "medium": (Said("NVMeDirect", 0.75, "Hippogriff, figure 3.17"),),
    "small": (Said("NVMeDirect", 0.80, "Hippogriff, figure 3.17"),),
}
#: Speed at 1.2 GHz relative to the conventional program at 2.5 GHz.
WEAK_CPU = (
    Said("conventional, 1.2 GHz", 0.78, "Hippogriff, figure 3.18"),
    Said("Hippogriff, 1.2 GHz", 0.94, "Hippogriff, figure 3.18"),
    Said("NVMe-pipeline, 1.2 GHz", 0.92, "Gullfoss, figure 14"),
    Said("Gullfoss, 1.2 GHz", 1.14, "Gullfoss, figure 14"),
)
#: Energy at 1.2 GHz relative to the conventional program's at 2.5 GHz.
WEAK_ENERGY = (
    Said("conventional, 1.2 GHz", 1.18, "Hippogriff, figure 3.19"),
    Said("Hippogriff, 1.2 GHz", 0.96, "Hippogriff, figure 3.19"),
    Said("conventional, 1.2 GHz", 1.20, "Gullfoss, figure 14"),
    Said("Gullfoss, 1.2 GHz", 0.82, "Gullfoss, figure 14"),
)
#: Eight programs at once relative to the unmodified programs.
TOGETHER = {
    "large": (
        Said("DirectNVMe", 1.10, "Gullfoss, figure 15"),
        Said("without router", 1.31, "Gullfoss, figure 15"),
        Said("router, one channel", 1.30, "Gullfoss, figure 15"),
        Said("Gullfoss", 1.50, "Gullfoss, figure 15"),
        Said("Hippogriff", 1.31, "Hippogriff, figure 3.20"),
        Said("always NVMeDirect", 1.11, "Hippogriff, figure 3.20"),
    ),
    "medium": (
        Said("Hippogriff", 1.30, "Hippogriff, figure 3.20"),
        Said("always NVMeDirect", 1.07, "Hippogriff, figure 3.20"),
    ),
    "small": (
        Said("Hippogriff", 1.19, "Hippogriff, figure 3.20"),
        Said("always NVMeDirect", 0.98, "Hippogriff, figure 3.20"),
    ),
}
