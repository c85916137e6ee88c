"""What `hippogriff explain --array` tells: how a file would be read as an array in storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff._console import print_json
from hippogriff._show import show_array
from hippogriff._storage_array import StorageArray
from hippogriff._usage import about, size_of
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

_IO = ("auto", "cached", "direct")


def explain_array(file: Path, device: str, *, json: bool, **options: str) -> None:
    """Open a file as the options say, and print what is chosen and predicted.

    Raises
    ------
    InvalidArgument
        When an option makes no sense.
    HippogriffError
        When the file cannot be opened so.
    """
    cache = size_of("--cache", options["cache"], least=1)
    line = size_of("--line", options["line"], least=1)
    if options["io"] not in _IO:
        why = f"io is {options['io']!r:.100}; it must be {', '.join(_IO)}"
        raise InvalidArgument(why, operation="explain", object="--io")
    with about(str(file)):
        opened = StorageArray(
            file, "uint8", device=device, cache=cache, line=line, io=options["io"]
        )
    with opened:
        told = opened.explain()
    if json:
        print_json(told)
    else:
        show_array(told)
