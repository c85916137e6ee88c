"""`hippogriff bench`: every route side by side with the naive read and copy."""

from __future__ import annotations

import errno
import os
import random
import secrets
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hippogriff._measurement import (
    Sample,
    backed,
    cached_fraction,
    make_cold,
    median,
    time_naive_read,
    time_naive_write,
    time_read,
    time_write,
    warm,
)
from hippogriff._runtime import explain
from hippogriff.errors import HippogriffError, InvalidArgument, io_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hippogriff._array import Array

    Tell = Callable[[int, str], None]

ROUTES = ("auto", "direct", "mapped", "pipelined", "parked")
NAIVE = "naive"
_BLOCK_BYTES = 16 << 20
_ROTATION_BYTES = 1_000_003
_COLD_FRACTION = 0.1


@dataclass(frozen=True)
class Row:
    """One way to move the file: what was asked for, and how it went or why it did not."""

    case: str
    asked: str
    samples: tuple[Sample, ...]
    why_not: str = ""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        facts: dict[str, object] = {"case": self.case, "asked": self.asked}
        if self.samples:
            facts["median"] = median(list(self.samples)).as_dict()
            facts["samples"] = [sample.as_dict() for sample in self.samples]
        if self.why_not:
            facts["why_not"] = self.why_not
        return facts


def make_file(path: Path, size_bytes: int, tell: Tell | None = None) -> None:
    """Write a file of pseudo-random bytes, durably.

    Raises
    ------
    IoError
        When there is no room, or it cannot be written.
    """
    source = random.Random(size_bytes).randbytes(_BLOCK_BYTES)
    try:
        if size_bytes > shutil.disk_usage(path.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # before the drive is full
        with path.open("xb", buffering=0) as file:
            done = 0
            while done < size_bytes:
                # Every block starts elsewhere, so that a misplaced one is seen.
                start = done // _BLOCK_BYTES * _ROTATION_BYTES % _BLOCK_BYTES
                block = (source[start:] + source[:start])[: size_bytes - done]
                done += _write_all(file.fileno(), block)
                if tell is not None:
                    tell(done, "")
            os.fdatasync(file.fileno())
    except OSError as error:
        raise io_error("write", str(path), error) from None


def _write_all(descriptor: int, block: bytes) -> int:
    done = 0
    while done < len(block):
        done += os.write(descriptor, block[done:] if done else block)
    return len(block)


class Bench:
    """Measures one file on one device. `tell` is called with the moves done so far and a note."""

    def __init__(self, path: Path, device: str, repetitions: int, tell: Tell) -> None:
        facts = path.stat()
        size_bytes = facts.st_size
        if not stat.S_ISREG(facts.st_mode):
            raise InvalidArgument(f"{path} is no regular file", object=str(path))
        if not size_bytes:
            raise InvalidArgument(f"{path} is empty: there is nothing to measure", object=str(path))
        self._path = path
        self._device = device
        self._repetitions = repetitions
        self._tell = tell
        self._moves = 0
        self._size_bytes = size_bytes

    def run(self, scratch: Path) -> list[Row]:
        """Measure all cases, writing to a new file in the folder `scratch`.

        The competitors of a case take turns, so that a drift of the machine hits all alike.
        """
        rows: list[Row] = []
        with backed(self._size_bytes, self._device) as array:
            for case, prepare in (("send, cold", make_cold), ("send, cached", warm)):
                prepare(self._path)
                if prepare is make_cold and cached_fraction(self._path) > _COLD_FRACTION:
                    continue  # A file in memory has no cold state.
                rows += self._run_case(case, "send", self._reader(array, prepare))
            output = scratch / f".hippogriff-bench-{secrets.token_hex(8)}"
            try:
                rows += self._run_case("recv", "recv", self._writer(array, output))
            finally:
                output.unlink(missing_ok=True)
        return rows

    def _reader(self, array: Array, prepare: Callable[[Path], None]) -> Callable[[str], Sample]:
        def read(asked: str) -> Sample:
            prepare(self._path)
            if asked == NAIVE:
                return time_naive_read(self._path, array)
            return time_read(self._path, array, asked)

        return read

    def _writer(self, array: Array, output: Path) -> Callable[[str], Sample]:
        def write(asked: str) -> Sample:
            if asked == NAIVE:
                return time_naive_write(output, array)
            return time_write(output, array, asked)

        return write

    def _run_case(self, case: str, direction: str, move: Callable[[str], Sample]) -> list[Row]:
        impossible = self._impossible(direction)
        samples: dict[str, list[Sample]] = {}
        for _ in range(self._repetitions):
            for asked in (*ROUTES, NAIVE):
                if asked in impossible:
                    continue
                self._tell(self._moves * self._size_bytes, f"{case}: {asked}")
                try:
                    samples.setdefault(asked, []).append(move(asked))
                except HippogriffError as error:
                    if asked == "auto":
                        raise
                    impossible[asked] = str(error)
                self._moves += 1
        return [
            Row(case, asked, tuple(samples.get(asked, ())), impossible.get(asked, ""))
            for asked in (*ROUTES, NAIVE)
        ]

    def _impossible(self, direction: str) -> dict[str, str]:
        outlook = explain(self._path, direction=direction, device=self._device)
        return {
            str(route["route"]): str(route.get("why_not", ""))
            for route in outlook["routes"]
            if not route["possible"]
        }
