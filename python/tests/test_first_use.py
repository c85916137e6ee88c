"""``hippogriff run --wait first-use``: commands that start at once and queue in their first use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hippogriff._library import lib
from hippogriff._node import _reserve
from hippogriff.errors import InvalidArgument
from hippogriff.sharing.placement import candidates
from hippogriff.sharing.run import Wish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
PATIENCE = 60
BUILD = Path(lib._name).resolve().parent
FAKE_NVML = BUILD / "libhippogriff_fake_nvml.so"
NULL_DRIVER = BUILD / "libhippogriff_null_cuda.so"
NULL_GPU = "GPU-01010101-0101-0101-0101-010101010101"

# Says "started", allocates at the next line of its input, says so, and stays for another.
ALLOCATES = """
import sys
print("started", flush=True)
sys.stdin.readline()
import hippogriff
array = hippogriff.empty({size} << 20, "uint8")
print("has it", flush=True)
sys.stdin.readline()
"""


class Program:
    """A command under ``hippogriff run --wait first-use``."""

    def __init__(self, machine: dict[str, str], code: str, *options: str) -> None:
        words = [sys.executable, "-m", "hippogriff", "run", "--wait", "first-use", *options, "--"]
        self.process = subprocess.Popen(
            [*words, sys.executable, "-c", textwrap.dedent(code)],
            env=machine,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def goes_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ends(self) -> str:
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, err
        return out + err


@pytest.fixture
def start(
    request: pytest.FixtureRequest, machine: dict[str, str], tmp_path: Path
) -> Iterator[Callable[..., Program]]:
    """Start commands with these options; they end with the test. With "server": behind one."""
    programs: list[Program] = []
    there = dict(machine)
    server: subprocess.Popen[bytes] | None = None
    if getattr(request, "param", "") == "server":
        socket = tmp_path / "node.sock"
        server = subprocess.Popen(
            [sys.executable, "-m", "hippogriff", "noded", "--socket", str(socket)], env=machine
        )
        until(socket.exists)
        there["HIPPOGRIFF_NODE"] = f"unix:{socket}"

    def started(code: str, *options: str, **more: str) -> Program:
        programs.append(Program({**there, **more}, code, *options))
        return programs[-1]

    yield started
    for program in programs:
        program.process.kill()
        program.process.communicate()
    if server is not None:
        server.terminate()
        assert server.wait(PATIENCE) == 0


both_ways = pytest.mark.parametrize("start", ["segment", "server"], indirect=True)


def hippogriff(machine: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run `hippogriff` with these words."""
    return subprocess.run(
        [sys.executable, "-m", "hippogriff", *words],
        env=machine,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def reservations(machine: dict[str, str]) -> list[dict[str, Any]]:
    """Return what ps says of them."""
    answer: list[dict[str, Any]] = json.loads(hippogriff(machine, "ps", "--json").stdout)[
        "reservations"
    ]
    return answer


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for as long as a busy machine may take."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@both_ways
def test_commands_start_at_once_and_one_after_the_other_has_the_memory(
    machine: dict[str, str], start: Callable[..., Program]
) -> None:
    first = start(ALLOCATES.format(size=50), "--memory", "60MiB")
    second = start(ALLOCATES.format(size=50), "--memory", "60MiB")
    assert (first.says(), second.says()) == ("started", "started")
    assert [entry["size_bytes"] for entry in reservations(machine)] == [0, 0]
    assert all(entry["deferred"] and not entry["waits"] for entry in reservations(machine))
    assert hippogriff(machine, "run", "--memory", "100MiB", "--", "true").returncode == 0
    shown = hippogriff({**machine, "COLUMNS": "200"}, "ps").stdout
    assert "has yet to use 60.00 MiB" in shown
    lines = hippogriff(machine, "metrics").stdout.splitlines()
    assert 'hippogriff_deferred{device="host"} 2.0' in lines
    first.goes_on()
    assert first.says() == "has it"
    assert {entry["size_bytes"] for entry in reservations(machine)} == {60 * MIB, 0}
    second.goes_on()
    until(lambda: any(entry["waits"] for entry in reservations(machine)))
    (waiting,) = (entry for entry in reservations(machine) if entry["waits"])
    assert waiting["pid"] == second.process.pid
    assert waiting["wanted_bytes"] == 60 * MIB
    first.goes_on()
    first.ends()
    assert second.says() == "has it"
    second.goes_on()
    second.ends()
    assert not reservations(machine)


@both_ways
def test_an_allocation_that_waits_too_long_fails_and_says_why(
    start: Callable[..., Program],
) -> None:
    holder = start(ALLOCATES.format(size=100), "--memory", "100MiB")
    holder.goes_on()
    assert [holder.says(), holder.says()] == ["started", "has it"]
    code = """
    import hippogriff
    for _ in range(2):
        try:
            hippogriff.empty(10 << 20, "uint8")
        except hippogriff.OutOfDeviceMemory as error:
            print(error)
    """
    said = start(code, "--memory", "10MiB", "--timeout", "1.2").ends()
    assert said.count("10 MiB not free within 1200 ms") == 2
    assert "waiting for 10 MiB of host" in said
    assert "not free now" in start(code, "--memory", "10MiB", "--timeout", "0").ends()


# Waits in a call until it is interrupted, then says what was raised and asks the same again.
INTERRUPTED = """
import hippogriff, sys
def call():
    {call}
print("started", flush=True)
try:
    call()
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
call()
print("has it", flush=True)
"""


@pytest.mark.parametrize(
    "call", ['hippogriff.empty(10 << 20, "uint8")', "hippogriff.read({file!r})"]
)
def test_an_interrupt_ends_the_wait_of_hippogriffs_own_calls(
    machine: dict[str, str], start: Callable[..., Program], tmp_path: Path, call: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(10 * MIB))
    holder = start(ALLOCATES.format(size=100), "--memory", "100MiB")
    holder.goes_on()
    assert [holder.says(), holder.says()] == ["started", "has it"]
    code = INTERRUPTED.format(call=call.format(file=str(file)))
    program = start(code, "--memory", "40MiB")
    assert program.says() == "started"
    until(lambda: any(entry["waits"] for entry in reservations(machine)))
    program.process.send_signal(signal.SIGINT)
    assert program.says() == "interrupted"
    until(lambda: not any(entry["waits"] for entry in reservations(machine)))
    assert any(entry["deferred"] for entry in reservations(machine))
    program.goes_on()
    until(lambda: any(entry["waits"] for entry in reservations(machine)))
    holder.goes_on()
    holder.ends()
    assert program.says() == "has it"
    program.ends()


@both_ways
def test_a_transfers_own_time_ends_its_wait(
    machine: dict[str, str], start: Callable[..., Program], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(10 * MIB))
    holder = start(ALLOCATES.format(size=100), "--memory", "100MiB")
    holder.goes_on()
    assert [holder.says(), holder.says()] == ["started", "has it"]
    code = """
    import hippogriff, sys
    def read(time):
        try:
            hippogriff.read(sys.argv[1], memory_timeout=time)
            print("read", flush=True)
        except hippogriff.OutOfDeviceMemory as error:
            print(error, flush=True)
    read(0)
    read(0.1)
    sys.stdin.readline()
    read(None)
    """.replace("sys.argv[1]", repr(str(file)))
    program = start(code, "--memory", "40MiB")
    assert "what this command reserved is not free now" in program.says()
    assert "what this command reserved is not there yet" in program.says()
    until(lambda: not any(entry["waits"] for entry in reservations(machine)))
    # The time of those that have none is the command's: 50 ms would be for a device that is full.
    short = start(code, "--memory", "30MiB", "--timeout", "1", HIPPOGRIFF_MEMORY_TIMEOUT_MS="50")
    assert "not free now" in short.says()
    assert "not there yet" in short.says()
    short.goes_on()
    assert "30 MiB not free within 1000 ms" in short.says()
    program.goes_on()
    until(lambda: any(entry["waits"] for entry in reservations(machine)))
    holder.goes_on()
    assert program.says() == "read"


@both_ways
def test_a_command_within_a_command_is_not_told_how_long_the_outer_one_may_wait(
    start: Callable[..., Program],
) -> None:
    code = """
    import os, subprocess, sys
    print(os.environ["HIPPOGRIFF_WAIT_MS"], flush=True)
    words = [sys.executable, "-m", "hippogriff", "run", "--memory", "1MiB", "--"]
    subprocess.run([*words, "sh", "-c", "echo ${HIPPOGRIFF_WAIT_MS-none}"], check=True)
    """
    assert start(code, "--memory", "10MiB", "--timeout", "30").ends() == "30000\nnone\n"


@both_ways
def test_processes_of_a_command_ask_once_and_the_next_asks_when_one_is_killed(
    machine: dict[str, str], start: Callable[..., Program]
) -> None:
    holder = start(ALLOCATES.format(size=100), "--memory", "100MiB")
    holder.goes_on()
    assert [holder.says(), holder.says()] == ["started", "has it"]
    code = """
    import subprocess, sys
    words = [sys.executable, "-c", 'import hippogriff; hippogriff.empty(20 << 20, "uint8")']
    children = [subprocess.Popen(words) for _ in range(2)]
    print(*(child.pid for child in children), flush=True)
    print(sorted(child.wait() for child in children))
    """
    command = start(code, "--memory", "40MiB")
    killed, _ = (int(word) for word in command.says().split())
    until(lambda: any(entry["waits"] for entry in reservations(machine)))
    assert len(reservations(machine)) == 2
    os.kill(killed, signal.SIGKILL)
    holder.goes_on()
    assert "[-9, 0]" in command.ends()
    assert not reservations(machine)


@both_ways
def test_what_reserves_itself_takes_it_of_the_command(
    machine: dict[str, str], start: Callable[..., Program]
) -> None:
    code = """
    import hippogriff
    promised = lambda: hippogriff.node_status()["devices"][0]["promised_bytes"] >> 20
    print(promised())
    with hippogriff.reserve("10MiB"):
        print(promised())
    print(promised())
    """
    assert start(code, "--memory", "40MiB").ends() == "0\n40\n40\n"
    assert not reservations(machine)


@both_ways
def test_a_command_within_a_command_uses_the_outer_ones(start: Callable[..., Program]) -> None:
    code = """
    import subprocess, sys, hippogriff
    inner = 'import hippogriff; hippogriff.empty(30 << 20, "uint8"); print(len('
    inner += 'hippogriff.node_status()["reservations"]))'
    for wait in ("first-use", "start"):
        words = [sys.executable, "-m", "hippogriff", "run", "--wait", wait, "--memory", "30MiB"]
        print(subprocess.check_output([*words, "--", sys.executable, "-c", inner], text=True))
    """
    assert start(code, "--memory", "40MiB").ends().split() == ["1", "1"]


def test_what_cannot_work_is_refused(machine: dict[str, str]) -> None:
    late = ("run", "--wait", "first-use", "--memory")
    large = hippogriff(machine, *late, "101MiB", "--", "true")
    assert large.returncode == 125
    assert "101.00 MiB" in large.stderr
    assert hippogriff(machine, *late, "101MiB", "--device", "host", "--", "true").returncode == 125
    assert "one GPU" in hippogriff(machine, *late, "1MiB", "--gpus", "2", "--", "true").stderr
    with pytest.raises(InvalidArgument, match="start or first-use"):
        Wish(1, wait="later")
    with pytest.raises(InvalidArgument, match="does not know"):
        _reserve("1MiB", "host", 0, 0, flags=2)


class Gpu:
    """The null driver's first, of 100 MiB, as the stand-in for NVML tells of it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "gpus"
        self.tell(0)
        self.environment = {
            "HIPPOGRIFF_DEVICE": "",
            "HIPPOGRIFF_NVML": str(FAKE_NVML),
            "FAKE_NVML_FILE": str(self._file),
            "HIPPOGRIFF_CUDA_DRIVER": str(NULL_DRIVER),
        }

    def tell(self, used_mib: int, pid: int | None = None) -> None:
        """Say how much is used, by a process or by whomever."""
        lines = [f"gpu {NULL_GPU} {100 * MIB} {used_mib * MIB} 0"]
        if pid is not None:
            lines.append(f"process {NULL_GPU} {pid} {used_mib * MIB}")
        written = self._file.with_suffix(".new")
        written.write_text("\n".join(lines) + "\n")
        written.replace(self._file)


needs_null_driver = pytest.mark.skipif(
    not NULL_DRIVER.is_file(), reason="the driver that does nothing is not built"
)
# Tells what it sees of the device, and at the next lines of its input what allocations answer.
USES_DRIVER = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
numbers = [ctypes.c_size_t(), ctypes.c_size_t()]
assert driver.cuInit(0) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert driver.cuMemGetInfo_v2(*map(ctypes.byref, numbers)) == 0
print(*(number.value >> 20 for number in numbers), flush=True)
input()
print(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(30 << 20)), flush=True)
print(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(40 << 20)), flush=True)
input()
"""


@both_ways
@needs_null_driver
@pytest.mark.parametrize("grow", [False, True])
def test_the_shim_waits_in_a_programs_first_allocation(
    machine: dict[str, str], start: Callable[..., Program], tmp_path: Path, grow: bool
) -> None:
    gpu = Gpu(tmp_path)
    options = ("--memory", "60MiB", *(["--grow"] if grow else []))
    first, second = (start(USES_DRIVER, *options, **gpu.environment) for _ in range(2))
    assert (first.says(), second.says()) == ("60 60", "60 60")
    first.goes_on()
    assert [first.says(), first.says()] == ["0", "0" if grow else "2"]
    second.goes_on()
    until(lambda: any(entry["waits"] for entry in reservations({**machine, **gpu.environment})))
    first.goes_on()
    first.ends()
    assert second.says() == "0"
    second.goes_on()
    second.ends()


@needs_null_driver
def test_a_program_that_waits_sees_what_is_given_back_outside(
    machine: dict[str, str], start: Callable[..., Program], tmp_path: Path
) -> None:
    gpu = Gpu(tmp_path)
    program = start(USES_DRIVER, "--memory", "60MiB", **gpu.environment)
    assert program.says() == "60 60"
    gpu.tell(50)
    program.goes_on()
    until(lambda: any(entry["waits"] for entry in reservations({**machine, **gpu.environment})))
    gpu.tell(0)
    assert [program.says(), program.says()] == ["0", "2"]


@needs_null_driver
def test_a_programs_own_context_does_not_stand_in_its_way(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    gpu = Gpu(tmp_path)
    program = start(USES_DRIVER, "--memory", "90MiB", "--timeout", "30", **gpu.environment)
    assert program.says() == "90 90"
    gpu.tell(20, program.process.pid)
    program.goes_on()
    assert program.says() == "0"


@needs_null_driver
def test_growth_sees_what_is_given_back_outside(
    machine: dict[str, str], start: Callable[..., Program], tmp_path: Path
) -> None:
    gpu = Gpu(tmp_path)
    # Who holds it may give it back; what is outside alone would not be waited for.
    neighbour = start(
        "print('has it', flush=True); input()",
        *("--wait", "start", "--memory", "20MiB"),
        **gpu.environment,
    )
    assert neighbour.says() == "has it"
    first = "ctypes.c_size_t(30 << 20)), flush=True)\n"
    code = USES_DRIVER.replace(first, first + "input()\n")
    program = start(code, "--memory", "60MiB", "--grow", **gpu.environment)
    assert program.says() == "60 60"
    program.goes_on()
    assert program.says() == "0"
    gpu.tell(30 + 20)
    program.goes_on()
    until(lambda: any(entry["waits"] for entry in reservations({**machine, **gpu.environment})))
    gpu.tell(30)
    assert program.says() == "0"


@needs_null_driver
def test_contexts_of_commands_that_wait_are_promised_to_nobody(
    machine: dict[str, str], start: Callable[..., Program], tmp_path: Path
) -> None:
    gpu = Gpu(tmp_path)
    first, second = (
        start(USES_DRIVER, "--memory", memory, **gpu.environment) for memory in ("60MiB", "91MiB")
    )
    assert (first.says(), second.says()) == ("60 60", "91 91")
    gpu.tell(10, first.process.pid)
    second.goes_on()
    until(lambda: any(entry["waits"] for entry in reservations({**machine, **gpu.environment})))
    assert {entry["kept_bytes"] for entry in reservations({**machine, **gpu.environment})} == {
        10 * MIB
    }
    # Its context leaves the second too little, which waits for its end: it goes first.
    first.goes_on()
    assert first.says() == "0"
    # Its context ends with it: told before, or the other's look at NVML takes it for an outsider's.
    gpu.tell(0)
    first.goes_on()
    first.ends()
    assert second.says() == "0"
    second.goes_on()
    second.ends()


@pytest.mark.skipif(not FAKE_NVML.is_file(), reason="the stand-in for NVML is not built")
def test_commands_that_have_not_used_their_gpu_yet_count_where_one_is_chosen(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    gpus = tmp_path / "gpus"
    gpus.write_text("gpu GPU-aaaa 1000 100 0\ngpu GPU-bbbb 1000 0 0\n")
    there = {
        "HIPPOGRIFF_DEVICE": "",
        "HIPPOGRIFF_NVML": str(FAKE_NVML),
        "FAKE_NVML_FILE": str(gpus),
    }
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); input()"
    chosen = [start(code, "--memory", "400", **there).says() for _ in range(4)]
    assert chosen == ["GPU-aaaa", "GPU-aaaa", "GPU-bbbb", "GPU-bbbb"]


def test_deferred_reservations_count_as_held_and_then_as_waiting() -> None:
    def free_and_waiting(*deferred_bytes: int) -> tuple[int, int]:
        device = {"uuid": "host", "memory_bytes": 100, "free_bytes": 70}
        entries = [
            {
                "device": "host",
                "waits": False,
                "deferred": True,
                "wanted_bytes": size + 5,
                "kept_bytes": 5,
            }
            for size in deferred_bytes
        ]
        (only,) = candidates({"gpus": [], "devices": [device], "reservations": entries}, 100)
        return only.free_bytes, only.waiting_bytes

    assert free_and_waiting() == (70, 0)
    assert free_and_waiting(30) == (40, 0)
    assert free_and_waiting(30, 40) == (0, 0)
    assert free_and_waiting(30, 60) == (0, 20)


def test_a_device_that_nobody_uses_has_what_this_program_says() -> None:
    device = {"uuid": "host", "memory_bytes": 100, "free_bytes": 70}
    for says, free in ((100, 70), (200, 170), (20, 0)):
        (only,) = candidates({"gpus": [], "devices": [device], "reservations": []}, says)
        assert (only.memory_bytes, only.free_bytes) == (says, free)


def test_file_is_parked_while_the_memory_is_anothers(
    machine: dict[str, str], start: Callable[..., Program], tmp_path: Path
) -> None:
    program, source = BUILD / "bin" / "nn", tmp_path / "in"
    if not program.exists():
        pytest.skip("the papers' programs are not built")
    subprocess.run([program, "generate", source, "2000000"], check=True, timeout=PATIENCE)
    first = start(ALLOCATES.format(size=50), "--memory", "60MiB")
    assert first.says() == "started"
    first.goes_on()
    assert first.says() == "has it"
    words = [str(program), "run", str(source), str(tmp_path / "out"), "--json", "--device", "host"]
    second = start(f"import os; os.execv({words[0]!r}, {words})", "--memory", "60MiB")

    def is_parked() -> bool:
        node = json.loads(hippogriff(machine, "ps", "--json").stdout)
        return any(entry["phase"] in ("parking", "waiting") for entry in node["transfers"])

    until(is_parked)
    first.goes_on()
    first.ends()
    result = json.loads(second.says())
    assert result["movement"]["stats"]["by_lane"]["send"]["parked"]["bytes"] > 0
    second.ends()
