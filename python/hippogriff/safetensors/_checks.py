"""When what has landed is compared: in few calls, on a thread beside the load where it is much."""

from __future__ import annotations

import queue
import threading
from array import array
from typing import TYPE_CHECKING

from hippogriff._handle import SLICE_SECONDS
from hippogriff._interrupts import outlast
from hippogriff.errors import Cancelled, ChecksumMismatch, HippogriffError
from hippogriff.safetensors._verify import Landed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Protocol

    from hippogriff._regions import Region
    from hippogriff.safetensors._load import Batch
    from hippogriff.safetensors._verify import Verifier

    class Finder(Protocol):
        """Says which checksums tensors should have: a `Verifier` or a `Follower`."""

        def find(self, names: Sequence[str], sizes_bytes: Iterable[int], /) -> array[int]: ...


# So much is compared at once, or more: less leaves parts of a GPU idle, and what is left at the end
# of a load nothing hides.
_TOGETHER_BYTES = 256 << 20
# What is stopped ends within this time, one call of the library; else it keeps its memory until it
# does.
_STOP_SECONDS = 10.0


class _Comparison:
    """What one call compares. It holds the memory until it has ended, on whichever thread."""

    def __init__(self, verifier: Verifier, region: Region) -> None:
        self.verifier = verifier
        self.region = region
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._landed = Landed([], array("Q"), array("Q"), array("Q"), array("Q"))
        self._keep: list[object] = []

    def add(self, batch: Batch, expected: array[int]) -> None:
        pieces, addresses, sizes, checksums, found = self._landed
        pieces.append(batch.columns)
        addresses.extend(batch.addresses)
        sizes.extend(batch.sizes)
        checksums.extend(expected)
        found.extend(batch.found or ())  # All of a device's batches have them, or none has.
        self._keep.append(batch.arrays)

    def run(self, between: Callable[[], object]) -> None:
        """Compare, and keep what it failed with."""
        try:
            between()
            self.verifier.compare(self._landed, self.region, between)
        except BaseException as error:
            self.error = error
        finally:
            self._keep.clear()
            self.ended.set()

    def look(self) -> None:
        """Raise what it failed with, and let go of it: the frames that it goes through hold us."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error


def _run_all(tasks: queue.SimpleQueue[_Comparison | None], between: Callable[[], object]) -> None:
    while (task := tasks.get()) is not None:
        task.run(between)
        del task  # Waiting for the next, it would hold what this one failed with.


class Checks:
    """Compares what lands in the course of a load. Used from one thread, as a context manager.

    Little is compared where the ``with`` ends; more on a thread, while the rest is on its way. The
    end of the ``with`` raises what differs, the first in the order of landing, also where something
    else ended it; an interrupt is told of it by a note. Nothing is under way then, whatever ended
    it, but for a call of the library that does not come back for ten seconds.

    Parameters
    ----------
    look : callable, optional
        Called now and then while this thread waits; what it raises ends the wait.
    """

    def __init__(self, look: Callable[[], object] | None = None) -> None:
        self._look = look or _go_on
        self._gathered: list[_Comparison] = []
        self._size_bytes = 0
        self._tasks: queue.SimpleQueue[_Comparison | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: list[_Comparison] = []
        self._stopping = threading.Event()

    def __enter__(self) -> Checks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            try:
                if error is None:
                    self._finish()
            finally:
                self._stop()
        except BaseException as failure:
            self._tell_mismatch(failure)
            raise
        if error is not None:
            self._tell_mismatch(error)

    def of(
        self, verifier: Verifier | None, region: Region, finder: Finder | None = None
    ) -> Callable[[Batch], None] | None:
        """Return what takes a file's batches when they have landed; None without a verifier.

        They lie on the device of `region`. It raises what differs in earlier ones, where that is
        known then.
        """
        if verifier is None:
            return None
        found = finder or verifier
        # They have landed: there is no work that comes before.
        where = region._replace(address=0, size_bytes=0, stream=None, owner=None)
        last: _Comparison | None = None

        def take(batch: Batch) -> None:
            nonlocal last
            expected = found.find(batch.columns.names, batch.sizes)
            if last is None or not self._gathered or self._gathered[-1] is not last:
                last = _Comparison(verifier, where)
                self._gathered.append(last)
            last.add(batch, expected)
            self._size_bytes += sum(batch.sizes)
            if self._size_bytes >= _TOGETHER_BYTES:
                self._begin()

        return take

    def _begin(self) -> None:
        """Let the thread compare what has gathered."""
        self._look_at_running()
        gathered, self._gathered, self._size_bytes = self._gathered, [], 0
        # Nothing is queued before there is a thread: it would be compared here and, by one that is
        # to be had later, a second time.
        if self._have_thread():
            for each in gathered:
                self._tasks.put(each)
                self._running.append(each)
        else:
            self._run_here(gathered)

    def _have_thread(self) -> bool:
        if self._thread is None:
            arguments = self._tasks, _Stopping(self._stopping)
            thread = threading.Thread(
                target=_run_all, args=arguments, name="hippogriff-verify", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                return False  # There is none to be had.
            self._thread = thread
        return True

    def _finish(self) -> None:
        """Compare the rest here, while the thread is busy with what came before."""
        gathered, self._gathered = self._gathered, []
        try:
            self._run_here(gathered)
        except HippogriffError:
            self._wait()  # What came before is told before.
            raise
        self._wait()

    def _run_here(self, comparisons: list[_Comparison]) -> None:
        for each in comparisons:
            each.run(self._look)
            each.look()

    def _wait(self) -> None:
        for each in self._running:
            while not each.ended.wait(SLICE_SECONDS):  # So that signals are seen.
                self._look()
            each.look()

    def _look_at_running(self) -> None:
        while self._running and self._running[0].ended.is_set():
            self._running.pop(0).look()

    def _stop(self) -> None:
        """Have the thread end, and wait for that: what it reads is its caller's then."""
        self._stopping.set()
        self._tasks.put(None)
        outlast(self._has_ended, _STOP_SECONDS)

    def _has_ended(self, seconds: float) -> bool:
        if not all(each.ended.wait(seconds) for each in self._running):
            return False
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _tell_mismatch(self, error: BaseException) -> None:
        """Tell what differed before something else ended it, which is the lesser news."""
        if isinstance(error, ChecksumMismatch):
            return
        for each in self._running:
            if isinstance(each.error, ChecksumMismatch):
                if isinstance(error, Exception):
                    each.look()
                error.add_note(f"found before: {each.error}")
                return


def _go_on() -> None:
    pass


class _Stopping:
    """Ends a comparison between two calls of the library."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping

    def __call__(self) -> None:
        if self._stopping.is_set():
            raise Cancelled("verify: the load was stopped", operation="verify")
