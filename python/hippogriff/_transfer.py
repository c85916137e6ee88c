"""Transfers: submitting them, waiting, awaiting, cancelling, and what they end with."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hippogriff import _abi
from hippogriff._flights import stop
from hippogriff._handle import SLICE_SECONDS, Handle, Progress, caretaker
from hippogriff._progress import TransferBar, check_progress
from hippogriff._regions import Region, stream_pointer
from hippogriff._runtime import encode_device, ensure, runtime
from hippogriff.errors import Cancelled, HippogriffError, InvalidArgument, TimedOut, check

if TYPE_CHECKING:
    import asyncio
    from array import array
    from collections.abc import Callable, Generator
    from types import TracebackType

    from hippogriff.errors import Ranges

    ProgressCallback = Callable[[Progress], object]
    Onlooker = ProgressCallback | bool | None

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

# A cancelled transfer finishes within this time; else its memory is kept until it does.
_CANCEL_SECONDS = 10.0


class Flight(Generic[T]):
    """The part of a transfer that outlives its `Transfer`: handle, memory, and what to do after.

    `finish` makes the result of a transfer that went well, once, on whichever thread settles.
    Thread-safe.
    """

    def __init__(self, handle: Handle, keep: object, finish: Callable[[Handle], T]) -> None:
        self.handle = handle
        self.settled = False
        self.cancel_when_dropped = False
        self._keep = keep
        self._finish: Callable[[Handle], T] | None = finish
        self._lock = threading.Lock()
        self._result: T | None = None
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Stay until it is settled, whoever holds it: C uses its handle and memory from now on.

        The garbage collector finalizes the parts of a cycle in any order, the handle before what
        would hold it on.
        """
        _under_way.add(self)

    def settle(self) -> None:
        """Take the outcome of a finished transfer and let go of its memory."""
        with self._lock:
            if self.settled:
                return
            finish, self._finish = self._finish, None
            try:
                self._error = self.handle.failure()
                if self._error is None and finish is not None:
                    self._result = finish(self.handle)
            except Exception as error:
                self._error = error
            except BaseException:  # An interrupt, raised once; nothing may be finished twice.
                self._error = Cancelled("interrupted as it ended")
                raise
            finally:
                self.settled = True
                self._keep = None
                _under_way.discard(self)

    def refuse(self) -> None:
        """Let go of everything: the library did not take the transfer."""
        with self._lock:
            self.settled = True
            self._finish = self._keep = None
            _under_way.discard(self)

    def outcome(self) -> T:
        """Return the result of a finished transfer, or its error."""
        self.settle()
        if self._error is not None:
            raise self._error
        runtime.warn_of_notices()
        return self._result  # type: ignore[return-value]


# Transfers that C has, or is being given.
_under_way: set[Flight[Any]] = set()
# Those of the parent are not this process's.
os.register_at_fork(after_in_child=_under_way.clear)


class Transfer(Generic[T_co]):
    """A transfer in flight or finished.

    Wait for it, await it in asyncio, follow it, or cancel it. It keeps the memory it uses until it
    is finished. When a Transfer is dropped, a read into new memory is cancelled, anything else goes
    on. All methods may be called from any thread.
    """

    def __init__(self, flight: Flight[T_co]) -> None:
        self._flight = flight
        self._handle = flight.handle
        # Offset, size and address of each part, where it was started with several.
        self.segments: array[int] | None = None

    def __del__(self, _runtime: Any = runtime, _caretaker: Any = caretaker) -> None:
        flight = getattr(self, "_flight", None)
        if flight is None or flight.settled or flight.handle.is_foreign():
            return
        if not flight.handle.started:
            return
        if flight.cancel_when_dropped:
            flight.handle.cancel()
        _caretaker().adopt(flight)

    def __reduce__(self) -> Any:
        raise TypeError("cannot copy or pickle a transfer: it is this process's")

    def __repr__(self) -> str:
        progress = self.progress
        state = "finished" if progress.finished else "in flight"
        return f"<hippogriff.Transfer {state}, {progress.bytes_done} of {progress.bytes_total} B>"

    def done(self) -> bool:
        """Whether it is finished, well or not."""
        return self._handle.progress().finished

    @property
    def progress(self) -> Progress:
        """How far it is now."""
        return self._handle.progress()

    @property
    def route(self) -> str | None:
        """The route taken, for example ``"pipelined"``; None while in flight."""
        return str(self.report().get("route")) if self.done() else None

    def report(self) -> dict[str, Any]:
        """Tell what happened: route, bytes by route, seconds measured and predicted.

        ``bytes_by_route``, ``{"mapped": 1048576, "pipelined": 7340032}``, has what each route
        moved; together they are ``bytes_done``, less what ``"direct"`` left out between parts.

        Raises
        ------
        Busy
            While it is in flight.
        """
        return self._handle.report()

    def missing(self) -> Ranges:
        """Offset and size, in bytes of the file, of what is not where it should be.

        Raises
        ------
        Busy
            While it is in flight.
        """
        return self._handle.missing()

    def cancel(self) -> None:
        """Ask it to stop. It finishes soon, with `Cancelled` unless it was done."""
        self._handle.cancel()

    def wait(self, timeout: float | None = None) -> T_co:
        """Wait until it is finished and return its result.

        KeyboardInterrupt cancels the transfer before it is raised.

        Parameters
        ----------
        timeout : float, optional
            In seconds; without it as long as it takes.

        Returns
        -------
        Array or int
            The array read, or the number of bytes moved.

        Raises
        ------
        TimedOut
            When `timeout` ended first; the transfer goes on.
        HippogriffError
            What the transfer failed with.
        """
        try:
            finished = self._wait_finished(timeout, None)
        except KeyboardInterrupt:
            self._stop()
            raise
        if not finished:
            raise _timed_out(timeout)
        return self._flight.outcome()

    def wait_released(self, timeout: float | None = None) -> None:
        """Of a write: wait until the device memory may be reused, which may be before the end.

        Parameters
        ----------
        timeout : float, optional
            In seconds.

        Raises
        ------
        TimedOut
            When `timeout` ended first.
        """
        if not _in_slices(self._handle.wait_released, timeout, None):
            raise _timed_out(timeout)

    def __await__(self) -> Generator[Any, None, T_co]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> T_co:
        if not self.done():
            await self._finished_event()
        return self._flight.outcome()

    async def _finished_event(self) -> None:
        import asyncio  # Who awaits has it; for others it is a quarter of what we take to import.

        loop = asyncio.get_running_loop()
        finished: asyncio.Future[None] = loop.create_future()
        # A duplicate: two tasks may await one transfer, and a loop knows a descriptor once.
        descriptor = os.dup(self._handle.event_fd())
        loop.add_reader(descriptor, _set_finished, finished)
        try:
            await asyncio.shield(finished)
        except asyncio.CancelledError:
            self.cancel()
            if not finished.done():
                await finished  # So that nothing moves the memory once the task is gone.
            raise
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def show(self, timeout: float | None, progress: Onlooker, title: str) -> T_co:
        """Do as `complete`, with a bar of that title where `progress` is no callable."""
        if callable(progress) or progress is False:
            return self.complete(timeout, progress or None)
        bar = TransferBar(progress, title, self._handle.progress)
        try:
            return self._complete(timeout, bar.tell)
        finally:
            bar.close()

    def complete(self, timeout: float | None, progress: ProgressCallback | None) -> T_co:
        """Wait as the blocking functions do: whatever ends the wait early stops the transfer."""
        if progress is None:
            return self._complete(timeout, None)
        return self._complete(timeout, lambda: progress(self._handle.progress()))

    def _complete(self, timeout: float | None, tell: Callable[[], object] | None) -> T_co:
        try:
            if not self._wait_finished(timeout, tell):
                raise _timed_out(timeout)
        except BaseException:
            self._stop()
            raise
        return self._flight.outcome()

    def _wait_finished(self, timeout: float | None, tell: Callable[[], object] | None) -> bool:
        finished = _in_slices(self._handle.wait, timeout, tell)
        if finished and tell is not None:
            tell()
        return finished

    def _stop(self) -> None:
        """Cancel it and let go of its memory if it ends soon, as it should."""
        self.cancel()
        if self._handle.wait(_CANCEL_SECONDS):
            self._flight.settle()


def check_onlooker(progress: object) -> None:
    """Refuse what `Transfer.show` does not take, before anything is under way."""
    if not callable(progress):
        check_progress(progress)


def _in_slices(
    wait: Callable[[float], bool], timeout: float | None, between: Callable[[], object] | None
) -> bool:
    """Wait in slices, so that signals are seen and progress is told."""
    if timeout is not None and math.isnan(timeout):
        raise InvalidArgument("wait: a timeout of nan s would never end")
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE_SECONDS if deadline is None else deadline - time.monotonic()
        if wait(min(SLICE_SECONDS, left)):
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False
        if between is not None:
            between()


def _set_finished(finished: asyncio.Future[None]) -> None:
    if not finished.done():
        finished.set_result(None)


def _timed_out(timeout: float | None) -> HippogriffError:
    return TimedOut(f"wait: not finished after {timeout} s", operation="wait")


def bytes_moved(handle: Handle) -> int:
    """Return the bytes of a transfer that went well."""
    return handle.progress().bytes_total


class Request:
    """How to carry out one transfer, for C.

    As a scope it stops the transfer where an error ends it, or an interrupt, which can come at any
    moment: also before anybody else holds what was started.

    Parameters
    ----------
    route : str
        A route's name, or ``"auto"``.
    device : str, optional
        The device's name; else the pointer says it.
    region : Region, optional
        The memory, when there is some already.
    stream : int or stream, optional
        What the transfer waits for; else what the region says.
    before_stream : bool
        Whether later work on the stream waits for the transfer.
    host_memory : int
        The most of the pinbuffer that it uses at one time, in bytes; 0 for no bound of its own.
    """

    def __init__(
        self,
        route: str,
        device: str | None = None,
        region: Region | None = None,
        stream: object = None,
        before_stream: bool = False,
        host_memory: int = 0,
    ) -> None:
        self._transfer: Transfer[Any] | None = None
        self.options = _abi.Options()
        self.options.struct_size = ctypes.sizeof(_abi.Options)
        self.options.route = find_route(route)
        self.options.host_memory = host_memory
        pointer = stream_pointer(stream) if stream is not None else None
        if region is not None:
            device = region.device
            pointer = region.stream if pointer is None else pointer
            if region.host_memory:
                self.add(_abi.Flags.HOST_MEMORY)
        if pointer is not None:
            self.add(_abi.Flags.AFTER_STREAM)
            self.options.stream = pointer or None
        if before_stream:
            self.add(_abi.Flags.BEFORE_STREAM)
        self.options.device = encode_device(device)

    def __enter__(self) -> Request:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or self._transfer is None or self._transfer._flight.settled:
            return
        stop([self._transfer])

    def add(self, flag: _abi.Flags) -> None:
        """Set one more flag."""
        self.options.flags |= int(flag)  # a flag itself would make another flag of it, slowly

    def compute_checksums(self, found: array[int], block_bytes: int) -> None:
        """Have XXH3 of each block of each part computed as it lands in host memory.

        `found` has room for just those, and stays until the transfer is finished. The parts ascend
        in the file.
        """
        self.options.checksums, self.options.checksum_count = found.buffer_info()
        self.options.checksum_block_bytes = block_bytes

    def start(
        self,
        call: Callable[..., int],
        *arguments: Any,
        keep: object,
        finish: Callable[[Handle], T],
        cancel_when_dropped: bool = False,
    ) -> Transfer[T]:
        """Hand a transfer to the library; raises what it refuses it with.

        Everything that owns the transfer and its memory is made first: an interrupt can come at any
        moment.
        """
        ensure()
        flight = Flight(Handle(), keep, finish)
        flight.cancel_when_dropped = cancel_when_dropped
        transfer = self._transfer = Transfer(flight)
        try:
            flight.begin()
            check(call(*arguments, ctypes.byref(self.options), ctypes.byref(flight.handle.cell)))
        except BaseException:
            if flight.handle.started:
                stop([transfer])
            else:
                flight.refuse()
            raise
        return transfer


def find_route(route: str) -> int:
    """Return the number of a route in C.

    Raises
    ------
    InvalidArgument
        When there is none of that name.
    """
    try:
        return int(_abi.Route[route.upper()])
    except (KeyError, AttributeError):
        names = ", ".join(each.name.lower() for each in _abi.Route)
        raise InvalidArgument(f"route {route!r} is not one of {names}") from None
