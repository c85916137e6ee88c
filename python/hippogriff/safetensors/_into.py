"""Loading into arrays that are there already: a model's parameters, without a second copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._flights import stop
from hippogriff._frameworks import dtype_name, framework_of, make_framework
from hippogriff._regions import describe
from hippogriff._scatter import start_scatter
from hippogriff._transfer import Request
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._files import opened_files
from hippogriff.safetensors._load import by_offset, load_tensors
from hippogriff.safetensors._verify import check_batches, open_verifiers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hippogriff._file import File
    from hippogriff._regions import Region, Streams
    from hippogriff._runtime import PathLike
    from hippogriff._transfer import Transfer
    from hippogriff.safetensors._tensor import TensorInfo
    from hippogriff.safetensors._verify import Verifier, Verify

# So many bytes at most are converted at a time, or one tensor.
_CONVERTED_BYTES = 256 << 20


class LoadedNames(NamedTuple):
    """Names that did not meet their like, sorted; torch's `load_state_dict` returns the same."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def load_into(
    target: Any,
    paths: PathLike | Iterable[PathLike],
    *,
    strict: bool = True,
    convert: bool = False,
    verify: Verify = False,
) -> LoadedNames:
    """Fill a module's or a mapping's arrays from safetensors files, in place.

    Parameters
    ----------
    target : torch.nn.Module or mapping of str to array
        Anything with ``state_dict()``, or the mapping itself. Arrays may be on different devices.
    paths : path-like or iterable of path-like
        As `load_file` takes them.
    strict : bool
        Refuse names that are only here or only there. Shapes must always agree.
    convert : bool
        Convert element types, on the device. Without it they must agree.
    verify : bool or path-like
        As in `load_file`.

    Returns
    -------
    LoadedNames
        What was left out; nothing when `strict`.

    Raises
    ------
    InvalidArgument
        When names, shapes or element types do not agree; nothing was loaded then.
    SafetensorError, ChecksumMismatch, SidecarError, IoError, ShortFile, DeviceError
        As `load_file`. Arrays may be filled in part then.
    """
    state = target.state_dict() if hasattr(target, "state_dict") else target
    if not isinstance(state, Mapping):
        raise InvalidArgument(f"{type(target).__name__} is neither a module nor a mapping")
    with opened_files(paths) as files:
        found = {name: tensor for _, header in files for name, tensor in header.tensors.items()}
        missing, unexpected = state.keys() - found.keys(), found.keys() - state.keys()
        names = LoadedNames(sorted(missing), sorted(unexpected))
        _check(target, state, found, names if strict else LoadedNames([], []), convert)
        verifiers = open_verifiers(files, verify)
        for (file, header), verifier in zip(files, verifiers, strict=True):
            _fill(file, [t for t in header.tensors.values() if t.name in state], state, verifier)
    return names


def _check(
    target: Any,
    state: Mapping[str, Any],
    found: dict[str, TensorInfo],
    names: LoadedNames,
    convert: bool,
) -> None:
    """Say all that does not agree, as torch does."""
    wrong = []
    if names.unexpected_keys:
        wrong.append("unexpected in the files: " + ", ".join(names.unexpected_keys))
    if names.missing_keys:
        wrong.append("missing in the files: " + ", ".join(names.missing_keys))
    for name in state.keys() & found.keys():
        theirs, ours = found[name], state[name]
        if ours.shape != theirs.shape:
            wrong.append(f"{name} has the shape {theirs.shape} there and {tuple(ours.shape)} here")
        elif dtype_name(ours) != theirs.dtype and not convert:
            types = f"{name} is {theirs.dtype} there and {dtype_name(ours)} here"
            wrong.append(f"{types} (convert=True)")
    if wrong:
        raise InvalidArgument(f"loading into {type(target).__name__}: " + "; ".join(sorted(wrong)))


def _fill(
    file: File,
    tensors: list[TensorInfo],
    state: Mapping[str, Any],
    verifier: Verifier | None,
) -> None:
    """Read what lies as it should straight into place, and convert the rest."""
    straight: dict[tuple[Any, ...], list[tuple[TensorInfo, Region]]] = {}
    others = []
    streams: Streams = {}
    for tensor in tensors:
        region = _straight_region(tensor, state[tensor.name], streams)
        if region is None:
            others.append(tensor)
        elif tensor.size_bytes:
            key = (region.device or _device_of(state[tensor.name]), region.host_memory)
            straight.setdefault((*key, region.stream), []).append((tensor, region))
    flying: list[Transfer[int]] = []
    first: list[list[tuple[TensorInfo, Region]]] = []
    again: list[list[tuple[TensorInfo, Region]]] = []
    try:
        for parts in straight.values():
            once, rest = _without_overlaps(parts)
            again += [[part] for part in rest]
            first.append(once)
            flying.append(_start(file, once))
        for parts in first:
            flying.pop(0).wait()
            _verify(parts, verifier)
        for parts in again:
            flying.append(_start(file, parts))
            flying.pop(0).wait()
            _verify(parts, verifier)
    except BaseException:
        stop(flying)
        raise
    _convert(file, others, state, verifier)


def _verify(parts: list[tuple[TensorInfo, Region]], verifier: Verifier | None) -> None:
    if verifier is not None:
        tensors, regions = zip(*parts, strict=True)
        verifier.check(tensors, [region.address for region in regions], regions[0])


def _straight_region(tensor: TensorInfo, array: Any, streams: Streams) -> Region | None:
    if dtype_name(array) != tensor.dtype:
        return None
    try:
        region = describe(array, writable=True, streams=streams)
    except InvalidArgument:
        return None  # Not contiguous: filled by the framework.
    return region if region.size_bytes == tensor.size_bytes else None


def _without_overlaps(
    parts: list[tuple[TensorInfo, Region]],
) -> tuple[list[tuple[TensorInfo, Region]], list[tuple[TensorInfo, Region]]]:
    """Part what one transfer can fill from what shares its memory, as tied weights do."""
    once, rest, end = [], [], 0
    for part in sorted(parts, key=lambda part: part[1].address):
        region = part[1]
        if region.address < end:
            rest.append(part)
        else:
            once.append(part)
            end = region.address + region.size_bytes
    return once, rest


def _start(file: File, parts: list[tuple[TensorInfo, Region]]) -> Transfer[int]:
    segments = ((t.offset, t.size_bytes, region.address) for t, region in parts)
    request = Request("auto", region=parts[0][1])
    return start_scatter(file, segments, request, parts, cancel_when_dropped=True)


def _convert(
    file: File,
    tensors: list[TensorInfo],
    state: Mapping[str, Any],
    verifier: Verifier | None,
) -> None:
    """Load tensors beside their places, a few at a time, and let the framework copy them."""
    while tensors:
        count, size_bytes = 0, 0
        first = framework_of(state[tensors[0].name])
        while (
            count < len(tensors)
            and (count == 0 or size_bytes + tensors[count].size_bytes <= _CONVERTED_BYTES)
            and framework_of(state[tensors[count].name]) == first
        ):
            size_bytes += tensors[count].size_bytes
            count += 1
        framework = make_framework(*first)
        chosen = by_offset(tensors[:count])
        loaded = load_tensors(file, chosen, framework, landed=check_batches(verifier, framework))
        for name, array in loaded.items():
            if first[0] == "pt":
                state[name].detach().copy_(array)
            else:
                state[name][...] = array
        tensors = tensors[count:]


def _device_of(array: Any) -> str:
    """Name the device of an array that shows only an address."""
    return f"cuda:{array.device.id}" if hasattr(getattr(array, "device", None), "id") else ""
