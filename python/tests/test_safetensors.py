"""Loading and saving safetensors files, beside the reference implementation."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hippogriff
from hippogriff import _scatter
from hippogriff.safetensors import SafetensorError, load_file, safe_open, save_file
from hippogriff.safetensors._header import format_header, header_bytes, parse_header

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


def test_many_small_tensors_need_few_transfers(tmp_path: Path) -> None:
    tensors = {f"t{number:05}": np.full(7, number, np.int32) for number in range(20_000)}
    path = tmp_path / "many.safetensors"
    safetensors.numpy.save_file(tensors, path)
    before = hippogriff.stats()["transfers_finished"]
    loaded = load_file(path, framework="np")
    assert hippogriff.stats()["transfers_finished"] - before <= 2
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


def test_several_files_and_an_index_are_loaded_as_one(tmp_path: Path) -> None:
    tensors = make_tensors(4, 60)
    names = sorted(tensors)
    shards = {"a-1.safetensors": names[:20], "a-2.safetensors": names[20:]}
    for shard, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, tmp_path / shard)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {name: shard for shard, inside in shards.items() for name in inside}
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert_equal(load_file(index, framework="np"), tensors)
    assert_equal(load_file([tmp_path / shard for shard in shards], framework="np"), tensors)
    with pytest.raises(SafetensorError, match="also in a file before"):
        load_file([tmp_path / "a-1.safetensors"] * 1 + [_copy(tmp_path)], framework="np")


def _copy(folder: Path) -> Path:
    copy = folder / "b.safetensors"
    copy.write_bytes((folder / "a-1.safetensors").read_bytes())
    return copy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": 3}',
        '{"weight_map": {"x": "../x.safetensors"}}',
        '{"weight_map": {"x": "/etc/passwd"}}',
        '{"weight_map": {"x": 3}}',
        "[" * 100_000,
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(SafetensorError, match=r"index\.json"):
        load_file(index, framework="np")


def raw_file(header: Any, data: bytes = b"", text: bytes | None = None) -> bytes:
    """Build a file from a header as it is, right or wrong."""
    encoded = json.dumps(header).encode() if text is None else text
    return len(encoded).to_bytes(8, "little") + encoded + data


def one(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    """A header of one tensor."""
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


_FOUR = b"1234"
MALFORMED = {
    "empty file": b"",
    "seven bytes": b"\x00" * 7,
    "no header": (0).to_bytes(8, "little"),
    "header size beyond the file": (100).to_bytes(8, "little") + b"{}",
    "header size beyond all": b"\xff" * 8 + b"{}",
    "header size beyond the limit": (100_000_001).to_bytes(8, "little") + b"{}",
    "not JSON": raw_file(None, text=b"{oops}"),
    "truncated JSON": raw_file(None, text=b'{"x": {"dtype": "U8", '),
    "an array": raw_file([]),
    "a space first": raw_file(None, text=b" {}"),
    "not UTF-8": raw_file(None, text=b'{"\xff": {}}'),
    "lone surrogate": raw_file({"\ud800": one()["x"]}, _FOUR),
    "deep": raw_file(None, text=b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "huge number": raw_file(None, text=b'{"x":' + b"9" * 10_000 + b"}"),
    "trailing garbage": raw_file(None, text=b"{}x"),
    "duplicate name": raw_file(
        None,
        _FOUR,
        b'{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
        b'"x":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}',
    ),
    "duplicate key": raw_file(
        None, _FOUR, b'{"x":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}}'
    ),
    "tensor is a number": raw_file({"x": 3}),
    "no dtype": raw_file({"x": {"shape": [4], "data_offsets": [0, 4]}}, _FOUR),
    "unknown dtype": raw_file(one("F7"), _FOUR),
    "dtype is a list": raw_file(one(["U8"]), _FOUR),
    "shape is a number": raw_file(one(shape=4), _FOUR),
    "negative dimension": raw_file(one(shape=[-4]), _FOUR),
    "two negative dimensions": raw_file(one(shape=[-2, -2]), _FOUR),
    "dimension is a float": raw_file(one(shape=[4.0]), _FOUR),
    "dimension is a boolean": raw_file(one(shape=[True, 4]), _FOUR),
    "dimensions overflow": raw_file(one(shape=[2**62, 2**62]), _FOUR),
    "dimensions overflow to four": raw_file(one(shape=[2**32, 2**32, 4]), _FOUR),
    "one offset": raw_file(one(offsets=[4]), _FOUR),
    "three offsets": raw_file(one(offsets=[0, 4, 4]), _FOUR),
    "offsets backwards": raw_file(one(offsets=[4, 0]), _FOUR),
    "offset negative": raw_file(one(offsets=[-4, 0]), _FOUR),
    "offset is a string": raw_file(one(offsets=["0", 4]), _FOUR),
    "offset beyond 64 bits": raw_file(one(offsets=[2**64, 2**64 + 4]), _FOUR),
    "too small for its shape": raw_file(one(offsets=[0, 3]), b"123"),
    "dimensions are strings": raw_file(one(shape=["a" * 1000, 10**9]), _FOUR),
    "dimensions without end": raw_file(one(shape=[2**62] * 100_000), _FOUR),
    "half a byte": raw_file(one("F4", [1], [0, 0])),
    "hole before": raw_file(one(offsets=[1, 5]), b"01234"),
    "data beyond": raw_file(one(), b"12345"),
    "data missing": raw_file(one(), b"123"),
    "overlap": raw_file(
        {"x": one()["x"], "y": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}, b"123456"
    ),
    "same bytes twice": raw_file({"x": one()["x"], "y": one()["x"]}, _FOUR),
    "hole between": raw_file(
        {"x": one()["x"], "y": {"dtype": "U8", "shape": [4], "data_offsets": [5, 9]}}, b"123456789"
    ),
    "constant": raw_file(None, text=b'{"__metadata__": {}, "x": NaN}'),
    "surrogate in metadata": raw_file({"__metadata__": {"a": "\ud800"}, **one()}, _FOUR),
    "metadata is a list": raw_file({"__metadata__": [], **one()}, _FOUR),
    "metadata of numbers": raw_file({"__metadata__": {"a": 1}, **one()}, _FOUR),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_files_are_refused_by_name(tmp_path: Path, what: str) -> None:
    path = tmp_path / "malformed.safetensors"
    path.write_bytes(MALFORMED[what])
    with pytest.raises(SafetensorError, match=r"malformed\.safetensors: "):
        load_file(path, framework="np")
    with pytest.raises(SafetensorError):
        safe_open(path, "np")


def test_what_is_well_formed_but_odd_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    empty = {"dtype": "F32", "shape": [0, 7], "data_offsets": [4, 4]}
    header = {"e": empty, **one(), "f": {**empty, "data_offsets": [0, 0]}, "g": {**empty, "x": 1}}
    path.write_bytes(raw_file(None, _FOUR, json.dumps(header).encode() + b"  \n"))
    loaded = load_file(path, framework="np")
    assert loaded["x"].tobytes() == _FOUR
    assert loaded["e"].shape == (0, 7)
    path.write_bytes(raw_file({}))
    assert load_file(path, framework="np") == {}


@settings(max_examples=400)
@given(st.data())
def test_no_header_makes_the_parser_fail_otherwise_or_lie(data: st.DataObject) -> None:
    tensors = make_tensors(5, 6, 64)
    header = json.loads(safetensors.numpy.save(tensors)[8:].split(b"}}")[0] + b"}}")
    text = bytearray(json.dumps(header).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3)
            | st.sampled_from([b"[", b"]", b"{", b"}", b'"', b",", b"9", b"-"])
        )
    file_bytes = 8 + len(text) + sum(array.nbytes for array in tensors.values())
    try:
        parsed = parse_header(bytes(text), file_bytes)
    except SafetensorError:
        return
    end = parsed.data_offset
    for tensor in parsed.tensors.values():
        assert tensor.offset == end
        end += tensor.size_bytes
    assert end == file_bytes


@given(st.binary(max_size=12), st.integers(0, 200_000_000))
def test_no_size_of_a_header_is_beyond_the_file(prefix: bytes, file_bytes: int) -> None:
    try:
        size = header_bytes(prefix[:8], file_bytes)
    except SafetensorError:
        return
    assert 8 + size <= file_bytes


def test_a_header_is_written_so_that_the_data_is_aligned() -> None:
    for count in range(9):
        assert len(format_header([], {"a": "x" * count})) % 8 == 0


def test_failed_saves_leave_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    path.write_bytes(b"before")
    strided = np.zeros((4, 4))[:, ::2]
    for wrong in ({"x": strided}, {"x": np.array([object()])}, {"__metadata__": np.zeros(1)}):
        with pytest.raises(hippogriff.InvalidArgument):
            save_file(wrong, path)
    with pytest.raises(hippogriff.InvalidArgument):
        save_file({}, path, {"a": 1})  # type: ignore[dict-item]
    with pytest.raises(hippogriff.IoError):
        save_file({"x": np.zeros(1)}, tmp_path / "absent" / "x.safetensors")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_truncated_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "short.safetensors"
    save_file({"x": np.zeros(3_000_000), "y": np.ones(5, np.uint8)}, path)
    with safe_open(path, "np") as file:
        os.truncate(path, 1_000_000)
        with pytest.raises(hippogriff.InvalidArgument, match=r"short\.safetensors"):
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


def test_saving_follows_links_and_keeps_modes(tmp_path: Path) -> None:
    target, link = tmp_path / "target.st", tmp_path / "link.st"
    target.touch(mode=0o600)
    link.symlink_to(target.name)
    save_file({"x": np.arange(3)}, link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert_equal(load_file(target, framework="np"), {"x": np.arange(3)})
    long = tmp_path / ("n" * 255)
    save_file({"x": np.arange(3)}, long)
    assert sorted(tmp_path.iterdir()) == sorted([target, link, long])


def test_saving_replaces_only_regular_files(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder, "/dev/null", f"{tmp_path}/new/"):
        with pytest.raises(hippogriff.HippogriffError, match=r"regular|folder"):
            save_file({"x": np.zeros(1)}, path)
    assert pipe.is_fifo()
    assert Path("/dev/null").is_char_device()


def test_what_would_be_lost_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "x.st"
    array = np.zeros(10)
    masked = np.ma.masked_array([1, 2], [True, False])
    for wrong, words in (({"x": masked}, "mask"), ({"\ud800": array}, "Unicode")):
        with pytest.raises(hippogriff.InvalidArgument, match=words):
            save_file(wrong, path)
    with pytest.raises(hippogriff.InvalidArgument, match="Unicode"):
        save_file({"x": array}, path, {"a": "\ud800"})
    with pytest.raises(hippogriff.InvalidArgument, match="zero byte"):
        save_file({"x": array}, f"{path}\0")
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


def test_names_are_taken_once_and_not_by_the_letter(tmp_path: Path) -> None:
    save_file({"a": np.arange(3), "b": np.arange(4)}, tmp_path / "x.st")
    with safe_open(tmp_path / "x.st", "np") as file:
        assert_equal(file.get_tensors(["a", "a"]), {"a": np.arange(3)})
        with pytest.raises(hippogriff.InvalidArgument, match="one string"):
            file.get_tensors("ab")


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [1] * 100])
def test_shapes_that_a_framework_cannot_have_are_told(tmp_path: Path, shape: list[int]) -> None:
    size = 0 if 0 in shape else 1
    path = tmp_path / "shape.st"
    path.write_bytes(raw_file(one(shape=shape, offsets=[0, size]), b"x" * size))
    with pytest.raises(hippogriff.Unsupported, match="tensor 'x' of shape"):
        load_file(path, framework="np")
