"""What a drive gives to random blocks past the page cache, of bench/array/random_blocks.cpp."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class AbsentError(Exception):
    """What is to be measured cannot be had here."""


def seconds_by_depth(
    program: Path, words: tuple[str, Path, int, int], depths: tuple[int, ...], timeout: float | None
) -> dict[int, float]:
    """Return what each depth takes; words: read or write, the file, bytes of a block, how many.

    Raises AbsentError, and subprocess.TimeoutExpired.
    """
    if not program.exists():
        message = f"{program.name} is not built"
        raise AbsentError(message)
    command = [str(program), *map(str, words), *map(str, depths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise AbsentError(done.stderr.strip()[-300:])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["depth"]: each["seconds"] for each in found}
