"""Memory of several devices for one command: waited for in the order that all commands keep to."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hippogriff._node import node_status
from hippogriff._sizes import format_size
from hippogriff.errors import Busy, HippogriffError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Set
    from types import TracebackType

    from hippogriff._node import Reservation
    from hippogriff.sharing.placement import Candidate

    #: Reserves memory of a device within so many seconds; None: as long as it takes.
    Take = Callable[[str, float | None], Reservation]

_LOOK_SECONDS = 0.5


def reserve_several(
    count: int,
    size_bytes: int,
    look: Callable[[], Sequence[Candidate]],
    take: Take,
    timeout: float | None,
) -> list[Reservation]:
    """Reserve so much memory of each of so many devices, or of none.

    Those where it is free at once are taken without waiting. Else the best are chosen, and waited
    for one after the other by their UUIDs, keeping those that are there: nobody who does so can
    wait for somebody who waits for it. After each, what is free at once is tried again.

    Parameters
    ----------
    look : callable
        Returns the devices that are large enough, best first; at least `count`.
    take : callable
        Reserves the memory of one of them.

    Raises
    ------
    Busy, TimedOut
        When it was not free in time. Nothing is held then.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    chosen: list[str] = []
    with _Held() as held:
        while True:
            best = look()
            _take_what_is_free(count, size_bytes, best, take, held)
            if len(held.devices) == count:
                return held.keep()
            if timeout == 0:
                raise Busy(f"{format_size(size_bytes)} are free on fewer than {count} GPUs now")
            if not chosen:
                chosen = sorted(device.uuid for device in best[:count])
            awaited = next(uuid for uuid in chosen if uuid not in held.devices)
            if any(uuid > awaited for uuid in held.devices):
                # One was given away while a later one was waited for.
                held.release()
                chosen = []
                continue
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            with held.giving_way():
                held.add(awaited, take(awaited, left))


def _take_what_is_free(
    count: int, size_bytes: int, best: Sequence[Candidate], take: Take, held: _Held
) -> None:
    """Add devices that are free now to those that are held, if they are enough; else none."""
    devices = held.devices
    free = [
        device.uuid
        for device in best
        if device.uuid not in devices and device.free_bytes >= size_bytes
    ]
    missing = count - len(devices)
    with _Held() as taken:
        for uuid in free if len(free) >= missing else ():
            try:
                taken.add(uuid, take(uuid, 0))
            except Busy:
                continue
            if len(taken.devices) == missing:
                for one in taken.keep():
                    held.add(one.device, one)
                return


class _Held:
    """What is reserved until now; given back at the end of the block unless kept. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[str, Reservation] = {}

    def __enter__(self) -> _Held:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def devices(self) -> Set[str]:
        with self._lock:
            return set(self._there)

    def add(self, device: str, reservation: Reservation) -> None:
        with self._lock:
            self._there[device] = reservation

    def release(self) -> None:
        with self._lock:
            there, self._there = self._there, {}
        for reservation in there.values():
            reservation.release()

    def keep(self) -> list[Reservation]:
        """Return all, in the order of the devices, to be kept."""
        with self._lock:
            there, self._there = self._there, {}
        return [there[device] for device in sorted(there)]

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """Give all back once somebody would wait for it for ever, as `is_in_the_way` says."""
        if not self.devices:
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK_SECONDS):
                try:
                    in_the_way = is_in_the_way(node_status(), self.devices)
                except HippogriffError:
                    continue
                if in_the_way:
                    self.release()
                    return

        watcher = threading.Thread(target=watch, name="hippogriff-giving-way", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()  # before the command is started: it would be forked away


def is_in_the_way(status: Mapping[str, Any], held: Set[str]) -> bool:
    """Say whether somebody who does not keep to the order waits for one of the held devices.

    That is a program that has memory of that device and wants more, or has some of a later one:
    who holds the former may be waiting for it, directly or by others.
    """
    entries = status["reservations"]
    holders = [(entry["client"], entry["device"]) for entry in entries if entry["size_bytes"] > 0]
    return any(
        client == entry["client"] and device >= entry["device"]
        for entry in entries
        if entry["waits"] and entry["device"] in held
        for client, device in holders
    )
