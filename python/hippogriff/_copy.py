"""`hippogriff copy`: a file through a device into another file, in pieces that fit the device."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hippogriff import _file, _runtime
from hippogriff._array import empty
from hippogriff._measurement import Sample, Stopwatch
from hippogriff._replacement import Replacement
from hippogriff.errors import HippogriffError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from hippogriff._array import Array
    from hippogriff._file import File
    from hippogriff._transfer import Transfer

    Tell = Callable[[int, str], None]

_ALIGNMENT_BYTES = 2 << 20
_COMPARE_BYTES = 8 << 20


@dataclass(frozen=True)
class CopyResult:
    """What a copy did, both ways; `verified` is None when nobody asked."""

    device: str
    size_bytes: int
    pieces: int
    send: Sample
    recv: Sample
    verified: bool | None

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "device": self.device,
            "bytes": self.size_bytes,
            "pieces": self.pieces,
            "send": self.send.as_dict(),
            "recv": self.recv.as_dict(),
            "verified": self.verified,
        }


@dataclass(frozen=True)
class CopyOptions:
    """How to copy; `piece_bytes` bounds what lies on the device at a time."""

    device: str | None = None
    route: str = "auto"
    verify: bool = False
    piece_bytes: int | None = None


def copy_file(source: Path, destination: Path, options: CopyOptions, tell: Tell) -> CopyResult:
    """Copy a file through a device; the destination appears as a whole or not at all.

    A block device as the destination is written in place, from its beginning.

    `tell` is called with the bytes moved so far, both ways counted, and with a note.

    Raises
    ------
    InvalidArgument
        When source and destination are one file, or one of them is no regular file.
    HippogriffError
        When bytes cannot be moved, or do not compare equal afterwards.
    """
    if destination.is_dir():
        destination /= source.name
    if destination.exists() and source.exists() and destination.samefile(source):
        raise InvalidArgument(f"{source} and {destination} are one file", object=str(source))
    if source.exists() and not (source.is_file() or source.is_block_device()):
        raise InvalidArgument(f"{source} is no regular file or block device", object=str(source))
    if destination.is_block_device():
        result = _copy_into(source, destination, "r+", options, tell)
        if result.verified is False:
            raise HippogriffError(f"{source} and its copy on {destination} differ")
        return result
    replacement = Replacement(destination)
    try:
        if source.exists():  # else what is wrong with it is said when it is opened
            replacement.create(stat.S_IMODE(source.stat().st_mode) & 0o777)
        temporary = Path(os.fsdecode(replacement.temporary))
        result = _copy_into(source, temporary, "w", options, tell)
        if result.verified is False:
            raise HippogriffError(f"{source} and its copy differ; {destination} was not written")
        replacement.commit()
    except BaseException as error:
        replacement.discard(error)
        raise
    return result


def _copy_into(
    source: Path, target: Path, mode: str, options: CopyOptions, tell: Tell
) -> CopyResult:
    """Copy to what is at `target`, whatever happens there; `verified` says how it compares."""
    device = _runtime.device_name(options.device) or _runtime.default_device()
    with _file.File(source) as reader:
        size_bytes = reader.size
        if size_bytes == 0:
            _file.refuse_without_size(source)
        piece_bytes = min(size_bytes, options.piece_bytes or _half_of_free(device))
        with _file.File(target, mode) as writer, empty(piece_bytes, device=device) as array:
            if mode == "r+" and size_bytes > writer.size:
                raise InvalidArgument(
                    f"{source} has {size_bytes} bytes, and {target} only {writer.size}"
                )
            mover = _Mover(reader, writer, array, options.route, tell)
            mover.run(size_bytes)
    verified = _same(source, target, size_bytes) if options.verify else None
    send, recv = mover.samples(size_bytes)
    return CopyResult(device, size_bytes, mover.pieces, send, recv, verified)


class _Mover:
    """Moves piece after piece through one array, and keeps the time of each way."""

    def __init__(self, reader: File, writer: File, array: Array, route: str, tell: Tell) -> None:
        self.pieces = 0
        self._reader = reader
        self._writer = writer
        self._array = array
        self._route = route
        self._tell = tell
        self._moved_bytes = 0
        self._watches = {"send": Stopwatch(), "recv": Stopwatch()}
        self._routes: dict[str, list[str]] = {"send": [], "recv": []}

    def run(self, size_bytes: int) -> None:
        """Move the whole file."""
        offset = 0
        while offset < size_bytes:
            piece = min(self._array.nbytes, size_bytes - offset)
            with self._watches["send"]:
                self._follow(
                    "send",
                    self._reader.read_into_async(self._array, offset, piece, route=self._route),
                )
            with self._watches["recv"]:
                self._follow(
                    "recv",
                    self._writer.write_from_async(
                        self._array,
                        offset,
                        piece,
                        route=self._route,
                        durable=offset + piece == size_bytes,
                    ),
                )
            offset += piece
            self.pieces += 1

    def samples(self, size_bytes: int) -> tuple[Sample, Sample]:
        """Tell the way to the device and the way back."""
        send, recv = (
            Sample(
                ", ".join(self._routes[way]) or "none",
                size_bytes,
                self._watches[way].seconds,
                self._watches[way].cpu_seconds,
            )
            for way in ("send", "recv")
        )
        return send, recv

    def _follow(self, way: str, transfer: Transfer[int]) -> None:
        before = self._moved_bytes
        note = ("to" if way == "send" else "from") + " the device"
        transfer.complete(None, lambda progress: self._tell(before + progress.bytes_done, note))
        self._moved_bytes = before + transfer.progress.bytes_total
        route = transfer.route or "auto"
        if route not in self._routes[way]:
            self._routes[way].append(route)


def _half_of_free(device: str) -> int:
    """Half of what the device has free, so that others find room as well."""
    with empty(1, device=device):
        half = _runtime.memory_free_bytes(device) // 2
    return max(half // _ALIGNMENT_BYTES, 1) * _ALIGNMENT_BYTES


def _same(one: Path, other: Path, size_bytes: int) -> bool:
    with one.open("rb", buffering=0) as first, other.open("rb", buffering=0) as second:
        done = 0
        while done < size_bytes:
            block = first.read(_COMPARE_BYTES)
            if not block or block != second.read(len(block)):
                return False
            done += len(block)
        longer = other.is_block_device()  # than what was copied
        return not first.read(1) and (longer or not second.read(1))
