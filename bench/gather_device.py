"""Gathers rows of a file for `bench.arrays_workloads` where a GPU wants them, in all ways.

Each way opens the file, has the rows in the device's memory, and compares every word. Row numbers
are there before, and on the host for who gathers there. `random_blocks` is the drive's limit.
"""

from __future__ import annotations

import importlib
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import hippogriff
from bench.drive_limit import AbsentError, seconds_by_depth
from bench.gather_runs import drop_from_page_cache
from hippogriff._bench_rows import DeviceRows, HostRows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DIRECT = "past page cache"
LOADED = "loaded before"
LIMIT = "io_uring"
MODES = {
    "cached": ("array", "resident", LOADED, "zero-copy", "numpy", "torch"),
    "cold": ("array", DIRECT, LIMIT, "resident", "zero-copy", "numpy", "torch"),
}
DEPTHS = (32, 64, 128, 256, 512)  # the drive's best one is its limit
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_PIECE_WORDS = 1 << 19
_SPARE_LINES = 8  # a set, so that the last line has a place
_FIRST_ROWS = 32


@dataclass(frozen=True)
class Sizes:
    """Of the file, its rows, the cache and its lines in bytes; how many rows are gathered."""

    size_bytes: int
    rows: int
    row_bytes: int
    cache_bytes: int
    line_bytes: int


def make_file(path: Path, size_bytes: int) -> None:
    """Write words that tell their places, and have the drive keep them."""
    with path.open("wb") as file:
        for first in range(0, size_bytes // 8, _PIECE_WORDS):
            last = min(first + _PIECE_WORDS, size_bytes // 8)
            file.write((np.arange(first + 1, last + 1, dtype=np.uint64) * _MULTIPLIER).tobytes())
    subprocess.run(["sync", "-d", path], check=True)


class Gather:
    """A file, and random rows of it. `programs` is where random_blocks is."""

    def __init__(self, path: Path, sizes: Sizes, device: str, programs: Path) -> None:
        self._path, self._sizes, self._device, self._programs = path, sizes, device, programs
        threads = 8
        self._place: HostRows = (
            HostRows(path, threads) if device == "host" else DeviceRows(path, threads, device)
        )
        self._there = sizes.size_bytes // sizes.row_bytes
        self._ways: dict[str, Callable[[Any, Any], dict[str, float]]] = {
            "array": lambda wanted, out: self._array(wanted, out, "auto"),
            DIRECT: lambda wanted, out: self._array(wanted, out, "direct"),
            "resident": lambda wanted, out: self._resident(wanted, out, loaded=False),
            LOADED: lambda wanted, out: self._resident(wanted, out, loaded=True),
            "zero-copy": self._zero_copy,
            "numpy": self._numpy,
            "torch": self._torch,
        }
        self._reads = 0
        make_file(path, sizes.size_bytes)
        self._place.start()

    def measure(self, mode: str, state: str, seed: int) -> tuple[dict[str, float], int]:
        """Return seconds by part, and how many lines were read where that counts.

        Raises AbsentError, and ValueError where rows are wrong.
        """
        self._reads = 0
        sizes = self._sizes
        wanted = np.random.default_rng(seed).integers(0, self._there, sizes.rows)
        if mode == LIMIT:
            return self._limit(wanted), self._reads
        out = self._place.empty(sizes.rows, sizes.row_bytes)
        self._prepare(state)
        parts = self._ways[mode](wanted, out)
        self._compare(mode, wanted, self._place.seen(out))
        return parts, self._reads

    def _prepare(self, state: str) -> None:
        if state == "cold":
            drop_from_page_cache(self._path)
        else:
            self._read_all()

    def _read_all(self) -> None:
        with self._path.open("rb", buffering=0) as file:
            while file.read(1 << 22):
                pass

    def _open(self, cache: int, io: str, load: str) -> hippogriff.StorageArray:
        return hippogriff.StorageArray(
            self._path,
            "uint8",
            (self._there, self._sizes.row_bytes),
            device=self._device,
            cache=cache,
            line=self._sizes.line_bytes,
            io=io,
            load=load,
        )

    def _array(self, wanted: Any, out: Any, io: str) -> dict[str, float]:
        """Through the cache, whatever the library would choose."""
        numbers = self._place.numbers(wanted)
        begin = time.perf_counter()
        with self._open(self._sizes.cache_bytes, io, "none") as array:
            opened = time.perf_counter()
            array.take(numbers, out=out)
            done = time.perf_counter()
            if io == "direct" and "O_DIRECT" not in array.explain()["source"]:
                raise AbsentError(array.explain()["reason"])
            self._reads = array.statistics()["misses"]
        return {"open": opened - begin, "compute": done - opened}

    def _resident(self, wanted: Any, out: Any, *, loaded: bool) -> dict[str, float]:
        """From the device's memory; `loaded`: loading it is not what counts."""
        numbers = self._place.numbers(wanted)
        cache = self._sizes.size_bytes + _SPARE_LINES * self._sizes.line_bytes
        begin = time.perf_counter()
        with self._open(cache, "auto", "all") as array:
            if loaded:  # as a program that runs for long: its kernels are there, too
                first = self._place.numbers(wanted[:_FIRST_ROWS])
                array.take(first, out=self._place.empty(len(wanted[:_FIRST_ROWS]), out.shape[1]))
            opened = time.perf_counter()
            array.take(numbers, out=out)
            done = time.perf_counter()
        parts = {"compute": done - opened}
        return parts if loaded else {"load": opened - begin, **parts}

    def _zero_copy(self, wanted: Any, out: Any) -> dict[str, float]:
        """From the page cache in place, whole in it first; on a host from a mapping."""
        numbers = self._place.numbers(wanted)
        begin = time.perf_counter()
        self._read_all()
        loaded = time.perf_counter()
        if self._device == "host":
            with self._place.reader("mmap", out) as read:
                read(wanted, out)
        else:
            with self._open(self._sizes.cache_bytes, "cached", "none") as array:
                try:
                    array._take_in_place(numbers, out)
                except hippogriff.Unsupported as error:
                    raise AbsentError(str(error)) from error
        return {"load": loaded - begin, "compute": time.perf_counter() - loaded}

    def _numpy(self, wanted: Any, out: Any) -> dict[str, float]:
        """Rows that NumPy gathers on the host, then copied."""
        begin = time.perf_counter()
        mapped = np.memmap(self._path, "uint8", "r", shape=(self._there, self._sizes.row_bytes))
        gathered = np.asarray(mapped[wanted])
        self._give(gathered, out)
        return {"compute": time.perf_counter() - begin}

    def _torch(self, wanted: Any, out: Any) -> dict[str, float]:
        """Rows that torch's threads gather on the host, then copied."""
        try:
            torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise AbsentError("torch is not installed") from error
        begin = time.perf_counter()
        shape = (self._there, self._sizes.row_bytes)
        mapped = torch.from_file(
            str(self._path), shared=False, size=shape[0] * shape[1], dtype=torch.uint8
        )
        gathered = mapped.view(shape)[torch.from_numpy(wanted)]
        self._give(gathered.numpy(), out)
        return {"compute": time.perf_counter() - begin}

    def _give(self, rows: Any, out: Any) -> None:
        if self._device == "host":
            out[...] = rows
        else:
            out.copy_from(rows)

    def _limit(self, wanted: Any) -> dict[str, float]:
        """Read as many lines as the rows lie in by io_uring alone, at the drive's best depth.

        An array reads more where lines that it comes back to have left its cache: the page
        compares lines a second.
        """
        sizes = self._sizes
        first = wanted * sizes.row_bytes // sizes.line_bytes
        last = (wanted * sizes.row_bytes + sizes.row_bytes - 1) // sizes.line_bytes
        all_lines = [np.minimum(first + i, last) for i in range(1 + max(last - first))]
        lines = len(np.unique(np.concatenate(all_lines)))
        count = min(lines, sizes.size_bytes // sizes.line_bytes)
        drop_from_page_cache(self._path)
        words = ("read", self._path, sizes.line_bytes, count)
        found = seconds_by_depth(self._programs / "random_blocks", words, DEPTHS, None)
        self._reads = count
        return {"compute": min(found.values())}

    def _compare(self, mode: str, wanted: Any, rows: Any) -> None:
        words = self._sizes.row_bytes // 8
        places = wanted.astype(np.uint64)[:, None] * np.uint64(words)
        places = places + np.arange(words, dtype=np.uint64)
        expected = (places + np.uint64(1)) * _MULTIPLIER
        if not np.array_equal(np.ascontiguousarray(rows).view(np.uint64), expected):
            message = f"WRONG: rows by {mode}"
            raise ValueError(message)
