"""What nobody means to give: pipes as models, keys that are no names, very long names."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from damage import flip

import hippogriff
from hippogriff import ChecksumMismatch, _runtime
from hippogriff._library import lib
from hippogriff._loaders.dry_run import dry_run
from hippogriff._loaders.model import make_model
from hippogriff._progress import Bar
from hippogriff.arrays import ArrayFormatError, load_npy, load_npz
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors import (
    SafetensorError,
    _save,
    load_file,
    load_into,
    load_plan,
    safe_open,
    save_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a file of two tensors, with its checksums."""
    path = tmp_path / "model.safetensors"
    save_file({"alpha": np.arange(5000.0), "beta": np.ones(7)}, path, checksum=True)
    return path


def make_pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_pipe, "a pipe, not a file or block device"),
        (lambda _: "/dev/zero", "a character device, not a file or block device"),
        (str, "a directory, not a file or block device"),
        (lambda _: "/proc/cpuinfo", "bytes but no size"),
    ],
)
def test_what_is_no_file_is_no_array(
    tmp_path: Path, make: Callable[[Path], str], words: str
) -> None:
    path = make(tmp_path)
    with pytest.raises(InvalidArgument, match=words):
        hippogriff.open(path, dtype="u1")
    for load in (lambda: load_file(path, framework="np"), lambda: load_npy(path)):
        with pytest.raises((InvalidArgument, IsADirectoryError), match=f"{words}|Is a directory"):
            load()


def test_keys_that_are_no_names_are_refused(model: Path) -> None:
    for strict in (False, True):
        with pytest.raises(InvalidArgument, match="dict has the key 1, no name"):
            load_into({1: np.zeros(7), "beta": np.zeros(7)}, model, strict=strict)


def test_errors_are_no_longer_than_one_reads(tmp_path: Path) -> None:
    path = tmp_path / "names.safetensors"
    save_file({f"{'n' * 5000}{number}": np.zeros(1) for number in range(300)}, path)
    with pytest.raises(
        InvalidArgument, match=r"missing in the files: mine; .* and 200 more$"
    ) as raised:
        load_into({"mine": np.zeros(1)}, path)
    assert len(str(raised.value)) < 25_000
    header = b'{"mine":{"dtype":"U8","shape":[%s2],"data_offsets":[0,2]}}' % (b"1," * 3000)
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    with pytest.raises(InvalidArgument, match="mine has the shape") as raised:
        load_into({"mine": np.zeros(2, np.uint8)}, path)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("place", [0, 2, 10, 12, 14])
def test_a_damaged_header_is_told_by_all_that_verify(model: Path, place: int) -> None:
    for bit in (1, 0x80):
        flip(model, place, bit)
        arrays = {"alpha": np.zeros(5000), "beta": np.zeros(7)}
        calls: list[Callable[[], Any]] = [
            lambda: load_file(model, framework="np", verify=True),
            lambda: safe_open(model, "np", verify=True),
            lambda: load_plan(model, {"cpu": None}, framework="np", verify=True),
            functools.partial(load_into, arrays, model, verify=True),
            functools.partial(load_into, arrays, model, strict=False, verify=True),
        ]
        for call in calls:
            with pytest.raises(ChecksumMismatch, match="bytes 0 to"):
                call()
        assert not any(array.any() for array in arrays.values())
        flip(model, place, bit)
    assert load_file(model, framework="np", verify=True)["beta"].sum() == 7


def test_a_library_that_cannot_start_is_told_as_that(model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hippogriff", "checksum", "--check", str(model)],
        env={**os.environ, "HIPPOGRIFF_LIBRARY": lib._name, "HIPPOGRIFF_TRACE": "/nowhere/trace"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "/nowhere/trace" in done.stdout + done.stderr
    assert "makes the checksums" not in done.stdout + done.stderr


def test_one_folder_has_no_room_for_two_files_of_one_name(tmp_path: Path, model: Path) -> None:
    other = tmp_path / "other" / model.name
    other.parent.mkdir()
    save_file({"gamma": np.ones(3)}, other)
    sums = tmp_path / "sums"

    def run(*paths: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hippogriff", "checksum", "--dir", str(sums), *map(str, paths)],
            env={**os.environ, "HIPPOGRIFF_LIBRARY": lib._name},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    refused = run(model, other)
    assert refused.returncode != 0
    assert "folders of their own" in refused.stdout + refused.stderr
    assert not list(sums.iterdir())
    assert run(model, model).returncode == 0


def test_no_more_metadata_is_saved_than_is_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = model.read_bytes()
    monkeypatch.setattr(_save, "METADATA_MAX", 3)
    with pytest.raises(InvalidArgument, match="metadata has 4 keys; readers take 3 at most"):
        save_file({}, model, metadata={str(number): "" for number in range(4)})
    assert model.read_bytes() == before
    save_file({}, model, metadata={str(number): "" for number in range(3)})


@pytest.mark.parametrize("framework", ["np", pytest.param("pt", marks=pytest.mark.torch)])
def test_open_files_are_not_pickled(model: Path, framework: str) -> None:
    if framework == "pt":
        pytest.importorskip("torch")
    with safe_open(model, framework) as file:
        for each in (file, file.get_slice("alpha")):
            with pytest.raises(
                TypeError, match=r"cannot pickle an open file: open .* in the worker"
            ):
                pickle.dumps(each)


def test_a_model_that_has_no_room_is_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    with pytest.raises(OSError, match=str(path)):
        make_model(path, 4, 1 << 60)
    assert path.stat().st_blocks == 0


def test_a_device_that_is_none_is_told_as_that(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPPOGRIFF_DEVICE", "bogus")
    with pytest.raises(InvalidArgument, match="device 'bogus'"):
        dry_run([model], None, verify=False)


def test_arrays_of_objects_are_told_as_that(tmp_path: Path) -> None:
    path = tmp_path / "objects.npy"
    np.save(path, np.array([{}, 1]), allow_pickle=True)
    with pytest.raises(ArrayFormatError, match="pickled Python objects"):
        load_npy(path)


def test_long_values_of_a_header_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.safetensors"
    text = '{"a":{"dtype":"U8","shape":[1],"data_offsets":"%s"}}' % ("x" * 1_000_000)
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(1))
    with pytest.raises(SafetensorError, match="'a'") as raised:
        load_file(path, framework="np")
    assert len(str(raised.value)) < 1000


def test_names_too_long_for_checksums_are_told_as_our_errors(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 252)
    save_file({"a": np.arange(10.0)}, path)
    with pytest.raises(hippogriff.IoError, match="too long"):
        load_file(path, framework="np", verify=True)


def test_folders_that_are_no_archives_leave_nothing_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(IsADirectoryError):
            load_npz(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_bars_of_small_loads_end_where_all_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[int] = []
    told: list[int] = []
    monkeypatch.setattr(Bar, "expect", lambda _, size: expected.append(size))
    monkeypatch.setattr(Bar, "tell", lambda _, __, done: told.append(done))
    np.save(tmp_path / "x.npy", np.zeros(1000))
    save_file({"x": np.zeros(1000)}, tmp_path / "x.st")
    load_npy(tmp_path / "x.npy", progress=True)
    assert (sum(expected), sum(told)) == (8000, 8000)
    expected.clear()
    told.clear()
    load_file(tmp_path / "x.st", framework="np", progress=True)
    assert sum(expected) == (tmp_path / "x.st").stat().st_size
    assert sum(told) == 8000


def test_drivers_of_names_that_are_no_text_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIPPOGRIFF_DEVICE", raising=False)
    monkeypatch.setenv("HIPPOGRIFF_CUDA_DRIVER", os.fsdecode(b"/nothing\xff"))
    _runtime._driver.cache_clear()
    try:
        assert _runtime.default_device() == "host"
    finally:
        _runtime._driver.cache_clear()


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii"])
def test_names_that_are_no_text_are_printed_and_steer_no_terminal(
    tmp_path: Path, encoding: str
) -> None:
    names = [b"a", b"n\xff\x1b[31m\n", b"z"]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(b"data")
    for arguments in ([b"checksum", *names], [b"explain", names[1]]):
        done = subprocess.run(
            [sys.executable, "-m", "hippogriff", *arguments],
            cwd=tmp_path,
            env={**os.environ, "HIPPOGRIFF_LIBRARY": lib._name, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\x1b" not in done.stdout
        assert b"\\x1b[31m\\n: " in done.stdout


@pytest.mark.parametrize("number", [1.0, "1", 1j])
def test_offsets_and_sizes_that_are_no_whole_numbers_are_refused(
    tmp_path: Path, number: Any
) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    refused: list[dict[str, Any]] = [{"offset": number}, {"size": number}]
    for named in refused:
        with pytest.raises(hippogriff.InvalidArgument, match="must be a whole number"):
            hippogriff.read(path, device="host", **named)
        with (
            hippogriff.open(path) as file,
            pytest.raises(hippogriff.InvalidArgument, match="must be a whole number"),
        ):
            file.read_into(np.zeros(10, np.uint8), **named)
    taken: dict[str, Any] = {"offset": np.int64(90), "size": np.uint8(7)}
    assert len(np.asarray(hippogriff.read(path, device="host", **taken))) == 7
