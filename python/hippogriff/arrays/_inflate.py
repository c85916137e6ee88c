"""Compressed arrays of `.npz` files: decompressed on the host, then moved like the rest."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

from hippogriff._file import File
from hippogriff._scatter import start_scatter
from hippogriff._transfer import Request
from hippogriff.arrays._header import PREFIX_BYTES, header_end, make_array_of, naming, parse_header

if TYPE_CHECKING:
    from hippogriff._frameworks import Framework
    from hippogriff._report import Watch
    from hippogriff.arrays._archive import Archive, Member, MemberStream

# What goes to a device at a time.
_CHUNK_BYTES = 32 << 20


def load_compressed(
    archive: Archive,
    member: Member,
    framework: Framework,
    watch: Watch,
    host_memory: int,
) -> Any:
    """Load one array; `watch` is told how, `host_memory` is the most that is pinned.

    Raises
    ------
    ArrayFormatError
        When it is none, or its CRC-32 is not that of the directory.
    """
    with archive.open(member) as stream:
        with archive.checked(member.name):
            data = stream.read(PREFIX_BYTES)
            data += stream.read(max(0, header_end(data) - len(data)))
            header = parse_header(data, member.size_bytes)
        watch.start(1, header.size_bytes)
        with naming(archive.where(member.name)):
            array = make_array_of(framework, header)
        if _is_host(framework):
            address = framework.address(array)
            for piece in stream.pieces(header.size_bytes):
                ctypes.memmove(address, piece, len(piece))
                address += len(piece)
                watch.decompressed(len(piece))
        else:
            _pour(stream, header.size_bytes, array, framework, host_memory, watch)
        stream.finish()
    return array


def _is_host(framework: Framework) -> bool:
    """Whether bytes can be put into its arrays one by one."""
    return framework.region.host_memory


def _pour(
    stream: MemberStream,
    size_bytes: int,
    array: Any,
    framework: Framework,
    host_memory: int,
    watch: Watch,
) -> None:
    """Decompress into a file in memory, and let transfers take it to the device from there."""
    descriptor = os.memfd_create("hippogriff", os.MFD_CLOEXEC)
    try:
        with File(f"/proc/self/fd/{descriptor}") as file:
            for done in range(0, size_bytes, _CHUNK_BYTES):
                here = min(_CHUNK_BYTES, size_bytes - done)
                os.lseek(descriptor, 0, os.SEEK_SET)
                for piece in stream.pieces(here):
                    _write(descriptor, piece)
                part = (0, here, framework.address(array) + done)
                request = Request("auto", region=framework.region, host_memory=host_memory)
                start_scatter(file, [part], request, array, loading=True).wait()
                watch.decompressed(here)
    finally:
        os.close(descriptor)


def _write(descriptor: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]
