"""Bars: how far a load or a save is, where somebody looks at a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hippogriff._console import Follower
    from hippogriff._handle import Progress

# What is over within this time shows no bar.
_QUIET_SECONDS = 0.5
# Nor what takes no longer than that even from a slow drive: it is not even asked for a terminal.
_QUIET_BYTES = 16 << 20


class Bar:
    """How far something is, on stderr. Thread-safe.

    Parameters
    ----------
    progress : bool, optional
        Whether to show it; without it on a terminal only, and when it takes a while.
    title : str
        What is going on.
    begin : float, optional
        Since when, in seconds of `time.monotonic`; since now without it.
    """

    def __init__(self, progress: bool | None, title: str, begin: float | None = None) -> None:
        self.shown = _is_terminal() if progress is None else progress
        begin = time.monotonic() if begin is None else begin
        self._quiet_until = begin + (0 if progress else _QUIET_SECONDS)
        self._lock = threading.Lock()
        self._title = title
        self._follower: Follower | None = None
        self._total_bytes = 0
        self._done: dict[int, int] = {}

    def expect(self, size_bytes: int) -> None:
        """Tell how much more there will be."""
        with self._lock, self._harmlessly():
            self._total_bytes += size_bytes
            if self._follower is not None:
                self._follower.expect(self._total_bytes)

    def tell(self, who: object, done_bytes: int) -> None:
        """Tell how much one of those who load has done so far."""
        with self._lock, self._harmlessly():
            self._done[id(who)] = done_bytes
            if self._follower is None:
                if not self.shown or time.monotonic() < self._quiet_until:
                    return
                # Rich is needed by nobody else here, and takes longer to import than many a load.
                from hippogriff._console import Follower

                self._follower = Follower(self._title, self._total_bytes)
                self._follower.__enter__()
            self._follower.tell(sum(self._done.values()))

    def close(self) -> None:
        """Take it away."""
        with self._lock, self._harmlessly():
            follower, self._follower = self._follower, None
            if follower is not None:
                follower.__exit__(None, None, None)

    @contextlib.contextmanager
    def _harmlessly(self) -> Iterator[None]:
        """Let what cannot be shown, where the terminal is gone, say, fail nothing else."""
        try:
            yield
        except Exception:
            self.shown = False
            self._follower = None


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # none, something else in its place, or closed
        return False


def check_progress(progress: object) -> None:
    """Refuse what tells neither to show a bar nor not to.

    Raises
    ------
    InvalidArgument
        When it is neither a bool nor None.
    """
    if progress is not None and not isinstance(progress, bool):
        raise InvalidArgument(f"progress={progress!r:.100} is neither True nor False nor None")


def bar_for(
    size_bytes: int, progress: bool | None, title: str, begin: float | None = None
) -> Bar | None:
    """Make the bar of something so large that somebody might look on; None where nobody does."""
    if progress or (progress is None and size_bytes >= _QUIET_BYTES):
        bar = Bar(progress, title, begin)
        if bar.shown:
            bar.expect(size_bytes)
            return bar
    return None


class TransferBar:
    """The bar of one transfer, made when there has been one to look at for a while.

    Parameters
    ----------
    progress, title
        As of `Bar`.
    ask : callable
        Returns how far the transfer is. Not asked before a bar would show it.
    """

    def __init__(self, progress: bool | None, title: str, ask: Callable[[], Progress]) -> None:
        self._progress = progress
        self._title = title
        self._ask = ask
        self._begin = time.monotonic()
        self._bar: Bar | None = None

    def tell(self) -> None:
        """Show how far the transfer is now."""
        if self._progress is None and time.monotonic() - self._begin < _QUIET_SECONDS:
            return
        progress = self._ask()
        if self._bar is None:
            self._bar = bar_for(progress.bytes_total, self._progress, self._title, self._begin)
        if self._bar is not None:
            self._bar.tell(self, progress.bytes_done)

    def close(self) -> None:
        """Take it away, where there is one."""
        if self._bar is not None:
            self._bar.close()
