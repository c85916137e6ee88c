"""What the experiments must show, with what was measured: met, not met, or not measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hippogriff.reproduce.bench import total_seconds
from hippogriff.reproduce.energy_figures import ABOVE_IDLE, SOURCES, SUM_MODEL, WITH_IDLE
from hippogriff.reproduce.figures import (
    WAY_TITLES,
    Panel,
    average_of,
    inward_seconds,
)
from hippogriff.reproduce.hand_figures import over_best_shape
from hippogriff.reproduce.programs import BY_HAND, BY_NAME, CONVENTIONAL, OURS, PROGRAMS
from hippogriff.reproduce.together import AT_ONCE, CONFIGURATIONS, IN_TURNS, UNMODIFIED
from hippogriff.reproduce.together_figures import most_over, over_direct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hippogriff.reproduce.chance import Compared
    from hippogriff.reproduce.figures import Figure, Measurements

_GB = 1_000_000_000
_TITLES = {each.name: each.title for each in CONFIGURATIONS}


@dataclass(frozen=True)
class Target:
    """A number that should be at least, or at most, a bound."""

    text: str
    bound: float
    measured: float | None
    at_most: bool = False
    limit: float | None = None  # what this hardware would allow, where that is known
    between: tuple[float, float] | None = None  # by chance, where that is known

    @property
    def verdict(self) -> str:
        """Say how it is."""
        if self.measured is None:
            return "not measured"
        if self.between is not None and self.between[0] <= self.bound <= self.between[1]:
            return "cannot tell"
        met = self.measured <= self.bound if self.at_most else self.measured >= self.bound
        return "met" if met else "not met"


def _last(figures: dict[str, Figure], name: str, title: str) -> float | None:
    """Return the average of ours in the first panel whose title has these words."""
    for panel in figures[name].panels:
        if title in panel.title:
            values = panel.series.get(WAY_TITLES[OURS]) or [None]
            return None if values[-1] is None else values[-1].median
    return None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def to_hand(measured: Measurements, scale: str) -> Target:
    """Return what of the seconds of those by hand hippogriff takes: the worst of programs."""
    found = [
        None if ratio is None else ratio.median
        for program in PROGRAMS
        for state in ("cold", "cached")
        for ratio in [measured.ratio((program.name, scale, state), (OURS, BY_HAND), total_seconds)]
    ]
    text = f"seconds over those pipelined by hand, {scale}, worst"
    return Target(text, 1.03, _most(found), True)


def _to_best_shapes(tuned: list[Compared]) -> Target:
    """Judge the worst of ratios, by the most of either end of where they lie by chance."""
    text = "the same over their best shape, of those tuned, worst"
    worst = max((each.ratio for each in tuned), default=None)
    known = [each.between for each in tuned if each.between is not None]
    between = None
    if known and len(known) == len(tuned):
        between = (max(least for least, _ in known), max(most for _, most in known))
    return Target(text, 1.03, worst, True, between=between)


def _single(measured: Measurements, figures: dict[str, Figure]) -> list[Target]:
    targets = []
    for state in ("cold", "cached"):
        title = f"large inputs, {state}"
        speed, moved = _last(figures, "speedup", title), _last(figures, "movement_speedup", title)
        targets.append(Target(f"speed-up of single programs, {title}", 1.46, speed))
        targets.append(Target(f"speed-up of data movement, {title}", 2.0, moved))
    targets.append(to_hand(measured, "large"))
    tuned = [
        found
        for program in PROGRAMS
        for state in ("cold", "cached")
        if (found := over_best_shape(measured, program.name, state, "large")) is not None
    ]
    targets.append(_to_best_shapes(tuned))
    inward = [
        None if ratio is None else 1 / ratio.median
        for program in PROGRAMS
        if BY_NAME[program.name].input_bytes("large") > _GB
        for ratio in [
            measured.ratio((program.name, "large", "cached"), (OURS, CONVENTIONAL), inward_seconds)
        ]
        if ratio is None or ratio.median > 0
    ]
    text = "to the device, cached inputs of 1 GB and more, least of the programs"
    return [*targets, Target(text, 10.0, _least(inward))]


def _ours_of(panels: tuple[Panel, ...], words: str) -> list[float | None]:
    """Return what everything reaches in the first panel of a title, the average last."""
    for panel in panels:
        if panel.title.endswith(words):
            values = panel.series[_TITLES["everything"]]
            return [None if value is None else value.median for value in values]
    return [None]


def _together(
    measured: Measurements, panels: tuple[Panel, ...], failures: int | None
) -> list[Target]:
    turns = _ours_of(panels, "one after another")
    at_once = [speed for speed in _ours_of(panels, "over at once")[:-1] if speed is not None]
    to_direct = over_direct(measured, "large")
    return [
        Target(
            "eight at once, over one after another",
            1.5,
            turns[-1],
            limit=most_over(measured, "large", IN_TURNS),
        ),
        Target(
            "eight at once, over the unmodified at once, of repetitions in which none failed",
            1.5,
            statistics.geometric_mean(at_once) if at_once else None,
            limit=most_over(measured, "large", UNMODIFIED),
        ),
        Target(
            "eight at once, over always the direct-most route",
            1.15,
            statistics.geometric_mean(to_direct) if to_direct else None,
            limit=most_over(measured, "large", "direct_most"),
        ),
        Target("eight at once, the slowest workload", 0.98, _least(turns[:-1])),
        Target(
            "eight at once, the slowest workload over always the direct-most route",
            0.98,
            _least(to_direct),
        ),
        Target(
            "eight at once, programs of hippogriff that failed",
            0,
            None if failures is None else float(failures),
            True,
        ),
    ]


def _energies(figures: dict[str, Figure]) -> list[Target]:
    """Judge the worse of cold and cached, of the best source that there is, and of the model."""

    def worst(figure: str, title: str, kind: str) -> float | None:
        found = [panel for panel in figures[figure].panels if panel.title.startswith(title)]
        return _most(average_of(panel, f"{WAY_TITLES[OURS]}, {kind}") for panel in found)

    targets = []
    for what, bound in (("energy", 0.72), ("energy-delay", 0.59)):
        for kind in (WITH_IDLE, ABOVE_IDLE):
            source, measured = "", None
            for source in reversed(SOURCES.values()):  # Both together, else one that is there.
                measured = worst("energy", f"{what}, {source}, measured", kind)
                if measured is not None:
                    break
            text = f"{what} measured, {kind}" + (f" ({source})" if measured is not None else "")
            targets.append(Target(text, bound, measured, at_most=True))
        modelled = worst("modelled_energy", f"{what}, modelled", SUM_MODEL)
        text = f"{what} above idle, modelled (GPU board measured, CPU by a model)"
        targets.append(Target(text, bound, modelled, at_most=True))
    return targets


def targets(measured: Measurements, figures: dict[str, Figure]) -> list[Target]:
    """Return all targets; the papers' own averages are among them."""
    eights = [each for each in measured.records if str(each["key"]).startswith("together/")]
    ours = {each.name for each in CONFIGURATIONS if each.way == OURS}
    # Of a measurement that failed as a whole none of the eight is known to have done its work.
    failed = [
        int(each.get("failures", AT_ONCE))
        for each in eights
        if each["configuration"] in ours and not each.get("absent")
    ]
    faults = _last(figures, "costs", "page faults, large")
    defaults = [
        value.median
        for panel in figures["sensitivity"].panels
        for values in panel.series.values()
        for value in values
        if value is not None
    ]
    return [
        *_single(measured, figures),
        *_together(measured, figures["together"].panels, sum(failed) if failed else None),
        Target("page faults, of the conventional programs', large", 0.68, faults, True),
        *_energies(figures),
        Target("the best setting found, of the default's seconds", 0.95, _least(defaults)),
    ]
