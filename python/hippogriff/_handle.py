"""A transfer's C handle, and the thread that looks after transfers nobody holds any more."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hippogriff import _abi
from hippogriff._library import lib
from hippogriff._runtime import runtime, take_json
from hippogriff.errors import Forked, HippogriffError, check, from_struct

if TYPE_CHECKING:
    from hippogriff.errors import Ranges

# Between two looks at signals and progress; a finished transfer ends the wait at once.
SLICE_SECONDS = 0.05


@dataclass(frozen=True)
class Progress:
    """How far a transfer is.

    Attributes
    ----------
    bytes_done, bytes_total, bytes_parked : int
        Moved; to be moved; waiting in host memory.
    seconds : float
        Since submission, or until completion.
    finished : bool
        No more will happen.
    released : bool
        Of a write: the device memory may be reused.
    """

    bytes_done: int
    bytes_total: int
    bytes_parked: int
    seconds: float
    finished: bool
    released: bool

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        return self.bytes_done / self.bytes_total if self.bytes_total else 1.0


class Handle:
    """A `hippogriff_transfer*`, released with this object. Thread-safe.

    It is there before the transfer is, which C puts into `cell`: an interrupt that comes when the
    call has just returned finds the transfer owned.
    """

    def __init__(self) -> None:
        self.cell = ctypes.c_void_p()
        self._process_count = runtime.process_count

    def __del__(self, _runtime: Any = runtime, _lib: Any = lib) -> None:
        # Not there where an interrupt ended __init__.
        if getattr(self, "_process_count", None) == _runtime.process_count:
            _lib.hippogriff_release(self.cell)

    @property
    def started(self) -> bool:
        """Whether there is a transfer."""
        return self.cell.value is not None

    def pointer(self) -> int:
        """Return the pointer, in the process that made it."""
        if self.is_foreign():
            raise Forked("the transfer belongs to the parent process")
        return self.cell.value or 0

    def is_foreign(self) -> bool:
        """Whether it belongs to a process that this one was forked from."""
        return self._process_count != runtime.process_count

    def progress(self) -> Progress:
        """How far it is now."""
        progress = _abi.Progress()
        check(lib.hippogriff_get_progress(self.pointer(), ctypes.byref(progress)))
        return Progress(
            progress.bytes_done,
            progress.bytes_total,
            progress.bytes_parked,
            progress.seconds,
            bool(progress.finished),
            bool(progress.released),
        )

    def wait(self, timeout_seconds: float) -> bool:
        """Wait up to `timeout_seconds` and tell whether it is finished, well or not."""
        status = lib.hippogriff_wait(self.pointer(), max(0, round(timeout_seconds * 1000)))
        return status == _abi.Status.OK or self.progress().finished

    def wait_released(self, timeout_seconds: float) -> bool:
        """Wait up to `timeout_seconds` and tell whether the device memory may be reused."""
        milliseconds = max(0, round(timeout_seconds * 1000))
        status = lib.hippogriff_wait_released(self.pointer(), milliseconds)
        if status == _abi.Status.OK:
            return True
        progress = self.progress()
        return progress.released or progress.finished

    def cancel(self) -> None:
        """Ask it to stop."""
        check(lib.hippogriff_cancel(self.pointer()))

    def address(self) -> int:
        """Return the device address, 0 while there is none."""
        return lib.hippogriff_address(self.pointer()) or 0

    def failure(self) -> HippogriffError | None:
        """Why it failed. Only when finished."""
        error = _abi.Error()
        check(lib.hippogriff_get_error(self.pointer(), ctypes.byref(error)))
        return None if error.status == _abi.Status.OK else from_struct(error, self.missing())

    def missing(self) -> Ranges:
        """Offset and size of what is not where it should be, in bytes. Only when finished."""
        count = ctypes.c_size_t()
        capacity = 0
        while True:
            ranges = (_abi.Range * capacity)()
            check(lib.hippogriff_get_missing(self.pointer(), ranges, capacity, ctypes.byref(count)))
            if count.value <= capacity:
                return tuple((each.offset, each.size) for each in ranges[: count.value])
            capacity = count.value

    def report(self) -> dict[str, Any]:
        """Tell what happened. Only when finished."""
        text = ctypes.c_void_p()
        check(lib.hippogriff_get_report(self.pointer(), ctypes.byref(text)))
        result: dict[str, Any] = take_json(text)
        return result

    def event_fd(self) -> int:
        """Return a descriptor that polls readable when it is finished; it belongs to the handle."""
        descriptor = ctypes.c_int(-1)
        check(lib.hippogriff_get_fd(self.pointer(), ctypes.byref(descriptor)))
        return descriptor.value


class NoHandle(Handle):
    """Stands for a transfer of no bytes, which C does not know: size 0 means all there."""

    @property
    def started(self) -> bool:
        return True

    def progress(self) -> Progress:
        return Progress(0, 0, 0, 0.0, finished=True, released=True)

    def wait(self, timeout_seconds: float) -> bool:  # noqa: ARG002
        return True

    def wait_released(self, timeout_seconds: float) -> bool:  # noqa: ARG002
        return True

    def cancel(self) -> None:
        pass

    def address(self) -> int:
        return 0

    def failure(self) -> HippogriffError | None:
        return None

    def missing(self) -> Ranges:
        return ()

    def report(self) -> dict[str, Any]:
        return {"route": "none", "bytes": 0, "bytes_by_route": {}, "seconds": 0.0}


class Unattended(Protocol):
    """What the caretaker needs of a transfer that nobody holds any more."""

    handle: Handle

    def settle(self) -> None:
        """Let go of the memory of a finished transfer."""


class Caretaker:
    """Keeps the memory of dropped transfers until they are finished. Thread-safe.

    Its thread starts with the first one. `adopt` is called by the garbage collector, in the middle
    of anything: it takes no lock that it could meet again.
    """

    def __init__(self) -> None:
        self._arrivals: queue.SimpleQueue[Unattended] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def adopt(self, transfer: Unattended) -> None:
        """Hold the transfer until it is finished."""
        if runtime.ended:
            return  # What was in flight has ended as well; a thread started now would never run.
        self._arrivals.put(transfer)
        if self._started or not self._starting.acquire(blocking=False):
            return
        try:
            if not self._started:
                thread = threading.Thread(
                    target=self._run, name="hippogriff-caretaker", daemon=True
                )
                thread.start()
                self._started = True
        except RuntimeError:
            pass  # No thread can be had now: the transfer is held, and the next one tries again.
        finally:
            self._starting.release()

    def _run(self) -> None:
        held: list[Unattended] = []
        while True:
            if not held:
                held.append(self._arrivals.get())
            while not self._arrivals.empty():
                held.append(self._arrivals.get())
            held[0].handle.wait(SLICE_SECONDS)
            for transfer in held:
                if transfer.handle.progress().finished:
                    transfer.settle()
            del transfer  # It may be the last to hold it.
            held = [transfer for transfer in held if not transfer.handle.progress().finished]


_caretaker = Caretaker()


def caretaker() -> Caretaker:
    """Return the process's caretaker; a forked child has its own."""
    return _caretaker


def _after_fork() -> None:
    global _caretaker
    _caretaker = Caretaker()


os.register_at_fork(after_in_child=_after_fork)
