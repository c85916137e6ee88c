"""Waiting for what is being stopped, whatever interrupts."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING

from hippogriff._handle import SLICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Ended(KeyboardInterrupt):
    """A signal that asks the program to end, to be treated as Ctrl-C; `signal` is its number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = number


@contextlib.contextmanager
def ending_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the scope as Ctrl-C does, unless they are ignored or handled.

    Slurm, systemd and closed terminals send them; by themselves they would leave temporary files.
    """

    def end(number: int, _frame: object) -> None:
        raise Ended(number)

    numbers: list[int] = []
    if threading.current_thread() is threading.main_thread():
        both = (signal.SIGTERM, signal.SIGHUP)
        numbers = [each for each in both if signal.getsignal(each) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


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
