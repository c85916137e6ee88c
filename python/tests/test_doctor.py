"""The doctor: every finding from made-up facts, then the command on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hippogriff import _library, doctor
from hippogriff.doctor import Finding, Machine, Status, _settings, diagnose
from hippogriff.doctor import _machine as machine_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Made

GIB = 1 << 30


def test_a_good_machine_has_nothing_to_change(made: Made) -> None:
    made.runtime["calibration_file"] = "/cache/calibration.json"
    known = {"drives": {"nvme0n1": {"measured": True}}, "links": {"GPU-1": {"measured": True}}}
    made.write("/cache/calibration.json", json.dumps(known))
    made.gpus()
    made.write("/dev/nvidia-fs0", "")
    (made.folder / "dev/shm").mkdir()
    for check in doctor.CHECKS:
        for finding in made.ask(check.__name__):
            if finding.check != "shared memory":  # of the tests' own file system
                assert finding.status == Status.OK, finding


# The kernel.


@pytest.mark.parametrize(
    ("release", "status"),
    [("6.5.0\n", "ok"), ("6.4.9", "note"), ("5.11.1-x", "note"), ("5.10.0", "note"), ("", "note")],
)
def test_old_kernels_are_told(made: Made, release: str, status: str) -> None:
    made.write("/proc/sys/kernel/osrelease", release)
    assert made.one("kernel").status == status


def test_io_uring_forbidden_by_sysctl_names_the_sysctl(made: Made) -> None:
    made.runtime["io_queue"] = "threads (io_uring: Operation not permitted)"
    made.write("/proc/sys/kernel/io_uring_disabled", "2\n")
    made.expect("io_uring", Status.NOTE, "sysctl -w kernel.io_uring_disabled=0", "everybody")
    made.write("/proc/sys/kernel/io_uring_disabled", "1\n")
    made.expect("io_uring", Status.NOTE, "CAP_SYS_ADMIN")


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("Operation not permitted", "--security-opt seccomp"),
        ("the limit of locked memory (RLIMIT_MEMLOCK) is too small", "--ulimit memlock=-1"),
        ("Function not implemented", "CONFIG_IO_URING"),
        ("the kernel is older than 5.11", "CONFIG_IO_URING"),
    ],
)
def test_io_uring_that_does_not_work_says_what_to_change(
    made: Made, reason: str, word: str
) -> None:
    made.runtime["io_queue"] = f"threads (io_uring: {reason})"
    made.write("/proc/sys/kernel/io_uring_disabled", "0\n")
    made.expect("io_uring", Status.NOTE, word, reason)


def test_io_uring_that_is_switched_off_names_the_variable(made: Made) -> None:
    made.runtime["io_queue"] = "threads (io_uring: not asked for)"
    made.machine.environ["HIPPOGRIFF_IO"] = "threads"
    made.expect("io_uring", Status.NOTE, "unset HIPPOGRIFF_IO")


def test_cachestat_that_is_forbidden_is_told_from_one_that_is_not_there(made: Made) -> None:
    made.file["cachestat"] = "Operation not permitted"
    made.expect("page_cache_state", Status.NOTE, "seccomp")
    made.file["cachestat"] = "Function not implemented"
    made.expect("page_cache_state", Status.NOTE, "a kernel of 6.5")


def test_reads_that_must_wait_are_told_but_for_memory(made: Made) -> None:
    made.file["nowait"] = "Operation not supported"
    made.expect("reads_that_do_not_wait", Status.NOTE, "RWF_NOWAIT")
    made.runtime["path"]["filesystem"] = "tmpfs"
    assert made.ask("reads_that_do_not_wait") == []


def test_a_library_that_does_not_start_is_a_problem(made: Made) -> None:
    made.runtime = {"error": "read HIPPOGRIFF_THREADS: invalid argument"}
    made.expect("library", Status.PROBLEM, "HIPPOGRIFF_THREADS")
    for name in ("io_uring", "file_system", "calibration"):
        assert made.ask(name) == []


# Where the files are.


@pytest.mark.parametrize(
    ("kind", "status", "word"),
    [
        ("ext4", "ok", "ext4"),
        ("tmpfs", "ok", "tmpfs"),
        ("overlay", "note", "docker run -v"),
        ("nfs4", "note", "network"),
        ("fuse", "note", "128 KiB"),
        ("fuse.s3fs", "note", "128 KiB"),
    ],
)
def test_file_systems_that_slow_loads_are_told(
    made: Made, kind: str, status: str, word: str
) -> None:
    made.runtime["path"]["filesystem"] = kind
    made.runtime["path"]["drive"] = None
    made.expect("file_system", Status(status), word)


def test_direct_io_says_why_not(made: Made) -> None:
    assert made.one("direct_io").status == Status.OK
    made.file["direct_io"] = "Invalid argument"
    made.expect("direct_io", Status.NOTE, "O_DIRECT", "Invalid argument", "ext4")
    made.file = {"why_not": "Permission denied"}
    made.expect("direct_io", Status.NOTE, "not tried", "Permission denied")
    made.file = {"error": "no answer within 20 s"}
    made.expect("direct_io", Status.NOTE, "no answer within 20 s")
    made.runtime["path"]["filesystem"] = "tmpfs"
    assert made.one("direct_io").status == Status.OK


def test_small_shared_memory_is_told(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.expect("shared_memory", Status.NOTE, "no /dev/shm")
    for size, status in ((64 << 20, Status.NOTE), (GIB, Status.OK)):
        monkeypatch.setattr(made.machine, "size_bytes", lambda _, size=size: size)
        assert made.one("shared_memory").status == status


def test_calibration_says_whether_it_is_there_and_how_old(made: Made) -> None:
    assert made.ask("calibration") == []  # the library did not say where
    made.runtime["calibration_file"] = ""
    made.expect("calibration", Status.NOTE, "HIPPOGRIFF_CALIBRATION")
    made.runtime["calibration_file"] = "/cache/calibration.json"
    made.expect("calibration", Status.NOTE, "no calibration", "hippogriff calibrate /models")
    for text in ("{", "[]", '{"drives": 1, "links": 2}', "[" * 100_000):
        made.write("/cache/calibration.json", text)
        made.expect("calibration", Status.NOTE, "cannot be understood")
    os.mkfifo(made.folder / "cache" / "pipe")
    made.runtime["calibration_file"] = "/cache/pipe"
    made.expect("calibration", Status.NOTE, "no file that can be read", "it is ignored")
    made.runtime["calibration_file"] = "/cache/calibration.json"
    known: dict[str, Any] = {"drives": {"nvme0n1": {"measured": True}}, "links": {}}
    made.write("/cache/calibration.json", json.dumps(known))
    made.expect("calibration", Status.NOTE, "not calibrated: host")
    made.gpus()
    made.expect("calibration", Status.NOTE, "not calibrated: GPU-1")
    known["links"]["GPU-1"] = {"measured": True}
    file = made.write("/cache/calibration.json", json.dumps(known))
    assert made.one("calibration").status == Status.OK
    old = time.time() - 200 * 86400
    os.utime(file, (old, old))
    made.expect("calibration", Status.NOTE, "200 days")


# The environment.


def test_misspelled_variables_name_what_was_meant(made: Made) -> None:
    made.machine.environ.update(
        {"HIPPOGRIFF_PINBUFER": "1GiB", "HIPPOGRIFFTHREADS": "8", "HIPPOGRIFF_ZZZZ": "1"}
    )
    advice = [finding.advice for finding in made.ask("unknown_variables")]
    assert advice == [
        "did you mean HIPPOGRIFF_THREADS?",
        "did you mean HIPPOGRIFF_PINBUFFER?",
        "docs/routes.md lists the variables",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("PINBUFFER", "lots"), ("THREADS", "4.5"), ("IO", "aio"), ("MEMORY_TIMEOUT_MS", "1 s")),
        *(("GROW", "yes"), ("RESERVATION", "mine"), ("WAIT_MS", "-1"), ("CHANNELS", "0")),
        *(("WAIT_MS", "-0"), ("WAIT_MS", "\u0663"), ("MEMORY", "\u0663MiB"), ("THREADS", "\u0663")),
        *(("CHANNELS", "4294967296"), ("CPUS", "1" * 5000), ("MEMORY_TIMEOUT_MS", str(2**63))),
        *(("MEMORY_TIMEOUT_MS", "--1"), ("MEMORY_TIMEOUT_MS", "-"), ("RESERVATION", "256:1")),
        *(("RESERVATION", "1:4294967296"), ("RESERVATION", "1:2:3"), ("RESERVATION", "1:\u0663")),
    ],
)
def test_values_that_cannot_be_understood_are_problems(made: Made, name: str, value: str) -> None:
    made.machine.environ["HIPPOGRIFF_" + name] = value
    made.expect("wrong_values", Status.PROBLEM, "HIPPOGRIFF_" + name, value[:40])


def test_values_that_are_understood_are_not_told(made: Made) -> None:
    for name, value in (
        ("PINBUFFER", "64MiB"),
        ("IO", "uring"),
        ("MEMORY_TIMEOUT_MS", "-1"),
        ("GROW", "1"),
        ("WAIT_MS", "9" * 5000),
        ("RESERVATION", "255:4294967295"),
        ("CPUS", "0004294967295"),
    ):
        made.machine.environ["HIPPOGRIFF_" + name] = value
    made.machine.environ["HIPPOGRIFF_CALIBRATION"] = ""
    for name in ("unknown_variables", "wrong_values", "unusual_values", "device_variable"):
        assert made.ask(name) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("HOST_LINK", "2GB"), ("TRACE", "t"), ("GDS_ROOT", "/x"), ("THREADS", "2"), ("CPUS", "1")],
)
def test_values_that_make_transfers_slow_are_told(made: Made, name: str, value: str) -> None:
    made.machine.environ["HIPPOGRIFF_" + name] = value
    made.expect("unusual_values", Status.NOTE, "HIPPOGRIFF_" + name)


def test_a_trace_that_cannot_be_written_is_a_problem(made: Made, tmp_path: Path) -> None:
    for name, wrong in (
        *((tmp_path / "t", False), (tmp_path / "no" / "t", True), (tmp_path, True)),
        *((tmp_path / ("n" * 300) / "t", True), ("", False)),
    ):
        made.machine.environ["HIPPOGRIFF_TRACE"] = str(name)
        assert [each.status for each in made.ask("trace_variable")] == ["problem"] * wrong


def test_a_pinbuffer_that_is_too_small_says_what_happens(made: Made) -> None:
    made.machine.environ["HIPPOGRIFF_PINBUFFER"] = "1MiB"
    made.expect("unusual_values", Status.NOTE, "64 MiB")


def test_a_device_that_is_not_there_is_a_problem(made: Made) -> None:
    made.gpus(2)
    for name, status in (
        *(("cuda", "ok"), ("cuda:1", "ok"), ("cuda:2", "problem"), ("gpu", "problem")),
        ("cuda:x", "problem"),
    ):
        made.machine.environ["HIPPOGRIFF_DEVICE"] = name
        assert made.one("device_variable").status == status, name


def test_the_variables_are_those_of_the_documentation() -> None:
    documentation = Path(__file__).parents[2] / "docs" / "routes.md"
    text = documentation.read_text().partition("## Environment variables")[2]
    table = set(re.findall(r"^\| `(HIPPOGRIFF_\w+)` \|", text, re.MULTILINE))
    assert table <= set(_settings.KNOWN)
    build = {"HIPPOGRIFF_" + name for name in ("CUDA", "VENV", "DEMO_BYTES", "DEMO_ORDER")}
    assert set(_settings.KNOWN) - table == build


# The doctor itself.


def test_no_check_raises_on_an_empty_machine(made: Made, tmp_path: Path) -> None:
    made.machine = Machine("/models", root=tmp_path / "nothing", environ={})
    for facts in ({}, {"error": "no answer"}):
        made.runtime, made.driver, made.file = dict(facts), dict(facts), dict(facts)
        for check in doctor.CHECKS:
            assert not any("failed" in finding.found for finding in made.ask(check.__name__))


@pytest.mark.parametrize("junk", ["", "\0\xff", "1", "-1", "9" * 400, "a b c d\n" * 5, "max"])
def test_no_check_raises_on_files_of_junk(made: Made, junk: str) -> None:
    made.gpus()
    for name in (
        *("self/status", "self/limits", "self/cgroup", "meminfo", "sys/kernel/osrelease"),
        *("sys/kernel/io_uring_disabled", "driver/nvidia/params", "driver/nvidia/version"),
    ):
        made.write(f"/proc/{name}", junk)
    made.runtime["calibration_file"] = "/calibration"
    made.write("/calibration", junk)
    device = f"/sys/bus/pci/devices/{made.bus_id}"
    for name in ("numa_node", "current_link_width", "max_link_width"):
        made.write(f"{device}/{name}", junk)
    for name in ("memory.max", "memory.high", "cpu.max", "pids.max", "pids.current"):
        made.write(f"/sys/fs/cgroup/{name}", junk)
    for check in doctor.CHECKS:
        assert not any("failed" in finding.found for finding in made.ask(check.__name__))


def test_a_check_that_fails_or_hangs_is_a_finding(made: Made) -> None:
    stop = threading.Event()

    def it_fails(_: Machine) -> Finding:
        raise ZeroDivisionError("made up")

    def it_hangs(_: Machine) -> None:
        stop.wait(60)

    checks: list[Callable[[Machine], Finding | list[Finding] | None]] = [it_fails, it_hangs]
    failed, hung = diagnose(machine=made.machine, checks=checks, timeout=0.2)
    stop.set()
    assert failed.status == Status.NOTE
    assert "ZeroDivisionError: made up" in failed.found
    assert hung.status == Status.PROBLEM
    assert "0.2 s" in hung.found
    assert (failed.check, hung.check) == ("it fails", "it hangs")


def test_checks_are_made_where_no_thread_can_be_started(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    made.write("/proc/sys/kernel/osrelease", "5.4.0\n")
    assert made.one("kernel").status == Status.NOTE


def test_probes_that_hang_crash_or_talk_nonsense_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine_module, "_PROBE_SECONDS", 0.5)
    machine = Machine(tmp_path)
    for program, word in (
        ("import time; time.sleep(60)", "no answer"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
        ("print('hello')", "Expecting value"),
        ("print([1])", "no JSON object"),
        ("raise SystemExit('went wrong')", "went wrong"),
    ):
        assert word in machine._ask(["-c", program], os.environ)["error"]
    monkeypatch.setattr(sys, "executable", "/nothing/python")
    assert "No such file" in machine._ask(["-c", ""], os.environ)["error"]
    monkeypatch.setattr(sys, "executable", "")
    assert "error" in machine._ask(["-c", ""], os.environ)


def test_this_machine_is_asked_without_a_failure(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(10000))
    assert Machine(tmp_path / "a").file["folder"] == str(tmp_path)
    for path in (tmp_path, tmp_path / "a", tmp_path / "nothing"):
        findings = diagnose(path)
        assert not any("the check failed" in finding.found for finding in findings)
        checks = {finding.check for finding in findings}
        assert {"library", "kernel", "direct io", "cuda driver", "memory limit"} <= checks
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def _run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hippogriff", "doctor", *map(str, arguments)],
        env={**os.environ, **more, "HIPPOGRIFF_LIBRARY": _library.lib._name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_exits_with_one_when_something_is_a_problem(tmp_path: Path) -> None:
    done = _run(tmp_path, HIPPOGRIFF_THREAD="8")
    assert (done.returncode, done.stderr) == (1, "")
    assert "did you mean HIPPOGRIFF_THREADS?" in done.stdout
    done = _run(tmp_path, "--json", HIPPOGRIFF_THREAD="8")
    told = json.loads(done.stdout)
    assert (done.returncode, told["path"]) == (1, str(tmp_path))
    problems = [one for one in told["findings"] if one["status"] == "problem"]
    assert told["problems"] == len(problems) >= 1
    assert set(problems[0]) == {"check", "status", "found", "meaning", "advice"}


def test_the_command_exits_with_zero_as_many_problems_as_it_tells(tmp_path: Path) -> None:
    done = _run(tmp_path, "--json")
    assert done.returncode == (1 if json.loads(done.stdout)["problems"] else 0)


def test_a_fake_driver_is_asked_without_a_context(tmp_path: Path) -> None:
    fake = Path(_library.lib._name).parent / "libhippogriff_fake_cuda.so"
    if not fake.exists():
        pytest.skip(f"{fake.name} was not built")
    machine = Machine(tmp_path, environ={**os.environ, "HIPPOGRIFF_CUDA_DRIVER": str(fake)})
    assert machine.driver["library"] == str(fake.resolve())
    assert machine.driver["devices"][0]["uuid"].startswith("GPU-")
    assert [device["name"] for device in machine.runtime["devices"]] == ["host"]
