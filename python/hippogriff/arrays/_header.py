"""The header of an `.npy` file: parsed as the untrusted input it is, and written.

The format (numpy.lib.format): 6 bytes of magic, two of version, the length of the text in 2 bytes
(version 1.0) or 4 (2.0, 3.0), the text, a Python dictionary in Latin-1 (3.0: UTF-8), the data.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._dtypes import DTYPES
from hippogriff._elements import Element, element_of
from hippogriff._frameworks import make_array
from hippogriff.arrays._literals import LiteralError, Literals
from hippogriff.errors import InvalidArgument, OutOfHostMemory, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hippogriff._frameworks import Framework

#: A longer text is not taken.
HEADER_BYTES_MAX = 1 << 20
#: What tells where a header ends.
PREFIX_BYTES = 12
MAGIC = b"\x93NUMPY"
# Bytes of the text's length, and its encoding.
_VERSIONS = {(1, 0): (2, "latin-1"), (2, 0): (4, "latin-1"), (3, 0): (4, "utf-8")}
_KEYS = {"descr", "fortran_order", "shape"}
_SIZE_MAX = 2**63 - 1
_DIMENSIONS_MAX = 64
# NumPy leaves room for the first length to grow in place, and aligns the data.
_GROWTH_DIGITS = 21
_ALIGNMENT_BYTES = 64

_TYPE_STRING = re.compile(
    r"(?P<order>[<>|=]?)(?P<kind>[biufcSUVO]\d{1,10}|[mM]8(?:\[[A-Za-z0-9/]{1,32}\])?)"
)
_COMMON = {
    dtype.typestr[1:]: Element(dtype.name, dtype.itemsize_bytes)
    for dtype in DTYPES.values()
    if "V" not in dtype.typestr
}


class ArrayFormatError(InvalidArgument):
    """A file that is no `.npy` or `.npz` file, or an array that is not in it."""


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Let errors about one file, or one array of it, say which it is."""
    try:
        yield
    except (ArrayFormatError, OutOfHostMemory, Unsupported) as error:
        raise type(error)(f"{where}: {error}", object=where) from None


class ArrayHeader(NamedTuple):
    """What a file says of its array. `data_offset`: bytes before the data."""

    element: Element
    shape: tuple[int, ...]
    fortran_order: bool
    data_offset: int

    @property
    def size_bytes(self) -> int:
        """The bytes of all elements."""
        return math.prod(self.shape) * self.element.itemsize_bytes


def header_end(prefix: bytes) -> int:
    """Return where a header ends, from a file's first `PREFIX_BYTES` bytes.

    Raises
    ------
    ArrayFormatError
        When no header begins so.
    """
    if not prefix.startswith(MAGIC):
        raise ArrayFormatError(_what_it_is(prefix))
    if len(prefix) < PREFIX_BYTES:
        raise ArrayFormatError(f"{len(prefix)} bytes are too few for a header")
    version = (prefix[6], prefix[7])
    if version not in _VERSIONS:
        raise ArrayFormatError(f"version {version[0]}.{version[1]} of .npy is unknown")
    width, _ = _VERSIONS[version]
    text_bytes = int.from_bytes(prefix[8 : 8 + width], "little")
    if text_bytes > HEADER_BYTES_MAX:
        raise ArrayFormatError(
            f"the header would have {text_bytes} bytes; more than {HEADER_BYTES_MAX} is not taken"
        )
    return 8 + width + text_bytes


def _what_it_is(prefix: bytes) -> str:
    if prefix.startswith(b"PK"):
        return "it is a ZIP archive: load_npz loads .npz"
    if prefix.startswith(b"\x80"):
        return "it is a pickle, which could run anything: none is ever loaded"
    return f"it begins with {prefix[:6]!r}, not as .npy does"


def parse_header(data: bytes, size_bytes: int) -> ArrayHeader:
    """Parse a header.

    Parameters
    ----------
    data : bytes
        The file up to `header_end`.
    size_bytes : int
        The size of the file.

    Raises
    ------
    ArrayFormatError
        When anything in it is not as the format says, or the file ends before the data.
    Unsupported
        When its element type needs NumPy, which is not here.
    """
    kept = len(data) <= _KEPT_BYTES_MAX and b"[" not in data
    header = (_parse_again if kept else _parse)(data)
    if header.size_bytes > size_bytes - len(data):
        raise ArrayFormatError(
            f"shape {header.shape!r:.100} of {header.element.itemsize_bytes} bytes each needs "
            f"{header.size_bytes} bytes, but only {size_bytes - len(data)} follow the header"
        )
    return header


def _parse(data: bytes) -> ArrayHeader:
    version = (data[6], data[7])
    width, encoding = _VERSIONS[version]
    if header_end(data) > len(data):
        raise ArrayFormatError(f"the header would end at {header_end(data)}, beyond the file")
    try:
        text = data[8 + width :].decode(encoding)
        literals = Literals(text, long_integers=version < (3, 0))
        fields = literals.parse_dictionary()
    except UnicodeDecodeError as error:
        raise ArrayFormatError(f"the header is not UTF-8: {error}") from None
    except LiteralError as error:
        raise ArrayFormatError(f"the header is not as it should be: {error}") from None
    if fields.keys() != _KEYS:
        raise ArrayFormatError(f"the header has the keys {sorted(fields)!r:.200}")
    shape, fortran_order = fields["shape"], fields["fortran_order"]
    if not _is_shape(shape):
        raise ArrayFormatError(f"the header has the shape {shape!r:.100}")
    if not isinstance(fortran_order, bool):
        raise ArrayFormatError(f"the header has fortran_order {fortran_order!r:.100}")
    return ArrayHeader(_element(fields["descr"]), shape, fortran_order, len(data))


# Of the many small files of a data set the headers are mostly the same. Those of records are not
# kept: NumPy lets an array's owner rename the fields of its element type, which others would share.
_KEPT_BYTES_MAX = 512
_parse_again = functools.lru_cache(maxsize=64)(_parse)


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= _DIMENSIONS_MAX
        and all(type(length) is int and length <= _SIZE_MAX for length in value)
    )


def _element(descr: Any) -> Element:
    _check_descr(descr)
    if isinstance(descr, str):
        common = _COMMON.get(descr.lstrip("<>|="))
        if common is not None and (descr[0] != ">" or common.itemsize_bytes == 1):
            return common
    try:
        dtype = importlib.import_module("numpy.lib.format").descr_to_dtype(descr)
        return element_of(dtype)
    except ImportError as error:
        raise Unsupported(f"the element type {descr!r:.100} needs NumPy: {error}") from error
    except InvalidArgument as error:
        raise ArrayFormatError(str(error)) from None
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise ArrayFormatError(f"the element type {descr!r:.100}: {error}") from None


def _check_descr(descr: Any) -> None:
    """Refuse what NumPy would not have written, so that it sees nothing odd."""
    if isinstance(descr, str):
        if "O" in descr:
            raise ArrayFormatError("its elements are pickled Python objects: none is ever loaded")
        if not _TYPE_STRING.fullmatch(descr):
            raise ArrayFormatError(f"the element type {descr!r:.100} is unknown")
        return
    if not isinstance(descr, list):
        raise ArrayFormatError(f"the element type {descr!r:.100} is unknown")
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in {2, 3}:
            raise ArrayFormatError(f"the element type has the field {field!r:.100}")
        names = field[0] if isinstance(field[0], tuple) else (field[0],)
        shape = field[2] if len(field) == 3 else ()
        if not all(isinstance(name, str) for name in names) or len(names) not in {1, 2}:
            raise ArrayFormatError(f"the element type has the name {field[0]!r:.100}")
        if not _is_shape(shape if isinstance(shape, tuple) else (shape,)):
            raise ArrayFormatError(f"the element type has the shape {shape!r:.100}")
        _check_descr(field[1])


def make_array_of(framework: Framework, header: ArrayHeader) -> Any:
    """Make the array that a header tells of."""
    order = "F" if header.fortran_order else "C"
    return make_array(framework, header.element.dtype, header.shape, order)


def format_header(element: Element, shape: tuple[int, ...], *, fortran_order: bool) -> bytes:
    """Make a header, byte for byte NumPy's.

    Raises
    ------
    InvalidArgument
        When `.npy` has no such element type.
    """
    growing = shape[-1 if fortran_order else 0] if shape else None
    text = (
        f"{{'descr': {_descr(element)!r}, 'fortran_order': {fortran_order}, 'shape': {shape!r}, }}"
    )
    if growing is not None:
        text += " " * (_GROWTH_DIGITS - len(repr(growing)))
    for version, (width, encoding) in _VERSIONS.items():
        try:
            encoded = text.encode(encoding)
        except UnicodeEncodeError:
            continue
        begin = 8 + width
        # One for the newline; what is aligned already gets 64 more, as NumPy has it.
        padding = _ALIGNMENT_BYTES - (begin + len(encoded) + 1) % _ALIGNMENT_BYTES
        text_bytes = len(encoded) + padding + 1
        if text_bytes < 1 << 8 * width:
            length = text_bytes.to_bytes(width, "little")
            return MAGIC + bytes(version) + length + encoded + b" " * padding + b"\n"
    raise InvalidArgument("the element type's names are too long for .npy")


def _descr(element: Element) -> Any:
    if not isinstance(element.dtype, str):
        dtype = element.dtype
        if dtype.kind == "V" and dtype.names is None and not str(dtype).startswith("|V"):
            raise InvalidArgument(f".npy has no element type for {dtype}")
        return importlib.import_module("numpy.lib.format").dtype_to_descr(dtype)
    typestr = DTYPES[element.dtype].typestr
    if "V" in typestr:
        raise InvalidArgument(
            f".npy has no element type for {element.dtype}; safetensors files have"
        )
    return typestr
