"""Waiting for what is being stopped, whatever interrupts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hippogriff._handle import SLICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


def outlast(has_ended: Callable[[float], bool], limit_seconds: float) -> None:
    """Wait until what was told to stop has ended: until then it uses the caller's memory.

    Interrupts, as by a second Ctrl-C, do not end the wait; the last one is raised behind it.

    Parameters
    ----------
    has_ended : callable
        Waits up to so many seconds and tells whether it has.
    limit_seconds : float
        How long to wait at most.
    """
    deadline = time.monotonic() + limit_seconds
    interrupt: BaseException | None = None
    while True:
        try:
            while not has_ended(SLICE_SECONDS) and time.monotonic() < deadline:
                pass
            break
        except BaseException as error:  # Ctrl-C, or what else a signal's handler raises.
            interrupt = error
            if time.monotonic() >= deadline:
                break
    if interrupt is not None:
        raise interrupt
