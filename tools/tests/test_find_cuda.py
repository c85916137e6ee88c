"""tools/find-cuda takes a complete CUDA 13 toolkit and no other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parent.parent / "find-cuda"


def make_toolkit(root: Path, version: str = "13000", leave_out: str = "") -> Path:
    """Write the files by which a toolkit is known."""
    files = {
        "bin/nvcc": "",
        "include/cuda.h": f"#define CUDA_VERSION {version}\n",
        "lib64/libcudart_static.a": "",
    }
    for name, text in files.items():
        if name != leave_out:
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return root


def find(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HIPPOGRIFF_VENV": str(tmp_path / "venv"), **variables}
    command = [str(PROGRAM), "-v"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_cuda_home_comes_before_the_virtual_environment(tmp_path: Path) -> None:
    toolkit = make_toolkit(tmp_path / "toolkit")
    make_toolkit(tmp_path / "venv/lib/python3.11/site-packages/nvidia/cu13")
    assert find(tmp_path, CUDA_HOME=str(toolkit)).stdout.strip() == str(toolkit)


@pytest.mark.skipif(Path("/usr/local/cuda").exists(), reason="a toolkit is installed here")
@pytest.mark.parametrize("leave_out", ["bin/nvcc", "include/cuda.h", "lib64/libcudart_static.a"])
def test_an_incomplete_toolkit_is_passed_over(tmp_path: Path, leave_out: str) -> None:
    toolkit = make_toolkit(tmp_path / "toolkit", leave_out=leave_out)
    result = find(tmp_path, CUDA_HOME=str(toolkit))
    assert result.returncode != 0
    assert f"{toolkit}: no" in result.stderr
    wheels = make_toolkit(tmp_path / "venv/lib/python3.11/site-packages/nvidia/cu13")
    assert find(tmp_path, CUDA_HOME=str(toolkit)).stdout.strip() == str(wheels)


@pytest.mark.skipif(Path("/usr/local/cuda").exists(), reason="a toolkit is installed here")
def test_another_version_is_passed_over(tmp_path: Path) -> None:
    toolkit = make_toolkit(tmp_path / "toolkit", version="12080")
    result = find(tmp_path, CUDA_HOME=str(toolkit))
    assert result.returncode != 0
    assert "not CUDA 13" in result.stderr


def test_nvcc_on_the_path_is_found_through_links(tmp_path: Path) -> None:
    toolkit = make_toolkit(tmp_path / "toolkit")
    (toolkit / "bin/nvcc").chmod(0o755)
    (tmp_path / "links").mkdir()
    (tmp_path / "links/nvcc").symlink_to(toolkit / "bin/nvcc")
    path = os.pathsep.join([str(tmp_path / "links"), "/usr/bin", "/bin"])
    assert find(tmp_path, PATH=path).stdout.strip() == str(toolkit)
