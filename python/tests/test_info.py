"""What ``hippogriff info`` tells of GPUs that nobody uses yet: all that takes no context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hippogriff import _library

BUILD = Path(_library.lib._name).resolve().parent
FAKE_CUDA = BUILD / "libhippogriff_fake_cuda.so"
FAKE_NVML = BUILD / "libhippogriff_fake_nvml.so"
# The fake's second GPU, of 1 GiB.
UUID = "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1"

pytestmark = pytest.mark.skipif(not FAKE_CUDA.exists(), reason="the fake driver was not built")


def _run(*arguments: str, nvml: str = "", gpus: str = "") -> str:
    environ = {
        **os.environ,
        "HIPPOGRIFF_LIBRARY": _library.lib._name,
        "HIPPOGRIFF_CUDA_DRIVER": str(FAKE_CUDA),
        "HIPPOGRIFF_NVML": nvml,
        "FAKE_NVML_FILE": gpus,
        "COLUMNS": "200",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_no_gpu_gets_a_context() -> None:
    program = """
        import ctypes, json, os
        import hippogriff

        fake = ctypes.CDLL(os.environ["HIPPOGRIFF_CUDA_DRIVER"])
        fake.fake_cuda_fail(b"cuDevicePrimaryCtxRetain", 0, 46)  # as where others use it alone
        facts = {"before": hippogriff.info("."), "contexts": fake.fake_cuda_count(b"contexts")}
        fake.fake_cuda_reset()
        with hippogriff.empty(1000, dtype="uint8", device="cuda:1"):
            facts["after"] = hippogriff.info(".")
        print(json.dumps(facts))
    """
    facts = json.loads(_run("-c", textwrap.dedent(program)))
    assert facts["contexts"] == 0
    before = {device["name"]: device for device in facts["before"]["devices"]}
    assert [before[name]["open"] for name in ("cuda:0", "cuda:1", "host")] == [False, False, True]
    assert before["host"]["needs_context"] == []
    after = {device["name"]: device for device in facts["after"]["devices"]}
    assert [after[name]["open"] for name in ("cuda:0", "cuda:1", "host")] == [False, True, True]
    assert after["cuda:1"]["needs_context"] == []
    assert 0 < after["cuda:1"]["memory_free_bytes"] <= 1 << 30
    # All else that is told is as true without a context.
    for key in ("model", "uuid", "numa_node", "memory_total_bytes", "registers_read_only"):
        assert before["cuda:1"][key] == after["cuda:1"][key]
    assert before["cuda:1"]["routes"] == after["cuda:1"]["routes"]
    assert before["cuda:1"]["uuid"] == UUID


def test_what_a_context_would_tell_is_said_to_be_unknown() -> None:
    told = _run("-m", "hippogriff", "info")
    assert "cuda:0, cuda:1: not asked, for want of a context: whether it starts" in told
    assert "how much memory is free: NVML () cannot be opened" in told
    facts = json.loads(_run("-m", "hippogriff", "info", "--json"))
    free = {device["name"]: device["memory_free_bytes"] for device in facts["devices"]}
    assert free["cuda:0"] is free["cuda:1"] is None
    assert free["host"] > 0


@pytest.mark.skipif(not FAKE_NVML.exists(), reason="the stand-in for NVML was not built")
def test_nvml_tells_how_much_memory_is_free(tmp_path: Path) -> None:
    gpus = tmp_path / "gpus"
    # NVML counts all of the memory, and the driver what programs can have.
    gpus.write_text(f"gpu {UUID} {1088 << 20} {288 << 20} 5\n")
    told = _run("-m", "hippogriff", "info", "--json", nvml=str(FAKE_NVML), gpus=str(gpus))
    first, second, _ = json.loads(told)["devices"]
    assert (second["name"], second["memory_free_bytes"]) == ("cuda:1", 800 << 20)
    assert len(second["needs_context"]) == 1
    assert first["memory_free_bytes"] is None
    assert "NVML does not know this device" in first["needs_context"][1]
