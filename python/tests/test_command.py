"""The command, run as users run it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hippogriff
from hippogriff import _library, _runtime, cli
from hippogriff._advice import what_next
from hippogriff._copy import CopyOptions, copy_file


def random_bytes(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more, "HIPPOGRIFF_LIBRARY": _library.lib._name, "COLUMNS": "200"}


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hippogriff", *map(str, arguments)],
        env=_environment(**more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _json(*arguments: object) -> Any:
    done = _run(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def _assert_one_line(done: subprocess.CompletedProcess[str], code: int = 1) -> None:
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("hippogriff: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command", ["info", "explain", "copy", "bench", "bench array", "calibrate", "load"]
)
def test_what_fails_is_json_too_where_that_was_asked_for(tmp_path: Path, command: str) -> None:
    missing = str(tmp_path / "missing")
    given = {"copy": [missing, f"{tmp_path}/out"], "bench array": ["--dir", missing]}
    if command == "info":  # which tells of the folder that a file would be in
        given["info"] = ["/dev/null/missing"]
    arguments = [*command.split(), *given.get(command, [missing])]
    plain = _run(*arguments)
    _assert_one_line(plain)
    done = _run(*arguments, "--json")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    error = json.loads(done.stdout)["error"]
    assert set(error) == {"type", "message", "operation", "object", "offset", "errno"}
    assert error["message"] in done.stderr
    assert "/" in error["object"]
    assert error["errno"] in (errno.ENOENT, errno.ENOTDIR)


def test_version_is_the_libraries() -> None:
    assert _run("version").stdout == f"{hippogriff.version}\n"
    assert _run("--version").stdout == f"{hippogriff.version}\n"
    assert _json("version") == {"version": hippogriff.version}


def test_info_shows_devices_and_routes(tmp_path: Path) -> None:
    done = _run("info", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("host", "direct", "mapped", "pipelined", "parked", "cores"):
        assert word in done.stdout
    assert _json("info", tmp_path)["version"] == hippogriff.version


def test_copy_copies_and_tells_both_ways(folder: Path) -> None:
    data = random_bytes((3 << 20) + 17)
    (folder / "a").write_bytes(data)
    done = _run("copy", folder / "a", folder / "b", "--device", "host", "--verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert "GB/s" in done.stdout
    assert "verified" in done.stdout
    assert (folder / "b").read_bytes() == data
    told = _json("copy", folder / "a", folder / "b", "--device", "host")
    assert (told["bytes"], told["verified"], told["pieces"]) == (len(data), None, 1)
    assert told["send"]["gb_per_second"] > 0
    assert _names(folder) == ["a", "b"]


@pytest.mark.parametrize("size", [0, 1, 5000, 3 << 20])
def test_copy_in_pieces_gives_the_same_bytes(tmp_path: Path, size: int) -> None:
    data = random_bytes(size)
    (tmp_path / "a").write_bytes(data)
    told: list[int] = []
    result = copy_file(
        tmp_path / "a",
        tmp_path / "b",
        CopyOptions("host", verify=True, piece_bytes=700_000),
        lambda done, _: told.append(done),
    )
    assert (tmp_path / "b").read_bytes() == data
    assert (result.pieces, result.verified) == (-(-size // 700_000), True)
    assert told == sorted(told)
    assert (told or [0])[-1] == 2 * size


def test_copy_into_a_folder_keeps_the_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "folder").mkdir()
    assert _run("copy", tmp_path / "a", tmp_path / "folder").returncode == 0
    assert (tmp_path / "folder" / "a").read_bytes() == b"abc"


def test_copy_makes_no_file_of_what_is_named_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    for name in ("missing/", "a/", "missing/.", "missing/./", "a/."):
        done = _run("copy", tmp_path / "a", f"{tmp_path}/{name}")
        _assert_one_line(done)
        assert f"{tmp_path}/{name}" in done.stderr
    for name in ("a/", "a/.", "missing/"):
        _assert_one_line(_run("copy", f"{tmp_path}/{name}", tmp_path / "b"))
    assert _names(tmp_path) == ["a"]
    (tmp_path / "folder").mkdir()
    assert _run("copy", tmp_path / "a", f"{tmp_path / 'folder'}/").returncode == 0
    assert _names(tmp_path / "folder") == ["a"]


def test_copy_refuses_one_file_under_two_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    for destination in ("a", "link"):
        _assert_one_line(_run("copy", tmp_path / "a", tmp_path / destination))
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_copy_refuses_to_replace_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.mkfifo(tmp_path / "pipe")
    _assert_one_line(_run("copy", tmp_path / "a", tmp_path / "pipe"))
    assert (tmp_path / "pipe").is_fifo()
    assert _names(tmp_path) == ["a", "pipe"]


def test_a_full_host_device_names_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPPOGRIFF_HOST_MEMORY", "1MiB")
    (tmp_path / "a").write_bytes(bytes(4 << 20))
    result = _run("copy", tmp_path / "a", tmp_path / "b", "--device", "host")
    _assert_one_line(result)
    assert "raise HIPPOGRIFF_HOST_MEMORY" in result.stderr


@pytest.mark.parametrize("special", ["/dev/zero", "/dev/null", "pipe", "/proc/self/status"])
def test_copy_refuses_what_is_no_file(tmp_path: Path, special: str) -> None:
    (tmp_path / "old").write_bytes(b"abc")
    os.mkfifo(tmp_path / "pipe")
    _assert_one_line(_run("copy", tmp_path / special, tmp_path / "old"))
    assert (tmp_path / "old").read_bytes() == b"abc"


def test_a_failure_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    _assert_one_line(_run("copy", tmp_path / "nothing", tmp_path / "b"))
    _assert_one_line(_run("copy", tmp_path / "a", tmp_path / "no" / "b"))
    _assert_one_line(_run("copy", tmp_path / "a", tmp_path / "b", "--device", "cuda:99"))
    _assert_one_line(_run("copy", tmp_path / "a", tmp_path / "b", "--route", "scenic"))
    _assert_one_line(_run("explain", tmp_path / "nothing"))
    _assert_one_line(_run("info", tmp_path / "nothing"))
    assert _names(tmp_path) == ["a"]


def test_what_to_do_next_fits_what_failed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    done = _run("copy", tmp_path / "a", tmp_path / "b", HIPPOGRIFF_CPUS="x")
    _assert_one_line(done)
    assert "hippogriff doctor" in done.stderr
    for error, operation, word in (
        (hippogriff.OutOfHostMemory, "start a thread", "threads there may be"),
        (hippogriff.OutOfHostMemory, "allocate pinned memory", "HIPPOGRIFF_PINBUFFER"),
        (hippogriff.OutOfHostMemory, "", "programs"),
        (hippogriff.InvalidArgument, "start storage", "checks the variables"),
        (hippogriff.InvalidArgument, "find the segment group:x", "HIPPOGRIFF_NODE names it"),
    ):
        assert what_next(error("no", operation=operation)).endswith(word)
    for operation, word in (
        ("take the direct route", "routes"),
        ("open cuda:0", "devices"),
        ("set policy of node", ""),
        ("open segment", ""),
    ):
        following = what_next(hippogriff.Unsupported("no", operation=operation))
        assert word in following
        assert bool(following) == bool(word)


def test_wrong_usage_exits_with_two() -> None:
    assert _run("copy", "only-one").returncode == 2
    assert _run("fly").returncode == 2
    assert _run("version", "--no-such-option").returncode == 2


def _file_of_the_copy(running: subprocess.Popen[Any], folder: Path) -> Path:
    """Wait until a command has begun its new file, and return by what it is reached."""
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline
        for link in Path(f"/proc/{running.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()).startswith(f"{folder}/#"):
                    return link
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        (signal.SIGKILL, -signal.SIGKILL, ""),
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_copy_that_is_ended_leaves_nothing(
    tmp_path: Path, number: signal.Signals, status: int, words: str
) -> None:
    (tmp_path / "a").write_bytes(random_bytes(64 << 20))
    running = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "copy", tmp_path / "a", tmp_path / "b"],
        env=_environment(HIPPOGRIFF_HOST_LINK="20MB", HIPPOGRIFF_DEVICE="host"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    _file_of_the_copy(running, tmp_path)
    running.send_signal(number)
    stdout, stderr = running.communicate(timeout=30)
    assert (running.returncode, stdout) == (status, "")
    assert words in stderr
    assert _names(tmp_path) == ["a"]


@pytest.mark.parametrize("shows", [True, False], ids=["shown", "at once"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_top_leaves_the_terminal_as_it_was(number: signal.Signals, shows: bool) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "top"],
        env=_environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    os.close(theirs)
    shown = b""
    while b"\x1b[?1049h" not in shown or (shows and b"model" not in shown):
        shown += os.read(ours, 1 << 16)
    running.send_signal(number)
    with contextlib.suppress(OSError):  # that is how a terminal ends
        while block := os.read(ours, 1 << 16):
            shown += block
    os.close(ours)
    assert running.wait(30) == 128 + number
    assert b"\x1b[?1049l" in shown
    assert b"\x1b[?25h" in shown


def test_nobody_may_read_a_copy_who_may_not_read_what_it_is_of_or_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(random_bytes(64 << 20))
    (tmp_path / "a").chmod(0o600)
    assert _run("copy", tmp_path / "a", tmp_path / "new").returncode == 0
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    (tmp_path / "a").chmod(0o644)
    running = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "copy", tmp_path / "a", tmp_path / "new"],
        env=_environment(HIPPOGRIFF_HOST_LINK="20MB", HIPPOGRIFF_DEVICE="host"),
    )
    begun = _file_of_the_copy(running, tmp_path)
    assert stat.S_IMODE(begun.stat().st_mode) == 0o600
    running.terminate()
    running.wait(30)


def test_no_file_is_begun_that_has_no_room(tmp_path: Path) -> None:
    done = _run("bench", "--size", "900000GiB", "--dir", tmp_path)
    _assert_one_line(done)
    assert "No space left" in done.stderr
    assert _names(tmp_path) == []


def test_what_is_run_of_no_bytes_is_explained(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    done = _run("explain", tmp_path / "empty", "--run")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_slow_copy_tells_its_progress_in_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(8 << 20))
    done = _run(
        "copy", tmp_path / "a", tmp_path / "b", HIPPOGRIFF_HOST_LINK="2MB", HIPPOGRIFF_DEVICE="host"
    )
    assert done.returncode == 0
    assert "copy a (" in done.stderr
    assert "%" in done.stderr


def test_explain_shows_the_choice_and_compares_a_run(big_file: Path) -> None:
    done = _run("explain", big_file, "--run", "--device", "host")
    assert (done.returncode, done.stderr) == (0, "")
    assert "(chosen)" in done.stdout
    assert "measured" in done.stdout
    told = _json("explain", big_file, "--run", "--device", "host", "--size", "1MiB")
    assert told["run"]["bytes"] == 1 << 20
    assert told["chosen"] in [route["route"] for route in told["routes"]]
    assert "run" not in _json("explain", big_file, "--direction", "recv")


def test_explain_runs_the_way_back_to_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept" * 100_000)
    back = ("explain", tmp_path / "file", "--direction", "recv", "--run", "--device", "host")
    told = _json(*back, "--offset", "100")
    assert (told["run"]["bytes"], told["run"]["direction"]) == (399_900, "recv")
    assert "recv" in _run(*back).stdout
    assert (tmp_path / "file").read_bytes() == b"kept" * 100_000
    assert _names(tmp_path) == ["file"]
    (tmp_path / "empty").touch()
    assert _run("explain", tmp_path / "empty", *back[2:]).returncode == 0
    assert _names(tmp_path) == ["empty", "file"]


def test_explain_writes_beside_the_file_that_a_link_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(b"kept" * 100_000)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    made: list[Path] = []

    def opened(path: Path, mode: str) -> hippogriff.File:
        made.append(path)
        return hippogriff.File(path, mode)

    monkeypatch.setattr("hippogriff.cli.File", opened)
    array: Any = np.zeros(1000, dtype="uint8")
    cli._run_recv(tmp_path / "link", array, 0)
    assert made[0].parent == tmp_path / "there"
    assert _names(tmp_path / "there") == ["file"]


def test_json_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hippogriff", "explain", tmp_path / "absent", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            check=False,
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("hippogriff: ")


@pytest.mark.parametrize(
    "options",
    [
        ("explain", "FILE", "--array", "--run"),
        ("explain", "FILE", "--array", "--offset", "0"),
        ("explain", "FILE", "--array", "--direction", "send"),
        ("explain", "FILE", "--cache", "64MiB"),
        ("explain", "FILE", "--io", "direct"),
        ("policy", "--overtakes", "3"),
        ("policy", "fifo", "--seconds", "3"),
    ],
    ids=" ".join,
)
def test_options_that_would_do_nothing_are_refused(
    big_file: Path, options: tuple[str, ...]
) -> None:
    done = _run(*(str(big_file) if option == "FILE" else option for option in options))
    _assert_one_line(done)
    idle = next(option for option in options[1:] if option[:2] == "--" and option != "--array")
    assert f"{idle} " in done.stderr


def test_explain_tells_of_a_file_as_an_array(big_file: Path) -> None:
    pytest.importorskip("numpy")
    told = _json("explain", big_file, "--array", "--cache", "1MiB", "--line", "512")
    assert told["line_bytes"] == 512
    assert told["better"] in ("map", "array")
    assert told["zero_copy"] is False
    done = _run("explain", big_file, "--array", "--cache", "4GiB")
    assert "all of it was loaded into the cache when it was opened" in done.stdout
    assert "rows on a GPU through the cache: threads of the host" in done.stdout
    _assert_one_line(_run("explain", big_file, "--array", "--line", "1000"))


def _measured(*arguments: object, **more: str) -> Any:
    done = _run(*arguments, "--json", **more)
    assert done.returncode == 0, done.stderr  # a slow machine's has a line every 5 s
    return json.loads(done.stdout)


def test_bench_array_shows_a_mapping_and_pread_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    size = ("--size", "4MiB", "--repeat", "1")
    arguments = ("bench", "array", *size, "--dir", tmp_path, "--device", "host")
    told = _measured(*arguments, "--line", "512", "--line", "64KiB")
    ways = {(row["case"], row["line"], row["way"]) for row in told["rows"]}
    for line in (512, 65536):
        assert {("cached", line, way) for way in ("array", "mmap", "pread")} <= ways
        assert {("hit", line, way) for way in ("array", "memory")} <= ways
        for case in ("write", "write, durable"):
            assert {(case, line, way) for way in ("array", "pwrite")} <= ways
    assert told["device"] == "host"
    assert all(row["rows_per_second"] > 0 for row in told["rows"])
    assert "ratio" in _run(*arguments).stdout
    assert not list(tmp_path.iterdir())
    _assert_one_line(_run(*arguments, "--line", "1MiB"))


def test_bench_array_on_a_gpu_shows_its_own_kernels_beside_copies(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    fake = Path(_library.lib._name).resolve().parent / "libhippogriff_fake_cuda.so"
    if not fake.exists():
        pytest.skip("the fake driver was not built")
    arguments = ("bench", "array", "--size", "1MiB", "--dir", tmp_path, "--repeat", "1")
    told = _measured(*arguments, "--device", "cuda:0", HIPPOGRIFF_CUDA_DRIVER=str(fake))
    assert told["device"] == "cuda:0"
    ways = {(row["case"], row["line"], row["way"]) for row in told["rows"]}
    for line in (512, 4096):
        assert ("hit", line, "array") in ways
        for way in ("array", "zero-copy", "mmap, then copied", "in order"):
            assert ("cached", line, way) in ways
        assert {("write", line, way) for way in ("array", "copied, then pwrite")} <= ways
    for row in told["rows"]:
        assert row["rows_per_second"] > 0
        assert (row["ratio"] is None) == (row["case"] == "hit")
    _assert_one_line(_run(*arguments, "--device", "cuda:77"))
    assert not list(tmp_path.iterdir())


def test_bench_shows_routes_beside_the_naive_way(tmp_path: Path) -> None:
    arguments = ("bench", "--size", "4MiB", "--dir", tmp_path, "--device", "host", "--repeat", "2")
    done = _run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "naive" in done.stdout
    told = _json(*arguments)
    assert told["bytes"] == 4 << 20
    by_case = {row["case"]: row for row in told["rows"] if row["asked"] == "naive"}
    assert {"send, cached", "recv"} <= set(by_case)
    for row in told["rows"]:
        if row["asked"] in ("auto", "naive"):
            assert len(row["samples"]) == 2
        assert ("median" in row) != ("why_not" in row)
    assert list(tmp_path.iterdir()) == []


def test_calibrate_measures_and_keeps_the_result(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    done = _run("calibrate", tmp_path, "--json", HIPPOGRIFF_CALIBRATION=str(file))
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert json.loads(file.read_text()) == told
    assert _names(tmp_path) == ["calibration.json"]
    link, (drive,) = told["links"]["host"], told["drives"].values()
    assert {"to_device", "to_host", "latency_seconds"} <= set(link["measured_figures"])
    measured = set(
        drive["measured_figures"]
    )  # nothing, or all of it where the drive takes O_DIRECT
    assert measured in (set(), {"direct_read", "direct_write", "latency_seconds", "depth"})
    assert ("cached_write_max" in told["host"]["measured_figures"]) == (measured == set())
    assert drive["latency_seconds"] < 1


def test_nothing_is_measured_that_could_not_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_runtime, "_Measuring", None)
    os.mkfifo(tmp_path / "pipe")
    for file, kind in (
        ("/dev/null/calibration.json", NotADirectoryError),
        ("/proc/no/calibration.json", FileNotFoundError),
        (f"{tmp_path}/pipe", hippogriff.InvalidArgument),
    ):
        monkeypatch.setattr(_runtime, "info", lambda _, file=file: {"calibration_file": file})
        with pytest.raises(kind, match=f"save a calibration {file}"):
            _runtime.calibrate(tmp_path)
    _runtime._expect_room_for_calibration(f"{tmp_path}/new/calibration.json")
    assert _names(tmp_path) == ["pipe"]


def test_a_simulated_link_is_calibrated_apart(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    for link in ("", "8GB", "16GB"):
        done = _run(
            "calibrate", tmp_path, HIPPOGRIFF_CALIBRATION=str(file), HIPPOGRIFF_HOST_LINK=link
        )
        assert done.returncode == 0, done.stderr
    links = {"host", "host+8000000000B/s", "host+16000000000B/s"}
    assert set(json.loads(file.read_text())["links"]) == links


def test_an_interrupted_calibration_leaves_nothing(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "calibrate", tmp_path],
        env=_environment(HIPPOGRIFF_CALIBRATION="", HIPPOGRIFF_HOST_LINK="20MB"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # It measures on a thread of its own, and the slow link for much longer than this.
    threads = Path(f"/proc/{running.pid}/task")
    deadline = time.monotonic() + 60
    while len(list(threads.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert (running.returncode, stdout) == (130, "")
    assert "interrupted" in stderr
    assert _names(tmp_path) == []


def test_demo_moves_a_file_and_verifies_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hippogriff.demo"],
        env=_environment(HIPPOGRIFF_DEMO_BYTES="8MiB"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "verified" in done.stdout
    assert "naive GB/s" in done.stdout
    assert list(tmp_path.iterdir()) == []
