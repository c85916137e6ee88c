"""The arrays that a load fills: whether each can be filled, and what memory it is."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from hippogriff._frameworks import dtype_name, framework_of, make_framework, shape_in_file
from hippogriff._regions import describe
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._tensor import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hippogriff._regions import Region, Streams
    from hippogriff.safetensors._tensor import TensorInfo


# Of element types: each can hold what those before it can, but for the length of integers.
_KINDS = "BUIFC"


def find_place(
    array: Any, tensor: TensorInfo, streams: Streams, *, convert: bool
) -> tuple[Region | None, str]:
    """Find the memory that a tensor's bytes go straight to, or why they can go nowhere.

    Without memory and without a reason the array's framework puts them there: it is strided, or of
    another element type. The reason follows the array's name.
    """
    try:
        dtype = dtype_name(array)
        reason = _why_not(array, dtype, tensor, convert)
        if reason:
            return None, reason
        if dtype == tensor.dtype:
            return _find_memory(array, tensor.size_bytes, streams)
        reason = _why_not_filled(array)
        if not reason:
            _expect_makeable(*framework_of(array), tensor.dtype)
        return None, reason
    # Arrays may be of anybody's: what is no array enough, as torch's lazy parameters, is told too.
    except (ValueError, TypeError, AttributeError, RuntimeError, BufferError) as error:
        return None, f": {error}"


def copies_in(target: Any, state: Mapping[str, Any]) -> list[str]:
    """Return names of which a module's `state_dict` makes copies: who fills them fills no module.

    What hooks gather, clone or bring back from elsewhere is such; what they only cut is not.
    """
    if not hasattr(target, "_parameters"):  # no module of torch's
        return []
    own: set[int | None] = {None}
    for module in target.modules():
        for held in (module._parameters, module._buffers):
            own.update(map(_address, held.values()))
    others = [name for name, array in state.items() if _address(array) not in own]
    again = target.state_dict() if others else {}
    return [name for name in others if _address(again.get(name)) != _address(state[name])]


def _address(array: Any) -> int | None:
    try:
        return array.data_ptr() if array.numel() else None
    # Not of torch, or without memory that is known: `find_place` says so.
    except (AttributeError, RuntimeError, ValueError, TypeError):
        return None


def memory_of(array: Any) -> tuple[int, int] | None:
    """Return the address and the bytes of an array's memory; None when it has none of its own."""
    try:
        region = describe(array, writable=False)
    # As in `find_place`; nothing is said here, because nothing is filled.
    except (ValueError, TypeError, AttributeError, RuntimeError, BufferError):
        return None
    return (region.address, region.size_bytes) if region.size_bytes else None


@functools.lru_cache(maxsize=64)
def _expect_makeable(framework: str, device: object, dtype: str) -> None:
    """Have the framework say why it has no elements of safetensors' `dtype`, if so."""
    make_framework(framework, device).empty(dtype, (0,))


def _why_not(ours: Any, dtype: str, theirs: TensorInfo, convert: bool) -> str:
    """Say why an array of safetensors' `dtype` is none for a tensor; "" when it is one."""
    if ours.shape != theirs.shape or dtype == "F4":
        shape = shape_in_file(ours, dtype)
        if shape != theirs.shape:
            return f" has the shape {theirs.shape!s:.100} there and {shape!s:.100} here"
    if not getattr(getattr(ours, "flags", None), "writeable", True):
        return " is read-only"
    if dtype == theirs.dtype:
        return ""
    if not convert:
        return f" is {theirs.dtype} there and {dtype} here (convert=True)"
    if _is_memory(ours):
        return ": its type cannot be converted, because it is no array"
    if "F4" in {dtype, theirs.dtype}:
        return f" is {theirs.dtype} there and {dtype} here, which cannot be converted"
    if _loses(theirs.dtype, dtype):
        return (
            f" is {theirs.dtype} there and {dtype} here, which loses more than precision: convert "
            "what load_file returns as you mean it"
        )
    return ""


def _loses(theirs: str, ours: str) -> bool:
    """Whether numbers may become others: complex ones real, floats or longer integers integers."""
    their_kind, our_kind = _kind(theirs), _kind(ours)
    if _KINDS.index(their_kind) > _KINDS.index(our_kind):
        return True
    their_bits = DTYPE_BITS[theirs] + (their_kind == "U")  # and a sign, where ours has one
    our_bits = DTYPE_BITS[ours] + (our_kind == "U")
    return their_kind in "UI" and our_kind in "UI" and their_bits > our_bits


def _kind(dtype: str) -> str:
    return "F" if dtype.startswith("BF") else "B" if dtype == "BOOL" else dtype[0]


def _is_memory(array: Any) -> bool:
    """Whether something is memory alone, with nothing that could copy into it."""
    return not hasattr(array, "copy_") and not hasattr(array, "__setitem__")


def _find_memory(array: Any, size_bytes: int, streams: Streams) -> tuple[Region | None, str]:
    try:
        region = describe(array, writable=True, streams=streams)
        if region.size_bytes != size_bytes:  # of anybody's array, which may say what is not so
            return None, f" has {size_bytes} bytes there and {region.size_bytes} here"
        return region, ""
    except InvalidArgument as error:
        # Not contiguous: its framework may fill it, which is not known of anybody else's arrays.
        return None, _why_not_filled(array) if _is_known(array) else f": {error}"


def _is_known(array: Any) -> bool:
    if hasattr(array, "copy_") or type(array).__module__.partition(".")[0] == "cupy":
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def _why_not_filled(array: Any) -> str:
    """Say why its framework cannot copy something into an array; "" when it can."""
    if hasattr(array, "copy_"):
        if str(array.layout) != "torch.strided":
            return f" is sparse ({array.layout})"
        if array.device.type not in {"cpu", "cuda"}:
            return f" is on the device {array.device}, neither a CPU nor a CUDA device"
        if array.data_ptr() == 0 and array.numel():
            return " has no memory now: its storage was freed"
        strides = array.stride()
    else:
        strides = getattr(array, "strides", None) or ()
    if any(stride == 0 < length - 1 for stride, length in zip(strides, array.shape, strict=False)):
        return " is expanded: several of its elements are one"
    return ""
