"""Reservations in Python, and the commands run, ps, policy, metrics, noded."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from node_programs import (
    FAKE_NVML,
    MIB,
    NULL_GPU,
    PATIENCE,
    command,
    needs_null_driver,
    status,
    until,
    with_null_gpu,
)

import hippogriff
from hippogriff._node import Reservation
from hippogriff.errors import InvalidArgument, OutOfDeviceMemory
from hippogriff.sharing.metrics import listen_address
from hippogriff.sharing.placement import Candidate, order, visible
from hippogriff.sharing.run import environment, shim_folder
from hippogriff.sharing.show import command_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def python(code: str, machine: dict[str, str]) -> subprocess.Popen[str]:
    """Start a program that uses hippogriff."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=machine,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(program: subprocess.Popen[str]) -> str:
    """Wait for a program that must succeed; return what it printed."""
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, err
    return out


HOLDER = """
    import sys, hippogriff
    with hippogriff.reserve("{size}"):
        print("has it", flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def holder(machine: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A program that holds 60 MiB until its input ends."""
    program = python(HOLDER.format(size="60MiB"), machine)
    assert program.stdout is not None
    assert program.stdout.readline() == "has it\n"
    yield program
    program.kill()
    program.communicate()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (True, "neither bytes nor a size"),
        (1.5, "neither bytes nor a size"),
        (None, "neither bytes nor a size"),
        (-1, "1 byte is the least"),
        (2**63, "more than any device has"),
        (str(2**63), "too large"),
    ],
)
def test_what_is_no_size_is_not_reserved(size: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        hippogriff.reserve(size, device="host")


def test_a_reservation_lasts_as_long_as_its_block(machine: dict[str, str]) -> None:
    finished(
        python(
            """
            import hippogriff
            with hippogriff.reserve("60MiB", device="host") as held:
                assert held.size_bytes == 60 << 20
                assert held.device == "host"
                held.resize("80MiB")
                assert hippogriff.node_status()["devices"][0]["promised_bytes"] == 80 << 20
                for size, timeout, kind in (
                    ("30MiB", 0, hippogriff.Busy),
                    ("30MiB", 0.05, hippogriff.TimedOut),
                    ("101MiB", None, hippogriff.OutOfDeviceMemory),
                    (0, 0, hippogriff.InvalidArgument),
                    ("1MiB", -1, hippogriff.InvalidArgument),
                ):
                    try:
                        hippogriff.reserve(size, timeout=timeout)
                    except kind:
                        continue
                    raise AssertionError(size)
            assert held.size_bytes == 0
            held.release()
            assert not hippogriff.node_status()["reservations"]
            """,
            machine,
        )
    )


def test_a_program_waits_for_another(
    machine: dict[str, str], holder: subprocess.Popen[str]
) -> None:
    waiter = python(
        """
        import hippogriff
        with hippogriff.reserve("50MiB", timeout=60):
            print("has it too")
        """,
        machine,
    )
    until(lambda: any(entry["waits"] for entry in status(machine)["reservations"]))
    assert waiter.poll() is None
    holder.send_signal(signal.SIGKILL)
    assert finished(waiter) == "has it too\n"


@pytest.mark.parametrize("way", ["reserve", "resize", "server"])
def test_ctrl_c_ends_a_wait(
    machine: dict[str, str], holder: subprocess.Popen[str], tmp_path: Path, way: str
) -> None:
    there = machine
    if way == "server":
        socket = tmp_path / "node.sock"
        server = subprocess.Popen(
            [sys.executable, "-m", "hippogriff", "noded", "--socket", str(socket)], env=machine
        )
        until(socket.exists)
        there = {**machine, "HIPPOGRIFF_NODE": f"unix:{socket}"}
    waiter = python(
        f"""
        import hippogriff
        try:
            if {way == "resize"}:
                hippogriff.reserve("10MiB").resize("50MiB", timeout=None)
            else:
                hippogriff.reserve("50MiB")
        except KeyboardInterrupt:
            print(sum(entry["waits"] for entry in hippogriff.node_status()["reservations"]))
        """,
        there,
    )
    until(lambda: any(entry["waits"] for entry in status(machine)["reservations"]))
    waiter.send_signal(signal.SIGINT)
    assert finished(waiter) == "0\n"
    assert holder.poll() is None
    if way == "server":
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0


def test_run_keeps_the_command_to_its_memory(machine: dict[str, str]) -> None:
    code = """
    import hippogriff
    try:
        hippogriff.empty(41 << 20, "uint8")
    except hippogriff.OutOfDeviceMemory:
        pass
    else:
        raise AssertionError
    array = hippogriff.empty(40 << 20, "uint8")
    print(hippogriff.node_status()["devices"][0]["promised_bytes"] >> 20)
    """
    result = command(
        machine, "run", "--memory", "40MiB", "--", sys.executable, "-c", textwrap.dedent(code)
    )
    assert result.stdout == "40\n", result.stderr
    assert not status(machine)["reservations"]


def test_run_ends_as_the_command_does(machine: dict[str, str]) -> None:
    memory = ("--memory", "10MiB", "--")
    assert command(machine, "run", *memory, "sh", "-c", "exit 3").returncode == 3
    assert command(machine, "run", *memory, "sh", "-c", "kill -9 $$").returncode == -9
    missing = command(machine, "run", *memory, "no-such-program")
    assert missing.returncode == 127
    assert "no-such-program" in missing.stderr
    assert command(machine, "run", *memory, "/dev/null").returncode == 126
    assert command(machine, "run", *memory, "echo", "--json", "-x").stdout == "--json -x\n"


def test_run_refuses_what_can_never_fit_and_what_does_not_fit_in_time(
    machine: dict[str, str], holder: subprocess.Popen[str]
) -> None:
    never = command(machine, "run", "--memory", "101MiB", "--", "true")
    assert never.returncode == 125
    assert "101.00 MiB" in never.stderr
    assert "100.00 MiB" in never.stderr
    late = command(machine, "run", "--memory", "50MiB", "--timeout", "1.5", "--", "true")
    assert late.returncode == 124
    assert "waiting for 50.00 MiB" in late.stderr
    assert command(machine, "run", "--memory", "50MiB", "--timeout", "0", "--", "true").returncode
    assert holder.poll() is None


def test_killing_the_command_gives_its_memory_back(machine: dict[str, str]) -> None:
    sleeper = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "run", "--memory", "100MiB", "--", "sleep", "600"],
        env=machine,
    )
    until(lambda: any(entry["command"] == "sleep 600" for entry in status(machine)["reservations"]))
    sleeper.kill()
    sleeper.wait(PATIENCE)
    assert command(machine, "run", "--memory", "100MiB", "--", "true").returncode == 0


def test_ps_and_metrics_show_who_holds_and_who_waits(
    machine: dict[str, str], holder: subprocess.Popen[str]
) -> None:
    waiter = python(HOLDER.format(size="70MiB"), machine)
    until(lambda: len(status(machine)["reservations"]) == 2)
    held, waiting = status(machine)["reservations"]
    assert held["pid"] == holder.pid
    assert held["size_bytes"] == 60 * MIB
    assert waiting["pid"] == waiter.pid
    assert waiting["wanted_bytes"] == 70 * MIB
    shown = command({**machine, "COLUMNS": "200"}, "ps").stdout
    assert str(holder.pid) in shown
    assert "for 70.00 MiB" in shown
    lines = command(machine, "metrics").stdout.splitlines()
    assert 'hippogriff_device_promised_bytes{device="host"} 6.291456e+07' in lines
    assert 'hippogriff_waiting{device="host"} 1.0' in lines
    waiter.kill()
    waiter.communicate()


def test_metrics_are_served(machine: dict[str, str], holder: subprocess.Popen[str]) -> None:
    import urllib.request

    server = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "metrics", "--listen", "0"],
        env=machine,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        with urllib.request.urlopen(server.stdout.readline().strip(), timeout=PATIENCE) as answer:
            assert b"hippogriff_reservations" in answer.read()
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)
    assert holder.poll() is None


def test_top_shows_the_same_until_it_is_interrupted(
    machine: dict[str, str], holder: subprocess.Popen[str]
) -> None:
    # On a busy machine it may be interrupted before it has shown anything.
    for seconds in (2, 10, 40):
        top = subprocess.Popen(
            [sys.executable, "-m", "hippogriff", "top", "--interval", "0.1"],
            env={**machine, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(seconds)
        top.send_signal(signal.SIGINT)
        out, _ = top.communicate(timeout=PATIENCE)
        assert top.returncode in {0, 130, -2}
        if str(holder.pid) in out:
            break
    else:
        pytest.fail(f"top did not show process {holder.pid}")


def test_the_policy_is_the_nodes(machine: dict[str, str]) -> None:
    assert command(machine, "policy").stdout == "fifo\n"
    assert command(machine, "policy", "aging-mmu", "--overtakes", "3").returncode == 0
    facts = json.loads(command(machine, "policy", "--json").stdout)
    assert facts == {"policy": "aging-mmu", "overtakes_max": 3, "overtake_seconds_max": 30.0}
    assert command(machine, "policy", "best").returncode == 1


def test_a_command_behind_a_socket_shares_with_programs_beside_the_segment(
    machine: dict[str, str], tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    socket = tmp_path / "node.sock"
    server = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "noded", "--socket", str(socket)], env=machine
    )
    until(socket.exists)
    inside = {**machine, "HIPPOGRIFF_NODE": f"unix:{socket}"}
    wish = ("run", "--memory", "50MiB", "--timeout")
    assert command(inside, *wish, "0", "--", "true").returncode == 125
    holder.kill()
    result = command(inside, *wish, "60", "--", "sh", "-c", "exit 5")
    assert result.returncode == 5, result.stderr
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE) == 0
    assert not socket.exists()


@pytest.mark.skipif(not FAKE_NVML.is_file(), reason="the stand-in for NVML is not built")
def test_what_a_program_behind_a_socket_uses_of_a_gpu_counts_once(
    machine: dict[str, str], tmp_path: Path
) -> None:
    gpus, socket = tmp_path / "gpus", tmp_path / "node.sock"
    gpu = f"gpu GPU-aaaa {100 * MIB} {60 * MIB} 0\n"
    gpus.write_text(gpu)
    there = {**machine, "HIPPOGRIFF_NVML": str(FAKE_NVML), "FAKE_NVML_FILE": str(gpus)}
    inside = {**there, "HIPPOGRIFF_NODE": f"unix:{socket}"}
    words = [sys.executable, "-m", "hippogriff", "noded", "--socket", str(socket)]
    with subprocess.Popen(words, env=there) as server:
        until(socket.exists)
        asks = """
            import hippogriff
            with hippogriff.reserve("{size}MiB", device="GPU-aaaa", timeout=60):
                print("has it", flush=True)
                input()
        """
        user = python(asks.format(size=50), inside)
        gpus.write_text(gpu + f"process GPU-aaaa {user.pid} {60 * MIB}\n")
        assert user.stdout is not None
        assert user.stdout.readline() == "has it\n"
        other = python(asks.format(size=40), inside)
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n", "of 100, beside 50 and what is used beyond it"
        (device,) = (each for each in status(inside)["devices"] if each["uuid"] == "GPU-aaaa")
        assert device["outside_bytes"] == 10 * MIB
        pids = {entry["pid"] for entry in status(there)["reservations"]}
        assert pids == {user.pid, other.pid}
        for program in (user, other):
            program.communicate("\n", timeout=PATIENCE)
        server.send_signal(signal.SIGTERM)


@pytest.mark.skipif(not FAKE_NVML.is_file(), reason="the stand-in for NVML is not built")
def test_run_chooses_a_gpu_and_shows_it_alone(machine: dict[str, str], tmp_path: Path) -> None:
    gpus = tmp_path / "gpus"
    gpus.write_text("gpu GPU-aaaa 1000 900 5\ngpu GPU-bbbb 1000 500 0\ngpu GPU-cccc 1000 0 0\n")
    there = {**machine, "HIPPOGRIFF_NVML": str(FAKE_NVML), "FAKE_NVML_FILE": str(gpus)}
    del there["HIPPOGRIFF_DEVICE"]

    def chosen(*arguments: str, **more: str) -> str:
        result = command(
            {**there, **more}, "run", "--timeout", "0", *arguments, "--",
            "sh", "-c", "echo $CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
        return result.stdout.strip() or result.stderr

    assert chosen("--memory", "300") == "GPU-bbbb"
    assert chosen("--memory", "300", "--placement", "spread") == "GPU-cccc"
    assert chosen("--memory", "50") == "GPU-aaaa"
    assert chosen("--memory", "300", "--gpus", "2") == "GPU-bbbb,GPU-cccc"
    assert chosen("--memory", "300", CUDA_VISIBLE_DEVICES="2") == "GPU-cccc"
    assert "free" in chosen("--memory", "300", CUDA_VISIBLE_DEVICES="GPU-aaaa")
    assert "largest device" in chosen("--memory", "1001")
    assert "3 are here" in chosen("--memory", "10", "--gpus", "4")


ALLOCATE = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
numbers = [ctypes.c_size_t(), ctypes.c_size_t()]
assert driver.cuInit(0) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
print(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(41 << 20)))
print(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(30 << 20)))
assert driver.cuMemGetInfo_v2(*map(ctypes.byref, numbers)) == 0
print(*(number.value >> 20 for number in numbers), flush=True)
"""


@needs_null_driver
@pytest.mark.parametrize(
    ("options", "answers", "promised"),
    [((), ("2", "0", "10 40"), 40), (("--grow",), ("0", "0", "0 71"), 71)],
    ids=["fixed", "growing"],
)
def test_run_puts_the_shim_between_a_program_and_the_driver(
    machine: dict[str, str],
    tmp_path: Path,
    options: tuple[str, ...],
    answers: tuple[str, str, str],
    promised: int,
) -> None:
    there = with_null_gpu(machine, tmp_path)
    wait = "import sys; sys.stdin.read()"
    program = subprocess.Popen(
        [
            *(sys.executable, "-m", "hippogriff", "run", "--memory", "40MiB", *options, "--"),
            *(sys.executable, "-c", ALLOCATE + wait),
        ],
        env=there,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert tuple(program.stdout.readline().strip() for _ in range(3)) == answers
    (device,) = status(there)["devices"]
    assert device["promised_bytes"] == promised * MIB
    (client,) = (client for client in status(there)["clients"] if client["used_bytes"])
    assert client["used_bytes"] == {NULL_GPU: (71 if options else 30) * MIB}
    program.communicate()
    assert program.returncode == 0
    assert status(there)["devices"][0]["promised_bytes"] == 0


@pytest.mark.skipif(shim_folder() is None, reason="the shim is not built")
def test_numba_is_told_to_load_the_shim_unless_it_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = shim_folder()
    assert folder is not None
    held = [Reservation(ctypes.c_void_p(), "GPU-aaaa")]
    monkeypatch.delenv("NUMBA_CUDA_DRIVER", raising=False)
    assert Path(environment(held, "")["NUMBA_CUDA_DRIVER"]).samefile(folder / "libcuda.so.1")
    monkeypatch.setenv("NUMBA_CUDA_DRIVER", "0")
    assert environment(held, "")["NUMBA_CUDA_DRIVER"] == "0"


DEVICES = [Candidate("a", 100, 30, 0), Candidate("b", 100, 60, 0), Candidate("c", 50, 50, 0)]


def test_devices_are_packed_or_spread() -> None:
    assert [device.uuid for device in order(DEVICES, 25, "pack")] == ["a", "c", "b"]
    assert [device.uuid for device in order(DEVICES, 25, "spread")] == ["b", "c", "a"]
    assert [device.uuid for device in order(DEVICES, 70, "pack")] == ["b", "a"]
    waiting = [Candidate("a", 100, 80, 10), Candidate("b", 100, 0, 5)]
    assert [device.uuid for device in order(waiting, 70, "pack")] == ["b", "a"]
    with pytest.raises(OutOfDeviceMemory):
        order(DEVICES, 101, "pack")


GPUS = [
    {"uuid": "GPU-1f", "index": 0, "model": "A"},
    {"uuid": "GPU-2f", "index": 1, "model": "B"},
]


def test_visible_devices_are_understood_or_refused() -> None:
    assert visible(GPUS, {}) == GPUS
    assert visible(GPUS, {"CUDA_VISIBLE_DEVICES": "GPU-2"}) == GPUS[1:]
    in_order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible(GPUS, {"CUDA_VISIBLE_DEVICES": "1,0", **in_order}) == GPUS[::-1]
    for text in ("1", "", "GPU-", "GPU-9", "-1"):
        with pytest.raises(InvalidArgument):
            visible(GPUS, {"CUDA_VISIBLE_DEVICES": text})


def test_addresses_to_listen_on() -> None:
    assert listen_address("9400") == ("127.0.0.1", 9400)
    assert listen_address("0.0.0.0:9400") == ("0.0.0.0", 9400)
    for text in ("", "here", "1:2:x", "70000", "-1"):
        with pytest.raises(InvalidArgument):
            listen_address(text)


def test_command_lines_are_shown_without_control_characters() -> None:
    odd = subprocess.Popen(["sh", "-c", "exec sleep 600 #\x1b[31m"])
    until(lambda: command_of(odd.pid) != "")
    assert "\x1b" not in command_of(odd.pid)
    odd.kill()
    odd.wait()
    assert command_of(odd.pid) == ""


def test_the_node_is_off_where_it_is_switched_off(machine: dict[str, str]) -> None:
    finished(
        python(
            """
            import hippogriff
            hippogriff.empty(1000, "uint8")
            try:
                hippogriff.reserve(1)
            except hippogriff.Unsupported:
                print("off")
            """,
            {**machine, "HIPPOGRIFF_NODE": "off"},
        )
    )


def test_a_groups_books_are_open_to_the_group(machine: dict[str, str]) -> None:
    segment = Path(machine["HIPPOGRIFF_NODE"])
    shared = {**machine, "HIPPOGRIFF_NODE": f"group:{os.getegid()}:{segment}"}
    ran = command(shared, "run", "--memory", "60MiB", "--", sys.executable, "-c", "print('ran')")
    assert (ran.returncode, ran.stdout) == (0, "ran\n"), ran.stderr
    assert stat.S_IMODE(segment.stat().st_mode) == 0o660
    assert "group:NAME" in command(machine, "ps").stderr, "one user's books are another thing"
    unknown = command({**machine, "HIPPOGRIFF_NODE": "group:no such group"}, "ps")
    assert unknown.returncode != 0
    assert "there is no group 'no such group'" in unknown.stderr


def test_the_books_are_found_from_another_folder(machine: dict[str, str]) -> None:
    segment = Path(machine["HIPPOGRIFF_NODE"])
    code = """
    import os; os.chdir("/")
    import hippogriff
    print(*(device["promised_bytes"] >> 20 for device in hippogriff.node_status()["devices"]))
    """
    inside = {
        **machine,
        "HIPPOGRIFF_NODE": segment.name,
        "PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path),
    }
    words = ("run", "--memory", "40MiB", "--", sys.executable, "-c", textwrap.dedent(code))
    result = command(inside, *words, cwd=segment.parent)
    assert (result.returncode, result.stdout) == (0, "40\n"), result.stderr


def test_a_program_works_alone_where_there_can_be_no_node(machine: dict[str, str]) -> None:
    said = finished(
        python(
            """
            import warnings, hippogriff
            with warnings.catch_warnings(record=True) as caught:
                hippogriff.read("/proc/self/exe")
            print(*(warning.message for warning in caught))
            """,
            {**machine, "HIPPOGRIFF_NODE": "/nowhere/segment"},
        )
    )
    assert "other programs do not know what this one uses" in said
    assert "/nowhere/" in said
