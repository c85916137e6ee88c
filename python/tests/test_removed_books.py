"""Books that somebody removes while commands of `hippogriff run` hold memory by them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from node_programs import (
    HIPPOGRIFF,
    MIB,
    command,
    needs_null_driver,
    status,
    until,
    with_null_gpu,
)

# Allocates what each line of its input says, in MiB; 0: in a process of its own, 10 MiB.
ALLOCATE = """
import ctypes, os, subprocess, sys
driver = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for line in sys.stdin:
    if line.strip() == "0":
        subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[1]], input="10\\n", text=True)
        continue
    size = ctypes.c_size_t(int(line) << 20)
    print(driver.cuMemAlloc_v2(ctypes.byref(memory), size), flush=True)
"""


def run(machine: dict[str, str], size: str) -> int:
    """Return what `hippogriff run` says at once of a command that does nothing."""
    words = ("run", "--memory", size, "--timeout", "0", "--", "true")
    return int(command(machine, *words).returncode)


def test_what_a_running_command_holds_is_not_promised_again(machine: dict[str, str]) -> None:
    books = Path(machine["HIPPOGRIFF_NODE"])
    words = ("run", "--memory", "60MiB", "--", "sh", "-c", "echo here; exec sleep 600")
    running = subprocess.Popen(
        [*HIPPOGRIFF, *words], env=machine, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "here\n"
    for _ in range(3):
        books.unlink()
        assert run(machine, "41MiB") == 125
        assert run(machine, "40MiB") == 0
    (reservation,) = status(machine)["reservations"]
    assert (reservation["size_bytes"], reservation["pid"]) == (60 * MIB, running.pid)
    running.kill()
    running.wait()
    running.stdout.close()
    assert run(machine, "100MiB") == 0


@needs_null_driver
def test_processes_of_a_command_go_on_sharing_its_memory(
    machine: dict[str, str], tmp_path: Path
) -> None:
    there = with_null_gpu(machine, tmp_path)
    program = subprocess.Popen(
        [
            *(*HIPPOGRIFF, "run", "--memory", "40MiB", "--"),
            *(sys.executable, "-c", ALLOCATE, ALLOCATE),
        ],
        env=there,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None

    def allocated(mib: int) -> str:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(f"{mib}\n")
        program.stdin.flush()
        return program.stdout.readline().strip()

    assert allocated(20) == "0"
    Path(there["HIPPOGRIFF_NODE"]).unlink()
    assert run(there, "990MiB") == 125, "the command has 40 of 1024"
    assert allocated(0) == "0", "a new process of it has ten of the twenty that are left"
    assert allocated(11) == "0", "which it gave back"
    assert allocated(0) == "2", "and the old one counts by the same books"
    assert allocated(10) == "2"
    assert allocated(9) == "0"
    assert status(there)["devices"][0]["promised_bytes"] == 40 * MIB
    program.communicate()
    assert program.returncode == 0
    until(lambda: status(there)["devices"][0]["promised_bytes"] == 0)
