"""What tests of programs that share devices have in common: starting them, asking, waiting."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hippogriff._library import lib
from hippogriff.sharing.run import shim_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
# Seconds: the machine may be busy with other things.
PATIENCE = 60
FAKE_NVML = Path(lib._name).resolve().parent / "libhippogriff_fake_nvml.so"
NULL_DRIVER = FAKE_NVML.with_name("libhippogriff_null_cuda.so")
NULL_GPU = "GPU-01010101-0101-0101-0101-010101010101"
HIPPOGRIFF = (sys.executable, "-m", "hippogriff")

needs_null_driver = pytest.mark.skipif(
    not NULL_DRIVER.is_file() or shim_folder() is None,
    reason="the driver that does nothing, or the shim, is not built",
)


def with_null_gpu(machine: dict[str, str], folder: Path) -> dict[str, str]:
    """Return an environment with a GPU of 1 GiB, whose driver does nothing."""
    gpus = folder / "gpus"
    gpus.write_text(f"gpu {NULL_GPU} {1 << 30} 0 0\n")
    there = {
        **machine,
        "HIPPOGRIFF_NVML": str(FAKE_NVML),
        "FAKE_NVML_FILE": str(gpus),
        "HIPPOGRIFF_CUDA_DRIVER": str(NULL_DRIVER),
    }
    del there["HIPPOGRIFF_DEVICE"]
    return there


def command(
    machine: dict[str, str], *arguments: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `hippogriff` with these arguments."""
    return subprocess.run(
        [*HIPPOGRIFF, *arguments],
        env=machine,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        **options,
    )


def status(machine: dict[str, str]) -> dict[str, Any]:
    """Return what ps says."""
    done = command(machine, "ps", "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for as long as a busy machine may take."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def serving(machine: dict[str, str], socket: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a server of the machine's node there, which ends well when it is told to."""
    server = subprocess.Popen([*HIPPOGRIFF, "noded", "--socket", str(socket)], env=machine)
    try:
        until(socket.exists)
        yield server
        server.terminate()
        assert server.wait(PATIENCE) in {0, -9}
    finally:
        server.kill()
        server.wait()
