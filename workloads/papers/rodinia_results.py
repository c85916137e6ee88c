"""Results of the papers' programs beside what Rodinia's programs of that name print or write.

Both are read in pieces. Each comparison yields values of ours, theirs, and how far apart they may
be: by half a unit of the last digit that Rodinia prints, and by rounding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.papers.paper_files import (
    AT_ONCE,
    FORMATS,
    FileError,
    Numbers,
    dwt2d_height,
    read_array,
)
from workloads.papers.rodinia_words import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_SIX_DIGITS = "%g"  # what C++ streams print, too
_HALF = 0.5 * (1 + 1e-6)  # some values are halfway between two that can be printed
_COST = re.compile(rb"(\d{1,10})\) cost:(-?\d{1,10})\s*")
_CENTRE = re.compile(rb"\s*(\d{1,3}):((?:[ \t]+[-+.0-9a-zA-Z]+)+)\s*")
_DISTANCE = re.compile(rb"--> (?:Distance=)?(\S+)\s*$")
_LINE_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Piece:
    """Some values of both, where they begin, and what the differences may be."""

    ours: Any
    theirs: Any
    allowed: Any


@dataclass(frozen=True)
class Pair:
    """Two results, and what is known of them."""

    ours: Path
    theirs: Path
    numbers: Numbers  # of dwt2d: of the image
    relative: float
    binary: bool  # theirs is an array as ours is

    def size(self) -> int:
        """Return how many bytes our result has."""
        return self.ours.stat().st_size

    def count(self, bytes_each: int) -> int:
        """Return how many elements our result has."""
        size = self.size()
        if size == 0 or size % bytes_each:
            raise FileError(f"{self.ours}: {size} bytes are no result: {bytes_each} for each value")
        return size // bytes_each


def _half_unit(values: Any, printed: str) -> Any:
    """Return how far a printed number may be from what it was."""
    if printed == _SIX_DIGITS:
        sizes = np.abs(values)
        with np.errstate(divide="ignore"):
            places = np.floor(np.log10(np.where(np.isfinite(sizes), sizes, 1)))
        return _HALF * 10.0 ** (np.where(np.isfinite(places), places, 0) - 5)
    return np.full(len(values), _HALF * 10.0 ** -int(printed[2:-1]))


def _piece(ours: Any, theirs: Any, printed: str, relative: float, scale: float = 0) -> Piece:
    ours = ours.astype(np.float64)
    theirs = theirs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), scale)
        size = np.where(np.isfinite(size), size, 0)
    allowed = relative * size
    return Piece(ours, theirs, allowed + _half_unit(theirs, printed) if printed else allowed)


def _ours(pair: Pair, dtype: str, first: int, count: int) -> Any:
    with pair.ours.open("rb") as file:
        file.seek(first * np.dtype(dtype).itemsize)
        return read_array(file, pair.ours, dtype, count)


def _theirs_binary(pair: Pair, dtype: str, count: int, relative: float) -> Iterator[Piece]:
    size = pair.theirs.stat().st_size
    if size != pair.size():
        raise FileError(f"{pair.theirs} has {size} bytes, {pair.ours} {pair.size()}")
    with pair.theirs.open("rb") as file:
        for first in range(0, count, AT_ONCE):
            some = min(AT_ONCE, count - first)
            theirs = read_array(file, pair.theirs, dtype, some)
            yield _piece(_ours(pair, dtype, first, some), theirs, "", relative)


def _hotspot(pair: Pair) -> Iterator[Piece]:
    count = pair.count(4)
    if pair.binary:
        yield from _theirs_binary(pair, "<f4", count, pair.relative)
        return
    with pair.theirs.open("rb") as file:
        words = Words(file, pair.theirs)
        first = 0
        for piece in words.in_pieces(2 * count, "<f8", "cell or its temperature", 2):
            cells, theirs = piece[0::2], piece[1::2]
            if (wrong := np.flatnonzero(cells != np.arange(first, first + len(cells)))).size:
                words.fail(f"cell {first + int(wrong[0])} is not where it should be")
            yield _piece(_ours(pair, "<f4", first, len(cells)), theirs, _SIX_DIGITS, pair.relative)
            first += len(cells)
        words.expect_end()


def _bfs(pair: Pair) -> Iterator[Piece]:
    count = pair.count(4)
    if pair.binary:
        yield from _theirs_binary(pair, "<i4", count, 0)
        return
    with pair.theirs.open("rb") as file:
        for first in range(0, count, AT_ONCE):
            some = min(AT_ONCE, count - first)
            costs = np.empty(some, dtype=np.int64)
            for node in range(first, first + some):
                found = _COST.fullmatch(file.readline(_LINE_BYTES_MAX))
                if found is None or int(found[1]) != node:
                    message = f"no '{node}) cost:DISTANCE'"
                    raise FileError(f"{pair.theirs}, line {node + 1}: {message}")
                costs[node - first] = int(found[2])
            yield _piece(_ours(pair, "<i4", first, some), costs, "", 0)
        if file.read(1):
            raise FileError(f"{pair.theirs}, line {count + 1}: there are {count} nodes only")


def _after(pair: Pair, mark: bytes, *, wanted: bool) -> tuple[int, int]:
    """Return the place and the line behind the last line that has a mark; else the beginning."""
    place, line, number = 0, 1, 0
    found = False
    with pair.theirs.open("rb") as file:
        while text := file.readline(_LINE_BYTES_MAX):
            number += text.endswith(b"\n")
            if mark in text:
                found, place, line = True, file.tell(), number + 1
    if wanted and not found:
        raise FileError(f"{pair.theirs} has no line '{mark.decode()}'")
    return (place, line) if found else (0, 1)


def _gaussian(pair: Pair) -> Iterator[Piece]:
    count = pair.count(4)
    ours = _ours(pair, "<f4", 0, count)
    scale = float(np.abs(ours).max())
    if pair.binary:
        yield from _theirs_binary(pair, "<f4", count, pair.relative)
        return
    place, line = _after(pair, b"The final solution is:", wanted=True)
    with pair.theirs.open("rb") as file:
        file.seek(place)
        theirs = Words(file, pair.theirs, line).take(count, "<f8", "number of the solution")
    yield _piece(ours, theirs, "%.2f", pair.relative, scale)


def _lud(pair: Pair) -> Iterator[Piece]:
    count = pair.count(4)
    rows = round(count**0.5)
    if rows * rows != count:
        raise FileError(f"{pair.ours}: {pair.size()} bytes are no square matrix of float32")
    if pair.binary:
        yield from _theirs_binary(pair, "<f4", count, pair.relative)
        return
    place, line = _after(pair, b"After LUD", wanted=False)
    with pair.theirs.open("rb") as file:
        file.seek(place)
        words = Words(file, pair.theirs, line)
        for row in range(rows):
            ours = _ours(pair, "<f4", row * rows, rows)
            theirs = words.take(rows, "<f8", "number of a matrix printed by print_matrix")
            yield _piece(ours, theirs, "%.6f", pair.relative, float(np.abs(ours).max()))
        if place == 0:
            words.expect_end()


def _centres(path: Path) -> Any:
    found: list[list[float]] = []
    with path.open("rb") as file:
        number = 0
        while text := file.readline(_LINE_BYTES_MAX):
            number += 1
            line = _CENTRE.fullmatch(text)
            if line is None:
                continue
            try:
                values = [float(word) for word in line[2].split()]
            except ValueError as error:
                raise FileError(f"{path}, line {number}: {error}") from error
            if int(line[1]) != len(found) or (found and len(values) != len(found[0])):
                message = f"no centre {len(found)} with as many features as those before"
                raise FileError(f"{path}, line {number}: {message}")
            found.append(values)
    if not found:
        raise FileError(f"{path} has no centres: Rodinia's program prints them with -o")
    return np.array(found).ravel()


def _kmeans(pair: Pair) -> Iterator[Piece]:
    theirs = _centres(pair.theirs)
    size = pair.size()
    points = (size - 8 * len(theirs)) // 4
    if size % 4 or points < 1:
        message = f"{size} bytes are no result with {len(theirs)} values of centres"
        raise FileError(f"{pair.ours}: {message}")
    ours = _ours(pair, "<f4", points + len(theirs), len(theirs))
    yield _piece(ours, theirs, "%.2f", pair.relative, 1.0)


def _nn(pair: Pair) -> Iterator[Piece]:
    count = pair.count(8)
    ours = _ours(pair, "<f4", 0, 2 * count)[1::2]
    found = []
    with pair.theirs.open("rb") as file:
        number = 0
        while text := file.readline(_LINE_BYTES_MAX):
            number += 1
            if line := _DISTANCE.search(text):
                try:
                    found.append(float(line[1]))
                except ValueError as error:
                    raise FileError(f"{pair.theirs}, line {number}: {error}") from error
    if len(found) != count:
        message = f"has {len(found)} lines with '--> DISTANCE', {pair.ours} {count} neighbours"
        raise FileError(f"{pair.theirs} {message}")
    yield _piece(ours, np.sort(np.array(found)), "%.6f", pair.relative)


def _bands(width: int, height: int, levels: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of each kind of coefficients, in the order of Rodinia's files."""
    sizes = [(width, height)]
    for _ in range(levels):
        sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
    yield slice(0, sizes[-1][1]), slice(0, sizes[-1][0])
    for level in range(levels, 0, -1):
        (low_x, low_y), (all_x, all_y) = sizes[level], sizes[level - 1]
        yield slice(0, low_y), slice(low_x, all_x)
        yield slice(low_y, all_y), slice(0, low_x)
        yield slice(low_y, all_y), slice(low_x, all_x)


def _dwt2d(pair: Pair) -> Iterator[Piece]:
    numbers = pair.numbers
    FORMATS["dwt2d"].refuse_beyond(numbers, "the command line")
    width, height = numbers["width"], dwt2d_height(numbers)
    if pair.size() != 6 * width * height:
        message = f"{pair.size()} bytes are no result of {width} x {height} pixels"
        raise FileError(f"{pair.ours}: {message}")
    for colour, suffix in enumerate((".r", ".g", ".b")):
        path = pair.theirs.with_name(pair.theirs.name + suffix)
        if path.stat().st_size != width * height:
            raise FileError(f"{path} has {path.stat().st_size} bytes, not one a pixel")
        plane = _ours(pair, "<i2", colour * width * height, width * height)
        plane = plane.reshape(height, width)
        bands = [plane[band].ravel() for band in _bands(width, height, numbers["levels"])]
        ours = np.clip(np.concatenate(bands).astype(np.int64) + 128, 0, 255)
        with path.open("rb") as file:
            theirs = read_array(file, path, "u1", width * height)
        yield _piece(ours, theirs, "", 0)


def _hybridsort(pair: Pair) -> Iterator[Piece]:
    count = pair.count(4)
    if pair.binary:
        yield from _theirs_binary(pair, "<f4", count, 0)
        return
    with pair.theirs.open("rb") as file:
        words = Words(file, pair.theirs)
        first, last = 0, -np.inf
        for theirs in words.in_pieces(count, "<f8", "number"):
            if theirs[0] < last or (np.diff(theirs) < 0).any():
                raise FileError(
                    f"{pair.theirs} is not in order: Rodinia's program writes there what it has "
                    "read; its main.cu has to write gpu_odata instead of cpu_idata"
                )
            yield _piece(_ours(pair, "<f4", first, len(theirs)), theirs, "%.6f", 0)
            first, last = first + len(theirs), theirs[-1]
        words.expect_end()


def _cfd(pair: Pair) -> Iterator[Piece]:
    count = pair.count(20)
    for name, columns, first in (("density", 1, 0), ("momentum", 3, 1), ("density_energy", 1, 4)):
        path = pair.theirs / name
        with path.open("rb") as file:
            words = Words(file, path)
            elements = words.take_one(1, 6 << 27, "number of elements")
            words.take(1, "<i8", "number of elements with those that fill blocks")
            if elements != count:
                raise FileError(f"{path} has {elements} elements, {pair.ours} {count}")
            done = 0
            for piece in words.in_pieces(columns * count, "<f8", "number", columns):
                rows = piece.reshape(-1, columns)
                for column in range(columns):
                    ours = _ours(pair, "<f4", (first + column) * count + done, len(rows))
                    yield _piece(ours, rows[:, column], _SIX_DIGITS, pair.relative)
                done += len(rows)
            words.expect_end()


#: What goes through two results, and how far rounding may bring values apart, relative to them.
COMPARISONS: dict[str, tuple[Callable[[Pair], Iterator[Piece]], float]] = {
    "bfs": (_bfs, 0),
    "cfd": (_cfd, 1e-4),
    "dwt2d": (_dwt2d, 0),
    "gaussian": (_gaussian, 1e-4),
    "hotspot": (_hotspot, 1e-5),
    "hybridsort": (_hybridsort, 0),
    "kmeans": (_kmeans, 1e-4),
    "lud": (_lud, 1e-4),
    "nn": (_nn, 1e-6),
}
BINARY = ("bfs", "gaussian", "hotspot", "hybridsort", "lud")


@dataclass
class Verdict:
    """How two results compare."""

    values: int = 0
    wrong: int = 0
    first: tuple[int, float, float, float] | None = None  # place, ours, theirs, allowed
    most: float = 0.0  # difference

    @property
    def words(self) -> str:
        """Say it."""
        if self.first is None:
            return f"equal: {self.values} values, the largest difference is {self.most:.3g}"
        place, ours, theirs, allowed = self.first
        return (
            f"differs: value {place} is {ours:.9g} here, {theirs:.9g} there, {allowed:.3g} is "
            f"allowed; {self.wrong} of {self.values} values differ, by up to {self.most:.3g}"
        )


def compare(program: str, pair: Pair) -> Verdict:
    """Compare all values of two results."""
    verdict = Verdict()
    for piece in COMPARISONS[program][0](pair):
        with np.errstate(invalid="ignore"):
            apart = np.abs(piece.ours - piece.theirs)
            same = (piece.ours == piece.theirs) | (np.isnan(piece.ours) & np.isnan(piece.theirs))
            apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
            wrong = np.flatnonzero(~same & ~(apart <= piece.allowed))
        if verdict.first is None and wrong.size:
            at = int(wrong[0])
            values = (float(each[at]) for each in (piece.ours, piece.theirs, piece.allowed))
            verdict.first = (verdict.values + at, *values)  # type: ignore[assignment]
        verdict.values += len(piece.ours)
        verdict.wrong += int(wrong.size)
        verdict.most = max(verdict.most, float(apart.max(initial=0)))
    return verdict
