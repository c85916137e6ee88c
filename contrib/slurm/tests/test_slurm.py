"""Twelve jobs on a device that fits two, by a real slurmctld and slurmd with the hooks beside.

Needs root and Debian's slurmctld, slurmd, slurm-client and munge. Keys, sockets and state are in a
folder of their own, the ports are free ones: a Slurm that the machine has is not disturbed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent.parent
PACKAGE = HERE.parents[1] / "python"
PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
# Far more than it takes: the machine may be busy with other things.
SECONDS_MAX = 120
JOBS = 12
DEVICE_MEMORY = "96MiB"

# What a job does with device memory: take it, write to all of it, say so, and keep it until a file
# is there. One that got none says that. Without `site` Python starts quickly.
PROGRAM = """
import ctypes, os, sys, time
library, folder, name, size, until = sys.argv[1:]
hippogriff = ctypes.CDLL(library)
pointer = ctypes.c_void_p()
length = ctypes.c_size_t(int(size))
status = hippogriff.hippogriff_init()
status = status or hippogriff.hippogriff_malloc(b"host", length, ctypes.byref(pointer))
if status == 0:
    status = hippogriff.hippogriff_copy_to_device(pointer, b"x" * length.value, length)
open(f"{folder}/{name}.{'failed' if status else 'has'}", "w").close()
deadline = time.monotonic() + 120
while status == 0 and not os.path.exists(f"{folder}/{until}"):
    if time.monotonic() > deadline:
        sys.exit("nobody made the file " + until)
    time.sleep(0.02)
sys.exit(1 if status else 0)
"""

CONFIGURATION = """
ClusterName=hippogriff
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=2,default_queue_depth=100
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
KillWait=5
MpiDefault=none
"""


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = SECONDS_MAX) -> None:
    """Poll; fail by what was waited for."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def has_ended(pid: int) -> bool:
    """Whether a process is no more, or only waits to be asked how it ended."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def write_program(path: Path, text: str) -> None:
    """Write a file that can be run."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


class Cluster:
    """One node and its controller."""

    def __init__(self, folder: Path, library: str) -> None:
        self.folder = folder
        self.shared_object = library
        self.node = folder / "nodes" / str(os.getuid()) / "node"
        self.count = 0
        self.environment = {
            **{key: text for key, text in os.environ.items() if not key.startswith("HIPPOGRIFF_")},
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "PYTHONPATH": str(PACKAGE),
            "HIPPOGRIFF_LIBRARY": library,
            "HIPPOGRIFF_DEVICE": "host",
            "HIPPOGRIFF_HOST_MEMORY": DEVICE_MEMORY,
        }

    def configure(self) -> None:
        """Write all files."""
        folder = self.folder
        folder.chmod(0o755)
        for name in ("bin", "munge", "state", "spool", "files"):
            (folder / name).mkdir(mode=0o755)
        (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        names = ("PYTHONPATH", "HIPPOGRIFF_LIBRARY", "HIPPOGRIFF_DEVICE", "HIPPOGRIFF_HOST_MEMORY")
        assignments = " ".join(f"{name}='{self.environment[name]}'" for name in names)
        # The prologs run it with next to no environment.
        command = f'#!/bin/sh\nexec env {assignments} "{sys.executable}" -m hippogriff "$@"\n'
        write_program(folder / "bin" / "hippogriff", command)
        self.choose_command(str(folder / "bin" / "hippogriff"))
        for hook in ("prolog", "task_prolog", "epilog"):
            lines = f'export HIPPOGRIFF_DEFAULTS="{folder}/defaults"\nexec "{HERE / hook}"\n'
            write_program(folder / hook, f"#!/bin/sh\n{lines}")
        host = socket.gethostname().split(".")[0]
        controller, daemon = free_ports(2)
        text = CONFIGURATION.format(
            host=host, folder=folder, controller_port=controller, daemon_port=daemon
        )
        for name, begin in (("slurm.conf", text), ("gres.conf", "")):
            # What is shipped, for this machine; all twelve jobs and the first are to run at a time.
            shipped = (HERE / name).read_text(encoding="utf-8").replace("gpu[01-04]", host)
            shipped = shipped.replace("/etc/slurm/hippogriff", str(folder))
            shipped = shipped.replace(" CPUs=12 ", " NodeAddr=127.0.0.1 CPUs=16 ")
            (folder / name).write_text(begin + shipped, encoding="utf-8")

    def choose_command(self, command: str) -> None:
        """Say by which command the prologs call hippogriff."""
        lines = (
            f"HIPPOGRIFF_COMMAND={command}",
            f"HIPPOGRIFF_FOLDER={self.folder}/nodes",
            f"HIPPOGRIFF_LOG={self.folder}/hooks.log",
            "HIPPOGRIFF_SECONDS=60",
        )
        (self.folder / "defaults").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def call(self, *command: str) -> str:
        """Run a command and return what it prints."""
        result = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert result.returncode == 0, f"{command}: {result.stderr}"
        return result.stdout

    def start(self) -> None:
        """Start munged, slurmctld and slurmd, and wait until the node takes jobs."""
        munge = self.folder / "munge"
        self.call("mungekey", "--create", f"--keyfile={munge}/key")
        options = (f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--key-file={munge}/key")
        files = (f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self.call("munged", *options, *files)
        self.call("slurmctld", "-i")
        self.call("slurmd")
        wait_until(lambda: "IDLE" in self.call("scontrol", "-o", "show", "node"), "an idle node")

    def stop(self) -> None:
        """End every daemon by its own pid file."""
        for name in ("slurmctld.pid", "slurmd.pid", "munge/pid"):
            with contextlib.suppress(OSError, ValueError):
                pid = int((self.folder / name).read_text(encoding="utf-8"))
                os.kill(pid, signal.SIGTERM)
                wait_until(partial(has_ended, pid), f"{name}: its end")

    def submit(self, name: str, size: str, until: str, reserve: str | None = None) -> str:
        """Submit a job that takes memory, by `hippogriff run` if it reserves; return its id."""
        size_bytes = int(size.removesuffix("MiB")) << 20
        program = (
            f"'{sys.executable}' -SE {self.folder}/program.py '{self.shared_object}' "
            f"{self.folder}/files {name} {size_bytes} {until}"
        )
        if reserve is not None:
            program = f"hippogriff run --memory {reserve} --timeout 120 -- {program}"
        script = f"{program}\necho $? >{self.folder}/files/{name}.status\n"
        log = f"--output={self.folder}/files/{name}.log"
        return self.call("sbatch", "--parsable", "--gres=gpuslot:1", log, "--wrap", script).strip()

    def has(self, name: str) -> bool:
        """Whether a job made a file."""
        return (self.folder / "files" / name).exists()

    def make(self, name: str) -> None:
        """Make a file that jobs wait for."""
        (self.folder / "files" / name).touch()

    def statuses(self, prefix: str) -> list[int]:
        """Return how those jobs' commands ended."""
        files = sorted((self.folder / "files").glob(f"{prefix}*.status"))
        return [int(file.read_text(encoding="utf-8")) for file in files]

    def wait_for_end(self) -> None:
        """Wait until no job is left, its epilog included."""
        wait_until(lambda: not self.call("squeue", "-h"), "the end of all jobs")

    def reservations(self) -> list[dict[str, object]]:
        """Return what ps shows."""
        told = self.call("env", f"HIPPOGRIFF_NODE={self.node}", "hippogriff", "ps", "--json")
        found: list[dict[str, object]] = json.loads(told)["reservations"]
        return found

    def story(self) -> str:
        """Return the ends of all logs."""
        logs = [*self.folder.glob("*.log"), *(self.folder / "files").glob("*.log")]
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    """A running cluster of one node."""
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    library = os.environ.get("HIPPOGRIFF_LIBRARY")
    assert library, "HIPPOGRIFF_LIBRARY must name the library that was built"
    # In memory: the segment is shared, and tests must not wait for a drive.
    with tempfile.TemporaryDirectory(prefix="hippogriff-slurm-", dir="/dev/shm") as name:
        cluster = Cluster(Path(name), str(Path(library).resolve()))
        try:
            cluster.configure()
            cluster.start()
            yield cluster
        except AssertionError:
            print(cluster.story())
            raise
        finally:
            cluster.stop()


@pytest.fixture
def cluster(node: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Return the cluster without jobs, before a test and after it."""
    files = node.folder / "files"
    yield node
    with contextlib.suppress(AssertionError):
        node.call("scancel", "--user=root")
        node.wait_for_end()
    failed = request.session.testsfailed
    if failed:
        print(node.story())
    for file in files.iterdir():
        file.unlink()


def test_twelve_jobs_that_want_more_than_the_device_has_all_succeed(cluster: Cluster) -> None:
    cluster.submit("first", "70MiB", "go", reserve="80MiB")
    wait_until(lambda: cluster.has("first.has"), "the first job's memory")
    for number in range(JOBS):
        cluster.submit(f"job{number}", "36MiB", "go", reserve="40MiB")
    # All run, and all wait: 12 times 40 MiB are promised to nobody while the first holds 80 of 96.
    wait_until(
        lambda: sum(bool(each["waits"]) for each in cluster.reservations()) == JOBS, "twelve waits"
    )
    assert not list((cluster.folder / "files").glob("job*.has"))
    cluster.make("go")
    cluster.wait_for_end()
    assert cluster.statuses("first") == [0]
    assert cluster.statuses("job") == [0] * JOBS
    assert cluster.reservations() == []


def test_without_hippogriff_run_some_of_them_fail(cluster: Cluster) -> None:
    for number in range(JOBS):
        cluster.submit(f"job{number}", "36MiB", "go")

    names = [f"job{number}" for number in range(JOBS)]
    wait_until(
        lambda: all(cluster.has(f"{name}.has") or cluster.has(f"{name}.failed") for name in names),
        "twelve attempts",
    )
    cluster.make("go")
    cluster.wait_for_end()
    # What could be had, two had; nobody else did.
    assert sorted(cluster.statuses("job")) == [0] * 2 + [1] * (JOBS - 2)
    assert cluster.reservations() == []


def test_a_cancelled_job_leaves_its_memory_to_the_next(cluster: Cluster) -> None:
    first = cluster.submit("first", "70MiB", "never", reserve="80MiB")
    wait_until(lambda: cluster.has("first.has"), "the first job's memory")
    cluster.submit("next", "36MiB", "go", reserve="40MiB")
    wait_until(lambda: any(each["waits"] for each in cluster.reservations()), "the next one's wait")
    cluster.call("scancel", first)
    wait_until(lambda: cluster.has("next.has"), "the next one's memory")
    cluster.make("go")
    cluster.wait_for_end()
    assert cluster.statuses("next") == [0]
    assert cluster.reservations() == []


def test_the_log_says_what_prolog_and_epilog_found(cluster: Cluster) -> None:
    job = cluster.submit("one", "8MiB", "go", reserve="10MiB")
    cluster.make("go")
    cluster.wait_for_end()
    log = (cluster.folder / "hooks.log").read_text(encoding="utf-8")
    assert f"job {job}: prolog: segment ready for user 0\n" in log
    assert re.search(rf"job {job}: epilog: host: 0\.00 GiB promised to 0, 0 wait\n", log)


def test_jobs_run_where_hippogriff_is_missing_and_the_log_says_so(cluster: Cluster) -> None:
    cluster.choose_command("hippogriff-that-is-not-here")
    try:
        cluster.submit("job", "8MiB", "go")
        cluster.make("go")
        cluster.wait_for_end()
    finally:
        cluster.choose_command(str(cluster.folder / "bin" / "hippogriff"))
    assert cluster.statuses("job") == [0]
    log = (cluster.folder / "hooks.log").read_text(encoding="utf-8")
    assert "prolog: hippogriff-that-is-not-here is not here" in log
