"""What one thread ends while others use it."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hippogriff
from hippogriff._uses import Uses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

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
    with uses.one():
        return not uses.over


def end(uses: Uses, told: list[object] | None = None) -> None:
    uses.end(lambda: None if told is None else told.append("ended"))


def test_the_end_waits_for_uses_and_refuses_later_ones() -> None:
    uses = Uses()
    began, goes_on = threading.Event(), threading.Event()
    told: list[object] = []

    def use() -> None:
        with uses.one():
            told.append(uses.over)
            began.set()
            goes_on.wait(_LONG_SECONDS)
            told.append("used")

    user = in_thread(use)
    assert began.wait(_LONG_SECONDS)
    ender = in_thread(lambda: end(uses, told))
    await_that(lambda: not is_there(uses))  # the other thread's end has begun
    goes_on.set()
    for thread in (user, ender):
        thread.join(_LONG_SECONDS)
    assert told == [False, "used", "ended"]
    end(uses)


def test_a_thread_cannot_end_what_it_uses() -> None:
    uses = Uses()
    with uses.one(), pytest.raises(hippogriff.Busy):
        end(uses)
    assert is_there(uses)
    end(uses)
    assert not is_there(uses)


def test_a_use_within_a_use_is_one() -> None:
    uses = Uses()
    with uses.one():
        assert is_there(uses)
        with pytest.raises(hippogriff.Busy):
            end(uses)


def test_an_end_that_was_interrupted_can_be_ended() -> None:
    uses = Uses()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        uses.end(interrupted)
    assert not is_there(uses)
    told: list[object] = []
    end(uses, told)
    assert told == ["ended"]


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
        end(uses)
        os._exit(1 if is_there(uses) else 0)
    assert os.waitpid(child, 0)[1] == 0
    goes_on.set()
    user.join(_LONG_SECONDS)
    end(uses)


def interrupted_at(number: int, body: Callable[[], object]) -> KeyboardInterrupt | None:
    """Raise where the interpreter looks for signals: as functions begin, and after calls of C."""
    seen = itertools.count()

    def look(_frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_return") and next(seen) == number:
            raise KeyboardInterrupt

    try:
        sys.setprofile(look)
        body()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.setprofile(None)
    return None


def test_an_interrupt_anywhere_leaves_an_array_to_others_and_to_be_closed(tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    np.arange(100).tofile(path)
    for number in itertools.count():
        array = hippogriff.StorageArray(path, "int64", cache=4096, load="none")
        # It has the frames of all that it ended, as what is shown at a prompt has.
        interrupt = interrupted_at(number, functools.partial(array.__getitem__, 5))
        found: list[int] = []
        reader = threading.Thread(target=lambda a=array, f=found: f.append(a[7]), daemon=True)
        reader.start()
        reader.join(_LONG_SECONDS)
        assert found == [7], number
        array.close()
        if interrupt is None:
            break
    assert number > 10


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
