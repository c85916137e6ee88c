"""Where loads leave out what lies between the tensors that are wanted."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A hole larger than this between wanted tensors is not read.
GAP_BYTES = 1 << 20


def is_hole(size_bytes: int) -> bool:
    """Whether it pays to leave out so much between two tensors."""
    return size_bytes > GAP_BYTES


def between_holes(offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Give the first and the one past the last of tensors between which no hole is, in turns.

    Tensors as their offsets and sizes in bytes, ascending in the file, without overlaps.
    """
    if not offsets:
        return
    if offsets[-1] + sizes[-1] - offsets[0] <= sum(sizes) + GAP_BYTES:
        yield 0, len(offsets)  # All holes together are not too large.
        return
    ends = map(operator.add, offsets, sizes)
    holes = map(operator.sub, offsets[1:], ends)
    cuts = [position for position, hole in enumerate(holes, 1) if hole > GAP_BYTES]
    yield from itertools.pairwise([0, *cuts, len(offsets)])
