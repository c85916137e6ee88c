"""Each rule of tools/tidy.py, failing on a sample and passing on its right twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tidy
from tidy import Source

if TYPE_CHECKING:
    from pathlib import Path

HPP = "// A sample.\n#pragma once\n"
CPP = "// A sample.\n"


def messages(findings: object) -> list[str]:
    return [str(finding) for finding in findings]  # type: ignore[attr-defined]


def body(lines: int) -> str:
    """A function whose braces are `lines` lines apart, both counted."""
    return "int long_one() {\n" + "  step();\n" * (lines - 2) + "}\n"


@pytest.mark.parametrize(
    ("path", "include", "wrong"),
    [
        ("src/base/a.cpp", '"device/device.hpp"', "module base must not include device"),
        ("src/device/a.hpp", '"storage/storage.hpp"', "module device must not include storage"),
        ("src/device/a.hpp", "<transfer/route.hpp>", "module device must not include transfer"),
        ("src/storage/a_test.cpp", '"transfer/x.hpp"', "module storage must not include transfer"),
        ("src/storage/a.cpp", '"testing/faulty.hpp"', "only tests include testing/"),
        ("src/attic/a.cpp", '"base/error.hpp"', "does not know the module attic"),
        ("src/transfer/a.cpp", '"device/device.hpp"', None),
        ("src/base/a.cpp", '"base/error.hpp"', None),
        ("src/base/a.cpp", "<hippogriff/hippogriff.h>", None),
        ("src/base/a.cpp", "<array>", None),
        ("src/base/a.cpp", "<array/cache.hpp>", "module base must not include array"),
        ("src/storage/a_test.cpp", '"testing/faulty.hpp"', None),
    ],
)
def test_modules_include_only_what_is_left_of_them(
    path: str, include: str, wrong: str | None
) -> None:
    found = messages(tidy.check_module_arrows(Source(path, f"{CPP}#include {include}\n")))
    assert bool(found) == (wrong is not None)
    if wrong:
        assert wrong in found[0]


@pytest.mark.parametrize(
    ("path", "include", "wrong"),
    [
        ("include/hippogriff/x.hpp", '"base/error.hpp"', True),
        ("include/hippogriff/x.hpp", '"hippogriff.h"', True),
        ("workloads/lud/lud.cpp", '"transfer/route.hpp"', True),
        ("include/hippogriff/x.hpp", "<hippogriff/hippogriff.h>", False),
        ("workloads/lud/lud.cpp", '"lud_kernel.hpp"', False),
    ],
)
def test_public_headers_and_workloads_stay_outside(path: str, include: str, wrong: bool) -> None:
    found = messages(tidy.check_public_interface(Source(path, f"{CPP}#include {include}\n")))
    assert bool(found) == wrong


def test_a_file_may_have_as_many_lines_as_the_limit_and_no_more() -> None:
    at_limit = Source("src/base/a.cpp", "//\n" * tidy.FILE_LINES_MAX)
    past_limit = Source("src/base/a.cpp", "//\n" * (tidy.FILE_LINES_MAX + 1))
    assert not messages(tidy.check_file_length(at_limit))
    assert "601 lines" in messages(tidy.check_file_length(past_limit))[0]


def test_generated_tables_may_be_long() -> None:
    source = Source("src/base/codes_generated.cpp", "//\n" * 5000 + body(500))
    assert not messages(tidy.check_file_length(source))
    assert not messages(tidy.check_function_length(source))


def test_a_function_may_have_as_many_lines_as_the_limit_and_no_more() -> None:
    limit = tidy.FUNCTION_LINES_MAX
    wrap = CPP + "namespace a {\nclass B {\n public:\n" + "  int c = 0;\n" * 80 + "%s};\n}\n"
    for template in (CPP + "%s", wrap):
        at_limit = Source("src/base/a.cpp", template % body(limit))
        past_limit = Source("src/base/a.cpp", template % body(limit + 1))
        assert not messages(tidy.check_function_length(at_limit))
        assert "function of 71 lines" in messages(tidy.check_function_length(past_limit))[0]


@pytest.mark.parametrize(
    "head",
    [
        "Widget::Widget(int a) : a_(a), b_{a} {",
        "auto f(int a) noexcept -> std::vector<int> {",
        "template <class T> T f(T a) requires(sizeof(T) > 1) {",
        "TEST(RangeSet, insert_merges) {",
        "int f() const override try {",
    ],
)
def test_every_kind_of_function_is_measured(head: str) -> None:
    text = f"{CPP}{head}\n" + "  if (a) { b(); }\n" * 90 + "}\n"
    assert len(messages(tidy.check_function_length(Source("src/base/a.cpp", text)))) == 1


def test_braces_in_strings_and_comments_do_not_count() -> None:
    text = CPP + 'int f() {\n  g("{", \'{\', R"({{)");  // {\n}\n' + "int x = 0;\n" * 90
    assert not messages(tidy.check_function_length(Source("src/base/a.cpp", text)))


def test_tables_are_not_functions() -> None:
    text = CPP + "constexpr int table[] = {\n" + "  1,\n" * 90 + "};\n"
    assert not messages(tidy.check_function_length(Source("src/base/a.cpp", text)))


def test_python_functions_are_measured_too() -> None:
    text = "def f():\n" + "    pass\n" * tidy.FUNCTION_LINES_MAX
    assert messages(tidy.check_function_length(Source("tools/a.py", text)))
    text = "def f():\n" + "    pass\n" * (tidy.FUNCTION_LINES_MAX - 1)
    assert not messages(tidy.check_function_length(Source("tools/a.py", text)))


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("src/base/string_utils.hpp", True),
        ("src/base/helpers/x.cpp", True),
        ("python/hippogriff/common.py", True),
        ("src/device/memory_manager.cpp", True),
        ("src/device/device_impl.cpp", True),
        ("src/base/range.cpp", False),
        ("src/base/simple.cpp", False),
    ],
)
def test_names_that_say_nothing_are_refused(path: str, wrong: bool) -> None:
    assert bool(messages(tidy.check_names(Source(path, "")))) == wrong


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X"])
def test_unfinished_work_is_refused(word: str) -> None:
    assert "file an issue" in messages(tidy.check_finished(Source("a.md", f"x {word}: y\n")))[0]
    assert not messages(tidy.check_finished(Source("a.cpp", f'mkstemp("{word}{word}")\n')))


@pytest.mark.parametrize("path", ["/wo" + "rk/main/src", '"/ro' + 'ot/.cache"'])
def test_paths_of_one_machine_are_refused(path: str) -> None:
    assert "path of one machine" in messages(tidy.check_machine_paths(Source("a.md", path)))[0]
    relative = path.replace('"', "").removeprefix("/")
    assert not messages(tidy.check_machine_paths(Source("a.md", f"my{relative} x/{relative}")))


def test_groups_of_active_lanes_are_formed_in_one_place() -> None:
    group = "// A group.\nconst Lanes all(__activemask());\n"
    assert "Lanes::here" in messages(tidy.check_active_lanes(Source("src/array/a.cu", group)))[0]
    for other in ("cooperative_groups::coalesced_threads();\n", 'asm("activemask.b32 %0;");\n'):
        assert messages(tidy.check_active_lanes(Source("src/array/a.cu", other)))
    assert not messages(tidy.check_active_lanes(Source(tidy.ACTIVE_LANES, group)))
    assert not messages(tidy.check_active_lanes(Source("a.cuh", "// what __activemask() says\n")))


def test_white_space_is_checked() -> None:
    assert "tab" in messages(tidy.check_white_space(Source("a.cpp", "a\tb\n")))[0]
    assert not messages(tidy.check_white_space(Source("Makefile", "a:\n\tb\n")))
    assert "end of the line" in messages(tidy.check_white_space(Source("a.md", "a \n")))[0]
    for end in ("", "\n\n"):
        assert "one newline" in messages(tidy.check_white_space(Source("a.md", f"a{end}")))[0]


def test_files_open_with_a_comment_and_headers_are_guarded() -> None:
    assert not messages(tidy.check_opening(Source("src/base/a.hpp", HPP)))
    assert not messages(tidy.check_opening(Source("src/base/a.cpp", CPP)))
    without_comment = Source("src/base/a.cpp", "#include <map>\n")
    assert "comment" in messages(tidy.check_opening(without_comment))[0]
    assert "#pragma once" in messages(tidy.check_opening(Source("src/base/a.hpp", CPP)))[0]
    guarded = (
        "/* A sample. */\n#ifndef HIPPOGRIFF_SAMPLE_H_\n#define HIPPOGRIFF_SAMPLE_H_\n#endif\n"
    )
    assert not messages(tidy.check_opening(Source("include/hippogriff/a.h", guarded)))
    assert messages(tidy.check_opening(Source("src/base/a.hpp", guarded)))


def test_modules_have_a_readme_of_one_screen() -> None:
    code = Source("src/base/a.cpp", CPP)
    assert "every module has" in messages(tidy.check_module_readmes([code]))[0]
    at_limit = Source("src/base/README.md", "line\n" * tidy.README_LINES_MAX)
    past_limit = Source("src/base/README.md", "line\n" * (tidy.README_LINES_MAX + 1))
    assert not messages(tidy.check_module_readmes([code, at_limit]))
    assert "61 lines" in messages(tidy.check_module_readmes([code, past_limit]))[0]


@pytest.mark.parametrize("folder", ["workloads/bfs", "testing", "tools", "bench", "contrib"])
def test_programs_and_what_stands_beside_modules_have_a_readme(folder: str) -> None:
    code = Source(f"{folder}/a.cpp", CPP)
    assert "every module has" in messages(tidy.check_module_readmes([code]))[0]
    assert not messages(tidy.check_module_readmes([code, Source(f"{folder}/README.md", "")]))
    assert not messages(tidy.check_module_readmes([Source("workloads/README.md", "")]))


def test_the_version_is_the_same_everywhere() -> None:
    sources = [
        Source("CMakeLists.txt", "project(hippogriff VERSION 1.2.3 LANGUAGES C)\n"),
        Source("pyproject.toml", 'version = "1.2.3"\n'),
        Source(
            "include/hippogriff/hippogriff.h",
            "#define HIPPOGRIFF_VERSION_MAJOR 1\n#define HIPPOGRIFF_VERSION_MINOR 2\n"
            "#define HIPPOGRIFF_VERSION_PATCH 3\n",
        ),
    ]
    assert not messages(tidy.check_versions(sources))
    sources[1] = Source("pyproject.toml", 'version = "1.2.4"\n')
    assert "the versions differ" in messages(tidy.check_versions(sources))[0]
    assert "none" in messages(tidy.check_versions(sources[:1]))[0]


def test_every_rule_runs_on_every_file(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("int x;\t\n", encoding="utf-8")
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe\x00")
    sources = tidy.read_sources(tmp_path, ["a.cpp", "data.bin", "gone.cpp"])
    assert [source.path for source in sources] == ["a.cpp"]
    found = " ".join(str(finding) for finding in tidy.check(sources))
    for expected in ("comment of what", "tab", "end of the line", "versions differ"):
        assert expected in found
