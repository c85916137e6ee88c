"""Sizes as people write them."""

from __future__ import annotations

import operator
import re

from hippogriff.errors import InvalidArgument

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_PATTERN = re.compile(r"([0-9]{1,40})(?:\.([0-9]{1,18}))?\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Read a size such as ``"1.5 GiB"`` or ``"4096"``, in bytes.

    Raises
    ------
    InvalidArgument
        When it is not a size.
    """
    match = _PATTERN.fullmatch(text.strip())
    unit = _UNITS.get(match[3].upper()) if match else None
    if match is None or unit is None:
        raise InvalidArgument(f"{text!r:.100} is not a size; write it like 4096, 64KiB or 1.5GiB")
    fraction = match[2] or "0"
    size_bytes = int(match[1]) * unit + int(fraction) * unit // int("1" + "0" * len(fraction))
    if size_bytes >= 2**63:
        raise InvalidArgument(f"{text!r:.100} is too large: 2**63 bytes or more")
    return size_bytes


def as_bytes(what: str, given: int | str) -> int:
    """Return a size as an argument has it, in bytes: a whole number, or as `parse_size` reads it.

    Raises
    ------
    InvalidArgument
        When it is neither; `what` says which argument it is.
    """
    if isinstance(given, str):
        return parse_size(given)
    try:
        if not isinstance(given, bool):
            return operator.index(given)
    except TypeError:
        pass
    raise InvalidArgument(f"{what} is {given!r:.100}, neither bytes nor a size like 64MiB")


def format_apart(*sizes_bytes: int) -> list[str]:
    """Write sizes for people with as many digits as tell them apart where they differ.

    Where three more digits do not, ``"1073741825 B"``.
    """
    different = len(set(sizes_bytes))
    for digits in range(2, 6):
        texts = [format_size(size, digits) for size in sizes_bytes]
        if len(set(texts)) == different:
            return texts
    return [f"{size} B" for size in sizes_bytes]


def format_size(size_bytes: float, digits: int = 2) -> str:
    """Write a size for people: ``"1.50 GiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.{digits}f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.{digits}f} TiB"
