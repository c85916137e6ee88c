"""Saving: what a file is made of, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hippogriff._frameworks import dtype_name, shape_in_file
from hippogriff._regions import describe
from hippogriff._save import Part, save_parts
from hippogriff._sidecar import SidecarWriter, sidecar_path
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._header import SafetensorError, check_unicode, format_header
from hippogriff.safetensors._tensor import DTYPE_BITS, TensorInfo
from hippogriff.safetensors._verify import make_sidecar

if TYPE_CHECKING:
    from hippogriff._runtime import PathLike


def save_file(
    tensors: Mapping[str, Any],
    filename: PathLike,
    metadata: Mapping[str, str] | None = None,
    *,
    checksum: bool = False,
) -> None:
    """Save tensors as a safetensors file: complete and on the disk, or not at all.

    Parameters
    ----------
    tensors : mapping of str to array
        C-contiguous arrays of torch, CuPy, NumPy, on any device. Tensors that share memory are
        written once for each.
    filename : path-like
        Replaced when it exists; until the end what was there stays.
    metadata : mapping of str to str, optional
        Kept in the header.
    checksum : bool
        Write checksums too, of the arrays as they are where they are. Those that were there are
        removed before the file is replaced: whatever happens, none stay beside another file.

    Raises
    ------
    InvalidArgument
        When an array is not contiguous or has an element type that safetensors has not.
    IoError
        When writing fails; the temporary file is removed then.
    """
    contents = _lay_out(tensors)
    header = format_header([info for info, _ in contents], _checked_metadata(metadata))
    parts = [
        Part(f"tensor {info.name!r}", array, len(header) + info.offset, info.size_bytes)
        for info, array in contents
    ]

    def make_beside(name: str) -> SidecarWriter:
        sidecar = make_sidecar(header, [a for _, a in contents])
        return SidecarWriter(sidecar_path(name), sidecar, of=name)

    save_parts(filename, header, parts, make_beside if checksum else None)


def _checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    if metadata is None:
        return None
    texts = dict(metadata) if isinstance(metadata, Mapping) else None
    if texts is None or not all(isinstance(each, str) for pair in texts.items() for each in pair):
        raise InvalidArgument(f"metadata {metadata!r:.100} does not map strings to strings")
    check_unicode([*texts, *texts.values()])
    return texts


def _lay_out(tensors: Mapping[str, Any]) -> list[tuple[TensorInfo, Any]]:
    """Order tensors as the reference does, the widest elements first, so that all are aligned."""
    if not isinstance(tensors, Mapping):
        raise InvalidArgument(f"the tensors are no mapping of names to arrays: {tensors!r:.100}")
    described = []
    for name, array in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise SafetensorError(f"{name!r:.100} cannot be a tensor's name")
        if getattr(array, "mask", None) is not None:
            raise InvalidArgument(f"tensor {name!r} has a mask, which would be lost")
        try:
            dtype = dtype_name(array)
            shape = shape_in_file(array, dtype)
            size_bytes = describe(array, writable=False).size_bytes
        except InvalidArgument as error:
            raise InvalidArgument(f"tensor {name!r}: {error}") from None
        info = TensorInfo(name, dtype, shape, 0, size_bytes)
        described.append((info, array))
    check_unicode(info.name for info, _ in described)
    described.sort(key=lambda each: (-DTYPE_BITS[each[0].dtype], each[0].name))
    contents, offset = [], 0
    for info, array in described:
        contents.append((info._replace(offset=offset), array))
        offset += info.size_bytes
    return contents
