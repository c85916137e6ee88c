"""``hippogriff noded``: the node on a Unix socket, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hippogriff._library import lib
from hippogriff.errors import check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def _readable_after_a_signal() -> Iterator[int]:
    """Give a descriptor that SIGTERM and SIGINT make readable, also while C runs."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def serve(socket: Path | None, group: str | None = None) -> None:
    """Serve until a signal comes, the members of a group too if one is given. For the main thread.

    Raises
    ------
    InvalidArgument
        When there is no such group.
    """
    with _readable_after_a_signal() as stop:
        check(lib.hippogriff_noded_run(_address(socket, group), stop))


def _address(socket: Path | None, group: str | None) -> bytes | None:
    """Return where it listens, as HIPPOGRIFF_NODE says it after ``unix:``."""
    if group is None:
        return None if socket is None else os.fsencode(socket)
    return os.fsencode(f"group:{group}" if socket is None else f"group:{group}:{socket}")
