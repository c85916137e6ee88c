"""Transfers: waiting, awaiting, cancelling, dropping, many at once."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff._runtime import runtime
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path


def random_bytes(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


def test_transfer_tells_its_progress_route_and_report(big_file: Path) -> None:
    transfer = hippogriff.read_async(big_file, device="host")
    array = transfer.wait(60)
    size = big_file.stat().st_size
    assert array.nbytes == size
    assert transfer.done()
    progress = transfer.progress
    assert (progress.bytes_done, progress.bytes_total, progress.fraction) == (size, size, 1.0)
    assert progress.finished
    assert transfer.missing() == ()
    report = transfer.report()
    assert report["route"] == transfer.route
    assert report["bytes"] == size
    assert "finished" in repr(transfer)


def test_a_file_with_bytes_and_no_size_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match="no size"):
        hippogriff.read("/proc/self/status")
    assert hippogriff.read("/proc/self/status", size=0).nbytes == 0
    (tmp_path / "empty").touch()
    assert hippogriff.read(tmp_path / "empty").nbytes == 0


def test_waiting_again_gives_the_same_array(big_file: Path) -> None:
    transfer = hippogriff.read_async(big_file, device="host")
    assert transfer.wait() is transfer.wait(0)


def test_progress_is_told_to_the_end(big_file: Path) -> None:
    seen: list[hippogriff.Progress] = []
    array = hippogriff.read(big_file, device="host", progress=seen.append)
    assert seen[-1].finished
    assert seen[-1].bytes_done == array.nbytes
    assert [each.bytes_done for each in seen] == sorted(each.bytes_done for each in seen)


def test_an_exception_from_the_progress_callback_comes_out(big_file: Path) -> None:
    def stop(_: hippogriff.Progress) -> None:
        raise ZeroDivisionError

    before = len(runtime.live_allocations)
    with pytest.raises(ZeroDivisionError):
        hippogriff.read(big_file, device="host", progress=stop)
    gc.collect()
    assert len(runtime.live_allocations) == before


def test_awaiting_gives_the_array(big_file: Path) -> None:
    async def read() -> hippogriff.Array:
        return await hippogriff.read_async(big_file, device="host")

    assert asyncio.run(read()).to_numpy().tobytes() == big_file.read_bytes()


def test_two_tasks_may_await_one_transfer(big_file: Path) -> None:
    async def read() -> list[Any]:
        transfer = hippogriff.read_async(big_file, device="host")

        async def wait() -> Any:
            return await transfer

        return list(await asyncio.gather(wait(), wait(), wait()))

    first, *others = asyncio.run(read())
    assert all(other is first for other in others)


def test_many_transfers_are_awaited_at_once(tmp_path: Path) -> None:
    data = [random_bytes(100_000 + index) for index in range(30)]
    for index, content in enumerate(data):
        (tmp_path / str(index)).write_bytes(content)

    async def read() -> list[hippogriff.Array]:
        transfers = [
            hippogriff.read_async(tmp_path / str(index), device="host") for index in range(30)
        ]
        return [await transfer for transfer in transfers]

    assert [array.to_numpy().tobytes() for array in asyncio.run(read())] == data


def test_errors_come_out_of_await(tmp_path: Path) -> None:
    async def read() -> None:
        await hippogriff.read_async(tmp_path / "nothing", device="host")

    with pytest.raises(FileNotFoundError):
        asyncio.run(read())


def _slow_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host device behind a link slow enough to be caught in the act: 20 MB/s."""
    gc.collect()
    hippogriff.deinit()
    monkeypatch.setenv("HIPPOGRIFF_HOST_LINK", "20MB")


@pytest.fixture
def _slow_link(monkeypatch: pytest.MonkeyPatch) -> Any:
    _slow_device(monkeypatch)
    yield
    gc.collect()
    hippogriff.deinit()


@pytest.mark.usefixtures("_slow_link")
def test_cancelling_ends_a_transfer_and_says_what_is_missing(tmp_path: Path) -> None:
    # More than can be under way at one time, however late the cancel comes.
    big_file = tmp_path / "sparse"
    with big_file.open("wb") as file:
        file.truncate(1 << 30)
    transfer = hippogriff.read_async(big_file, device="host")
    transfer.cancel()
    with pytest.raises(hippogriff.Cancelled) as caught:
        transfer.wait(30)
    size = big_file.stat().st_size
    missing = sum(length for _, length in caught.value.missing)
    assert 0 < missing <= size
    assert missing + transfer.progress.bytes_done == size
    assert transfer.missing() == caught.value.missing


@pytest.mark.usefixtures("_slow_link")
def test_a_wait_that_times_out_leaves_the_transfer_going(big_file: Path) -> None:
    transfer = hippogriff.read_async(big_file, device="host")
    with pytest.raises(TimeoutError):
        transfer.wait(0.01)
    assert not transfer.done()
    assert transfer.route is None
    with pytest.raises(hippogriff.Busy):
        transfer.report()
    assert transfer.wait(60).nbytes == big_file.stat().st_size


def test_a_timeout_that_never_comes_is_refused(big_file: Path) -> None:
    with pytest.raises(InvalidArgument, match="nan"):
        hippogriff.read(big_file, device="host", timeout=float("nan"))
    transfer = hippogriff.read_async(big_file, device="host")
    with pytest.raises(InvalidArgument, match="nan"):
        transfer.wait(float("nan"))
    transfer.wait(60)


@pytest.mark.parametrize(
    "interface",
    [
        {},
        {"data": (0, False), "shape": (1,)},
        {"data": 5, "shape": (1,), "typestr": "|u1"},
        {"data": (0, False), "shape": 3, "typestr": "|u1"},
        {"data": (0, False), "shape": (1,), "typestr": "u"},
        [],
    ],
)
def test_an_interface_that_is_none_is_refused(big_file: Path, interface: Any) -> None:
    class Odd:
        __cuda_array_interface__ = interface

    with (
        hippogriff.open(big_file) as file,
        pytest.raises(InvalidArgument, match="Odd's __cuda_array_interface__"),
    ):
        file.read_into(Odd())


@pytest.mark.usefixtures("_slow_link")
def test_a_blocking_read_that_times_out_is_cancelled(big_file: Path) -> None:
    with pytest.raises(hippogriff.TimedOut):
        hippogriff.read(big_file, device="host", timeout=0.05)
    assert runtime.live_allocations == set()


@pytest.mark.usefixtures("_slow_link")
def test_cancelling_a_task_cancels_its_transfer(big_file: Path) -> None:
    async def read() -> hippogriff.Transfer[hippogriff.Array]:
        transfer = hippogriff.read_async(big_file, device="host")

        async def wait() -> Any:
            return await transfer

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0.05)
        assert transfer.done()
        return transfer

    transfer = asyncio.run(read())
    with pytest.raises(hippogriff.Cancelled):
        transfer.wait()


@pytest.mark.usefixtures("_slow_link")
def test_keyboard_interrupt_cancels_a_blocking_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(400 << 20)  # 20 s on the slow link.
    begin = time.monotonic()
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        hippogriff.read(path, device="host")
    timer.join()
    assert time.monotonic() - begin < 10
    gc.collect()
    assert runtime.live_allocations == set()
    assert hippogriff.stats()["transfers_cancelled"] == 1


@pytest.mark.usefixtures("_slow_link")
def test_a_dropped_read_is_cancelled_and_its_memory_comes_back(big_file: Path) -> None:
    hippogriff.read_async(big_file, device="host")
    gc.collect()
    deadline = time.monotonic() + 10
    while hippogriff.stats()["transfers_cancelled"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert runtime.live_allocations == set()


@pytest.mark.usefixtures("_slow_link")
def test_a_dropped_write_goes_on_and_keeps_its_array(tmp_path: Path) -> None:
    data = random_bytes(4 << 20)
    array = hippogriff.empty(len(data), device="host")
    array.copy_from(data)
    hippogriff.write_async(tmp_path / "a", array)
    array.free()
    del array
    gc.collect()
    deadline = time.monotonic() + 20
    while not (tmp_path / "a").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (tmp_path / "a").read_bytes() == data


@pytest.mark.usefixtures("_slow_link")
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    for old in (bytes(10), bytes(32 << 20)):
        (tmp_path / "a").write_bytes(old)
        array = hippogriff.empty(16 << 20, device="host")
        with pytest.raises(hippogriff.TimedOut):
            hippogriff.write(tmp_path / "a", array, timeout=0.1)
        assert (tmp_path / "a").read_bytes() == old
        assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.usefixtures("_slow_link")
def test_deinit_refuses_while_arrays_hold_memory() -> None:
    array = hippogriff.empty(100, device="host")
    with pytest.raises(hippogriff.Busy):
        hippogriff.deinit()
    array.free()
    hippogriff.deinit()
    hippogriff.deinit()
    hippogriff.init()
    hippogriff.init()


@pytest.mark.usefixtures("_slow_link")
def test_the_interpreter_lock_is_free_while_waiting(big_file: Path) -> None:
    steps = 0
    transfer = hippogriff.read_async(big_file, device="host")
    waiter = threading.Thread(target=transfer.wait)
    waiter.start()
    while waiter.is_alive():
        steps += 1
        time.sleep(0.001)
    waiter.join()
    assert steps > 100


@pytest.mark.usefixtures("_slow_link")
def test_memory_of_a_transfer_in_flight_is_busy(big_file: Path) -> None:
    target = hippogriff.empty(big_file.stat().st_size, device="host")
    with hippogriff.open(big_file) as file:
        transfer = file.read_into_async(target)
        with pytest.raises(hippogriff.Busy):
            file.read_into(target)
        transfer.cancel()
        with pytest.raises(hippogriff.Cancelled):
            transfer.wait()


@pytest.mark.usefixtures("_slow_link")
def test_a_file_truncated_meanwhile_says_which_bytes_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(600 << 20)
    transfer = hippogriff.read_async(path, device="host", route="pipelined")
    with path.open("r+b") as file:
        file.truncate(12345)
    with pytest.raises((hippogriff.ShortFile, hippogriff.DeviceError)) as caught:
        transfer.wait(60)
    missing = caught.value.missing
    assert sum(size for _, size in missing) + transfer.progress.bytes_done == 600 << 20
    assert missing[-1][0] + missing[-1][1] == 600 << 20


def test_a_hundred_threads_read_at_once(tmp_path: Path) -> None:
    data = random_bytes(300_000)
    (tmp_path / "a").write_bytes(data)
    failures: list[BaseException] = []

    def read(index: int) -> None:
        try:
            array = hippogriff.read(tmp_path / "a", device="host", offset=index)
            assert array.to_numpy().tobytes() == data[index:]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(index,)) for index in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_descriptors_do_not_leak(tmp_path: Path) -> None:
    from pathlib import Path as Folder

    (tmp_path / "a").write_bytes(bytes(100_000))

    async def read() -> None:
        await hippogriff.read_async(tmp_path / "a", device="host")

    asyncio.run(read())
    gc.collect()
    before = len(list(Folder("/proc/self/fd").iterdir()))
    for _ in range(20):
        asyncio.run(read())
        hippogriff.write(tmp_path / "b", np.zeros(10))
    gc.collect()
    assert len(list(Folder("/proc/self/fd").iterdir())) <= before
