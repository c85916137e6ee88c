"""`python -m hippogriff.demo`: a real file to the device and back, beside the naive way.

HIPPOGRIFF_DEMO_BYTES is the file's size (1 GiB if unset); it is made in the current folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hippogriff._bench import make_file
from hippogriff._console import Follower, make_table, prepare_streams, stdout
from hippogriff._measurement import (
    Sample,
    backed,
    cached_fraction,
    make_cold,
    time_naive_read,
    time_naive_write,
    time_read,
    time_write,
    warm,
)
from hippogriff._runtime import default_device
from hippogriff._sizes import format_size, parse_size
from hippogriff.errors import HippogriffError

if TYPE_CHECKING:
    from hippogriff._array import Array

_DEFAULT_SIZE = "1GiB"
_COLD_FRACTION = 0.1


def run(folder: Path, size_bytes: int, device: str) -> list[tuple[str, Sample, Sample]]:
    """Move a new file both ways and check it: for each case hippogriff's and the naive sample.

    Raises
    ------
    HippogriffError
        When bytes cannot be moved, or come back different.
    """
    source, result, naive = (folder / name for name in ("source", "result", "naive"))
    with Follower("write a file of random bytes", size_bytes) as follower:
        make_file(source, size_bytes, follower.tell)
    expected = _digest(source)
    rows = []
    with backed(size_bytes, device) as array:
        for case, prepare in (("to the device, cold", make_cold), ("to the device, cached", warm)):
            prepare(source)
            if prepare is make_cold and cached_fraction(source) > _COLD_FRACTION:
                continue  # A file in memory has no cold state.
            other = time_naive_read(source, array)
            prepare(source)
            rows.append((case, _read(source, array), other))
        other = time_naive_write(naive, array)
        rows.append(("back to a file, durable", _write(result, array), other))
    for path in (result, naive):
        if _digest(path) != expected:
            raise HippogriffError(f"what came back in {path.name} is not what was sent")
    return rows


def _read(path: Path, array: Array) -> Sample:
    with Follower("file to device", array.nbytes) as follower:
        return time_read(path, array, progress=lambda now: follower.tell(now.bytes_done))


def _write(path: Path, array: Array) -> Sample:
    with Follower("device to file", array.nbytes) as follower:
        return time_write(path, array, progress=lambda now: follower.tell(now.bytes_done))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Run the demo and print its table."""
    prepare_streams()
    try:
        size_bytes = parse_size(os.environ.get("HIPPOGRIFF_DEMO_BYTES") or _DEFAULT_SIZE)
        device = default_device()
        with tempfile.TemporaryDirectory(prefix="hippogriff-demo-", dir=Path.cwd()) as folder:
            rows = run(Path(folder), size_bytes, device)
    except (HippogriffError, OSError, EOFError) as error:
        sys.exit(f"hippogriff.demo: {' '.join(str(error).split())}")
    numbers = ("GB/s", "CPU s/GB", "naive GB/s", "naive CPU s/GB")
    title = f"{format_size(size_bytes)} to {device} and back; naive: allocate, read, copy"
    table = make_table(title, ("way", "route", *numbers), numbers=numbers)
    for case, ours, naive in rows:
        speeds = (
            f"{value:.3f}"
            for sample in (ours, naive)
            for value in (sample.gb_per_second, sample.cpu_seconds_per_gb)
        )
        table.add_row(case, ours.route, *speeds)
    console = stdout()
    console.print(table)
    console.print("verified: SHA-256 of what came back is that of what was sent")


if __name__ == "__main__":
    main()
