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


def serve(socket: Path | None) -> None:
    """Serve until a signal comes. For the main thread."""
    with _readable_after_a_signal() as stop:
        check(lib.hippogriff_noded_run(None if socket is None else os.fsencode(socket), stop))
