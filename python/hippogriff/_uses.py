"""Calls in progress, for which the end of what they use waits."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from hippogriff.errors import Busy

if TYPE_CHECKING:
    from collections.abc import Iterator


class Uses:
    """Who uses something now, which any thread may end. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: dict[object, int] = {}
        self._over = False

    @contextlib.contextmanager
    def one(self) -> Iterator[bool]:
        """Tell whether it is still there; then it stays as long as the block runs."""
        user = object()
        try:
            with self._changed:
                if not self._over:
                    self._users[user] = threading.get_ident()
                there = not self._over
            yield there
        finally:
            with self._changed:
                self._users.pop(user, None)
                self._changed.notify_all()

    def end(self) -> bool:
        """Refuse further uses and wait for those in progress; False when it was over before.

        Interrupted, it is as if it had not been called.
        """
        with self._changed:
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
