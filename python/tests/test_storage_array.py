"""Arrays that live in storage, on device host, beside NumPy's own."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import hippogriff
from hippogriff import _storage_abi, _storage_options
from hippogriff._abi import Status
from hippogriff._library import lib

np = pytest.importorskip("numpy")
_HEADER = Path(__file__).resolve().parents[2] / "include" / "hippogriff" / "array.h"


@pytest.fixture
def numbers(tmp_path: Path) -> tuple[Path, Any]:
    """Return a file of 500 rows of 37 numbers, and what is in it."""
    expected = np.random.default_rng(11).random((500, 37), dtype="float32")
    path = tmp_path / "numbers"
    path.write_bytes(expected.tobytes())
    return path, expected


@pytest.mark.parametrize(
    "index",
    [
        3,
        -1,
        (4, 5),
        (slice(2, 9), slice(None)),
        (slice(None, None, 7), slice(1, 30, 4)),
        (..., 36),
        slice(10, 10),
        ...,
    ],
)
def test_an_index_reads_what_numpy_would(numbers: tuple[Path, Any], index: object) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (-1, 37), cache=8192, line=512) as array:
        assert array.shape == (500, 37)
        np.testing.assert_array_equal(array[index], expected[index])


def test_assigning_changes_the_file_at_the_flush(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (500, 37), mode="r+", cache=4096) as array:
        array[3, 4] = 7
        array[10:20:3, 5:9] = np.arange(4)
        array[499] = 1
        array.flush()
        expected[3, 4] = 7
        expected[10:20:3, 5:9] = np.arange(4)
        expected[499] = 1
        np.testing.assert_array_equal(np.fromfile(path, "float32").reshape(500, 37), expected)
        array[0] = 2
    assert np.fromfile(path, "float32")[0] == 2, "the context flushes"


def test_random_rows_move_as_numpy_would(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    path = tmp_path / "rows"
    for turn in range(36):
        rows, row, line = (
            int(random.integers(1, 400)),
            int(random.integers(1, 3000)),
            1 << int(random.integers(9, 14)),
        )
        before = random.integers(0, 256, (rows, row), dtype="uint8")
        before.tofile(path)
        expected = before.copy()
        mode = ("r+", "c")[turn % 2]
        cache = line * int(random.integers(1, 40))
        said = (rows, row, line, cache, mode)
        with hippogriff.StorageArray(
            path,
            "uint8",
            (rows, row),
            mode=mode,
            cache=cache,
            line=line,
            io=("cached", "direct", "auto")[turn % 3],
        ) as array:
            for _ in range(3):
                places = random.integers(0, rows, int(random.integers(1, 500)))
                values = random.integers(0, 256, (places.size, row), dtype="uint8")
                array.put(places, values)
                for place, value in zip(places, values, strict=True):
                    expected[place] = value
                some = random.integers(0, rows, 50)
                np.testing.assert_array_equal(array.take(some), expected[some], str(said))
            np.testing.assert_array_equal(array[:], expected, str(said))
        left = np.fromfile(path, "uint8").reshape(rows, row)
        np.testing.assert_array_equal(left, expected if mode == "r+" else before, str(said))


def test_take_and_put_move_rows(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    rows = np.random.default_rng(5).integers(-500, 500, (40, 50))
    with hippogriff.StorageArray(path, "float32", (500, 37), mode="r+", cache=16384) as array:
        np.testing.assert_array_equal(array.take(rows), expected[rows])
        out = np.empty((2, 37), "float32")
        assert array.take([1, 2], out=out) is out
        np.testing.assert_array_equal(out, expected[1:3])
        array.put([7, 9, 7], np.stack([np.full(37, value) for value in (1, 2, 3)]))
        assert array[7, 0] == 3
        assert array[9, 36] == 2
        assert array.take([]).shape == (0, 37)
        counted = array.statistics()
        assert counted["misses"] > 0
        assert counted["hits"] <= counted["accesses"]
        assert counted["in_flight"] == 0
        with pytest.raises(IndexError):
            array.take([500])
        with pytest.raises(hippogriff.InvalidArgument):
            array.take([1.5])
        with pytest.raises(hippogriff.InvalidArgument):
            array.take([1], out=np.empty((1, 36), "float32"))


def test_threads_gather_at_once(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    rows = np.random.default_rng(6).integers(0, 500, 3000)
    wrong = []
    with hippogriff.StorageArray(path, "float32", (500, 37), cache=8192, line=512) as array:

        def gather() -> None:
            if not np.array_equal(array.take(rows), expected[rows]):
                wrong.append(threading.get_ident())

        threads = [threading.Thread(target=gather) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_new_file_has_the_size_of_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with hippogriff.StorageArray(path, "int16", (100, 3), mode="w+", offset=10) as array:
        assert not array[...].any()
        array[99, 2] = -1
    assert path.stat().st_size == 610
    assert path.read_bytes()[-2:] == b"\xff\xff"


def test_stripes_of_several_files_are_one_array(tmp_path: Path) -> None:
    expected = np.random.default_rng(2).integers(0, 2**31, 10_000)
    stripes = [expected[begin : begin + 512] for begin in range(0, 10_000, 512)]
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(stripe.tobytes() for stripe in stripes[number::3]))
    with hippogriff.StorageArray(paths, "int64", mode="r+", cache=8192, stripe="4KiB") as array:
        assert array.paths == tuple(map(str, paths))
        np.testing.assert_array_equal(array[...], expected)
        array[512:1024] = 5
    assert (np.fromfile(paths[1], "int64")[:512] == 5).all()
    np.testing.assert_array_equal(np.fromfile(paths[0], "int64")[:512], expected[:512])
    with pytest.raises(hippogriff.InvalidArgument, match="striped"):
        hippogriff.StorageArray(paths, "int64")
    paths[2].write_bytes(b"short")
    with pytest.raises(hippogriff.InvalidArgument, match=re.escape(str(paths[0]))):
        hippogriff.StorageArray(paths, "int64", stripe="4KiB")


def test_a_copy_that_is_broken_is_read_elsewhere(numbers: tuple[Path, Any], tmp_path: Path) -> None:
    path, expected = numbers
    other = tmp_path / "copy"
    shutil.copy(path, other)
    with hippogriff.StorageArray(
        [path, other], "float32", (500, 37), mode="r+", cache=4096, layout="replicated"
    ) as array:
        array[7] = 1
        expected[7] = 1
        array.flush()
        assert path.read_bytes() == other.read_bytes() == expected.tobytes()
        os.truncate(other, 0)
        np.testing.assert_array_equal(array[...], expected)
        assert array.statistics()["other_copies"] > 0
        assert [each["failed"] for each in array.explain()["files"]] == [False, True]
        assert array.statistics()["failures"] == 0


@pytest.mark.parametrize("io", ["cached", "direct", "auto"])
def test_the_page_cache_or_not_is_no_difference_to_the_bytes(
    numbers: tuple[Path, Any], io: str
) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (500, 37), mode="r+", cache=8192, io=io) as array:
        np.testing.assert_array_equal(array[...], expected)
        array[100:400, 3] = 9
    expected[100:400, 3] = 9
    assert path.read_bytes() == expected.tobytes()
    with pytest.raises(hippogriff.InvalidArgument, match="io"):
        hippogriff.StorageArray(path, "float32", io="quick")


def test_explain_tells_what_it_stands_on_and_what_would_be_better(
    numbers: tuple[Path, Any],
) -> None:
    path, _ = numbers
    with hippogriff.StorageArray(path, "float32", cache="1MiB", io="cached", load="none") as array:
        told = array.explain()
    assert (told["loaded_bytes"], told["load_reason"]) == (0, "asked for")
    assert told["files"][0]["path"] == str(path)
    assert (told["source"], told["reason"]) == ("files through the page cache", "asked for")
    assert told["better"] == "load"
    assert told["load"]["seconds"] > 0


def test_an_array_whose_file_has_no_name_any_more_is_explained(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", cache="64KiB", load="none") as array:
        path.unlink()
        assert array[-1] == expected.ravel()[-1]
        assert "load" not in array.explain()


def test_only_arrays_are_filled(numbers: tuple[Path, Any]) -> None:
    path, _ = numbers
    with hippogriff.StorageArray(path, "float32", (-1, 37)) as array:
        for out in ([0] * 37, memoryview(bytearray(4 * 37))):
            with pytest.raises(hippogriff.InvalidArgument, match="not a NumPy array"):
                array.take([0], out=out)


@pytest.mark.parametrize("load", ["auto", "all", "none"])
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_what_fits_is_loaded_when_it_is_opened_unless_told_otherwise(
    numbers: tuple[Path, Any], mode: str, load: str
) -> None:
    path, expected = numbers
    wanted = np.arange(499, -1, -1)
    with hippogriff.StorageArray(
        path, "float32", (500, 37), mode=mode, cache=expected.nbytes + 4096, line=512, load=load
    ) as array:
        told, counted = array.explain(), array.statistics()
        loaded = 0 if load == "none" else expected.nbytes
        assert told["loaded_bytes"] == counted["loaded_bytes"] == loaded
        assert told["better"] == ("load" if load == "none" else "array")
        np.testing.assert_array_equal(array.take(wanted), expected[wanted])
        assert (array.statistics()["misses"] == 0) == (load != "none")
        if mode != "r":
            array[3:7] = expected[3:7] = -1
            array.flush()
            np.testing.assert_array_equal(array[...], expected)
    kept = np.fromfile(path, "float32").reshape(500, 37)
    assert (kept[3:7] == expected[3:7]).all() == (mode != "c")


def test_a_load_that_cannot_be_is_refused_or_left_out(numbers: tuple[Path, Any]) -> None:
    path, _ = numbers
    for load, words in (("all", "do not fit"), ("some", 'not "auto"'), (3, "not one of")):
        with pytest.raises(hippogriff.InvalidArgument, match=words):
            hippogriff.StorageArray(path, "float32", cache=8192, load=load)  # type: ignore[arg-type]
    with hippogriff.StorageArray(path, "float32", cache=8192) as array:
        assert array.explain()["load_reason"] == "it is larger than the cache"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_ends_a_load_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def end(_number: int, _frame: object) -> None:
        raise RuntimeError("the handler's own")

    class Library:
        """What is called while a signal is on its way."""

        status: int | None = None

        def hippogriff_array_open(self, options: Any, handle: Any) -> int:
            threading.Timer(0.03, os.kill, (os.getpid(), number)).start()
            self.status = lib.hippogriff_array_open(options, handle)
            return self.status

    library = Library()
    path = tmp_path / "zeros"
    path.touch()
    os.truncate(path, 512 << 20)  # a tenth of a second and more
    before = signal.signal(number, end)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(_storage_options, "lib", library)
            with pytest.raises(RuntimeError, match="the handler's own"):
                hippogriff.StorageArray(path, "uint8", cache="1GiB", line="1MiB", load="all")
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)
    assert library.status == Status.CANCELLED
    os.truncate(path, 1 << 20)
    with hippogriff.StorageArray(path, "uint8", load="all") as array:
        assert array.statistics()["loaded_bytes"] == 1 << 20


def test_mode_c_changes_the_array_and_no_file(numbers: tuple[Path, Any], tmp_path: Path) -> None:
    path, expected = numbers
    before = path.read_bytes()
    path.chmod(0o400)
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    with hippogriff.StorageArray(
        path, "float32", (500, 37), mode="c", cache=4096, line=512, overlay=overlay
    ) as array:
        array[::2] = 3
        expected[::2] = 3
        array.flush()
        np.testing.assert_array_equal(array[...], expected)
        array[1, :5] = 4
        expected[1, :5] = 4
        np.testing.assert_array_equal(array.take(np.arange(500)), expected)
        assert not list(overlay.iterdir())
    assert path.read_bytes() == before
    with pytest.raises(hippogriff.IoError, match="nowhere"):
        hippogriff.StorageArray(path, "float32", mode="c", overlay=tmp_path / "nowhere")


def test_changes_of_mode_c_are_in_tmpdir_else_beside_the_file(
    numbers: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected = numbers
    monkeypatch.delenv("TMPDIR", raising=False)
    with hippogriff.StorageArray(path, "float32", mode="c", cache=512, line=512) as array:
        array[:1000] = 1
        np.testing.assert_array_equal(array[1000:], expected.reshape(-1)[1000:])
        assert (array[:1000] == 1).all()
    monkeypatch.setenv("TMPDIR", str(path / "nowhere"))
    with pytest.raises(hippogriff.IoError, match="nowhere"):
        hippogriff.StorageArray(path, "float32", mode="c")


def test_what_cannot_be_is_refused(numbers: tuple[Path, Any]) -> None:
    path, _ = numbers
    refused = [
        {"mode": "x"},
        {"line": 1000},
        {"cache": 100},
        {"cache": "much"},
        {"shape": (501, 37)},
        {"shape": (-1, 38)},
        {"shape": (0, 37)},
        {"offset": -1},
        {"offset": 10**9},
    ]
    for options in refused:
        with pytest.raises(hippogriff.InvalidArgument):
            hippogriff.StorageArray(path, "float32", **options)  # type: ignore[arg-type]
    with pytest.raises(hippogriff.InvalidArgument, match="cuda:99"):
        hippogriff.StorageArray(path, "float32", device="cuda:99")
    with pytest.raises(FileNotFoundError):
        hippogriff.StorageArray(path.parent / "none", "float32")
    with (
        hippogriff.StorageArray(path, "float32") as array,
        pytest.raises(hippogriff.InvalidArgument),
    ):
        array[0] = 1
    with pytest.raises(hippogriff.InvalidArgument):
        array[0]


def test_a_file_that_was_cut_raises(numbers: tuple[Path, Any]) -> None:
    path, _ = numbers
    with hippogriff.StorageArray(path, "float32", (500, 37), load="none") as array:
        with path.open("r+b") as file:
            file.truncate(5000)
        with pytest.raises(hippogriff.ShortFile) as raised:
            array[400]
        assert raised.value.object == str(path)


def test_structures_and_functions_are_those_of_the_header(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not _HEADER.is_file():
        pytest.skip("no C compiler, or no header beside an installed package")
    declared = set(re.findall(r"HIPPOGRIFF_API int (\w+)\(", _HEADER.read_text()))
    assert declared == set(_storage_abi.FUNCTIONS)
    lines = ["#include <stdio.h>", "#include <hippogriff/array.h>", "int main(void) {"]
    expected = []
    for name, structure in {
        "hippogriff_array_options": _storage_abi.ArrayOptions,
        "hippogriff_array_statistics": _storage_abi.ArrayStatistics,
        "hippogriff_device_rows": _storage_abi.DeviceRows,
    }.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(str(ctypes.sizeof(structure)))
        for field in structure._fields_:
            lines.append(f'printf("%zu\\n", offsetof({name}, {field[0]}));')
            expected.append(str(getattr(structure, field[0]).offset))
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run(
        [compiler, f"-I{_HEADER.parents[1]}", str(source), "-o", str(program)], check=True
    )
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert printed.split() == expected


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint64"])
def test_rows_may_be_named_by_any_integers(tmp_path: Path, kind: str) -> None:
    expected = np.arange(100_000, dtype="int32")
    path = tmp_path / "long"
    path.write_bytes(expected.tobytes())
    rows = np.array([3, 100, 0], kind) if kind[0] == "u" else np.array([3, -1, 100], kind)
    with hippogriff.StorageArray(path, "int32", cache=4096) as array:
        np.testing.assert_array_equal(array.take(rows), expected[rows])


def test_nothing_is_taken_into_memory_that_is_read_only(numbers: tuple[Path, Any]) -> None:
    path, _ = numbers
    out = np.zeros((2, 37), "float32")
    out.flags.writeable = False
    with (
        hippogriff.StorageArray(path, "float32", (-1, 37), cache=4096) as array,
        pytest.raises(hippogriff.InvalidArgument, match="read-only"),
    ):
        array.take([1, 2], out=out)
    assert not out.any()


# Writes every row again and again, each time with the next number, and says what was flushed.
WRITES_AND_FLUSHES = """
import sys
import hippogriff
with hippogriff.StorageArray(sys.argv[1], "float32", (500, 37), mode="r+", cache=8192) as array:
    for number in range(1, 10_000):
        for row in range(0, 500, 50):
            array[row : row + 50] = number
        array.flush()
        print(number, flush=True)
"""


@pytest.mark.parametrize("flushes", [1, 4])
def test_what_a_flush_acknowledged_is_there_after_a_kill(
    numbers: tuple[Path, Any], flushes: int
) -> None:
    path, _ = numbers
    path.write_bytes(bytes(path.stat().st_size))
    command = [sys.executable, "-c", WRITES_AND_FLUSHES, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(flushes):
            assert process.stdout.readline()
        process.kill()
        rest = process.stdout.read().split()
    acknowledged = max([flushes, *map(int, rest)])
    found = np.fromfile(path, "float32")
    assert found.min() >= acknowledged
    assert found.max() <= acknowledged + 1


@pytest.mark.parametrize(
    "rows",
    [
        3,
        -1,
        slice(2, 90),
        slice(None, None, 7),
        slice(-3, None),
        slice(490, 5000),
        [7, 3, -2, 7],
        np.arange(40, dtype="int32").reshape(5, 8),
        np.uint64(499),
    ],
)
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_rows_that_were_prefetched_are_there_when_they_are_taken(
    numbers: tuple[Path, Any], rows: Any, mode: str
) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(
        path, "float32", (500, 37), mode=mode, cache="1MiB", line=512, load="none"
    ) as array:
        array.prefetch(rows)
        misses = array.statistics()["misses"]
        assert misses > 0
        wanted = np.atleast_1d(np.arange(500)[rows])
        np.testing.assert_array_equal(array.take(wanted), expected[wanted])
        np.testing.assert_array_equal(array.take(wanted), expected[wanted])
        array.prefetch(rows)
        counted = array.statistics()
        assert counted["misses"] == misses
        assert counted["hits"] > 0


def test_a_prefetch_of_more_than_the_cache_asks_for_what_fits(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (500, 37), cache=8192, line=512) as array:
        for rows in (slice(None), slice(None, None, 3), np.arange(500)):
            before = array.statistics()["misses"]
            array.prefetch(rows)
            assert array.statistics()["misses"] - before <= 8
        np.testing.assert_array_equal(array[:], expected)
        array.check()


def test_rows_that_cannot_be_prefetched_are_told(numbers: tuple[Path, Any]) -> None:
    path, _ = numbers
    array = hippogriff.StorageArray(path, "float32", (500, 37))
    for beyond in (500, -501, [3, 500]):
        with pytest.raises(IndexError, match="out of the 500"):
            array.prefetch(beyond)
    for wrong in ((1, 2), 1.5, "row", np.ones(500, "bool"), slice(9, 3, -1), slice("a", None)):
        with pytest.raises(hippogriff.InvalidArgument):
            array.prefetch(wrong)
    none: tuple[Any, ...] = ([], slice(9, 9), slice(600, 700))
    for nothing in none:
        array.prefetch(nothing)
    assert array.statistics()["misses"] == 0
    array.close()
    with pytest.raises(hippogriff.InvalidArgument, match="closed"):
        array.prefetch(3)
    with (
        hippogriff.StorageArray(path, "float32", ()) as scalar,
        pytest.raises(hippogriff.InvalidArgument, match="without dimensions"),
    ):
        scalar.prefetch(0)


def test_a_prefetch_beside_threads_that_take_holds_up_nobody(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (500, 37), cache=2048, line=512) as array:
        wrong: list[BaseException] = []

        def work(thread: int) -> None:
            random = np.random.default_rng(thread)
            try:
                for _ in range(60):
                    rows = random.integers(-500, 500, 100)
                    array.prefetch(rows)
                    array.prefetch(slice(int(random.integers(0, 500)), None))
                    if thread % 2:
                        np.testing.assert_array_equal(array.take(rows), expected[rows])
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        array.check()
