"""How far chance alone moves the ratio of two medians."""

from __future__ import annotations

import random
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH = 5
_DRAWS = 2000
_LEFT_OUT = 0.05  # of the draws, at either end


class Compared(NamedTuple):
    """A ratio of medians; `between`: nine of ten such ratios by chance, where that is known."""

    ratio: float
    between: tuple[float, float] | None = None

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.ratio:.2f}{in_brackets(self.between)}"


def in_brackets(between: tuple[float, float] | None) -> str:
    """Return it as it follows a ratio; nothing where it is not known."""
    return "" if between is None else f" ({between[0]:.2f} to {between[1]:.2f})"


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Compared | None:
    """Compare what took so many seconds with what took others; None where one took none.

    By the bootstrap: repetitions are drawn anew from those that there are, of five and more each.
    The same repetitions always give the same answer.
    """
    if not ours or not theirs or not statistics.median(theirs) > 0:
        return None
    ratio = statistics.median(ours) / statistics.median(theirs)
    if min(len(ours), len(theirs)) < ENOUGH or not min(theirs) > 0:
        return Compared(ratio)
    draw = random.Random(0)
    found = sorted(
        statistics.median(draw.choices(ours, k=len(ours)))
        / statistics.median(draw.choices(theirs, k=len(theirs)))
        for _ in range(_DRAWS)
    )
    left_out = int(_DRAWS * _LEFT_OUT)
    return Compared(ratio, (found[left_out], found[-1 - left_out]))
