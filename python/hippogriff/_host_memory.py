"""How much host memory a load may use, and how its transfers share that."""

from __future__ import annotations

from hippogriff._sizes import as_bytes, format_size
from hippogriff.errors import InvalidArgument

# What one transfer needs: a channel's slots of the pinbuffer. Budgets count in steps of this.
STEP_BYTES = 4 << 20
# A transfer with so much is as fast as with any more, or nearly.
_WIDE_BYTES = 32 << 20


def host_memory_bytes(given: int | str | None, sharers: int = 1) -> int:
    """Return a budget as an argument has it, in bytes; 0 when there is none.

    `sharers` is how many each need a channel of their own.

    Raises
    ------
    InvalidArgument
        When it is no size, beyond all sizes, or less than they need.
    """
    if given is None:
        return 0
    size_bytes = as_bytes("host_memory", given)
    least_bytes = sharers * STEP_BYTES
    if size_bytes >= 2**63:
        raise InvalidArgument(f"host_memory is {given!r:.100}, which is more than any host has")
    if size_bytes < least_bytes:
        whose = f" for {sharers} devices" if sharers > 1 else ""
        raise InvalidArgument(
            f"host_memory is {given!r:.100}; {format_size(least_bytes)} is the least{whose}"
        )
    return size_bytes


def share_out(budget_bytes: int, most: int) -> tuple[int, int]:
    """Return how many transfers may be in flight, `most` at most, and the host memory of each.

    Without a budget (0) each has none. Fewer transfers that are wide do more than many narrow ones.
    """
    if budget_bytes == 0:
        return most, 0
    in_flight = max(1, min(most, budget_bytes // _WIDE_BYTES))
    return in_flight, budget_bytes // in_flight // STEP_BYTES * STEP_BYTES
