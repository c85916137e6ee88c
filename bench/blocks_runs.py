"""Runs workloads/blocks for `bench.arrays_workloads`, in turns with what the drive gives.

All cases share a file. It is made anew where something compares it with what was generated, and
blocks of it were overwritten since.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.drive_limit import AbsentError, seconds_by_depth

if TYPE_CHECKING:
    from pathlib import Path

DIRECT, LIMIT = "past page cache", "io_uring"
MODES = (DIRECT, LIMIT)
# The reads first: they leave the file as it is.
CASES = tuple((verb, block_bytes) for verb in ("read", "write") for block_bytes in (512, 4096))
DEPTHS = (64, 128, 256, 512)  # the drive's best one is its limit
_SOURCE = "files past the page cache"  # as an array explains it


@dataclass(frozen=True)
class Sizes:
    """How large the file is, how many blocks are wanted, and the cache if it is given."""

    size_bytes: int
    count: int
    cache_bytes: int | None
    cache_part: int

    def count_of(self, block_bytes: int) -> int:
        """Return how many blocks are wanted, or there are."""
        return min(self.count, self.size_bytes // block_bytes)

    def cache_of(self, block_bytes: int) -> int:
        """Return the bytes of the cache, by default a part of what is wanted."""
        wanted = self.count_of(block_bytes) * block_bytes
        return self.cache_bytes or max(1 << 20, wanted // self.cache_part)


class Blocks:
    """A file, and random blocks of it. `programs` is where blocks and random_blocks are."""

    def __init__(self, path: Path, sizes: Sizes, device: str, programs: Path) -> None:
        self._path, self._sizes, self._device, self._programs = path, sizes, device, programs
        self._best: dict[tuple[str, int], int] = {}
        self._is_generated = False

    def prepare(self, mode: str, verb: str, number: int) -> None:
        """Have the file as what is next wants it: writes are checked in the first round."""
        is_compared = mode != LIMIT and (verb == "read" or number == 0)
        if not self._path.exists() or (is_compared and not self._is_generated):
            size = str(self._sizes.size_bytes)
            command = [str(self._programs / "blocks"), "generate", str(self._path), "--size", size]
            subprocess.run(command, check=True)
            self._is_generated = True

    def measure(
        self, mode: str, case: tuple[str, int], number: int, timeout: float
    ) -> dict[str, Any]:
        """Return a repetition of a case, of a round.

        Raises AbsentError, ValueError where blocks are wrong, and subprocess.TimeoutExpired.
        """
        self._is_generated = self._is_generated and case[0] == "read"
        if mode == LIMIT:
            return self._limit(case, timeout)
        return self._array(case, number, timeout)

    def _array(self, case: tuple[str, int], number: int, timeout: float) -> dict[str, Any]:
        verb, block_bytes = case
        sizes = self._sizes
        command = [str(self._programs / "blocks"), "run", str(self._path), "--mode", verb]
        command += ["--device", self._device, "--block", str(block_bytes), "--io", "direct"]
        command += ["--count", str(sizes.count_of(block_bytes))]
        command += ["--cache", str(sizes.cache_of(block_bytes)), "--json"]
        # Other bytes in each round, so that what was not written is not right by chance.
        command += ["--new-seed", str(number + 2), *(["--check"] if number == 0 else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        if done.returncode != 0:
            message = f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"
            raise (ValueError if "WRONG" in done.stderr else AbsentError)(message)
        measured: dict[str, Any] = json.loads(done.stdout)["runs"][0]
        if not measured["source"].startswith(_SOURCE):
            message = f"the array reads {measured['source']}"
            raise AbsentError(message)
        return measured

    def _limit(self, case: tuple[str, int], timeout: float) -> dict[str, Any]:
        """All depths in the first round, then that which was the best."""
        verb, block_bytes = case
        count = self._sizes.count_of(block_bytes)
        depths = (self._best[case],) if case in self._best else DEPTHS
        words = (verb, self._path, block_bytes, count)
        found = seconds_by_depth(self._programs / "random_blocks", words, depths, timeout)
        depth = self._best[case] = min(found, key=found.__getitem__)
        return {
            "seconds": {"compute": found[depth]},
            "total_seconds": found[depth],
            "blocks_per_second": count / found[depth],
            "depth": depth,
            "seconds_by_depth": found,
            "amplification": None,
        }
