"""The directory of an `.npz` file: which arrays it has, and where their bytes truly are."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, NamedTuple

from hippogriff.arrays._header import ArrayFormatError, naming
from hippogriff.errors import HippogriffError, Unsupported, io_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from hippogriff._file import File

# Signature, flags, method, lengths of the name and of the extra field.
_LOCAL_HEADER = struct.Struct("<4s2xHH16xHH")
SIGNATURE = b"PK\3\4"
_EMPTY = b"PK\5\6"
# Encrypted, patched, strongly encrypted, with masked headers.
_REFUSED_FLAGS = 1 | 1 << 5 | 1 << 6 | 1 << 13
_UTF8_FLAG = 1 << 11
# Deflate makes at most 1032 bytes of one.
_DEFLATE_RATIO_MAX = 1032
_SLACK_BYTES = 1 << 16
_PIECE_BYTES = 1 << 20
# What zipfile and zlib raise for archives that are none.
_MALFORMED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    ValueError,
    OverflowError,
    EOFError,
    IndexError,
    RuntimeError,
)


class Member(NamedTuple):
    """One array: its name without ".npy"; its bytes in the file begin at `offset`."""

    name: str
    info: zipfile.ZipInfo
    offset: int
    size_bytes: int
    compressed: bool


class Archive:
    """The directory of an open `.npz` file; a context manager."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __enter__(self) -> Archive:
        with self.checked(), contextlib.ExitStack() as stack:
            stream = stack.enter_context(self._open())
            begin = stream.read(4)
            if begin not in {SIGNATURE, _EMPTY}:
                raise ArrayFormatError(f"it begins with {begin!r}, not as .npz does")
            self._zip = stack.enter_context(zipfile.ZipFile(stream))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _open(self) -> IO[bytes]:
        with self._file.borrowed() as descriptor:
            copied = os.dup(descriptor)
        try:
            return os.fdopen(copied, "rb")
        except BaseException:  # of a folder, for one
            os.close(copied)
            raise

    def where(self, name: str | None = None) -> str:
        """Say in an error which file, and which array, it is about."""
        return self._file.path if name is None else f"{self._file.path}: {name!r:.200}"

    @contextlib.contextmanager
    def checked(self, name: str | None = None) -> Iterator[None]:
        """Turn what is raised in a scope into our errors, which name the file and the array."""
        where = self.where(name)
        try:
            with naming(where):
                yield
        except HippogriffError:
            raise
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise io_error("read", self._file.path, error) from None
            words = f"{where}: it names an impossible place"
            raise ArrayFormatError(words, object=where) from None
        except _MALFORMED as error:
            words = f"{where}: it is no sound ZIP archive: {error}"
            raise ArrayFormatError(words, object=where) from None

    def find(self, names: Iterable[str] | None) -> list[Member]:
        """Find arrays, or all, and where they are.

        Raises
        ------
        ArrayFormatError
            When there is no such name, two of one, or the archive is not sound.
        Unsupported
            When one is encrypted, or compressed otherwise than by deflate.
        """
        infos: dict[str, zipfile.ZipInfo] = {}
        with self.checked():
            for info in self._zip.infolist():
                name = info.filename.removesuffix(".npy")
                if name in infos:
                    raise ArrayFormatError(f"it has {name!r:.200} twice")
                if not info.is_dir():
                    infos[name] = info
            wanted = list(infos) if names is None else list(dict.fromkeys(names))
            for name in wanted:
                if name not in infos:
                    raise ArrayFormatError(f"it has no array {name!r:.200}")
        members = []
        for name in wanted:
            with self.checked(name):
                members.append(self._locate(name, infos[name]))
        _check_disjoint(members, self._file.path)
        return members

    def _locate(self, name: str, info: zipfile.ZipInfo) -> Member:
        with self._file.borrowed() as descriptor:
            head = os.pread(descriptor, _LOCAL_HEADER.size, info.header_offset)
            if len(head) < _LOCAL_HEADER.size:
                raise ArrayFormatError("its header is beyond the file")
            signature, flags, method, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(head)
            begin = info.header_offset + _LOCAL_HEADER.size
            raw_name = os.pread(descriptor, name_bytes, begin)
        if signature != SIGNATURE or method != info.compress_type:
            raise ArrayFormatError("its header does not agree with the directory")
        if raw_name.decode("utf-8" if flags & _UTF8_FLAG else "cp437") != info.orig_filename:
            raise ArrayFormatError(f"its header has the name {raw_name!r:.200}")
        if (flags | info.flag_bits) & _REFUSED_FLAGS:
            raise Unsupported("it is encrypted or patched")
        offset = begin + name_bytes + extra_bytes
        if offset + info.compress_size > self._zip.start_dir:
            raise ArrayFormatError(
                f"it would end at {offset + info.compress_size}, in the directory"
            )
        stored = method == zipfile.ZIP_STORED
        if not stored and method != zipfile.ZIP_DEFLATED:
            raise Unsupported(f"it is compressed by method {method}: deflate and none are known")
        if stored and info.compress_size != info.file_size:
            raise ArrayFormatError(
                f"it has {info.compress_size} bytes, and {info.file_size} as it was"
            )
        if info.file_size > info.compress_size * _DEFLATE_RATIO_MAX + _SLACK_BYTES:
            raise ArrayFormatError(
                f"{info.compress_size} bytes cannot hold the {info.file_size} it claims"
            )
        return Member(name, info, offset, info.file_size, not stored)

    def open(self, member: Member) -> MemberStream:
        """Open an array to read it decompressed."""
        with self.checked(member.name):
            return MemberStream(self, member, self._zip.open(member.info))

    def verify(self, member: Member, add: Callable[[int], object]) -> None:
        """Compare a stored array's bytes with its CRC-32; `add` is told how much is done.

        Raises
        ------
        ArrayFormatError
            When they differ.
        """
        if member.compressed:
            return
        crc, done = 0, 0
        piece = bytearray(min(_PIECE_BYTES, member.size_bytes))
        with self.checked(member.name), self._file.borrowed() as descriptor:
            while done < member.size_bytes:
                view = memoryview(piece)[: member.size_bytes - done]
                count = os.preadv(descriptor, [view], member.offset + done)
                if count == 0:
                    raise ArrayFormatError("the file ends early; was it truncated meanwhile?")
                crc = zlib.crc32(view[:count], crc)
                done += count
                add(count)
            if crc != member.info.CRC:
                raise ArrayFormatError(
                    f"bytes {member.offset} to {member.offset + done} have the CRC-32 {crc:08x}, "
                    f"not {member.info.CRC:08x}"
                )


class MemberStream:
    """A compressed array's bytes, in order. Errors are ours; the CRC-32 is checked at the end."""

    def __init__(self, archive: Archive, member: Member, stream: IO[bytes]) -> None:
        self._archive = archive
        self._member = member
        self._stream = stream

    def __enter__(self) -> MemberStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    def read(self, size_bytes: int) -> bytes:
        """Return at most so many of the next bytes; none at the end."""
        with self._archive.checked(self._member.name):
            return self._stream.read(size_bytes)

    def pieces(self, size_bytes: int) -> Iterator[bytes]:
        """Yield the next bytes, exactly so many, a piece at a time."""
        while size_bytes > 0:
            piece = self.read(min(_PIECE_BYTES, size_bytes))
            if not piece:
                with self._archive.checked(self._member.name):
                    raise ArrayFormatError(f"it ends {size_bytes} bytes early")
            yield piece
            size_bytes -= len(piece)

    def finish(self) -> None:
        """Read what is left."""
        while self.read(_PIECE_BYTES):
            pass


def _check_disjoint(members: list[Member], path: str) -> None:
    end, before = 0, ""
    for member in sorted(members, key=lambda member: member.info.header_offset):
        if member.info.header_offset < end:
            words = f"{path}: {member.name!r:.100} overlaps {before!r:.100}"
            raise ArrayFormatError(words, object=path)
        end, before = member.offset + member.info.compress_size, member.name
