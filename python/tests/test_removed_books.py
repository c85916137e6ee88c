"""Books that somebody removes while commands of `hippogriff run` hold memory by them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hippogriff._library import lib
from hippogriff.sharing.run import shim_folder

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
PATIENCE = 60
FAKE_NVML = Path(lib._name).resolve().parent / "libhippogriff_fake_nvml.so"
NULL_DRIVER = FAKE_NVML.with_name("libhippogriff_null_cuda.so")
NULL_GPU = "GPU-01010101-0101-0101-0101-010101010101"
HIPPOGRIFF = (sys.executable, "-m", "hippogriff")

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
    words = (*HIPPOGRIFF, "run", "--memory", size, "--timeout", "0", "--", "true")
    return subprocess.run(
        words, env=machine, capture_output=True, timeout=PATIENCE, check=False
    ).returncode


def status(machine: dict[str, str]) -> dict[str, Any]:
    """Return what `hippogriff ps --json` says."""
    told = subprocess.run(
        [*HIPPOGRIFF, "ps", "--json"], env=machine, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_a_running_command_holds_is_not_promised_again(machine: dict[str, str]) -> None:
    books = Path(machine["HIPPOGRIFF_NODE"])
    command = (
        *HIPPOGRIFF,
        "run",
        "--memory",
        "60MiB",
        "--",
        "sh",
        "-c",
        "echo here; exec sleep 600",
    )
    running = subprocess.Popen(command, env=machine, stdout=subprocess.PIPE, text=True)
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


@pytest.mark.skipif(
    not NULL_DRIVER.is_file() or shim_folder() is None,
    reason="the driver that does nothing, or the shim, is not built",
)
def test_processes_of_a_command_go_on_sharing_its_memory(
    machine: dict[str, str], tmp_path: Path
) -> None:
    gpus = tmp_path / "gpus"
    gpus.write_text(f"gpu {NULL_GPU} {1 << 30} 0 0\n")
    there = {
        **machine,
        "HIPPOGRIFF_NVML": str(FAKE_NVML),
        "FAKE_NVML_FILE": str(gpus),
        "HIPPOGRIFF_CUDA_DRIVER": str(NULL_DRIVER),
    }
    del there["HIPPOGRIFF_DEVICE"]
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
