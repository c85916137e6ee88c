"""Headers of `.npy` files and directories of `.npz` files as untrusted input, beside NumPy."""

from __future__ import annotations

import io
import time
import tracemalloc
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hippogriff
from hippogriff.arrays import ArrayFormatError, load_npy, load_npz
from hippogriff.arrays._header import HEADER_BYTES_MAX, header_end, parse_header
from hippogriff.arrays._literals import LiteralError, Literals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DESCR, _ORDER, _SHAPE = "'descr': '<f4'", "'fortran_order': False", "'shape': (3,)"


def header_of(text: str | bytes, version: int = 1) -> bytes:
    """Wrap a text as NumPy does."""
    if isinstance(text, str):
        text = text.encode("latin-1" if version < 3 else "utf-8")
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


def fields(descr: str = "'<f4'", order: str = "False", shape: str = "(3,)") -> str:
    """Make the text of a header."""
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


# What is wrong, the file, and what is said of it. NumPy takes the second list's: we are stricter.
MALFORMED: list[tuple[str, bytes, str]] = [
    ("an empty file", b"", "begins with b''"),
    ("half a magic", b"\x93NUM", "begins with"),
    ("no length", b"\x93NUMPY\x01\x00", "too few"),
    ("another magic", b"\x94" + header_of(fields())[1:] + bytes(12), "begins with"),
    ("a pickle", b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00", "pickle"),
    ("an archive", b"PK\x03\x04" + bytes(26), "load_npz"),
    ("version 4.0", header_of(fields(), 4) + bytes(12), "version 4.0"),
    ("version 1.1", b"\x93NUMPY\x01\x01" + header_of(fields())[8:] + bytes(12), "version 1.1"),
    ("a header beyond the file", header_of(fields())[:40], "beyond the file"),
    ("a header of 4 GB", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "4294967295 bytes"),
    ("no text", header_of("") + bytes(12), "too few"),
    ("no dictionary", header_of("[1, 2]"), "'{'"),
    ("a set", header_of("{1, 2}"), "a key"),
    ("a name", header_of(fields("float32")) + bytes(12), "no literal"),
    ("a call", header_of(fields("__import__('os')")) + bytes(12), "no literal"),
    ("an operator", header_of(fields(shape="(1+2,)")) + bytes(12), "no literal"),
    ("a line of its own", header_of(fields() + "\n1") + bytes(12), "its end"),
    ("an indented line before", header_of("\n " + fields()) + bytes(12), "not with '{'"),
    ("an indented line behind", header_of(fields() + " \r  ") + bytes(12), "its end"),
    ("bytes", header_of(fields("b'<f4'")) + bytes(12), "no literal"),
    ("an open string", header_of("{'descr: 3}"), "no literal"),
    ("a newline in a string", header_of(fields("'<f\n4'")) + bytes(12), "no literal"),
    ("a zero byte", header_of(fields() + "\0") + bytes(12), "no literal"),
    ("no closing brace", header_of(fields()[:-1]) + bytes(12), "a key"),
    ("a missing comma", header_of(f"{{{_DESCR} {_ORDER}, {_SHAPE}}}") + bytes(12), "','"),
    ("a missing key", header_of(f"{{{_DESCR}, {_SHAPE}}}") + bytes(12), "the keys"),
    ("another key", header_of(fields()[:-1] + "'more': 3}") + bytes(12), "the keys"),
    ("a key that is no string", header_of("{1: 2}"), "a key"),
    ("deep nesting", header_of(fields(shape="(" * 5000 + ")" * 5000), 2), "too deep"),
    ("deep lists", header_of(fields("[" * 90_000), 2), "too deep"),
    ("shape: a list", header_of(fields(shape="[3]")) + bytes(12), "the shape"),
    ("shape: a number", header_of(fields(shape="(3)")) + bytes(12), "the shape"),
    ("shape: negative", header_of(fields(shape="(-3,)")) + bytes(12), "no literal"),
    ("shape: a float", header_of(fields(shape="(3.0,)")) + bytes(12), "no literal"),
    ("shape: a string", header_of(fields(shape="('3',)")) + bytes(12), "the shape"),
    ("shape: more than the file", header_of(fields(shape="(4,)")) + bytes(12), "needs 16 bytes"),
    ("shape: 2**63", header_of(fields(shape=f"({2**63},)")) + bytes(12), "the shape"),
    ("shape: overflows", header_of(fields(shape=f"({2**62}, 4)")) + bytes(12), "needs"),
    ("shape: overflows to 12", header_of(fields(shape=f"({2**62 + 3}, 4)")) + bytes(12), "needs"),
    ("shape: 10**30", header_of(fields(shape=f"({10**30},)")) + bytes(12), "no literal"),
    ("shape: 65 dimensions", header_of(fields(shape=str((1,) * 65))) + bytes(12), "the shape"),
    ("shape: 3L in version 3", header_of(fields(shape="(3L,)"), 3) + bytes(12), "a value"),
    ("order: a number", header_of(fields(order="0")) + bytes(12), "fortran_order"),
    ("order: None", header_of(fields(order="None")) + bytes(12), "no literal"),
    ("type: unknown", header_of(fields("'<q9'")) + bytes(12), "unknown"),
    ("type: of 3 bytes", header_of(fields("'<f3'")) + bytes(12), "'<f3'"),
    ("type: objects", header_of(fields("'|O'")) + bytes(24), "pickled"),
    ("type: objects of 8", header_of(fields("'|O8'")) + bytes(24), "pickled"),
    ("type: objects inside", header_of(fields("[('a', '|O8')]")) + bytes(24), "pickled"),
    ("type: too large", header_of(fields("'|V9999999999'")) + bytes(12), "V9999999999"),
    ("type: a number", header_of(fields("3")) + bytes(12), "unknown"),
    ("type: a name twice", header_of(fields("[('a', '<i2'), ('a', '<i2')]")) + bytes(12), "'a'"),
    ("type: a field of one", header_of(fields("[('a',)]")) + bytes(12), "the field"),
    ("type: a field of four", header_of(fields("[('a', '<i4', 1, 2)]")) + bytes(12), "the field"),
    ("type: a name of 3", header_of(fields("[(3, '<i4')]")) + bytes(12), "the name"),
    ("type: three names", header_of(fields("[(('a', 'b', 'c'), '<i4')]")), "the name"),
    ("type: a shape of a string", header_of(fields("[('a', '<i4', ('b',))]")), "the shape"),
    ("type: a huge field", header_of(fields(f"[('a', '<i4', ({2**40},))]")), "element type"),
    ("no UTF-8", header_of(fields().encode() + b"\xff", 3) + bytes(12), "UTF-8"),
]
STRICTER: list[tuple[str, bytes, str]] = [
    ("a comment", header_of(fields() + "# more") + bytes(12), "no literal"),
    ("a string of two", header_of(fields("'<' 'f4'")) + bytes(12), "','"),
    ("type: without bytes", header_of(fields("'|V0'")) + bytes(12), "no element type"),
    ("type: without fields", header_of(fields("[]")) + bytes(12), "no element type"),
    ("a key twice", header_of(fields()[:-1] + f"{_SHAPE}}}") + bytes(12), "twice"),
    ("a bool as a length", header_of(fields(shape="(True,)")) + bytes(12), "the shape"),
    ("arithmetic of literals", header_of(fields("'<c8'", shape="(+3,)")) + bytes(24), "literal"),
    ("a tuple type", header_of(fields("('<i2', (2,))")) + bytes(12), "unknown"),
    ("a type by its long name", header_of(fields("'float32'")) + bytes(12), "unknown"),
]


@pytest.mark.parametrize(
    ("data", "words"), [pytest.param(*each[1:], id=each[0]) for each in MALFORMED + STRICTER]
)
def test_malformed_files_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(ArrayFormatError) as caught:
        load_npy(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("data", [pytest.param(each[1], id=each[0]) for each in MALFORMED])
def test_numpy_refuses_them_too(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            array = np.lib.format.read_array(io.BytesIO(data), max_header_size=10_000)
        except Exception:
            return
    pytest.fail(f"NumPy makes {array!r} of it")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (fields(), 1),
        (fields() + " \t\f ", 1),
        ("  " + fields(), 2),
        ('{"descr": "<f4", "fortran_order": False, "shape": (3,)}', 3),
        ("{'shape':(3,),'fortran_order':False,'descr':'<f4'}", 1),
        (fields(shape="(3L,)"), 1),
        (fields(shape="( 3 , )"), 2),
        (fields("('<f4')"), 1),
        (fields("'f4'"), 1),
        (fields("'=f4'"), 1),
        (fields("'|f4'"), 1),
        (fields("'>f4'"), 1),
        (fields("'<M8[3D]'", shape="()"), 1),
        (fields("[('a', '<i2'), ('b', '<i2')]"), 1),
        (fields("[('a', '<i1', 2), ('', '|V2')]"), 1),
        (fields("[(('title', 'a'), [('b', '<i2', (2,))])]"), 1),
        (fields("[('é', '<f4')]"), 1),
        (fields("[('é\\'\\\\\\u20ac', '<f4')]"), 3),
        (fields(shape="(0, 7)"), 1),
        (fields(order="True", shape="(3, 1)"), 1),
    ],
)
def test_unusual_headers_that_numpy_takes_are_taken(
    tmp_path: Path, text: str, version: int
) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(header_of(text, version) + bytes(range(64, 76)) + b"what comes after")
    found = load_npy(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.load(path)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_the_longest_header_is_taken_and_one_more_byte_is_not() -> None:
    padding = " " * (HEADER_BYTES_MAX - len(fields()))
    header = header_of(fields() + padding, 2)
    assert header_end(header[:12]) == len(header)
    assert parse_header(header, len(header) + 12).shape == (3,)
    with pytest.raises(ArrayFormatError, match=str(HEADER_BYTES_MAX + 1)):
        header_end(header_of(fields() + padding + " ", 2)[:12])


@settings(deadline=None, max_examples=300)
@given(
    value=st.recursive(
        st.text(max_size=4) | st.integers(0, 10**19) | st.booleans(),
        lambda each: st.lists(each, max_size=3) | st.lists(each, max_size=3).map(tuple),
        max_leaves=8,
    )
)
def test_literals_are_parsed_as_python_writes_them(value: Any) -> None:
    text = repr({"a": value, "b": [value]})
    assert Literals(text, long_integers=False).parse_dictionary() == {"a": value, "b": [value]}


@settings(deadline=None, max_examples=300)
@given(text=st.text("{}()[],:'\"\\ab1L \n", max_size=30))
def test_what_is_taken_as_a_literal_python_takes_too(text: str) -> None:
    import ast

    try:
        found = Literals(text, long_integers=False).parse_dictionary()
    except LiteralError:
        return
    assert ast.literal_eval(text) == found


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(12, dtype=np.int16).reshape(3, 4).T)
    return file.getvalue()


def _structured() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3, [("a", "<f4", (2,)), ("b", "S3")]))
    return file.getvalue()


def _npz(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, a=np.arange(20.0), b=np.zeros((2, 3), np.int8), c=np.array("2020", "M8[Y]"))
    return file.getvalue()


_SOUND = {
    "npy": _npy(),
    "structured": _structured(),
    "npz": _npz(np.savez),
    "compressed": _npz(np.savez_compressed),
}


def _load_by_numpy(path: Path) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = np.load(path, max_header_size=HEADER_BYTES_MAX)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}


@pytest.mark.parametrize("kind", sorted(_SOUND))
@settings(
    deadline=None, max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    length=st.integers(0, 10**6) | st.none(),
)
def test_damaged_files_are_loaded_as_numpy_loads_them_or_refused(
    tmp_path: Path, kind: str, flips: list[tuple[int, int]], length: int | None
) -> None:
    data = bytearray(_SOUND[kind])
    for place, value in flips:
        data[place % len(data)] = value
    if length is not None:
        del data[length % len(data) :]
    path = tmp_path / "x"
    path.write_bytes(data)
    archive = kind in {"npz", "compressed"}
    tracemalloc.start()
    started = time.monotonic()
    try:
        found = load_npz(path, verify=True) if archive else {"": load_npy(path)}
    except (ArrayFormatError, hippogriff.Unsupported, hippogriff.OutOfHostMemory):
        return
    finally:
        assert time.monotonic() - started < 10
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        tracemalloc.stop()
    expected = _load_by_numpy(path)
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        assert array.shape == expected[name].shape
        assert array.tobytes() == expected[name].tobytes()
