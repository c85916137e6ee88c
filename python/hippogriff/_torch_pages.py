"""Thousands of small tensors on a GPU without what torch's pages leave over between them.

torch's allocator puts what is at most 1 MiB into pages of 2 MiB, and a tensor into one page: four
of 429 KB leave 300 KB of each, 900 MiB beside 4 GiB. In its expandable segments pages lie side by
side, and tensors across them. It can be told so while tensors are made, and the other way after: a
setting of the process, of which each segment keeps what it was made with.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Made = TypeVar("_Made")

# Of torch's allocator (c10's CUDACachingAllocator: kSmallSize, kSmallBuffer, kMinBlockSize).
SMALL_BYTES = 1 << 20
_ROUNDED_BYTES = 512
_PAGE_BYTES = 2 << 20
# What one load may leave over before it is worth a setting.
_SPARED_BYTES = 16 << 20
_EXPANDABLE, _PLAIN = "expandable_segments:True", "expandable_segments:False"
_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments")
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# A snapshot of a pool that is not there holds the settings, and none of the thousands of blocks.
# torch 2.11 gives up a reference to each of these that it never took: no larger integers, for
# CPython frees those.
_NO_POOL = (0, 256)

_setting = threading.Lock()
_has_set: set[str] = set()  # What this process's settings are because of us.


def rounded(size_bytes: int) -> int:
    """Return what torch's allocator gives for so many bytes."""
    return -(-size_bytes // _ROUNDED_BYTES) * _ROUNDED_BYTES


class Pages:
    """Counts what one load's tensors leave over, and makes the rest of them side by side."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._left_over_bytes = 0
        self._may: bool | None = None

    def expect(self, sizes_bytes: Sequence[int]) -> None:
        """Tell that tensors of these sizes will be made now."""
        if self._left_over_bytes > _SPARED_BYTES:
            return
        self._left_over_bytes += sum(
            count * _left_over(rounded(size))
            for size, count in Counter(sizes_bytes).items()
            if 0 < size <= SMALL_BYTES
        )

    def make(self, make: Callable[[], _Made]) -> _Made:
        """Make tensors, side by side if it is worth it and nobody has settings of their own."""
        if self._left_over_bytes <= _SPARED_BYTES or self._may is False:
            return make()
        with _setting:
            if self._may is None:
                self._may = _is_as_by_default(self._torch)
            if self._may:
                try:
                    return self._make_side_by_side(make)
                except RuntimeError:  # No room, or a pool of the caller's that knows no segments.
                    self._may = False
        return make()

    def _make_side_by_side(self, make: Callable[[], _Made]) -> _Made:
        # Not public; other projects that load models set it the same way.
        try:
            self._torch._C._accelerator_setAllocatorSettings(_EXPANDABLE)  # May be interrupted.
            return make()
        finally:
            self._torch._C._accelerator_setAllocatorSettings(_PLAIN)
            _has_set.add(_PLAIN)


def _left_over(size: int) -> int:
    """Return one tensor's share of what a page full of its like leaves over."""
    in_page = _PAGE_BYTES // size
    return (_PAGE_BYTES - in_page * size) // in_page


def _is_as_by_default(torch: Any) -> bool:
    """Whether the allocator is torch's own, and has no settings that a change would undo."""
    if any(os.environ.get(name) for name in _VARIABLES):
        return False
    try:
        if torch.cuda.get_allocator_backend() != "native":
            return False
        torch._C._accelerator_setAllocatorSettings  # noqa: B018 - older ones have it not
        settings = torch._C._cuda_memorySnapshot(_NO_POOL)["allocator_settings"]
        words, expandable = (settings[name] for name in _SETTINGS)
        return (not words or words in _has_set) and expandable is False
    except (AttributeError, KeyError, TypeError, RuntimeError):
        return False
