"""The papers' programs' files, for programs in Python: their numbers, arrays and where they lie.

files.md says it in words. A test compares names and defaults with the programs'.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PAGE = 4096
AT_ONCE = 1 << 18  # elements of an array in memory
_MAGIC = b"hippoin1"
_INT_MAX = (1 << 31) - 1
_UNSIGNED_MAX = (1 << 32) - 1

Numbers = dict[str, int]


class FileError(Exception):
    """A file that is not what it should be."""


@dataclass(frozen=True)
class Number:
    """A number of the header: what `generate` takes it for, and its bounds."""

    name: str
    default: int
    least: int
    most: int


@dataclass(frozen=True)
class Array:
    """An array of an input: its elements' type and how many there are."""

    dtype: str
    count: int


@dataclass(frozen=True)
class Format:
    """What the files of a program hold."""

    program: str
    numbers: tuple[Number, ...]
    arrays: Callable[[Numbers], list[Array]]
    has_header: bool = True

    def defaults(self) -> Numbers:
        """Return the numbers that `generate` has."""
        return {each.name: each.default for each in self.numbers}

    def refuse_beyond(self, numbers: Numbers, where: str) -> None:
        """Raise FileError for a number out of its bounds, and for those that do not go together."""
        for each in self.numbers:
            if not each.least <= numbers[each.name] <= each.most:
                message = f"{each.name} is from {each.least} to {each.most}"
                raise FileError(f"{where}: {message}, not {numbers[each.name]}")
        if any(each.count > _UNSIGNED_MAX * 64 for each in self.arrays(numbers)):
            raise FileError(f"{where}: more than any such file has")

    def places(self, numbers: Numbers) -> list[int]:
        """Return the offset of each array, and the size of the file, in bytes."""
        places = []
        end = PAGE if self.has_header else 0
        for each in self.arrays(numbers):
            places.append(-(-end // PAGE) * PAGE)
            end = places[-1] + each.count * np.dtype(each.dtype).itemsize
        return [*places, end]


def bfs_edges(numbers: Numbers) -> int:
    """Return how many edges the graph has."""
    return numbers["edges"] or numbers["nodes"] * numbers["degree"]


def cfd_elements(numbers: Numbers) -> int:
    """Return how many elements the mesh has."""
    return numbers["elements"] or 6 * numbers["cubes"] ** 3


def dwt2d_height(numbers: Numbers) -> int:
    """Return how many rows the image has."""
    return numbers["height"] or numbers["width"]


_CFD_ARRAYS = (("<f4", 1), ("<i4", 4), ("<f4", 12))
_FORMATS = (
    Format(
        "bfs",
        (
            Number("nodes", 1 << 20, 1, _INT_MAX),
            Number("degree", 6, 1, 65536),
            Number("source", 0, 0, _INT_MAX),
            Number("edges", 0, 0, _UNSIGNED_MAX),
        ),
        lambda n: [Array("<u4", n["nodes"] + 1), Array("<u4", bfs_edges(n))],
    ),
    Format(
        "cfd",
        (
            Number("cubes", 32, 1, 512),
            Number("iterations", 10, 1, 100000),
            Number("elements", 0, 0, 6 << 27),
        ),
        lambda n: [Array(dtype, k * cfd_elements(n)) for dtype, k in _CFD_ARRAYS],
    ),
    Format(
        "dwt2d",
        (
            Number("width", 1024, 1, 65536),
            Number("height", 0, 0, 65536),
            Number("levels", 3, 1, 5),
            Number("rodinia", 0, 0, 1),
        ),
        lambda n: [Array("u1", 3 * n["width"] * dwt2d_height(n))],
    ),
    Format(
        "gaussian",
        (Number("rows", 1024, 1, 65536),),
        lambda n: [Array("<f4", n["rows"] ** 2), Array("<f4", n["rows"])],
    ),
    Format(
        "hotspot",
        (
            Number("rows", 1024, 1, 65536),
            Number("steps", 60, 1, 10000),
            Number("chip", 0, 0, 1000),
            Number("ambient", 0, 0, 1000),
            Number("divisor", 0, 0, 1000000),
        ),
        lambda n: [Array("<f4", n["rows"] ** 2), Array("<f4", n["rows"] ** 2)],
    ),
    Format(
        "hybridsort",
        (Number("keys", 1 << 20, 1, _UNSIGNED_MAX),),
        lambda n: [Array("<f4", n["keys"])],
    ),
    Format(
        "kmeans",
        (
            Number("points", 1 << 20, 1, 1 << 31),
            Number("features", 34, 1, 64),
            Number("clusters", 5, 1, 16),
            Number("iterations", 20, 1, 100000),
            Number("first", 0, 0, 1),
        ),
        lambda n: [Array("<f4", n["points"] * n["features"])],
    ),
    Format(
        "lud",
        (Number("rows", 1024, 1, 46340),),
        lambda n: [Array("<f4", n["rows"] ** 2)],
        has_header=False,
    ),
    Format(
        "nn",
        (
            Number("records", 1 << 20, 1, _UNSIGNED_MAX),
            Number("neighbours", 10, 1, 256),
            Number("latitude", 30, 0, 90),
            Number("longitude", 90, 0, 360),
        ),
        lambda n: [Array("<f4", 2 * n["records"])],
    ),
)
FORMATS = {each.program: each for each in _FORMATS}


class Input:
    """An input of one of the programs, open for reading; its size is what its numbers say."""

    def __init__(self, file: BinaryIO, path: Path, format_: Format) -> None:
        self.path = path
        self.format = format_
        self._file = file
        self.size_bytes = os.fstat(file.fileno()).st_size
        self.numbers = self._read_numbers()
        format_.refuse_beyond(self.numbers, str(path))
        self.arrays = format_.arrays(self.numbers)
        *self.places, size = format_.places(self.numbers)
        if size != self.size_bytes:
            message = f"{path} is damaged: it has {self.size_bytes} bytes, its header says {size}"
            raise FileError(message)

    def _read_numbers(self) -> Numbers:
        if not self.format.has_header:
            rows = round((self.size_bytes / 4) ** 0.5)
            if rows == 0 or 4 * rows * rows != self.size_bytes:
                message = f"no square matrix of float32 has {self.size_bytes} bytes"
                raise FileError(f"{self.path} is no input of {self.format.program}: {message}")
            return {"rows": rows}
        header = self._file.read(PAGE)
        name = self.format.program.encode().ljust(16, b"\0")
        if len(header) < PAGE or header[:24] != _MAGIC + name:
            raise FileError(f"{self.path} is no input of {self.format.program}")
        values = np.frombuffer(header, dtype="<u8", count=len(self.format.numbers), offset=24)
        return {
            each.name: int(value) for each, value in zip(self.format.numbers, values, strict=True)
        }

    def elements(self, index: int, first: int, count: int) -> Any:
        """Return elements of an array."""
        array = self.arrays[index]
        self._file.seek(self.places[index] + first * np.dtype(array.dtype).itemsize)
        return read_array(self._file, self.path, array.dtype, count)

    def pieces(self, index: int, multiple: int = 1) -> Iterator[tuple[int, Any]]:
        """Go through an array: where a piece begins, and its elements, a multiple of so many."""
        count = self.arrays[index].count
        step = max(1, AT_ONCE // multiple) * multiple
        for first in range(0, count, step):
            yield first, self.elements(index, first, min(step, count - first))


def read_array(file: BinaryIO, path: Path, dtype: str, count: int) -> Any:
    """Read exactly so many elements from where the file is."""
    place = file.tell()
    read = file.read(count * np.dtype(dtype).itemsize)
    if len(read) != count * np.dtype(dtype).itemsize:
        raise FileError(f"{path} ends at byte {place + len(read)}, within an array")
    return np.frombuffer(read, dtype=dtype)


class Output:
    """An input that is being made, array by array, from any place of each."""

    def __init__(self, file: BinaryIO, format_: Format) -> None:
        self._file = file
        self._format = format_

    def put(self, place: int, values: Any) -> None:
        """Write elements, of the file's own type, at an offset."""
        self._file.seek(place)
        self._file.write(np.ascontiguousarray(values).data)

    def finish(self, numbers: Numbers, where: str) -> None:
        """Write the header, and give the file its size."""
        self._format.refuse_beyond(numbers, where)
        self._file.truncate(self._format.places(numbers)[-1])
        if self._format.has_header:
            self._file.seek(0)
            header = _MAGIC + self._format.program.encode().ljust(16, b"\0")
            values = [numbers[each.name].to_bytes(8, "little") for each in self._format.numbers]
            self._file.write((header + b"".join(values)).ljust(PAGE, b"\0"))
