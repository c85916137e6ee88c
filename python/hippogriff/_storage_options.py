"""What an array in storage is opened with: as its caller says it, and as C wants it."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, NamedTuple

from hippogriff import _storage_abi
from hippogriff._runtime import encode_device, encode_path
from hippogriff._sizes import as_bytes
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hippogriff._runtime import PathLike


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


def find_paths(path: PathLike | Sequence[PathLike]) -> list[PathLike]:
    """Return the paths that are meant, one at least.

    Raises
    ------
    InvalidArgument
        When there is none.
    """
    paths = [path] if isinstance(path, str | bytes | os.PathLike) else list(path)
    if not paths:
        raise InvalidArgument("an array has at least one file")
    return paths


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
    options.layout = None if wishes.layout is None else wishes.layout.encode()
    options.stripe_size = _bytes("stripe", wishes.stripe)
    options.overlay_folder = None if wishes.overlay is None else encode_path(wishes.overlay)
    options.io = wishes.io.encode()
    options.mode = wishes.mode.encode()
    options.device = encode_device(device)
    options.cache_size = _bytes("cache", wishes.cache)
    options.line_size = _bytes("line", wishes.line, 2**32)
    options.offset = _bytes("offset", wishes.offset)
    return options


def _bytes(name: str, value: int | str, limit: int = 2**63) -> int:
    size = as_bytes(name, value)
    if not 0 <= size < limit:
        raise InvalidArgument(f"{name}={size} is negative, too large or empty")
    return int(size)
