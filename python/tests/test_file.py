"""Files to arrays and back: contents, extents, errors."""

from __future__ import annotations

import array as python_array
import copy
import os
import pickle
import random
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff._replacement import Replacement
from hippogriff._transfer import Request
from hippogriff.arrays import ArrayFormatError, load_npy
from hippogriff.integrity import SidecarError, verify_checksums
from hippogriff.safetensors import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path


_SIZES = [1, 7, 511, 4096, 65536, (1 << 20) + 1, (9 << 20) + 4095]


def random_bytes(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


@pytest.mark.parametrize("size", _SIZES)
def test_read_and_write_give_the_same_bytes_back(folder: Path, size: int) -> None:
    data = random_bytes(size)
    (folder / "a").write_bytes(data)
    array = hippogriff.read(folder / "a", device="host")
    assert array.to_numpy().tobytes() == data
    assert hippogriff.write(folder / "b", array) == size
    assert (folder / "b").read_bytes() == data


@pytest.mark.parametrize("route", ["direct", "mapped", "pipelined", "parked"])
def test_every_route_moves_the_bytes_or_says_why_not(folder: Path, route: str) -> None:
    data = random_bytes((5 << 20) + 3)
    (folder / "a").write_bytes(data)
    try:
        array = hippogriff.read(folder / "a", device="host", route=route)
    except hippogriff.Unsupported as error:
        pytest.skip(str(error))
    assert array.to_numpy().tobytes() == data


def test_an_extent_is_read_from_its_offset(folder: Path) -> None:
    data = random_bytes(100_000)
    (folder / "a").write_bytes(data)
    array = hippogriff.read(folder / "a", device="host", offset=12_345, size=54_321)
    assert array.to_numpy().tobytes() == data[12_345 : 12_345 + 54_321]
    rest = hippogriff.read(folder / "a", device="host", offset=99_999)
    assert rest.to_numpy().tobytes() == data[99_999:]


def test_shape_and_dtype_say_how_much_is_read(tmp_path: Path) -> None:
    numbers = np.arange(1000, dtype=np.int32)
    (tmp_path / "a").write_bytes(numbers.tobytes())
    part = hippogriff.read(tmp_path / "a", device="host", offset=40, dtype="int32", shape=(4, 5))
    assert np.array_equal(part.to_numpy(), numbers[10:30].reshape(4, 5))
    whole = hippogriff.read(tmp_path / "a", device="host", dtype=np.int32, shape=(-1, 8))
    assert whole.shape == (125, 8)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dtype": "float64", "size": 12},
        {"shape": (3, 3), "size": 8},
        {"shape": (-1, 7)},
        {"offset": -1},
        {"size": -1},
        {"route": "scenic"},
        {"device": "cuda:99"},
        {"offset": 101},
        {"offset": 2**63},
    ],
)
def test_read_refuses_arguments_that_fit_nothing(tmp_path: Path, arguments: Any) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    with pytest.raises(hippogriff.InvalidArgument) as caught:
        hippogriff.read(tmp_path / "a", **{"device": "host", **arguments})
    assert isinstance(caught.value, ValueError)
    assert caught.value.status == 1


def test_an_empty_file_gives_an_empty_array_and_back(folder: Path) -> None:
    (folder / "a").touch()
    array = hippogriff.read(folder / "a", device="host", dtype="float32")
    assert array.shape == (0,)
    assert hippogriff.write(folder / "b", array) == 0
    assert (folder / "b").read_bytes() == b""


def test_a_file_that_is_not_there_is_file_not_found(tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    with pytest.raises(FileNotFoundError) as caught:
        hippogriff.read(path, device="host")
    error = caught.value
    assert isinstance(error, hippogriff.IoError)
    assert (error.errno, error.filename) == (2, str(path))
    assert str(path) in str(error)
    assert error.operation


def test_errors_survive_pickling(tmp_path: Path) -> None:
    with pytest.raises(hippogriff.IoError) as caught:
        hippogriff.read(tmp_path / "nothing", device="host")
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, FileNotFoundError)
    assert (str(again), again.errno) == (str(caught.value), 2)


def test_classes_of_errors_survive_pickling_as_torchs_workers_do_it(tmp_path: Path) -> None:
    refused = (
        (lambda: hippogriff.read(tmp_path / "nothing", device="host"), FileNotFoundError),
        (lambda: load_npy(tmp_path / "wrong"), ArrayFormatError),
        (lambda: verify_checksums(tmp_path / "wrong", tmp_path / "wrong"), SidecarError),
    )
    (tmp_path / "wrong").write_bytes(b"neither this nor that")
    for call, kind in refused:
        with pytest.raises(kind) as caught:
            call()
        error: Any = caught.value
        made_of = type(error)
        assert pickle.loads(pickle.dumps(made_of)) is made_of
        assert str(made_of("only a message")) == "only a message"
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is made_of
        assert (str(again), again.status) == (str(error), error.status)
    for name in ("IOError", "OSError", "ValueError", "Nothing"):
        assert not hasattr(hippogriff.errors, name)


def test_a_directory_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises((hippogriff.InvalidArgument, IsADirectoryError)):
        hippogriff.read(tmp_path, device="host")


def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(hippogriff.InvalidArgument):
        hippogriff.read(tmp_path / "pipe", device="host")
    with pytest.raises(hippogriff.HippogriffError):
        hippogriff.open(tmp_path / "pipe").read_into(bytearray(3))


def test_a_path_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match="zero byte"):
        hippogriff.read(f"{tmp_path}/a\0b", device="host")


def test_paths_may_be_any_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\xfe"
    assert hippogriff.write(path, b"data") == 4
    assert hippogriff.read(path, device="host").to_numpy().tobytes() == b"data"


@pytest.mark.parametrize("on_device", [True, False])
def test_an_extent_beyond_the_end_is_refused(tmp_path: Path, on_device: bool) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    target = hippogriff.empty(3000, device="host") if on_device else np.zeros(3000, np.uint8)
    with (
        hippogriff.open(tmp_path / "a") as file,
        pytest.raises(hippogriff.InvalidArgument, match="500 bytes"),
    ):
        file.read_into(target, 500)


def _targets() -> list[Any]:
    return [
        np.zeros((10, 100), np.uint8),
        bytearray(1000),
        python_array.array("b", bytes(1000)),
        memoryview(bytearray(1000)),
        hippogriff.empty(1000, device="host"),
    ]


@pytest.mark.parametrize("index", range(5))
def test_read_into_and_write_from_take_all_kinds_of_memory(tmp_path: Path, index: int) -> None:
    data = random_bytes(1500)
    (tmp_path / "a").write_bytes(data)
    target = _targets()[index]
    with hippogriff.open(tmp_path / "a") as file:
        assert file.size == 1500
        assert file.read_into(target, 250) == 1000
    seen = target.to_numpy() if isinstance(target, hippogriff.Array) else target
    assert np.asarray(seen).tobytes() == data[250:1250]
    with hippogriff.open(tmp_path / "b", "w") as file:
        assert file.write_from(target, 100, durable=True) == 1000
    assert (tmp_path / "b").read_bytes() == bytes(100) + data[250:1250]


class _OnlyDlpack:
    """Shows a NumPy array by DLPack alone."""

    def __init__(self, array: Any, *, versioned: bool) -> None:
        self._array = array
        self._versioned = versioned

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        if not self._versioned and "max_version" in options:
            raise TypeError("an older producer")
        return self._array.__dlpack__(**options)


@pytest.mark.parametrize("versioned", [True, False])
def test_memory_shown_by_dlpack_alone_is_filled(tmp_path: Path, versioned: bool) -> None:
    (tmp_path / "a").write_bytes(np.arange(6, dtype=np.float64).tobytes())
    target = np.zeros((2, 3))
    with hippogriff.open(tmp_path / "a") as file:
        file.read_into(_OnlyDlpack(target, versioned=versioned))
        assert target[1, 2] == 5
        with pytest.raises(hippogriff.InvalidArgument, match="contiguous"):
            file.read_into(_OnlyDlpack(target.T, versioned=versioned))


def test_an_array_of_python_objects_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "objects"
    with pytest.raises(hippogriff.InvalidArgument, match="pointers"):
        hippogriff.write(target, np.array([object()], dtype=object))
    assert not target.exists()


def test_read_only_dlpack_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(48))
    target = np.zeros((2, 3))
    target.flags.writeable = False
    with (
        hippogriff.open(tmp_path / "a") as file,
        pytest.raises(hippogriff.InvalidArgument, match="read-only"),
    ):
        file.read_into(_OnlyDlpack(target, versioned=True))


@pytest.mark.parametrize(
    "target",
    [np.zeros((4, 4))[:, ::2], np.asfortranarray(np.zeros((4, 4))), b"bytes", bytes(10)],
)
def test_memory_that_cannot_be_filled_is_refused(tmp_path: Path, target: Any) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    with (
        hippogriff.open(tmp_path / "a") as file,
        pytest.raises(hippogriff.InvalidArgument, match="cannot be used"),
    ):
        file.read_into(target)


def test_an_object_without_memory_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="shows no memory"):
        hippogriff.write(tmp_path / "a", object())


def test_size_beyond_the_array_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    with (
        hippogriff.open(tmp_path / "a") as file,
        pytest.raises(hippogriff.InvalidArgument, match="more than"),
    ):
        file.read_into(bytearray(10), size=11)


def test_size_takes_the_beginning_of_the_array(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    target = bytearray(100)
    with hippogriff.open(tmp_path / "a") as file:
        assert file.read_into(target, 10, 5) == 5
        assert file.read_into(target, 10, 0) == 0
    assert bytes(target[:6]) == bytes([10, 11, 12, 13, 14, 0])


def test_modes_do_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    with hippogriff.open(path, "r+") as file:
        file.write_from(b"ab", 4)
    assert path.read_bytes() == b"0123ab6789"
    with hippogriff.open(path, "r") as file, pytest.raises(hippogriff.HippogriffError):
        file.write_from(b"ab")
    with hippogriff.open(path, "w") as file:
        assert file.size == 0
    with pytest.raises(hippogriff.InvalidArgument, match="mode"):
        hippogriff.open(path, "a")
    with pytest.raises(FileNotFoundError):
        hippogriff.open(tmp_path / "nothing")


def test_a_closed_file_refuses(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    file = hippogriff.open(tmp_path / "a")
    assert not file.closed
    file.close()
    file.close()
    assert "closed" in repr(file)
    with pytest.raises(hippogriff.InvalidArgument, match="closed"):
        file.read_into(bytearray(3))


def test_a_write_replaces_what_is_there_when_it_begins_whatever_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    start = Request.start

    def after_another(request: Request, *arguments: Any, **more: Any) -> Any:
        path.write_bytes(b"another" * 1000)
        return start(request, *arguments, **more)

    monkeypatch.setattr(Request, "start", after_another)
    transfer = hippogriff.write_async(path, b"mine")
    while not transfer.done():
        time.sleep(0.001)
    assert path.read_bytes() == b"mine"  # before anybody waits


@pytest.mark.parametrize("before", [0, 10, 100_000])
def test_write_replaces_a_file_of_any_size_as_a_whole(folder: Path, before: int) -> None:
    path = folder / "a"
    path.write_bytes(bytes(before))
    path.chmod(0o640)
    data = random_bytes(5000)
    with path.open("rb") as old:
        hippogriff.write(path, data)
        assert old.read() == bytes(before)
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in folder.iterdir()] == ["a"]


def test_a_write_of_nothing_replaces_nothing_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_bytes(b"x" * 100)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # root may write everything
    with pytest.raises(PermissionError, match="kept"):
        hippogriff.write(tmp_path / "kept", b"")
    assert (tmp_path / "kept").read_bytes() == b"x" * 100


@pytest.mark.skipif(os.geteuid() != 0, reason="files of others are root's to make")
@pytest.mark.parametrize("size", [10, 6000])
def test_a_replaced_file_stays_its_owners(tmp_path: Path, size: int) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(b"x" * 5000)
    os.chown(path, 1000, 1001)
    path.chmod(0o4750)
    hippogriff.write(path, np.zeros(size, np.uint8))
    facts = path.stat()
    assert (facts.st_size, facts.st_uid, facts.st_gid) == (size, 1000, 1001)
    assert stat.S_IMODE(facts.st_mode) == 0o4750


def test_nobody_sees_a_shorter_file_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x" * 5000)
    path.chmod(0o600)
    transfer = hippogriff.write_async(path, np.full(3000, 65, np.uint8))
    deadline = time.monotonic() + 30
    while not transfer.done():
        assert time.monotonic() < deadline
    for each in tmp_path.iterdir():  # on NFS the new one has a name already
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert transfer.wait() == 3000
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"A" * 3000, 0o600)


@pytest.mark.parametrize("size", [10, 6000])
def test_a_relative_path_means_the_folder_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(b"x" * 5000)
    monkeypatch.chdir(tmp_path / "a")
    transfer = hippogriff.write_async("f", np.zeros(size, np.uint8))
    monkeypatch.chdir(tmp_path / "b")
    assert transfer.wait() == size
    assert (tmp_path / "a" / "f").read_bytes() == bytes(size)
    assert (tmp_path / "b" / "f").read_bytes() == b"x" * 5000


def test_a_write_for_which_there_is_no_room_leaves_the_file_as_long_as_it_was(
    tmp_path: Path,
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 5000)
    code = f"""
import hippogriff, numpy, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 29, 3 << 29))
with hippogriff.open({str(path)!r}, "r+") as file:
    try:
        file.write_from(numpy.empty(3 << 30, numpy.uint8), 5000)
    except OSError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "File too large" in done.stdout or "No space left" in done.stdout, done
    assert path.stat().st_size == 5000


def test_what_has_memory_of_its_own_is_not_copied_by_address(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 5000)
    array = hippogriff.read(tmp_path / "f", device="host")
    transfer = hippogriff.read_async(tmp_path / "f", device="host")
    transfer.wait()
    for each in (array, transfer):
        for duplicate in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot copy or pickle"):
                duplicate(each)
    same = copy.copy(array)
    del array
    assert bytes(np.asarray(same)) == b"x" * 5000


@pytest.mark.parametrize("data", [b"", b"short"])
def test_write_goes_through_a_symbolic_link(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    (tmp_path / "link").symlink_to("a")
    hippogriff.write(tmp_path / "link", data)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == data


def test_an_interrupted_write_of_nothing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Replacement) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Replacement, "_open", Replacement._open_named)  # as on NFS
    monkeypatch.setattr(Replacement, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        hippogriff.write(tmp_path / "f", b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"abc"])
def test_write_refuses_what_names_no_file(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match="names no file"):
        hippogriff.write(f"{tmp_path}/new/", data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"abc"])
def test_write_refuses_to_replace_what_is_no_file(tmp_path: Path, data: bytes) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises((hippogriff.InvalidArgument, hippogriff.IoError)):
            hippogriff.write(tmp_path / name, data)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "pipe"]


def test_write_into_a_folder_that_is_not_there_fails_and_leaves_nothing(tmp_path: Path) -> None:
    for data in (b"", b"abc"):
        with pytest.raises(FileNotFoundError):
            hippogriff.write(tmp_path / "no" / "a", data)
    assert list(tmp_path.iterdir()) == []


def test_bytes_beyond_four_gibibytes_are_read_from_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    offset = (1 << 32) + 12345
    with path.open("wb") as file:
        file.seek(offset)
        file.write(b"far away")
    array = hippogriff.read(path, device="host", offset=offset - 4)
    assert array.to_numpy().tobytes() == bytes(4) + b"far away"


def test_small_parts_are_read_into_host_memory_without_a_transfer(folder: Path) -> None:
    content = random_bytes(600_000)
    (folder / "a").write_bytes(content)
    before = hippogriff.stats()["transfers_finished"]
    with hippogriff.open(folder / "a") as file:
        for offset, size in ((0, 1), (13, 4096), (300_001, 256 << 10), (599_999, 1)):
            part = np.zeros(size + 7, np.uint8)
            assert file.read_into(part, offset, size) == size
            assert part.tobytes() == content[offset : offset + size] + bytes(7)
        assert hippogriff.stats()["transfers_finished"] == before
        with pytest.raises(hippogriff.InvalidArgument, match="only 3 bytes"):
            file.read_into(part, 599_997)
        assert not part[1:].any()  # what is refused changes nothing
        with pytest.raises(hippogriff.InvalidArgument, match="beyond any file"):
            file.read_into(part, 2**63)
        told: list[hippogriff.Progress] = []
        file.read_into(part, progress=told.append)
        assert told[-1].finished
        with pytest.raises(hippogriff.InvalidArgument, match="nan"):
            file.read_into(part, timeout=float("nan"))
    for other in ("/dev/zero", "/proc/self/status"):
        with hippogriff.open(other) as file, pytest.raises(hippogriff.InvalidArgument):
            file.read_into(part)


def test_small_parts_are_moved_by_many_threads_while_the_file_is_closed(tmp_path: Path) -> None:
    data = random_bytes(200 * 512)
    (tmp_path / "a").write_bytes(data)
    file = hippogriff.open(tmp_path / "a")
    right, refused = [], []

    def read() -> None:
        array = hippogriff.empty(512, device="host")
        for index in range(200):
            try:
                file.read_into(array, index * 512)
            except hippogriff.InvalidArgument:
                refused.append(index)
            else:
                right.append(array.to_numpy().tobytes() == data[index * 512 : index * 512 + 512])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(right) < 100:
        time.sleep(0.001)
    file.close()
    for thread in threads:
        thread.join()
    assert all(right)
    assert len(right) + len(refused) == 8 * 200


def test_many_arrays_are_filled_by_one_transfer(folder: Path) -> None:
    path = folder / "data"
    content = random.Random(7).randbytes(3_000_000)
    path.write_bytes(content)
    arrays = [np.zeros(size, np.uint8) for size in (1, 700_000, 0, 1_000_000, 4096)]
    offsets = [2_999_999, 10, 5, 900_000, 800_000]
    with hippogriff.open(path) as file:
        moved = file.read_into_many(zip(offsets, arrays, strict=True))
        assert moved == 3_000_000 - 10
        assert file.read_into_many([]) == 0
    for offset, array in zip(offsets, arrays, strict=True):
        assert array.tobytes() == content[offset : offset + array.nbytes]


def test_many_arrays_must_fit_together(big_file: Path) -> None:
    array = np.zeros(100, np.uint8)
    with hippogriff.open(big_file) as file:
        with pytest.raises(hippogriff.InvalidArgument, match="overlaps"):
            file.read_into_many([(0, array), (1000, array[50:])])
        with pytest.raises(hippogriff.InvalidArgument, match="overlaps"):
            file.read_into_many([(0, array[:50]), (49, array[50:])])
        with pytest.raises(hippogriff.InvalidArgument, match="negative"):
            file.read_into_many([(-1, array)])
        with pytest.raises(hippogriff.InvalidArgument, match="differ in"):
            file.read_into_many([(0, array), (500, hippogriff.empty(10, device="host"))])
        with pytest.raises(hippogriff.InvalidArgument, match="only"):
            file.read_into_many([(file.size - 50, array)])


def test_long_paths_are_shortened_in_what_is_told(tmp_path: Path) -> None:
    long = b"x" * 5_000_000
    for load in (
        lambda: load_file(long, framework="np"),
        lambda: hippogriff.open(long),
        lambda: hippogriff.read(long, device="host"),
        lambda: save_file({}, long),
        lambda: load_file(long + b"\0", framework="np"),
        lambda: load_file(long + b".index.json", framework="np"),
    ):
        with pytest.raises(hippogriff.HippogriffError, match="xxxx") as caught:
            load()
        assert len(str(caught.value)) < 1000
        assert os.path.basename(caught.value.object)[:4] == "xxxx"  # noqa: PTH119
    # No path that a file can have is shortened.
    absent = tmp_path / ("y" * 200) / ("z" * 200)
    with pytest.raises(FileNotFoundError) as missing:
        load_file(absent, framework="np")
    assert str(absent) in str(missing.value)
