"""Holds a device's memory: `python3 -m hippogriff.reproduce._ballast DEVICE LEAVE PARENT`.

It allocates until no more than LEAVE bytes are free, prints a line, and holds them until it is
ended, or the process PARENT is gone. So programs with hippogriff and without find a device of
that size.
"""

from __future__ import annotations

import os
import sys
import time

import hippogriff
from hippogriff import _runtime

_PART_BYTES = 1 << 30
_STEP_BYTES = 64 << 20


def main(device: str, leave_bytes: int, parent: int) -> None:
    """Hold, until a signal or the parent's end."""
    held = [hippogriff.empty(_STEP_BYTES, device=device)]
    while (free := _runtime.memory_free_bytes(device)) > leave_bytes + _STEP_BYTES:
        held.append(
            hippogriff.empty(
                min(_PART_BYTES, free - leave_bytes) // _STEP_BYTES * _STEP_BYTES or _STEP_BYTES,
                device=device,
            )
        )
    print(f"{sum(array.nbytes for array in held)} bytes held, {free} free", flush=True)
    while os.getppid() == parent:  # whoever measures may have been killed
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
