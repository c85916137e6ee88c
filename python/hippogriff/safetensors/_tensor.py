"""What a file tells of a tensor, and the element types that the format defines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OFFSET_MAX = 2**63 - 1

# Bits of an element.
DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


class TensorInfo(NamedTuple):
    """One tensor of a file. `offset` and `size_bytes` say where its bytes are in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


class Columns(NamedTuple):
    """Some tensors, each a row: for thousands in a fraction of the time that objects take."""

    names: Sequence[str]
    dtypes: Sequence[str]
    shapes: Sequence[tuple[int, ...]]
    offsets: Sequence[int]
    sizes: Sequence[int]

    @classmethod
    def of(cls, tensors: Iterable[TensorInfo]) -> Columns:
        """Return the rows of some tensors."""
        rows = list(tensors)
        return cls(*zip(*rows, strict=True)) if rows else cls((), (), (), (), ())

    def extend(self, more: Columns) -> None:
        """Add rows to these, which must be lists."""
        for column, rows in zip(self, more, strict=True):
            column.extend(rows)  # type: ignore[attr-defined]

    def cut(self, begin: int, end: int) -> Columns:
        """Return the rows from `begin` on, up to `end`."""
        names, dtypes, shapes, offsets, sizes = self
        cut = slice(begin, end)
        return Columns(names[cut], dtypes[cut], shapes[cut], offsets[cut], sizes[cut])

    def tensors(self) -> list[TensorInfo]:
        """Return each row as an object."""
        return list(map(TensorInfo._make, zip(*self, strict=True)))


def count_bits(bits: int, shape: Sequence[Any]) -> int:
    """Return the bits of a tensor; -1 when a dimension is none or they are beyond any file."""
    for length in shape:
        if type(length) is not int or not 0 <= length <= OFFSET_MAX:
            return -1
        bits *= length
        if bits > 8 * OFFSET_MAX:
            return -1
    return bits
