"""Calls in progress, for which the end of what they use waits."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from hippogriff.errors import Busy

if TYPE_CHECKING:
    from collections.abc import Iterator


class Uses:
    """Who uses something now, which any thread may end. Thread-safe.

    A forked child has no part in the uses of its parent, whose threads it does not have.
    """

    def __init__(self) -> None:
        self._over = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._users: dict[object, int] = {}

    def _changes(self) -> threading.Condition:
        if self._process != os.getpid():
            self._begin()
        return self._changed

    @contextlib.contextmanager
    def one(self) -> Iterator[bool]:
        """Tell whether it is still there; then it stays as long as the block runs."""
        user = object()
        try:
            with self._changes():
                if not self._over:
                    self._users[user] = threading.get_ident()
                there = not self._over
            yield there
        finally:
            with self._changes():
                self._users.pop(user, None)
                self._changed.notify_all()

    def end(self) -> bool:
        """Refuse further uses and wait for those in progress; False when it was over before.

        It waits as long as the longest of them. Interrupted, it is as if it had not been called.
        """
        with self._changes():
            if self._over:
                return False
            if threading.get_ident() in self._users.values():
                raise Busy("this thread uses it: it cannot be ended from within")
            self._over = True
            try:
                self._changed.wait_for(lambda: not self._users)
            except BaseException:
                self._over = False
                raise
            return True
