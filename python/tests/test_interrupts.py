"""Ctrl-C between any two lines of a call that waits leaves no transfer under way."""

from __future__ import annotations

import ctypes
import gc
import linecache
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hippogriff
from hippogriff import _abi, _transfer
from hippogriff._handle import Handle
from hippogriff._library import lib
from hippogriff.errors import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_PACKAGE = str(Path(hippogriff.__file__).parent)
_SIZE = 1 << 20


def under_way() -> bool:
    """Whether C moves anything."""
    return any(
        each.handle.started and not each.handle.progress().finished for each in _transfer._under_way
    )


class Interrupt:
    """Raises KeyboardInterrupt once, before a line of the package that is run in a transfer."""

    def __init__(self, at_line: int) -> None:
        self._left = at_line
        self.waited = False  # and nothing raised: there is no such line before the wait

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        code = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # A line of `with` comes again at its end, where there is none between C's calls.
        if event == "line" and _transfer._under_way and not code.startswith("with "):
            self._left -= 1
            self.waited = self._left > 0 and frame.f_code is Handle.wait.__code__
            if not self._left or self.waited:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A stream of device host whose work does not end before the test; and there is no memory."""
    gc.collect()
    hippogriff.deinit()
    monkeypatch.setenv("HIPPOGRIFF_NODE", "off")  # would remember how much memory there is
    monkeypatch.setenv("HIPPOGRIFF_HOST_MEMORY", str(_SIZE))
    hippogriff.init()
    ends = threading.Event()
    work = _abi.StreamFunction(lambda _: ends.wait() and None)
    stream = ctypes.c_void_p()
    check(lib.hippogriff_stream_create(b"host", ctypes.byref(stream)))
    check(lib.hippogriff_stream_launch(b"host", stream, work, None))
    yield stream.value or 0
    ends.set()
    check(lib.hippogriff_stream_destroy(b"host", stream))
    gc.collect()
    hippogriff.deinit()


def _write(path: Path, array: Any, stream: int) -> None:
    hippogriff.write(path, array, stream=stream)


def _read(path: Path, _: Any, __: int) -> None:
    hippogriff.read(path, device="host")


def _read_into(path: Path, array: Any, stream: int) -> None:
    with hippogriff.open(path) as file:
        file.read_into(array, stream=stream)


def _read_into_many(path: Path, array: Any, stream: int) -> None:
    with hippogriff.open(path) as file:
        file.read_into_many([(0, array)], stream=stream)


def _write_from(path: Path, array: Any, stream: int) -> None:
    with hippogriff.open(path, "r+") as file:
        file.write_from(array, stream=stream)


@pytest.mark.parametrize("call", [_read, _write, _read_into, _read_into_many, _write_from])
def test_an_interrupt_at_any_line_leaves_nothing_under_way(
    tmp_path: Path, held_up: int, call: Callable[[Path, Any, int], None]
) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(_SIZE))
    array = hippogriff.empty(_SIZE, device="host")
    for at_line in range(1, 200):
        interrupt = Interrupt(at_line)
        with pytest.raises(KeyboardInterrupt), interrupt:
            call(path, array, held_up)
        assert not under_way(), at_line
        if interrupt.waited:
            break
    assert at_line > 5


def test_a_handle_that_was_interrupted_in_the_making_goes_quietly() -> None:
    handle = Handle.__new__(Handle)
    handle.__del__()
