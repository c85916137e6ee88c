"""Generated files, beside what the safetensors package makes of them and what it writes."""

from __future__ import annotations

import importlib
import importlib.util
import math
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_safetensors import write_file

from hippogriff.safetensors import load_file, load_into, safe_open, save_file
from hippogriff.safetensors._tensor import DTYPE_BITS

if TYPE_CHECKING:
    from pathlib import Path

# By safetensors' name: what the package's writer calls them, and NumPy or ml_dtypes.
_NUMPY = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
_SMALL = {
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_NAMES = {**_NUMPY, **(_SMALL if importlib.util.find_spec("ml_dtypes") else {})}

Tensors = dict[str, tuple[str, list[int], bytes]]


def numpy_type(dtype: str) -> np.dtype[Any]:
    """Return NumPy's dtype for safetensors' name."""
    if dtype in _NUMPY:
        return np.dtype(_NUMPY[dtype])
    found: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), _SMALL[dtype]))
    return found


def read_by_the_package(path: Path) -> dict[str, dict[str, Any]]:
    """Return what the safetensors package reads: dtype, shape and data of each tensor."""
    deserialize: Any = safetensors.deserialize
    return dict(deserialize(path.read_bytes()))


@st.composite
def tensors(draw: st.DrawFn) -> Tensors:
    """Draw tensors of any element type, in any order, empty and without dimensions too."""
    source = random.Random(draw(st.integers(0, 2**32)))
    kinds = st.tuples(st.sampled_from(sorted(_NAMES)), st.lists(st.integers(0, 17), max_size=4))
    drawn: Tensors = {}
    for number, (dtype, shape) in enumerate(draw(st.lists(kinds, max_size=30))):
        data = source.randbytes(math.prod(shape) * DTYPE_BITS[dtype] // 8)
        if dtype == "BOOL":
            data = bytes(byte & 1 for byte in data)
        drawn[f"{number}.{source.choice(['weight', 'ü', '  ', ''])}"] = dtype, shape, data
    return drawn


def write_by_the_package(path: Path, drawn: Tensors) -> None:
    """Let the safetensors package write a file."""
    keep, specs = [], {}
    for name, (dtype, shape, data) in drawn.items():
        array = np.frombuffer(data, np.uint8)
        keep.append(array)
        # Where no bytes are it refuses an address of none.
        address = array.ctypes.data if data else np.zeros(1).ctypes.data
        specs[name] = safetensors.TensorSpec(
            dtype=_NAMES[dtype], shape=shape, data_ptr=address, data_len=len(data)
        )
    safetensors.serialize_file(specs, path)


def assert_loaded_as_by_the_package(path: Path, framework: str = "np") -> None:
    """Compare each way to load with what the safetensors package reads."""
    expected = read_by_the_package(path)
    loaded = load_file(path, framework=framework)
    assert loaded.keys() == expected.keys()
    places = {
        name: np.zeros(each["shape"], numpy_type(each["dtype"])) for name, each in expected.items()
    }
    assert load_into(places, path) == ([], [])
    with safe_open(path, framework) as file:
        for name, theirs in expected.items():
            assert file.get_slice(name).get_dtype() == theirs["dtype"]
            assert file.get_slice(name).get_shape() == theirs["shape"]
            cut = file.get_slice(name)[...]
            for array in (loaded[name], places[name], cut):
                assert array.dtype == numpy_type(theirs["dtype"]), name
                assert list(array.shape) == theirs["shape"], name
                assert array.tobytes() == theirs["data"], name


_examples = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_examples
@given(drawn=tensors())
def test_files_of_the_package_are_loaded_as_by_it(tmp_path: Path, drawn: Tensors) -> None:
    path = tmp_path / "theirs.safetensors"
    write_by_the_package(path, drawn)
    assert_loaded_as_by_the_package(path)
    # And what is saved again is the same for it.
    save_file(load_file(path, framework="np"), tmp_path / "ours.safetensors")
    assert read_by_the_package(tmp_path / "ours.safetensors") == read_by_the_package(path)


@_examples
@given(drawn=tensors(), padding=st.integers(0, 9))
def test_unaligned_tensors_are_loaded_as_by_the_package(
    tmp_path: Path, drawn: Tensors, padding: int
) -> None:
    path = tmp_path / "unaligned.safetensors"
    # Wide elements after narrow ones, and data that begin anywhere.
    write_file(path, drawn, " " * padding)
    assert_loaded_as_by_the_package(path)


def test_a_hundred_thousand_tensors_are_those_of_the_package(tmp_path: Path) -> None:
    random_bytes = np.random.default_rng(3).integers(0, 256, 1 << 20, np.uint8)
    kinds = [numpy_type(name) for name in sorted(_NUMPY) if name != "BOOL"]
    tensors = {}
    for number in range(100_000):
        kind = kinds[number % len(kinds)]
        begin, count = 8 * (number % 100_000), number % 7
        part = random_bytes[begin : begin + count * kind.itemsize]
        tensors[f"model.layers.{number}.weight"] = part.view(kind)
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    safetensors.numpy.save_file(tensors, theirs)
    places = {name: np.zeros_like(array) for name, array in tensors.items()}
    load_into(places, theirs)
    loaded = load_file(theirs, framework="np")
    save_file(loaded, ours)
    found = safetensors.numpy.load_file(ours)
    assert loaded.keys() == tensors.keys() == found.keys()
    for name, array in tensors.items():
        content = array.tobytes()
        for other in (loaded[name], places[name], found[name]):
            assert (other.dtype, other.tobytes()) == (array.dtype, content), name
