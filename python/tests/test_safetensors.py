"""Loading and saving safetensors files, beside the reference implementation."""

from __future__ import annotations

import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hippogriff
from hippogriff import _scatter
from hippogriff.safetensors import (
    LoadReport,
    SafetensorError,
    load_file,
    load_into,
    safe_open,
    save_file,
)

if TYPE_CHECKING:
    from pathlib import Path

_NAMES = "bool uint8 int8 int16 uint16 float16 int32 uint32 float32 float64 int64 uint64 complex64"
_DTYPES = _NAMES.split()


def make_tensors(seed: int, count: int, bytes_max: int = 100_000) -> dict[str, Any]:
    """Make arrays of all element types: empty ones, zero-dimensional ones, and others."""
    random = np.random.default_rng(seed)
    tensors = {}
    for number in range(count):
        dtype = np.dtype(_DTYPES[number % len(_DTYPES)])
        dimensions = int(random.integers(0, 4))
        most = max(1, int((bytes_max / dtype.itemsize) ** (1 / max(dimensions, 1))))
        shape = tuple(int(n) for n in random.integers(0, most + 1, dimensions))
        values = random.integers(0, 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
        if dtype == np.bool_:
            values &= 1
        tensors[f"layer.{number}/{dtype}ü"] = values.view(dtype).reshape(shape)
    return tensors


def write_file(
    path: Path, tensors: dict[str, tuple[str, list[int], Any]], padding: str = ""
) -> None:
    """Write a file by hand: dtype, shape and bytes of each tensor, and what ends the header."""
    entries, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        begin, end = end, end + len(bytes(data))
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    header = (json.dumps(entries, separators=(",", ":")) + padding).encode()
    content = b"".join(bytes(data) for _, _, data in tensors.values())
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare names, element types, shapes and bytes."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.fixture
def model(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A file of 200 tensors, written by the reference implementation."""
    tensors = make_tensors(1, 200)
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, {"format": "np"})
    return path, tensors


def test_what_the_reference_saved_is_loaded(model: tuple[Path, dict[str, Any]]) -> None:
    path, tensors = model
    loaded = load_file(path, framework="np")
    assert_equal(loaded, tensors)
    for array in loaded.values():
        assert array.flags.owndata
        assert array.flags.writeable


def test_what_is_saved_the_reference_loads(folder: Path) -> None:
    tensors = make_tensors(2, 100)
    path = folder / "saved.safetensors"
    save_file(tensors, path, {"who": "hippogriff"})
    assert_equal(safetensors.numpy.load_file(path), tensors)
    with safetensors.safe_open(path, framework="np") as file:
        assert file.metadata() == {"who": "hippogriff"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    assert list(folder.iterdir()) == [path]


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), count=st.integers(0, 60), bytes_max=st.integers(0, 300_000))
def test_random_files_survive_the_round(
    tmp_path: Path, seed: int, count: int, bytes_max: int
) -> None:
    tensors = make_tensors(seed, count, bytes_max)
    path = tmp_path / "round.safetensors"
    save_file(tensors, path)
    assert_equal(load_file(path, framework="np"), safetensors.numpy.load_file(path))
    assert_equal(load_file(path, framework="np"), tensors)


def test_bfloat16_and_float8_are_loaded_where_ml_dtypes_is(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu")
    tensors = {name: np.arange(24, dtype=np.uint8).view(getattr(ml_dtypes, name)) for name in names}
    path = tmp_path / "small.safetensors"
    save_file(tensors, path)
    with safetensors.safe_open(path, framework="np") as file:
        dtypes = {name: file.get_slice(name).get_dtype() for name in names}
    assert dtypes == dict(zip(names, ("BF16", "F8_E5M2", "F8_E4M3", "F8_E8M0"), strict=True))
    assert_equal(load_file(path, framework="np"), tensors)


def test_a_load_tells_how_it_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"{number}.safetensors")
        array = np.arange(1 << 20, dtype=np.int32)
        safetensors.numpy.save_file({f"a{number}": array, f"b{number}": array}, paths[-1])
    reports: list[LoadReport] = []
    load_file(paths, framework="np", explain=reports.append, progress=True)
    (report,) = reports
    assert [file.path for file in report.files] == list(map(str, paths))
    assert [file.tensors for file in report.files] == [2, 2]
    assert report.bytes == 4 * (4 << 20)
    for file in report.files:
        assert sum(file.bytes_by_route.values()) == file.bytes
        assert file.bytes_from_page_cache + file.bytes_from_disk == file.bytes
        assert 0 < file.waiting_seconds <= file.seconds <= report.seconds
    assert report.waiting_seconds == pytest.approx(sum(f.waiting_seconds for f in report.files))
    assert 0 < report.waiting_seconds <= report.seconds
    assert json.loads(json.dumps(report.as_dict()))["gb_per_second"] == report.gb_per_second
    load_file(paths, framework="np", explain=True)
    printed = capsys.readouterr().out
    assert str(paths[1]) in printed
    assert "from the page cache" in printed
    assert printed.count("s waiting, ") == len(paths)
    load_file(paths, framework="np")
    assert capsys.readouterr() == ("", "")


def test_many_small_tensors_need_few_transfers(tmp_path: Path) -> None:
    tensors = {f"t{number:05}": np.full(7, number, np.int32) for number in range(20_000)}
    path = tmp_path / "many.safetensors"
    safetensors.numpy.save_file(tensors, path)
    before = hippogriff.stats()["transfers_finished"]
    loaded = load_file(path, framework="np")
    assert hippogriff.stats()["transfers_finished"] - before <= 6
    assert_equal(loaded, tensors)


def test_an_open_file_tells_and_loads_what_is_asked_for(
    model: tuple[Path, dict[str, Any]],
) -> None:
    path, tensors = model
    with safe_open(path, framework="np") as ours, safetensors.safe_open(path, "np") as theirs:
        assert ours.keys() == sorted(theirs.keys())
        assert set(ours.offset_keys()) == set(theirs.offset_keys())
        assert ours.metadata() == theirs.metadata() == {"format": "np"}
        for name in ours.keys():  # noqa: SIM118 (as safetensors has it)
            assert ours.get_slice(name).get_shape() == theirs.get_slice(name).get_shape()
            assert ours.get_slice(name).get_dtype() == theirs.get_slice(name).get_dtype()
        some = ours.keys()[::7]
        assert_equal(ours.get_tensors(some), {name: tensors[name] for name in some})
        with pytest.raises(SafetensorError, match="no tensor 'absent'"):
            ours.get_tensor("absent")
    with pytest.raises(hippogriff.InvalidArgument, match="closed"):
        ours.get_tensor(some[0])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_slices_are_those_of_the_whole(tmp_path: Path, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4)))
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    path = tmp_path / "slices.safetensors"
    save_file({"x": array, "y": np.zeros(3, np.float64)}, path)
    bound = st.none() | st.integers(-12, 12)
    step = st.none() | st.integers(1, 3)
    number = st.integers(-9, 8)
    parts = st.builds(slice, bound, bound, step) | number | number.map(np.int64)
    index: list[Any] = data.draw(st.lists(parts, max_size=len(shape)))
    if data.draw(st.booleans()):
        index.insert(data.draw(st.integers(0, len(index))), Ellipsis)
    try:
        expected = array[tuple(index)]
    except IndexError:
        with safe_open(path, "np") as file, pytest.raises(IndexError):
            file.get_slice("x")[tuple(index)]
        return
    with safe_open(path, "np") as file:
        found = file.get_slice("x")[tuple(index)]
    assert found.shape == np.shape(expected)
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()
    assert found.flags.owndata


def test_a_slice_of_very_many_runs_is_cut_from_its_rows(tmp_path: Path) -> None:
    array = np.random.default_rng(3).integers(0, 99, (300, 300, 3), np.uint8)
    path = tmp_path / "runs.safetensors"
    save_file({"x": array}, path)
    with safe_open(path, "np") as file:
        found = file.get_slice("x")[2:290, :, 1]
        assert (found == array[2:290, :, 1]).all()
        assert found.flags.owndata
        assert (file.get_slice("x")[7, :, 1:] == array[7, :, 1:]).all()


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (slice(None, None, -1), "step"),
        ((..., ...), "ellipsis"),
        ((0, 0, 0), "too many"),
        ("a", "index is"),
        ([0, 1], "index is"),
        (True, "index is"),
    ],
)
def test_indices_that_are_not_served_are_refused(tmp_path: Path, index: Any, words: str) -> None:
    save_file({"x": np.zeros((4, 4))}, tmp_path / "x.safetensors")
    with (
        safe_open(tmp_path / "x.safetensors", "np") as file,
        pytest.raises(hippogriff.InvalidArgument, match=words),
    ):
        file.get_slice("x")[index]


def test_a_file_that_is_truncated_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "short.safetensors"
    save_file({"x": np.zeros(3_000_000), "y": np.ones(5, np.uint8)}, path)
    with safe_open(path, "np") as file:
        os.truncate(path, 1_000_000)
        with pytest.raises(hippogriff.ShortFile, match=r"short\.safetensors"):
            file.get_tensors()


def test_threads_load_side_by_side(model: tuple[Path, dict[str, Any]]) -> None:
    path, tensors = model
    failures: list[BaseException] = []

    def load() -> None:
        try:
            for _ in range(5):
                assert_equal(load_file(path, framework="np"), tensors)
        except BaseException as error:  # To the thread that can fail the test.
            failures.append(error)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_frameworks_and_devices_that_are_not_there_are_told(
    model: tuple[Path, dict[str, Any]],
) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match="framework 'jax'"):
        load_file(model[0], framework="jax")
    with pytest.raises(hippogriff.InvalidArgument, match="CPU"):
        load_file(model[0], "cuda:0", framework="np")


def test_an_interrupt_that_comes_with_the_submission_leaves_no_memory_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "interrupted.safetensors"
    save_file({f"t{number}": np.full(100_000, 0x5A, np.uint8) for number in range(500)}, path)

    class Interrupting:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def hippogriff_sendv_async(self, *arguments: Any) -> int:
            status: int = real.hippogriff_sendv_async(*arguments)
            signal.raise_signal(signal.SIGINT)
            return status

    real: Any = vars(_scatter)["lib"]
    with monkeypatch.context() as patched:
        patched.setattr(_scatter, "lib", Interrupting())
        with pytest.raises(KeyboardInterrupt):
            load_file(path, framework="np")
    others = [np.zeros(100_000, np.uint8) for _ in range(500)]
    assert_equal(load_file(path, framework="np"), safetensors.numpy.load_file(path))
    assert not any(other.any() for other in others)


def test_a_file_closed_while_others_load_gives_its_own_bytes_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "first.st", tmp_path / "second.st"
    for path, value in ((first, 1), (second, 2)):
        save_file({f"t{number}": np.full(1000, value, np.uint8) for number in range(50)}, path)
    current = [safe_open(first, "np")]
    wrong: list[object] = []
    loads: list[int] = []
    stopped = threading.Event()

    def load() -> None:
        while not stopped.is_set():
            try:
                tensors = current[0].get_tensors()
            except hippogriff.InvalidArgument as error:
                if "is closed" not in str(error):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)
            else:
                loads.append(1)
                wrong.extend(name for name, array in tensors.items() if (array != 1).any())

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(150):
        with safe_open(first, "np") as current[0], safe_open(second, "np"):
            time.sleep(0.001)
        with safe_open(second, "np"):
            pass
    stopped.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert loads


def test_an_empty_path_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for save in (
        lambda: save_file({"x": np.zeros(1)}, ""),
        lambda: save_file({"x": np.zeros(1)}, b"", checksum=True),
        lambda: hippogriff.write("", np.zeros(1)),
        lambda: hippogriff.write("", np.zeros(0)),
    ):
        with pytest.raises(hippogriff.InvalidArgument, match="the path is empty"):
            save()
    assert list(tmp_path.iterdir()) == []


def test_paths_that_are_no_files_are_told(tmp_path: Path) -> None:
    pipe = tmp_path / "model.safetensors.index.json"
    os.mkfifo(pipe)
    for path, kind in (
        (tmp_path, hippogriff.HippogriffError),
        (tmp_path / "absent.safetensors", FileNotFoundError),
        (tmp_path / "absent.safetensors.index.json", FileNotFoundError),
        (pipe, SafetensorError),
    ):
        with pytest.raises(kind) as caught:
            load_file(path, framework="np")
        assert isinstance(caught.value, hippogriff.HippogriffError)
        assert str(path) in str(caught.value)


def test_arguments_are_those_of_the_reference(tmp_path: Path) -> None:
    path = tmp_path / "x.st"
    safetensors.numpy.save_file({"a": np.arange(3)}, path, {})
    for device in ("cpu", "cpu:0", None):
        for backend in ("mmap", "pread", None):
            loaded = load_file(filename=path, device=device, backend=backend, framework="np")
            assert_equal(loaded, {"a": np.arange(3)})
    with pytest.raises(hippogriff.InvalidArgument, match="backend 'gds' is none of"):
        load_file(path, backend="gds", framework="np")
    with pytest.raises(hippogriff.InvalidArgument, match="backend 'gds' is none of"):
        safe_open(path, "np", backend="gds")
    with safe_open(path, framework="np", device="cpu", backend="pread") as file:
        assert file.metadata() == {}
    save_file(tensors={"a": np.arange(3)}, filename=path, metadata=None)
    with safe_open(path, "np") as file:
        assert file.metadata() is None
    for ask in (
        file.keys,
        file.offset_keys,
        file.metadata,
        file.get_tensors,
        lambda: file.get_tensor("a"),
        lambda: file.get_slice("a"),
    ):
        with pytest.raises(safetensors.SafetensorError, match=r"x\.st is closed"):
            ask()


def test_errors_are_those_of_the_reference_too(tmp_path: Path) -> None:
    path = tmp_path / "bad.st"
    path.write_bytes(b"bad")
    with pytest.raises(safetensors.SafetensorError, match=r"bad\.st: the file has") as caught:
        load_file(path, framework="np")
    assert isinstance(caught.value, SafetensorError)
    assert type(caught.value).__name__ == "SafetensorError"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert again.object == str(path)
    # As torch's workers send it.
    assert pickle.loads(pickle.dumps(type(caught.value))) is type(caught.value)
    program = f"""
import pickle, sys
from hippogriff.safetensors import SafetensorError, load_file
try:
    load_file({str(path)!r}, framework="np")
except SafetensorError as error:
    assert type(error) is SafetensorError
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
assert "safetensors" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_errors_keep_what_they_know() -> None:
    class OwnError(SafetensorError):
        pass

    for kind in (SafetensorError, OwnError):
        error = kind("x", operation="read", object="f", offset=3, errno=5)
        _, (made_as, message, fields) = error.__reduce__()
        assert (made_as, message) == (kind, "x")
        assert fields["offset"] == 3
        again = pickle.loads(pickle.dumps(SafetensorError("x", offset=3, errno=5)))
        assert (again.offset, again.errno) == (3, 5)


@pytest.mark.parametrize("theirs", [SafetensorError, 3, type("Odd", (OSError,), {}), KeyError])
def test_errors_can_be_made_whatever_the_package_is(
    monkeypatch: pytest.MonkeyPatch, theirs: Any
) -> None:
    monkeypatch.setattr(safetensors, "SafetensorError", theirs)
    assert str(SafetensorError("x")) == "x"


@pytest.mark.parametrize("wrong", [None, 3, [3], [None], 4.5])
def test_what_is_no_path_is_told(wrong: Any) -> None:
    for load in (
        lambda: load_file(wrong, framework="np"),
        lambda: load_into({}, wrong),
    ):
        with pytest.raises(hippogriff.InvalidArgument, match="neither a path nor a list of paths"):
            load()


def test_names_are_taken_once_and_not_by_the_letter(tmp_path: Path) -> None:
    save_file({"a": np.arange(3), "b": np.arange(4)}, tmp_path / "x.st")
    with safe_open(tmp_path / "x.st", "np") as file:
        assert_equal(file.get_tensors(["a", "a"]), {"a": np.arange(3)})
        with pytest.raises(hippogriff.InvalidArgument, match="one string"):
            file.get_tensors("ab")


def test_existing_arrays_are_filled_in_place(model: tuple[Path, dict[str, Any]]) -> None:
    path, tensors = model
    state = {name: np.zeros_like(array) for name, array in tensors.items()}
    before = {name: array.ctypes.data for name, array in state.items()}
    assert load_into(state, path) == ([], [])
    assert_equal(state, tensors)
    assert {name: array.ctypes.data for name, array in state.items()} == before


def test_what_does_not_agree_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.st"
    save_file({"a": np.ones((2, 3)), "b": np.ones(4), "c": np.ones(5)}, path)
    state: dict[str, Any] = {"a": np.zeros((3, 2)), "b": np.zeros(4, np.float32), "d": np.zeros(1)}
    with pytest.raises(hippogriff.InvalidArgument) as caught:
        load_into(state, path)
    for words in (
        r"a has the shape (2, 3) there and (3, 2) here",
        "b is F64 there and F32 here",
        "unexpected in the files: c",
        "missing in the files: d",
    ):
        assert words in str(caught.value)
    assert not any(array.any() for array in state.values())
    with pytest.raises(hippogriff.InvalidArgument, match="neither a module"):
        load_into(3, path)


def test_modules_tied_weights_and_other_types_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "x.st"
    tensors = {
        "head": np.arange(6.0),
        "embed": np.arange(6.0),
        "half": np.arange(8, dtype=np.float16),
        "strided": np.arange(12, dtype=np.int32).reshape(3, 4),
        "empty": np.zeros((0, 2)),
    }
    save_file(tensors, path)
    tied = np.zeros(6)
    state: dict[str, Any] = {
        "head": tied,
        "embed": tied,
        "half": np.zeros(8, np.float32),
        "strided": np.zeros((3, 8), np.int32)[:, ::2],
        "empty": np.zeros((0, 2)),
    }

    class Module:
        def state_dict(self) -> dict[str, Any]:
            return state

    assert load_into(Module(), path, convert=True) == ([], [])
    for name, array in state.items():
        assert (array == tensors[name]).all()
    assert state["half"].dtype == np.float32
    assert load_into({"half": np.zeros(8, np.float16)}, path, strict=False) == (
        [],
        ["embed", "empty", "head", "strided"],
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tied_weights_may_be_in_the_file_once(tmp_path: Path, dtype: Any) -> None:
    path = tmp_path / "x.st"
    save_file({"embed": np.arange(6.0)}, path)
    tied, other = np.zeros(6, dtype), np.zeros(6, dtype)
    assert load_into({"embed": tied, "head": tied}, path, convert=True) == ([], [])
    assert list(tied) == [0, 1, 2, 3, 4, 5]
    for part in (other, tied[:5], tied[::-1]):
        with pytest.raises(hippogriff.InvalidArgument, match=r"missing in the files: head$"):
            load_into({"embed": tied, "head": part}, path, convert=True)


def test_overlapping_places_are_filled_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "x.st"
    save_file({"a": np.full(10, 1.0), "b": np.full(10, 2.0)}, path)
    memory = np.zeros(15)
    load_into({"a": memory[:10], "b": memory[5:]}, path)
    assert set(memory[:5]) == {1.0}
    assert set(memory[10:]) == {2.0}


def test_chains_of_overlapping_arrays_are_filled_in_the_files_order(tmp_path: Path) -> None:
    values = {"a": (1, 10), "b": (2, 10), "c": (3, 8), "d": (4, 4)}
    path = tmp_path / "model.safetensors"
    save_file(
        {name: np.full(size, value, np.uint8) for name, (value, size) in values.items()}, path
    )
    memory = np.zeros(30, np.uint8)
    # Each overlaps the one before it alone.
    places = {"a": memory[:10], "b": memory[5:15], "c": memory[12:20], "d": memory[19:23]}
    load_into(places, path)
    expected = np.zeros(30, np.uint8)
    for begin, (value, size) in zip((0, 5, 12, 19), values.values(), strict=True):
        expected[begin : begin + size] = value
    assert memory.tolist() == expected.tolist()


def test_what_cannot_be_filled_is_told_before_anything_is(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)}, path)
    read_only = np.zeros(4, np.float32)
    read_only.flags.writeable = False
    wrongs: dict[str, Any] = {
        "b is read-only": read_only,
        "b is expanded": np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (4,), (0,)),
        "b: its type cannot": hippogriff.empty((4,), dtype="float64", device="host"),
        "b: ": bytearray(16),
    }
    for words, wrong in wrongs.items():
        first = np.zeros(4, np.float32)
        with pytest.raises(hippogriff.InvalidArgument, match=words):
            load_into({"a": first, "b": wrong}, path, convert=True)
        assert not first.any()


def test_types_that_a_framework_lacks_are_told_before_any_is_converted(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_file(path, {"a": ("F32", [4], np.ones(4, np.float32)), "b": ("F6_E2M3", [4], bytes(3))})
    first = np.zeros(4, np.float32)
    with pytest.raises(hippogriff.InvalidArgument, match="b: NumPy has no element type for F6"):
        load_into({"a": first, "b": np.zeros(4, np.float32)}, path, convert=True)
    assert not first.any()
