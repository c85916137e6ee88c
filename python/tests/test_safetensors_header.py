"""Headers of safetensors files as untrusted input: what is refused, and what is odd but right."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hippogriff
from hippogriff.safetensors import (
    SafetensorError,
    _entries,
    load_file,
    load_into,
    load_plan,
    safe_open,
)
from hippogriff.safetensors._header import (
    _parse,
    format_header,
    header_bytes,
    parse_header,
    stream_tensors,
)

if TYPE_CHECKING:
    from pathlib import Path


def raw_file(header: Any, data: bytes = b"", text: bytes | None = None) -> bytes:
    """Build a file from a header as it is, right or wrong."""
    encoded = json.dumps(header).encode() if text is None else text
    return len(encoded).to_bytes(8, "little") + encoded + data


def one(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    """A header of one tensor."""
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


_FOUR = b"1234"
MALFORMED = {
    "empty file": b"",
    "seven bytes": b"\x00" * 7,
    "no header": (0).to_bytes(8, "little"),
    "header size beyond the file": (100).to_bytes(8, "little") + b"{}",
    "header size beyond all": b"\xff" * 8 + b"{}",
    "header size beyond the limit": (100_000_001).to_bytes(8, "little") + b"{}",
    "not JSON": raw_file(None, text=b"{oops}"),
    "truncated JSON": raw_file(None, text=b'{"x": {"dtype": "U8", '),
    "an array": raw_file([]),
    "a space first": raw_file(None, text=b" {}"),
    "not UTF-8": raw_file(None, text=b'{"\xff": {}}'),
    "lone surrogate": raw_file({"\ud800": one()["x"]}, _FOUR),
    "nested in an ignored key": raw_file({"x": {**one()["x"], "y": [{}, {}]}}, _FOUR),
    "object as an ignored key": raw_file({"x": {**one()["x"], "y": {"z": 1}}}, _FOUR),
    "list in a shape": raw_file(one(shape=[[4]]), _FOUR),
    "many ignored keys": raw_file(
        {"x": {**one()["x"], **{str(key): 0 for key in range(50)}}}, _FOUR
    ),
    "very many ignored keys": raw_file(
        {"x": {**one()["x"], **{str(key): 0 for key in range(50_000)}}}, _FOUR
    ),
    "list in the metadata": raw_file({"__metadata__": {"a": [[]]}, **one()}, _FOUR),
    "metadata twice": raw_file(None, text=b'{"__metadata__":{"a":"b"},"__metadata__":{"a":"b"}}'),
    "empty object": raw_file({"x": {}}),
    "deep": raw_file(None, text=b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "huge number": raw_file(None, text=b'{"x":' + b"9" * 10_000 + b"}"),
    "trailing garbage": raw_file(None, text=b"{}x"),
    "duplicate name": raw_file(
        None,
        _FOUR,
        b'{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
        b'"x":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}',
    ),
    "duplicate key": raw_file(
        None, _FOUR, b'{"x":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}}'
    ),
    "tensor is a number": raw_file({"x": 3}),
    "no dtype": raw_file({"x": {"shape": [4], "data_offsets": [0, 4]}}, _FOUR),
    "unknown dtype": raw_file(one("F7"), _FOUR),
    "dtype is a list": raw_file(one(["U8"]), _FOUR),
    "shape is a number": raw_file(one(shape=4), _FOUR),
    "negative dimension": raw_file(one(shape=[-4]), _FOUR),
    "two negative dimensions": raw_file(one(shape=[-2, -2]), _FOUR),
    "dimension is a float": raw_file(one(shape=[4.0]), _FOUR),
    "dimension is a boolean": raw_file(one(shape=[True, 4]), _FOUR),
    "dimensions overflow": raw_file(one(shape=[2**62, 2**62]), _FOUR),
    "dimensions overflow to four": raw_file(one(shape=[2**32, 2**32, 4]), _FOUR),
    "one offset": raw_file(one(offsets=[4]), _FOUR),
    "three offsets": raw_file(one(offsets=[0, 4, 4]), _FOUR),
    "offsets backwards": raw_file(one(offsets=[4, 0]), _FOUR),
    "offset negative": raw_file(one(offsets=[-4, 0]), _FOUR),
    "offset is a string": raw_file(one(offsets=["0", 4]), _FOUR),
    "offset beyond 64 bits": raw_file(one(offsets=[2**64, 2**64 + 4]), _FOUR),
    "offset is minus zero": raw_file(
        None, _FOUR, b'{"x":{"dtype":"U8","shape":[4],"data_offsets":[-0,4]}}'
    ),
    "offset is minus zero, with blanks": raw_file(
        None, _FOUR, b'{ "x": {"dtype": "U8", "shape": [4], "data_offsets": [ -0 , 4 ]}}'
    ),
    "dimension is minus zero": raw_file(
        None, text=b'{"x":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}'
    ),
    "minus zero after good entries": raw_file(
        None,
        _FOUR,
        b'{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
        b'"y":{"dtype":"U8","shape":[-0],"data_offsets":[4,4]}}',
    ),
    "too small for its shape": raw_file(one(offsets=[0, 3]), b"123"),
    "dimensions are strings": raw_file(one(shape=["a" * 1000, 10**9]), _FOUR),
    "dimensions without end": raw_file(one(shape=[2**62] * 100_000), _FOUR),
    "half a byte": raw_file(one("F4", [1], [0, 0])),
    "hole before": raw_file(one(offsets=[1, 5]), b"01234"),
    "data beyond": raw_file(one(), b"12345"),
    "data missing": raw_file(one(), b"123"),
    "overlap": raw_file(
        {"x": one()["x"], "y": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}, b"123456"
    ),
    "same bytes twice": raw_file({"x": one()["x"], "y": one()["x"]}, _FOUR),
    "hole between": raw_file(
        {"x": one()["x"], "y": {"dtype": "U8", "shape": [4], "data_offsets": [5, 9]}}, b"123456789"
    ),
    "constant": raw_file(None, text=b'{"__metadata__": {}, "x": NaN}'),
    "surrogate in metadata": raw_file({"__metadata__": {"a": "\ud800"}, **one()}, _FOUR),
    "metadata is a list": raw_file({"__metadata__": [], **one()}, _FOUR),
    "metadata of numbers": raw_file({"__metadata__": {"a": 1}, **one()}, _FOUR),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_files_are_refused_by_name(tmp_path: Path, what: str) -> None:
    path = tmp_path / "malformed.safetensors"
    path.write_bytes(MALFORMED[what])
    with pytest.raises(SafetensorError, match=r"malformed\.safetensors: "):
        load_file(path, framework="np")
    for load in (
        lambda: safe_open(path, "np"),
        lambda: load_into({"x": np.zeros(4, np.uint8)}, path),
        lambda: load_plan(path, {"cpu": None}, framework="np"),
    ):
        with pytest.raises(SafetensorError, match=r"malformed\.safetensors: "):
            load()


@pytest.mark.parametrize("what", ["dtype", "twice", "hole"])
def test_a_long_name_is_told_in_part(tmp_path: Path, what: str) -> None:
    name = json.dumps("n" * 1_000_000)
    tensor = '{"dtype":"%s","shape":[4],"data_offsets":[%d,%d]}'
    right = tensor % ("U8", 0, 4)
    text = {
        "dtype": f"{{{name}:{tensor % ('U9', 0, 4)}}}",
        "twice": f"{{{name}:{right},{name}:{right}}}",
        "hole": f"{{{name}:{tensor % ('U8', 2, 6)}}}",
    }[what]
    (tmp_path / "x").write_bytes(raw_file(None, _FOUR + b"12", text.encode()))
    with pytest.raises(SafetensorError, match="nnn") as caught:
        load_file(tmp_path / "x", framework="np")
    assert len(str(caught.value)) < 1000 + len(str(tmp_path))


def test_the_reference_refuses_minus_zero_too(tmp_path: Path) -> None:
    path = tmp_path / "minus_zero.safetensors"
    for what in (each for each in MALFORMED if "minus zero" in each):
        path.write_bytes(MALFORMED[what])
        with pytest.raises(safetensors.SafetensorError):
            safetensors.numpy.load_file(path)
    # Where nobody asks for an integer it is as good as any other.
    path.write_bytes(
        raw_file(
            None,
            _FOUR,
            b'{"-0":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":-0,"less":-0.5}}',
        )
    )
    assert load_file(path, framework="np")["-0"].tobytes() == _FOUR
    assert safetensors.numpy.load_file(path)["-0"].tobytes() == _FOUR


_X = '{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            r'{"x":{"dtype":"U8","sh\u0061pe":[4],"data_offsets":[0,4]}}',
            r"""tensor 'x' has the key 'shape' written with escapes: "sh\u0061pe""",
        ),
        (
            r'{"x":{"dtype":"U8","shape":[4],"data\u005foffsets":[0,4]}}',
            "tensor 'x' has the key 'data_offsets' written with escapes",
        ),
        (
            r'{"\u005f_metadata__":{"a":"b"},' + _X[1:] + "}}",
            "the header has the key '__metadata__' written with escapes",
        ),
    ],
)
def test_keys_that_are_written_with_escapes_are_told_as_such(text: str, words: str) -> None:
    with pytest.raises(SafetensorError) as caught:
        parse_header(text.encode(), 8 + len(text) + 4)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "piece", "words"),
    [
        (_X + ',"y":[@{}]}}', "{},", "tensor 'x' has an object or a list as 'y'"),
        (_X + ',"a":1,"y":{@"z":[]}}}', '"z":[],', "as 'y'"),
        (_X + '},"\\u0079":[@[]]}', "[],", "tensor 'y' is not an object"),
        ('{"x":{"shape":[@[]]}}', "[],", "tensor 'x' has no list of numbers as 'shape'"),
        (_X.replace('"shape":[', '"shape":[@') + "}}", "1,", "tensor 'x' has no list of numbers"),
        (_X + '@,"z":0}}', ',"a":0', "tensor 'x' has more"),
        ('{"__metadata__":{"a":[@[]]}}', "[],", "__metadata__ is not"),
        ('{"__metadata__":{@"":""}}', '"":"",', "at most"),
    ],
)
def test_what_no_header_has_is_refused_before_it_becomes_objects(
    text: str, piece: str, words: str
) -> None:
    header = text.replace("@", piece * 2_000_000).encode()
    tracemalloc.start()
    try:
        with pytest.raises(SafetensorError) as caught:
            parse_header(header, 8 + len(header) + 4)
        assert words in str(caught.value)
        with pytest.raises(SafetensorError) as again:
            list(stream_tensors(header, 8 + len(header) + 4))
        assert str(again.value) == str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(header) + 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        " " + _X + "}}",
        '{"__metadata__":{"a":"b","a":"b"},' + _X[1:] + "}}",
        _X + ',"y":[{}]}}',
        _X + ',"y":{"z":1}}}',
    ],
)
def test_what_only_the_reference_loads_is_what_the_documentation_names(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "only_theirs.safetensors"
    path.write_bytes(raw_file(None, _FOUR, text.encode()))
    assert safetensors.numpy.load_file(path)["x"].tobytes() == _FOUR
    with pytest.raises(SafetensorError):
        load_file(path, framework="np")


def test_ignored_keys_are_those_of_the_reference_where_they_are_few(tmp_path: Path) -> None:
    path = tmp_path / "more.safetensors"
    more: dict[str, Any] = {f"[{{{number}": value for number, value in enumerate(["}]", 1, None])}
    entry = {**more, **one()["x"], "last": '"\\', "true": True}
    for header in ({"x": entry}, {"x": dict(reversed(entry.items()))}):
        path.write_bytes(raw_file({**header, "__metadata__": {"[{": '"}]'}}, _FOUR))
        assert load_file(path, framework="np")["x"].tobytes() == _FOUR
        assert safetensors.numpy.load_file(path)["x"].tobytes() == _FOUR
        with safe_open(path, "np") as file:
            assert file.metadata() == {"[{": '"}]'}


def test_files_of_other_formats_are_told_with_what_loads_them(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    index = b'{"weight_map": {"a": "x.safetensors"}}'
    (tmp_path / "x.json").write_bytes(index)
    for name, words in (
        ("x.npy", r"x\.npy: .*an \.npy file: hippogriff\.arrays\.load_npy"),
        ("x.npz", r"hippogriff\.arrays\.load_npz"),
        ("x.json", r"index of shards that is named \*\.index\.json"),
    ):
        for load in (load_file, safe_open):
            with pytest.raises(SafetensorError, match=words):
                load(tmp_path / name, framework="np")


def test_what_is_well_formed_but_odd_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    empty = {"dtype": "F32", "shape": [0, 7], "data_offsets": [4, 4]}
    header = {"e": empty, **one(), "f": {**empty, "data_offsets": [0, 0]}, "g": {**empty, "x": 1}}
    path.write_bytes(raw_file(None, _FOUR, json.dumps(header).encode() + b"  \n"))
    loaded = load_file(path, framework="np")
    assert loaded["x"].tobytes() == _FOUR
    assert loaded["e"].shape == (0, 7)
    path.write_bytes(raw_file({}))
    assert load_file(path, framework="np") == {}


@settings(max_examples=400)
@given(st.data())
def test_no_header_makes_the_parser_fail_otherwise_or_lie(data: st.DataObject) -> None:
    types = ("bool", "int8", "float16", "float32", "complex64")
    tensors = {f"t{size}/ü": np.ones(size, dtype) for size, dtype in enumerate(types)}
    header = json.loads(safetensors.numpy.save(tensors)[8:].split(b"}}")[0] + b"}}")
    text = bytearray(json.dumps(header).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3)
            | st.sampled_from([b"[", b"]", b"{", b"}", b'"', b",", b"9", b"-"])
        )
    file_bytes = 8 + len(text) + sum(array.nbytes for array in tensors.values())
    try:
        parsed = parse_header(bytes(text), file_bytes)
    except SafetensorError:
        return
    end = parsed.data_offset
    for tensor in parsed.tensors.values():
        assert tensor.offset == end
        end += tensor.size_bytes
    assert end == file_bytes


@given(st.binary(max_size=12), st.integers(0, 200_000_000))
def test_no_size_of_a_header_is_beyond_the_file(prefix: bytes, file_bytes: int) -> None:
    try:
        size = header_bytes(prefix[:8], file_bytes)
    except SafetensorError:
        return
    assert 8 + size <= file_bytes


def test_a_header_is_written_so_that_the_data_is_aligned() -> None:
    for count in range(9):
        assert len(format_header([], {"a": "x" * count})) % 8 == 0


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [1] * 100])
def test_shapes_that_a_framework_cannot_have_are_told(tmp_path: Path, shape: list[int]) -> None:
    size = 0 if 0 in shape else 1
    path = tmp_path / "shape.st"
    path.write_bytes(raw_file(one(shape=shape, offsets=[0, size]), b"x" * size))
    with pytest.raises(hippogriff.Unsupported, match="tensor 'x': an array of shape"):
        load_file(path, framework="np")


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def compact_headers(draw: st.DrawFn) -> tuple[bytes, int]:
    """Headers as writers write them, and the size of their files; some with a byte changed."""
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields["__metadata__"] = draw(st.dictionaries(_TEXTS, _TEXTS, max_size=2))
    end = 0
    for name in draw(st.lists(_TEXTS, max_size=6, unique=True)):
        shape = draw(st.lists(st.integers(0, 5), max_size=3))
        dtype, bits = draw(st.sampled_from([("U8", 1), ("BF16", 2), ("C64", 8)]))
        size = int(np.prod(shape, dtype=int)) * bits
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = bytearray(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode())
    text += b" " * draw(st.integers(0, 3))
    file_bytes = 8 + len(text) + end
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(text) - 1))
        text[place] = draw(st.sampled_from(b'0123,:"{}[] \\aU8\xff'))
    return bytes(text), file_bytes


def _place(tensor: Any) -> tuple[int, int]:
    return tensor.offset, tensor.size_bytes


@settings(max_examples=1000)
@given(compact_headers(), st.sampled_from([1024, 2, 1]))
def test_entries_taken_early_are_what_the_strict_parser_finds(
    header: tuple[bytes, int], most: int
) -> None:
    text, file_bytes = header
    assume(text.startswith(b"{"))

    def outcome(parse: Any) -> Any:
        try:
            return parse(text, file_bytes)
        except SafetensorError as error:
            return str(error)

    strict = outcome(_parse)
    assert outcome(parse_header) == strict
    with mock.patch.multiple(_entries, _FIRST=most, _MOST=most):
        streamed = outcome(
            lambda *header: sorted(stream_tensors(*header), key=_place)
        )  # empty ones
    assert streamed == (strict if isinstance(strict, str) else list(strict.tensors.values()))


def test_a_truncated_file_of_many_tensors_is_refused_as_such(tmp_path: Path) -> None:
    tensors = {f"tensor.{number:06}": np.zeros(1000, np.uint8) for number in range(3000)}
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path)
    path.write_bytes(path.read_bytes()[:-1_000_000])
    with pytest.raises(SafetensorError, match="is it complete"):
        load_file(path, framework="np")


def test_sizes_beyond_the_file_are_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    size = 10**13
    fields = {
        f"t{number}": {
            "dtype": "U8",
            "shape": [size],
            "data_offsets": [number * size, (number + 1) * size],
        }
        for number in range(2000)
    }
    path = tmp_path / "hostile.safetensors"
    text = json.dumps(fields, separators=(",", ":")).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(1 << 20))
    with pytest.raises(SafetensorError):
        load_file(path, framework="np")


def test_loading_begins_before_all_of_a_header_is_read() -> None:
    fields = {
        f"t{number}": {"dtype": "U8", "shape": [4], "data_offsets": [4 * number, 4 * number + 4]}
        for number in range(2000)
    }
    text = json.dumps(fields, separators=(",", ":")).encode()[:-20]
    tensors = stream_tensors(text, 8 + len(text) + 4 * 2000)
    assert next(tensors).name == "t0"
    with pytest.raises(SafetensorError):
        list(tensors)


def test_first_tensors_of_a_large_header_take_no_copy_of_it() -> None:
    fields = {
        f"tensor {number} {'x' * 200}": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
        for number in range(10_000)
    }
    for number, field in enumerate(fields.values()):
        field["data_offsets"] = [number, number + 1]
    text = json.dumps(fields, separators=(",", ":")).encode()
    tracemalloc.start()
    try:
        assert next(stream_tensors(text, 8 + len(text) + 10_000)).offset == 8 + len(text)
        assert tracemalloc.get_traced_memory()[1] < len(text) / 5
    finally:
        tracemalloc.stop()
