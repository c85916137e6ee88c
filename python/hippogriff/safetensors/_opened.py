"""Files of tensors, opened: their headers read, and compared before that where it is wanted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from hippogriff._file import File
from hippogriff.safetensors._files import (
    expect_new,
    expect_promised,
    open_shard,
    read_header,
    shards_of,
)
from hippogriff.safetensors._verify import open_verifiers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hippogriff._runtime import PathLike
    from hippogriff.safetensors._header import Header
    from hippogriff.safetensors._verify import Verifier, Verify


class Opened(NamedTuple):
    """A file, its header, and what its tensors are compared with."""

    file: File
    header: Header
    verifier: Verifier | None


def open_file(path: PathLike, verify: Verify) -> Opened:
    """Open a file and read its header; nothing stays open when that fails.

    Raises
    ------
    SafetensorError
        When it is not one; the message names the file.
    ChecksumMismatch, SidecarError, IoError
        As `Verifier`.
    """
    file = File(path)
    try:
        [verifier] = open_verifiers([file], verify)
        return _opened(file, verifier)
    except BaseException:
        file.close()
        raise


@contextlib.contextmanager
def opened_files(paths: PathLike | Iterable[PathLike], verify: Verify) -> Iterator[list[Opened]]:
    """Open all files for a scope and read their headers; refuse a name in two of them.

    Raises what `open_file` and `shards_of` do.
    """
    names: set[str] = set()
    with contextlib.ExitStack() as stack:
        shards = shards_of(paths)
        files = [stack.enter_context(open_shard(shard)) for shard in shards]
        opened = []
        for shard, file, verifier in zip(shards, files, open_verifiers(files, verify), strict=True):
            one = _opened(file, verifier)
            expect_promised(shard, one.header)
            expect_new(names, one.header.tensors, file)
            names.update(one.header.tensors)
            opened.append(one)
        yield opened


def _opened(file: File, verifier: Verifier | None) -> Opened:
    """Read the header of a file; it was compared when the verifier was made."""
    header = read_header(file)
    if verifier is not None:
        verifier.know(header.tensors)
    return Opened(file, header, verifier)
