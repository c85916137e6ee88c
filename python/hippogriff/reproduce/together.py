"""Eight programs at once on a device with memory for a third of them (Gullfoss, figure 15)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hippogriff.reproduce import _mps, children, drive
from hippogriff.reproduce.bench import (
    COLD,
    AbsentError,
    Bench,
    MeasurementError,
    crc32_of,
    expect_whole,
    result_of,
)
from hippogriff.reproduce.programs import BY_NAME, CONVENTIONAL, OURS, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hippogriff.reproduce.journal import Record
    from hippogriff.reproduce.programs import Program

AT_ONCE = 8
MIXED = "mixed"
IN_TURNS = "in_turns"  # what the others are compared with, as with UNMODIFIED
UNMODIFIED = "unmodified"
DRIVE = "drive"  # the drive alone, in place of a configuration
#: The share of what they want that there is.
SHARE = 3
#: What contexts, pinned memory and kernels take of a GPU beside the programs' own memory.
CONTEXT_BYTES = 640 << 20
# What an allocation may take beyond its size, for all of a program's.
_MARGIN_BYTES = {"host": 64 << 10, "gpu": 64 << 20}
_BALLAST_SECONDS = 120.0


@dataclass(frozen=True)
class Configuration:
    """A way of running them; `settings` are hippogriff's."""

    name: str
    title: str
    way: str = OURS
    at_once: bool = True
    mps: bool = False
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Need:
    """What a program alone was seen to take of the device, and its result: checksum and size."""

    device_bytes: int
    crc32: int
    output_bytes: int = 0


CONFIGURATIONS = (
    Configuration(IN_TURNS, "unmodified, one after another", CONVENTIONAL, at_once=False),
    Configuration(UNMODIFIED, "unmodified, at once", CONVENTIONAL),
    Configuration("mps", "unmodified, at once, under MPS", CONVENTIONAL, mps=True),
    Configuration(
        "direct_most",
        "always the direct-most route",
        settings=(("HIPPOGRIFF_ROUTE", "direct,pipelined"), ("HIPPOGRIFF_PARKING", "off")),
    ),
    Configuration(
        "no_parking", "router without parking", settings=(("HIPPOGRIFF_PARKING", "off"),)
    ),
    Configuration(
        "one_channel", "parking, no parallel channels", settings=(("HIPPOGRIFF_CHANNELS", "1"),)
    ),
    Configuration("everything", "everything"),
)


def programs_of(workload: str) -> list[Program]:
    """Return the eight: of one kind, or all but the one with the smallest input."""
    if workload != MIXED:
        return [BY_NAME[workload]] * AT_ONCE
    by_size = sorted(PROGRAMS, key=lambda program: program.sizes[-1][1])
    return by_size[-AT_ONCE:]


@contextlib.contextmanager
def _beside(bench: Bench, words: Sequence[str], seconds: float) -> Iterator[str]:
    """Run a module of this folder; give the line it prints once it is ready.

    It is told this process's number, and ends with it, also when that is killed.
    """
    module, *arguments = words
    process = subprocess.Popen(
        [sys.executable, "-m", f"hippogriff.reproduce.{module}", *arguments, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=bench.environment(),
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield children.first_line(process, seconds)
    finally:
        children.end(process)
        process.stdout.close()


@contextlib.contextmanager
def _ballast(bench: Bench, leave_bytes: int) -> Iterator[None]:
    """Hold a GPU's memory but for so many bytes."""
    words = ["_ballast", bench.child_device, str(leave_bytes)]
    with _beside(bench, words, _BALLAST_SECONDS) as said:
        if " held, " not in said:
            raise MeasurementError(f"limiting the device's memory: {said}")
        yield


@contextlib.contextmanager
def mps(bench: Bench, control: str) -> Iterator[dict[str, str]]:
    """Run MPS's daemon in a folder of its own; give the variables that its clients need."""
    with _beside(bench, ["_mps", control], 2 * _mps.START_SECONDS) as said:
        state, _, folder = said.partition(" ")
        if state != "ready":
            raise AbsentError(f"MPS does not start: {said}")
        yield dict.fromkeys(("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"), folder)


class Together:
    """Eight programs, cold, on a device that has memory for a third of what they want."""

    def __init__(self, bench: Bench, scale: str, needs: Mapping[str, Need]) -> None:
        self._bench = bench
        self._scale = scale
        self._needs = needs

    def memory_bytes(self, programs: Sequence[Program]) -> int:
        """Return the device memory that all of them have: what the largest wants, at least."""
        wanted = [self.need_bytes(program) for program in programs]
        return max(sum(wanted) // SHARE, *wanted)

    def need_bytes(self, program: Program) -> int:
        """Return the device memory that a program is given."""
        kind = "host" if self._bench.device == "host" else "gpu"
        return self._needs[program.name].device_bytes + _MARGIN_BYTES[kind]

    def reserved_bytes(self, program: Program) -> int:
        """Return what hippogriff's reserves: on a GPU its context is part of that.

        Else the node promises the contexts' memory, too, and the driver refuses the last of them.
        """
        context_bytes = 0 if self._bench.device == "host" else CONTEXT_BYTES
        return self.need_bytes(program) + context_bytes

    def _command(
        self, configuration: Configuration, program: Program, source: Path, target: Path
    ) -> list[str]:
        command = self._bench.command(program, configuration.way, source, target)
        if configuration.way != OURS:
            return command
        need = str(self.reserved_bytes(program))
        timeout = str(max(int(self._bench.timeout_seconds) - 5, 1))
        reserve = ["run", "--memory", need, "--device", self._bench.child_device]
        reserve += ["--timeout", timeout, "--wait", "first-use", "--"]
        return [sys.executable, "-m", "hippogriff", *reserve, *command, "--send-first"]

    @contextlib.contextmanager
    def _limited(self, configuration: Configuration, memory: int) -> Iterator[dict[str, str]]:
        """Limit the device to so much memory; give the variables that programs need there."""
        bench = self._bench
        timeout_ms = str(int(bench.timeout_seconds * 1000))
        variables = {"HIPPOGRIFF_MEMORY_TIMEOUT_MS": timeout_ms, **dict(configuration.settings)}
        with contextlib.ExitStack() as stack:
            if bench.device == "host":
                variables["HIPPOGRIFF_HOST_MEMORY"] = str(memory)
            else:
                stack.enter_context(_ballast(bench, memory + (AT_ONCE + 1) * CONTEXT_BYTES))
            if configuration.mps:
                control = shutil.which("nvidia-cuda-mps-control")
                if control is None or bench.device == "host":
                    raise AbsentError("no GPU, or no nvidia-cuda-mps-control")
                variables |= stack.enter_context(mps(bench, control))
            yield variables

    def _run_of(self, program: Program, done: children.Outcome, target: Path) -> Record:
        """Return what is kept of one of the eight; a result that is not right is a failure."""
        run: Record = {"program": program.name, "seconds": done.seconds, "why": done.failure}
        if done.failure:
            return run
        try:
            run["result"] = result_of(done.output)
            expect_whole(target, run["result"])
            if crc32_of(target) != self._needs[program.name].crc32:
                raise MeasurementError("its result is not that of the conventional program alone")
        except MeasurementError as error:
            run["why"] = str(error)
        return run

    def measure(self, workload: str, configuration: Configuration) -> Record:
        """Run the eight once; their time is until the last has ended, or in turns their sum.

        Each reads a file of its own, cold when it begins.
        Programs that failed are counted. That is the measurement where they are unmodified.
        """
        bench, programs = self._bench, programs_of(workload)
        sources = bench.own_inputs(programs, self._scale)
        targets = [bench.target(f"together{number}") for number in range(len(programs))]
        memory = self.memory_bytes(programs)
        commands = [
            self._command(configuration, *each)
            for each in zip(programs, sources, targets, strict=True)
        ]
        with self._limited(configuration, memory) as variables:
            around = bench.around(variables)
            if configuration.at_once:
                shares = [bench.prepare(source, COLD) for source in sources]
                begin = time.monotonic()
                outcomes = children.run_together(commands, around)
                seconds = time.monotonic() - begin
            else:
                shares, outcomes = [], []
                for source, command in zip(sources, commands, strict=True):
                    shares.append(bench.prepare(source, COLD))
                    outcomes.append(children.run(command, around))
                seconds = sum(done.seconds for done in outcomes)
        with ThreadPoolExecutor(AT_ONCE) as pool:  # Checksums of large files let others run.
            runs = list(pool.map(self._run_of, programs, outcomes, targets))
        for run, share in zip(runs, shares, strict=True):
            run["cached_before"] = share
        for target in targets:
            target.unlink(missing_ok=True)
        failures = [run["why"] for run in runs if run["why"]]
        record: Record = {
            "command": commands[0],
            "seconds": seconds,
            "device_memory_bytes": memory,
            "failures": len(failures),
            "runs": runs,
        }
        if failures and configuration.way == OURS:
            record["failure"] = f"{len(failures)} of {len(runs)} programs failed: {failures[0]}"
        return record

    def measure_drive(self, workload: str) -> Record:
        """Read what the eight read and write what they write, and nothing else.

        That is their limit: no GPU, nothing that starts, and the best of several ways to do it.
        """
        bench, programs = self._bench, programs_of(workload)
        sources = bench.own_inputs(programs, self._scale)
        targets = [bench.target(f"drive{number}") for number in range(len(programs))]
        jobs = [
            drive.Job(source, target, self._needs[program.name].output_bytes)
            for program, source, target in zip(programs, sources, targets, strict=True)
        ]
        tries: list[Record] = []
        for shape in drive.SHAPES:
            for source in sources:
                bench.prepare(source, COLD)
            try:
                moved = drive.move(jobs, shape, bench.timeout_seconds)
            finally:
                for target in targets:
                    target.unlink(missing_ok=True)
            tries.append({**asdict(shape), **asdict(moved)})
        return {
            "seconds": min(each["seconds"] for each in tries),
            "tries": tries,
            "read_bytes": sum(source.stat().st_size for source in sources),
            "written_bytes": sum(job.target_bytes for job in jobs),
            "failures": 0,
            "runs": [],
        }
