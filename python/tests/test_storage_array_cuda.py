"""Arrays that live in storage, on a GPU: skipped, visibly, where there is none."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

import hippogriff

np = pytest.importorskip("numpy")
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS, WIDTH = 20_000, 100  # of floats: 8 MB, of rows that straddle lines

GATHER = """
#include <hippogriff/array.cuh>

extern "C" __global__ void gather(hippogriff::array_view<float> data, const long long* wanted,
                                  float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    out[i] = data[wanted[i]];
  }
}

extern "C" __global__ void add_one(hippogriff::array_view<float> data) {
  const long long each = (data.size() + gridDim.x * blockDim.x - 1) / (gridDim.x * blockDim.x);
  const long long begin = (blockIdx.x * blockDim.x + threadIdx.x) * each;
  hippogriff::array_cursor<float> cursor(data);
  for (long long i = begin; i < begin + each && i < data.size(); ++i) {
    cursor.write(i, cursor[i] + 1);
  }
}

struct Sample { unsigned char bytes[12]; };

extern "C" __global__ void copy_samples(hippogriff::array_view<Sample> data, Sample* out) {
  const auto warp = hippogriff::ondemand::Lanes::warp();
  const int part = 128;
  const int warps = gridDim.x * blockDim.x / 32;
  for (long long begin = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * part;
       begin < data.size();
       begin += warps * part) {
    const long long count = data.size() - begin < part ? data.size() - begin : part;
    data.read_range(warp, begin, count, out + begin);
  }
}
"""
FEATURE_AT = """
#include <hippogriff/array.cuh>

extern "C" __device__ int feature_at(float* value, unsigned long long view, long long index) {
  *value = (*reinterpret_cast<const hippogriff::array_view<float>*>(view))[index];
  return 0;
}
"""


@pytest.fixture
def features(tmp_path: Path) -> tuple[Path, Any]:
    """Return a file of rows, and what is in it."""
    expected = np.random.default_rng(11).random((ROWS, WIDTH), dtype="float32")
    path = tmp_path / "features"
    expected.tofile(path)
    return path, expected


@pytest.fixture(params=["torch", "cupy"])
def framework(request: pytest.FixtureRequest) -> Any:
    """Return torch or CuPy, where they see a GPU."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def kernels(cupy: Any) -> Any:
    """Return a module of CuPy with the kernels above."""
    return cupy.RawModule(code=GATHER, options=hippogriff.get_compile_options())


def opened(path: Path, mode: str = "r", **options: Any) -> hippogriff.StorageArray:
    """Open an array with a cache much smaller than the file."""
    options = {"cache": "1MiB", "line": 4096, "shape": (-1, WIDTH), **options}
    return hippogriff.StorageArray(path, "float32", device="cuda:0", mode=mode, **options)


def to_gpu(framework: Any, values: Any) -> Any:
    """Copy to the GPU, as an array of a framework."""
    values = np.asarray(values)
    if framework.__name__ == "torch":
        return framework.from_numpy(values).to("cuda:0")
    return framework.asarray(values)


def to_numpy(array: Any) -> Any:
    """Copy to the host, after what is queued on the current stream."""
    return array.cpu().numpy() if hasattr(array, "cpu") else array.get()


@contextlib.contextmanager
def new_stream(framework: Any) -> Iterator[Any]:
    """Make another stream the current one."""
    if framework.__name__ == "torch":
        stream = framework.cuda.Stream()
        with framework.cuda.stream(stream):
            yield stream
    else:
        with framework.cuda.Stream(non_blocking=True) as stream:
            yield stream


@pytest.mark.parametrize("line", [512, 4096, 65536])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_take_gathers_rows_beside_their_indices(
    features: tuple[Path, Any], framework: Any, kind: str, line: int
) -> None:
    path, expected = features
    indices = np.random.default_rng(1).integers(-ROWS, ROWS, (500, 7)).astype(kind)
    with opened(path, line=line) as array:
        rows = array.take(to_gpu(framework, indices))
        assert type(rows).__module__.partition(".")[0] == framework.__name__
        assert tuple(rows.shape) == (500, 7, WIDTH)
        np.testing.assert_array_equal(to_numpy(rows), expected[indices])
        array.check()
        counts = array.statistics()
        assert counts["misses"] > 0
        assert counts["accesses"] >= indices.size
        assert counts["hits"] == counts["accesses"] - min(counts["accesses"], counts["misses"])


@pytest.mark.parametrize("line", [512, 4096, 65536])
def test_rows_that_were_asked_for_ahead_are_read_once(
    features: tuple[Path, Any], framework: Any, line: int
) -> None:
    path, expected = features
    indices = np.random.default_rng(8).integers(-ROWS, ROWS, 100)
    with opened(path, line=line, cache="64MiB", load="none") as array:
        array.prefetch(slice(1000, 1200))
        array.prefetch(indices[:50])
        array.prefetch(to_gpu(framework, indices[50:]))
        # Those of the host come on a stream of their own: what they ask for is there in the end.
        wanted = np.concatenate([np.arange(1000, 1200), indices])
        np.testing.assert_array_equal(
            to_numpy(array.take(to_gpu(framework, wanted))), expected[wanted]
        )
        lines = {
            part
            for row in wanted % ROWS
            for part in range(row * WIDTH * 4 // line, ((row + 1) * WIDTH * 4 - 1) // line + 1)
        }
        assert array.statistics()["reads"] == len(lines)
        array.prefetch(to_gpu(framework, np.array([ROWS])))
        to_numpy(array.take(to_gpu(framework, indices)))  # comes after it
        with pytest.raises(hippogriff.InvalidArgument, match="beyond the array's end"):
            array.check()


def test_prefetches_beside_gathers_in_a_small_cache_hold_up_nobody(
    features: tuple[Path, Any], framework: Any
) -> None:
    path, expected = features
    random = np.random.default_rng(9)
    with opened(path, line=512, cache="64KiB") as array:
        for _ in range(50):
            indices = random.integers(0, ROWS, 2000)
            array.prefetch(to_gpu(framework, random.integers(0, ROWS, 5000)))
            array.prefetch(slice(int(random.integers(0, ROWS)), None))
            found = array.take(to_gpu(framework, indices))
            np.testing.assert_array_equal(to_numpy(found), expected[indices])
        array.check()


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        ("uint8", 1),
        ("int16", 1),
        ("float32", 1),
        ("float64", 1),
        ("float64", 2),
        ("uint8", 13),
        ("float32", 5000),
    ],
)
def test_rows_of_every_size_are_gathered(
    tmp_path: Path, framework: Any, dtype: str, width: int
) -> None:
    rows = 2_000_000 // width // np.dtype(dtype).itemsize
    expected = np.random.default_rng(2).integers(0, 100, (rows, width)).astype(dtype)
    expected.tofile(tmp_path / "x")
    indices = np.random.default_rng(3).integers(0, rows, 3000)
    with hippogriff.StorageArray(
        tmp_path / "x", dtype, (rows, width), device="cuda:0", cache="256KiB", line=4096
    ) as array:
        found = array.take(to_gpu(framework, indices))
        np.testing.assert_array_equal(to_numpy(found), expected[indices])


def test_put_scatters_rows_and_a_flush_has_them_in_the_file(
    features: tuple[Path, Any], framework: Any
) -> None:
    path, expected = features
    indices = np.random.default_rng(4).permutation(ROWS)[:5000]
    values = np.random.default_rng(5).random((5000, WIDTH), dtype="float32")
    with opened(path, "r+") as array:
        array.put(to_gpu(framework, indices), to_gpu(framework, values))
        array.flush()
        expected[indices] = values
        np.testing.assert_array_equal(np.fromfile(path, "float32").reshape(-1, WIDTH), expected)
        found = array.take(to_gpu(framework, np.arange(ROWS)))
        np.testing.assert_array_equal(to_numpy(found), expected)


def test_work_is_in_the_order_of_the_current_stream(
    features: tuple[Path, Any], framework: Any
) -> None:
    path, expected = features
    with opened(path, "r+") as array, new_stream(framework):
        for turn in range(5):
            indices = to_gpu(framework, np.arange(turn, ROWS, 7))
            rows = array.take(indices)
            rows += turn + 1
            array.put(indices, rows)
            expected[turn::7] += turn + 1
        np.testing.assert_array_equal(array[:50], expected[:50])
        array.flush()
        np.testing.assert_array_equal(np.fromfile(path, "float32").reshape(-1, WIDTH), expected)


def test_a_close_waits_for_what_is_queued(features: tuple[Path, Any], framework: Any) -> None:
    path, expected = features
    indices = np.random.default_rng(6).integers(0, ROWS, 20_000)
    with opened(path) as array, new_stream(framework):
        rows = array.take(to_gpu(framework, indices))
    with new_stream(framework) as stream:
        stream.synchronize()
    np.testing.assert_array_equal(to_numpy(rows), expected[indices])


def test_rows_are_taken_into_an_array_that_is_there(
    features: tuple[Path, Any], framework: Any
) -> None:
    path, expected = features
    out = to_gpu(framework, np.zeros((2, WIDTH), "float32"))
    with opened(path) as array:
        assert array.take(to_gpu(framework, [5, ROWS - 1]), out=out) is out
        np.testing.assert_array_equal(to_numpy(out), expected[[5, ROWS - 1]])


def test_an_index_out_of_range_gives_zeros_and_is_told(
    features: tuple[Path, Any], framework: Any
) -> None:
    path, expected = features
    with opened(path) as array:
        rows = to_numpy(array.take(to_gpu(framework, [1, ROWS, -ROWS - 1, 2])))
        np.testing.assert_array_equal(rows[[0, 3]], expected[[1, 2]])
        assert not rows[1:3].any()
        with pytest.raises(hippogriff.InvalidArgument, match="beyond the array's end"):
            array.check()
        array.clear()
        array.check()


def test_arrays_that_do_not_fit_are_refused(features: tuple[Path, Any], framework: Any) -> None:
    path, _ = features
    good = to_gpu(framework, [1, 2])
    with opened(path) as array:
        for indices, out in [
            (to_gpu(framework, [1.0, 2.0]), None),
            (to_gpu(framework, np.arange(10))[::2], None),
            (good, to_gpu(framework, np.zeros((2, WIDTH), "float64"))),
            (good, to_gpu(framework, np.zeros((2, WIDTH + 1), "float32"))),
            (good, to_gpu(framework, np.zeros((WIDTH, 2), "float32")).T),
            (good, np.zeros((2, WIDTH), "float32")),
        ]:
            with pytest.raises(hippogriff.InvalidArgument):
                array.take(indices, out=out)
        with pytest.raises(hippogriff.InvalidArgument, match="opened for reading"):
            array.put(good, to_gpu(framework, np.zeros((2, WIDTH), "float32")))


def test_parts_are_read_and_written_from_the_host(features: tuple[Path, Any], cupy: Any) -> None:
    del cupy  # a GPU is here
    path, expected = features
    with opened(path, "r+") as array:
        for index in (3, -1, (4, 5), np.s_[2:90], np.s_[::997, 1:30:4], np.s_[10:10]):
            np.testing.assert_array_equal(array[index], expected[index])
        array[10:20:3, 5:9] = 7
        expected[10:20:3, 5:9] = 7
        rows = np.random.default_rng(7).integers(-ROWS, ROWS, 20_000)
        np.testing.assert_array_equal(array.take(rows), expected[rows])
        array.put([7, 9, 7], np.stack([np.full(WIDTH, value) for value in (1, 2, 3)]))
        expected[[7, 9]] = [[3], [2]]
    np.testing.assert_array_equal(np.fromfile(path, "float32").reshape(-1, WIDTH), expected)


def test_a_raw_kernel_of_cupy_reads_by_index(
    features: tuple[Path, Any], cupy: Any, kernels: Any
) -> None:
    path, expected = features
    indices = np.random.default_rng(8).integers(0, expected.size, 50_000)
    wanted, out = cupy.asarray(indices), cupy.zeros(indices.size, "float32")
    with opened(path) as array:
        blocks = -(-indices.size // 256)
        kernels.get_function("gather")(
            (blocks,), (256,), (array.view, wanted, out, np.int32(indices.size))
        )
        np.testing.assert_array_equal(out.get(), expected.ravel()[indices])
        array.check()


def accesses_shown(least: float) -> int:
    """Return what the node is shown of this process's array, twice a second, once it is enough."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for seen in hippogriff.node_status()["arrays"]:
            if seen["pid"] == os.getpid() and seen["accesses"] >= least:
                assert seen["hits_counted"]
                return int(seen["accesses"])
        time.sleep(0.1)
    pytest.fail("the node is not shown what kernels count")


@pytest.mark.parametrize("counts", [False, True])
def test_hits_of_kernels_are_known_where_these_count(
    features: tuple[Path, Any], cupy: Any, *, counts: bool
) -> None:
    path, expected = features
    options = hippogriff.get_compile_options(count_hits=counts)
    kernel = cupy.RawModule(code=GATHER, options=options).get_function("gather")
    # Neighbours, so that a warp asks once for its line or two; again and again, from the cache.
    count = 1 << 18
    wanted = cupy.arange(count, dtype="int64")
    out = cupy.empty(count, "float32")
    with opened(path, cache="8MiB", load="none") as array:
        for _ in range(40):
            kernel((count // 256,), (256,), (array.view, wanted, out, np.int32(count)))
        cupy.cuda.get_current_stream().synchronize()
        array.check()
        found = array.statistics()
        if not counts:
            assert (found["hits_counted"], found["hits"]) == (0, 0)
            return
        asked = 40 * count / 32
        assert found["hits_counted"] == 1
        assert 0.8 * asked < found["accesses"] < 1.3 * asked
        assert found["hits"] > 0.8 * found["accesses"]
        if os.environ.get("HIPPOGRIFF_NODE") != "off":
            assert accesses_shown(0.8 * asked) < 1.3 * asked
    np.testing.assert_array_equal(to_numpy(out), expected.reshape(-1)[:count])


def test_what_a_raw_kernel_wrote_is_in_the_file_after_a_flush(
    features: tuple[Path, Any], kernels: Any
) -> None:
    path, expected = features
    with opened(path, "r+") as array:
        kernels.get_function("add_one")((16,), (64,), (array.view,))
        array.flush()
    np.testing.assert_array_equal(np.fromfile(path, "float32"), expected.ravel() + 1)


def test_a_raw_kernel_reads_ranges_of_structures(tmp_path: Path, cupy: Any, kernels: Any) -> None:
    dtype = np.dtype([("x", "f4"), ("y", "f4"), ("name", "i4")])
    expected = np.frombuffer(np.random.default_rng(9).bytes(12 * 30_001), dtype)
    expected.tofile(tmp_path / "samples")
    out = cupy.zeros(expected.nbytes, "uint8")
    with hippogriff.StorageArray(
        tmp_path / "samples", dtype, device="cuda:0", cache="64KiB", line=512
    ) as array:
        kernels.get_function("copy_samples")((8,), (128,), (array.view, out))
        assert out.get().tobytes() == expected.tobytes()


def test_an_index_out_of_range_in_a_kernel_is_told(
    features: tuple[Path, Any], cupy: Any, kernels: Any
) -> None:
    path, expected = features
    wanted, out = cupy.asarray([expected.size, 3]), cupy.ones(2, "float32")
    with opened(path) as array:
        kernels.get_function("gather")((1,), (32,), (array.view, wanted, out, np.int32(2)))
        assert out.get().tolist() == [0, expected[0, 3]]
        with pytest.raises(hippogriff.InvalidArgument):
            array.check()


@pytest.mark.filterwarnings("ignore:.*Grid size")  # small on purpose
def test_a_kernel_of_numba_reads_through_a_function_of_ours(features: tuple[Path, Any]) -> None:
    numba_cuda = pytest.importorskip("numba.cuda")
    if not numba_cuda.is_available() or not hasattr(numba_cuda, "CUSource"):
        pytest.skip("no numba-cuda with CUSource that sees a GPU here")
    try:
        importlib.import_module("numba.cuda.np.arrayobj")
    except AttributeError as error:  # As numba-cuda's first kernel would find out.
        pytest.skip(f"numba-cuda does not know this NumPy: {error}")
    path, expected = features
    from numba.cuda import config

    config.CUDA_NVRTC_EXTRA_SEARCH_PATHS = hippogriff.get_include()
    feature_at = numba_cuda.declare_device(
        "feature_at", "float32(uint64, int64)", link=numba_cuda.CUSource(FEATURE_AT)
    )

    def gather(view: Any, wanted: Any, out: Any) -> None:
        i = numba_cuda.grid(1)
        if i < out.size:
            out[i] = feature_at(view, wanted[i])

    indices = np.random.default_rng(10).integers(0, expected.size, 10_000)
    out = numba_cuda.device_array(indices.size, "float32")
    with opened(path) as array:
        view = np.uint64(array.view_address)
        kernel = numba_cuda.jit(gather)[-(-indices.size // 256), 256]
        kernel(view, numba_cuda.to_device(indices), out)
        np.testing.assert_array_equal(out.copy_to_host(), expected.ravel()[indices])


def test_a_file_that_cannot_be_registered_is_read_through_staging_memory(
    features: tuple[Path, Any], framework: Any
) -> None:
    path, expected = features
    indices = np.random.default_rng(12).integers(0, ROWS - 1, 2000)
    with opened(path, offset=4 * WIDTH) as array:
        found = to_numpy(array.take(to_gpu(framework, indices)))
        np.testing.assert_array_equal(found, expected[indices + 1])


def test_a_row_beyond_a_file_that_was_cut_is_zeros_and_told(
    features: tuple[Path, Any], framework: Any
) -> None:
    path, _ = features
    with opened(path, offset=4 * WIDTH) as array:
        with path.open("r+b") as file:
            file.truncate(1_000_000)
        assert not to_numpy(array.take(to_gpu(framework, [ROWS - 2]))).any()
        with pytest.raises(hippogriff.ShortFile):
            array.check()
