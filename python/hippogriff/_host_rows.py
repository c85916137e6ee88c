"""Rows of an array by indices in host memory, and values for them, by NumPy's rules."""

from __future__ import annotations

import importlib
from typing import Any

from hippogriff._slices import CALL_BYTES
from hippogriff.errors import InvalidArgument, Unsupported, check

_CALL_ROWS = 1 << 18


def numpy_module() -> Any:
    """Return NumPy.

    Raises
    ------
    Unsupported
        Without it.
    """
    try:
        return importlib.import_module("numpy")
    except ImportError:
        raise Unsupported("StorageArray needs NumPy (pip install numpy)") from None


def expect_rows(out: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Refuse what cannot be filled with rows.

    Raises
    ------
    InvalidArgument
        Says why.
    """
    if not isinstance(out, numpy_module().ndarray):
        raise InvalidArgument(f"out is a {type(out).__name__}, not a NumPy array")
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        order = "" if out.flags.c_contiguous else " in another order"
        raise InvalidArgument(
            f"out has shape {out.shape} and elements {out.dtype}{order}, not {shape} and {dtype} "
            "in C order"
        )
    if not out.flags.writeable:
        raise InvalidArgument("out is read-only")


def find_rows(numpy: Any, indices: Any, length: int) -> Any:
    """Return indices along a dimension of this length as C wants them, none negative.

    Raises
    ------
    IndexError
        When one is out of the dimension.
    InvalidArgument
        When they are no integers.
    """
    given = numpy.asarray(indices)
    if given.size == 0:
        given = given.astype("int64")
    if given.dtype.kind not in "iu":
        raise InvalidArgument(f"indices are integers, not {given.dtype}")
    if given.size and (given.min() < -length or given.max() >= length):
        wrong = given.min() if given.min() < -length else given.max()
        raise IndexError(f"index {wrong} is out of the {length} of dimension 0")
    given = given.astype("uint64" if given.dtype.kind == "u" else "int64")
    rows = numpy.where(given < 0, given + length, given) if given.dtype.kind == "i" else given
    # That makes one dimension of none.
    return numpy.ascontiguousarray(rows, "uint64").reshape(rows.shape)


def broadcast(numpy: Any, values: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return values in the shape of what they are assigned to; leading ones more do not matter."""
    given = numpy.asarray(values, dtype)
    more = given.ndim - len(shape)
    if more > 0 and set(given.shape[:more]) == {1}:
        given = given.reshape(given.shape[more:])
    return numpy.broadcast_to(given, shape)


def move_rows(move: Any, handle: Any, rows: Any, row_bytes: int, array: Any) -> None:
    """Have rows gathered into memory or scattered from it; an interrupt is seen between calls."""
    step = max(1, min(_CALL_ROWS, CALL_BYTES // max(1, row_bytes)))
    for first in range(0, rows.size, step):
        numbers = rows.ctypes.data + first * rows.itemsize
        memory = array.ctypes.data + first * row_bytes
        check(move(handle, numbers, min(step, rows.size - first), row_bytes, memory))
