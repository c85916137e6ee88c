"""Tries what the file system at a path can do: O_DIRECT, reads that do not wait, cachestat.

A program of its own, standing on the standard library alone: a dead server holds whoever asks it.
Its argument is a file, or a folder, where a file without a name is made for a moment. It prints a
JSON object: `why_not` (nothing could be tried), `folder`, `block_bytes`, and `direct_io`, `nowait`,
`cachestat`: an empty text where it works, else why not.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CACHESTAT = 451  # The same on every architecture.
_BLOCK_BYTES = 4096


def ask(path: str) -> dict[str, Any]:
    """Return what the file system at `path` can do."""
    facts: dict[str, Any] = {"why_not": "", "folder": path, "block_bytes": 0}
    try:
        if not _is_folder(path):
            facts["folder"] = str(Path(path).parent)
        with contextlib.ExitStack() as stack:
            descriptor = stack.enter_context(_sample(path))
            facts["block_bytes"] = os.fstat(descriptor).st_blksize
            facts["direct_io"] = _why_not(_read_directly, descriptor)
            facts["nowait"] = _why_not(_read_without_waiting, descriptor)
            facts["cachestat"] = _why_not(_ask_cachestat, descriptor)
    except OSError as error:
        facts["why_not"] = str(error)
    return facts


def _is_folder(path: str) -> bool:
    return stat.S_ISDIR(Path(path).stat().st_mode)  # an error where is_dir says no


@contextlib.contextmanager
def _sample(path: str) -> Iterator[int]:
    if not _is_folder(path):
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = os.open(path, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryFile(dir=path, prefix=".hippogriff-doctor-") as file:
        file.write(bytes(_BLOCK_BYTES))
        file.flush()
        yield file.fileno()


def _why_not(attempt: Callable[[int], object], descriptor: int) -> str:
    try:
        attempt(descriptor)
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""


def _read_directly(descriptor: int) -> None:
    direct = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _BLOCK_BYTES) as memory:
            os.preadv(direct, [memory], 0)
    finally:
        os.close(direct)


def _read_without_waiting(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)


def _ask_cachestat(descriptor: int) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    extent, answer = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if system.syscall(_CACHESTAT, descriptor, extent, answer, 0) != 0:
        code = ctypes.get_errno() or errno.EINVAL
        raise OSError(code, os.strerror(code))


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1])))
