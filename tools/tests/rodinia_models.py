"""What Rodinia's programs compute and print, the obvious way in NumPy: what `compare` is tested by.

Written from what the programs do, float32 where they have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path


def hotspot(temperature: Any, power: Any, steps: int, divisor: float = 1) -> str:
    """Return the lines of output.out: a chip of 16 mm, air of 80 K."""
    rows = len(temperature)
    side = np.float32(0.016 / rows)
    capacity = np.float32(0.5 * 1.75e6 * 0.0005) * side * side
    per_side = np.float32(2 * 100 * 0.0005)
    upwards = np.float32(100) * side * side / np.float32(0.0005)
    step = np.float32(0.001 / (3.0e6 / (0.5 * 0.0005 * 1.75e6)) / divisor)
    for _ in range(steps):
        wide = np.pad(temperature, 1, mode="edge")
        here = temperature
        flow = wide[2:, 1:-1] + wide[:-2, 1:-1] - 2 * here + (wide[1:-1, 2:] + wide[1:-1, :-2])
        heat = power + (flow - 2 * here) * per_side + (np.float32(80) - here) * upwards
        temperature = (here + step / capacity * heat).astype(np.float32)
    return "".join(f"{i}\t{value:g}\n" for i, value in enumerate(temperature.ravel().tolist()))


def bfs(text: str) -> str:
    """Return the lines of result.txt for the text of a graph; it begins at node 0."""
    words = [int(word) for word in text.split()]
    nodes = words[0]
    lists = [tuple(words[1 + 2 * i : 3 + 2 * i]) for i in range(nodes)]
    targets = words[3 + 2 * nodes :: 2]
    costs = [0] + [-1] * (nodes - 1)
    level = [0]
    while level:
        found = []
        for node in level:
            first, count = lists[node]
            for target in targets[first : first + count]:
                if costs[target] < 0:
                    costs[target] = costs[node] + 1
                    found.append(target)
        level = found
    return "".join(f"{node}) cost:{cost}\n" for node, cost in enumerate(costs))


def kmeans(points: Any, clusters: int) -> str:
    """Return what is printed with -o."""
    centres = points[:clusters].astype(np.float64)
    members = np.full(len(points), -1)
    for _ in range(501):
        squares = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)
        nearest = squares.argmin(axis=1)
        changed = (nearest != members).sum()
        members = nearest
        for cluster in range(clusters):
            if (members == cluster).any():
                centres[cluster] = points[members == cluster].mean(axis=0, dtype=np.float64)
        if changed == 0:
            break
    lines = [f"{i}: {' '.join(f'{x:.2f}' for x in row)}\n\n" for i, row in enumerate(centres)]
    begin = "\nI/O completed\n\nNumber of objects: 9\n"
    title = "\n================= Centroid Coordinates =================\n"
    return begin + title + "".join(lines) + "Number of Iteration: 1\n"


def nn(places: bytes, count: int, latitude: float, longitude: float) -> str:
    """Return what is printed for a .db file: minima one after the other, each moved to the front.

    The record that stood there is lost, as it is in Rodinia's program.
    """
    records = [places[at : at + 48].decode() for at in range(0, len(places), 49)]
    distances = [
        np.sqrt(
            (np.float32(latitude) - np.float32(record[28:33])) ** 2
            + (np.float32(longitude) - np.float32(record[33:38])) ** 2
        )
        for record in records
    ]
    lines = []
    for place in range(min(count, len(records))):
        least = min(range(place, len(records)), key=lambda i: (distances[i], i))
        records[place] = records[least]
        distances[place], distances[least] = distances[least], distances[place]
        lines.append(f"{records[place]} --> Distance={distances[place]:f}\n")
    return "".join(lines)


def lud(matrix: Any) -> str:
    """Return what print_matrix prints of L and U in one matrix."""
    matrix = matrix.copy()
    for i in range(len(matrix)):
        matrix[i + 1 :, i] /= matrix[i, i]
        matrix[i + 1 :, i + 1 :] -= np.outer(matrix[i + 1 :, i], matrix[i, i + 1 :])
    return "".join(" ".join(f"{x:f}" for x in row) + " \n" for row in matrix.tolist())


def gaussian(matrix: Any, right: Any) -> str:
    """Return what is printed: the matrix after elimination, too."""
    matrix, right = matrix.copy(), right.copy()
    rows = len(right)
    for i in range(rows - 1):
        factors = matrix[i + 1 :, i] / matrix[i, i]
        matrix[i + 1 :, i:] -= np.outer(factors, matrix[i, i:])
        right[i + 1 :] -= factors * right[i]
    solution = np.zeros_like(right)
    for i in reversed(range(rows)):
        solution[i] = (right[i] - matrix[i, i + 1 :] @ solution[i + 1 :]) / matrix[i, i]
    shown = "\n".join(" ".join(f"{x:8.2f}" for x in row) for row in matrix.tolist())
    numbers = " ".join(f"{x:.2f}" for x in solution.tolist())
    tail = "\nTime total (including memory transfers)\t0.1 sec\n"
    return f"Matrix a is: \n{shown}\n\nThe final solution is: \n{numbers} \n\n{tail}"


def _lifted(cells: Any) -> Any:
    """Split rows of cells by the 5/3 wavelet, rounded towards zero: low frequencies, high ones."""
    size = cells.shape[0]
    if size == 1:
        return cells
    mirrored = np.concatenate([cells, cells[-2:-1]])
    odd = mirrored[1 : size + size % 2 : 2][: size // 2]
    right = mirrored[2::2][: size // 2]
    high = odd - np.fix((mirrored[0::2][: size // 2] + right) / 2).astype(np.int64)
    lows = (size + 1) // 2
    before = np.concatenate([high[:1], high])[:lows]
    after = np.concatenate([high, high[-1:]])[:lows]
    low = cells[0::2] + np.fix((before + after + 2) / 4).astype(np.int64)
    return np.concatenate([low, high])


def dwt2d(image: Any, levels: int, name: Path) -> None:
    """Write the files .r, .g and .b of an image [height][width][3]: a band after the other."""
    for colour, suffix in enumerate((".r", ".g", ".b")):
        low = image[:, :, colour].astype(np.int64) - 128
        bands: list[Any] = []
        for _ in range(levels):
            height, width = low.shape
            split = _lifted(_lifted(low).T).T
            x, y = (width + 1) // 2, (height + 1) // 2
            low = split[:y, :x]
            bands = [split[:y, x:], split[y:, :x], split[y:, x:], *bands]
        flat = np.concatenate([band.ravel() for band in [low, *bands]])
        name.with_name(name.name + suffix).write_bytes(
            np.clip(flat + 128, 0, 255).astype(np.uint8).tobytes()
        )
