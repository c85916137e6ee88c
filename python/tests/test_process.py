"""The package in whole processes: exit, forks, and a library that is not there."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff import _library

if TYPE_CHECKING:
    from pathlib import Path


def _run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env={**os.environ, **environment, "HIPPOGRIFF_LIBRARY": _library.lib._name},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _assert_silent(done: subprocess.CompletedProcess[str], stdout: str = "") -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, stdout, "")


def test_exit_with_live_arrays_and_views_is_silent(big_file: Path) -> None:
    program = f"""
        import hippogriff, numpy
        array = hippogriff.read({str(big_file)!r}, device="host")
        view, taken = numpy.asarray(array), numpy.from_dlpack(array)
        other = hippogriff.empty(1000, device="host")
        print("done")
    """
    _assert_silent(_run(program), "done\n")


def test_exit_with_a_transfer_in_flight_is_silent_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100 << 20))
    program = f"""
        import hippogriff
        array = hippogriff.empty(50 << 20, device="host")
        transfer = hippogriff.write_async({str(tmp_path / "a")!r}, array)
        print("done")
    """
    done = _run(program, HIPPOGRIFF_HOST_LINK="20MB")
    _assert_silent(done, "done\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").stat().st_size == 100 << 20


@pytest.mark.parametrize("end", ["pass", "time.sleep(0.3)", "t.cancel()", "sys.exit()"])
def test_exit_with_a_transfer_that_nobody_waited_for_ends(big_file: Path, end: str) -> None:
    program = f"""
        import sys, time, hippogriff
        t = hippogriff.read_async({str(big_file)!r}, device="host")
        {end}
    """
    _assert_silent(_run(program))


def test_a_forked_child_reads_with_a_runtime_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"from the file")
    array = hippogriff.read(tmp_path / "a", device="host")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            again = hippogriff.read(tmp_path / "a", device="host")
            seen: Any = np.asarray(array)
            with hippogriff.open(tmp_path / "b", "w") as file:
                file.write_from(array)
            same = again.to_numpy().tobytes() == seen.tobytes() == b"from the file"
            code = 0 if same else 2
            hippogriff.deinit()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert (tmp_path / "b").read_bytes() == b"from the file"
    assert array.to_numpy().tobytes() == b"from the file"


def test_a_parents_transfer_is_refused_in_the_child(big_file: Path) -> None:
    transfer = hippogriff.read_async(big_file, device="host")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            transfer.wait(1)
        except hippogriff.Forked:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert transfer.wait().nbytes == big_file.stat().st_size


def _sum_of(path: Path) -> int:
    return int(hippogriff.read(path, device="host").to_numpy().sum())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_read(tmp_path: Path, method: str) -> None:
    (tmp_path / "a").write_bytes(bytes([1] * 5000))
    hippogriff.init()
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_sum_of, [tmp_path / "a"] * 4) == [5000] * 4


def test_a_missing_library_says_how_to_get_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import hippogriff"],
        env={**os.environ, "HIPPOGRIFF_LIBRARY": "/nothing/libhippogriff.so"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: hippogriff: cannot use HIPPOGRIFF_LIBRARY=/nothing/")
    assert "make" in last


@pytest.mark.parametrize("how", ["module", "script"])
def test_the_command_says_in_a_line_that_there_is_no_library(tmp_path: Path, how: str) -> None:
    script = tmp_path / "hippogriff"
    script.write_text("from hippogriff.cli import main\nmain()\n")
    done = subprocess.run(
        [sys.executable, *(["-m", "hippogriff"] if how == "module" else [script]), "doctor"],
        env={**os.environ, "HIPPOGRIFF_LIBRARY": "/nothing/libhippogriff.so"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("hippogriff: cannot use HIPPOGRIFF_LIBRARY=/nothing/")
    assert "make" in line


def test_a_library_of_something_else_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import hippogriff"],
        env={**os.environ, "HIPPOGRIFF_LIBRARY": "libc.so.6"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: hippogriff: cannot use HIPPOGRIFF_LIBRARY=libc.so.6" in done.stderr


def test_a_source_checkouts_build_is_found(tmp_path: Path) -> None:
    package = tmp_path / "python" / "hippogriff"
    (tmp_path / "include" / "hippogriff").mkdir(parents=True)
    (tmp_path / "build-mine").mkdir()
    found = _library.candidates(package)
    assert found[0] == package / "libhippogriff.so"
    assert found.index(tmp_path / "build" / "libhippogriff.so") < found.index(
        tmp_path / "build-mine" / "libhippogriff.so"
    )


def test_a_transfer_in_a_cycle_outlives_the_garbage_collector(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(64 << 20))
    program = """
import gc, sys, time
import hippogriff

gc.disable()
with hippogriff.open(sys.argv[1]) as file:
    for _ in range(5):
        array = hippogriff.empty(64 << 20, dtype="uint8", device="host")
        cycle = [file.read_into_async(array)]
        cycle.append(cycle)
        del cycle
        gc.collect()
time.sleep(0.3)
print("alive")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env={**os.environ, "HIPPOGRIFF_HOST_LINK": "1GB", "HIPPOGRIFF_LIBRARY": _library.lib._name},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
