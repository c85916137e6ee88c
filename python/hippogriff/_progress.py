"""Bars: how far a load or a save is, where somebody looks at a terminal."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from hippogriff._console import Follower
    from hippogriff._handle import Progress
    from hippogriff._transfer import ProgressCallback, Transfer

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
    """

    def __init__(self, progress: bool | None, title: str) -> None:
        # None where a program was started without a stderr.
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self.shown = terminal if progress is None else progress
        self._quiet_until = time.monotonic() + (0 if progress else _QUIET_SECONDS)
        self._lock = threading.Lock()
        self._title = title
        self._follower: Follower | None = None
        self._total_bytes = 0
        self._done: dict[int, int] = {}

    def expect(self, size_bytes: int) -> None:
        """Tell how much more there will be."""
        with self._lock:
            self._total_bytes += size_bytes

    def tell(self, who: object, done_bytes: int) -> None:
        """Tell how much one of those who load has done so far."""
        with self._lock:
            self._done[id(who)] = done_bytes
            if self._follower is None:
                if time.monotonic() < self._quiet_until:
                    return
                # Rich is needed by nobody else here, and takes longer to import than many a load.
                from hippogriff._console import Follower

                self._follower = Follower(self._title, self._total_bytes)
                self._follower.__enter__()
            self._follower.tell(sum(self._done.values()))

    def close(self) -> None:
        """Take it away."""
        with self._lock:
            if self._follower is not None:
                self._follower.__exit__(None, None, None)
                self._follower = None


def bar_for(size_bytes: int, progress: bool | None, title: str) -> Bar | None:
    """Make the bar of something so large that somebody might look on; None where nobody does."""
    if progress or (progress is None and size_bytes >= _QUIET_BYTES):
        bar = Bar(progress, title)
        if bar.shown:
            bar.expect(size_bytes)
            return bar
    return None


class Following:
    """Shows how far some transfers are. Used from one thread, as a context manager.

    Parameters
    ----------
    title : str
        What is going on.
    progress : bool, optional
        As `Bar` has it.
    """

    def __init__(self, title: str, progress: bool | None) -> None:
        self._title = title
        self._progress = progress
        self._bar: Bar | None = None
        self._done_bytes = 0

    def __enter__(self) -> Following:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    @property
    def shown(self) -> bool:
        """Whether there is, or will be, something to see."""
        return self._bar is not None

    def expect(self, size_bytes: int) -> None:
        """Tell how much there will be, before the first of it."""
        if self._progress or (self._progress is None and size_bytes >= _QUIET_BYTES):
            bar = Bar(self._progress, self._title)
            if bar.shown:
                bar.expect(size_bytes)
                self._bar = bar

    def wait(self, transfer: Transfer[int]) -> None:
        """Wait for a transfer; its failure is raised."""
        if self._bar is None:
            transfer.wait()
            return
        transfer.complete(None, self.tell)
        self.add(transfer.progress.bytes_total)

    def add(self, size_bytes: int) -> None:
        """Tell that so much more is done."""
        if self._bar is not None:
            self._done_bytes += size_bytes
            self._bar.tell(self, self._done_bytes)

    @property
    def tell(self) -> ProgressCallback | None:
        """What tells how far the transfer is that is waited for now."""
        return None if self._bar is None else self._tell

    def _tell(self, progress: Progress) -> None:
        if self._bar is not None:
            self._bar.tell(self, self._done_bytes + progress.bytes_done)
