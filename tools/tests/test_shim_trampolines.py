"""The generator of the shim's trampolines, on a small driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import shim_trampolines

if TYPE_CHECKING:
    from pathlib import Path

HEADERS = """
#define cuMemAlloc cuMemAlloc_v2
#define cuMemcpy __CUDA_API_PTDS(cuMemcpy)
__CUDA_DEPRECATED CUresult CUDAAPI cuOld(int value);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t size);
CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult CUDAAPI cuGraphInstantiateWithFlags(int flags);
typedef CUresult (CUDAAPI *CUnotAFunction)(int value);
"""
TYPEDEFS = """
typedef CUresult (CUDAAPI *PFN_cuCtxCreate_v3020)(int);
typedef CUresult (CUDAAPI *PFN_cuCtxCreate_v2000)(int);
typedef CUresult (CUDAAPI *PFN_cuCtxCreate_v12050)(int);
typedef CUresult (CUDAAPI *PFN_cuWait_v11020_ptsz)(int);
typedef CUresult (CUDAAPI *PFN_cuWait_v11020)(int);
"""


def test_names_come_from_declarations_macros_versions_and_the_list() -> None:
    names = shim_trampolines.read_api(HEADERS, TYPEDEFS, "# cuOld\ncuNew\n").names
    assert names == sorted(names)
    assert set(names) == {
        "cuCtxCreate",
        "cuCtxCreate_v2",
        "cuCtxCreate_v3",
        "cuGraphInstantiateWithFlags",
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuMemcpy",
        "cuMemcpy_ptds",
        "cuNew",
        "cuOld",
        "cuWait",
        "cuWait_ptsz",
    }


def test_versions_mean_symbols_in_their_order_and_flavour() -> None:
    meanings = shim_trampolines.read_api(HEADERS, TYPEDEFS, "").meanings
    assert [(m.name, m.version, m.symbol, m.per_thread) for m in meanings] == [
        ("cuCtxCreate", 2000, "cuCtxCreate", "cuCtxCreate"),
        ("cuCtxCreate", 3020, "cuCtxCreate_v2", "cuCtxCreate_v2"),
        ("cuCtxCreate", 12050, "cuCtxCreate_v3", "cuCtxCreate_v3"),
        (
            "cuGraphInstantiate",
            12000,
            "cuGraphInstantiateWithFlags",
            "cuGraphInstantiateWithFlags",
        ),
        ("cuWait", 11020, "cuWait", "cuWait_ptsz"),
    ]


def test_a_listed_name_means_itself_from_its_version_on() -> None:
    listed = "cuNew 13010\ncuNew_ptsz\ncuWait 11020\ncuOther\n"
    api = shim_trampolines.read_api(HEADERS, TYPEDEFS, listed)
    assert {"cuNew", "cuNew_ptsz", "cuOther"} <= set(api.names)
    added = set(api.meanings) - set(shim_trampolines.read_api(HEADERS, TYPEDEFS, "").meanings)
    assert [(m.name, m.version, m.symbol, m.per_thread) for m in added] == [
        ("cuNew", 13010, "cuNew", "cuNew_ptsz")
    ]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_every_name_has_a_trampoline_and_a_place_in_the_table(architecture: str) -> None:
    api = shim_trampolines.read_api(HEADERS, TYPEDEFS, "")
    text = shim_trampolines.assembly(api, architecture)
    for index, name in enumerate(api.names):
        assert f"\n        .globl  {name}\n" in text
        assert f"\n{name}:" in text
        assert f"hippogriff_shim_entries+8*{index}" in text
    assert text.count(".quad .Llazy_") == len(api.names)
    assert "$name" not in text
    assert "$index" not in text


def test_the_version_script_shows_the_names_and_our_mark_only() -> None:
    api = shim_trampolines.read_api(HEADERS, TYPEDEFS, "")
    script = shim_trampolines.version_script(api)
    shown = script.split("global:")[1].split("local:")[0].replace(";", " ").split()
    assert shown == ["hippogriff_shim_mark", *api.names]


def test_headers_with_too_few_functions_and_unknown_processors_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cuda.h").write_text(HEADERS)
    extra = tmp_path / "extra.txt"
    extra.write_text("# a comment about cuSomething\ncuNew\n")
    for architecture, complaint in [("x86_64", "functions only"), ("mips", "no trampolines")]:
        arguments = [str(tmp_path), str(extra), architecture, str(tmp_path / "out")]
        monkeypatch.setattr("sys.argv", ["shim_trampolines.py", *arguments])
        assert shim_trampolines.main() == 1
        assert complaint in capsys.readouterr().err
