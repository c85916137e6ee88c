"""How much of a file is in the page cache, asked of the kernel: mincore, else cachestat."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CACHESTAT = 451  # The same number on every architecture; since Linux 6.5.
_PIECE_BYTES = 1 << 30  # of mincore, whose answer takes a byte for each page
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


@dataclass(frozen=True)
class Residency:
    """The share of a file's pages that are in the page cache, 0 to 1, and what call told it."""

    share: float
    asked: str


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def _check(condition: bool, call: str, path: Path) -> None:
    if not condition:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", str(path))


def _by_cachestat(descriptor: int, size_bytes: int, path: Path) -> int:
    """Return how many pages are resident."""
    span, stat = _Range(0, size_bytes), _Stat()
    status = _libc.syscall(
        ctypes.c_long(_CACHESTAT), descriptor, ctypes.byref(span), ctypes.byref(stat), 0
    )
    _check(status == 0, "cachestat", path)
    return int(stat.cached)


def _by_mincore(descriptor: int, size_bytes: int, path: Path) -> int:
    """Return how many pages are resident."""
    resident = 0
    for offset in range(0, size_bytes, _PIECE_BYTES):
        length = min(_PIECE_BYTES, size_bytes - offset)
        address = _libc.mmap(
            None,
            ctypes.c_size_t(length),
            mmap.PROT_READ,
            mmap.MAP_SHARED,
            descriptor,
            ctypes.c_long(offset),
        )
        _check(address != ctypes.c_void_p(-1).value, "mmap", path)
        try:
            pages = (ctypes.c_ubyte * (-(-length // mmap.PAGESIZE)))()
            status = _libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), pages)
            _check(status == 0, "mincore", path)
            resident += sum(page & 1 for page in pages)
        finally:
            _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))
    return resident


def residency(path: Path) -> Residency:
    """Ask the kernel.

    mincore first: cachestat finds nothing of any file on overlayfs, that is in most containers.

    Raises
    ------
    OSError
        When it tells by neither call.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_size == 0:
            return Residency(1.0, "nothing to ask")
        pages = -(-status.st_size // mmap.PAGESIZE)
        if status.st_uid == os.geteuid():  # Of others' files it may claim that all is there.
            try:
                return Residency(_by_mincore(descriptor, status.st_size, path) / pages, "mincore")
            except OSError:
                pass  # A file system that maps no files: the other call may know.
        return Residency(_by_cachestat(descriptor, status.st_size, path) / pages, "cachestat")
    finally:
        os.close(descriptor)
