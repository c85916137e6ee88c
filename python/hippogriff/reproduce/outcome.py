"""What a program says of its run, and whether that can be."""

from __future__ import annotations

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
        total = float(result["total_seconds"])
        float(result["device_bytes"])
        for name in _USAGE:
            float(result["usage"][name])
        parts = {name: float(seconds) for name, seconds in result["seconds"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{error!r}") from None
    for name, seconds in parts.items():
        if not 0 <= seconds <= total:
            raise ValueError(f"{name} took {seconds} of {total} seconds")
