"""CPU instructions of programs, by the processor's counter where there is one."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import Any

HARDWARE, SOFTWARE = 0, 1  # perf_event_open's types
INSTRUCTIONS = 1  # of hardware; of software it is the task's nanoseconds
_CALLS = {"x86_64": 298, "aarch64": 241}
_DISABLED, _INHERIT, _NO_KERNEL, _NO_HYPERVISOR, _ON_EXEC = 1, 2, 1 << 5, 1 << 6, 1 << 12
_CLOSE_ON_EXEC = ctypes.c_long(8)
_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """The first version of perf_event_attr, as far as it is used."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 2),
    )


def _open(kind: int, event: int, flags: int) -> int:
    number = _CALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    attributes = _Attributes(type=kind, size=ctypes.sizeof(_Attributes), config=event, flags=flags)
    words = (ctypes.c_long(number), ctypes.byref(attributes), 0, -1, -1, _CLOSE_ON_EXEC)
    descriptor = int(_libc.syscall(*words))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


class Counter:
    """Counts the processes that this thread starts in the block, from their exec to their end."""

    def __init__(self, kind: int = HARDWARE, event: int = INSTRUCTIONS) -> None:
        self._kind, self._event = kind, event
        self._descriptor = -1
        self._of = ""
        self._why_not = ""

    def __enter__(self) -> Counter:
        common = _DISABLED | _INHERIT | _NO_HYPERVISOR | _ON_EXEC
        for of, flags in (("user and kernel", common), ("user", common | _NO_KERNEL)):
            try:
                self._descriptor = _open(self._kind, self._event, flags)
            except OSError as error:
                self._why_not = f"perf_event_open: {error.strerror}"
            else:
                self._of = of
                break
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def found(self) -> dict[str, Any]:
        """Return how many, once all those processes have ended; or why that is not known."""
        if self._descriptor < 0:
            return {"why_absent": self._why_not}
        return {"count": struct.unpack("q", os.read(self._descriptor, 8))[0], "of": self._of}
