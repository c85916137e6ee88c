"""Python's cyclic garbage collector, held off where thousands of objects are made that all stay."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

# Whoever makes garbage beside us must not wait for the collector longer than this.
_MOST_SECONDS = 1.0

_lock = threading.Lock()
_paused = 0  # how many hold it off now
_was_enabled = False


class Pause:
    """Holds the collector off within a ``with``, for a second at most.

    It is the process's: the last of those that hold it off at one time lets it run again, where it
    ran before. Thread-safe; each ``with`` needs a `Pause` of its own.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._active = False

    def __enter__(self) -> Pause:
        global _paused, _was_enabled
        with _lock:
            if _paused == 0:
                _was_enabled = gc.isenabled()
                gc.disable()
            _paused += 1
        self._active = True
        self._until = time.monotonic() + _MOST_SECONDS
        return self

    def look(self) -> None:
        """End the pause when it has lasted long enough."""
        if self._active and time.monotonic() > self._until:
            self._end()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._active:
            self._end()

    def _end(self) -> None:
        global _paused
        self._active = False
        with _lock:
            _paused = max(_paused - 1, 0)  # 0 already in a child that was forked within the pause
            if _paused == 0 and _was_enabled:
                gc.enable()


def _after_fork_in_child() -> None:
    """Let the collector run: the threads that would do so are the parent's."""
    global _lock, _paused
    _lock = threading.Lock()
    if _paused and _was_enabled:
        gc.enable()
    _paused = 0


os.register_at_fork(after_in_child=_after_fork_in_child)
