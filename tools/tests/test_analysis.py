"""clang-tidy is run again exactly where something that it reads has changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import analysis

if TYPE_CHECKING:
    from pathlib import Path

# Stands in for clang-tidy: notes what it is asked and finds fault with files that say BAD.
PROGRAM = """#!/bin/sh
for last in "$@"; do :; done
basename "$last" >>"{log}"
! grep -q BAD "$last"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {
        ".clang-tidy": "Checks: '*'\n",
        "tools/requirements-lint.txt": "clang-tidy==1\n",
        "src/base/a.hpp": "// A.\n#pragma once\n",
        "src/base/a.cpp": '// A.\n#include "base/a.hpp"\n#include <vector>\n',
        "src/base/b.cpp": "// B.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "build").mkdir()
    commands = [
        {"directory": str(tmp_path), "file": name, "command": f"c++ -c {name}"}
        for name in ("src/base/a.cpp", "src/base/b.cpp", "/usr/include/foreign.cpp")
    ]
    database = tmp_path / "build/compile_commands.json"
    database.write_text(json.dumps(commands), encoding="utf-8")
    program = tmp_path / "fake-clang-tidy"
    program.write_text(PROGRAM.format(log=tmp_path / "log"), encoding="utf-8")
    program.chmod(0o755)
    return tmp_path


def examined(repository: Path, expected_status: int = 0, *, own: bool = False) -> list[str]:
    """Run once and return the files that were looked at."""
    log = repository / "log"
    log.write_text("", encoding="utf-8")
    program = str(repository / "fake-clang-tidy")
    status = analysis.analyze(program, repository / "build", repository, 2, own=own)
    assert status == expected_status
    return sorted(log.read_text(encoding="utf-8").split())


def test_clean_files_are_looked_at_once(repository: Path) -> None:
    assert examined(repository) == ["a.cpp", "b.cpp"]
    assert examined(repository) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("src/base/b.cpp", ["b.cpp"]),
        ("src/base/a.hpp", ["a.cpp"]),
        (".clang-tidy", ["a.cpp", "b.cpp"]),
        ("tools/requirements-lint.txt", ["a.cpp", "b.cpp"]),
    ],
)
def test_what_changed_is_looked_at_again(
    repository: Path, changed: str, expected: list[str]
) -> None:
    examined(repository)
    with (repository / changed).open("a", encoding="utf-8") as stream:
        stream.write("# more\n")
    assert examined(repository) == expected


def test_files_with_findings_are_looked_at_until_they_are_clean(repository: Path) -> None:
    (repository / "src/base/b.cpp").write_text("// BAD\n", encoding="utf-8")
    assert examined(repository, expected_status=1) == ["a.cpp", "b.cpp"]
    assert examined(repository, expected_status=1) == ["b.cpp"]
    (repository / "src/base/b.cpp").write_text("// Good.\n", encoding="utf-8")
    assert examined(repository) == ["b.cpp"]
    assert examined(repository) == []


def test_a_folder_without_our_files_is_an_error(repository: Path) -> None:
    (repository / "build/compile_commands.json").write_text("[]", encoding="utf-8")
    examined(repository, expected_status=1)


def test_files_that_are_compiled_together_are_the_librarys_if_all_they_include_are(
    repository: Path,
) -> None:
    database = repository / "build/compile_commands.json"
    commands = json.loads(database.read_text(encoding="utf-8"))
    for number, included in enumerate(("src/base/a.cpp", "src/base/a_test.cpp", "bench/c.cpp")):
        together = repository / f"build/Unity/unity_{number}_cxx.cxx"
        together.parent.mkdir(parents=True, exist_ok=True)
        together.write_text(f'#include "{repository}/{included}"\n', encoding="utf-8")
        command = f"c++ -c {together}"
        commands.append({"directory": str(repository), "file": str(together), "command": command})
    test = {"directory": str(repository), "file": "src/base/b_test.cpp", "command": "c++ -c b"}
    (repository / "src/base/b_test.cpp").write_text("// A test.\n", encoding="utf-8")
    database.write_text(json.dumps([*commands, test]), encoding="utf-8")
    assert examined(repository, own=True) == ["a.cpp", "b.cpp", "unity_0_cxx.cxx"]
    (repository / "src/base/a.hpp").write_text("// Another.\n", encoding="utf-8")
    assert examined(repository, own=True) == ["a.cpp", "unity_0_cxx.cxx"]
    everything = examined(repository)
    assert everything == ["b_test.cpp", "unity_1_cxx.cxx", "unity_2_cxx.cxx"]
