"""`hippogriff run` behind a server: processes of a command share what was reserved for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from node_programs import (
    HIPPOGRIFF,
    MIB,
    NULL_GPU,
    PATIENCE,
    command,
    needs_null_driver,
    serving,
    status,
    until,
    with_null_gpu,
)

from hippogriff.errors import InvalidArgument
from hippogriff.sharing.run import from_anywhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Answers each line of its input, a size in MiB, with what allocating that says.
WORKER = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
numbers = [ctypes.c_size_t(), ctypes.c_size_t()]
assert driver.cuInit(0) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for line in sys.stdin:
    if line == "free\\n":
        assert driver.cuMemGetInfo_v2(*map(ctypes.byref, numbers)) == 0
        print(*(number.value >> 20 for number in numbers), flush=True)
    else:
        size = ctypes.c_size_t(int(line) << 20)
        print(driver.cuMemAlloc_v2(ctypes.byref(memory), size), flush=True)
"""
# The beginning of commands that start such.
STARTS = f"""
import os, subprocess, sys
class Worker:
    def __init__(self, **more):
        pipe = subprocess.PIPE
        words = [sys.executable, "-c", {WORKER!r}]
        env = {{**os.environ, **more}}
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=env)
    def asks(self, word):
        self.process.stdin.write(f"{{word}}\\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()
    def killed(self):
        self.process.kill()
        self.process.wait()
"""

# What `hippogriff run` passes on; the last one ends.
TOLD_SIGNALS = (
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
)
# Says which signals come, and "start" before; ends by SIGTERM.
TELLS_SIGNALS = """
import signal, sys
def tell(number, _frame):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM:
        sys.exit(3)
for name in ("INT", "QUIT", "HUP", "USR1", "USR2", "TERM"):
    number = signal.Signals["SIG" + name]
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, tell)
print("start", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def beside(machine: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of programs that share memory with the node, on a machine with a GPU."""
    return with_null_gpu(machine, tmp_path)


@pytest.fixture
def socket(beside: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """Where a server of it listens."""
    with serving(beside, tmp_path / "node.sock"):
        yield tmp_path / "node.sock"


@pytest.fixture
def behind(beside: dict[str, str], socket: Path) -> dict[str, str]:
    """The environment of programs that ask the server."""
    return {**beside, "HIPPOGRIFF_NODE": f"unix:{socket}"}


def begun(
    machine: dict[str, str], code: str, *options: str, memory: str = "40MiB"
) -> subprocess.Popen[str]:
    """Start a command that starts workers."""
    words = [*HIPPOGRIFF, "run", "--memory", memory, *options, "--", sys.executable, "-c"]
    return subprocess.Popen(
        [*words, STARTS + textwrap.dedent(code)],
        env=machine,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(program: subprocess.Popen[str]) -> list[str]:
    """Return what a command that must succeed has said."""
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, err
    return out.split("\n")[:-1]


def said(program: subprocess.Popen[str]) -> str:
    """Return a command's next line, or what it has said of it when that takes too long."""
    assert program.stdout is not None
    limit = threading.Timer(PATIENCE, program.kill)
    limit.start()
    try:
        return program.stdout.readline()
    finally:
        limit.cancel()


def with_signals(ignored: Sequence[signal.Signals]) -> Callable[[], None]:
    """Return what has a child ignore these signals and no others, whatever this process ignores."""

    def set_signals() -> None:
        for number in TOLD_SIGNALS:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    return set_signals


def telling_signals(
    machine: dict[str, str], folder: Path, ignored: Sequence[signal.Signals] = ()
) -> subprocess.Popen[str]:
    """Start a command behind the server in that folder that tells which signals come."""
    return subprocess.Popen(
        [*HIPPOGRIFF, "run", "--memory", "1MiB", "--", sys.executable, "-c", TELLS_SIGNALS],
        env={**machine, "HIPPOGRIFF_NODE": f"unix:{folder}/s"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # no terminal sends it signals
        preexec_fn=with_signals(ignored),
    )


@needs_null_driver
def test_processes_of_a_command_have_together_what_it_reserved(
    beside: dict[str, str], behind: dict[str, str]
) -> None:
    code = """
    first, second = Worker(), Worker()
    print(first.asks(30), second.asks(11), second.asks(5), second.asks("free"), flush=True)
    input()
    first.killed()
    print(second.asks(35), second.asks(1))
    """
    program = begun(behind, code)
    assert said(program) == "0 2 0 5 40\n"
    (device,) = status(beside)["devices"]
    assert device["promised_bytes"] == 40 * MIB
    used = [client["used_bytes"].get(NULL_GPU, 0) for client in status(beside)["clients"]]
    assert sorted(size for size in used if size) == [5 * MIB, 30 * MIB]
    out, err = program.communicate("\n", timeout=PATIENCE)
    assert out == "0 2\n", err
    assert not status(beside)["reservations"]


@needs_null_driver
def test_two_commands_do_not_use_each_others_memory(behind: dict[str, str]) -> None:
    code = "print(Worker().asks(40), flush=True); input()"
    programs = [begun(behind, code) for _ in range(2)]
    for program in programs:
        assert said(program) == "0\n"
    for program in programs:
        program.communicate("\n", timeout=PATIENCE)


@needs_null_driver
@pytest.mark.parametrize("words", ["0" * 32, "3:17", "not words"])
def test_words_of_no_command_do_not_let_a_process_have_more(
    behind: dict[str, str], words: str
) -> None:
    code = f"""
    first, stranger = Worker(), Worker(HIPPOGRIFF_RESERVATION={words!r})
    print(first.asks(40), stranger.asks(41), first.asks(1))
    """
    assert ended(begun(behind, code)) == ["0 2 2"]


@needs_null_driver
def test_the_words_of_a_command_that_has_ended_are_worth_nothing(
    behind: dict[str, str],
) -> None:
    (words,) = ended(begun(behind, "print(os.environ['HIPPOGRIFF_RESERVATION'])"))
    late = f"print(Worker(HIPPOGRIFF_RESERVATION={words!r}).asks(1))"
    program = begun(behind, late)
    out, err = program.communicate(timeout=PATIENCE)
    assert out == "2\n"
    assert "the reservation of this command has ended" in err


@needs_null_driver
def test_the_memory_is_the_commands_until_its_last_process_has_ended(
    beside: dict[str, str], behind: dict[str, str]
) -> None:
    """Also where the process that reserved it was killed."""
    code = """
    worker = Worker()
    print(worker.asks(20), worker.process.pid, flush=True)
    sys.stdin.read()
    """
    program = begun(behind, code)
    answer, worker = said(program).split()
    assert answer == "0"
    with Path(f"/proc/{worker}/fd/0").open("w"):  # keeps the worker's input open
        program.kill()
        program.wait()
        (reservation,) = status(beside)["reservations"]
        assert reservation["size_bytes"] == 40 * MIB
    until(lambda: not status(beside)["reservations"])
    program.communicate()


@needs_null_driver
def test_an_allocation_after_the_server_has_ended_is_refused_and_says_why(
    beside: dict[str, str], tmp_path: Path
) -> None:
    code = """
    worker = Worker()
    print(worker.asks(20), flush=True)
    input()
    print(worker.asks(20), worker.asks(20))
    """
    with serving(beside, tmp_path / "other.sock") as server:
        program = begun({**beside, "HIPPOGRIFF_NODE": f"unix:{tmp_path}/other.sock"}, code)
        assert said(program) == "0\n"
        server.kill()
        server.wait()
        out, err = program.communicate("\n", timeout=PATIENCE)
    assert out == "2 2\n"
    assert err.count("the reservation of this command has ended") == 1


@needs_null_driver
def test_commands_grow_and_wait_for_their_first_use_behind_a_server_too(
    beside: dict[str, str], behind: dict[str, str]
) -> None:
    code = "worker = Worker(); print(worker.asks(30), worker.asks(30), flush=True); input()"
    grown = begun(behind, code, "--grow")
    assert said(grown) == "0 0\n"
    (device,) = status(beside)["devices"]
    assert device["promised_bytes"] == 60 * MIB
    late = begun(behind, code, "--wait", "first-use", memory="1000MiB")
    until(lambda: any(entry["waits"] for entry in status(beside)["reservations"]))
    grown.communicate("\n", timeout=PATIENCE)
    assert said(late) == "0 0\n"
    late.communicate("\n", timeout=PATIENCE)


@needs_null_driver
def test_a_command_within_a_command_uses_the_outer_ones(behind: dict[str, str]) -> None:
    inner = f"{STARTS}\nprint(Worker().asks(40), Worker().asks(1))"
    code = f"""
    words = [*{HIPPOGRIFF!r}, "run", "--memory", "30MiB", "--", sys.executable, "-c", {inner!r}]
    print(subprocess.check_output(words, text=True), end="")
    print(Worker().asks(40))
    """
    assert ended(begun(behind, code)) == ["0 2", "0"]


def test_hippogriffs_own_allocations_come_out_of_the_same_memory(
    machine: dict[str, str], tmp_path: Path
) -> None:
    code = """
    import hippogriff, subprocess, sys
    array = hippogriff.empty(30 << 20, "uint8")
    other = "import hippogriff; hippogriff.empty({} << 20, 'uint8')"
    for size in (11, 10):
        words = [sys.executable, "-c", other.format(size)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        print(done.returncode, "OutOfDeviceMemory" in done.stderr)
    with hippogriff.reserve("10MiB", timeout=0):
        print(hippogriff.node_status()["devices"][0]["promised_bytes"] >> 20)
    """
    with serving(machine, tmp_path / "node.sock"):
        inside = {**machine, "HIPPOGRIFF_NODE": f"unix:{tmp_path / 'node.sock'}"}
        words = (sys.executable, "-c", textwrap.dedent(code))
        result = command(inside, "run", "--memory", "40MiB", "--", *words)
        assert result.stdout == "1 True\n0 False\n40\n", result.stderr


def test_the_server_is_found_from_another_folder(machine: dict[str, str], tmp_path: Path) -> None:
    assert from_anywhere("unix:") == "unix:"
    assert from_anywhere("unix:/a:b") == "unix:/a:b"
    assert from_anywhere("unix:a") == f"unix:{Path.cwd()}/a"
    assert from_anywhere("unix:group:gpu") == "unix:group:gpu"
    assert from_anywhere("unix:group:gpu:a:b") == f"unix:group:gpu:{Path.cwd()}/a:b"
    assert from_anywhere("a:b") == f"{Path.cwd()}/a:b"
    assert from_anywhere("group:gpu:a:b") == f"group:gpu:{Path.cwd()}/a:b"
    assert [from_anywhere(same) for same in ("", "/a", "group:gpu")] == ["", "/a", "group:gpu"]
    code = 'import os; os.chdir("/"); import hippogriff; hippogriff.empty(41 << 20, "uint8")'
    with serving(machine, tmp_path / "s"):
        inside = {**machine, "HIPPOGRIFF_NODE": "unix:s", "PYTHONPATH": _absolute_paths()}
        result = command(
            inside, "run", "--memory", "40MiB", "--", sys.executable, "-c", code, cwd=tmp_path
        )
        assert "OutOfDeviceMemory" in result.stderr


def test_a_socket_that_the_command_could_not_name_is_refused_before_it_starts(
    machine: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    inside = {**machine, "PYTHONPATH": _absolute_paths()}
    marker = tmp_path / "started"
    words = ("run", "--memory", "1MiB", "--", "touch", str(marker))
    with serving(machine, tmp_path / "s"):
        (folder / "s").symlink_to(tmp_path / "s")
        for node in ("unix:s", f"unix:group:{os.getgid()}:s"):
            refused = command({**inside, "HIPPOGRIFF_NODE": node}, *words, cwd=folder)
            assert refused.returncode == 125
            told = " ".join(refused.stderr.split())
            assert f"{folder}/s" in told.replace(" ", "")
            assert f"{len(str(folder)) + 2} bytes" in told
            assert "107 are the most" in told
    assert not marker.exists()


def test_a_socket_may_have_a_path_of_107_bytes() -> None:
    name = "é" + "x" * 104
    assert from_anywhere(f"unix:/{name}") == f"unix:/{name}"
    for address in (f"unix:/{name}x", f"unix:group:gpu:/{name}x"):
        with pytest.raises(InvalidArgument, match="108 bytes, and 107"):
            from_anywhere(address)
    assert from_anywhere(f"/{name}x") == f"/{name}x"  # a segment's


def test_a_command_gets_the_signals_that_are_sent_to_who_started_it(
    machine: dict[str, str], tmp_path: Path
) -> None:
    with serving(machine, tmp_path / "s"):
        program = telling_signals(machine, tmp_path)
        assert said(program) == "start\n"
        for number in TOLD_SIGNALS:
            program.send_signal(number)
            assert said(program) == f"{number.name}\n"
        assert program.wait(PATIENCE) == 3
        program.communicate()


def test_a_command_ignores_the_signals_that_who_started_it_ignores(
    machine: dict[str, str], tmp_path: Path
) -> None:
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    with serving(machine, tmp_path / "s"):
        program = telling_signals(machine, tmp_path, ignored)
        assert said(program) == "start\n"
        for number in ignored:
            os.killpg(program.pid, number)
        program.send_signal(signal.SIGUSR1)
        assert said(program) == "SIGUSR1\n"
        program.terminate()
        assert program.communicate(timeout=PATIENCE)[0] == "SIGTERM\n"
        assert program.returncode == 3


def _absolute_paths() -> str:
    return os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
