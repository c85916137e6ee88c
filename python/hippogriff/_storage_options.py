"""What an array in storage is opened with: as its caller says it, and as C wants it."""

from __future__ import annotations

import ctypes
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from hippogriff import _storage_abi
from hippogriff._dtypes import known_size_bytes
from hippogriff._interrupts import interruptible, let_interrupt
from hippogriff._library import lib
from hippogriff._runtime import default_device, device_name, encode_device, encode_path
from hippogriff._sizes import as_bytes
from hippogriff.errors import InvalidArgument, check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hippogriff._runtime import PathLike

    Place: TypeAlias = "PathLike | OpenFile"

# As numpy.memmap has them.
_MODES = {"readonly": "r", "copyonwrite": "c", "readwrite": "r+", "write": "w+"}


class OpenFile(Protocol):
    """What `open` gives: a file that has a descriptor, and with luck a name."""

    def fileno(self) -> int:
        """Return the descriptor."""


class Wishes(NamedTuple):
    """The parameters of `StorageArray` of these names."""

    mode: str
    cache: int | str
    line: int | str
    offset: int | str
    layout: str | None
    stripe: int | str
    overlay: PathLike | None
    io: str
    load: str


def find_device(device: object) -> str:
    """Return a device's name, of None the default one's.

    Raises
    ------
    InvalidArgument
        When it is an empty name.
    """
    name = default_device() if device is None else device_name(device)
    if not name:
        raise InvalidArgument(f"device is {device!r}, which names none; None is the default one")
    return name


def find_mode(mode: str) -> str:
    """Return a mode in short.

    Raises
    ------
    InvalidArgument
        When there is no such mode.
    """
    short = _MODES.get(mode, mode) if isinstance(mode, str) else None
    if short not in _MODES.values():
        words = ", ".join(_MODES.values())
        raise InvalidArgument(
            f"mode is {mode!r:.100}, not one of {words}, or of {', '.join(_MODES)}"
        )
    return short


def find_paths(path: Place | Sequence[Place], wishes: Wishes) -> list[PathLike]:
    """Return the paths that are meant, one at least; that of a file object is its name.

    Raises
    ------
    InvalidArgument
        When there is none, or a file object has no name by which the file can be found, or for one
        that is in no sequence there are wishes how several are laid out.
    """
    given: Any = path
    if _is_one(given) and (wishes.layout is not None or wishes.stripe):
        raise InvalidArgument("layout and stripe are for several files, and path is one: [path]?")
    paths = [_path_of(each) for each in ([given] if _is_one(given) else given)]
    if not paths:
        raise InvalidArgument("an array has at least one file")
    return paths


def _is_one(path: Any) -> bool:
    is_path = isinstance(path, str | bytes | os.PathLike)
    return is_path or hasattr(path, "fileno") or not hasattr(path, "__iter__")


def _path_of(given: Any) -> PathLike:
    if isinstance(given, os.PathLike) or not hasattr(given, "fileno"):
        return os.fspath(given)  # type: ignore[no-any-return]
    name = getattr(given, "path", getattr(given, "name", None))
    try:
        there = os.fstat(given.fileno())
        given_name = os.fspath(name)  # type: ignore[arg-type]
        if os.path.samestat(os.stat(given_name), there):  # noqa: PTH116 (bytes, too)
            getattr(given, "flush", int)()  # what it still has belongs to the file
            return given_name
    except (OSError, TypeError, ValueError):
        pass
    raise InvalidArgument(
        f"{given!r:.200} is no open file that is to be found by its name: give the path"
    )


def size_of(shape: int | Sequence[int] | None, itemsize_bytes: int) -> int:
    """Return the bytes of an array; 0 where the file has to tell.

    Raises
    ------
    InvalidArgument
        When it has no elements, or too many.
    """
    size_bytes = known_size_bytes(shape, itemsize_bytes)
    if size_bytes is not None and not 0 < size_bytes < 2**63:
        what = "too many elements" if size_bytes else "no elements, and an array has one at least"
        raise InvalidArgument(f"shape {shape!r:.100} has {what}")
    return size_bytes or 0


def refuse_longer(path: PathLike, options: _storage_abi.ArrayOptions) -> None:
    """Refuse an array of mode "r+" that ends beyond its file.

    `numpy.memmap` makes the file longer. A file that lost its end would get zeros there, unnoticed.

    Raises
    ------
    InvalidArgument
        When it does.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 (bytes, too)
    except OSError:
        return  # Opening it says more.
    end = int(options.offset + options.size)
    if stat.S_ISREG(status.st_mode) and status.st_size < end:
        name = os.fsdecode(path)
        raise InvalidArgument(
            f"open array {name}: it ends at byte {end} of a file of {status.st_size} bytes, which "
            f'mode "r+" does not make longer: os.truncate(path, {end}) does, before',
            object=name,
        )


def make_options(
    paths: Sequence[PathLike], wishes: Wishes, device: str
) -> _storage_abi.ArrayOptions:
    """Return all but the size as C wants it.

    Raises
    ------
    InvalidArgument
        When something cannot be.
    """
    options = _storage_abi.ArrayOptions(struct_size=ctypes.sizeof(_storage_abi.ArrayOptions))
    if len(paths) == 1:
        options.path = encode_path(paths[0])
    else:
        options.paths = (ctypes.c_char_p * len(paths))(*map(encode_path, paths))
        options.path_count = len(paths)
    options.mode = wishes.mode.encode()
    options.io = _text("io", wishes.io)
    options.load = _text("load", wishes.load)
    options.device = encode_device(device)
    options.cache_size = _bytes("cache", wishes.cache, at_least=1)
    options.line_size = _bytes("line", wishes.line, 2**32, at_least=1)
    options.offset = _bytes("offset", wishes.offset)
    options.layout = None if wishes.layout is None else _text("layout", wishes.layout)
    options.stripe_size = _bytes("stripe", wishes.stripe)
    if options.stripe_size % options.line_size:
        raise InvalidArgument(
            f"stripe={options.stripe_size} is not a multiple of the line, {options.line_size} bytes"
        )
    if wishes.overlay is not None:
        if wishes.mode != "c":
            raise InvalidArgument(f'overlay is for mode "c", and the mode is "{wishes.mode}"')
        options.overlay_folder = encode_path(wishes.overlay)
    return options


def open_array(options: _storage_abi.ArrayOptions, handle: ctypes.c_void_p) -> None:
    """Open an array; Ctrl-C ends that while it is loaded. The handle may be there all the same.

    Raises
    ------
    HippogriffError
        When it cannot be.
    """
    with interruptible() as raised:
        let_interrupt(options, raised)
        status = lib.hippogriff_array_open(options, handle)
    if raised:
        raise raised[0]
    check(status)


def _text(name: str, value: object) -> bytes:
    if not isinstance(value, str) or "\0" in value or not value.isascii():
        raise InvalidArgument(f"{name} is {value!r:.100}, which is not one of the words for it")
    return value.encode()


def _bytes(name: str, value: int | str, limit: int = 2**63, *, at_least: int = 0) -> int:
    size = as_bytes(name, value)
    if not at_least <= size < limit:
        raise InvalidArgument(f"{name}={size} is {'too large' if size >= limit else 'too small'}")
    return int(size)
