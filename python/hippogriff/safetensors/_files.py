"""Files of tensors: which a path means, opened, their headers read."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._file import File, expect_bytes
from hippogriff.errors import HippogriffError, InvalidArgument, io_error
from hippogriff.safetensors._flat import STRING
from hippogriff.safetensors._header import (
    HEADER_BYTES_MAX,
    Header,
    SafetensorError,
    header_bytes,
    parse_header,
    stream_columns,
    unique,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from hippogriff._runtime import PathLike
    from hippogriff.safetensors._tensor import Columns

_INDEX_SUFFIX = ".index.json"
# An index has two, and what else its writer tells.
_INDEX_OBJECTS_MAX = 1 << 16
_STRING = re.compile(f"{STRING}?", re.DOTALL)


@contextlib.contextmanager
def _naming(file: File) -> Iterator[None]:
    """Name the file in what is wrong with it."""
    try:
        yield
    except SafetensorError as error:
        raise SafetensorError(f"{file.path}: {error}", object=file.path) from None
    except OSError as error:
        raise io_error("read", file.path, error) from None


def data_offset(file: File) -> int:
    """Return where the data of an open file begin: the bytes of its header.

    Raises
    ------
    SafetensorError
        When it has none; the message names the file.
    """
    with _naming(file), file.borrowed() as descriptor:
        return 8 + header_bytes(_read(descriptor, 0, min(8, file.size)), file.size)


def _read_header(file: File) -> tuple[bytes, int]:
    """Read the text of a file's header, and the size of the file."""
    size = file.size
    if not size:
        expect_bytes(file)
    with file.borrowed() as descriptor:
        text_bytes = header_bytes(_read(descriptor, 0, min(8, size)), size)
        return _read(descriptor, 8, text_bytes), size


def _read(descriptor: int, offset: int, size: int) -> bytes:
    text = b""
    while len(text) < size:
        piece = os.pread(descriptor, size - len(text), offset + len(text))
        if not piece:
            raise SafetensorError("the file ends early; was it truncated meanwhile?")
        # Nearly always it is all, which is not copied again before anything is on its way.
        text = text + piece if text else piece
    return text


def stream_file(file: File) -> Iterator[Columns]:
    """Yield the tensors of an open file in the order of their data.

    The first come before all of the header is parsed.

    Raises
    ------
    SafetensorError
        When it is no safetensors file, possibly after the first tensors; the message names it.
    """
    with _naming(file):
        yield from stream_columns(*_read_header(file))


def read_header(file: File) -> Header:
    """Read and check the header of an open file.

    Raises
    ------
    SafetensorError
        When it is not one; the message names the file.
    """
    with _naming(file):
        return parse_header(*_read_header(file))


def expect_new(names: Collection[str], more: Mapping[str, object], file: File) -> None:
    """Refuse a file that has a name of those before.

    Raises
    ------
    SafetensorError
        Names one.
    """
    twice = more.keys() & names if names else ()
    if twice:
        raise SafetensorError(
            f"{file.path}: tensor {min(twice)!r:.100} is also in a file before it", object=file.path
        )


class Shard(NamedTuple):
    """A file to load from, and the tensors that indexes say it has: each with its index."""

    path: str
    promised: dict[str, str]


def open_shard(shard: Shard) -> File:
    """Open the file of a shard; where an index promised it, that is told when it is not there."""
    try:
        return File(shard.path)
    except FileNotFoundError as error:
        if shard.promised:
            index = next(iter(shard.promised.values()))
            error.args = (f"{error}; {index} names it: is all of the checkpoint there?",)
        raise


def expect_promised(shard: Shard, header: Header) -> None:
    """Refuse a file that lacks tensors which an index says it has; it may have others.

    Raises
    ------
    SafetensorError
        Names the index, the file and a tensor.
    """
    lacking = shard.promised.keys() - header.tensors.keys()
    if lacking:
        name = min(lacking)
        more = f", nor {len(lacking) - 1} others that should be there" if len(lacking) > 1 else ""
        raise SafetensorError(
            f"{shard.promised[name]} says that tensor {name!r:.100} is in {shard.path}, which does "
            f"not have it{more}",
            object=shard.path,
        )


def files_of(paths: PathLike | Iterable[PathLike]) -> list[str]:
    """Return the files that a path, a list of paths or an index of shards means.

    Raises what `shards_of` does.
    """
    return [shard.path for shard in shards_of(paths)]


def shards_of(paths: PathLike | Iterable[PathLike]) -> list[Shard]:
    """Return the files that a path, a list of paths or an index of shards means.

    Raises
    ------
    SafetensorError
        When an index is none, has a name twice, or names a file outside its folder.
    InvalidArgument
        When something is no path.
    """
    given = _as_paths(paths)
    if len(given) == 1 and not given[0].endswith(_INDEX_SUFFIX):
        return [Shard(given[0], {})]
    files: dict[str, Shard] = {}
    for path in given:
        if not path.endswith(_INDEX_SUFFIX):
            files.setdefault(_identity(path), Shard(path, {}))
            continue
        identities: dict[str, str] = {}
        for tensor, name in _read_weight_map(Path(path)).items():
            file = str(Path(path).parent / name)
            identity = identities.get(name) or identities.setdefault(name, _identity(file))
            files.setdefault(identity, Shard(file, {})).promised[tensor] = path
    return list(files.values())


def _as_paths(paths: PathLike | Iterable[PathLike]) -> list[str]:
    if hasattr(paths, "read"):  # of which the lines would be paths, of all of a model
        raise InvalidArgument(f"{paths!r:.100} is an open file: give its path")
    given = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    try:
        found = list(map(os.fsdecode, given))
    except TypeError:
        words = f"{paths!r:.100} is neither a path nor a list of paths"
        raise InvalidArgument(words) from None
    if not found:
        raise InvalidArgument("the list of paths is empty: nothing would be loaded")
    return found


def only_path(path: PathLike) -> PathLike:
    """Refuse what means several files, where one is opened.

    Raises
    ------
    SafetensorError
        When it is an index of shards.
    InvalidArgument
        When it is no path.
    """
    several = "load_file, load_into and load_plan take several files and indexes of shards"
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise InvalidArgument(f"{path!r:.100} is no path of a file: {several}") from None
    if name.endswith(_INDEX_SUFFIX):
        raise SafetensorError(f"{name} is no safetensors file: {several}", object=name)
    return path


def _identity(path: str) -> str:
    """Return what is the same for all paths that lead to a file."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return path  # With a zero in it: opening it says so.


def check_backend(backend: str | None) -> None:
    """Refuse what is no backend of the reference's either.

    Raises
    ------
    InvalidArgument
        Names those there are.
    """
    if backend not in {None, "mmap", "pread"}:
        raise InvalidArgument(f'backend {backend!r:.100} is none of "mmap", "pread"')


def _read_weight_map(index: Path) -> dict[str, str]:
    """Return which file of its folder has which tensor."""
    try:
        text = _read_index(index).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SafetensorError(f"{index} is no index of shards: it is not UTF-8 ({error})") from None
    if _count_objects(text) > _INDEX_OBJECTS_MAX:
        raise SafetensorError(
            f"{index} is no index of shards: more than {_INDEX_OBJECTS_MAX} objects and lists",
            object=str(index),
        )
    try:
        hook = functools.partial(unique, "it")
        shards: dict[str, str] = json.loads(text, object_pairs_hook=hook)["weight_map"]
        names = dict.fromkeys(shards.values())
        if not names:
            raise ValueError("it names no tensor")
    except SafetensorError as error:
        raise SafetensorError(
            f"{index} is no index of shards: {error}", object=str(index)
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SafetensorError(
            f"{index} is no index of shards: it has no weight_map of names ({error})",
            object=str(index),
        ) from None
    for name in names:
        # Indexes come with checkpoints from anywhere.
        if not isinstance(name, str) or not _is_file_name(name):
            raise SafetensorError(
                f"{index} names the shard {name!r:.200}, which is no file name", object=str(index)
            )
    return shards


def _count_objects(text: str) -> int:
    """Count objects and lists, each of which takes far more memory than it has bytes."""
    if text.count("{") + text.count("[") <= _INDEX_OBJECTS_MAX:
        return 0
    outside = _STRING.sub("", text)
    return outside.count("{") + outside.count("[")


def _read_index(index: Path) -> bytes:
    try:
        # A pipe must not keep us waiting for its other end.
        with File(index) as file, file.borrowed() as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SafetensorError(f"{index} is no file")
            size = os.fstat(descriptor).st_size
            if size > HEADER_BYTES_MAX:
                raise SafetensorError(f"{index} has {size} bytes; {HEADER_BYTES_MAX} are the most")
            return _read(descriptor, 0, size)
    except HippogriffError:
        raise
    except OSError as error:
        raise io_error("read", str(index), error) from None


def _is_file_name(name: str) -> bool:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return False
    return b"\0" not in encoded and Path(name).name == name and name not in {"", ".", ".."}
