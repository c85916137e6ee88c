"""Inputs of the papers' programs to and from what Rodinia's programs of that name read.

A text or binary of Rodinia's goes through memory in pieces; so does an input of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.papers.paper_files import (
    AT_ONCE,
    FORMATS,
    PAGE,
    FileError,
    Input,
    Numbers,
    Output,
    cfd_elements,
    dwt2d_height,
)
from workloads.papers.rodinia_words import Words, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_CALL_BYTES_MAX = 0x7FFFF000  # that read() gives at once: Rodinia asks no second time
_LINE_BYTES_MAX = 1023  # of a point, in Rodinia's buffer
_CFD_NUMBERS = 17  # of an element
_PLACE_BYTES = 49  # of a record of nn
_TENTH_MOST = (99.9, 999.9)


@dataclass
class Export:
    """What was written for one of Rodinia's programs, and how to call it."""

    command: str
    notes: list[str] = field(default_factory=list)


def _write_numbers(path: Path, before: str, pieces: Iterator[Any], layout: str = "%.9g\n") -> None:
    """Write numbers of rows or arrays, each by the layout."""
    with path.open("w", encoding="ascii") as file:
        file.write(before)
        for piece in pieces:
            rows = piece.tolist()
            if piece.ndim == 1:
                file.write("".join([layout % value for value in rows]))
            else:
                file.write("".join([layout % tuple(row) for row in rows]))


def _matrix_layout(columns: int) -> str:
    return " ".join(["%.9g"] * columns) + "\n"


def _rows(given: Input, index: int, columns: int) -> Iterator[Any]:
    for _, piece in given.pieces(index, columns):
        yield piece.reshape(-1, columns)


def _hotspot_to(given: Input, folder: Path, _rounds: bool) -> Export:
    numbers = given.numbers
    for index, name in enumerate(("temp", "power")):
        _write_numbers(folder / name, "", (piece for _, piece in given.pieces(index)))
    rows = numbers["rows"]
    export = Export(f"hotspot {rows} 2 {numbers['steps']} temp power output.out")
    same_cells = numbers["chip"] == 16 or (numbers["chip"] == 0 and rows == 1024)
    if not same_cells or numbers["ambient"] != 80 or numbers["divisor"] > 1:
        export.notes.append(
            "Rodinia's CUDA program has a chip of 16 mm and air of 80 K: results will differ "
            "without --chip 16 --ambient 80 (its OpenMP program: and --divisor 1000)"
        )
    return export


def _bfs_lists(given: Input) -> Iterator[Any]:
    """Yield where nodes' edges begin and how many they are, checked."""
    nodes, edges = given.numbers["nodes"], given.arrays[1].count
    for first in range(0, nodes, AT_ONCE):
        offsets = given.elements(0, first, min(AT_ONCE, nodes - first) + 1).astype(np.int64)
        wrong = np.flatnonzero((offsets[1:] < offsets[:-1]) | (offsets[1:] > edges))
        if len(wrong):
            place = given.places[0] + 4 * (first + int(wrong[0]))
            raise FileError(f"{given.path} is damaged at byte {place}: a list outside the edges")
        yield np.stack([offsets[:-1], np.diff(offsets)], axis=1)


def _bfs_to(given: Input, folder: Path, _rounds: bool) -> Export:
    numbers = given.numbers
    path = folder / "graph.txt"
    _write_numbers(path, f"{numbers['nodes']}\n", _bfs_lists(given), "%d %d\n")
    with path.open("a", encoding="ascii") as file:
        file.write(f"\n{numbers['source']}\n\n{given.arrays[1].count}\n")
        for first, targets in given.pieces(1):
            if (wrong := np.flatnonzero(targets >= numbers["nodes"])).size:
                place = given.places[1] + 4 * (first + int(wrong[0]))
                raise FileError(f"{given.path} is damaged at byte {place}: no node of the graph")
            file.write("".join([f"{target} 1\n" for target in targets.tolist()]))
    export = Export("bfs graph.txt, which writes result.txt")
    if numbers["source"] != 0:
        export.notes.append("Rodinia's program begins at node 0 whatever the source is")
    return export


def _gaussian_to(given: Input, folder: Path, _rounds: bool) -> Export:
    rows = given.numbers["rows"]
    path = folder / "matrix.txt"
    _write_numbers(path, f"{rows}\n\n", _rows(given, 0, rows), _matrix_layout(rows))
    with path.open("a", encoding="ascii") as file:
        file.write("\n")
        for _, piece in given.pieces(1):
            file.write("".join([f"{value:.9g} " for value in piece.tolist()]))
        file.write("\n")
    return Export("gaussian -f matrix.txt >printed")


def _lud_to(given: Input, folder: Path, _rounds: bool) -> Export:
    rows = given.numbers["rows"]
    _write_numbers(folder / "matrix.dat", f"{rows}\n", _rows(given, 0, rows), _matrix_layout(rows))
    export = Export("lud -v -i matrix.dat >printed")
    export.notes.append("Rodinia's program prints no result: see files.md")
    if rows % 16:
        export.notes.append("Rodinia's program wants a multiple of 16 rows")
    return export


def _kmeans_to(given: Input, folder: Path, _rounds: bool) -> Export:
    numbers = given.numbers
    size = 4 * given.arrays[0].count
    if size > _CALL_BYTES_MAX:
        message = f"Rodinia's program reads {_CALL_BYTES_MAX} bytes of points at most, not {size}"
        raise FileError(f"{given.path}: {message}")
    with (folder / "points.bin").open("wb") as file:
        file.write(np.array([numbers["points"], numbers["features"]], dtype="<i4").data)
        for _, piece in given.pieces(0):
            file.write(piece.data)
    clusters = numbers["clusters"]
    export = Export(f"kmeans -b -i points.bin -m {clusters} -n {clusters} -o >printed")
    if numbers["first"] != 1 or numbers["iterations"] != 501:
        export.notes.append(
            "Rodinia's program begins with the first points and makes up to 501 iterations: "
            "results will differ without --first 1 --iterations 501"
        )
    if 2 * clusters > numbers["points"] + 1:
        export.notes.append("of so few points Rodinia's program takes some twice as first centres")
    return export


def _nn_to(given: Input, folder: Path, rounds: bool) -> Export:
    with (folder / "places.db").open("w", encoding="ascii") as file:
        for first, piece in given.pieces(0, 2):
            places = piece.reshape(-1, 2)
            wide = places.astype(np.float64)
            texts = np.round(wide, 1)
            fits = (texts >= -9.95) & (texts < np.array(_TENTH_MOST) + 0.05)
            if not rounds:
                fits &= texts.astype("<f4") == places
            if not fits.all():
                record, column = (int(each) for each in np.argwhere(~fits)[0])
                what = "tenths of a degree of 4 or 5 characters"
                value = f"{places[record, column]:.9g} is none: --round makes the nearest of it"
                message = f"record {first // 2 + record}: Rodinia's files have {what}; {value}"
                raise FileError(f"{given.path}, {message}")
            file.write(
                "".join(
                    [
                        f"{first // 2 + i:<26d} {north:5.1f} {east:5.1f} {0:4d} {0:4d}\n"
                        for i, (north, east) in enumerate(wide.tolist())
                    ]
                )
            )
    (folder / "filelist.txt").write_text("places.db\n")
    numbers = given.numbers
    words = f"-lat {numbers['latitude']} -lng {numbers['longitude']}"
    export = Export(f"nn filelist.txt -r {numbers['neighbours']} {words} >printed")
    if rounds:
        export.notes.append("rounded: run ours with what from-rodinia makes of places.db")
    return export


def _cfd_rows(given: Input) -> Iterator[Any]:
    count = cfd_elements(given.numbers)
    for first in range(0, count, AT_ONCE // 16):
        some = min(AT_ONCE // 16, count - first)
        rows = np.empty((some, _CFD_NUMBERS))
        rows[:, 0] = given.elements(0, first, some)
        for face in range(4):
            neighbours = given.elements(1, face * count + first, some)
            if (wrong := np.flatnonzero((neighbours < -2) | (neighbours >= count))).size:
                place = given.places[1] + 4 * (face * count + first + int(wrong[0]))
                raise FileError(f"{given.path} is damaged at byte {place}: no such neighbour")
            rows[:, 1 + 4 * face] = np.where(neighbours == -2, -1, neighbours + 1)
            for axis in range(3):
                at = (3 * face + axis) * count + first
                rows[:, 2 + 4 * face + axis] = given.elements(2, at, some)
        yield rows


def _cfd_to(given: Input, folder: Path, _rounds: bool) -> Export:
    layout = "%.9g" + " %d %.9g %.9g %.9g" * 4 + "\n"
    count = cfd_elements(given.numbers)
    _write_numbers(folder / "mesh.domn", f"{count}\n", _cfd_rows(given), layout)
    export = Export("euler3d mesh.domn, which writes density, momentum and density_energy")
    export.notes.append("Rodinia's program computes by another scheme, 2000 iterations: files.md")
    return export


def _dwt2d_to(given: Input, folder: Path, _rounds: bool) -> Export:
    numbers = given.numbers
    with (folder / "image.rgb").open("wb") as file:
        for _, piece in given.pieces(0):
            file.write(piece.data)
    size = f"{numbers['width']}x{dwt2d_height(numbers)}"
    export = Export(f"dwt2d image.rgb -d {size} -f -5 -l {numbers['levels']}")
    export.notes.append("Rodinia's program looks for image.rgb in ../../data/dwt2d/")
    if numbers["rodinia"] != 1:
        export.notes.append("it rounds another way: results will differ without --rodinia 1")
    return export


def _hybridsort_to(given: Input, folder: Path, _rounds: bool) -> Export:
    for first, piece in given.pieces(0):
        if (wrong := np.flatnonzero(~np.isfinite(piece))).size:
            message = f"key {first + int(wrong[0])} is not finite, which Rodinia cannot sort"
            raise FileError(f"{given.path}: {message}")
    _write_numbers(folder / "floats.txt", "", (piece for _, piece in given.pieces(0)))
    export = Export("hybridsort floats.txt, which writes hybridoutput.txt")
    export.notes.append("Rodinia's program writes there what it has read, not what it has sorted")
    return export


def _one(paths: list[Path]) -> Path:
    if len(paths) != 1:
        raise FileError(f"one file is wanted, not {len(paths)}")
    return paths[0]


def _hotspot_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    if len(paths) != 2:
        raise FileError(f"two files are wanted, temperatures and powers, not {len(paths)}")
    place, counts = PAGE, []
    for path in paths:
        count = 0
        with path.open("rb") as file:
            for piece in Words(file, path, one_a_line=True).to_the_end("<f4", "number"):
                output.put(place + 4 * count, piece)
                count += len(piece)
        rows = round(count**0.5)
        if count == 0 or rows * rows != count:
            raise FileError(f"{path} has {count} numbers: no square of cells")
        counts.append(count)
        place = FORMATS["hotspot"].places({**numbers, "rows": rows})[1]
    if counts[0] != counts[1]:
        message = f"{paths[0]} has {counts[0]} numbers, {paths[1]} {counts[1]}"
        raise FileError(message)
    numbers["rows"] = round(counts[0] ** 0.5)


class _Lists:
    """The lists of a graph of Rodinia's: where each begins and how long it is."""

    def __init__(self, words: Words, nodes: int) -> None:
        pieces = list(words.in_pieces(2 * nodes, "<i4", "beginning or length of a list", 2))
        both = np.concatenate(pieces).reshape(-1, 2).astype(np.int64)
        self.begins, self.lengths = both[:, 0], both[:, 1]

    def check(self, words: Words, edges: int) -> int:
        """Refuse lists outside the edges; return how long they are together."""
        wrong = (self.begins < 0) | (self.lengths < 0) | (self.begins + self.lengths > edges)
        if wrong.any():
            node = int(wrong.argmax())
            words.fail(
                f"node {node} has {self.lengths[node]} edges from {self.begins[node]} on, "
                f"of {edges} that there are"
            )
        return int(self.lengths.sum())

    def offsets(self) -> Any:
        """Return where lists begin when each follows the one before, and their end."""
        offsets = np.zeros(len(self.lengths) + 1, dtype=np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        return offsets

    def in_order(self, edges: Any) -> Iterator[Any]:
        """Yield the edges list by list."""
        offsets = self.offsets()
        first = 0
        while first < len(self.lengths):
            last = int(np.searchsorted(offsets, offsets[first] + AT_ONCE, side="right")) - 1
            last = max(first + 1, min(last, len(self.lengths)))
            lengths = self.lengths[first:last]
            shift = np.repeat(self.begins[first:last] - offsets[first:last], lengths)
            yield edges[shift + np.arange(offsets[first], offsets[last])]
            first = last


def _bfs_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    path = _one(paths)
    with path.open("rb") as file:
        words = Words(file, path)
        nodes = words.take_one(1, (1 << 31) - 1, "number of nodes")
        lists = _Lists(words, nodes)
        words.take_one(0, nodes - 1, "source")  # which Rodinia's program does not heed
        edges = words.take_one(1, (1 << 31) - 1, "number of edges")
        used = lists.check(words, edges)
        offsets = lists.offsets()
        is_in_order = used == edges and (offsets[:-1] == lists.begins).all()
        numbers.update(nodes=nodes, degree=1, source=0, edges=used)
        FORMATS["bfs"].refuse_beyond(numbers, str(path))
        if used == 0:
            raise FileError(f"{path}: no node has an edge")
        place = FORMATS["bfs"].places(numbers)[1]
        kept = []
        for piece in words.in_pieces(2 * edges, "<i4", "node or cost of an edge", 2):
            targets = piece[0::2]
            if (wrong := np.flatnonzero((targets < 0) | (targets >= nodes))).size:
                message = f"an edge to node {targets[wrong[0]]}, of {nodes}"
                words.fail(f"{message}, here or shortly before")
            if is_in_order:
                output.put(place, targets.astype("<u4"))
                place += 4 * len(targets)
            else:
                kept.append(targets.astype("<u4"))
        words.expect_end()
        if kept:
            for targets in lists.in_order(np.concatenate(kept)):
                output.put(place, targets)
                place += 4 * len(targets)
    output.put(PAGE, offsets.astype("<u4"))


def _gaussian_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    path = _one(paths)
    with path.open("rb") as file:
        words = Words(file, path)
        rows = words.take_one(1, 65536, "number of rows")
        numbers["rows"] = rows
        for index, place in enumerate(FORMATS["gaussian"].places(numbers)[:2]):
            at = place
            for piece in words.in_pieces(rows * rows if index == 0 else rows, "<f4", "number"):
                output.put(at, piece)
                at += 4 * len(piece)
        for _ in words.to_the_end("<f4", "number of a known solution"):
            pass


def _lud_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    path = _one(paths)
    with path.open("rb") as file:
        words = Words(file, path)
        rows = words.take_one(1, 46340, "number of rows")
        at = 0
        for piece in words.in_pieces(rows * rows, "<f4", "number"):
            output.put(at, piece)
            at += 4 * len(piece)
        words.expect_end()
    numbers["rows"] = rows


def _kmeans_binary(path: Path) -> tuple[int, int] | None:
    """Return points and features of a binary of Rodinia's; None when it is a text."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = np.frombuffer(file.read(8), dtype="<u4") if size >= 8 else np.empty(0)
    if len(header) == 2 and size == 8 + 4 * int(header[0]) * int(header[1]):
        return int(header[0]), int(header[1])
    return None


def _lines(path: Path) -> Iterator[list[tuple[int, list[bytes]]]]:
    """Yield some lines of a text at a time: their numbers, and their words but for the first."""
    some: list[tuple[int, list[bytes]]] = []
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > _LINE_BYTES_MAX:
                message = f"Rodinia reads {_LINE_BYTES_MAX} bytes of a line"
                raise FileError(f"{path}, line {number}: {message}")
            if split := line.split(None, 1):
                some.append((number, b"".join(split[1:]).replace(b",", b" ").split()))
            if len(some) == AT_ONCE // 64:
                yield some
                some = []
    if some:
        yield some


def _points(path: Path) -> Iterator[Any]:
    """Yield the points of a text: a line each, of which the first word counts for nothing."""
    features = 0
    for lines in _lines(path):
        features = features or len(lines[0][1])
        for number, words in lines:
            if len(words) != features or not words:
                message = f"{len(words)} numbers after the first word, others have {features}"
                raise FileError(f"{path}, line {number}: {message}")
        values = parse([word for _, words in lines for word in words], "<f4")
        if values is None:
            number = next(at for at, words in lines if parse(words, "<f4") is None)
            raise FileError(f"{path}, line {number}: not all words but the first are numbers")
        yield values.reshape(-1, features)


def _kmeans_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    path = _one(paths)
    shape = _kmeans_binary(path)
    place = PAGE
    if shape is not None:
        numbers["points"], numbers["features"] = shape
        FORMATS["kmeans"].refuse_beyond(numbers, str(path))
        with path.open("rb") as file:
            file.seek(8)
            while piece := file.read(4 * AT_ONCE):
                output.put(place, np.frombuffer(piece, dtype="u1"))
                place += len(piece)
        return
    count, features = 0, 0
    for points in _points(path):
        output.put(place, points)
        place += points.nbytes
        count, features = count + len(points), points.shape[1]
    if count == 0:
        raise FileError(f"{path} has no points")
    numbers["points"], numbers["features"] = count, features


def _nn_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    place, records = PAGE, 0
    for path in paths:
        size = path.stat().st_size
        if size == 0 or size % _PLACE_BYTES:
            message = f"{size} bytes are no records of {_PLACE_BYTES}"
            raise FileError(f"{path}: {message}")
        with path.open("rb") as file:
            done = 0
            while piece := file.read(_PLACE_BYTES * (AT_ONCE // 8)):
                text = np.frombuffer(piece, dtype="u1").reshape(-1, _PLACE_BYTES)
                words = [
                    bytes(row[first : first + 5]).strip() for row in text for first in (28, 33)
                ]
                values = parse(words, "<f4") if (text[:, -1] == 10).all() else None
                if values is None:
                    fits = [
                        row[-1] == 10 and parse(words[2 * i : 2 * i + 2], "<f4") is not None
                        for i, row in enumerate(text)
                    ]
                    at = done + _PLACE_BYTES * fits.index(False)
                    message = "no latitude at its byte 28, longitude at 33 and line's end at 48"
                    raise FileError(f"{path}, record at byte {at}: {message}")
                output.put(place, values)
                place += values.nbytes
                done += len(piece)
        records += size // _PLACE_BYTES
    numbers["records"] = records


def _cfd_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    path = _one(paths)
    with path.open("rb") as file:
        words = Words(file, path)
        count = words.take_one(1, 6 << 27, "number of elements")
        numbers.update(cubes=1, elements=count)
        volumes, neighbours, normals = FORMATS["cfd"].places(numbers)[:3]
        first = 0
        for piece in words.in_pieces(_CFD_NUMBERS * count, "<f8", "number", _CFD_NUMBERS):
            rows = piece.reshape(-1, _CFD_NUMBERS)
            numbered = rows[:, 1::4]
            wrong = (numbered != np.trunc(numbered)) | (numbered > count)
            if wrong.any() or not np.isfinite(rows).all():
                bad = wrong.any(axis=1) | ~np.isfinite(rows).all(axis=1)
                words.fail(f"element {first + int(bad.argmax())} has no such neighbour or area")
            output.put(volumes + 4 * first, rows[:, 0].astype("<f4"))
            behind = np.where(numbered < 0, -2, numbered - 1).astype("<i4")
            for face in range(4):
                output.put(neighbours + 4 * (face * count + first), behind[:, face])
                for axis in range(3):
                    at = normals + 4 * ((3 * face + axis) * count + first)
                    output.put(at, rows[:, 2 + 4 * face + axis].astype("<f4"))
            first += len(rows)
        words.expect_end()


def _dwt2d_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    path = _one(paths)
    FORMATS["dwt2d"].refuse_beyond(numbers, "the command line")
    count = FORMATS["dwt2d"].arrays(numbers)[0].count
    place, missing = PAGE, count
    with path.open("rb") as file:
        while missing:
            piece = file.read(min(missing, AT_ONCE))
            if not piece:
                message = f"ends after {count - missing} of {count} bytes of pixels"
                raise FileError(f"{path} {message}")
            output.put(place, np.frombuffer(piece, dtype="u1"))
            place, missing = place + len(piece), missing - len(piece)


def _hybridsort_from(paths: list[Path], output: Output, numbers: Numbers) -> None:
    path = _one(paths)
    place = PAGE
    with path.open("rb") as file:
        for piece in Words(file, path).to_the_end("<f4", "number"):
            output.put(place, piece)
            place += piece.nbytes
    if place == PAGE:
        raise FileError(f"{path} has no numbers")
    numbers["keys"] = (place - PAGE) // 4


TO: dict[str, Callable[[Input, Path, bool], Export]] = {
    "bfs": _bfs_to,
    "cfd": _cfd_to,
    "dwt2d": _dwt2d_to,
    "gaussian": _gaussian_to,
    "hotspot": _hotspot_to,
    "hybridsort": _hybridsort_to,
    "kmeans": _kmeans_to,
    "lud": _lud_to,
    "nn": _nn_to,
}
FROM: dict[str, Callable[[list[Path], Output, Numbers], None]] = {
    "bfs": _bfs_from,
    "cfd": _cfd_from,
    "dwt2d": _dwt2d_from,
    "gaussian": _gaussian_from,
    "hotspot": _hotspot_from,
    "hybridsort": _hybridsort_from,
    "kmeans": _kmeans_from,
    "lud": _lud_from,
    "nn": _nn_from,
}
#: The numbers that from-rodinia is told, and what they are else: what Rodinia's program has.
WISHES: dict[str, Numbers] = {
    "bfs": {},
    "cfd": {"iterations": 2000},
    "dwt2d": {"width": 0, "height": 0, "levels": 3, "rodinia": 1},
    "gaussian": {},
    "hotspot": {"steps": 60, "chip": 16, "ambient": 80, "divisor": 0},
    "hybridsort": {},
    "kmeans": {"clusters": 5, "iterations": 501, "first": 1},
    "lud": {},
    "nn": {"neighbours": 10, "latitude": 30, "longitude": 90},
}
