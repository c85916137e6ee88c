"""Runs clang-tidy over a compilation database, several files at a time, remembering what was clean.

A file is looked at again when it, a header of ours that it includes, its command or .clang-tidy has
changed. The memory lies in the build folder and holds only files without findings.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
# What clang does not know or use of GCC's options and precompiled headers would each be a finding.
EXTRA_ARGUMENTS = [
    "--extra-arg=-Wno-ignored-gch",
    "--extra-arg=-Wno-unknown-warning-option",
    "--extra-arg=-Wno-unused-command-line-argument",
]
# Files that CMake's unity builds make include sources.
UNITY_ARGUMENTS = ["--checks=-bugprone-suspicious-include"]


@dataclass(frozen=True)
class Unit:
    """One C++ file of a compilation database."""

    build: Path
    path: Path
    command: str

    @property
    def is_unity(self) -> bool:
        """Whether it stands for the sources that it includes."""
        return self.path.parent.name == "Unity"


def read_units(build: Path, repository: Path) -> list[Unit]:
    """Return our files of the database, each once, in order."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    units = {}
    for entry in entries:
        path = Path(entry["directory"], entry["file"]).resolve()
        if path.is_relative_to(repository) and path.suffix in {".cpp", ".c", ".cxx"}:
            command = entry.get("command") or shlex.join(entry["arguments"])
            units[path] = Unit(build, path, command)
    return [units[path] for path in sorted(units)]


def sources_of(unit: Unit) -> list[Path]:
    """Return the sources that a file stands for: itself, or those that it includes."""
    if not unit.is_unity:
        return [unit.path]
    return [Path(name) for name in INCLUDE.findall(unit.path.read_text(encoding="utf-8"))]


def own_units(units: list[Unit], sources: Path) -> list[Unit]:
    """Return the library's own files, below `sources`: no tests, workloads and benchmarks."""
    return [
        unit
        for unit in units
        if all(
            path.is_relative_to(sources) and not path.stem.endswith("_test")
            for path in sources_of(unit)
        )
    ]


def own_files(path: Path, roots: list[Path], seen: dict[Path, str]) -> None:
    """Collect the text of a file and of every file of ours that it reaches by #include."""
    if path in seen:
        return
    seen[path] = path.read_text(encoding="utf-8")
    for target in INCLUDE.findall(seen[path]):
        for root in [path.parent, *roots]:
            if (root / target).is_file():
                own_files((root / target).resolve(), roots, seen)
                break


def fingerprint(unit: Unit, repository: Path) -> str:
    """Return a hash of all that clang-tidy's answer depends on and that we may change."""
    seen: dict[Path, str] = {}
    own_files(unit.path, [repository / "src", repository / "include", repository], seen)
    digest = hashlib.sha256()
    for text in [unit.command, (repository / ".clang-tidy").read_text(encoding="utf-8")]:
        digest.update(text.encode())
    digest.update((repository / "tools" / "requirements-lint.txt").read_bytes())
    for path in sorted(seen):
        digest.update(f"{path}\0{seen[path]}\0".encode())
    return digest.hexdigest()


def examine(program: str, unit: Unit) -> tuple[Unit, int, str]:
    """Run clang-tidy on one file; return its exit status and what it said."""
    extra = EXTRA_ARGUMENTS + (UNITY_ARGUMENTS if unit.is_unity else [])
    command = [program, "-p", str(unit.build), "--quiet", *extra, str(unit.path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    output = result.stdout if result.returncode == 0 else result.stdout + result.stderr
    return unit, result.returncode, output


def analyze(program: str, build: Path, repository: Path, jobs: int, *, own: bool = False) -> int:
    """Examine every file that is not known to be clean; return 1 when there are findings.

    `own`: the library's files alone. Those that the build compiles together are read so, and
    headers that all include once for them.
    """
    memory_file = build / "clang_tidy_clean.json"
    try:
        clean: dict[str, str] = json.loads(memory_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        clean = {}
    units = read_units(build, repository)
    if own:
        units = own_units(units, repository / "src")
    if not units:
        print(f"clang-tidy: {build} holds no files of ours", file=sys.stderr)
        return 1
    prints = {unit.path: fingerprint(unit, repository) for unit in units}
    wanted = [unit for unit in units if clean.get(str(unit.path)) != prints[unit.path]]
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for unit, status, output in pool.map(lambda u: examine(program, u), wanted):
            if status == 0:
                clean[str(unit.path)] = prints[unit.path]
            else:
                failed += 1
                clean.pop(str(unit.path), None)
                print(output.strip(), flush=True)
    memory_file.write_text(json.dumps(clean, indent=1), encoding="utf-8")
    known = len(units) - len(wanted)
    print(f"clang-tidy: {len(units)} files ({known} known to be clean), {failed} with findings")
    return 1 if failed else 0
