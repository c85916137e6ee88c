"""Sorts more edges than fit into memory: sorted runs in a file, and what of them comes next."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Keys: TypeAlias = NDArray[np.uint64]

# A key itself, what it is sorted out to without the repeated ones, and what lies beside.
BYTES_OF_KEY = 24


def without_repetitions(sorted_keys: Keys) -> Keys:
    """Return each of some sorted keys once."""
    if not len(sorted_keys):
        return sorted_keys
    kept = np.empty(len(sorted_keys), dtype=bool)
    kept[0] = True
    np.not_equal(sorted_keys[1:], sorted_keys[:-1], out=kept[1:])
    return sorted_keys[kept]


class KeySort:
    """Takes keys in any order and gives them in order, within a bound of memory.

    `file` is an empty one for the runs, 8 bytes for each key; it must last as long as this. The
    bound holds while keys are added, and then while they are given.
    """

    def __init__(self, file: BinaryIO, memory_bytes: int, *, unique: bool) -> None:
        self._file = file
        self._capacity = max(1, memory_bytes // BYTES_OF_KEY)
        self._unique = unique
        self._keys: Keys = np.empty(self._capacity, dtype=np.uint64)
        self._used = 0
        self._ends = [0]  # of the runs, in keys

    def add(self, keys: Keys) -> None:
        """Take some keys."""
        while len(keys):
            part = keys[: self._capacity - self._used]
            self._keys[self._used : self._used + len(part)] = part
            self._used += len(part)
            keys = keys[len(part) :]
            if self._used == self._capacity:
                self._end_run()

    def _end_run(self) -> None:
        run = self._keys[: self._used]
        run.sort()
        if self._unique:
            run = without_repetitions(run)
        self._file.write(run.data)
        self._ends.append(self._ends[-1] + len(run))
        self._used = 0

    def pieces(self) -> tuple[int, Iterator[Keys]]:
        """Return how many keys the runs have, and all keys in order; nothing is added after it."""
        if self._used:
            self._end_run()
        self._file.flush()
        self._keys = np.empty(0, dtype=np.uint64)
        return self._ends[-1], self._merged()

    def _merged(self) -> Iterator[Keys]:
        if self._ends[-1] == 0:
            return
        size = os.fstat(self._file.fileno()).st_size
        if size != self._ends[-1] * 8:
            message = f"the file of runs has {size} bytes, not {self._ends[-1] * 8}"
            raise OSError(message)
        kept: Any = np.memmap(self._file, dtype=np.uint64, mode="r")
        runs: list[Keys] = [
            kept[begin:end] for begin, end in zip(self._ends, self._ends[1:], strict=False)
        ]
        while runs:
            bound = self._bound(runs)
            if bound is None:
                counts = [len(run) for run in runs]
            else:
                counts = [int(np.searchsorted(run, bound)) for run in runs]
            parts = [run[:count] for run, count in zip(runs, counts, strict=True)]
            yield from self._piece(parts, sum(counts))
            runs = [run[count:] for run, count in zip(runs, counts, strict=True)]
            runs = [run for run in runs if len(run)]

    def _bound(self, runs: list[Keys]) -> np.uint64 | None:
        """Return the key before which there are as many as fit, or at least one; None: all fit."""
        if sum(len(run) for run in runs) <= self._capacity:
            return None
        low = min(int(run[0]) for run in runs) + 1  # that many are taken, fit or not
        high = max(int(run[-1]) for run in runs) + 1
        while high - low > 1:
            middle = (low + high) // 2
            before = sum(int(np.searchsorted(run, np.uint64(middle))) for run in runs)
            low, high = (middle, high) if before <= self._capacity else (low, middle)
        return np.uint64(low)

    def _piece(self, parts: list[Keys], count: int) -> Iterator[Keys]:
        if count <= self._capacity:
            keys = np.concatenate(parts)
            keys.sort()
            yield without_repetitions(keys) if self._unique else keys
            return
        # They are all the same one: nothing less would have been too many.
        key = next(part[0] for part in parts if len(part))
        if self._unique:
            yield np.array([key], dtype=np.uint64)
            return
        for begin in range(0, count, self._capacity):
            yield np.full(min(self._capacity, count - begin), key, dtype=np.uint64)
