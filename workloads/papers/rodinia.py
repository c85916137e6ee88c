#!/usr/bin/env python3
"""Makes Rodinia's inputs of ours, ours of Rodinia's, and compares results.

Run it from the repository, with NumPy: `python3 -m workloads.papers.rodinia VERB PROGRAM …`.
files.md says what the files hold. Exit status: 0; 1 when results differ; 2 for an error.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.papers.paper_files import FORMATS, FileError, Input, Numbers, Output
from workloads.papers.rodinia_inputs import FROM, TO, WISHES
from workloads.papers.rodinia_results import BINARY, COMPARISONS, Pair, compare
from workloads.whole_files import replacing

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIFFERENT = 1
_ERROR = 2
_WISHED = sorted({name for wishes in WISHES.values() for name in wishes})


def to_rodinia(program: str, path: Path, folder: Path, *, rounds: bool) -> int:
    """Write what Rodinia's program reads into a folder."""
    with path.open("rb") as file:
        given = Input(file, path, FORMATS[program])
        folder.mkdir(parents=True, exist_ok=True)
        if any(each.is_file() and each.samefile(path) for each in folder.iterdir()):
            raise FileError(f"{path} lies in {folder}: name another folder")
        with tempfile.TemporaryDirectory(dir=folder, prefix=".hippogriff-") as name:
            export = TO[program](given, Path(name), rounds)
            for each in Path(name).iterdir():
                each.replace(folder / each.name)
    print(f"{folder}: {export.command}")
    for note in export.notes:
        print(f"rodinia.py: {note}", file=sys.stderr)
    return 0


def from_rodinia(program: str, paths: list[Path], path: Path, wishes: Numbers) -> int:
    """Make an input of ours of what Rodinia's program reads."""
    if path.exists() and any(path.samefile(each) for each in paths if each.exists()):
        raise FileError(f"{path} is what is to be read")
    numbers = {**FORMATS[program].defaults(), **WISHES[program], **wishes}
    with replacing(path) as file:
        output = Output(file, FORMATS[program])
        FROM[program](paths, output, numbers)
        output.finish(numbers, ", ".join(map(str, paths)))
    print(", ".join(f"{value} {name}" for name, value in numbers.items()))
    return 0


def compare_results(program: str, pair: Pair) -> int:
    """Compare a result of ours with one of Rodinia's."""
    verdict = compare(program, pair)
    print(verdict.words)
    return 0 if verdict.first is None else _DIFFERENT


def _wishes(options: argparse.Namespace) -> Numbers:
    """Return the numbers that are named, if the program has them."""
    given = {name: getattr(options, name) for name in _WISHED}
    found = {name: value for name, value in given.items() if value is not None}
    strange = sorted(found.keys() - WISHES[options.program].keys())
    if strange:
        raise FileError(f"{options.program} takes no --{strange[0]} here")
    return found


def _tolerance(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        message = f"{text} is no share from 0 to 1"
        raise argparse.ArgumentTypeError(message)
    return value


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="rodinia.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    to = verbs.add_parser("to-rodinia", help="make Rodinia's files")
    back = verbs.add_parser("from-rodinia", help="make our file")
    both = verbs.add_parser("compare", help="compare results")
    for each in (to, back, both):
        each.add_argument("program", choices=sorted(FORMATS))
    to.add_argument("our_file", type=Path)
    to.add_argument("directory", type=Path)
    to.add_argument("--round", action="store_true", help="of nn: places to tenths of a degree")
    back.add_argument("files", type=Path, nargs="+", help="nn: the .db files; hotspot: two files")
    back.add_argument("our_file", type=Path)
    both.add_argument("our_result", type=Path)
    both.add_argument("their_result", type=Path, help="dwt2d: without .r; cfd: the folder")
    both.add_argument("--tolerance", type=_tolerance, help="relative, instead of the program's")
    both.add_argument("--binary", action="store_true", help="theirs is a bare array as ours is")
    for each in (back, both):
        for name in _WISHED:
            each.add_argument(f"--{name}", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _run(options: argparse.Namespace) -> int:
    program = options.program
    if options.verb == "to-rodinia":
        return to_rodinia(program, options.our_file, options.directory, rounds=options.round)
    wishes = _wishes(options)
    if options.verb == "from-rodinia":
        return from_rodinia(program, options.files, options.our_file, wishes)
    if options.binary and program not in BINARY:
        raise FileError(f"--binary is of {', '.join(BINARY)}")
    relative = options.tolerance
    pair = Pair(
        ours=options.our_result,
        theirs=options.their_result,
        numbers={**FORMATS[program].defaults(), **WISHES[program], **wishes},
        relative=COMPARISONS[program][1] if relative is None else relative,
        binary=options.binary,
    )
    return compare_results(program, pair)


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    options = parse_arguments(words)
    try:
        return _run(options)
    except (FileError, OSError, MemoryError) as error:
        print(f"rodinia.py: {error or 'not enough memory'}", file=sys.stderr)
        return _ERROR


if __name__ == "__main__":
    # What is half made goes away as it does by the keyboard.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
