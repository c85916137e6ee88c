"""Sidecars: a small file beside a file, with the checksums of its blocks.

The format, all numbers little-endian: 64 bytes (`_FIELDS`), of them the last 8 the checksum of the
56 before; the checksums of all blocks, 8 bytes each; the checksum of those. A block is some bytes
of a tensor, counted from the tensor's beginning; in an `.npy` file, of what follows its header; in
other files, of the file. The names of tensors are not here: the file has them, in its head.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from hippogriff._replacement import Replacement
from hippogriff._runtime import encode_path
from hippogriff._xxh3 import checksum_bytes, count_blocks
from hippogriff.errors import ChecksumMismatch, HippogriffError, InvalidArgument, io_error

if TYPE_CHECKING:
    from hippogriff._runtime import PathLike

SUFFIX = ".xxh3"
#: Small enough to say where, and for a GPU to have work for all its parts; large enough that the
#: checksums are 0.003 % of the data.
BLOCK_BYTES = 256 << 10

_MAGIC = b"HIPPOXX3"
_VERSION = 1
# Magic, version, padding, bytes of the file, of its head, of a block; blocks; the head's checksum;
# the checksum of the fields before.
_FIELDS = struct.Struct("<8sII6Q")
_BLOCK_BYTES_MIN, _BLOCK_BYTES_MAX = 4 << 10, 16 << 20
# What the head of a safetensors file has at most, and a tensor in it at least.
_HEAD_BYTES_MAX, _ENTRY_BYTES_MIN = 100_000_008, 32
_FILE_BYTES_MAX = 2**63 - 1
# All of most sidecars, of up to 2 GiB, comes with their fields.
_READ_BYTES = 64 << 10


class SidecarError(InvalidArgument):
    """A file of checksums that is none, is damaged, or is not of the file it stands beside."""


class Span(NamedTuple):
    """Bytes of a file that are cut into blocks: a tensor, or all of it."""

    name: str
    offset: int
    size_bytes: int
    first_block: int


class Layout(NamedTuple):
    """How a file is cut into blocks. The head is what comes before the first tensor."""

    file_bytes: int
    head_bytes: int
    block_bytes: int
    spans: list[Span]
    block_count: int


def lay_out(
    file_bytes: int, head_bytes: int, tensors: list[tuple[str, int, int]], block_bytes: int
) -> Layout:
    """Cut (name, offset, size) of each tensor, ascending in the file, into blocks."""
    spans, block = [], 0
    for name, offset, size_bytes in tensors:
        spans.append(Span(name, offset, size_bytes, block))
        block += count_blocks(size_bytes, block_bytes)
    return Layout(file_bytes, head_bytes, block_bytes, spans, block)


class Sidecar(NamedTuple):
    """What a sidecar says."""

    file_bytes: int
    head_bytes: int
    block_bytes: int
    head_checksum: int
    checksums: array[int]


def is_sidecar(path: str) -> bool:
    """Whether a file begins as sidecars do; False where it cannot be read."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def sidecar_path(path: PathLike, where: PathLike | None = None) -> str:
    """Return the sidecar of a file: beside it, in the folder `where`, or the file `where`."""
    name = os.fsdecode(encode_path(path))
    if where is None:
        return name + SUFFIX
    chosen = os.fsdecode(encode_path(where))
    is_folder = chosen.endswith("/") or Path(chosen).is_dir()
    return str(Path(chosen) / (Path(name).name + SUFFIX)) if is_folder else chosen


def format_sidecar(sidecar: Sidecar) -> bytes:
    """Return the bytes of a sidecar."""
    fields = _FIELDS.pack(
        _MAGIC,
        _VERSION,
        0,
        sidecar.file_bytes,
        sidecar.head_bytes,
        sidecar.block_bytes,
        len(sidecar.checksums),
        sidecar.head_checksum,
        0,
    )[:-8]
    checksums = _little_endian(sidecar.checksums).tobytes()
    return fields + _checksum(fields) + checksums + _checksum(checksums)


def parse_sidecar(data: bytes) -> Sidecar:
    """Parse a sidecar, untrusted input as it is.

    Raises
    ------
    SidecarError
        When anything in it is not as the format says.
    """
    return _parse_checksums(_parse_fields(data), data)


def _parse_checksums(fields: _Fields, data: bytes) -> Sidecar:
    if len(data) != _size_of(fields):
        _refuse_size(len(data), fields)
    body = memoryview(data)[_FIELDS.size :]
    if body[-8:] != _checksum(body[:-8]):
        raise SidecarError("it is damaged: its checksums do not have theirs")
    checksums = array("Q")
    checksums.frombytes(body[:-8])
    return Sidecar(
        fields.file_bytes,
        fields.head_bytes,
        fields.block_bytes,
        fields.head_checksum,
        _little_endian(checksums),
    )


def _size_of(fields: _Fields) -> int:
    return _FIELDS.size + 8 * fields.blocks + 8


def _refuse_size(size_bytes: int, fields: _Fields) -> NoReturn:
    raise SidecarError(f"it has {size_bytes} bytes, not those of {fields.blocks} checksums")


class _Fields(NamedTuple):
    magic: bytes
    version: int
    padding: int
    file_bytes: int
    head_bytes: int
    block_bytes: int
    blocks: int
    head_checksum: int
    checksum: int


def _parse_fields(data: bytes) -> _Fields:
    if len(data) < _FIELDS.size or not data.startswith(_MAGIC):
        raise SidecarError("it is no file of checksums")
    fields = _Fields(*_FIELDS.unpack_from(data))
    if fields.version != _VERSION:
        raise SidecarError(f"its version is {fields.version}; this hippogriff reads {_VERSION}")
    if data[_FIELDS.size - 8 : _FIELDS.size] != _checksum(data[: _FIELDS.size - 8]):
        raise SidecarError("it is damaged: its fields do not have their checksum")
    _, _, padding, file_bytes, head_bytes, block_bytes, count, _, _ = fields
    # Each of a header's tensors may end with a short block.
    count_max = file_bytes // _BLOCK_BYTES_MIN + head_bytes // _ENTRY_BYTES_MIN + 1
    if (
        padding
        or not _BLOCK_BYTES_MIN <= block_bytes <= _BLOCK_BYTES_MAX
        or not head_bytes <= file_bytes <= _FILE_BYTES_MAX
        or head_bytes > _HEAD_BYTES_MAX
        or count > count_max
    ):
        raise SidecarError(
            f"it speaks of {file_bytes} bytes, {head_bytes} of a head, {count} blocks of "
            f"{block_bytes}"
        )
    return fields


def read_sidecar(path: str, file_path: str, file_bytes: int) -> Sidecar:
    """Read the sidecar of a file that has so many bytes; errors name both.

    Raises
    ------
    ChecksumMismatch
        When it was made of a file of another size.
    SidecarError
        When it is none.
    IoError
        When it cannot be read; also FileNotFoundError.
    """
    descriptor = _open_sidecar(path)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise SidecarError("it is no regular file")
        data = _read(descriptor, min(facts.st_size, _READ_BYTES))
        fields = _parse_fields(data)
        if fields.file_bytes == file_bytes:
            size = _size_of(fields)
            if facts.st_size != size:
                _refuse_size(facts.st_size, fields)
            return _parse_checksums(fields, data + _read(descriptor, size - len(data)))
    except SidecarError as error:
        raise SidecarError(f"checksums {path}: {error}", object=path) from None
    except HippogriffError:
        raise  # The library could not be started, which is no fault of this file.
    except OSError as error:
        raise io_error("read", path, error) from None
    finally:
        os.close(descriptor)
    raise ChecksumMismatch(
        f"{file_path} has {file_bytes} bytes, and its checksums in {path} are of "
        f"{fields.file_bytes}: it is not the file they were made of",
        object=file_path,
    )


def _read(descriptor: int, size: int) -> bytes:
    """Read so many bytes, or what there is."""
    data = b""
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def _open_sidecar(path: str) -> int:
    try:
        # A pipe must not keep us waiting for its other end.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        failure = io_error("open", path, error)
        failure.args = (f"{failure}; `hippogriff checksum FILE` makes the checksums of a file",)
        raise failure from None
    except OSError as error:
        raise io_error("read", path, error) from None


def check_count(sidecar: Sidecar, block_count: int, path: str) -> None:
    """Refuse checksums that are not as many as the blocks of the file `path`.

    Raises
    ------
    SidecarError
        When their numbers differ.
    """
    if len(sidecar.checksums) != block_count:
        raise SidecarError(
            f"{path} has {block_count} blocks, and its checksums are {len(sidecar.checksums)}: "
            "make them anew with `hippogriff checksum`",
            object=path,
        )


class SidecarWriter:
    """A sidecar on its way: all on the disk under a temporary name, then renamed."""

    def __init__(self, path: str, sidecar: Sidecar, of: str) -> None:
        self._replacement = Replacement(path)
        try:
            self._write(format_sidecar(sidecar), of)
        except OSError as error:
            failure = io_error("write", path, error)
            self.discard(failure)
            raise failure from None
        except BaseException as error:
            self.discard(error)
            raise

    def _write(self, data: bytes, of: str) -> None:
        # Checksums of a file that few may read tell of it what it holds, if that is short.
        mode = 0o666
        with contextlib.suppress(OSError):
            mode &= Path(of).stat().st_mode | 0o222
        self._replacement.create(mode)
        with Path(os.fsdecode(self._replacement.temporary)).open("r+b") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def remove_old(self) -> None:
        """Remove the file whose name it will take, and have that on the disk."""
        self._replacement.remove_old()

    def commit(self) -> None:
        """Let it take its name."""
        self._replacement.commit()

    def discard(self, failure: BaseException | None = None) -> None:
        """Remove it. Where it stays, `failure` has that as a note."""
        self._replacement.discard(failure)


def _checksum(data: bytes | memoryview) -> bytes:
    return checksum_bytes(data).to_bytes(8, "little")


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return numbers
    swapped = array("Q", numbers)
    swapped.byteswap()
    return swapped
