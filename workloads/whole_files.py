"""Files that the programs in Python make: whole, or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when it is complete and on the drive, or disappears."""
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        message = f"{path} is there, and no file"
        raise FileExistsError(message)
    hidden = place.with_name(f".hippogriff-{secrets.token_hex(8)}")
    try:
        with hidden.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(place)
    finally:
        hidden.unlink(missing_ok=True)
