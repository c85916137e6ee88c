"""How the arrays of a load to the CPU come by their memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hippogriff import _library
from hippogriff._frameworks import make_framework
from hippogriff.safetensors import _load, load_file, save_file

_MIB = 1 << 20


def _flags_at(address: int) -> list[str]:
    """Return the kernel's flags of the mapping that has an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "VmFlags:":
            return line.split()[1:]
    raise AssertionError(f"no mapping has {address:#x}")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file({f"{i}": np.full(9 * _MIB, i, np.uint8) for i in range(8)}, path)
    return path


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the kernel has no huge pages"
)
@pytest.mark.parametrize("framework", ["np", pytest.param("pt", marks=pytest.mark.torch)])
def test_large_arrays_ask_for_huge_pages(model: Path, framework: str) -> None:
    if framework == "pt":
        pytest.importorskip("torch")
    for array in load_file(model, framework=framework).values():
        address = array.data_ptr() if framework == "pt" else array.ctypes.data
        assert "hg" in _flags_at(address + 4 * _MIB)


@pytest.mark.torch
def test_arrays_side_by_side_stay_few_mappings() -> None:
    torch = pytest.importorskip("torch")
    framework = make_framework("pt", "cpu")
    before = len(Path("/proc/self/maps").read_text().splitlines())
    arrays = framework.empties(["U8"] * 500, [(9 * _MIB,)] * 500)
    after = len(Path("/proc/self/maps").read_text().splitlines())
    assert after < before + 100
    assert isinstance(arrays[0], torch.Tensor)


_WITHOUT_ROOM = """
import resource, sys
import torch
from hippogriff.errors import OutOfHostMemory
from hippogriff.safetensors import load_file, safe_open
load_file(sys.argv[1])
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, ((used << 10) + (30 << 20), resource.RLIM_INFINITY))
for load in (load_file, lambda path: safe_open(path, "pt").get_tensor("0")):
    try:
        load(sys.argv[2])
        print("loaded")
    except OutOfHostMemory as error:
        print("tensor '0'" in str(error))
"""


@pytest.mark.torch
def test_too_little_memory_for_torch_is_told_as_that(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small, large = tmp_path / "small.safetensors", tmp_path / "large.safetensors"
    save_file({"0": np.zeros(4, np.uint8)}, small)
    save_file({"0": np.zeros(64 * _MIB, np.uint8)}, large)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_ROOM, small, large],
        env={**os.environ, "HIPPOGRIFF_LIBRARY": _library.lib._name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_all_arrays_are_made_before_one_transfer_fills_them(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def told(name: str) -> Any:
        called = getattr(_load, name)

        def call(*arguments: Any, **more: Any) -> Any:
            seen.append(name)
            return called(*arguments, **more)

        return call

    for name in ("make_arrays", "start_segments"):
        monkeypatch.setattr(_load, name, told(name))
    loaded = load_file(model, framework="np")
    assert all((array == int(name)).all() for name, array in loaded.items())
    assert len(seen) > 2
    assert seen == ["make_arrays"] * (len(seen) - 1) + ["start_segments"]
