"""Comparing what has landed with its checksums: in many batches, on a thread, interrupted."""

from __future__ import annotations

import random
import signal
import threading
import time
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from damage import flip

from hippogriff import ChecksumMismatch, _xxh3
from hippogriff._sidecar import format_sidecar, parse_sidecar
from hippogriff.errors import DeviceError
from hippogriff.integrity import SidecarError, write_checksums
from hippogriff.safetensors import (
    _checks,
    _into,
    _load,
    load_file,
    load_into,
    load_plan,
    safe_open,
    save_file,
)
from hippogriff.safetensors._verify import Landed, Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hippogriff.safetensors._tensor import TensorInfo

_THREAD = "hippogriff-verify"


def make_model(path: Path, seed: int) -> dict[str, TensorInfo]:
    """Write 300 tensors with checksums, some of no bytes; say where each is."""
    sizes = random.Random(seed)
    values = np.random.default_rng(seed)
    tensors = {
        f"{path.stem}.{number}": values.integers(0, 256, sizes.choice((0, 7, 900, 3000)), np.uint8)
        for number in range(300)
    }
    save_file(tensors, path, checksum=True)
    with safe_open(path, "np") as file:
        return dict(file._header.tensors)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small loads go on as large ones to a GPU do; no thread is left behind."""
    monkeypatch.setattr(_load, "room_for", lambda *_: None)  # What lands on a host is hashed then.
    monkeypatch.setattr(_into, "room_for", lambda *_: None)
    monkeypatch.setattr(_load, "_together", lambda groups, _: groups)
    monkeypatch.setattr(_load, "_FIRST_BYTES", 1000)
    monkeypatch.setattr(_load, "_FIRST_TENSORS", 2)
    monkeypatch.setattr(_load, "_BATCH_TENSORS", 8)
    monkeypatch.setattr(_checks, "_TOGETHER_BYTES", 20_000)
    yield
    assert not comparing()


def comparing() -> list[threading.Thread]:
    """Return the threads that compare beside a load."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(_THREAD)]


def in_thread() -> bool:
    """Whether this is the thread that compares beside a load."""
    return threading.current_thread().name.startswith(_THREAD)


def press_ctrl_c() -> None:
    """Interrupt the main thread, also where it waits for a lock, as the terminal does."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


class Calls:
    """Stands before the library; tells which thread asks it for checksums, and waits."""

    def __init__(self, before: Callable[[Calls], None] | None = None) -> None:
        self._lib = vars(_xxh3)["lib"]
        self._before = before
        self.threads: list[str] = []
        self.under_way = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name)

    def hippogriff_checksum(self, *arguments: Any) -> int:
        self.threads.append(threading.current_thread().name)
        self.under_way += 1
        try:
            if self._before is not None:
                self._before(self)
            status: int = self._lib.hippogriff_checksum(*arguments)
            return status
        finally:
            self.under_way -= 1

    @property
    def on_thread(self) -> int:
        return sum(name.startswith(_THREAD) for name in self.threads)


def with_calls(monkeypatch: pytest.MonkeyPatch, before: Callable[[Calls], None]) -> Calls:
    calls = Calls(before)
    monkeypatch.setattr(_xxh3, "lib", calls)
    return calls


@pytest.mark.usefixtures("batches")
def test_what_differs_is_told_in_whichever_batch_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = [tensor for tensor in make_model(path, 1).values() if tensor.size_bytes]
    calls = with_calls(monkeypatch, lambda _: None)
    assert len(load_file(path, framework="np", verify=True)) == 300
    assert calls.on_thread > 5
    # The head's, and what was left at the end.
    assert len(calls.threads) > calls.on_thread + 1
    for tensor in (tensors[0], tensors[len(tensors) // 2], tensors[-1]):
        for place in (0, tensor.size_bytes - 1):
            flip(path, tensor.offset + place)
            with pytest.raises(ChecksumMismatch) as raised:
                load_file(path, framework="np", verify=True)
            flip(path, tensor.offset + place)
            (mismatch,) = raised.value.mismatches
            assert mismatch.tensor == tensor.name
            assert (mismatch.offset, mismatch.size) == (tensor.offset, tensor.size_bytes)
            assert f"tensor {tensor.name!r}, bytes 0 to {tensor.size_bytes} " in str(raised.value)
    load_file(path, framework="np", verify=True)


@pytest.mark.usefixtures("batches")
def test_the_first_that_differs_is_told_however_long_it_takes_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = [tensor for tensor in make_model(path, 2).values() if tensor.size_bytes]

    def dawdle(calls: Calls) -> None:
        if calls.on_thread == 1 and in_thread():
            time.sleep(0.1)

    with_calls(monkeypatch, dawdle)
    for others in (tensors[-1:], tensors[150:151], tensors[-60:]):
        for tensor in (*others, tensors[0]):
            flip(path, tensor.offset)
        with pytest.raises(ChecksumMismatch) as raised:
            load_file(path, framework="np", verify=True)
        assert raised.value.mismatches[0].tensor == tensors[0].name
        for tensor in (*others, tensors[0]):
            flip(path, tensor.offset)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("where", ["beside", "folder"])
def test_each_of_several_files_is_compared_with_its_own_checksums(
    tmp_path: Path, where: str
) -> None:
    paths = [tmp_path / f"{number}.safetensors" for number in range(4)]
    headers = [make_model(path, seed) for seed, path in enumerate(paths, 3)]
    verify: Any = True
    if where == "folder":
        verify = tmp_path / "sums"
        verify.mkdir()
        for path in paths:
            path.with_name(path.name + ".xxh3").unlink()
            write_checksums(path, verify)
    assert len(load_file(paths, framework="np", verify=verify)) == 1200
    for path, header in zip(paths, headers, strict=True):
        tensors = [tensor for tensor in header.values() if tensor.size_bytes]
        for tensor in (tensors[0], tensors[-1]):
            flip(path, tensor.offset)
            with pytest.raises(ChecksumMismatch) as raised:
                load_file(paths, framework="np", verify=verify)
            flip(path, tensor.offset)
            assert raised.value.object == str(path)
            assert [each.tensor for each in raised.value.mismatches] == [tensor.name]


def test_small_loads_start_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for seed, path in enumerate(paths):
        make_model(path, seed)
    calls = with_calls(monkeypatch, lambda _: None)
    assert len(load_file(paths, framework="np", verify=True)) == 900
    assert calls.on_thread == 0


@pytest.mark.usefixtures("batches")
def test_a_wrong_number_of_checksums_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 7)
    sidecar = path.with_name(path.name + ".xxh3")
    right = parse_sidecar(sidecar.read_bytes())
    for checksums in (
        right.checksums[:50],
        right.checksums[:-1],
        right.checksums + array("Q", [1]),
    ):
        sidecar.write_bytes(format_sidecar(right._replace(checksums=checksums)))
        with pytest.raises(SidecarError, match="make them anew"):
            load_file(path, framework="np", verify=True)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("call", [1, 2, 5])
def test_an_interrupt_while_a_thread_compares_leaves_nothing_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 4)

    def interrupt(calls: Calls) -> None:
        if calls.on_thread == call and in_thread():
            time.sleep(0.2)  # Until the main thread waits: an interrupt in a `__del__` is lost.
            signal.raise_signal(signal.SIGINT)  # Its handler runs on the main thread.
            time.sleep(0.1)

    calls = with_calls(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_file(path, framework="np", verify=True)
    assert calls.under_way == 0
    assert calls.on_thread <= call + 1


@pytest.mark.usefixtures("batches")
def test_an_interrupt_ends_a_comparison_of_very_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 5)
    monkeypatch.setattr(_xxh3, "_CALL_BYTES", 1000)

    def interrupt(calls: Calls) -> None:
        if calls.on_thread == 3 and in_thread():
            time.sleep(0.2)
            signal.raise_signal(signal.SIGINT)
        if calls.on_thread:
            time.sleep(0.05)

    calls = with_calls(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_file(path, framework="np", verify=True)
    assert calls.under_way == 0
    assert calls.on_thread <= 5


@pytest.mark.usefixtures("batches")
def test_an_interrupt_at_the_last_comparison_waits_for_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 6)

    def interrupt(_: Calls) -> None:
        if in_thread():
            time.sleep(0.05)
        elif comparing():
            raise KeyboardInterrupt

    calls = with_calls(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_file(path, framework="np", verify=True)
    assert calls.under_way == 0


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("call", [1, 4])
def test_a_failure_to_compute_checksums_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 8)

    def fail(calls: Calls) -> None:
        if calls.on_thread == call and in_thread():
            raise DeviceError("the device fails")

    calls = with_calls(monkeypatch, fail)
    with pytest.raises(DeviceError, match="the device fails"):
        load_file(path, framework="np", verify=True)
    assert calls.under_way == 0


@pytest.mark.usefixtures("batches")
def test_a_load_that_fails_waits_for_what_is_being_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 9)
    start = vars(_load)["start_segments"]
    begun, failed = threading.Event(), threading.Event()

    def begin(_: Calls) -> None:
        if in_thread():
            begun.set()
            failed.wait(60)
            time.sleep(0.1)

    calls = with_calls(monkeypatch, begin)

    def fail(*arguments: Any, **options: Any) -> Any:
        if comparing():
            assert begun.wait(60)
            failed.set()
            raise MemoryError
        return start(*arguments, **options)

    monkeypatch.setattr(_load, "start_segments", fail)
    with pytest.raises(MemoryError):
        load_file(path, framework="np", verify=True)
    assert calls.on_thread == 1
    assert calls.under_way == 0


@pytest.mark.usefixtures("batches")
def test_where_no_thread_starts_all_is_compared_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = [tensor for tensor in make_model(path, 10).values() if tensor.size_bytes]

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert len(load_file(path, framework="np", verify=True)) == 300
    for tensor in (tensors[0], tensors[-1]):
        flip(path, tensor.offset)
        with pytest.raises(ChecksumMismatch):
            load_file(path, framework="np", verify=True)
        flip(path, tensor.offset)


@pytest.mark.usefixtures("batches")
def test_nothing_is_compared_twice_where_a_thread_starts_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = make_model(path, 12)
    start, compare = threading.Thread.start, Verifier.compare
    failures = 0
    compared: list[str] = []

    def fail_first(thread: threading.Thread) -> None:
        nonlocal failures
        if thread.name.startswith(_THREAD) and failures < 3:
            failures += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    def note(self: Verifier, landed: Landed, *arguments: Any) -> None:
        compared.extend(name for piece in landed.pieces for name in piece.names)
        compare(self, landed, *arguments)

    monkeypatch.setattr(threading.Thread, "start", fail_first)
    monkeypatch.setattr(Verifier, "compare", note)
    assert len(load_file(path, framework="np", verify=True)) == 300
    assert failures == 3
    assert sorted(compared) == sorted(tensors)


@pytest.mark.usefixtures("batches")
def test_further_interrupts_wait_too_for_what_is_being_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 13)

    def interrupt(calls: Calls) -> None:
        if calls.on_thread == 2 and in_thread():
            for _ in range(2):
                time.sleep(0.2)
                press_ctrl_c()
            time.sleep(0.2)

    calls = with_calls(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_file(path, framework="np", verify=True)
    assert calls.under_way == 0
    assert calls.on_thread == 2


@pytest.mark.usefixtures("batches")
def test_an_interrupt_waits_for_a_comparison_that_hangs_no_longer_than_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 14)
    monkeypatch.setattr(_checks, "_STOP_SECONDS", 0.3)
    goes_on = threading.Event()

    def hang(calls: Calls) -> None:
        if calls.on_thread == 1 and in_thread():
            time.sleep(0.2)
            signal.raise_signal(signal.SIGINT)
            goes_on.wait(60)

    calls = with_calls(monkeypatch, hang)
    with pytest.raises(KeyboardInterrupt):
        load_file(path, framework="np", verify=True)
    assert calls.under_way == 1
    goes_on.set()
    for thread in comparing():
        thread.join(60)
    assert (calls.under_way, calls.on_thread) == (0, 1)


@pytest.mark.usefixtures("batches")
def test_a_mismatch_that_was_found_is_told_before_what_the_load_fails_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = [tensor for tensor in make_model(path, 15).values() if tensor.size_bytes]
    flip(path, tensors[0].offset)
    start = vars(_load)["start_segments"]
    calls = with_calls(monkeypatch, lambda _: None)
    failure: BaseException = MemoryError("made to fail")

    def fail(*arguments: Any, **options: Any) -> Any:
        if comparing():
            while not calls.on_thread:
                time.sleep(0.01)
            time.sleep(0.2)
            raise failure
        return start(*arguments, **options)

    monkeypatch.setattr(_load, "start_segments", fail)
    with pytest.raises(ChecksumMismatch) as raised:
        load_file(path, framework="np", verify=True)
    assert raised.value.mismatches[0].tensor == tensors[0].name
    assert raised.value.__context__ is failure
    # Who has pressed Ctrl-C shall see that; and the file is damaged all the same.
    failure = KeyboardInterrupt()
    calls.threads.clear()
    with pytest.raises(KeyboardInterrupt) as interrupted:
        load_file(path, framework="np", verify=True)
    (note,) = interrupted.value.__notes__
    assert note.startswith("found before: ")
    assert f"tensor {tensors[0].name!r}" in note


@pytest.mark.usefixtures("batches")
def test_a_mismatch_is_told_before_a_failure_of_the_comparison_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = [tensor for tensor in make_model(path, 16).values() if tensor.size_bytes]
    flip(path, tensors[0].offset)

    def fail(calls: Calls) -> None:
        if in_thread() and calls.on_thread == 1:
            time.sleep(0.5)
        elif comparing():
            while not calls.on_thread:
                time.sleep(0.01)
            raise MemoryError("made to fail")

    with_calls(monkeypatch, fail)
    with pytest.raises(ChecksumMismatch) as raised:
        load_file(path, framework="np", verify=True)
    assert raised.value.mismatches[0].tensor == tensors[0].name
    assert isinstance(raised.value.__context__, MemoryError)


@pytest.mark.usefixtures("batches")
def test_chosen_tensors_are_compared_batch_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = [tensor for tensor in make_model(path, 11).values() if tensor.size_bytes]
    chosen = tensors[::3]
    with safe_open(path, "np", verify=True) as file:
        flip(path, chosen[20].offset)
        flip(path, tensors[100].offset)
        with pytest.raises(ChecksumMismatch) as raised:
            file.get_tensors(tensor.name for tensor in chosen)
        assert [each.tensor for each in raised.value.mismatches] == [chosen[20].name]
        assert len(file.get_tensors(tensor.name for tensor in chosen[30:])) == len(chosen) - 30


def filled(path: Path) -> dict[str, Any]:
    """Return arrays as large as a file's tensors."""
    with safe_open(path, "np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    return {name: np.zeros(shape, np.uint8) for name, shape in shapes.items()}


def into(path: Path) -> None:
    """Load into arrays that are there."""
    load_into(filled(path), path, verify=True)


def by_plan(path: Path) -> None:
    """Load to two devices that both are this machine."""
    load_plan(path, {"cpu": None, "host": None}, framework="np", verify=True)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("load", [into, by_plan])
def test_all_loaders_compare_beside_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[Path], None]
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = [tensor for tensor in make_model(path, 17).values() if tensor.size_bytes]
    monkeypatch.setattr(_into, "_TENSORS_TOGETHER", 8)
    calls = with_calls(monkeypatch, lambda _: None)
    load(path)
    assert calls.on_thread > 5
    for tensor in (tensors[0], tensors[len(tensors) // 2], tensors[-1]):
        flip(path, tensor.offset)
        with pytest.raises(ChecksumMismatch) as raised:
            load(path)
        flip(path, tensor.offset)
        assert [each.tensor for each in raised.value.mismatches] == [tensor.name]


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("load", [into, by_plan])
def test_an_interrupt_of_any_loader_waits_for_what_is_being_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[Path], None]
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 18)
    monkeypatch.setattr(_into, "_TENSORS_TOGETHER", 8)
    interrupted = False

    def interrupt(calls: Calls) -> None:
        nonlocal interrupted
        if in_thread() and calls.on_thread >= 2:
            if not interrupted:
                interrupted = True
                for _ in range(2):
                    time.sleep(0.2)
                    press_ctrl_c()
            time.sleep(0.2)

    calls = with_calls(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        load(path)
    assert calls.under_way == 0


@pytest.mark.usefixtures("batches")
def test_arrays_that_share_memory_are_compared_before_they_are_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    random_bytes = np.random.default_rng(19)
    tensors = {f"t{n:02}": random_bytes.integers(0, 256, 4000, np.uint8) for n in range(40)}
    save_file(tensors, path, checksum=True)
    monkeypatch.setattr(_into, "_TENSORS_TOGETHER", 4)
    calls = with_calls(monkeypatch, lambda _: time.sleep(0.02) if in_thread() else None)
    arrays = {name: np.zeros(4000, np.uint8) for name in tensors}
    for number in range(20, 40):
        arrays[f"t{number}"] = arrays[f"t{number - 20:02}"]
    load_into(arrays, path, verify=True)
    assert calls.on_thread
    for name, found in arrays.items():
        assert (found == tensors[f"t{int(name[1:]) % 20 + 20}"]).all()
