"""Element types by name, with what NumPy, DLPack and the buffer protocol call them."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence


class DType(NamedTuple):
    """One element type. `typestr` is NumPy's, `buffer_format` struct's ("" when it has none)."""

    name: str
    itemsize_bytes: int
    dlpack_code: int
    typestr: str
    buffer_format: str


_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_FLOAT8_E4M3FN, _FLOAT8_E5M2 = 10, 12

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("bool", 1, _BOOL, "|b1", "?"),
        DType("int8", 1, _SIGNED, "|i1", "b"),
        DType("int16", 2, _SIGNED, "<i2", "h"),
        DType("int32", 4, _SIGNED, "<i4", "i"),
        DType("int64", 8, _SIGNED, "<i8", "l"),
        DType("uint8", 1, _UNSIGNED, "|u1", "B"),
        DType("uint16", 2, _UNSIGNED, "<u2", "H"),
        DType("uint32", 4, _UNSIGNED, "<u4", "I"),
        DType("uint64", 8, _UNSIGNED, "<u8", "L"),
        DType("float16", 2, _FLOAT, "<f2", "e"),
        DType("float32", 4, _FLOAT, "<f4", "f"),
        DType("float64", 8, _FLOAT, "<f8", "d"),
        DType("bfloat16", 2, _BFLOAT, "<V2", ""),
        DType("float8_e4m3fn", 1, _FLOAT8_E4M3FN, "|V1", ""),
        DType("float8_e5m2", 1, _FLOAT8_E5M2, "|V1", ""),
        DType("complex64", 8, _COMPLEX, "<c8", ""),
        DType("complex128", 16, _COMPLEX, "<c16", ""),
    )
}
_BY_TYPESTR = {dtype.typestr: dtype for dtype in DTYPES.values() if "V" not in dtype.typestr}
_PYTHON_TYPES = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def find_dtype(dtype: object) -> DType:
    """Find the element type that a name, a NumPy or torch dtype, a type string or a class means.

    Raises
    ------
    InvalidArgument
        When hippogriff has no such element type.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        name = _PYTHON_TYPES[dtype]
    elif isinstance(dtype, str):
        name = dtype
    elif isinstance(dtype, type):
        name = dtype.__name__
    else:
        name = getattr(dtype, "name", None) or str(dtype)
    name = name.removeprefix("torch.").removesuffix("_" if name == "bool_" else "\0")
    codes = name, name.replace("<", "|"), f"<{name}", f"|{name}"
    found = DTYPES.get(name) or next(filter(None, map(_BY_TYPESTR.get, codes)), None)
    byteorder = getattr(dtype, "byteorder", "=")
    if found is None or (byteorder == ">" and found.itemsize_bytes > 1):
        raise InvalidArgument(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return found


def fit_shape(
    shape: int | Sequence[int] | None, itemsize_bytes: int, size_bytes: int
) -> tuple[int, ...]:
    """Return the shape that so many bytes have: one length may be -1, None means one dimension.

    Raises
    ------
    InvalidArgument
        When the bytes do not fill the shape exactly.
    """
    if size_bytes % itemsize_bytes:
        raise InvalidArgument(f"{size_bytes} bytes are not a multiple of {itemsize_bytes} bytes")
    count = size_bytes // itemsize_bytes
    if shape is None:
        return (count,)
    lengths = as_lengths(shape)
    known = math.prod(length for length in lengths if length >= 0)
    if -1 in lengths and known and count % known == 0:
        lengths = tuple(count // known if length == -1 else length for length in lengths)
    if -1 in lengths or math.prod(lengths) != count:
        raise InvalidArgument(f"{count} elements ({size_bytes} bytes) do not fill shape {shape}")
    return lengths


def as_lengths(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape as a tuple; at most one length is -1, none is less."""
    given: Any = shape
    try:
        whole = (given,) if hasattr(given, "__index__") and not hasattr(given, "__len__") else given
        lengths = tuple(map(operator.index, whole))
    except TypeError:
        words = f"shape {shape!r:.100} is neither an integer nor a sequence of integers"
        raise InvalidArgument(words) from None
    if any(length < -1 for length in lengths) or lengths.count(-1) > 1:
        raise InvalidArgument(f"shape {shape} has a negative length")
    return lengths


def known_size_bytes(shape: int | Sequence[int] | None, itemsize_bytes: int) -> int | None:
    """How many bytes a shape has, unless one of its lengths is open."""
    if shape is None or -1 in (lengths := as_lengths(shape)):
        return None
    return math.prod(lengths) * itemsize_bytes
