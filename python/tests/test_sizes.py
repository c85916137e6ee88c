"""Sizes as people read them."""

from __future__ import annotations

import pytest

from hippogriff._sizes import format_apart, format_size
from hippogriff.errors import OutOfDeviceMemory
from hippogriff.sharing.placement import Candidate, order

GIB = 1 << 30


@pytest.mark.parametrize(
    ("sizes", "texts"),
    [
        ((3 * GIB, GIB), ["3.00 GiB", "1.00 GiB"]),
        ((GIB + (1 << 20), GIB), ["1.001 GiB", "1.000 GiB"]),
        ((GIB + (100 << 10), GIB), ["1.0001 GiB", "1.0000 GiB"]),
        ((GIB + 1, GIB), ["1073741825 B", "1073741824 B"]),
        ((GIB, GIB), ["1.00 GiB", "1.00 GiB"]),
        ((2 << 50, (2 << 50) - 1), ["2251799813685248 B", "2251799813685247 B"]),
        ((1001, 1000), ["1001 B", "1000 B"]),
        ((0, 1), ["0 B", "1 B"]),
    ],
)
def test_sizes_that_differ_are_written_differently(
    sizes: tuple[int, int], texts: list[str]
) -> None:
    assert format_apart(*sizes) == texts


def test_a_size_alone_has_two_digits() -> None:
    assert format_size(GIB + (1 << 20)) == "1.00 GiB"
    assert format_size(1023) == "1023 B"
    assert format_size(5 << 40) == "5.00 TiB"


@pytest.mark.parametrize("more", [1, 1 << 10, 1 << 20])
def test_a_refusal_for_size_says_two_sizes(more: int) -> None:
    with pytest.raises(OutOfDeviceMemory) as refused:
        order([Candidate("a", GIB, GIB, 0)], GIB + more, "pack")
    asked, there = str(refused.value).split(" asked, and the largest device has ")
    assert asked != there
