"""What the command prints: results on stdout, progress on stderr, JSON where it is asked for.

Rich is imported where something is shown by it: that takes a sixth of a command's start.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from hippogriff._sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

_PLAIN_WIDTH = 140  # Columns where there is no terminal.
_LINE_SECONDS = 5.0
_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160))}


def prepare_streams() -> None:
    """Make the standard streams ready for a command: there, for any name, with plain warnings."""
    _fill_closed_streams()
    _let_any_name_out()
    _warn_plainly()


def _fill_closed_streams() -> None:
    """Put what swallows everything in the place of standard streams that are closed (``>&-``).

    Python has None for them, and the next file that is opened would get their number. A program
    that this one goes on as has them closed again.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The least free number: the stream's own. It stays open until the process ends.
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _let_any_name_out() -> None:
    """Have stdout take every name: files may have some that are no text, or none that it can say.

    stderr does as it is.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
        sys.stdout.reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")


def printable(text: str) -> str:
    """Return a line for people, its control characters escaped: names steer no terminal."""
    return text.translate(_CONTROLS)


def _warn_plainly() -> None:
    """Have warnings be lines: where in the source they arose is nothing to who types commands."""

    def tell(message: Warning | str, *_: object, **__: object) -> None:
        print(message, file=sys.stderr)

    warnings.showwarning = tell


def stdout() -> Console:
    """Return a console for results, which may have any name in them."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return Console(width=width, highlight=False, markup=False)


def print_json(value: object) -> None:
    """Print JSON on stdout."""
    print(json.dumps(value, indent=2))


def make_table(title: str, columns: Sequence[str], *, numbers: Sequence[str] = ()) -> Table:
    """Make a table; the columns in `numbers` are aligned to the right."""
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        right = column in numbers
        table.add_column(column, justify="right" if right else "left", no_wrap=right)
    return table


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[speed]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # Else what other threads print meanwhile would go to stderr.
        redirect_stdout=False,
        redirect_stderr=False,
    )


class Follower:
    """Shows how far something is: a bar on a terminal, else a line every 5 s, on stderr.

    Used as a context manager, from one thread.
    """

    def __init__(self, title: str, total: int, *, in_bytes: bool = True) -> None:
        self._title = printable(title)
        self._total = total
        self._in_bytes = in_bytes
        self._begin = self._told = time.monotonic()
        self._bar: Progress | None = None
        # A program that loads by us may have been started without a stderr.
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task(self._title, total=total or 1, speed="")

    def __enter__(self) -> Follower:
        self._begin = self._told = time.monotonic()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, total: int) -> None:
        """Take another total."""
        self._total = total
        if self._bar is not None:
            self._bar.update(self._task, total=total or 1)

    def tell(self, done: int, note: str = "") -> None:
        """Show that so many bytes, or parts of the total, are done."""
        now = time.monotonic()
        title = f"{self._title} ({printable(note)})" if note else self._title
        speed = ""
        if self._in_bytes:
            speed = f"{done / max(now - self._begin, 1e-9) / 1e9:.2f} GB/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, speed=speed, description=title)
        elif sys.stderr is not None and now - self._told >= _LINE_SECONDS:
            self._told = now
            percent = 100 * done / self._total if self._total else 100
            amount = f", {format_size(done)}, {speed}" if self._in_bytes else ""
            print(f"{title}: {percent:.0f} %{amount}", file=sys.stderr, flush=True)
