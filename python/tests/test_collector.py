"""Python's garbage collector is held off while arrays are made, and always runs again."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hippogriff import _collector
from hippogriff._collector import Pause
from hippogriff.errors import HippogriffError
from hippogriff.safetensors import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_the_last_pause_to_end_lets_it_run_again() -> None:
    first, second = Pause(), Pause()
    with first:
        second.__enter__()
        assert not gc.isenabled()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    with Pause():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_long_pause_ends_early_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pause() as pause:
        pause.look()
        assert not gc.isenabled()
    monkeypatch.setattr(_collector, "_MOST_SECONDS", -1.0)
    with Pause() as pause:
        pause.look()
        assert gc.isenabled()
        pause.look()
    with Pause():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize("at_line", range(1, 8))
def test_an_interrupt_at_its_end_leaves_it_running(at_line: int) -> None:
    """As Ctrl-C comes between two lines, also where the traceback keeps the pause."""
    codes = {Pause.__exit__.__code__, Pause._end.__code__, _collector._let_go.__code__}
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code in codes and event == "line":
            lines += 1
            if lines == at_line + 1:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    pause = Pause()
    try:
        with pytest.raises(KeyboardInterrupt), pause:
            sys.settrace(trace)
    finally:
        sys.settrace(before)
    assert gc.isenabled()
    with Pause():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_an_interrupt_left_is_over_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_collector, "_MOST_SECONDS", -1.0)
    left = Pause()
    left.__enter__()
    assert not gc.isenabled()
    monkeypatch.setattr(_collector, "_MOST_SECONDS", 1.0)
    with Pause():
        assert not gc.isenabled()
    assert gc.isenabled()
    left.__exit__(None, None, None)
    assert gc.isenabled()


def test_it_is_off_while_tensors_are_made_and_on_after_loads_and_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    save_file({f"t{index}": np.full(3, index, np.float32) for index in range(300)}, path)
    seen: list[bool] = []
    monkeypatch.setattr(Pause, "look", lambda _: seen.append(gc.isenabled()))
    loaded = load_file(path, "cpu", framework="np")
    assert float(loaded["t299"][2]) == 299
    assert seen
    assert not any(seen)
    assert gc.isenabled()
    broken = path.read_bytes()[:-8]
    path.write_bytes(broken)
    with pytest.raises(HippogriffError):
        load_file(path, "cpu", framework="np")
    assert gc.isenabled()
