"""The header of a safetensors file: parsed as the untrusted input it is, and written.

The format (github.com/huggingface/safetensors, its README): 8 bytes, the header's size as an
unsigned little-endian integer; the header, a JSON object in UTF-8 that may end in spaces; the data.
The object has for each name dtype, shape and data_offsets ([begin, end) in the data), and may have
``__metadata__``, strings by strings. The tensors cover the data without holes or overlaps.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._collector import Pause
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors._entries import Entries
from hippogriff.safetensors._flat import METADATA_MAX, OTHER_KEYS_MAX, Excess, find_excess
from hippogriff.safetensors._tensor import (
    DTYPE_BITS,
    OFFSET_MAX,
    Columns,
    TensorInfo,
    count_bits,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# As the reference implementation has it: no parser should be made to take more.
HEADER_BYTES_MAX = 100_000_000
_PREFIX_BYTES = 8
# What files begin with that are no safetensors files, and never have a header of such a size.
_OTHER_FORMATS = {
    b"\x93NUMPY": "an .npy file: hippogriff.arrays.load_npy loads it",
    b"PK\3\4": "a ZIP archive: torch.load loads what torch.save writes, "
    "hippogriff.arrays.load_npz .npz files",
    b"\x80\x02": "a pickle: torch.load loads what torch.save wrote before torch 1.6",
    b"version ": "what Git LFS keeps in its place: `git lfs pull` fetches it",
    b"GGUF": "a GGUF file",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip file: gunzip it first",
    b"<!": "a page of HTML, downloaded in its place",
    b"<html": "a page of HTML, downloaded in its place",
    b"{": "JSON: load_file and load_plan take an index of shards that is named *.index.json",
}
_METADATA = "__metadata__"
_WRONG_METADATA = f"{_METADATA} is not an object of strings, {METADATA_MAX} at most"
# As writers write it; with a backslash or a brace inside it is left to the strict parser.
_METADATA_FIRST = re.compile(
    rb'\{"__metadata__":(\{(?:[^"\\\[\]{}]++|"[^"\\{}]*+"){0,%d}+\})(?:,(?=")|(?=\}))'
    % METADATA_MAX
)


class SafetensorError(InvalidArgument):
    """A file that is no safetensors file, or a tensor that is not in it.

    Where the safetensors package is imported it is one of that package's `SafetensorError` too.
    """

    def __new__(cls, *_: object, **__: object) -> SafetensorError:
        if cls in {SafetensorError, SafetensorIndexError}:
            with contextlib.suppress(TypeError):  # theirs is made in a way of its own
                return super().__new__(_joined(cls))
        return super().__new__(cls)

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        _, (_, message, status, fields) = super().__reduce__()
        # Where it arrives the package may be imported, or not.
        public = kind.__bases__[0] if kind.__qualname__ in _JOINED else kind
        return _rebuild, (public, message, {"status": status, **fields})


class SafetensorIndexError(SafetensorError, IndexError):
    """An integer that is out of a dimension of the tensor that it indexes."""


# Where classes of both are found by pickle, which torch's workers send exceptions' classes with.
_JOINED = {
    "_SafetensorErrorOfBoth": SafetensorError,
    "_SafetensorIndexErrorOfBoth": SafetensorIndexError,
}


def __getattr__(name: str) -> Any:
    if name in _JOINED:
        return _joined(_JOINED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _joined(ours: type[SafetensorError]) -> type[SafetensorError]:
    """Return the class that those who catch the package's exceptions catch as well."""
    theirs: Any = getattr(sys.modules.get("safetensors"), "SafetensorError", None)
    key: Any = ours  # which mypy takes for something without a hash
    return _join(key, theirs) if _can_be_joined(theirs) else ours


def _can_be_joined(theirs: Any) -> bool:
    """Whether it is a class of others: somebody may have put ours there."""
    return (
        isinstance(theirs, type)
        and issubclass(theirs, Exception)
        and not issubclass(theirs, SafetensorError)
        and not issubclass(SafetensorError, theirs)
    )


@functools.cache
def _join(ours: type[SafetensorError], theirs: type) -> type[SafetensorError]:
    members = {
        "__module__": ours.__module__,
        "__qualname__": f"_{ours.__name__}OfBoth",
        "__doc__": ours.__doc__,
    }
    try:
        joined: type[SafetensorError] = type(ours.__name__, (ours, theirs), members)
    except TypeError:  # theirs is laid out in another way
        return ours
    return joined


def _rebuild(kind: type[SafetensorError], message: str, fields: dict[str, Any]) -> SafetensorError:
    return kind(message, **fields)


class Header(NamedTuple):
    """What a file holds: tensors by name, in the order of their data, and metadata."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, str] | None
    data_offset: int


def header_bytes(prefix: bytes, file_bytes: int) -> int:
    """Return the size of the header from a file's first 8 bytes.

    Raises
    ------
    SafetensorError
        When the file cannot hold such a header.
    """
    if len(prefix) < _PREFIX_BYTES:
        raise SafetensorError(f"the file has {len(prefix)} bytes, too few for a header's size")
    size = int.from_bytes(prefix, "little")
    if size > HEADER_BYTES_MAX:
        for begin, format_and_remedy in _OTHER_FORMATS.items():
            if prefix.startswith(begin):
                raise SafetensorError(f"this is no safetensors file but {format_and_remedy}")
        raise SafetensorError(
            f"the header would have {size} bytes; more than {HEADER_BYTES_MAX} is not taken"
        )
    if _PREFIX_BYTES + size > file_bytes:
        raise SafetensorError(
            f"the header would have {size} bytes, but the file has only {file_bytes}"
        )
    return size


def parse_header(text: bytes, file_bytes: int) -> Header:
    """Parse a header that begins 8 bytes into a file.

    Parameters
    ----------
    text : bytes
        The whole header.
    file_bytes : int
        The size of the file.

    Raises
    ------
    SafetensorError
        When anything in it is not as the format says; nothing of it may be used then.
    """
    with Pause():  # Nothing here is garbage, and looking for some takes as long as parsing.
        entries, metadata = _find_entries(text, file_bytes)
        tensors = {tensor.name: tensor for piece in entries for tensor in piece.tensors()}
        if entries.complete:
            return Header(tensors, metadata, _PREFIX_BYTES + len(text))
        return _parse(text, file_bytes)


def stream_tensors(text: bytes, file_bytes: int) -> Iterator[TensorInfo]:
    """Yield the tensors of a header in the order of their data, the first before all is parsed.

    Empty ones may come later, where a header has them later. Takes and raises what `parse_header`
    does, but possibly after the first tensors.
    """
    for piece in stream_columns(text, file_bytes):
        yield from piece.tensors()


def stream_columns(text: bytes, file_bytes: int) -> Iterator[Columns]:
    """Yield what `stream_tensors` does, some tensors at a time."""
    entries, _ = _find_entries(text, file_bytes)
    yield from entries
    if not entries.complete:
        tensors = parse_header(text, file_bytes).tensors
        rest = [tensor for tensor in tensors.values() if tensor.name not in entries.names]
        if rest:
            yield Columns.of(rest)


def _find_entries(text: bytes, file_bytes: int) -> tuple[Entries, dict[str, str] | None]:
    """Return what takes the entries, and the metadata, which come before them."""
    if not text.startswith(b"{"):
        raise SafetensorError("the header does not begin with '{'")
    if not text.isascii():
        _decode(text)
    position, metadata = 1, None
    found = _METADATA_FIRST.match(text)
    if found:
        position = found.end()
        try:
            metadata = _parse_metadata(_parse_json(found[1].decode()))
        except SafetensorError:
            position = len(text)  # Where nothing is: it is told where in the whole it is.
    return Entries(text, position, _PREFIX_BYTES + len(text), file_bytes), metadata


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise SafetensorError(f"the header is not UTF-8: {error}") from None


def _parse(text: bytes, file_bytes: int) -> Header:
    data_offset = _PREFIX_BYTES + len(text)
    decoded = _decode(text)
    excess = find_excess(decoded)
    if excess is not None:
        _refuse(excess)
    fields = _parse_json(decoded)
    metadata = _parse_metadata(fields.pop(_METADATA, None))
    if b"\\u" in text:  # only escapes can make what is no Unicode
        check_unicode([*fields, *(metadata or ()), *(metadata or {}).values()])
    tensors = [_parse_tensor(name, value, data_offset) for name, value in fields.items()]
    # The empty ones first where several begin at one place.
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.size_bytes))
    _check_cover(tensors, data_offset, file_bytes)
    return Header({tensor.name: tensor for tensor in tensors}, metadata, data_offset)


def _refuse(excess: Excess) -> None:
    """Say what is wrong with an entry, unless it is no JSON: then the parser says so."""
    try:
        name, key = (json.loads(text) if text else "" for text in excess[:2])
        value = _parse_json(excess.value) if excess.whole and excess.value[0] == "{" else None
    except ValueError:
        return
    if name == _METADATA:
        _refuse_escapes("the header", excess.name, name)
        if value and all(isinstance(each, str) for each in value.values()):
            raise SafetensorError(f"the header has {_METADATA!r} twice")
        raise SafetensorError(_WRONG_METADATA)
    tensor = f"tensor {name!r:.200}"
    if key in {"shape", "data_offsets"}:
        _refuse_escapes(tensor, excess.key, key)
        raise SafetensorError(f"{tensor} has no list of numbers as {key!r}, or a very long one")
    if excess.key:
        raise SafetensorError(f"{tensor} has an object or a list as {key!r:.200}")
    if excess.value[0] != "{":
        raise SafetensorError(f"{tensor} is not an object")
    if value is None or len(value) > 3 + OTHER_KEYS_MAX:
        raise SafetensorError(
            f"{tensor} has more than {OTHER_KEYS_MAX} keys of no meaning, or a very long value"
        )
    raise SafetensorError(_what_is_wrong(name, value))


def _refuse_escapes(where: str, text: str, key: str) -> None:
    """Refuse a key whose value is an object or a list, and which is not written as it is read."""
    if text != f'"{key}"':
        raise SafetensorError(f"{where} has the key {key!r} written with escapes: {text:.200}")


def unique(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; a name that comes twice could mean either.

    Raises
    ------
    SafetensorError
        Says that `where` has the name twice.
    """
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise SafetensorError(f"{where} has {name!r:.100} twice")
            seen.add(name)
    return fields


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _parse_integer(digits: str) -> float:
    """Make -0 what the reference implementation takes it for, which is no integer."""
    return -0.0 if digits == "-0" else int(digits)


def _parse_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(
            text,
            object_pairs_hook=functools.partial(unique, "the header"),
            parse_constant=_refuse_constant,
            # A call for each number would double the time; few headers have this anywhere.
            parse_int=_parse_integer if "-0" in text else None,
        )
    except SafetensorError:
        raise
    except ValueError as error:
        raise SafetensorError(f"the header is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SafetensorError("the header is no JSON object")
    return value


def check_unicode(texts: Iterable[str]) -> None:
    """Refuse halves of surrogate pairs, which cannot be written as UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise SafetensorError(f"{text!r:.100} is not Unicode") from None


def _parse_metadata(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise SafetensorError(_WRONG_METADATA)
    return value


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= OFFSET_MAX


def _parse_tensor(name: str, value: Any, data_offset: int) -> TensorInfo:
    # There may be a hundred thousand: what is right is seen at once, what is wrong has time.
    try:
        dtype, shape = value["dtype"], value["shape"]
        begin, end = value["data_offsets"]
        right = (
            type(begin) is int
            and type(end) is int
            and 0 <= begin <= end <= OFFSET_MAX
            and type(shape) is list
            and count_bits(DTYPE_BITS[dtype], shape) == 8 * (end - begin)
        )
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise SafetensorError(_what_is_wrong(name, value))
    return TensorInfo(name, dtype, tuple(shape), data_offset + begin, end - begin)


def _what_is_wrong(name: str, value: Any) -> str:
    if not isinstance(value, dict):
        return f"tensor {name!r:.100} is not an object"
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        return f"tensor {name!r:.100} has the unknown dtype {dtype!r:.100}"
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        return f"tensor {name!r:.100} has the shape {shape!r:.100}"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        return f"tensor {name!r:.100} has the data_offsets {offsets!r:.100}"
    bits = count_bits(DTYPE_BITS[dtype], shape)
    size = f"{bits} bits" if bits >= 0 else "more than any file"
    return (
        f"tensor {name!r:.100} has {size} by its dtype {dtype} and shape {shape!r:.100}, and "
        f"{offsets[1] - offsets[0]} bytes by its data_offsets {offsets}"
    )


def _check_cover(tensors: list[TensorInfo], data_offset: int, file_bytes: int) -> None:
    """Refuse tensors that overlap or leave holes in the data."""
    end = data_offset
    for tensor in tensors:
        if tensor.offset != end:
            what = "overlaps the one before" if tensor.offset < end else "leaves a hole before it"
            raise SafetensorError(f"tensor {tensor.name!r:.100} {what}")
        end += tensor.size_bytes
    if end != file_bytes:
        raise SafetensorError(
            f"the tensors end at byte {end}, and the file at {file_bytes}; is it complete?"
        )


def format_header(tensors: Iterable[TensorInfo], metadata: dict[str, str] | None) -> bytes:
    """Return the size and the header, padded so that the data begins on a multiple of 8.

    The offsets of `tensors` count from the beginning of the data.
    """
    text = bytearray(_PREFIX_BYTES) + b"{"
    if metadata is not None:
        text += f'"{_METADATA}":{_format_json(metadata)},'.encode()
    # For a hundred thousand the JSON encoder takes several times as long, and much more memory.
    for tensor in tensors:
        text += (
            f'{encode_basestring(tensor.name)}:{{"dtype":"{tensor.dtype}",'
            f'"shape":[{",".join(map(str, tensor.shape))}],'
            f'"data_offsets":[{tensor.offset},{tensor.offset + tensor.size_bytes}]}},'
        ).encode()
    if text.endswith(b","):
        del text[-1]
    text += b"}"
    text += b" " * (-len(text) % 8)
    size_bytes = len(text) - _PREFIX_BYTES
    if size_bytes > HEADER_BYTES_MAX:
        raise SafetensorError(
            f"the header would have {size_bytes} bytes; readers take {HEADER_BYTES_MAX} at most"
        )
    text[:_PREFIX_BYTES] = size_bytes.to_bytes(_PREFIX_BYTES, "little")
    return bytes(text)


def _format_json(value: dict[str, str]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
