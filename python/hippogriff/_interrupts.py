"""Interrupts: of calls of C that wait, of waits for what is being stopped, of whole commands."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from hippogriff import _abi
from hippogriff._handle import SLICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from hippogriff import _storage_abi


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


def let_interrupt(
    options: _abi.ReserveOptions | _storage_abi.ArrayOptions, raised: list[BaseException]
) -> None:
    """Have a call with these options end once something was raised.

    Threads but the main one get no signals, and must not call back while the interpreter exits.
    """
    if threading.current_thread() is threading.main_thread():
        options.interrupted = _abi.Interrupted(lambda _context: len(raised))


@contextlib.contextmanager
def interruptible() -> Iterator[list[BaseException]]:
    """Collect what handlers of signals raise, where C calls back: C could not carry it on."""
    raised: list[BaseException] = []
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    if threading.current_thread() is threading.main_thread():
        for each in signal.valid_signals():
            handler = signal.getsignal(each)
            if callable(handler):
                handlers[each] = handler

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as error:
            raised.append(error)

    for number in handlers:
        signal.signal(number, handle)
    try:
        yield raised
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is handle:  # else a handler has set another one
                signal.signal(number, handler)
