"""What a program says of its run, and whether that can be."""

from __future__ import annotations

import sys
from typing import Any

_USAGE = (
    *("user_seconds", "system_seconds", "minor_faults", "major_faults"),
    *("voluntary_switches", "involuntary_switches", "peak_resident_bytes"),
)


def expect_result(result: Any) -> None:
    """Expect numbers that can be true of a run.

    Raises
    ------
    ValueError
        When they are not there, or cannot; says which.
    """
    try:
        total = _number(result["total_seconds"])
        _number(result["device_bytes"])
        for name in _USAGE:
            _number(result["usage"][name])
        parts = {name: _number(seconds) for name, seconds in result["seconds"].items()}
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{error!r}") from None
    for name, seconds in parts.items():
        if seconds > total:
            raise ValueError(f"{name} took {seconds} of {total} seconds")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.60} is no number")
    if not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{value} cannot be")
    return float(value)
