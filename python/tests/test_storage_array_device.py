"""Arrays that live in storage on a GPU, over the fake driver, which runs the library's kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import hippogriff
from hippogriff import _device_rows, _library

np = pytest.importorskip("numpy")
FAKE_CUDA = Path(_library.lib._name).resolve().parent / "libhippogriff_fake_cuda.so"
needs_fake = pytest.mark.skipif(not FAKE_CUDA.exists(), reason="the fake driver was not built")

BEGIN = """
    import ctypes, os, sys
    import numpy as np
    import pytest
    import hippogriff

    expected = np.random.default_rng(3).random((500, 37), dtype="float32")
    expected.tofile("numbers")
    fake = ctypes.CDLL(os.environ["HIPPOGRIFF_CUDA_DRIVER"])

    class Elsewhere:
        '''An array of another framework's, on a GPU.'''
        def __init__(self, array, **others):
            self.array, self.shape = array, array.shape
            self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **others}

    # The fake's memory is the host's.
    def seen(array):
        address = array.__cuda_array_interface__["data"][0]
        size = array.nbytes
        flat = np.frombuffer((ctypes.c_char * size).from_address(address), array.dtype)
        return flat.reshape(array.shape)

    def on_gpu(values, dtype=None, device="cuda:0"):
        values = np.asarray(values, dtype)
        array = hippogriff.empty(values.shape, values.dtype, device)
        seen(array)[...] = values
        return array

    def open_numbers(**options):
        options = {"mode": "r+", "device": "cuda:0", "cache": 16384, "line": 512, **options}
        return hippogriff.StorageArray("numbers", "float32", (500, 37), **options)
"""


def run(program: str, folder: Path) -> None:
    """Run a program on the fake GPU."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BEGIN) + textwrap.dedent(program)],
        cwd=folder,
        env={
            **os.environ,
            "HIPPOGRIFF_LIBRARY": _library.lib._name,
            "HIPPOGRIFF_CUDA_DRIVER": str(FAKE_CUDA),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_fake
def test_parts_are_read_and_written_from_the_host(tmp_path: Path) -> None:
    run(
        """
        with open_numbers() as array:
            assert (array.device, array.shape) == ("cuda:0", (500, 37))
            for index in (3, -1, (4, 5), np.s_[2:9], np.s_[::7, 1:30:4], np.s_[10:10], ...):
                np.testing.assert_array_equal(array[index], expected[index])
            array[10:20:3, 5:9] = np.arange(4)
            expected[10:20:3, 5:9] = np.arange(4)
            rows = np.random.default_rng(5).integers(-500, 500, (40, 50))
            np.testing.assert_array_equal(array.take(rows), expected[rows])
            array.put([7, 9, 7], np.stack([np.full(37, value) for value in (1, 2, 3)]))
            expected[[7, 9]] = [[3], [2]]
            array.flush()
            found = np.fromfile("numbers", "float32").reshape(500, 37)
            np.testing.assert_array_equal(found, expected)
            array[0] = 2
            assert array.statistics()["misses"] > 0
        assert np.fromfile("numbers", "float32")[0] == 2, "the context flushes"
        """,
        tmp_path,
    )


@needs_fake
def test_rows_are_gathered_and_scattered_beside_their_indices(tmp_path: Path) -> None:
    run(
        """
        with open_numbers() as array:
            for kind in ("int32", "int64", "uint32", "uint64"):
                first = 0 if kind[0] == "u" else -500
                indices = np.random.default_rng(6).integers(first, 500, (7, 9))
                rows = array.take(on_gpu(indices, kind))
                assert isinstance(rows, hippogriff.Array)
                assert (rows.device, rows.shape) == ("cuda:0", (7, 9, 37))
                np.testing.assert_array_equal(seen(rows), expected[indices])
            out = on_gpu(np.zeros((2, 37), "float32"))
            assert array.take(Elsewhere(on_gpu([3, 4])), out=out) is out
            np.testing.assert_array_equal(seen(out), expected[3:5])
            assert array.take(on_gpu(np.zeros(0, "int64"))).shape == (0, 37)
            array.put(on_gpu([8, -1]), on_gpu(np.full((2, 37), 7, "float32")))
        expected[[8, -1]] = 7
        found = np.fromfile("numbers", "float32").reshape(500, 37)
        np.testing.assert_array_equal(found, expected)
        """,
        tmp_path,
    )


@needs_fake
def test_an_index_out_of_range_gives_zeros_and_is_told(tmp_path: Path) -> None:
    run(
        """
        with open_numbers() as array:
            rows = array.take(on_gpu([1, 500, -501, 2]))
            np.testing.assert_array_equal(seen(rows)[[0, 3]], expected[[1, 2]])
            assert not seen(rows)[1:3].any()
            with pytest.raises(hippogriff.InvalidArgument, match="beyond the array's end"):
                array.check()
            with pytest.raises(hippogriff.InvalidArgument):
                array.flush()
            array.clear()
            array.check()
            array.put(on_gpu([500]), on_gpu(np.ones((1, 37), "float32")))
            with pytest.raises(hippogriff.InvalidArgument):
                array.check()
            array.clear()
        found = np.fromfile("numbers", "float32").reshape(500, 37)
        np.testing.assert_array_equal(found, expected)
        """,
        tmp_path,
    )


@needs_fake
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    run(
        """
        array = open_numbers()
        good, values = on_gpu([1, 2]), on_gpu(np.ones((2, 37), "float32"))
        for indices, out, words in [
            (on_gpu([1.0, 2.0]), None, "not float64"),
            (on_gpu([1, 2], "int16"), None, "not int16"),
            (on_gpu([1, 2], device="cuda:1"), None, "on cuda:1, the array on cuda:0"),
            (Elsewhere(on_gpu([1, 2, 3]), shape=(2,), strides=(16,)), None, "contiguous"),
            (Elsewhere(good, data=(4096, False)), None, "not in the memory"),
            (good, on_gpu(np.ones((2, 36), "float32")), "has shape"),
            (good, on_gpu(np.ones((2, 37), "float64")), "float64"),
            (good, np.ones((2, 37), "float32"), "in host memory"),
            (good, Elsewhere(values, data=(values.address, True)), "read-only"),
            (good, Elsewhere(values, stream=7), "different streams"),
        ]:
            with pytest.raises(hippogriff.InvalidArgument, match=words):
                array.take(indices, out=out)
        with pytest.raises(hippogriff.InvalidArgument, match="the array of values has shape"):
            array.put(good, on_gpu(np.ones(37, "float32")))
        with pytest.raises(IndexError):
            array.take([500])
        array.check()
        array.close()
        with pytest.raises(hippogriff.InvalidArgument, match="closed"):
            array.take(good)
        with open_numbers(mode="r") as array, pytest.raises(hippogriff.InvalidArgument):
            array.put(good, values)
        """,
        tmp_path,
    )


@needs_fake
def test_views_are_for_kernels(tmp_path: Path) -> None:
    run(
        """
        array = open_numbers()
        view = array.view
        assert (type(view), view.size) == (np.ndarray, 1)  # what CuPy passes by value
        count = np.frombuffer(view.tobytes()[-8:], "uint64")[0]
        assert count == 500 * 37
        address = array.view_address
        assert address == array.view_address
        assert ctypes.string_at(address, view.nbytes) == view.tobytes()
        array.close()
        for name in ("view", "view_address"):
            with pytest.raises(hippogriff.InvalidArgument, match="closed"):
                getattr(array, name)
        """,
        tmp_path,
    )


@needs_fake
def test_rows_are_asked_for_ahead_from_the_host_and_beside_their_indices(tmp_path: Path) -> None:
    run(
        """
        with open_numbers(mode="r", cache=1 << 20, load="none") as array:
            array.prefetch(slice(10, 20))
            array.prefetch([30, -1])
            array.prefetch(on_gpu([40, -3], "int32"))
            misses = array.statistics()["misses"]
            wanted = [*range(10, 20), 30, -1, 40, -3]
            np.testing.assert_array_equal(seen(array.take(on_gpu(wanted))), expected[wanted])
            assert array.statistics()["misses"] == misses > 0
            array.check()
            array.prefetch(on_gpu([500]))
            with pytest.raises(hippogriff.InvalidArgument, match="beyond the array's end"):
                array.check()
            array.clear()
            array.prefetch(on_gpu(np.zeros(0, "int64")))
            with pytest.raises(IndexError):
                array.prefetch([500])
            with pytest.raises(hippogriff.InvalidArgument, match="not float64"):
                array.prefetch(on_gpu([1.0]))
        with pytest.raises(hippogriff.InvalidArgument, match="closed"):
            array.prefetch(on_gpu([1]))
        """,
        tmp_path,
    )


@needs_fake
def test_a_close_waits_for_what_was_queued(tmp_path: Path) -> None:
    run(
        """
        indices = np.random.default_rng(8).integers(0, 500, 3000)
        with open_numbers(mode="r") as array:
            rows = array.take(on_gpu(indices))
        np.testing.assert_array_equal(seen(rows), expected[indices])
        """,
        tmp_path,
    )


def test_views_and_device_indices_are_not_for_the_host(tmp_path: Path) -> None:
    np.arange(10.0).tofile(tmp_path / "x")
    with hippogriff.StorageArray(tmp_path / "x", "float64") as array:
        for name in ("view", "view_address"):
            with pytest.raises(hippogriff.Unsupported, match="device host"):
                getattr(array, name)
        array.check()
        array.clear()
    assert not _device_rows.is_on_gpu(np.arange(3))


def test_the_headers_are_found_and_their_content_is_in_the_options() -> None:
    folder = Path(hippogriff.get_include())
    assert (folder / "hippogriff" / "array.cuh").is_file()
    language, include, layout, headers = hippogriff.get_compile_options()
    assert (language, include) == ("--std=c++17", f"-I{folder}")
    assert layout.removeprefix("-DHIPPOGRIFF_VIEW_LAYOUT=").isdigit()
    assert int(headers.removeprefix("-DHIPPOGRIFF_HEADERS="), 16) > 0
    assert hippogriff.get_compile_options(count_hits=True) == (
        *hippogriff.get_compile_options(),
        "-DHIPPOGRIFF_COUNT_ACCESSES",
    )
