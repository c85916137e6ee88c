"""A few transfers at a time, none of which stays under way when something goes wrong."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from hippogriff._interrupts import outlast
from hippogriff.errors import HippogriffError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from hippogriff._transfer import Transfer

    Wait = Callable[[Transfer[Any]], object]

# Cancelled transfers finish within this time; else their memory is kept until they do.
_SETTLE_SECONDS = 10.0


def wait_plainly(transfer: Transfer[Any]) -> None:
    """Wait as long as it takes; Ctrl-C ends it where the caller is the main thread."""
    transfer.wait()


class Flights:
    """Transfers under way, at most `most`; the end of the ``with`` waits for all.

    `wait` waits for one. Whatever ends it early stops them before it is
    raised.
    """

    def __init__(self, most: int, wait: Wait = wait_plainly) -> None:
        self._most = most
        self._wait = wait
        self._flying: deque[tuple[Transfer[Any], Callable[[], object] | None]] = deque()

    def __enter__(self) -> Flights:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            while kind is None and self._flying:
                self._land()
        finally:
            stop(transfer for transfer, _ in self._flying)

    def make_room(self) -> None:
        """Wait until one more may start."""
        while len(self._flying) >= self._most:
            self._land()

    def add(self, transfer: Transfer[Any], then: Callable[[], object] | None = None) -> None:
        """Take a transfer that has started; `then` is called once it has ended well."""
        self._flying.append((transfer, then))

    def _land(self) -> None:
        self._wait(self._flying[0][0])
        _, then = self._flying.popleft()
        if then is not None:
            then()


def stop(transfers: Iterable[Transfer[Any]]) -> None:
    """Cancel transfers and wait until they use their memory no more, whatever interrupts."""
    stopped = list(transfers)

    def have_ended(seconds: float) -> bool:
        for transfer in stopped:
            transfer.cancel()
        for transfer in stopped:
            with contextlib.suppress(HippogriffError):
                transfer.wait(seconds)
        return all(transfer.done() for transfer in stopped)

    outlast(have_ended, _SETTLE_SECONDS)
