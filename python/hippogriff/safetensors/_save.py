"""Saving: what a file is made of, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hippogriff._collector import Pause
from hippogriff._frameworks import dtype_name, shape_in_file
from hippogriff._host_memory import host_memory_bytes
from hippogriff._regions import describe
from hippogriff._report import Watch
from hippogriff._save import Part, save_parts
from hippogriff._sidecar import SidecarWriter, sidecar_path
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._flat import METADATA_MAX
from hippogriff.safetensors._header import SafetensorError, check_unicode, format_header
from hippogriff.safetensors._tensor import DTYPE_BITS, TensorInfo
from hippogriff.safetensors._verify import make_sidecar

if TYPE_CHECKING:
    from collections.abc import Callable

    from hippogriff._regions import Region, Streams
    from hippogriff._report import LoadReport
    from hippogriff._runtime import PathLike


def save_file(
    tensors: Mapping[str, Any],
    filename: PathLike,
    metadata: Mapping[str, str] | None = None,
    *,
    checksum: bool = False,
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
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
    host_memory, explain, progress
        As in `load_file`. What is told is how the file was written, once it is there.

    Raises
    ------
    InvalidArgument
        When an array is not contiguous or has an element type that safetensors has not.
    IoError
        When writing fails; the temporary file is removed then. When only the last step does, of
        `operation` "sync folder", the new file is there, and a crash may undo that.
    """
    budget = host_memory_bytes(host_memory)
    with Pause() as pause:  # Nothing here is garbage, and looking for some takes as long.
        contents = _lay_out(tensors, pause)
        header = format_header((info for info, _ in contents), _checked_metadata(metadata))
        parts = [Part(region, len(header) + info.offset) for info, region in contents]
        del contents

    def make_beside(name: str) -> SidecarWriter:
        sidecar = make_sidecar(header, [region for region, _ in parts])
        return SidecarWriter(sidecar_path(name), sidecar, of=name)

    with Watch(explain, progress, budget, "save") as watch:
        save_parts(filename, header, parts, watch, make_beside if checksum else None, budget)


def _checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    if metadata is None:
        return None
    texts = dict(metadata) if isinstance(metadata, Mapping) else None
    if texts is None or not all(isinstance(each, str) for pair in texts.items() for each in pair):
        raise InvalidArgument(f"metadata {metadata!r:.100} does not map strings to strings")
    if len(texts) > METADATA_MAX:
        raise InvalidArgument(
            f"metadata has {len(texts)} keys; readers take {METADATA_MAX} at most"
        )
    check_unicode([*texts, *texts.values()])
    return texts


def _lay_out(tensors: Mapping[str, Any], pause: Pause) -> list[tuple[TensorInfo, Region]]:
    """Order tensors as the reference does, the widest elements first, so that all are aligned."""
    if not isinstance(tensors, Mapping):
        raise InvalidArgument(f"the tensors are no mapping of names to arrays: {tensors!r:.100}")
    described: list[tuple[TensorInfo, Region]] = []
    streams: Streams = {}
    for name, array in tensors.items():
        pause.look()
        if not isinstance(name, str) or name == "__metadata__":
            raise SafetensorError(f"{name!r:.100} cannot be a tensor's name")
        if getattr(array, "mask", None) is not None:
            raise InvalidArgument(f"tensor {name!r} has a mask, which would be lost")
        try:
            dtype = dtype_name(array)
            shape = shape_in_file(array, dtype)
            region = describe(array, writable=False, streams=streams)
        except InvalidArgument as error:
            raise InvalidArgument(f"tensor {name!r}: {error}") from None
        described.append((TensorInfo(name, dtype, shape, 0, region.size_bytes), region))
    check_unicode(info.name for info, _ in described)
    described.sort(key=lambda each: (-DTYPE_BITS[each[0].dtype], each[0].name))
    offset = 0
    for place, (info, region) in enumerate(described):
        described[place] = TensorInfo(*info[:3], offset, info.size_bytes), region
        offset += info.size_bytes
    return described
