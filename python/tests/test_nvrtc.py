"""Kernels with storage arrays are compiled as CuPy and Numba do it, with NVRTC, without a GPU."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hippogriff

KERNEL = """
#include <hippogriff/array.cuh>

struct Point { float x, y, z; };  // of 12 bytes: straddles lines

extern "C" __global__ void every_access(hippogriff::array_view<float> numbers,
                                        hippogriff::array_view<Point> points,
                                        const int* wanted, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    out[i] = numbers[wanted[i]] + points[wanted[i]].y;
    numbers.write(wanted[i], 2 * out[i]);
  }
  hippogriff::array_cursor<float> cursor(numbers);
  out[i] += cursor[i];
  cursor.write(i, 3);
  cursor.let_go();
  const auto warp = hippogriff::ondemand::Lanes::warp();
  numbers.read_range(warp, 0, 128, out);
  numbers.write_range(warp, 128, 128, out);
}
"""
DEVICE_FUNCTION = """
#include <hippogriff/array.cuh>

extern "C" __device__ int feature_at(float* value, unsigned long long view, long long index) {
  *value = (*reinterpret_cast<const hippogriff::array_view<float>*>(view))[index];
  return 0;
}
"""


def find_toolkit() -> Path | None:
    """Find the CUDA toolkit as the build does."""
    script = Path(__file__).resolve().parents[2] / "tools" / "find-cuda"
    found = subprocess.run(
        [script],
        env={"HIPPOGRIFF_VENV": sys.prefix, **os.environ},
        check=False,
        capture_output=True,
        text=True,
    )
    return Path(found.stdout.strip()) if found.returncode == 0 else None


_CLOCK = re.compile(r"%clock\b")  # It draws the accesses that are counted.


class Nvrtc:
    """A compiler of CUDA C++ to PTX."""

    def __init__(self, library: Path, cccl: Path) -> None:
        for builtins in library.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins))  # Where the loader would not find it.
        self._library = ctypes.CDLL(str(library))
        self._cccl = cccl

    def compile(self, source: str, *options: str) -> tuple[str, str]:
        """Return PTX, empty where it does not compile, and what the compiler says."""
        lib, program = self._library, ctypes.c_void_p()
        assert lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"x.cu", 0, 0, 0) == 0
        all_options = [f"-I{self._cccl}", "--gpu-architecture=compute_90", *options]
        words = (ctypes.c_char_p * len(all_options))(*(word.encode() for word in all_options))
        status = lib.nvrtcCompileProgram(program, len(words), words)
        log = self._text("ProgramLog", program)
        ptx = self._text("PTX", program) if status == 0 else ""
        lib.nvrtcDestroyProgram(ctypes.byref(program))
        return ptx, log

    def _text(self, what: str, program: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        assert getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert getattr(self._library, f"nvrtcGet{what}")(program, text) == 0
        return text.value.decode()


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    toolkit = find_toolkit()
    found = [
        *(toolkit.glob("lib*/libnvrtc.so.13") if toolkit else ()),
        *(toolkit.glob("targets/*/lib/libnvrtc.so.13") if toolkit else ()),
    ]
    if toolkit is None or not found:
        if os.environ.get("CI") and os.environ.get("HIPPOGRIFF_CUDA", "ON") == "ON":
            pytest.fail("continuous integration compiles this, and has no NVRTC here")
        pytest.skip("no CUDA 13 toolkit with NVRTC here (pip install nvidia-cuda-nvrtc)")
    return Nvrtc(found[0], toolkit / "include" / "cccl")


@pytest.mark.parametrize("language", ["", "--std=c++20"])  # without: C++17
def test_kernels_of_raw_modules_compile(nvrtc: Nvrtc, language: str) -> None:
    options = [word for word in hippogriff.get_compile_options() if not word.startswith("--std")]
    ptx, log = nvrtc.compile(KERNEL, *options, *([language] if language else []))
    assert not log.strip("\0\n "), log
    assert ".visible .entry every_access(" in ptx
    assert not _CLOCK.search(ptx), "not a register for what nobody asked for"


def test_kernels_count_hits_where_they_are_told_to(nvrtc: Nvrtc) -> None:
    counting, log = nvrtc.compile(KERNEL, *hippogriff.get_compile_options(count_hits=True))
    assert not log.strip("\0\n "), log
    assert _CLOCK.search(counting)


def test_a_device_function_for_numba_compiles(nvrtc: Nvrtc) -> None:
    # As numba-cuda: relocatable, with nothing but folders to search.
    options = ("--relocatable-device-code=true", f"-I{hippogriff.get_include()}")
    ptx, log = nvrtc.compile(DEVICE_FUNCTION, *options)
    assert not log.strip("\0\n "), log
    assert "feature_at(" in ptx


def test_headers_of_another_layout_are_refused(nvrtc: Nvrtc) -> None:
    options = [f"-I{hippogriff.get_include()}", "-DHIPPOGRIFF_VIEW_LAYOUT=99999"]
    ptx, log = nvrtc.compile(DEVICE_FUNCTION, *options)
    assert not ptx
    assert "of another version than these headers" in log
