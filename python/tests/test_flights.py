"""Transfers a few at a time: what is stopped is waited for, whatever interrupts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hippogriff import _flights, _scatter
from hippogriff._flights import Flights
from hippogriff.errors import Cancelled, TimedOut
from hippogriff.safetensors import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path


class Slow:
    """Stands for a transfer that ends some time after it is cancelled."""

    def __init__(self, seconds: float, interrupts: int = 0) -> None:
        self._seconds = seconds
        self._interrupts = interrupts
        self._ends: float | None = None

    def cancel(self) -> None:
        if self._ends is None:
            self._ends = time.monotonic() + self._seconds

    def done(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    def wait(self, timeout: float | None = None) -> int:
        if self._interrupts:
            self._interrupts -= 1
            raise KeyboardInterrupt
        assert timeout is not None
        assert self._ends is not None
        time.sleep(max(0, min(timeout, self._ends - time.monotonic())))
        if not self.done():
            raise TimedOut("wait: not finished")
        raise Cancelled("it was cancelled")


def fly(transfers: list[Any], error: BaseException) -> None:
    with Flights(4) as flights:
        for transfer in transfers:
            flights.add(transfer)
        raise error


def test_whatever_fails_is_raised_once_all_have_ended() -> None:
    transfers = [Slow(0.1), Slow(0.3), Slow(0)]
    with pytest.raises(MemoryError):
        fly(transfers, MemoryError())
    assert all(transfer.done() for transfer in transfers)


def test_further_interrupts_do_not_end_the_wait_for_what_is_cancelled() -> None:
    transfers = [Slow(0.1, interrupts=2), Slow(0.3, interrupts=1), Slow(0.2)]
    with pytest.raises(KeyboardInterrupt):
        fly(transfers, KeyboardInterrupt())
    assert all(transfer.done() for transfer in transfers)


def test_what_does_not_end_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_flights, "_SETTLE_SECONDS", 0.2)
    transfers = [Slow(60), Slow(60)]
    begin = time.monotonic()
    with pytest.raises(MemoryError):
        fly(transfers, MemoryError())
    assert 0.2 <= time.monotonic() - begin < 30


def test_an_interrupt_as_a_transfer_ends_is_raised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"a": np.zeros(1 << 20, "u1")}, tmp_path / "a")
    interrupts = iter([KeyboardInterrupt()])

    def finish(handle: Any) -> int:
        for interrupt in interrupts:
            raise interrupt
        return int(handle.progress().bytes_done)

    monkeypatch.setattr(_scatter, "bytes_moved", finish)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        load_file(tmp_path / "a", framework="np")
    assert time.monotonic() - begin < 5
