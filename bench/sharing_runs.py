"""Instances of the three programs, and the ways in which many of them are run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# What each program wants of the device's memory, in the thesis, and the one that has the higher
# priority there, because it takes longest.
MEMORY_SHARE = {"risk": 0.16, "align": 0.15, "proteins": 0.36}
URGENT = "align"
MIXED = "mixed"
POLICIES = ("fifo", "mmu", "priority-fifo", "priority-mmu", "aging-mmu")
RUN, LATE, SHARE = "run-", "late-", "share-"
OURS = (RUN, LATE, SHARE)
MODES = (
    "sequential",
    "packed",
    "all",
    "mps",
    *(prefix + policy for prefix in OURS for policy in POLICIES),
)
_NO_DEVICE_MEMORY = 3
_GRACE_SECONDS = 5
_POLICY_SECONDS = 60
_PAGE = 2 << 20  # CUDA gives memory in such pieces.


class UnavailableError(Exception):
    """A mode does not exist here; the message says why."""


@dataclass(frozen=True)
class Setup:
    """What does not change between cases. Sizes are bytes, times seconds."""

    programs: Path  # the folder of the three
    hippogriff: tuple[str, ...]
    device: str
    device_bytes: int
    timeout_seconds: int
    options: dict[str, list[str]] = field(default_factory=dict)

    def memory_bytes(self, program: str) -> int:
        """Return what an instance takes of the device."""
        return max(int(self.device_bytes * MEMORY_SHARE[program]) // _PAGE, 1) * _PAGE

    def command(self, program: str) -> list[str]:
        """Return the command of an instance, unmodified."""
        words = [str(self.programs / program), "--json", "--device", self.program_device]
        words += ["--memory", str(self.memory_bytes(program))]
        return words + self.options.get(program, [])

    @property
    def program_device(self) -> str:
        """What the device is called in a program: it sees no other GPU."""
        return "host" if self.device == "host" else "cuda:0"

    def environment(self) -> dict[str, str]:
        """Return the environment of instances; device host has the memory that was asked for."""
        environment = dict(os.environ)
        if self.device == "host":
            environment["HIPPOGRIFF_DEVICE"] = "host"
            environment["HIPPOGRIFF_HOST_MEMORY"] = str(self.device_bytes)
        else:
            environment["CUDA_VISIBLE_DEVICES"] = self.device.removeprefix("cuda:")
        return environment


@dataclass(frozen=True)
class Run:
    """How one instance went. Of a failed one, `run_seconds` is all that it lasted."""

    program: str
    wait_seconds: float  # from the case's beginning on, all that was not run
    run_seconds: float
    exit_status: int
    why: str = ""
    checksum: str = ""
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether there was no answer."""
        return self.exit_status != 0

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def instances_of(workload: str, count: int) -> list[str]:
    """Return the programs of a workload in the order in which they come."""
    names = list(MEMORY_SHARE) if workload == MIXED else [workload]
    return [names[number % len(names)] for number in range(count)]


def waves(setup: Setup, programs: Sequence[str]) -> list[list[str]]:
    """Return groups that fit together, as somebody would pack them by hand who knows the sizes."""
    groups: list[list[str]] = []
    for program in sorted(programs, key=setup.memory_bytes, reverse=True):
        need = setup.memory_bytes(program)
        for group in groups:
            if sum(map(setup.memory_bytes, group)) + need <= setup.device_bytes:
                group.append(program)
                break
        else:
            groups.append([program])
    return groups


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, first kindly, and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)


class Case:
    """Instances that are run together; all times count from its making."""

    def __init__(self, setup: Setup, deadline: float) -> None:
        self._setup = setup
        self._begin = time.monotonic()
        self._deadline = deadline
        self.cut = False  # the time was over before all had ended

    def together(self, programs: Sequence[str], mode: str) -> list[Run]:
        """Run instances side by side until the last has ended."""
        with ThreadPoolExecutor(max_workers=len(programs)) as executor:
            return list(executor.map(lambda program: self.one(program, mode), programs))

    def one(self, program: str, mode: str) -> Run:
        """Run one instance to its end, or to the deadline's."""
        command = command_in_mode(self._setup, program, mode)
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=self._setup.environment(),
                start_new_session=True,
            )
            try:
                status = process.wait(max(self._deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                self.cut = True
                _end(process)
                status = process.returncode or -1
            end = time.monotonic()
            output.seek(0)
            errors.seek(0)
            run = read_run(program, status, output.read(), errors.read())
        if run.failed:
            run = replace(run, run_seconds=end - begin)
        return replace(run, wait_seconds=max(end - self._begin - run.run_seconds, 0))

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self._begin


def read_run(program: str, status: int, output: bytes, errors: bytes) -> Run:
    """Return what an instance said of itself."""
    if status != 0:
        words = errors.decode(errors="replace").strip().splitlines()
        why = words[-1] if words else f"exit status {status}"
        if status == _NO_DEVICE_MEMORY:
            why = f"no device memory: {why}"
        return Run(program, 0, 0, status, why)
    try:
        result = json.loads(output.splitlines()[-1])
        phases = {name: float(seconds) for name, seconds in result["seconds"].items()}
        run_seconds = sum(seconds for name, seconds in phases.items() if name != "wait")
        return Run(program, 0, run_seconds, 0, "", str(result["checksum"]), phases)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Run(program, 0, 0, -1, f"its output is no result: {error!r}")


def command_in_mode(setup: Setup, program: str, mode: str) -> list[str]:
    """Return the command of an instance: alone, by `hippogriff run`, or with schedGPU's calls."""
    command = setup.command(program)
    seconds = str(setup.timeout_seconds)
    if mode.startswith(SHARE):  # schedGPU serves smaller priorities sooner.
        priority = str(int(program != URGENT))
        return [*command, "--share", "--timeout", seconds, "--priority", priority]
    if not mode.startswith((RUN, LATE)):
        return command
    reserve = ["run", "--memory", str(setup.memory_bytes(program)), "--timeout", seconds]
    reserve += ["--device", setup.program_device, "--priority", str(int(program == URGENT))]
    if mode.startswith(LATE):
        reserve += ["--wait", "first-use"]
    return [*setup.hippogriff, *reserve, "--", *command]


def run_mode(setup: Setup, mode: str, programs: Sequence[str], deadline: float) -> dict[str, Any]:
    """Run a workload in a mode; return its times and its instances for JSON.

    Raises
    ------
    UnavailableError
        When the mode does not exist here.
    """
    with prepared(setup, mode):
        case = Case(setup, deadline)
        if mode == "sequential":
            groups = [[program] for program in programs]
        elif mode in {"packed", "mps"}:
            groups = waves(setup, programs)
        else:
            groups = [list(programs)]
        runs = []
        for group in groups:
            if time.monotonic() >= deadline:
                case.cut = True
                break
            runs += case.together(group, mode)
        seconds = case.seconds
    return {
        "seconds": seconds,
        "cut": case.cut,
        "failures": sum(run.failed for run in runs),
        "runs": [run.as_dict() for run in runs],
    }


@contextlib.contextmanager
def prepared(setup: Setup, mode: str) -> Iterator[None]:
    """Set the node's policy, or run MPS's daemon, while a case lasts."""
    if mode == "mps":
        with _mps(setup):
            yield
        return
    if mode.startswith(OURS):
        command = [*setup.hippogriff, "policy", mode.partition("-")[2]]
        _expect(command, setup.environment())
    if mode.startswith(SHARE):
        risk = [str(setup.programs / "risk"), "--device", setup.program_device]
        _expect([*risk, "--share", "--trials", "1"], setup.environment())
    yield


def _expect(command: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_POLICY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).splitlines()
        words = [line.strip("│ ") for line in lines if re.search(r"\w", line)]
        raise UnavailableError(f"{shlex.join(command)}: {words[-1] if words else done.returncode}")


@contextlib.contextmanager
def _mps(setup: Setup) -> Iterator[None]:
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or setup.device == "host":
        raise UnavailableError("no GPU, or no nvidia-cuda-mps-control")
    names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    with tempfile.TemporaryDirectory(prefix="hippogriff-mps-") as folder:
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(dict.fromkeys(names, folder))
        try:
            _expect([control, "-d"], dict(os.environ))
            yield
        finally:
            # It ends when its clients have: all of them have by now.
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([control], input=b"quit\n", timeout=_POLICY_SECONDS, check=False)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
