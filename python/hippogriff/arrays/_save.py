"""Saving an array as an `.npy` file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hippogriff._elements import find_element
from hippogriff._frameworks import transposed
from hippogriff._host_memory import host_memory_bytes
from hippogriff._regions import describe
from hippogriff._report import Watch
from hippogriff._save import Part, save_parts
from hippogriff.arrays._header import format_header
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from hippogriff._report import LoadReport
    from hippogriff._runtime import PathLike


def save_npy(
    path: PathLike,
    array: Any,
    *,
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> None:
    """Save an array as an `.npy` file: complete and on the disk, or not at all.

    Parameters
    ----------
    path : path-like
        Replaced when it exists; until the end what was there stays. Nothing is appended to it.
    array : array
        NumPy's, torch's, CuPy's, hippogriff's, on any device, in C or Fortran order. The file is
        byte for byte what `numpy.save` writes.
    host_memory, explain, progress
        As in `load_npy`. What is told is how the file was written, once it is there.

    Raises
    ------
    InvalidArgument
        When the array is not contiguous, has a mask, or an element type that `.npy` has not.
    IoError
        When writing fails; the temporary file is removed then. When only the last step does, of
        `operation` "sync folder", the new file is there, and a crash may undo that.
    """
    budget = host_memory_bytes(host_memory)
    if getattr(array, "mask", None) is not None:
        raise InvalidArgument("the array has a mask, which would be lost")
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise TypeError(f"{type(array).__name__} is no array: it has no dtype or no shape")
    shape = tuple(int(length) for length in array.shape)
    fortran_order = _is_fortran_order(array)
    data = transposed(array) if fortran_order else array
    header = format_header(find_element(array.dtype), shape, fortran_order=fortran_order)
    part = Part(describe(data, writable=False), len(header))
    with Watch(explain, progress, budget, "save") as watch:
        save_parts(path, header, [part], watch, host_memory=budget)


def _is_fortran_order(array: Any) -> bool:
    """Whether an array is contiguous in Fortran order only."""
    if hasattr(array, "is_contiguous"):
        return not array.is_contiguous() and transposed(array).is_contiguous()
    flags: Any = getattr(array, "flags", None)
    return bool(getattr(flags, "f_contiguous", False)) and not flags.c_contiguous
