"""The project's own rules, checked on every file that git would keep.

Run it alone (``python tools/tidy.py``) or through ``make lint``. Each rule is a function that takes
a `Source` and yields what is wrong; tools/tests/test_tidy.py shows each one failing on a sample.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# What each module may include beside itself. An arrow that is not here is a design decision: see
# ARCHITECTURE.md before adding one.
MODULE_ARROWS = {
    "base": set[str](),
    "device": {"base"},
    "storage": {"base", "device"},
    "node": {"base", "device"},
    "noded": {"base", "storage", "node"},
    "checksum": {"base", "device"},
    "transfer": {"base", "device", "storage", "node", "noded", "checksum"},
    "array": {"base", "device", "storage", "node", "transfer"},
    "shim": {"base", "device", "node", "noded"},
}

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
README_LINES_MAX = 60

# Who forms groups of the lanes that happen to be together, and why nobody else does.
ACTIVE_LANES = "include/hippogriff/array/group.hpp"
ACTIVE_MASK = re.compile(r"\b(__activemask|coalesced_threads)\s*\(|\bactivemask\.b32\b")

CPP_SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
HEADER_SUFFIXES = {".h", ".hpp", ".cuh"}
BANNED_NAME_PARTS = {"utils", "util", "helpers", "helper", "common", "manager", "impl"}
# Written in pieces: this file keeps its own rules.
UNFINISHED_WORDS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(" + "|".join(["wo" + "rk", "ro" + "ot"]) + r")/")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


@dataclass(frozen=True)
class Source:
    """A file: its path relative to the repository, with slashes, and its text."""

    path: str
    text: str

    @property
    def suffix(self) -> str:
        """The last suffix with its dot."""
        return PurePosixPath(self.path).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders and the name."""
        return PurePosixPath(self.path).parts

    @property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return self.text.splitlines()


@dataclass(frozen=True)
class Finding:
    """What is wrong, and where. Lines count from 1; 0 is the whole file."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        """Return it as compilers print theirs."""
        return f"{self.path}:{self.line}: {self.message}"


def includes(source: Source) -> Iterator[tuple[int, bool, str]]:
    """Yield line number, whether it is quoted, and the target of every #include."""
    for number, line in enumerate(source.lines, 1):
        if match := INCLUDE.match(line):
            yield number, match[1] == '"', match[2]


def first_folder(target: str) -> str:
    """Return the folder an #include begins with; "" for a file alone: <array> is no module."""
    return target.split("/")[0] if "/" in target else ""


def check_module_arrows(source: Source) -> Iterator[Finding]:
    """Modules include only modules to their left; testing/ is for tests."""
    if source.suffix not in CPP_SUFFIXES or source.parts[0] != "src" or len(source.parts) < 3:
        return
    module = source.parts[1]
    if module not in MODULE_ARROWS:
        yield Finding(source.path, 0, f"tools/tidy.py does not know the module {module}")
        return
    is_test = re.search(r"_(test|fuzz|bench)\.cpp$", source.path) is not None
    for line, quoted, target in includes(source):
        first = first_folder(target)
        if quoted and first == "testing" and not is_test:
            yield Finding(source.path, line, "only tests include testing/")
        if first in MODULE_ARROWS and first != module and first not in MODULE_ARROWS[module]:
            yield Finding(source.path, line, f"module {module} must not include {first}")


def check_public_interface(source: Source) -> Iterator[Finding]:
    """Public headers and workloads include nothing from src/."""
    if source.suffix not in CPP_SUFFIXES or source.parts[0] not in {"include", "workloads"}:
        return
    for line, quoted, target in includes(source):
        first = first_folder(target)
        if first in MODULE_ARROWS or first in {"src", "testing"}:
            yield Finding(source.path, line, f"{source.parts[0]}/ stands on the public interface")
        elif quoted and source.parts[0] == "include":
            yield Finding(source.path, line, "public headers include with <hippogriff/...>")


def check_file_length(source: Source) -> Iterator[Finding]:
    """Long files want to be split by concept."""
    if source.suffix in CPP_SUFFIXES | {".py", ".cmake", ".sh"} and not is_generated(source):
        count = len(source.lines)
        if count > FILE_LINES_MAX:
            yield Finding(source.path, 0, f"{count} lines: more than {FILE_LINES_MAX}")


def is_generated(source: Source) -> bool:
    """Tables that a program wrote are exempt, by name."""
    return "_generated." in source.path


def blank_out(text: str) -> str:
    """Return C++ text with comments, strings and preprocessor lines blanked, newlines kept."""

    def blanks(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    pattern = (
        r'R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"|//[^\n]*|/\*.*?\*/'
        r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*"
    )
    return re.sub(pattern, blanks, text, flags=re.DOTALL | re.MULTILINE)


def function_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield first and last line of every outermost block that is a function's body.

    Approximate: a brace opens a scope when what stands before it names one (namespace, class,
    extern), a list when it follows `=`, `,` or a name, else a body when there is a `)` before it.
    """
    code = blank_out(text)
    scopes: list[str] = []
    statement_start = 0
    line = 1
    body_line = 0
    for position, character in enumerate(code):
        if character == "\n":
            line += 1
        elif character == "{":
            before = code[statement_start:position].strip()
            kind = "inside" if "body" in scopes else block_kind(before)
            if kind == "body":
                body_line = line
            scopes.append(kind)
            if kind != "list":
                statement_start = position + 1
        elif character == "}" and scopes:
            kind = scopes.pop()
            if kind == "body":
                yield body_line, line
            if kind != "list":
                statement_start = position + 1
        elif character == ";":
            statement_start = position + 1


def block_kind(before: str) -> str:
    """Say what a brace after this text opens, outside of functions."""
    if re.search(r"\b(namespace|extern)\b[^()]*$", before):
        return "scope"
    head = re.sub(r"<[^<>]*>", "", before)
    if re.search(r"\b(class|struct|union|enum)\b[^()=]*$", head):
        return "scope"
    initializes_member = re.search(r"(?<!:)[,:]\s*\w+$", head) is not None
    if ")" in before and not initializes_member and not before.endswith(("=", ",", "(")):
        return "body"
    return "list"


def check_function_length(source: Source) -> Iterator[Finding]:
    """Long functions hide several."""
    if is_generated(source):
        return
    if source.suffix in CPP_SUFFIXES:
        blocks = list(function_blocks(source.text))
    elif source.suffix == ".py":
        blocks = [
            (node.lineno, node.end_lineno or node.lineno)
            for node in ast.walk(ast.parse(source.text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    else:
        return
    for first, last in blocks:
        if last - first + 1 > FUNCTION_LINES_MAX:
            message = f"function of {last - first + 1} lines: more than {FUNCTION_LINES_MAX}"
            yield Finding(source.path, first, message)


def check_names(source: Source) -> Iterator[Finding]:
    """Names say what is in a file."""
    for part in source.parts:
        words = re.split(r"[_.\-]", part)
        for word in words:
            if word.lower() in BANNED_NAME_PARTS:
                yield Finding(source.path, 0, f"the name {part!r} does not say what is in it")


def check_finished(source: Source) -> Iterator[Finding]:
    """Unfinished work is an issue, not a comment."""
    for number, line in enumerate(source.lines, 1):
        if match := UNFINISHED_WORDS.search(line):
            yield Finding(source.path, number, f"{match[0]}: finish it or file an issue")


def check_machine_paths(source: Source) -> Iterator[Finding]:
    """Nothing in the repository depends on where somebody built it."""
    for number, line in enumerate(source.lines, 1):
        if match := MACHINE_PATHS.search(line):
            yield Finding(source.path, number, f"{match[0]} is a path of one machine")


def check_active_lanes(source: Source) -> Iterator[Finding]:
    """Lanes that happen to be together form groups in one place, which knows how."""
    if source.suffix not in CPP_SUFFIXES or source.path == ACTIVE_LANES:
        return
    for number, line in enumerate(source.lines, 1):
        if ACTIVE_MASK.search(line.split("//")[0]):
            yield Finding(source.path, number, f"Lanes::here of {ACTIVE_LANES} forms such groups")


def check_white_space(source: Source) -> Iterator[Finding]:
    """No tabs but Make's, nothing after the last word, one newline at the end."""
    tabs_allowed = source.parts[-1] == "Makefile"
    for number, line in enumerate(source.lines, 1):
        if "\t" in line and not tabs_allowed:
            yield Finding(source.path, number, "tab")
        if line != line.rstrip():
            yield Finding(source.path, number, "white space at the end of the line")
    if source.text and (not source.text.endswith("\n") or source.text.endswith("\n\n")):
        yield Finding(source.path, len(source.lines), "the file must end with one newline")


def check_opening(source: Source) -> Iterator[Finding]:
    """Every C++ file begins with a comment of what it is; headers are included once."""
    if source.suffix not in CPP_SUFFIXES:
        return
    if not source.text.startswith(("// ", "/* ", "/** ")):
        yield Finding(source.path, 1, "the first line must be a comment of what this file is")
    if source.suffix in HEADER_SUFFIXES:
        guarded = "#pragma once" in source.text
        # Headers that others install keep to what every compiler knows.
        if source.parts[0] == "include":
            guard = re.search(r"^#ifndef HIPPOGRIFF_\w+_$", source.text, re.MULTILINE)
            guarded = guarded or guard is not None
        if not guarded:
            yield Finding(source.path, 1, "header without #pragma once")


def check_module_readmes(sources: list[Source]) -> Iterator[Finding]:
    """Every module has a README of one screen; programs, tests' support and tools have one."""
    by_path = {source.path: source for source in sources}
    depths = {"src": 2, "workloads": 2, "bench": 1, "contrib": 1, "testing": 1, "tools": 1}
    folders = {
        s.parts[: depths[s.parts[0]]]
        for s in sources
        if s.parts[0] in depths and len(s.parts) > depths[s.parts[0]]
    }
    for folder in sorted(folders):
        path = "/".join((*folder, "README.md"))
        if path not in by_path:
            yield Finding(path, 0, "every module has a README.md")
        elif folder[0] == "src" and len(by_path[path].lines) > README_LINES_MAX:
            count = len(by_path[path].lines)
            yield Finding(path, 0, f"{count} lines: more than {README_LINES_MAX}")


def check_versions(sources: list[Source]) -> Iterator[Finding]:
    """Refuse a version that is not the same in all three places it stands in."""
    by_path = {source.path: source.text for source in sources}
    found: dict[str, str] = {}
    patterns = {
        "CMakeLists.txt": r"^project\(hippogriff VERSION (\d+\.\d+\.\d+)",
        "pyproject.toml": r'^version = "(\d+\.\d+\.\d+)"',
    }
    for path, pattern in patterns.items():
        match = re.search(pattern, by_path.get(path, ""), re.MULTILINE)
        found[path] = match[1] if match else "none"
    header = "include/hippogriff/hippogriff.h"
    numbers = re.findall(
        r"^#define HIPPOGRIFF_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$",
        by_path.get(header, ""),
        re.MULTILINE,
    )
    found[header] = ".".join(numbers) or "none"
    if len(set(found.values())) != 1 or "none" in found.values():
        yield Finding(header, 0, f"the versions differ: {found}")


FILE_RULES: list[Callable[[Source], Iterator[Finding]]] = [
    check_module_arrows,
    check_public_interface,
    check_file_length,
    check_function_length,
    check_names,
    check_finished,
    check_machine_paths,
    check_active_lanes,
    check_white_space,
    check_opening,
]
TREE_RULES: list[Callable[[list[Source]], Iterator[Finding]]] = [
    check_module_readmes,
    check_versions,
]


def kept_files(repository: Path) -> list[str]:
    """Return the paths that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return sorted({path for path in listing.stdout.split("\0") if path})


def read_sources(repository: Path, paths: Iterable[str]) -> list[Source]:
    """Read the text files; data (corpora, binaries, the licence) has no style."""
    sources = []
    for path in paths:
        file = repository / path
        is_data = "/corpus/" in path or path == "LICENSE" or path.endswith((".svg", ".json"))
        if is_data or not file.is_file() or file.is_symlink():
            continue
        try:
            sources.append(Source(path, file.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return sources


def check(sources: list[Source]) -> list[Finding]:
    """Return everything that is wrong, in the order of the files."""
    findings = [f for source in sources for rule in FILE_RULES for f in rule(source)]
    findings += [finding for rule in TREE_RULES for finding in rule(sources)]
    return sorted(findings, key=lambda finding: (finding.path, finding.line))


def main() -> int:
    """Check the repository this file is in."""
    repository = Path(__file__).resolve().parent.parent
    sources = read_sources(repository, kept_files(repository))
    findings = check(sources)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(sources)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
