"""The binding says what the header says."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hippogriff import _abi

_HEADER = Path(__file__).resolve().parents[2] / "include" / "hippogriff" / "hippogriff.h"


@pytest.fixture(scope="module")
def header() -> str:
    if not _HEADER.is_file():
        pytest.skip("the header is not beside an installed package")
    without_comments = re.sub(r"/\*.*?\*/", "", _HEADER.read_text(), flags=re.DOTALL)
    return "\n".join(line for line in without_comments.splitlines() if not line.startswith("#"))


def test_every_function_of_the_header_is_declared_with_its_arguments(header: str) -> None:
    functions = {
        re.findall(r"(\w+)\s*\(", text)[0]: _arguments(text)
        for text in re.findall(r"HIPPOGRIFF_API\s+([^;]*);", header)
    }
    assert len(functions) > 30
    declared = {name: len(arguments) for name, (_, arguments) in _abi.FUNCTIONS.items()}
    assert declared == {name: len(arguments) for name, arguments in functions.items()}


def _arguments(declaration: str) -> list[str]:
    inner = declaration[declaration.index("(") + 1 : declaration.rindex(")")]
    while (flat := re.sub(r"\([^()]*\)", "", inner)) != inner:
        inner = flat
    parts = [part.strip() for part in inner.split(",")]
    return [] if parts == ["void"] else parts


_C_TYPES = {
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "int64_t": ctypes.c_int64,
    "const char*": ctypes.c_char_p,
    "void*": ctypes.c_void_p,
    "const void*": ctypes.c_void_p,
    "void": None,
}


def test_plain_arguments_and_results_have_the_types_of_the_header(header: str) -> None:
    compared = 0
    for text in re.findall(r"HIPPOGRIFF_API\s+([^;]*);", header):
        name = re.findall(r"(\w+)\s*\(", text)[0]
        result, declared = _abi.FUNCTIONS[name]
        stated = re.findall(r"^(.*?)\s*\b" + name, text, flags=re.DOTALL)[0].strip()
        assert result is _C_TYPES[stated], name
        for argument, kind in zip(_arguments(text), declared, strict=True):
            c_type = re.sub(r"\s*\w+$", "", argument)
            if c_type in _C_TYPES:
                assert kind is _C_TYPES[c_type], f"{name}: {argument}"
                compared += 1
    assert compared >= 50


@pytest.mark.parametrize(
    ("prefix", "values"),
    [("hippogriff_status", _abi.Status), ("hippogriff_route", _abi.Route)],
)
def test_enumerations_have_the_values_of_the_header(
    header: str, prefix: str, values: type[_abi.Status] | type[_abi.Route]
) -> None:
    body = re.findall(r"enum " + prefix + r" \{(.*?)\}", header, flags=re.DOTALL)[0]
    found = {name: int(value) for name, value in re.findall(r"(\w+)\s*=\s*(\d+)", body)}
    start = "HIPPOGRIFF_ROUTE_" if prefix.endswith("route") else "HIPPOGRIFF_"
    assert found == {start + each.name: int(each) for each in values}


@pytest.mark.parametrize(
    ("name", "values"),
    [("hippogriff_flags", _abi.Flags), ("hippogriff_reserve_flags", _abi.ReserveFlags)],
)
def test_flags_have_the_values_of_the_header(
    header: str, name: str, values: type[_abi.Flags] | type[_abi.ReserveFlags]
) -> None:
    body = re.findall(rf"enum {name} \{{(.*?)\}}", header, flags=re.DOTALL)[0]
    found = {flag: 1 << int(bit) for flag, bit in re.findall(r"(\w+)\s*=\s*1u << (\d+)", body)}
    assert found == {"HIPPOGRIFF_" + str(each.name): int(each) for each in values}


def test_version_is_the_headers() -> None:
    if not _HEADER.is_file():
        pytest.skip("the header is not beside an installed package")
    numbers = re.findall(r"HIPPOGRIFF_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", _HEADER.read_text())
    assert tuple(numbers) == _abi.VERSION


def test_structures_lie_in_memory_as_a_c_compiler_lays_them_out(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not _HEADER.is_file():
        pytest.skip("no C compiler, or no header beside an installed package")
    structures = {
        "hippogriff_options": _abi.Options,
        "hippogriff_progress": _abi.Progress,
        "hippogriff_range": _abi.Range,
        "hippogriff_segment": _abi.Segment,
        "hippogriff_memory": _abi.Memory,
        "hippogriff_tensor_entry": _abi.TensorEntry,
        "hippogriff_tensor_search": _abi.TensorSearch,
        "hippogriff_error": _abi.Error,
    }
    lines = ["#include <stdio.h>", "#include <hippogriff/hippogriff.h>", "int main(void) {"]
    expected = []
    for name, structure in structures.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(structure)}")
        for field in structure._fields_:
            lines.append(f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));')
            expected.append(f"{name}.{field[0]} {getattr(structure, field[0]).offset}")
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join([*lines, "return 0; }"]))
    include = f"-I{_HEADER.parents[1]}"
    subprocess.run([compiler, include, str(source), "-o", str(program)], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert printed.split("\n")[:-1] == expected
