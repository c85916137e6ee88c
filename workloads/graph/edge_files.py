"""Reads the edges of graphs as others keep them: text, MatrixMarket, EMOGI's binaries, scgraph.

Each reader gives edges in pieces, in the order of the file, and refuses what it does not
understand, with the file and the line.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack
    from pathlib import Path

    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.uint64]
    Piece: TypeAlias = tuple[Numbers, Numbers]  # where edges begin, where they end

VERTICES_MAX = 1 << 31
FORMATS = ("edges", "matrix-market", "bel", "scgraph")
BLOCK_BYTES = 1 << 22  # of text at a time; a line must fit
EDGES_AT_ONCE = 1 << 18
DIGITS_MAX = 19  # as many always fit into 64 bits
COLUMNS_MAX = 4  # two ends, a weight, a time
BANNER = b"%%MatrixMarket"

_IS_WORD = np.ones(256, dtype=bool)
_IS_WORD[list(b" \t\r\n")] = False
_COMMENT = re.compile(rb"(?m)^[ \t]*[#%][^\n]*")
_LITTLE_ENDIAN = np.dtype("<u8")


class ConversionError(Exception):
    """A file that cannot be converted."""


@dataclass(frozen=True)
class EdgeFile:
    """A graph in a file; edges are read when somebody goes through the pieces, once."""

    pieces: Iterator[Piece]
    vertices: int | None  # None: the file does not say
    opened: BinaryIO  # where reading has come to
    size_bytes: int
    paths: tuple[Path, ...]  # of all that is read


@dataclass
class Lines:
    """Where in a text file we are, and what its lines must have."""

    path: Path
    number: int = 1  # of the line to be read next
    columns: int = 0  # of every line; 0: as the first one
    least: int = 0
    most: int = (1 << 64) - 1
    beyond: str = ""  # what to say of a number that is none of these

    def fail(self, line: int, message: str) -> NoReturn:
        """Refuse the file because of a line after the one to be read next."""
        text = f"{self.path}, line {self.number + int(line)}: {message}"
        raise ConversionError(text)


def _open(stack: ExitStack, path: Path) -> tuple[BinaryIO, BinaryIO, int]:
    """Return what to read, unpacked, and the file beneath it with its size."""
    raw = stack.enter_context(path.open("rb"))
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    size = path.stat().st_size
    if not packed:
        return raw, raw, size
    unpacked: Any = stack.enter_context(gzip.GzipFile(fileobj=raw))
    return unpacked, raw, size


def _blocks(file: BinaryIO, lines: Lines) -> Iterator[bytes]:
    """Read whole lines, some at a time; the last one gets its end."""
    rest = b""
    while True:
        try:
            read = file.read(BLOCK_BYTES)
        except (EOFError, zlib.error) as error:
            message = f"{lines.path} is damaged: {error}"
            raise ConversionError(message) from error
        if not read:
            break
        text = rest + read
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        if len(rest) > BLOCK_BYTES:
            lines.fail(text.count(b"\n"), "longer than any line of an edge list")
        if end:
            yield text[:end]
            lines.number += text.count(b"\n", 0, end)
    if rest:
        yield rest + b"\n"


def _parse(text: NDArray[np.uint8], begins: Any, ends: Any, rows: Any, lines: Lines) -> Numbers:
    """Return the numbers that stand in some places, two in each row."""
    lengths = ends - begins

    def fail(wrong: NDArray[np.bool_], message: str) -> NoReturn:
        row, column = np.argwhere(wrong)[0]
        word = bytes(text[begins[row, column] : ends[row, column]][:40])
        lines.fail(rows[row], f"{word.decode(errors='backslashreplace')!r} {message}")

    numbers = np.zeros(begins.shape, dtype=np.uint64)
    strange = np.zeros(begins.shape, dtype=bool)
    for place in range(min(int(lengths.max()), DIGITS_MAX)):
        inside = place < lengths
        digits = text[np.minimum(begins + place, len(text) - 1)] - np.uint8(ord("0"))
        strange |= inside & (digits > 9)
        numbers = np.where(inside, numbers * np.uint64(10) + digits, numbers)
    if strange.any():
        fail(strange, "is no number of a vertex")
    if lengths.max() > DIGITS_MAX:
        fail(lengths > DIGITS_MAX, "is too large for a number of a vertex")
    beyond = (numbers < np.uint64(lines.least)) | (numbers > np.uint64(lines.most))
    if beyond.any():
        fail(beyond, lines.beyond)
    return numbers


def _pairs(block: bytes, lines: Lines) -> Numbers:
    """Return the first two numbers of each line that has words, a row each, and their lines."""
    text = np.frombuffer(b"\n" + block, dtype=np.uint8)
    is_word = _IS_WORD[text]
    changes = np.flatnonzero(is_word[1:] != is_word[:-1]) + 1
    begins, ends = changes[0::2], changes[1::2]
    if not len(begins):
        return np.empty((0, 2), dtype=np.uint64)
    line_of_word = np.searchsorted(np.flatnonzero(text == ord("\n")), begins) - 1
    firsts = np.flatnonzero(np.diff(line_of_word, prepend=-1))
    counts = np.diff(firsts, append=len(begins))
    rows = line_of_word[firsts]
    if lines.columns == 0:
        lines.columns = int(counts[0])
        if not 2 <= lines.columns <= COLUMNS_MAX:
            lines.fail(rows[0], f"{lines.columns} words are no edge")
    if (wrong := counts != lines.columns).any():
        row = int(wrong.argmax())
        lines.fail(rows[row], f"{counts[row]} words, where others have {lines.columns}")
    words = np.stack([firsts, firsts + 1], axis=1)
    return _parse(text, begins[words], ends[words], rows, lines)


def edge_list(stack: ExitStack, path: Path, *, keep_numbers: bool) -> EdgeFile:
    """Open a text of edges, as SNAP's: two numbers a line, comments with # or %."""
    file, opened, size = _open(stack, path)
    lines = Lines(path)
    if keep_numbers:
        lines.most = VERTICES_MAX - 1
        lines.beyond = f"is more than {lines.most}: numbers as large can only be made dense"

    def pieces() -> Iterator[Piece]:
        for block in _blocks(file, lines):
            if b"#" in block or b"%" in block:
                numbers = _pairs(_COMMENT.sub(b"", block), lines)
            else:
                numbers = _pairs(block, lines)
            yield numbers[:, 0], numbers[:, 1]

    return EdgeFile(pieces(), None, opened, size, (path,))


def _header_of_matrix(file: BinaryIO, lines: Lines) -> tuple[bool, int, int]:
    """Return whether a matrix is symmetric, its rows, its entries; the file stands behind that."""
    banner = file.readline(1 << 10)
    words = banner.decode(errors="replace").lower().split()
    if not banner.startswith(BANNER) or len(words) != 5 or words[1:3] != ["matrix", "coordinate"]:
        lines.fail(0, f"no '{BANNER.decode()} matrix coordinate FIELD SYMMETRY'")
    field, symmetry = words[3:]
    if field not in {"pattern", "real", "integer"}:
        lines.fail(0, f"a matrix of pattern, real or integer is wanted, not {field}")
    if symmetry not in {"general", "symmetric"}:
        lines.fail(0, f"a general or symmetric matrix is wanted, not {symmetry}")
    lines.columns = 2 if field == "pattern" else 3
    while True:
        lines.number += 1
        line = file.readline(1 << 16)
        if not line.endswith(b"\n"):
            lines.fail(0, "the matrix ends before its size")
        if line.strip() and not line.startswith(b"%"):
            break
    words = line.decode(errors="replace").split()
    if len(words) != 3 or not all(word.isascii() and word.isdigit() for word in words):
        lines.fail(0, "no size of a matrix: three numbers")
    rows, columns, entries = (int(word) for word in words)
    if rows != columns or not 1 <= rows <= VERTICES_MAX:
        lines.fail(0, f"a matrix of {rows} x {columns} is no graph of 1 to {VERTICES_MAX} vertices")
    lines.number += 1
    return symmetry == "symmetric", rows, entries


def matrix_market(stack: ExitStack, path: Path) -> EdgeFile:
    """Open a sparse matrix: an entry in row i and column j is an edge from i to j."""
    file, opened, size = _open(stack, path)
    lines = Lines(path)
    try:
        symmetric, vertices, entries = _header_of_matrix(file, lines)
    except (EOFError, zlib.error) as error:
        message = f"{path} is damaged: {error}"
        raise ConversionError(message) from error
    lines.least, lines.most = 1, vertices
    lines.beyond = f"is no row or column: they go from 1 to {vertices}"

    def pieces() -> Iterator[Piece]:
        found = 0
        for block in _blocks(file, lines):
            numbers = _pairs(block, lines)
            found += len(numbers)
            rows, columns = numbers[:, 0] - np.uint64(1), numbers[:, 1] - np.uint64(1)
            yield rows, columns
            if symmetric:
                if (above := columns > rows).any():
                    row = int(above.argmax())
                    message = f"entry {found - len(numbers) + row + 1} stands above the diagonal"
                    raise ConversionError(f"{path}: {message} of a symmetric matrix")
                mirrored = rows != columns
                yield columns[mirrored], rows[mirrored]
        if found != entries:
            message = f"{path} has {found} entries, and says {entries}"
            raise ConversionError(message)

    return EdgeFile(pieces(), vertices, opened, size, (path,))


def _open_binary(stack: ExitStack, path: Path) -> tuple[BinaryIO, int]:
    """Open one of EMOGI's files: how many numbers, something to ignore, the numbers."""
    file = stack.enter_context(path.open("rb"))
    header = file.read(16)
    count = int.from_bytes(header[:8], "little")
    size = path.stat().st_size
    if len(header) < 16 or size != 16 + 8 * count:
        message = f"{path} has {size} bytes, not the 16 and 8 for each of the {count} it names"
        raise ConversionError(message)
    return file, count


def _read_numbers(file: BinaryIO, path: Path, count: int) -> Numbers:
    read = file.read(8 * count)
    if len(read) != 8 * count:
        message = f"{path} became shorter while it was read"
        raise ConversionError(message)
    return np.frombuffer(read, dtype=_LITTLE_ENDIAN).astype(np.uint64, copy=False)


def emogi(stack: ExitStack, path: Path) -> EdgeFile:
    """Open NAME.bel.col and NAME.bel.dst of EMOGI and BaM: offsets and neighbours, 64 bits each."""
    name = path.with_suffix("") if path.suffix in {".col", ".dst"} else path
    offsets_path, ends_path = (name.with_name(name.name + each) for each in (".col", ".dst"))
    file, count = _open_binary(stack, offsets_path)
    if not 2 <= count <= VERTICES_MAX + 1:
        message = f"{offsets_path} has {count} offsets: one more than vertices, 2 at least"
        raise ConversionError(message)
    offsets = _read_numbers(file, offsets_path, count)
    file, edges = _open_binary(stack, ends_path)
    if offsets[0] != 0 or offsets[-1] != edges or (offsets[1:] < offsets[:-1]).any():
        message = f"{offsets_path} is damaged: offsets do not go from 0 up to {edges} edges"
        raise ConversionError(message)
    vertices = count - 1

    def pieces() -> Iterator[Piece]:
        for begin in range(0, edges, EDGES_AT_ONCE):
            end = min(edges, begin + EDGES_AT_ONCE)
            ends = _read_numbers(file, ends_path, end - begin)
            if (wrong := ends >= vertices).any():
                place = int(wrong.argmax())
                message = f"neighbour {begin + place} is {ends[place]}, of {vertices} vertices"
                raise ConversionError(f"{ends_path}: {message}")
            first = int(np.searchsorted(offsets, np.uint64(begin), side="right")) - 1
            last = int(np.searchsorted(offsets, np.uint64(end), side="left"))
            parts = np.clip(offsets[first : last + 1], begin, end)
            yield (
                np.repeat(np.arange(first, last, dtype=np.uint64), np.diff(parts).astype(np.int64)),
                ends,
            )

    return EdgeFile(pieces(), vertices, file, ends_path.stat().st_size, (offsets_path, ends_path))


def scgraph(stack: ExitStack, path: Path) -> EdgeFile:
    """Open a module of scgraph-data: `graph=[{neighbour: length, ...}, ...]`. Nothing is run."""
    file = stack.enter_context(path.open("rb"))
    lines = Lines(path)
    body = b""
    for line in file:
        if line.startswith((b"graph=", b"graph =")):
            body = line.partition(b"=")[2].strip()
            break
        lines.number += 1
    else:
        message = f"{path} has no line 'graph=[{{...}}, ...]'"
        raise ConversionError(message)
    if not (body.startswith(b"[{") and body.endswith(b"}]")):
        lines.fail(0, "no list of neighbours by vertex")
    lists = body[2:-2].split(b"}, {")
    vertices = len(lists)

    def neighbours(vertex: int) -> list[int]:
        found = []
        for part in lists[vertex].split(b", ") if lists[vertex] else []:
            word, _, length = part.partition(b": ")
            try:
                float(length)
            except ValueError:
                word = b""
            if not word.isdigit() or int(word) >= vertices:
                lines.fail(0, f"{part[:40]!r} in the list of vertex {vertex} of {vertices}")
            found.append(int(word))
        return found

    def pieces() -> Iterator[Piece]:
        step = EDGES_AT_ONCE // 4
        for first in range(0, vertices, step):
            part = [neighbours(vertex) for vertex in range(first, min(vertices, first + step))]
            owners = np.arange(first, first + len(part), dtype=np.uint64)
            begins = np.repeat(owners, [len(each) for each in part])
            yield begins, np.array([end for each in part for end in each], dtype=np.uint64)

    return EdgeFile(pieces(), vertices, file, path.stat().st_size, (path,))


def format_of(path: Path) -> str:
    """Return the format of a file by its name or its beginning."""
    if path.name.endswith((".bel", ".bel.col", ".bel.dst")):
        return "bel"
    if path.suffix == ".py":
        return "scgraph"
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return "matrix-market" if file.read(len(BANNER)) == BANNER else "edges"
        try:
            begin = gzip.GzipFile(fileobj=file).read(len(BANNER))
        except (EOFError, zlib.error) as error:
            message = f"{path} is damaged: {error}"
            raise ConversionError(message) from error
        return "matrix-market" if begin == BANNER else "edges"


def open_edges(stack: ExitStack, path: Path, kind: str, *, keep_numbers: bool) -> EdgeFile:
    """Open a graph of one of the formats; the stack closes it."""
    if kind == "edges":
        return edge_list(stack, path, keep_numbers=keep_numbers)
    return {"matrix-market": matrix_market, "bel": emogi, "scgraph": scgraph}[kind](stack, path)
