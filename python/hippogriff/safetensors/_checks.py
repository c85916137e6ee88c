"""When what has landed is compared: in few calls, on a thread beside the load where it is much."""

from __future__ import annotations

import threading
from array import array
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._handle import SLICE_SECONDS
from hippogriff.errors import Cancelled, HippogriffError
from hippogriff.safetensors._verify import Landed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Protocol

    from hippogriff._frameworks import Framework
    from hippogriff._regions import Region
    from hippogriff.safetensors._load import Batch
    from hippogriff.safetensors._tensor import TensorInfo
    from hippogriff.safetensors._verify import Verifier

    class Finder(Protocol):
        """Says which checksums tensors should have: a `Verifier` or a `Follower`."""

        def find(
            self, tensors: Sequence[TensorInfo], sizes_bytes: Iterable[int], /
        ) -> array[int]: ...


# So much is compared at once, or more: less leaves parts of a GPU idle, and what is left at the end
# of a load nothing hides.
_TOGETHER_BYTES = 256 << 20


class _Comparison(NamedTuple):
    """What one call compares. `keep` holds the memory."""

    verifier: Verifier
    region: Region
    landed: Landed
    keep: list[object]

    def run(self, between: Callable[[], object]) -> None:
        self.verifier.compare(self.landed, self.region, between)


class Checks:
    """Compares what lands in the course of a load. Used from one thread, as a context manager.

    Little is compared where the ``with`` ends; more on a thread, while the rest is on its way. The
    end of the ``with`` raises what differs, the first in the order of landing; nothing is under way
    then, whatever ended it.
    """

    def __init__(self) -> None:
        self._gathered: list[_Comparison] = []
        self._size_bytes = 0
        self._pool: ThreadPoolExecutor | None = None
        self._running: list[Future[None]] = []
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
            if kind is None:
                self._finish()
        finally:
            self._stopping.set()
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)

    def of(
        self, verifier: Verifier | None, framework: Framework, finder: Finder | None = None
    ) -> Callable[[Batch], None] | None:
        """Return what takes a file's batches when they have landed; None without a verifier.

        It raises what differs in earlier ones, where that is known then.
        """
        if verifier is None:
            return None
        found = finder or verifier
        # They have landed: there is no work that comes before.
        region = framework.region._replace(stream=None)

        def take(batch: Batch) -> None:
            expected = found.find(batch.tensors, batch.sizes)
            if not self._gathered or self._gathered[-1].verifier is not verifier:
                landed = Landed([], array("Q"), array("Q"), array("Q"))
                self._gathered.append(_Comparison(verifier, region, landed, []))
            _, _, landed, keep = self._gathered[-1]
            landed.tensors.extend(batch.tensors)
            landed.addresses.extend(batch.addresses)
            landed.sizes.extend(batch.sizes)
            landed.expected.extend(expected)
            keep.append(batch.arrays)
            self._size_bytes += sum(batch.sizes)
            if self._size_bytes >= _TOGETHER_BYTES:
                self._begin()

        return take

    def _begin(self) -> None:
        """Let the thread compare what has gathered."""
        self._raise_found()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "hippogriff-verify")
        gathered, self._gathered, self._size_bytes = self._gathered, [], 0
        for each in gathered:
            try:
                self._running.append(self._pool.submit(each.run, self._look))
            except RuntimeError:
                each.run(self._look)  # There is no thread to be had.

    def _finish(self) -> None:
        """Compare the rest here, while the thread is busy with what came before."""
        try:
            for each in self._gathered:
                each.run(self._look)
        except HippogriffError:
            self._wait()  # What came before is told before.
            raise
        self._wait()

    def _wait(self) -> None:
        for each in self._running:
            while not each.done():
                wait([each], SLICE_SECONDS)  # So that signals are seen, whichever thread has them.
            each.result()

    def _raise_found(self) -> None:
        while self._running and self._running[0].done():
            self._running.pop(0).result()

    def _look(self) -> None:
        if self._stopping.is_set():
            raise Cancelled("verify: the load was stopped", operation="verify")


def check_now(verifier: Verifier, batch: Batch, region: Region) -> None:
    """Compare a batch here and now, after the work on the stream of `region`.

    Raises
    ------
    ChecksumMismatch
        When some of it differs; names the tensors and bytes.
    """
    expected = verifier.find(batch.tensors, batch.sizes)
    addresses, sizes = array("Q", batch.addresses), array("Q", batch.sizes)
    verifier.compare(Landed(batch.tensors, addresses, sizes, expected), region)
