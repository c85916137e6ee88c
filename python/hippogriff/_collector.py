"""Python's cyclic garbage collector, held off where thousands of objects are made that all stay."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

# Whoever makes garbage beside us must not wait for the collector longer than this.
_MOST_SECONDS = 1.0

_lock = threading.Lock()
_holding: dict[int, float] = {}  # who hold it off now, by their ids, and until when at most
_was_enabled = False


class Pause:
    """Holds the collector off within a ``with``, for a second at most.

    It is the process's: the last of those that hold it off at one time lets it run again, where it
    ran before. Thread-safe; each ``with`` needs a `Pause` of its own.
    """

    def __init__(self) -> None:
        self._until = 0.0

    def __enter__(self) -> Pause:
        global _was_enabled
        now = time.monotonic()
        self._until = now + _MOST_SECONDS
        with _lock:
            _let_go(id_ for id_, until in list(_holding.items()) if until < now)
            # Who is within a pause may have let it run all the same.
            _was_enabled = gc.isenabled() or (bool(_holding) and _was_enabled)
            _holding[id(self)] = self._until
            gc.disable()
        return self

    def look(self) -> None:
        """End the pause when it has lasted long enough."""
        if time.monotonic() > self._until:
            self._end()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end()
        finally:
            self._end()  # An interrupt can have ended the first. One before is over in a second.

    def _end(self) -> None:
        with _lock:
            _let_go([id(self)])


def _let_go(ids: Iterable[int]) -> None:
    """Count some as holding no longer, in an order that can be interrupted and done again."""
    for id_ in ids:
        if id_ in _holding:
            if len(_holding) == 1 and _was_enabled:
                gc.enable()
            _holding.pop(id_, None)


def _after_fork_in_child() -> None:
    """Let the collector run: the threads that would do so are the parent's."""
    global _lock
    _lock = threading.Lock()
    _let_go(list(_holding))


os.register_at_fork(after_in_child=_after_fork_in_child)
