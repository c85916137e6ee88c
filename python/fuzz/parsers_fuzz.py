"""Coverage-guided fuzzing of the parsers of files that others wrote; `make fuzz` runs it.

``python python/fuzz/parsers_fuzz.py safetensors [libFuzzer's options] [corpus folders]``
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
import zipfile
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest import mock

import atheris
import numpy as np
import safetensors
import safetensors.numpy
from numpy.lib import _format_impl

with atheris.instrument_imports(include=["hippogriff"]):
    from hippogriff import _sidecar
    from hippogriff.arrays import _archive
    from hippogriff.arrays import _header as npy
    from hippogriff.errors import Unsupported
    from hippogriff.safetensors import _entries, _header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hippogriff._file import File


def fuzz_safetensors(data: bytes) -> None:
    """See that what is taken has no holes, is what the reference finds, and streams alike."""
    try:
        size = _header.header_bytes(data[:8], len(data))
    except _header.SafetensorError:
        return
    text = data[8 : 8 + size]
    try:  # The strict parser is not asked about what begins with a blank, which JSON may.
        parsed = _header._parse(text, len(data)) if text.startswith(b"{") else None
    except _header.SafetensorError:
        parsed = None
    for most in (1, 1024):
        with mock.patch.multiple(_entries, _FIRST=most, _MOST=most):
            try:
                streamed = list(_header.stream_tensors(text, len(data)))
            except _header.SafetensorError:
                assert parsed is None, "what is read at once is refused as a stream"
                continue
        assert parsed is not None, "what is refused at once is taken as a stream"
        streamed.sort(key=lambda tensor: (tensor.offset, tensor.size_bytes))  # empty ones
        assert streamed == list(parsed.tensors.values())
    if parsed is None:
        return
    end = parsed.data_offset
    for tensor in parsed.tensors.values():
        assert tensor.offset == end
        end += tensor.size_bytes
    assert end == len(data)
    theirs = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    assert theirs.keys() == parsed.tensors.keys()
    for name, tensor in parsed.tensors.items():
        assert tuple(theirs[name]["shape"]) == tensor.shape
        assert theirs[name]["dtype"] == tensor.dtype
        assert theirs[name]["data"] == data[tensor.offset : tensor.offset + tensor.size_bytes]


def fuzz_npy(data: bytes) -> None:
    """See that what is taken NumPy takes too: shape, order and element type."""
    try:
        header = npy.parse_header(data[: npy.header_end(data[: npy.PREFIX_BYTES])], len(data))
    except (npy.ArrayFormatError, Unsupported):
        return
    stream = io.BytesIO(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        version = np.lib.format.read_magic(stream)
        # Its public functions read no version 3.
        shape, fortran_order, dtype = _format_impl._read_array_header(  # type: ignore[attr-defined]
            stream, version, max_header_size=1 << 20
        )
    assert (header.shape, header.fortran_order) == (shape, fortran_order)
    assert header.element.itemsize_bytes == dtype.itemsize
    assert header.data_offset == stream.tell()
    assert 0 <= header.size_bytes <= len(data) - header.data_offset


class _Borrowed:
    """A file of memory as an archive wants it."""

    path = "fuzz.npz"

    def __init__(self, data: bytes) -> None:
        self._descriptor = os.memfd_create(self.path)
        os.pwrite(self._descriptor, data, 0)

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[int]:
        yield self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


def fuzz_npz(data: bytes) -> None:
    """See that arrays lie within the archive and are what zipfile finds, or are refused."""
    file = _Borrowed(data)
    try:
        with _archive.Archive(cast("File", file)) as archive:
            for member in archive.find(None):
                _look_at_member(archive, member, data)
    except (npy.ArrayFormatError, Unsupported):
        return
    finally:
        file.close()


def _look_at_member(archive: _archive.Archive, member: _archive.Member, data: bytes) -> None:
    end = member.offset + member.info.compress_size
    assert 0 <= member.offset <= end <= len(data)
    if member.compressed:
        with archive.open(member) as stream:
            content = b"".join(stream.pieces(member.size_bytes))
            stream.finish()
    else:
        archive.verify(member, lambda _: None)
        content = data[member.offset : end]
    assert len(content) == member.size_bytes
    with contextlib.suppress(zipfile.BadZipFile, NotImplementedError, RuntimeError):
        assert zipfile.ZipFile(io.BytesIO(data)).read(member.info) == content


def fuzz_sidecar(data: bytes) -> None:
    """See that what is taken is written again as it was."""
    try:
        sidecar = _sidecar.parse_sidecar(data)
    except _sidecar.SidecarError:
        return
    assert _sidecar.format_sidecar(sidecar) == data


def _safetensors_seeds() -> Iterator[bytes]:
    tensors: dict[str, np.ndarray] = {"a": np.ones((2, 3), np.float32), "b.c": np.ones(4, np.uint8)}
    yield safetensors.numpy.save(tensors)
    yield safetensors.numpy.save(tensors, {"format": "pt"})
    yield safetensors.numpy.save({f"layer.{n}": np.ones(3, np.int16) for n in range(40)})
    text = json.dumps({"é": {"dtype": "F8_E4M3", "shape": [0, 2], "data_offsets": [0, 0]}})
    yield len(text).to_bytes(8, "little") + text.encode()


def _npy_seeds() -> Iterator[bytes]:
    for each in (
        np.ones((2, 3), order="F"),
        np.ones(3, ">u2"),
        np.zeros(2, [("a", "<i2"), ("b", "<f4", (2,))]),
        np.array(["x", "yz"]),
        np.zeros(1, "<M8[s]"),
    ):
        stream = io.BytesIO()
        np.save(stream, each)
        yield stream.getvalue()


def _npz_seeds() -> Iterator[bytes]:
    arrays = {"a": np.ones((2, 3)), "b/c": np.arange(300, dtype=np.uint16), "é": np.zeros(0)}
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, **arrays)  # type: ignore[arg-type]
        yield stream.getvalue()


def _sidecar_seeds() -> Iterator[bytes]:
    block_bytes = _sidecar.BLOCK_BYTES
    checksums = array("Q", [1, 2, 3])
    yield _sidecar.format_sidecar(
        _sidecar.Sidecar(100 + 3 * block_bytes, 100, block_bytes, 7, checksums)
    )


_TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], Iterator[bytes]]]] = {
    "safetensors": (fuzz_safetensors, _safetensors_seeds),
    "npy": (fuzz_npy, _npy_seeds),
    "npz": (fuzz_npz, _npz_seeds),
    "sidecar": (fuzz_sidecar, _sidecar_seeds),
}


def main() -> None:
    """Fuzz one target; its seeds go into the first corpus folder."""
    target, seeds = _TARGETS[sys.argv[1]]
    options = [sys.argv[0], *sys.argv[2:]]
    for folder in [Path(each) for each in options[1:] if not each.startswith("-")][:1]:
        for number, seed in enumerate(seeds()):
            with contextlib.suppress(FileExistsError):
                (folder / f"seed-{number}").open("xb").write(seed)
    atheris.Setup(options, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
