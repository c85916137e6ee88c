"""What people who load models do wrong, or what happens to them: told, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff import _compare
from hippogriff._advice import what_next
from hippogriff._checksum_files import checksum_files
from hippogriff._library import lib
from hippogriff._sidecar import read_sidecar
from hippogriff.safetensors import (
    SafetensorError,
    load_file,
    load_into,
    load_plan,
    safe_open,
    save_file,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a file of 16 MiB, with checksums."""
    path = tmp_path / "model.safetensors"
    save_file(
        {f"t{number}": np.full(1 << 20, number, np.uint8) for number in range(16)},
        path,
        checksum=True,
    )
    return path


def _interrupt_at(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    real = getattr(lib, call)

    def interrupted(*arguments: object) -> int:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(lib, call, interrupted)


def test_interrupt_as_a_transfer_begins_leaves_the_callers_arrays_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = {f"t{number}": np.empty(1 << 20, np.uint8) for number in range(16)}
    load_into(arrays, model)
    with monkeypatch.context() as patched:
        _interrupt_at(patched, "hippogriff_sendv_async")
        for _ in range(20):
            with pytest.raises(KeyboardInterrupt):
                load_into(arrays, model)
            for array in arrays.values():
                array.fill(99)
            assert all((array == 99).all() for array in arrays.values())
    load_into(arrays, model)  # nothing is in flight any more
    assert all((arrays[f"t{number}"] == number).all() for number in range(16))


def test_checksums_that_are_replaced_keep_their_mode(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    beside = tmp_path / "model.safetensors.xxh3"
    for mode in (None, None, 0o640, 0o640):
        if mode is not None:
            beside.chmod(mode)
        save_file({"a": np.zeros(9)}, path, checksum=True)
        umask = os.umask(0)
        os.umask(umask)
        assert stat.S_IMODE(beside.stat().st_mode) == (mode or 0o666 & ~umask)


@pytest.mark.parametrize(
    "load", [lambda paths: load_file(paths, framework="np"), lambda paths: load_into({}, paths)]
)
def test_open_files_and_empty_lists_are_no_paths(load: Any, model: Path) -> None:
    with (
        model.open("rb") as file,
        pytest.raises(hippogriff.InvalidArgument, match="give its path"),
    ):
        load(file)
    with pytest.raises(hippogriff.InvalidArgument, match="list of paths is empty"):
        load([])
    with pytest.raises(hippogriff.InvalidArgument, match="list of paths is empty"):
        load_plan(iter(()), {"cpu": "all"}, framework="np")


def test_what_has_no_room_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = SimpleNamespace(f_frsize=1, f_bfree=1000, f_bavail=1000, f_blocks=5000)
    monkeypatch.setattr(os, "fstatvfs", lambda _: facts)

    def allocate(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    with pytest.raises(hippogriff.IoError, match=r"bytes are wanted, 1000 are free") as raised:
        save_file({"a": np.zeros(1000)}, tmp_path / "model.safetensors")
    assert raised.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more_bytes", [0, 8])
def test_file_that_was_replaced_as_it_was_opened_is_told(
    model: Path, monkeypatch: pytest.MonkeyPatch, more_bytes: int
) -> None:
    def replace_and_read(*arguments: Any) -> Any:
        save_file({"t0": np.ones((16 << 20) + more_bytes, np.uint8)}, model, checksum=True)
        return read_sidecar(*arguments)

    save_file({"t0": np.zeros(16 << 20, np.uint8)}, model, checksum=True)
    with monkeypatch.context() as patched:
        patched.setattr(_compare, "read_sidecar", replace_and_read)
        with pytest.raises(hippogriff.ChecksumMismatch, match="was replaced after it was opened"):
            load_file(model, framework="np", verify=True)
    assert load_file(model, framework="np", verify=True)["t0"].all()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (np.complex64, np.float32),
        (np.float32, np.int32),
        (np.float32, np.bool_),
        (np.int64, np.int8),
        (np.uint8, np.int8),
        (np.int8, np.uint64),
        (np.uint16, np.bool_),
    ],
)
def test_conversions_that_lose_more_than_precision_are_refused(
    tmp_path: Path, theirs: Any, ours: Any
) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones(3, theirs)}, path)
    array = np.zeros(3, ours)
    with pytest.raises(hippogriff.InvalidArgument, match="loses more than precision"):
        load_into({"a": array}, path, convert=True)
    assert not array.any()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (np.float64, np.float16),
        (np.float32, np.complex64),
        (np.int64, np.float32),
        (np.uint8, np.int16),
        (np.int8, np.int64),
        (np.bool_, np.uint8),
    ],
)
def test_other_conversions_are_made(tmp_path: Path, theirs: Any, ours: Any) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones(3, theirs)}, path)
    array = np.zeros(3, ours)
    assert load_into({"a": array}, path, convert=True) == ([], [])
    assert (array == 1).all()


class _Array(np.ndarray[Any, Any]):
    """NumPy's, with what modules' tensors have."""

    def data_ptr(self) -> int:
        return self.ctypes.data

    def numel(self) -> int:
        return self.size


class _Module:
    """As torch's, as far as `load_into` looks."""

    def __init__(self, *, copies: bool) -> None:
        self._copies = copies
        self._parameters = {"weight": np.zeros(4).view(_Array)}
        self._buffers: dict[str, Any] = {}
        self.other = np.zeros(4).view(_Array)

    def modules(self) -> list[_Module]:
        return [self]

    def state_dict(self) -> dict[str, Any]:
        weight = self._parameters["weight"]
        return {"weight": weight.copy() if self._copies else weight, "other": self.other}


def test_modules_whose_state_is_a_copy_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": np.ones(4), "other": np.ones(4)}, path)
    with pytest.raises(hippogriff.InvalidArgument, match=r"weight: state_dict\(\) copies it"):
        load_into(_Module(copies=True), path)
    module = _Module(copies=False)
    load_into(module, path)
    assert module._parameters["weight"].all()
    assert module.other.all()


@pytest.mark.parametrize(
    ("begins", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "page of HTML"),
        (b"PK\3\4\x14\0\x08\x08", "torch.load"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "torch.load"),
        (b"GGUF\3\0\0\0\0\0", "GGUF"),
    ],
)
def test_other_formats_are_told(tmp_path: Path, begins: bytes, words: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(begins + bytes(64))
    with pytest.raises(SafetensorError, match=words):
        load_file(path, framework="np")


def test_shard_that_is_not_there_is_told_with_its_index(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}))
    words = r"model-00001-of-00002\.safetensors: No such file.*index\.json names it"
    with pytest.raises(FileNotFoundError, match=words):
        load_file(index, framework="np")
    with pytest.raises(FileNotFoundError, match=words):
        load_into({"a": np.zeros(1)}, index)


@pytest.mark.parametrize("value", [5, {"a": np.zeros(1)}, None, [1.0]])
def test_values_that_are_no_arrays_are_told(tmp_path: Path, value: Any) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match=f"type {type(value).__name__}, and no"):
        save_file({"step": value}, tmp_path / "model.safetensors")


def test_too_many_indices_are_an_index_error(model: Path) -> None:
    with safe_open(model, framework="np") as file:
        assert file.get_slice("t3")[0] == 3
        for kind in (IndexError, SafetensorError):
            with pytest.raises(kind, match="too many indices"):
                file.get_slice("t3")[0, 0]
    raw = model.with_name("raw")
    raw.write_bytes(bytes(16))
    with (
        hippogriff.open(raw, dtype="float32", shape=(2, 2)) as array,
        pytest.raises(IndexError, match="too many indices"),
    ):
        array[0, 0, 0]


def test_checksums_have_no_checksums_among_other_files(model: Path) -> None:
    names = [str(each) for each in sorted(model.parent.iterdir())]
    assert len(names) == 2
    [result] = checksum_files(names, None, check=False, tell=lambda *_: None)
    assert (result.path, result.ok) == (str(model), True)
    [alone] = checksum_files(names[1:], None, check=False, tell=lambda *_: None)
    assert alone.path == names[1]


def test_advice_about_a_file_is_none_about_the_command_line(model: Path) -> None:
    model.write_bytes(b"\xff" * 16)
    with pytest.raises(SafetensorError) as raised:
        load_file(model, framework="np")
    assert what_next(raised.value) == ""
    argument = hippogriff.InvalidArgument("too few", object="--tensors")
    assert "hippogriff --help" in what_next(argument)
    variable = hippogriff.InvalidArgument("it is 0", object="model")
    variable.operation = "read HIPPOGRIFF_HOST_MEMORY"
    assert "hippogriff doctor" in what_next(variable)
