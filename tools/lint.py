"""Every linter of the project, one after the other, with a summary at the end.

``python tools/lint.py`` checks; ``--fix`` rewrites the formatting; ``--only NAME`` runs one. The
programs come from the environment this runs in, pinned by tools/requirements-lint.txt.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import tidy
from analysis import analyze

REPOSITORY = Path(__file__).resolve().parent.parent
CLANG_FORMAT_SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh")


def program(name: str) -> str:
    """Return the path of a program of this environment."""
    return str(Path(sys.executable).parent / name)


def call(*command: str) -> int:
    """Run a command in the repository and return its exit status."""
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


def files_with(suffixes: tuple[str, ...]) -> list[str]:
    """Return the files git keeps that end so and are not data."""
    return [
        path
        for path in tidy.kept_files(REPOSITORY)
        if path.endswith(suffixes) and "/corpus/" not in path and (REPOSITORY / path).is_file()
    ]


def shell_scripts() -> list[str]:
    """Return the files whose first line names a shell."""
    scripts = []
    for path in tidy.kept_files(REPOSITORY):
        file = REPOSITORY / path
        if not file.is_file():
            continue
        with file.open("rb") as stream:
            first = stream.readline(80)
        if first.startswith(b"#!") and (b"bash" in first or first.rstrip().endswith(b"sh")):
            scripts.append(path)
    return scripts


def clang_format(options: argparse.Namespace) -> int:
    """C++ and CUDA sources look as .clang-format says."""
    mode = ["-i"] if options.fix else ["--dry-run", "-Werror"]
    files = files_with(CLANG_FORMAT_SUFFIXES)
    return call(program("clang-format"), *mode, *files) if files else 0


def ruff_format(options: argparse.Namespace) -> int:
    """Python sources look as ruff says."""
    return call(program("ruff"), "format", "--quiet", *([] if options.fix else ["--check"]))


def ruff(options: argparse.Namespace) -> int:
    """Python sources keep the rules of pyproject.toml."""
    return call(program("ruff"), "check", "--quiet", *(["--fix"] if options.fix else []))


def mypy(_options: argparse.Namespace) -> int:
    """Python sources have types, strictly."""
    names = ("python", "tools", "bench", "contrib")
    folders = [name for name in names if any((REPOSITORY / name).rglob("*.py"))]
    return call(program("mypy"), *folders)


def codespell(_options: argparse.Namespace) -> int:
    """Words are spelled right."""
    return call(program("codespell"))


def shellcheck(_options: argparse.Namespace) -> int:
    """Shell scripts are careful."""
    scripts = shell_scripts()
    return call(program("shellcheck"), "--external-sources", *scripts) if scripts else 0


def project_rules(_options: argparse.Namespace) -> int:
    """Apply the rules of tools/tidy.py."""
    return tidy.main()


def analysis(options: argparse.Namespace) -> int:
    """Run clang-tidy over everything that the build compiles; with --own the library alone."""
    build = (REPOSITORY / options.build).resolve()
    if not (build / "compile_commands.json").is_file():
        print(f"clang-tidy: {build} is not configured: run make first", file=sys.stderr)
        return 1
    # Half of the time is the tests' and the programs', which all who change them look at before.
    return analyze(program("clang-tidy"), build, REPOSITORY, options.jobs, own=options.own)


LINTERS = {
    "clang-format": clang_format,
    "ruff-format": ruff_format,
    "ruff": ruff,
    "mypy": mypy,
    "codespell": codespell,
    "shellcheck": shellcheck,
    "tidy": project_rules,
    "clang-tidy": analysis,
}
FIXERS = ("clang-format", "ruff", "ruff-format")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", default="build", help="a configured build folder")
    parser.add_argument("--own", action="store_true", help="clang-tidy: the library alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fix", action="store_true", help="rewrite the formatting, no more")
    parser.add_argument("--only", choices=LINTERS, action="append", help="may be repeated")
    return parser.parse_args()


def main() -> int:
    """Run what was asked; return 1 when any linter has findings."""
    options = parse_arguments()
    names = options.only or (FIXERS if options.fix else LINTERS)
    failed = []
    for name in names:
        start = time.monotonic()
        sys.stdout.flush()
        status = LINTERS[name](options)
        verdict = "ok" if status == 0 else "FAILED"
        print(f"lint: {name}: {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
        if status != 0:
            failed.append(name)
    if failed:
        print(f"lint: findings by {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
