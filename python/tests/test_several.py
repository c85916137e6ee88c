"""Loading by a plan: on one machine's CPU, whose two names stand for two devices, and on GPUs."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff import _report, _slices
from hippogriff._console import Follower
from hippogriff.integrity import write_checksums
from hippogriff.safetensors import (
    LoadReport,
    SafetensorError,
    _load,
    _several,
    load_plan,
    save_file,
)

if TYPE_CHECKING:
    from pathlib import Path

_ONE, _OTHER = "cpu", "host"


@pytest.fixture
def files(folder: Path) -> tuple[list[Path], dict[str, Any]]:
    """Two files and what is in them."""
    random = np.random.default_rng(1)
    tensors = {
        "a": random.standard_normal((64, 1000)).astype(np.float32),
        "b": random.integers(0, 255, (3_000_000,), np.uint8),
        "c": random.standard_normal((40, 30, 20)).astype(np.float16),
        "d": np.zeros((0, 4), np.int32),
        "e": np.float64(2.5).reshape(()),
    }
    paths = [folder / "1.safetensors", folder / "2.safetensors"]
    save_file({name: tensors[name] for name in ("a", "b", "d")}, paths[0])
    save_file({name: tensors[name] for name in ("c", "e")}, paths[1])
    return paths, tensors


def test_each_gets_what_the_plan_says(files: tuple[list[Path], dict[str, Any]]) -> None:
    paths, tensors = files
    plan = {
        _ONE: {"a": np.s_[:32], "c": np.s_[:, 10:20], "b": None, "e": None},
        _OTHER: {"a": np.s_[32:], "c": np.s_[:, 20:, ::3], "b": None, "d": np.s_[:]},
    }
    loaded = load_plan(paths, plan, framework="np")
    assert {device: set(found) for device, found in loaded.items()} == {
        _ONE: set("aceb"),
        _OTHER: set("acbd"),
    }
    for device, wanted in plan.items():
        for name, index in wanted.items():
            expected = tensors[name] if index is None else tensors[name][index]
            found = loaded[device][name]
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert (found == expected).all(), (device, name)
            assert found.flags.owndata
    assert loaded[_ONE]["b"].ctypes.data != loaded[_OTHER]["b"].ctypes.data


def test_what_both_want_is_read_once_and_shared_out(
    files: tuple[list[Path], dict[str, Any]],
) -> None:
    paths, tensors = files
    reports: list[LoadReport] = []
    loaded = load_plan(paths, {_ONE: None, _OTHER: None}, framework="np", explain=reports.append)
    for found in loaded.values():
        assert found.keys() == tensors.keys()
        assert all((found[name] == tensors[name]).all() for name in tensors)
    (report,) = reports
    total = sum(tensor.nbytes for tensor in tensors.values())
    assert report.bytes == total
    assert {file.device for file in report.files} == {_ONE, _OTHER}
    read = [sum(f.bytes for f in report.files if f.device == each) for each in (_ONE, _OTHER)]
    assert min(read) > 0
    assert f"to {_ONE}" in str(report)
    for one, other in ((_ONE, _OTHER), (_OTHER, _ONE)):
        there = [file for file in report.files if file.device == other]
        assert sum(file.tensors for file in there) == len(tensors)
        copied = sum(file.bytes_by_route.get(f"copied from {one}", 0) for file in there)
        assert copied == sum(file.bytes for file in report.files if file.device == one)
    assert "nothing to move" not in str(report)


@pytest.mark.parametrize("rows", [3, 3000])
def test_slices_that_are_no_run_are_in_the_report(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def tell(follower: Follower, done: int) -> None:
        told.append((done, follower._total))

    monkeypatch.setattr(Follower, "tell", tell)
    table = np.arange(rows * 700, dtype=np.int32).reshape(rows, 700)
    save_file({"table": table}, tmp_path / "x.st")
    reports: list[LoadReport] = []
    plan: dict[str, Any] = {_ONE: {"table": np.s_[:, :9]}, _OTHER: {"table": np.s_[:, 7:]}}
    loaded = load_plan(
        tmp_path / "x.st", plan, framework="np", explain=reports.append, progress=True
    )
    assert (loaded[_ONE]["table"] == table[:, :9]).all()
    assert (loaded[_OTHER]["table"] == table[:, 7:]).all()
    (report,) = reports
    assert {file.device: file.bytes for file in report.files} == {
        _ONE: rows * 9 * 4,
        _OTHER: rows * 693 * 4,
    }
    # The bar, told at the end of each, never beyond what there is to come.
    assert told
    assert all(done <= total for done, total in told)
    assert told[-1][0] == told[-1][1]
    for file in report.files:
        assert sum(file.bytes_by_route.values()) >= file.bytes, file
        assert file.seconds > 0
        assert (rows == 3) == ("caller" in file.bytes_by_route)


def test_all_of_a_tensor_is_read_once_however_it_is_said(
    files: tuple[list[Path], dict[str, Any]],
) -> None:
    paths, tensors = files
    reports: list[LoadReport] = []
    plan: dict[Any, Any] = {_ONE: {"a": None}, _OTHER: {"a": np.s_[:]}}
    loaded = load_plan(paths, plan, framework="np", explain=reports.append)
    assert reports[0].bytes == tensors["a"].nbytes
    assert (loaded[_OTHER]["a"] == tensors["a"]).all()


def test_plans_that_cannot_be_are_refused(files: tuple[list[Path], dict[str, Any]]) -> None:
    paths, _ = files
    with pytest.raises(SafetensorError, match="'x'"):
        load_plan(paths, {_ONE: ["a", "x"]}, framework="np")
    with pytest.raises(hippogriff.InvalidArgument, match="no device"):
        load_plan(paths, {}, framework="np")
    with pytest.raises(hippogriff.InvalidArgument, match="one string"):
        load_plan(paths, {_ONE: "a"}, framework="np")
    wrongs: list[Any] = [5, [5], {1: None, "a": None}]
    for wrong in wrongs:
        with pytest.raises(hippogriff.InvalidArgument, match="names"):
            load_plan(paths, {_ONE: wrong}, framework="np")
    with pytest.raises(hippogriff.InvalidArgument, match="mapping"):
        load_plan(paths, [_ONE], framework="np")  # type: ignore[arg-type]
    for index, kind in ((np.s_[::-1], ValueError), (64, IndexError), ("a", ValueError)):
        with pytest.raises(kind, match="tensor 'a': ") as caught:
            load_plan(paths, {_ONE: {"a": index}}, framework="np")
        error = caught.value
        assert isinstance(error, SafetensorError)
        assert error.object in map(str, paths)
        assert str(error).startswith(f"{error.object}: ")


def test_of_what_is_packed_a_plan_can_have_only_all(tmp_path: Path) -> None:
    header = b'{"p":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}'
    path = tmp_path / "x.st"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    for part in (np.s_[1:], np.s_[2:2], 0):
        with pytest.raises(SafetensorError, match=r"x\.st: tensor 'p': F4 is packed"):
            load_plan(path, {"cpu": {"p": part}}, framework="np")
    for whole in (None, ..., np.s_[:], np.s_[0:4]):  # which only NumPy has no type for
        with pytest.raises(hippogriff.Unsupported, match="NumPy has no element type for F4"):
            load_plan(path, {"cpu": {"p": whole}}, framework="np")


def test_whole_tensors_are_verified(
    files: tuple[list[Path], dict[str, Any]],
) -> None:
    paths, tensors = files
    for path in paths:
        write_checksums(path)
    plan: dict[Any, Any] = {_ONE: ["a", "e"], _OTHER: None}
    loaded = load_plan(paths, plan, framework="np", verify=True)
    assert (loaded[_ONE]["a"] == tensors["a"]).all()
    with paths[0].open("r+b") as file:
        file.seek(-1_000_000, 2)
        file.write(b"damaged")
    with pytest.raises(hippogriff.ChecksumMismatch, match="tensor 'b'"):
        load_plan(paths, {_ONE: None, _OTHER: None}, framework="np", verify=True)


@pytest.mark.parametrize("index", [np.s_[300:600], np.s_[:, 3:9], np.s_[700], np.s_[900:100:9]])
def test_slices_are_verified_by_the_blocks_that_they_touch(tmp_path: Path, index: Any) -> None:
    path = tmp_path / "x.st"
    table = np.random.default_rng(7).integers(0, 1 << 15, (1700, 512), np.int16)  # 256 rows a block
    save_file({"other": np.arange(9), "table": table}, path, checksum=True)
    plan: dict[str, Any] = {_ONE: {"table": index, "other": None}, _OTHER: {"table": index}}
    reports: list[LoadReport] = []
    loaded = load_plan(path, plan, framework="np", verify=True, explain=reports.append)
    for device in plan:
        assert (loaded[device]["table"] == table[index]).all()
        assert loaded[device]["table"].base is None
    touched = np.zeros(table.shape, bool)
    touched[index] = True
    rows = np.flatnonzero(touched.any(axis=1))
    blocks = range(rows[0] // 256, rows[-1] // 256 + 1) if rows.size else range(0)
    begin = path.stat().st_size - table.nbytes
    block_bytes = 256 * table[0].nbytes
    ends = (min((number + 1) * block_bytes, table.nbytes) for number in blocks)
    sizes = [end - number * block_bytes for number, end in zip(blocks, ends, strict=True)]
    assert reports[0].bytes == sum(sizes) + 9 * 8
    for number in range(7):
        with path.open("r+b") as file:
            file.seek(begin + number * block_bytes + 5)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        if number in blocks:
            with pytest.raises(hippogriff.ChecksumMismatch, match="tensor 'table'") as caught:
                load_plan(path, plan, framework="np", verify=True)
            (mismatch,) = caught.value.mismatches
            assert mismatch.offset == begin + number * block_bytes
            assert mismatch.tensor_offset == number * block_bytes
        else:
            found = load_plan(path, plan, framework="np", verify=True)
            assert (found[_ONE]["table"] == table[index]).all()
        with path.open("r+b") as file:
            file.seek(begin + number * block_bytes + 5)
            file.write(byte)


def test_one_devices_failure_stops_the_others(
    files: tuple[list[Path], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, _ = files
    original = _load.load_tensors

    def fail(*arguments: Any, **more: Any) -> dict[str, Any]:
        if more["to"] == _OTHER:
            raise hippogriff.IoError("read: made to fail")
        return original(*arguments, **more)

    monkeypatch.setattr(_several, "load_tensors", fail)
    with pytest.raises(hippogriff.IoError, match="made to fail"):
        load_plan(paths, {_ONE: None, _OTHER: None}, framework="np")


def test_of_several_failures_a_mismatch_is_raised_and_the_others_are_noted(
    files: tuple[list[Path], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, _ = files
    both = threading.Barrier(2)

    def fail(*_: Any, to: str, **__: Any) -> dict[str, Any]:
        both.wait(60)
        if to == _ONE:
            raise hippogriff.IoError("read: made to fail")
        raise hippogriff.ChecksumMismatch("it differs")

    monkeypatch.setattr(_several, "load_tensors", fail)
    with pytest.raises(hippogriff.ChecksumMismatch, match="it differs") as raised:
        load_plan(paths, {_ONE: None, _OTHER: None}, framework="np")
    assert raised.value.__notes__ == ["on another device: read: made to fail"]


def test_a_device_that_gets_no_thread_is_not_loaded_to_later(
    files: tuple[list[Path], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, _ = files
    start, original = threading.Thread.start, _load.load_tensors
    threads = 0
    devices = []

    def begin(thread: threading.Thread) -> None:
        nonlocal threads
        if thread.name.startswith("hippogriff-load"):
            threads += 1
            if threads == 2:
                raise RuntimeError("can't start new thread")
        start(thread)

    def load(*arguments: Any, **more: Any) -> dict[str, Any]:
        devices.append(more["to"])
        time.sleep(0.3)  # So that the second thread is asked for.
        return original(*arguments, **more)

    monkeypatch.setattr(threading.Thread, "start", begin)
    monkeypatch.setattr(_several, "load_tensors", load)
    with pytest.raises(hippogriff.OutOfHostMemory, match="can't start new thread"):
        load_plan(paths, {_ONE: None, _OTHER: None}, framework="np")
    for thread in threading.enumerate():
        if thread.name.startswith("hippogriff-load"):
            thread.join(60)
    assert set(devices) <= {_ONE}


@pytest.mark.parametrize(
    "index", [np.s_[:, ::2], np.s_[:, :1]], ids=["out of blocks", "run by run"]
)
def test_an_interrupt_ends_a_strided_slice_that_is_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Any
) -> None:
    # Rows so long that each is a transfer of its own; the file has a hole for data.
    shape, blocks = (40, 2 << 20), 40
    path = tmp_path / "sparse.safetensors"
    size = shape[0] * shape[1]
    header = {"a": {"dtype": "U8", "shape": shape, "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    monkeypatch.setattr(_slices, "_BLOCK_BYTES", 2 << 20)
    monkeypatch.setattr(_slices, "_IN_FLIGHT", 2)
    stopping: list[threading.Event] = []
    started = 0
    part, start = _report.Watch.part, vars(_slices)["_start"]

    def watch(self: _report.Watch, event: threading.Event) -> _report.Watch:
        stopping.append(event)
        return part(self, event)

    def interrupt(*arguments: Any) -> Any:
        nonlocal started
        started += 1
        if started == 2:
            signal.raise_signal(signal.SIGINT)  # Its handler runs on the main thread.
            assert stopping[0].wait(60)
        return start(*arguments)

    monkeypatch.setattr(_report.Watch, "part", watch)
    monkeypatch.setattr(_slices, "_start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_plan(path, {_ONE: {"a": index}}, framework="np")
    assert 2 <= started < blocks // 4


def test_gpus_get_what_the_plan_says(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    count = torch.cuda.device_count()
    random = np.random.default_rng(2)
    tensors = {f"t{n}": random.standard_normal((256, 1024)).astype(np.float32) for n in range(40)}
    save_file(tensors, path)
    devices = [f"cuda:{number}" for number in range(count)]
    rows = 256 // count
    plan: dict[Any, Any] = {
        device: {
            **dict.fromkeys(list(tensors)[:20]),
            **{
                name: np.s_[number * rows : (number + 1) * rows] if index % 2 else np.s_[:, ::2]
                for index, name in enumerate(list(tensors)[20:])
            },
        }
        for number, device in enumerate(devices)
    }
    loaded = load_plan(path, plan)
    for device, wanted in plan.items():
        for name, index in wanted.items():
            expected = tensors[name] if index is None else tensors[name][index]
            assert loaded[device][name].device == torch.device(device)
            assert (loaded[device][name].cpu().numpy() == expected).all(), (device, name)
    for device, found in load_plan(path, dict.fromkeys(devices)).items():
        for name, tensor in tensors.items():
            assert (found[name].cpu().numpy() == tensor).all(), (device, name)


def test_what_is_loaded_belongs_to_the_callers_stream(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"a": np.ones(1000, np.float32)}, tmp_path / "model.safetensors")
    original = _load.load_tensors
    seen = []

    def look(*arguments: Any, **more: Any) -> dict[str, Any]:
        seen.append(torch.cuda.current_stream("cuda:0"))
        return original(*arguments, **more)

    monkeypatch.setattr(_several, "load_tensors", look)
    with torch.cuda.stream(torch.cuda.Stream("cuda:0")) as _:
        stream = torch.cuda.current_stream("cuda:0")
        loaded = load_plan(tmp_path / "model.safetensors", {"cuda:0": None})
    assert seen == [stream]
    assert float(loaded["cuda:0"]["a"].sum()) == 1000
