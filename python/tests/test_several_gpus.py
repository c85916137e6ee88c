"""`hippogriff run --gpus N`: it keeps its place, and such commands do not wait for each other."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest
from node_programs import (
    FAKE_NVML,
    HIPPOGRIFF,
    MIB,
    PATIENCE,
    command,
    serving,
    status,
    until,
)

from hippogriff.sharing.several import is_in_the_way

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not FAKE_NVML.is_file(), reason="the stand-in for NVML is not built"
)

A, B, C = "GPU-aaaa", "GPU-bbbb", "GPU-cccc"
BOTH = ("run", "--gpus", "2", "--memory", "600MiB")
HOLD = """
    import sys, hippogriff
    with hippogriff.reserve("600MiB", device="{}"):
        print("has it", flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def gpus(machine: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An environment with two GPUs of 1 GiB."""
    return with_gpus(machine, tmp_path, A, B)


def with_gpus(machine: dict[str, str], folder: Path, *uuids: str) -> dict[str, str]:
    facts = folder / "gpus"
    facts.write_text("".join(f"gpu {uuid} {1 << 30} 0 0\n" for uuid in uuids))
    there = {**machine, "HIPPOGRIFF_NVML": str(FAKE_NVML), "FAKE_NVML_FILE": str(facts)}
    del there["HIPPOGRIFF_DEVICE"]
    return there


class Programs:
    """Programs that are killed at the end of a test."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def start(self, machine: dict[str, str], *words: str) -> subprocess.Popen[str]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.started.append(subprocess.Popen(words, env=machine, text=True, **pipes))  # type: ignore[call-overload]
        return self.started[-1]

    def python(self, machine: dict[str, str], code: str) -> subprocess.Popen[str]:
        return self.start(machine, sys.executable, "-c", textwrap.dedent(code))

    def holder(self, machine: dict[str, str], device: str) -> subprocess.Popen[str]:
        program = self.python(machine, HOLD.format(device))
        expect(program, "has it")
        return program


@pytest.fixture
def programs() -> Iterator[Programs]:
    made = Programs()
    yield made
    for program in made.started:
        program.kill()
        program.communicate()


def expect(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdout is not None
    assert program.stdout.readline() == f"{line}\n", program.stderr and program.stderr.read()


def end(program: subprocess.Popen[str]) -> None:
    """Let a program that waits for the end of its input end well."""
    _, told = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, told


def held(machine: dict[str, str], program: subprocess.Popen[str]) -> set[str]:
    """Return the devices of which a program has memory."""
    entries = status(machine)["reservations"]
    return {e["device"] for e in entries if e["pid"] == program.pid and e["size_bytes"]}


def awaited(machine: dict[str, str], program: subprocess.Popen[str]) -> set[str]:
    """Return the devices that a program waits for."""
    entries = status(machine)["reservations"]
    return {e["device"] for e in entries if e["pid"] == program.pid and e["waits"]}


def test_who_waits_for_the_second_gpu_keeps_the_first(
    gpus: dict[str, str], programs: Programs
) -> None:
    first, second = programs.holder(gpus, A), programs.holder(gpus, B)
    both = programs.start(gpus, *HIPPOGRIFF, *BOTH, "--", "true")
    until(lambda: awaited(gpus, both) == {A})
    later = programs.python(gpus, HOLD.format(A))
    until(lambda: awaited(gpus, later) == {A})
    end(first)
    until(lambda: (held(gpus, both), awaited(gpus, both)) == ({A}, {B}))
    assert awaited(gpus, later) == {A}
    end(second)
    assert both.wait(PATIENCE) == 0
    expect(later, "has it")
    assert not status(gpus)["reservations"] or held(gpus, later) == {A}


def test_it_comes_to_its_turn_beside_those_that_want_one_gpu_again_and_again(
    gpus: dict[str, str], programs: Programs
) -> None:
    bound = ("--overtakes", "2", "--seconds", "1")
    assert command(gpus, "policy", "aging-mmu", *bound).returncode == 0
    again = """
        import time, hippogriff
        print("begins", flush=True)
        while True:
            with hippogriff.reserve("600MiB", device="{}"):
                time.sleep(0.2)
    """
    for device in (A, B, A, B, A, B):
        expect(programs.python(gpus, again.format(device)), "begins")
    begin = time.monotonic()
    for _ in range(3):
        done = command(gpus, *BOTH, "--timeout", str(PATIENCE / 4), "--", "true")
        assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < PATIENCE


def test_several_such_commands_do_not_wait_for_each_other(
    machine: dict[str, str], tmp_path: Path, programs: Programs
) -> None:
    there = with_gpus(machine, tmp_path, A, B, C)
    pairs = [f"{one},{other}" for one in (A, B, C) for other in (A, B, C) if one != other]
    commands = [
        programs.start(
            {**there, "CUDA_VISIBLE_DEVICES": pair}, *HIPPOGRIFF, *BOTH, "--", "sleep", "0.1"
        )
        for pair in pairs
    ]
    for each in commands:
        end(each)


def test_other_gpus_that_are_free_are_taken_at_once(
    machine: dict[str, str], tmp_path: Path, programs: Programs
) -> None:
    there = with_gpus(machine, tmp_path, A, B, C)
    programs.holder(there, A)
    done = command(there, *BOTH, "--timeout", "0", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert done.stdout == f"{B},{C}\n", done.stderr
    refused = command(there, *BOTH[:2], "3", *BOTH[3:], "--timeout", "0", "--", "true")
    assert refused.returncode == 125
    assert "fewer than 3 GPUs" in refused.stderr
    assert len(status(there)["reservations"]) == 1


@pytest.mark.parametrize("behind_a_server", [False, True])
def test_it_gives_way_to_who_has_a_later_gpu(
    gpus: dict[str, str], programs: Programs, tmp_path: Path, behind_a_server: bool
) -> None:
    socket = tmp_path / "node.sock"
    backwards = """
        import sys, hippogriff
        with hippogriff.reserve("600MiB", device="{}"):
            print("has one", flush=True)
            sys.stdin.readline()
            with hippogriff.reserve("600MiB", device="{}"):
                print("has both", flush=True)
                sys.stdin.read()
    """
    with serving(gpus, socket):
        inside = {**gpus, "HIPPOGRIFF_NODE": f"unix:{socket}"} if behind_a_server else gpus
        other = programs.python(inside, backwards.format(B, A))
        expect(other, "has one")
        both = programs.start(inside, *HIPPOGRIFF, *BOTH, "--", "true")
        until(lambda: (held(gpus, both), awaited(gpus, both)) == ({A}, {B}))
        assert other.stdin is not None
        other.stdin.write("\n")
        other.stdin.flush()
        expect(other, "has both")
        assert both.poll() is None
        end(other)
        assert both.wait(PATIENCE) == 0


def test_it_gives_way_to_who_grows(gpus: dict[str, str], programs: Programs) -> None:
    grows = """
        import sys, hippogriff
        with (
            hippogriff.reserve("100MiB", device="{0}") as first,
            hippogriff.reserve("600MiB", device="{1}"),
        ):
            print("has both", flush=True)
            sys.stdin.readline()
            first.resize("600MiB", timeout=None)
            print("has grown", flush=True)
            sys.stdin.read()
    """
    other = programs.python(gpus, grows.format(A, B))
    expect(other, "has both")
    both = programs.start(gpus, *HIPPOGRIFF, *BOTH, "--", "true")
    until(lambda: (held(gpus, both), awaited(gpus, both)) == ({A}, {B}))
    assert other.stdin is not None
    other.stdin.write("\n")
    other.stdin.flush()
    expect(other, "has grown")
    end(other)
    assert both.wait(PATIENCE) == 0


@pytest.mark.parametrize("how", ["time-out", "Ctrl-C"])
def test_what_was_kept_is_given_back_when_the_wait_ends(
    gpus: dict[str, str], programs: Programs, how: str
) -> None:
    programs.holder(gpus, B)
    limit = ("--timeout", "3") if how == "time-out" else ()
    both = programs.start(gpus, *HIPPOGRIFF, *BOTH, *limit, "--", "true")
    until(lambda: (held(gpus, both), awaited(gpus, both)) == ({A}, {B}))
    if how == "Ctrl-C":
        both.send_signal(signal.SIGINT)
    _, told = both.communicate(timeout=PATIENCE)
    assert both.returncode == (124 if how == "time-out" else 130), told
    assert "Traceback" not in told
    (device,) = (each for each in status(gpus)["devices"] if each["uuid"] == A)
    assert device["promised_bytes"] == 0


def entry(client: int, device: str, size: int, *, waits: bool = False) -> dict[str, Any]:
    return {"client": client, "device": device, "size_bytes": size * MIB, "waits": waits}


def test_only_who_does_not_keep_to_the_order_is_given_way_to() -> None:
    def in_the_way(*others: dict[str, Any]) -> bool:
        own = (entry(1, B, 600), entry(1, C, 0, waits=True))
        return is_in_the_way({"reservations": [*own, *others]}, {B})

    assert not in_the_way(entry(2, B, 0, waits=True))
    assert not in_the_way(entry(2, A, 600), entry(2, B, 0, waits=True))
    assert not in_the_way(entry(2, C, 600))
    assert not in_the_way(entry(2, C, 600), entry(2, A, 0, waits=True))
    assert not in_the_way(entry(2, C, 600), entry(3, B, 0, waits=True))
    assert in_the_way(entry(2, B, 300, waits=True))
    assert in_the_way(entry(2, C, 600), entry(2, B, 0, waits=True))
