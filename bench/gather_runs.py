"""Runs workloads/gather for `bench.arrays_workloads`, and NumPy's mapping over the same file.

`gather` measures its three ways at once, cold and cached, and prints a table: they are called as
other programs' modes are, `resident` what loads the file, `zero-copy` what maps it.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

WAYS = {"StorageArray": "array", "load all": "resident", "mmap": "zero-copy"}
MODES = (*WAYS.values(), "numpy")
_LINE = re.compile(r"(StorageArray|load all|mmap) +([0-9.]+) +([0-9.]+) +[0-9]+")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # of the words in the file


def seconds_of(table: str) -> dict[tuple[str, str], float]:
    """Return the seconds by mode and state that the program printed."""
    found = {}
    for line in table.splitlines():
        if match := _LINE.fullmatch(line):
            mode = WAYS[match[1]]
            found[mode, "cold"], found[mode, "cached"] = float(match[2]), float(match[3])
    if len(found) != 2 * len(WAYS) or "verified: every word of every row" not in table:
        message = f"gather printed something else: {table[-300:]!r}"
        raise ValueError(message)
    return found


def gather_with_numpy(path: Path, rows: NDArray[np.int64], row_bytes: int) -> float:
    """Return the seconds in which rows are copied out of a mapping; words are checked."""
    begin = time.perf_counter()
    words = row_bytes // 8
    mapped: Any = np.memmap(path, dtype=np.uint64, mode="r").reshape(-1, words)
    gathered: NDArray[np.uint64] = np.asarray(mapped[rows])
    seconds = time.perf_counter() - begin
    places = rows.astype(np.uint64)[:, None] * np.uint64(words) + np.arange(words, dtype=np.uint64)
    if not np.array_equal(gathered, (places + np.uint64(1)) * _MULTIPLIER):
        message = "WRONG: rows that NumPy gathered"
        raise ValueError(message)
    return seconds


def drop_from_page_cache(path: Path) -> None:
    """Have the page cache hold nothing of a file that is on the drive."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_once(
    program: Path, path: Path, sizes: tuple[int, int, int, int], timeout: float
) -> dict[tuple[str, str], float]:
    """Return the seconds of all ways; sizes: of the file, how many rows, of a row, of the cache."""
    size_bytes, count, row_bytes, _ = sizes
    command = [str(program), str(path), *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        message = f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"
        raise ValueError(message)
    found = seconds_of(done.stdout)
    rows = np.random.default_rng(1).integers(0, size_bytes // row_bytes, count)
    drop_from_page_cache(path)
    for state in ("cold", "cached"):
        found["numpy", state] = gather_with_numpy(path, rows, row_bytes)
    return found
