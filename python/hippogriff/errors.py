"""Exceptions: one class for each status of the library, each also a Python exception of its kind.

The names are those of hippogriff_status, without a suffix, in C, C++ and Python alike.
"""
# ruff: noqa: N818

from __future__ import annotations

import builtins
import os
from errno import EMFILE
from typing import Any, NamedTuple

from hippogriff._abi import NO_OFFSET, Error, Status
from hippogriff._library import lib

Ranges = tuple[tuple[int, int], ...]


class HippogriffError(RuntimeError):
    """Something hippogriff could not do.

    Parameters
    ----------
    message : str
        The whole sentence; also ``str(error)``.

    Attributes
    ----------
    status : int
        The code, as in ``hippogriff_status``.
    operation : str
        What was tried, for example ``"read"`` or ``"copy to device"``.
    object : str
        The path or the device.
    offset : int or None
        In bytes, in the file.
    errno : int or None
        Of the system call that failed.
    device_status : int or None
        The CUresult, when the device failed.
    missing : tuple of (int, int)
        Offset and size, in bytes of the file, of what is not where it should be.
    """

    default_status: Status = Status.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        operation: str = "",
        object: str = "",  # noqa: A002
        offset: int | None = None,
        errno: int | None = None,
        device_status: int | None = None,
        missing: Ranges = (),
    ) -> None:
        super().__init__(message)
        self.status = int(self.default_status if status is None else status)
        self.operation = operation
        self.object = object
        self.offset = offset
        self.errno = errno
        self.device_status = device_status
        self.missing = missing

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            name: getattr(self, name)
            for name in ("operation", "object", "offset", "errno", "device_status", "missing")
        }
        return _rebuild_as, (type(self), str(self), self.status, fields)


class InvalidArgument(HippogriffError, ValueError):
    """The caller's mistake; nothing was done."""

    default_status = Status.INVALID_ARGUMENT


class NotInitialized(HippogriffError):
    """The runtime was stopped while it was needed."""

    default_status = Status.NOT_INITIALIZED


class Forked(HippogriffError):
    """The object belongs to the process that this one was forked from, or CUDA was used there."""

    default_status = Status.FORKED


class Busy(HippogriffError):
    """The memory overlaps a transfer in flight, or arrays still use the runtime."""

    default_status = Status.BUSY


class Unsupported(HippogriffError):
    """The route or feature does not exist here; the message says why."""

    default_status = Status.UNSUPPORTED


class IoError(HippogriffError, OSError):
    """The file system said no.

    ``errno``, ``strerror`` and ``filename`` are set, and the error is also an instance of the
    exception Python has for the errno, for example ``FileNotFoundError``.
    """

    default_status = Status.IO_ERROR

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.strerror = os.strerror(self.errno) if self.errno else None
        self.filename = self.object or None


class ShortFile(HippogriffError, EOFError):
    """The file was truncated meanwhile; ``missing`` says which bytes are not there."""

    default_status = Status.SHORT_FILE


class DeviceError(HippogriffError):
    """The device said no; ``device_status`` tells why."""

    default_status = Status.DEVICE_ERROR


class OutOfDeviceMemory(HippogriffError, MemoryError):
    """There was no room on the device in time."""

    default_status = Status.OUT_OF_DEVICE_MEMORY


class OutOfHostMemory(HippogriffError, MemoryError):
    """The host refused memory."""

    default_status = Status.OUT_OF_HOST_MEMORY


class Cancelled(HippogriffError):
    """The transfer was cancelled; ``missing`` says which bytes were not moved."""

    default_status = Status.CANCELLED


class TimedOut(HippogriffError, TimeoutError):
    """A wait ended before the transfer did."""

    default_status = Status.TIMED_OUT


class InternalError(HippogriffError):
    """A bug of hippogriff's: please report it."""

    default_status = Status.INTERNAL


class Mismatch(NamedTuple):
    """A block of a file that does not have its checksum.

    Attributes
    ----------
    tensor : str
        The tensor's name; ``""`` for the head of a file, and for files without tensors.
    offset, size : int
        The block's bytes in the file.
    tensor_offset : int
        Where it begins in the tensor, in bytes.
    expected, found : int
        XXH3 of it, 64 bits.
    """

    tensor: str
    offset: int
    size: int
    tensor_offset: int
    expected: int
    found: int

    def __str__(self) -> str:
        end = self.offset + self.size
        where = f"bytes {self.offset} to {end} of the file"
        if self.tensor:
            last = self.tensor_offset + self.size
            where = f"tensor {self.tensor!r}, bytes {self.tensor_offset} to {last} ({where})"
        return f"{where}: expected {self.expected:#018x}, found {self.found:#018x}"


class ChecksumMismatch(HippogriffError):
    """A file does not have the bytes that its checksums were made of.

    Attributes
    ----------
    mismatches : tuple of Mismatch
        The blocks that differ, ascending; none when it is the file's size that does. ``missing``
        says the same as offsets and sizes, adjacent ones put together.
    """

    default_status = Status.IO_ERROR

    def __init__(
        self, message: str, *, mismatches: tuple[Mismatch, ...] = (), **fields: Any
    ) -> None:
        super().__init__(message, operation="verify", **fields)
        self.mismatches = mismatches

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {"object": self.object, "missing": self.missing, "mismatches": self.mismatches}
        return _rebuild_mismatch, (str(self), fields)


def _rebuild_mismatch(message: str, fields: dict[str, Any]) -> ChecksumMismatch:
    return ChecksumMismatch(message, **fields)


_BY_STATUS: dict[int, type[HippogriffError]] = {
    kind.default_status: kind
    for kind in (
        InvalidArgument,
        NotInitialized,
        Forked,
        Busy,
        Unsupported,
        IoError,
        ShortFile,
        DeviceError,
        OutOfDeviceMemory,
        OutOfHostMemory,
        Cancelled,
        TimedOut,
        InternalError,
    )
}
_NOT_JOINED = (OSError, TimeoutError)
_io_errors: dict[type[OSError], type[HippogriffError]] = dict.fromkeys(_NOT_JOINED, IoError)


def _io_error_class(errno: int | None) -> type[HippogriffError]:
    """IoError, combined with the class that Python maps the errno to."""
    return _joined(type(OSError(errno, "")) if errno else OSError)


def __getattr__(name: str) -> Any:
    """Find the combined classes, whose names are all that pickle keeps of them."""
    mapped = getattr(builtins, name, None)
    if isinstance(mapped, type) and issubclass(mapped, OSError) and mapped not in _NOT_JOINED:
        return _joined(mapped)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _joined(mapped: type[OSError]) -> type[HippogriffError]:
    if mapped not in _io_errors:
        _io_errors[mapped] = type(mapped.__name__, (IoError, mapped), {"__module__": __name__})
    return _io_errors[mapped]


def _rebuild_as(
    kind: type[HippogriffError], message: str, status: int, fields: dict[str, Any]
) -> HippogriffError:
    """Make what was pickled again."""
    return kind(message, status=status, **fields)


def _rebuild(message: str, status: int, fields: dict[str, Any]) -> HippogriffError:
    if status == Status.IO_ERROR:
        kind = _io_error_class(fields["errno"])
    else:
        kind = _BY_STATUS.get(status, HippogriffError)
    return kind(message, status=status, **fields)


# No path that a system call takes is longer, so none that a file has is shortened.
_PATH_CHARACTERS_MAX = 4096
_PATH_CHARACTERS_SHOWN = 100


def _shown(path: str) -> str:
    """Return a path as messages have it."""
    if len(path) <= _PATH_CHARACTERS_MAX:
        return path
    return f"{path[:_PATH_CHARACTERS_SHOWN]}... ({len(path)} characters)"


def from_struct(error: Error, missing: Ranges = ()) -> HippogriffError:
    """Make the exception for a `hippogriff_error`."""
    status = int(error.status)
    message = _text(error.message) or _text(lib.hippogriff_status_name(status))
    name = _text(error.object)
    if _shown(name) != name:
        message = message.replace(name, _shown(name))
    fields = {
        "operation": _text(error.operation),
        "object": name,
        "offset": None if error.offset == NO_OFFSET else int(error.offset),
        "errno": int(error.errno_value) or None,
        "device_status": int(error.device_status) or None,
        "missing": missing,
    }
    return _rebuild(message, status, fields)


# What to do, where the system does not say so itself.
_REMEDIES = {EMFILE: "raise the limit of open files by ulimit -n"}


def io_error(operation: str, path: str, error: OSError) -> HippogriffError:
    """Make the exception for a system call of Python's."""
    number = error.errno or 0
    words, more = os.strerror(number), error.strerror or ""
    if more.startswith(words):
        words = more
    message = f"{operation} {_shown(path)}: {words} (errno {number})"
    if number in _REMEDIES:
        message += f"; {_REMEDIES[number]}"
    fields = {"operation": operation, "object": path, "errno": number or None}
    return _rebuild(message, Status.IO_ERROR, fields)


def check(status: int) -> None:
    """Raise what the calling thread's last call failed with, unless `status` is 0."""
    if status == Status.OK:
        return
    error = Error()
    lib.hippogriff_last_error(error)
    if error.status == Status.OK:
        name = _text(lib.hippogriff_status_name(status))
        raise _rebuild(name, status, {"errno": None})
    raise from_struct(error)


def _text(value: bytes | None) -> str:
    return os.fsdecode(value) if value else ""
