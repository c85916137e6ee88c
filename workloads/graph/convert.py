#!/usr/bin/env python3
"""Makes a graph file for `graph` of an edge list, a matrix, EMOGI's binaries or scgraph's modules.

Run it from the repository: `python3 -m workloads.graph.convert GRAPH FILE`. It wants NumPy.
README.md says what the formats are. GRAPH appears when it is complete; memory is bounded by
--memory and by what vertices take, not by the number of edges.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np

from workloads.graph.edge_files import (
    FORMATS,
    VERTICES_MAX,
    ConversionError,
    EdgeFile,
    format_of,
    open_edges,
)
from workloads.graph.edge_sort import KeySort, without_repetitions
from workloads.whole_files import replacing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.uint64]

EDGES_MAX = 1 << 40
MEMORY_MIN = 1 << 20
_PAGE = 4096
_AT_ONCE = 1 << 18
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


@dataclass(frozen=True)
class Wish:
    """What becomes of the edges."""

    symmetric: bool = False
    unique: bool = False
    without_loops: bool = False
    keep_numbers: bool = False
    memory_bytes: int = 1 << 30


@dataclass(frozen=True)
class Graph:
    """What was written."""

    vertices: int
    edges: int
    symmetric: bool


class Progress:
    """Tells now and then how far we are; nothing where it takes a moment only."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def tell(self, what: str, done: int, of: int, edges: int) -> None:
        """Tell, unless we have just done so."""
        if time.monotonic() - self._told < 5:
            return
        self._told = time.monotonic()
        print(f"{what}: {100 * done // max(1, of)} %, {edges} edges", file=sys.stderr, flush=True)


class Numbering:
    """Gives the numbers that there are dense ones, in the same order."""

    def __init__(self) -> None:
        self._there: Numbers = np.empty(0, dtype=np.uint64)
        self._new: list[Numbers] = []
        self._new_count = 0
        self._table: NDArray[np.uint32] | None = None

    def add(self, numbers: Numbers) -> None:
        """Take some numbers, repeated or not."""
        numbers = np.sort(numbers)
        self._new.append(without_repetitions(numbers))
        self._new_count += len(self._new[-1])
        # As much work as there is for all that came, and no more memory than for twice of them.
        if self._new_count > max(len(self._there), 16 * _AT_ONCE):
            self._merge()

    def _merge(self) -> None:
        merged = np.concatenate([self._there, *self._new])
        self._new, self._new_count = [], 0
        merged.sort()
        self._there = without_repetitions(merged)

    def finish(self) -> int:
        """Return how many different ones there are."""
        self._merge()
        count = len(self._there)
        # A table is looked up at once, and takes 16 bytes a vertex at most.
        if 0 < count <= VERTICES_MAX and int(self._there[-1]) < 4 * count:
            self._table = np.zeros(int(self._there[-1]) + 1, dtype=np.uint32)
            self._table[self._there] = np.arange(count, dtype=np.uint32)
            self._there = np.empty(0, dtype=np.uint64)
        return count

    def dense(self, numbers: Numbers) -> Numbers:
        """Return the dense numbers of some that were added."""
        if self._table is not None:
            return self._table[numbers].astype(np.uint64)
        # Looked up in order they are near each other: that takes a third of the time.
        order = np.argsort(numbers)
        places = np.empty(len(numbers), dtype=np.uint64)
        places[order] = np.searchsorted(self._there, numbers[order])
        return places


class Converter:
    """Sorts the edges of a file and writes them as a graph."""

    def __init__(self, wish: Wish, scratch: Path, stack: ExitStack) -> None:
        self._wish = wish
        self._scratch = scratch
        self._stack = stack
        self._progress = Progress()
        self._sort = KeySort(self._hidden_file(), wish.memory_bytes, unique=wish.unique)
        self._edges = 0

    def _hidden_file(self) -> BinaryIO:
        """Return a file that has no name and goes with this process, however it ends."""
        file: Any = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 (the stack closes it)
        return self._stack.enter_context(file)  # type: ignore[no-any-return]

    def read(self, file: EdgeFile) -> int:
        """Take all edges; return the number of vertices."""
        if file.vertices is not None or self._wish.keep_numbers:
            most = -1
            for begins, ends in file.pieces:
                if len(begins):
                    most = max(most, int(begins.max()), int(ends.max()))
                self._add(begins, ends)
                self._tell_reading(file)
            return most + 1 if file.vertices is None else file.vertices
        return self._read_dense(file)

    def _tell_reading(self, file: EdgeFile) -> None:
        self._progress.tell("read", file.opened.tell(), file.size_bytes, self._edges)

    def _read_dense(self, file: EdgeFile) -> int:
        """Keep the edges in a file until it is known which numbers there are."""
        numbering = Numbering()
        kept = self._hidden_file()
        pairs = 0
        for begins, ends in file.pieces:
            both = np.stack([begins, ends], axis=1)
            numbering.add(both.ravel())
            kept.write(both.data)
            pairs += len(both)
            self._progress.tell("read", file.opened.tell(), file.size_bytes, pairs)
        vertices = numbering.finish()
        if vertices > VERTICES_MAX:
            message = f"{vertices} vertices: {VERTICES_MAX} are as many as a graph has"
            raise ConversionError(message)
        kept.seek(0)
        for done in range(0, pairs, _AT_ONCE):
            count = min(_AT_ONCE, pairs - done)
            read = kept.read(16 * count)
            if len(read) != 16 * count:
                message = "the file of edges in between became shorter"
                raise OSError(message)
            both = numbering.dense(np.frombuffer(read, dtype=np.uint64)).reshape(-1, 2)
            self._add(both[:, 0], both[:, 1])
            self._progress.tell("numbered", done, pairs, self._edges)
        return vertices

    def _add(self, begins: Numbers, ends: Numbers) -> None:
        loops = begins == ends
        if self._wish.without_loops:
            begins, ends = begins[~loops], ends[~loops]
            loops = np.zeros(len(begins), dtype=bool)
        self._sort.add((begins << _HALF) | ends)
        self._edges += len(begins)
        if self._wish.symmetric:
            self._sort.add(((ends << _HALF) | begins)[~loops])
            self._edges += int((~loops).sum())

    def write(self, file: BinaryIO, vertices: int) -> Graph:
        """Write the graph; whether lists lead both ways is told by sums of hashes."""
        if not 1 <= vertices <= VERTICES_MAX:
            message = f"{vertices} vertices: a graph has 1 to {VERTICES_MAX}"
            raise ConversionError(message)
        offsets = np.zeros(vertices + 1, dtype=np.uint64)
        place = -(-(_PAGE + offsets.nbytes) // _PAGE) * _PAGE
        file.seek(place)
        edges = 0
        forth, back = np.uint64(0), np.uint64(0)
        stored, sorted_pieces = self._sort.pieces()
        for piece in sorted_pieces:
            for first in range(0, len(piece), _AT_ONCE):
                keys = piece[first : first + _AT_ONCE]
                owners, ends = keys >> _HALF, keys & _LOW
                there, counts = np.unique(owners, return_counts=True)
                offsets[there + np.uint64(1)] += counts.astype(np.uint64)
                file.write(ends.astype("<u4").data)
                forth += _hash(keys).sum(dtype=np.uint64)
                back += _hash((ends << _HALF) | owners).sum(dtype=np.uint64)
                edges += len(keys)
                self._progress.tell("wrote", edges, stored, edges)
        if edges > EDGES_MAX:
            message = f"{edges} edges: {EDGES_MAX} are as many as a graph has"
            raise ConversionError(message)
        np.cumsum(offsets, out=offsets)
        file.truncate(place + 4 * edges)
        file.seek(_PAGE)
        file.write(offsets.astype("<u8", copy=False).data)
        header = b"hippoin1" + b"graph".ljust(16, b"\0")
        file.seek(0)
        file.write(header + vertices.to_bytes(8, "little") + edges.to_bytes(8, "little"))
        return Graph(vertices, edges, bool(forth == back))


def _hash(keys: Numbers) -> Numbers:
    """Return splitmix64's hashes: sums of them are the same for the same edges, else hardly."""
    mixed = keys + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def convert(graph: Path, path: Path, kind: str | None, wish: Wish, scratch: Path) -> Graph:
    """Make a graph of a file."""
    with ExitStack() as stack, np.errstate(over="ignore"):
        file = open_edges(stack, path, kind or format_of(path), keep_numbers=wish.keep_numbers)
        if graph.exists() and any(map(graph.samefile, file.paths)):
            message = f"{graph} is what is to be converted"
            raise ConversionError(message)
        converter = Converter(wish, scratch, stack)
        with replacing(graph) as written:
            return converter.write(written, converter.read(file))


def _memory(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12})(|KiB|MiB|GiB)", text, re.ASCII)
    if match is None:
        message = f"{text} is not a size such as 512MiB"
        raise argparse.ArgumentTypeError(message)
    size = int(match[1]) * _UNITS[match[2]]
    if size < MEMORY_MIN:
        message = f"{text} is less than {MEMORY_MIN} bytes"
        raise argparse.ArgumentTypeError(message)
    return size


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="convert.py", description=__doc__)
    parser.add_argument("graph", type=Path, help="the file to be made")
    parser.add_argument("file", type=Path, help="what it is made of; of NAME.bel.* either or NAME")
    parser.add_argument("--format", choices=FORMATS, help="default: by the name and the beginning")
    parser.add_argument("--symmetric", action="store_true", help="add all edges the other way")
    parser.add_argument("--remove-duplicates", action="store_true", help="keep each edge once")
    parser.add_argument("--remove-loops", action="store_true", help="drop edges of one vertex")
    parser.add_argument(
        "--keep-numbers", action="store_true", help="of a text: do not make numbers dense"
    )
    parser.add_argument("--memory", type=_memory, default="1GiB", help="for sorting")
    parser.add_argument("--scratch", type=Path, help="a folder; default: the graph's")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Convert what the command line names."""
    options = parse_arguments(words)
    wish = Wish(
        symmetric=options.symmetric,
        unique=options.remove_duplicates,
        without_loops=options.remove_loops,
        keep_numbers=options.keep_numbers,
        memory_bytes=options.memory,
    )
    scratch = options.scratch or Path(os.path.realpath(options.graph)).parent
    try:
        found = convert(options.graph, options.file, options.format, wish, scratch)
    except (ConversionError, OSError, MemoryError) as error:
        print(f"convert.py: {error or 'not enough memory'}", file=sys.stderr)
        return 1
    print(f"{found.vertices} vertices, {found.edges} edges")
    if not found.symmetric:
        print(
            "convert.py: lists lead one way only, which is right for `--algorithm bfs --top-down` "
            "alone: --symmetric adds the other way",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    # What is half made goes away as it does by the keyboard.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
