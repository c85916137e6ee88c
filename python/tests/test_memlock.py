"""Little memory that may be locked: everything loads, and one warning says what is slower."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from hippogriff import _library

FAKE_CUDA = Path(_library.lib._name).parent / "libhippogriff_fake_cuda.so"
LIMITED = """
    import resource
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))
"""


def _run(program: str, *arguments: object, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED) + textwrap.dedent(program)]
        + [str(argument) for argument in arguments],
        env={**os.environ, **more, "HIPPOGRIFF_LIBRARY": _library.lib._name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return str(done.stdout)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of 40 MB, on the drive alone where the file system lets go of it."""
    random = np.random.default_rng(1)
    tensors = {f"t{number}": random.standard_normal((1000, 1000)) for number in range(5)}
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


@pytest.mark.parametrize("link", ["", "4GB"])
def test_everything_loads_on_the_host_with_one_warning_at_most(model: Path, link: str) -> None:
    program = """
        import pathlib, sys, warnings
        import hippogriff
        from hippogriff.safetensors import load_file, safe_open, save_file

        path = pathlib.Path(sys.argv[1])
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                first = hippogriff.read(path, device="host").to_numpy().tobytes()
                assert first == path.read_bytes()
                for route in ("pipelined", "mapped", "parked"):
                    array = hippogriff.read(path, device="host", route=route)
                    assert array.to_numpy().tobytes() == first
                hippogriff.write(path.with_name("copy"), array)
                assert path.with_name("copy").read_bytes() == first
                if sys.argv[2]:
                    continue  # NumPy's memory is not that of a device behind a link
                loaded = load_file(path, framework="np")
                with safe_open(path, framework="np") as file:
                    for name in file.keys():
                        assert (file.get_tensor(name) == loaded[name]).all()
                save_file(loaded, path.with_name("again"))
        told = [str(warning.message) for warning in seen]
        # Nothing is slower where io_uring does not count its rings, since Linux 5.12.
        assert hippogriff.info(path)["notices"] == [] or "ulimit -l unlimited" in told[0]
        print(len(told) <= 1)
    """
    assert _run(program, model, link, HIPPOGRIFF_HOST_LINK=link) == "True\n"


@pytest.mark.skipif(not FAKE_CUDA.exists(), reason="the fake driver was not built")
@pytest.mark.parametrize("status", [304, 2, 800])
def test_a_driver_that_pins_no_memory_is_slower_and_told_once(model: Path, status: int) -> None:
    program = """
        import ctypes, os, pathlib, sys, warnings
        from concurrent.futures import ThreadPoolExecutor
        import hippogriff

        path = pathlib.Path(sys.argv[1])
        fake = ctypes.CDLL(os.environ["HIPPOGRIFF_CUDA_DRIVER"])
        fake.fake_cuda_fail(b"cuMemHostRegister", 0, int(sys.argv[2]))

        def load(_):
            array = hippogriff.read(path, device="cuda:0")
            hippogriff.write(path.with_name(f"copy{_}"), array)
            small = hippogriff.empty(1000, dtype="uint8", device="cuda:0")
            with hippogriff.open(path) as file:
                file.read_into(small)
            assert small.to_numpy().tobytes() == path.read_bytes()[:1000]
            return array.to_numpy().tobytes() == path.read_bytes()

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert all(map(load, range(3)))
            with ThreadPoolExecutor(4) as pool:
                assert all(pool.map(load, range(4)))
        (warning,) = seen
        assert warning.category is RuntimeWarning
        for words in ("cuda:0", "not pinned", "slower", "ulimit -l unlimited", "memlock=-1"):
            assert words in str(warning.message), str(warning.message)
        (notice,) = hippogriff.info(path)["notices"]
        assert notice in str(warning.message)
        print(warning.message)
    """
    told = _run(program, model, status, HIPPOGRIFF_CUDA_DRIVER=str(FAKE_CUDA))
    assert told.startswith("hippogriff: copies to and from cuda:0 go through memory")


@pytest.mark.skipif(not FAKE_CUDA.exists(), reason="the fake driver was not built")
def test_a_driver_that_pins_memory_is_nothing_to_warn_of(model: Path) -> None:
    program = """
        import sys, warnings
        import hippogriff

        warnings.simplefilter("error")
        print(hippogriff.read(sys.argv[1], device="cuda:0").device)
    """
    assert _run(program, model, HIPPOGRIFF_CUDA_DRIVER=str(FAKE_CUDA)) == "cuda:0\n"
