"""Calls in progress, for which the end of what they use waits."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from hippogriff.errors import Busy

if TYPE_CHECKING:
    from collections.abc import Callable


class Uses:
    """Who uses something now, which any thread may end. Thread-safe.

    A use is a lock of the thread's own that it holds: the interpreter takes it and gives it back
    without looking for Ctrl-C between, as it does in functions of Python. A forked child has no
    part in the uses of its parent, whose threads it does not have.
    """

    def __init__(self) -> None:
        self._over = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._ending = threading.Lock()
        self._locks: dict[int, Any] = {}  # As many as threads at a time: their numbers come again.

    def one(self) -> Any:
        """Return what `with` makes a use of, in which `over` has to be looked at."""
        if self._process != os.getpid():
            self._begin()
        thread = threading.get_ident()
        return self._locks.get(thread) or self._locks.setdefault(thread, threading.RLock())

    @property
    def over(self) -> bool:
        """Whether it is not there any more; if it is, it stays as long as the use."""
        return self._over

    def end(self, last: Callable[[], object]) -> None:
        """Refuse further uses and wait for those in progress; then call `last`, one at a time.

        It waits as long as the longest of them. Interrupted it may be called again; uses are
        refused all the same.
        """
        if self.one()._is_owned():
            raise Busy("this thread uses it: it cannot be ended from within")
        self._over = True
        for lock in list(self._locks.values()):
            with lock:  # Who has it later finds that it is over.
                pass
        with self._ending:
            last()
