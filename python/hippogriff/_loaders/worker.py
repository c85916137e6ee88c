"""One contender in a fresh process: the first load, then repeated ones, timed and checked."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff._loaders.contenders import all_contenders, array_bytes
from hippogriff._loaders.model import wrong_tensors
from hippogriff._measurement import cached_fraction, make_cold, warm

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from hippogriff._loaders.contenders import Contender

# A file of which no more is in the page cache is cold.
COLD_FRACTION = 0.1
_SAMPLE_SECONDS = 0.002


@dataclass(frozen=True)
class Task:
    """What a worker does: which contender, which file, to which device.

    `state` is "cached" or "cold"; loads are repeated until there are `repeat` of them, or until
    `seconds` have gone by.
    """

    contender: str
    path: str
    device: str
    state: str
    repeat: int
    seconds: float


@dataclass
class Outcome:
    """What a worker found. Seconds and CPU seconds of each load, the first one's first.

    `device_bytes` and `host_bytes` are the most that was in use beside the tensors, seen in one
    more load; -1 where it cannot be seen.
    """

    contender: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    cached_before: list[float] = field(default_factory=list)
    size_bytes: int = 0
    device_bytes: int = -1
    host_bytes: int = -1
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run(task: Task, results: Connection) -> None:
    """Load, in a process of its own, and send the outcome."""
    contender = next(each for each in all_contenders() if each.name == task.contender)
    outcome = Outcome(task.contender)
    os.environ.update(contender.environment)
    # What loaders print, C libraries too, is not ours to show.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        _measure(contender, task, outcome)
    except BaseException as error:
        outcome.failure = f"{type(error).__name__}: {error}".strip()[:500]
    results.send(outcome)
    results.close()
    sys.stdout.flush()
    os._exit(0)  # Some loaders crash at exit.


def _measure(contender: Contender, task: Task, outcome: Outcome) -> None:
    device = _Device(task.device)
    path = Path(task.path)
    begin = time.monotonic()
    while len(outcome.seconds) < task.repeat:
        _prepare(path, task.state)
        cached = cached_fraction(path)
        if task.state == "cold" and cached > COLD_FRACTION:
            if outcome.seconds:
                break  # Who keeps the file mapped has loaded it cold once.
            message = "the file stays in the page cache"
            raise AssertionError(message)
        outcome.cached_before.append(cached)
        loaded = _timed(contender, task, outcome, device)
        if not outcome.size_bytes:
            outcome.size_bytes = sum(map(array_bytes, loaded.values()))
            wrong = wrong_tensors(path, loaded)
            if wrong:
                raise AssertionError(f"wrong tensors: {', '.join(wrong[:5])}")
        del loaded
        gc.collect()
        if time.monotonic() - begin > task.seconds:
            break
    if task.state == "cached" and outcome.seconds[-1] < task.seconds:
        _look_at_memory(contender, task, outcome, device)


def _prepare(path: Path, state: str) -> None:
    if state == "cold":
        make_cold(path)
    elif cached_fraction(path) < 1:
        warm(path)


def _timed(contender: Contender, task: Task, outcome: Outcome, device: _Device) -> dict[str, Any]:
    cpu = time.process_time()
    begin = time.perf_counter()
    loaded = contender.load(task.path, task.device, contender.options)
    device.synchronize()
    outcome.seconds.append(time.perf_counter() - begin)
    outcome.cpu_seconds.append(time.process_time() - cpu)
    return loaded


def _look_at_memory(contender: Contender, task: Task, outcome: Outcome, device: _Device) -> None:
    device.forget_cache()
    before = device.used_bytes()
    host_before = _private_bytes()
    most = [0, 0]
    stopping = threading.Event()

    def look() -> None:
        while not stopping.wait(_SAMPLE_SECONDS):
            most[0] = max(most[0], device.used_bytes())
            most[1] = max(most[1], _private_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        loaded = contender.load(task.path, task.device, contender.options)
        device.synchronize()
    finally:
        stopping.set()
        thread.join()
    most = [max(most[0], device.used_bytes()), max(most[1], _private_bytes())]
    del loaded
    on_host = 0 if device.on_gpu else outcome.size_bytes
    outcome.host_bytes = max(0, most[1] - host_before - on_host)
    if device.on_gpu:
        outcome.device_bytes = max(0, most[0] - before - outcome.size_bytes)


class _Device:
    """The GPU as torch sees it, started before anything is timed; or the CPU."""

    def __init__(self, name: str) -> None:
        self.on_gpu = name != "cpu"
        if self.on_gpu:
            import torch

            self._torch = torch
            self._name = torch.device(name)
            torch.zeros(1, device=self._name)
            torch.cuda.synchronize(self._name)

    def synchronize(self) -> None:
        if self.on_gpu:
            self._torch.cuda.synchronize(self._name)

    def forget_cache(self) -> None:
        gc.collect()
        if self.on_gpu:
            self._torch.cuda.empty_cache()

    def used_bytes(self) -> int:
        if not self.on_gpu:
            return 0
        free, total = self._torch.cuda.mem_get_info(self._name)
        return int(total - free)


def _private_bytes() -> int:
    """Return the resident memory that is no file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
