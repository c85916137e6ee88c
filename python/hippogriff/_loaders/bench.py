"""Runs the loaders side by side: each in fresh processes, in turns, on files made for it."""

from __future__ import annotations

import math
import multiprocessing
import secrets
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hippogriff._loaders.contenders import all_contenders, version_of
from hippogriff._loaders.limits import link_limit, read_limits, write_limits
from hippogriff._loaders.model import make_model, sums_path
from hippogriff._loaders.worker import COLD_FRACTION, Outcome, Task, run
from hippogriff._measurement import cached_fraction, make_cold, warm
from hippogriff._runtime import info
from hippogriff.errors import InvalidArgument, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hippogriff._loaders.contenders import Contender
    from hippogriff._loaders.saving import Save

# A loader that takes longer is stopped: something is wrong with it here.
_PROCESS_SECONDS = 120.0
_KILLED_SECONDS = 10.0
_COLD_LOADS = 2  # The first of a process starts all that the second finds.
_SAVES = 5


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes
    ----------
    folders : tuple of Path
        Where the models are made; each folder's file system is one case.
    device : str
        torch's name of it; "cpu" without a GPU.
    tensors : tuple of int
        How many a model has; each number is one case.
    size_bytes : int
        Of a model.
    repeat : int
        Loads in a process.
    rounds : int
        Processes of each loader with its defaults; of other settings there is one.
    cached, cold : bool
        Whether to load from the page cache, and from the drive.
    save : bool
        Whether to save, too.
    settings : bool
        Whether to try the other loaders with other settings.
    only : tuple of str
        Of all these the loaders that have one of these words in their name; () for all.
    seconds : float
        After so many a process stops repeating.
    budget_seconds : float
        After so many no more is begun; what is missing then says so.
    """

    folders: tuple[Path, ...]
    device: str
    tensors: tuple[int, ...] = (70,)
    size_bytes: int = 1 << 30
    repeat: int = 5
    rounds: int = 3
    cached: bool = True
    cold: bool = True
    save: bool = True
    settings: bool = False
    only: tuple[str, ...] = ()
    seconds: float = 5.0
    budget_seconds: float = math.inf


@dataclass
class Row:
    """One loader in one case: the processes' outcomes, or why there is none."""

    case: dict[str, Any]
    contender: str
    defaults: bool
    version: str
    outcomes: list[Outcome] = field(default_factory=list)
    why_not: str = ""

    def first(self) -> float | None:
        """Return the median of the processes' first loads, in GB/s."""
        return self._rate([outcome.seconds[:1] for outcome in self._good()])

    def later(self) -> float | None:
        """Return the median of all later loads, in GB/s; of the first where there is no other."""
        repeated = [outcome.seconds[1:] for outcome in self._good()]
        return self._rate(repeated if any(repeated) else [o.seconds for o in self._good()])

    def cpu_seconds_per_gb(self) -> float | None:
        """Return the median over later loads."""
        seconds = [s for o in self._good() for s in (o.cpu_seconds[1:] or o.cpu_seconds)]
        return statistics.median(seconds) / self._size_bytes() * 1e9 if seconds else None

    def _good(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.seconds and not outcome.failure]

    def _size_bytes(self) -> int:
        return max(outcome.size_bytes for outcome in self._good())

    def _rate(self, seconds: list[list[float]]) -> float | None:
        together = [second for each in seconds for second in each]
        return self._size_bytes() / statistics.median(together) / 1e9 if together else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.case,
            "contender": self.contender,
            "defaults": self.defaults,
            "version": self.version,
            "first_gb_per_second": self.first(),
            "gb_per_second": self.later(),
            "cpu_seconds_per_gb": self.cpu_seconds_per_gb(),
            "processes": [outcome.as_dict() for outcome in self.outcomes],
            "why_not": self.why_not,
        }


class _Limit:
    """What the machine does at most in one case: again and again, for drives drift, and links too.

    The way whose median is best is the limit. The best of all measurements would grow with their
    number.
    """

    def __init__(self, case: dict[str, Any], device: str) -> None:
        self._case = case
        self._device = device
        self._rates: dict[str, list[float]] = {}
        self._turn = 0

    def measure(self, path: Path) -> None:
        """Measure once more; path is the model, or where one may be written."""
        for way, rate in self._measured(path).items():
            self._rates.setdefault(way, []).append(rate)
        self._turn += 1

    def _measured(self, path: Path) -> dict[str, float]:
        if self._case["state"] == "save":
            # Each writes the whole model: after the first turn the best two go on.
            best = sorted(self._rates, key=self._median, reverse=True)[:2] or None
            return write_limits(path, self._case["size_bytes"], best)
        if self._case["state"] == "cold":
            return read_limits(path, self._turn)
        if self._device == "cpu":
            return {}
        return {"copies of pinned memory": link_limit(self._device)}

    def _median(self, way: str) -> float:
        return statistics.median(self._rates[way])

    def rows(self) -> list[Row]:
        """Return one, or none where nothing could be measured."""
        if not self._rates:
            return []
        way = max(self._rates, key=self._median)
        row = Row(self._case, f"limit: {way}", defaults=True, version="")
        size_bytes = self._case["size_bytes"]
        for rate in self._rates[way]:
            seconds = [size_bytes / rate / 1e9]
            row.outcomes.append(Outcome(row.contender, seconds, size_bytes=size_bytes))
        return [row]


class LoadersBench:
    """Measures a plan. `tell` is called with the steps taken so far, of `steps`, and a note."""

    def __init__(self, plan: Plan, tell: Callable[[int, str], None]) -> None:
        if not (plan.cached or plan.cold or plan.save):
            raise InvalidArgument("neither cached nor cold loads nor saves: nothing to measure")
        self._plan = plan
        self._tell = tell
        self._done = 0
        self._begin = time.monotonic()
        self._contenders = _choose(all_contenders(settings=plan.settings), plan.only)
        # A server that has torch imported: a worker is forked from it and starts the GPU itself.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["torch"])

    @property
    def steps(self) -> int:
        """How often `tell` will be called, at most."""
        plan = self._plan
        contenders = [each for each in self._contenders if not each.why_not(plan.device)]
        processes = sum(plan.rounds if each.defaults else 1 for each in contenders)
        cases = len(plan.folders) * len(plan.tensors)
        return cases * (processes * (plan.cached + plan.cold) + 2 * _SAVES * plan.save)

    def run(self) -> list[Row]:
        """Measure everything; what was made is removed."""
        rows: list[Row] = []
        plan = self._plan
        for folder in plan.folders:
            for tensors in plan.tensors:
                path = folder / f".hippogriff-bench-{secrets.token_hex(8)}.safetensors"
                case = {
                    "folder": str(folder),
                    "filesystem": info(folder)["path"]["filesystem"],
                    "tensors": tensors,
                    "size_bytes": plan.size_bytes,
                }
                try:
                    make_model(path, tensors, plan.size_bytes)
                    rows += self._run_file(path, case)
                    if plan.save:
                        rows += self._run_save(path, case)
                finally:
                    path.unlink(missing_ok=True)
                    sums_path(path).unlink(missing_ok=True)
        return rows

    def _run_file(self, path: Path, case: dict[str, Any]) -> list[Row]:
        rows: list[Row] = []
        if self._plan.cached:
            rows += self._run_state(path, {**case, "state": "cached"})
        if self._plan.cold:
            make_cold(path)
            if cached_fraction(path) <= COLD_FRACTION:  # A file in memory has no cold state.
                rows += self._run_state(path, {**case, "state": "cold"})
        return rows

    def _run_state(self, path: Path, case: dict[str, Any]) -> list[Row]:
        plan = self._plan
        contenders = self._contenders
        rows = {each.name: _row(case, each, plan.device) for each in contenders}
        limit = _Limit(case, plan.device)
        if case["state"] == "cached":
            # The second read of a page moves it to the kernel's active list, under a lock: that is
            # not for the first contender to pay.
            warm(path)
            warm(path)
        for number in range(plan.rounds):
            limit.measure(path)
            # In turns, in another order each time: a drift of the machine hits all alike.
            order = contenders if number % 2 == 0 else contenders[::-1]
            for contender in order:
                row = rows[contender.name]
                if self._is_over():
                    row.why_not = row.why_not or ("" if row.outcomes else "no time was left")
                    continue
                if row.why_not or (number > 0 and not contender.defaults):
                    continue
                self._say(f"{case['state']}, {case['tensors']} tensors: {contender.name}")
                repeat = min(plan.repeat, _COLD_LOADS) if case["state"] == "cold" else plan.repeat
                row.outcomes.append(self._run_process(contender, path, case["state"], repeat))
                row.why_not = row.outcomes[-1].failure
        limit.measure(path)
        return limit.rows() + list(rows.values())

    def _run_process(self, contender: Contender, path: Path, state: str, repeat: int) -> Outcome:
        plan = self._plan
        task = Task(contender.name, str(path), plan.device, state, repeat, plan.seconds)
        receiver, sender = self._processes.Pipe(duplex=False)
        process = self._processes.Process(target=run, args=(task, sender), daemon=True)
        process.start()
        sender.close()
        try:
            if not receiver.poll(_PROCESS_SECONDS):
                failure = f"not finished after {_PROCESS_SECONDS:.0f} s"
                return Outcome(contender.name, failure=failure)
            outcome: Outcome = receiver.recv()
            return outcome
        except EOFError:
            process.join(10)
            return Outcome(contender.name, failure=f"it died with code {process.exitcode}")
        finally:
            process.kill()
            process.join(_KILLED_SECONDS)  # One inside the driver may take its time.
            receiver.close()
            if process.exitcode is None:  # Whoever came next would be measured beside it.
                raise TimedOut(
                    f"bench: {contender.name} lives on, killed {_KILLED_SECONDS:.0f} s ago"
                )

    def _run_save(self, path: Path, case: dict[str, Any]) -> list[Row]:
        """Save what the model holds, by this process: the loaders' own savers are few."""
        from hippogriff._loaders.saving import savers

        case = {**case, "state": "save"}
        target = path.with_name(path.name + ".saved")
        # What is written to memory has no drive's limit.
        has_drive = info(target.parent)["path"]["drive"] is not None
        limit = _Limit(case, self._plan.device)
        rows = [
            (Row(case, name, defaults=True, version=version_of(package)), save)
            for name, package, save in savers(path, self._plan.device)
            if _is_wanted(name, self._plan.only)
        ]
        for number in range(_SAVES):
            # A drive that was written to for seconds is slower: what it does at most is measured
            # each time.
            if has_drive and not self._is_over():
                limit.measure(target)
            for row, save in rows if number % 2 == 0 else rows[::-1]:
                if self._is_over():
                    row.why_not = "" if row.outcomes else "no time was left"
                    continue
                self._say(f"save, {case['tensors']} tensors: {row.contender}")
                row.outcomes = row.outcomes or [Outcome(row.contender)]
                _save(save, target, row.outcomes[0])
        if has_drive and not self._is_over():
            limit.measure(target)
        return limit.rows() + [row for row, _ in rows]

    def _is_over(self) -> bool:
        return time.monotonic() - self._begin > self._plan.budget_seconds

    def _say(self, note: str) -> None:
        self._done += 1
        self._tell(self._done, note)


def _is_wanted(name: str, only: tuple[str, ...]) -> bool:
    return not only or any(word.lower() in name.lower() for word in only)


def _choose(contenders: list[Contender], only: tuple[str, ...]) -> list[Contender]:
    for word in only:
        if not any(_is_wanted(each.name, (word,)) for each in contenders):
            names = "; ".join(each.name for each in contenders)
            why = f"no loader has {word!r} in its name: there are {names}"
            raise InvalidArgument(why, object="--only")
    return [each for each in contenders if _is_wanted(each.name, only)]


def _row(case: dict[str, Any], contender: Contender, device: str) -> Row:
    return Row(
        case,
        contender.name,
        contender.defaults,
        version_of(contender.package),
        why_not=contender.why_not(device),
    )


def _save(save: Save, target: Path, outcome: Outcome) -> None:
    try:
        cpu, begin = time.process_time(), time.perf_counter()
        outcome.size_bytes = save(target)
        outcome.seconds.append(time.perf_counter() - begin)
        outcome.cpu_seconds.append(time.process_time() - cpu)
    finally:
        target.unlink(missing_ok=True)
