"""What one thread ends while others use it."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff._uses import Uses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LONG_SECONDS = 60.0


def in_thread(body: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=body)
    thread.start()
    return thread


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONG_SECONDS
    while not condition():
        assert time.monotonic() < deadline


def is_there(uses: Uses) -> bool:
    with uses.one() as there:
        return there


def test_the_end_waits_for_uses_and_refuses_later_ones() -> None:
    uses = Uses()
    began, goes_on = threading.Event(), threading.Event()
    told: list[object] = []

    def use() -> None:
        with uses.one() as there:
            told.append(there)
            began.set()
            goes_on.wait(_LONG_SECONDS)
            told.append("used")

    def end() -> None:
        told.append(uses.end())

    user = in_thread(use)
    assert began.wait(_LONG_SECONDS)
    ender = in_thread(end)
    await_that(lambda: not is_there(uses))  # the other thread's end has begun
    goes_on.set()
    for thread in (user, ender):
        thread.join(_LONG_SECONDS)
    assert told == [True, "used", True]
    assert not uses.end()


def test_a_thread_cannot_end_what_it_uses() -> None:
    uses = Uses()
    with uses.one(), pytest.raises(hippogriff.Busy):
        uses.end()
    assert uses.end()


def test_an_interrupted_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = Uses()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(uses._changed, "wait_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        uses.end()
    with uses.one() as there:
        assert there


def test_a_forked_child_does_not_wait_for_its_parents_uses() -> None:
    uses = Uses()
    began, goes_on = threading.Event(), threading.Event()

    def use() -> None:
        with uses.one():
            began.set()
            goes_on.wait(_LONG_SECONDS)

    user = in_thread(use)
    assert began.wait(_LONG_SECONDS)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # Instead of waiting for ever.
        os._exit(0 if uses.end() and not is_there(uses) else 1)
    assert os.waitpid(child, 0)[1] == 0
    goes_on.set()
    user.join(_LONG_SECONDS)
    assert uses.end()


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_an_array_may_be_closed_while_others_use_it(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "rows.bin"
    rows = np.arange(1 << 16, dtype="uint32").reshape(-1, 64)
    rows.tofile(path)
    numbers = np.arange(len(rows))
    array = hippogriff.StorageArray(path, "uint32", rows.shape, mode=mode, cache="64KiB")
    in_use = threading.Barrier(4)
    ends: list[str] = []

    def work() -> None:
        try:
            np.testing.assert_array_equal(array.take(numbers), rows)
            in_use.wait(_LONG_SECONDS)
            while True:
                array.take(numbers)
                array.put(numbers, rows)
        except hippogriff.InvalidArgument as error:
            ends.append(str(error))

    threads = [in_thread(work) for _ in range(3)]
    in_use.wait(_LONG_SECONDS)
    lines = path.stat().st_size // 4096  # of which the cache holds few
    await_that(lambda: array.statistics()["reads"] >= 4 * lines)
    array.close()
    for thread in threads:
        thread.join(_LONG_SECONDS)
    assert len(ends) == 3
    assert all("is closed" in end for end in ends)
    np.testing.assert_array_equal(np.fromfile(path, "uint32"), rows.ravel())
