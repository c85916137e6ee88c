"""Programs that are run and waited for: each has a time limit, and none stays behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.002
_WORDS_MAX = 400
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LINE_BYTES_MAX = 4096


@dataclass(frozen=True)
class Outcome:
    """How a program ended; `seconds` from its start to its end."""

    status: int
    seconds: float
    output: str
    errors: str
    timed_out: bool = False

    @property
    def failure(self) -> str:
        """Why it failed; "" when it did not."""
        if self.timed_out:
            return f"it took longer than its limit and was ended after {self.seconds:.0f} s"
        if self.status == 0:
            return ""
        lines = self.errors.strip().splitlines() or self.output.strip().splitlines()
        said = f": {lines[-1]}" if lines else ""
        return f"{_ending(self.status)}{said}"[:_WORDS_MAX]


def _ending(status: int) -> str:
    """Name a status of subprocess: below 0 it is a signal's number."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"killed by {name}"


def _text_of(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]
    begin: float
    end: float = 0.0
    timed_out: bool = False

    def outcome(self) -> Outcome:
        return Outcome(
            self.process.returncode,
            self.end - self.begin,
            _text_of(self.output),
            _text_of(self.errors),
            self.timed_out,
        )


@dataclass(frozen=True)
class Surroundings:
    """What a program is run in; no cores: all that this process may use."""

    environment: Mapping[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    timeout_seconds: float = 300.0


@contextlib.contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Start what is started in the block on these cores only."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back the signals that would interrupt the block until its end."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in _INTERRUPTING}
    # What is ignored stays so: a child takes that over. Only the main thread handles any.
    here = threading.current_thread() is threading.main_thread()
    held = {number: each for number, each in before.items() if here and callable(each)}
    try:
        for number in held:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for arrived in came:
            signal.raise_signal(arrived)


def _start(command: Sequence[str], around: Surroundings) -> _Child:
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    begin = time.monotonic()
    with _on_cores(around.cores):
        # A session of its own: Ctrl-C is for whoever measures, who then ends it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **around.environment},
            start_new_session=True,
        )
    return _Child(process, output, errors, begin)


def _start_all(
    commands: Sequence[Sequence[str]], around: Surroundings, children: list[_Child]
) -> None:
    """Start one by one: those in `children` are to be ended if the next does not start."""
    for command in commands:
        with uninterrupted():  # Else one could run that nobody knows of.
            children.append(_start(command, around))


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started, first kindly. One that does not end is told of."""
    refused = ""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        except (
            PermissionError
        ) as error:  # Its group is somebody else's by now: setuid, a container.
            refused = f": {error}"
            with contextlib.suppress(OSError):
                process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    if process.poll() is None:
        words = f"process {process.pid} ({process.args!r}) could not be ended{refused}"
        print(words[:_WORDS_MAX], file=sys.stderr, flush=True)


def end_all(children: Iterable[_Child]) -> None:
    """End each and forget what it said; an interruption on the way does not spare the others."""
    interrupted: BaseException | None = None
    with uninterrupted():  # Else one that does not end kindly could go on.
        for child in children:
            try:
                child.output.close()
                child.errors.close()
                end(child.process)
            except BaseException as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted


def first_line(process: subprocess.Popen[bytes], timeout_seconds: float) -> str:
    """Return the first line that a process prints into its pipe, or what there is of it by then."""
    assert process.stdout is not None
    descriptor, said = process.stdout.fileno(), b""
    deadline = time.monotonic() + timeout_seconds
    while b"\n" not in said and len(said) < _LINE_BYTES_MAX:
        left = max(deadline - time.monotonic(), 0)
        if not select.select([descriptor], [], [], left)[0]:
            break
        block = os.read(descriptor, _LINE_BYTES_MAX)
        if not block:
            break
        said += block
    return said.split(b"\n")[0].decode(errors="replace").strip() or "it said nothing"


def run_together(commands: Sequence[Sequence[str]], around: Surroundings) -> list[Outcome]:
    """Run programs side by side until all have ended, or their time is over."""
    children: list[_Child] = []
    try:
        _start_all(commands, around, children)
        deadline = time.monotonic() + around.timeout_seconds
        running = list(children)
        while running:
            for child in [child for child in running if child.process.poll() is not None]:
                child.end = time.monotonic()
                running.remove(child)
            if running and time.monotonic() > deadline:
                for child in running:
                    child.timed_out = True
                    end(child.process)
                    child.end = time.monotonic()
                break
            time.sleep(_LOOK_SECONDS if running else 0)
    except BaseException:
        end_all(children)
        raise
    return [child.outcome() for child in children]


def run(command: Sequence[str], around: Surroundings) -> Outcome:
    """Run one program."""
    return run_together([command], around)[0]


@contextlib.contextmanager
def beside(commands: Sequence[Sequence[str]], around: Surroundings) -> Iterator[None]:
    """Programs that run as long as the block does."""
    children: list[_Child] = []
    try:
        _start_all(commands, around, children)
        yield
    finally:
        end_all(children)
