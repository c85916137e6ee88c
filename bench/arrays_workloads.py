"""Runs the programs over arrays in storage (workloads/arrays) in all their modes.

Run it from the repository, where the programs are built: `python3 -m bench.arrays_workloads --json
FILE`. bench/README.md says what is measured. Results are written after every case, so that what was
measured is kept when a run is cut off.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import blocks_runs
from bench.drive_limit import AbsentError
from bench.gpu_samples import gpu_facts
from bench.sharing import machine, save
from hippogriff._sizes import parse_size
from hippogriff.errors import HippogriffError

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "hippogriff-arrays-workloads/1"
ALGORITHMS = ("bfs", "bfs --top-down", "cc", "pagerank")
KINDS = ("kronecker", "uniform")
PROGRAMS = ("graph", "queries", "vectoradd", "gather", "blocks")
STATES = ("cached", "cold")
READING = ("array", "resident", "zero-copy", "tiled")
WRITING = ("array", "tiled", "resident")
_PIECE = 1 << 22


@dataclass(frozen=True)
class Case:
    """A question to a program, without the mode."""

    name: str
    command: tuple[str, ...]  # the program's name, verb, data, options
    files: tuple[Path, ...]  # that it reads
    modes: tuple[str, ...]
    makes: tuple[Path, ...] = ()  # removed before: emptying a file that is there takes time


@dataclass(frozen=True)
class Sizes:
    """How large the data are, and which device makes those that a device can make."""

    device: str
    scale: int
    kinds: tuple[str, ...]
    sources: int
    rows: int
    numbers: int
    graphs: tuple[Path, ...] = ()  # beside those that are generated


def generate(program: Path, *words: str | Path) -> None:
    """Have a program make its data."""
    subprocess.run([program, "generate", *words], check=True)


def cases_of_graph(path: Path, name: str, sources: int) -> list[Case]:
    """Return what is asked of a graph."""
    cases = []
    for algorithm in ALGORITHMS:
        option, *more = algorithm.split()
        command = ["graph", "run", str(path), "--algorithm", option, *more]
        if option == "bfs":
            command += ["--sources", str(sources)]
        cases.append(Case(f"{algorithm} {name}", (*command,), (path,), READING))
    return cases


def graph_cases(programs: Path, folder: Path, sizes: Sizes) -> list[Case]:
    """Make the graphs; return what is asked of them and of those that are given."""
    cases = []
    for kind in sizes.kinds:
        path = folder / f"{kind}{sizes.scale}"
        size = ("--kind", kind, "--scale", str(sizes.scale))
        generate(programs / "graph", path, *size, "--device", sizes.device)
        cases += cases_of_graph(path, f"{kind} {sizes.scale}", sizes.sources)
    for path in sizes.graphs:
        cases += cases_of_graph(path, path.name, sizes.sources)
    return cases


def query_cases(programs: Path, folder: Path, sizes: Sizes) -> list[Case]:
    """Make the trips; return the six queries."""
    trips = folder / "trips"
    generate(programs / "queries", trips, "--rows", str(sizes.rows))
    files = tuple(sorted(trips.iterdir()))
    return [
        Case(f"Q{query}", ("queries", "run", str(trips), "--query", str(query)), files, READING)
        for query in range(6)
    ]


def vectoradd_cases(programs: Path, folder: Path, sizes: Sizes) -> list[Case]:
    """Make the numbers; return the one question."""
    numbers = folder / "numbers"
    generate(programs / "vectoradd", numbers, "--count", str(sizes.numbers))
    files = (numbers / "a", numbers / "b")
    return [Case("vectoradd", ("vectoradd", "run", str(numbers)), files, WRITING, (numbers / "c",))]


CASES = {"graph": graph_cases, "queries": query_cases, "vectoradd": vectoradd_cases}


def prepare(files: tuple[Path, ...], state: str) -> None:
    """Have the page cache hold the files, or nothing of them."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            if state == "cached":
                while file.read(_PIECE):
                    pass
            else:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Bench:
    """Runs cases one after the other while the time lasts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._deadline = time.monotonic() + options.budget
        number = None if options.device == "host" else int(options.device.removeprefix("cuda:"))
        facts = None if number is None else gpu_facts(number)
        self._results: dict[str, Any] = {
            "schema": SCHEMA,
            "commit": options.commit,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command_line": shlex.join(["python3", "-m", "bench.arrays_workloads", *sys.argv[1:]]),
            "budget_seconds": options.budget,
            "versions": {"python": platform.python_version()},
            "machine": machine(facts or {"name": options.device, "model": options.device}),
            "line_bytes": options.line,
            "cases": [],
        }

    def run(self) -> dict[str, Any]:
        """Run all cases; return the document."""
        options = self._options
        sizes = Sizes(
            options.device,
            options.scale,
            tuple(options.kinds),
            options.sources,
            options.rows,
            options.numbers,
            tuple(path.resolve() for path in options.graphs),
        )
        for program in options.programs:
            folder = Path(tempfile.mkdtemp(prefix=f"{program}-", dir=options.folder))
            try:
                if program == "blocks":
                    self._blocks(folder)
                    continue
                if program == "gather":
                    gather = self._gather if on_host(options) else self._gather_on_device
                    gather(folder)
                    continue
                for case in CASES[program](options.build.resolve() / "bin", folder, sizes):
                    for state in options.states:
                        self._measure(case, state)
            finally:
                shutil.rmtree(folder)
        return self._results

    def _measure(self, case: Case, state: str) -> None:
        """Run all modes in turns, so that a noisy minute falls on all of them."""
        data_bytes = sum(path.stat().st_size for path in case.files)
        cache_bytes = self._options.cache or max(1 << 20, data_bytes // self._options.cache_part)
        entries = {
            mode: new_entry(case.name, mode, state, data_bytes, cache_bytes) for mode in case.modes
        }
        for number in range(self._options.rounds):
            for mode, entry in entries.items():
                if "why_absent" not in entry:
                    self._repeat(case, mode, entry, check=number == 0)
        self._keep(list(entries.values()))

    def _keep(self, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            if entry["repetitions"]:
                entry.pop("why_absent", None)
                entry["summary"] = summary(entry["repetitions"])
            self._results["cases"].append(entry)
            print(words_of(entry), flush=True)
        save(self._options.json, self._results)

    def _gather_on_device(self, folder: Path) -> None:
        """Run all ways in turns, in this process."""
        from bench import gather_device  # It wants NumPy, as below.

        options = self._options
        size_bytes = options.gather_bytes // options.row_bytes * options.row_bytes
        cache_bytes = options.cache or max(1 << 20, size_bytes // options.cache_part)
        sizes = gather_device.Sizes(
            size_bytes, options.gather_rows, options.row_bytes, cache_bytes, options.line
        )
        bench = gather_device.Gather(
            folder / "rows", sizes, options.device, options.build.resolve() / "bin"
        )
        for state in options.states:
            entries = [
                new_entry("gather", mode, state, size_bytes, cache_bytes)
                for mode in gather_device.MODES[state]
            ]

            def measure(entry: dict[str, Any], number: int, state: str = state) -> dict[str, Any]:
                parts, reads = bench.measure(entry["mode"], state, number)
                total = {"seconds": parts, "total_seconds": sum(parts.values())}
                return {**total, "amplification": None, **({"reads": reads} if reads else {})}

            self._in_turns(entries, measure)
            self._keep(entries)

    def _blocks(self, folder: Path) -> None:
        """Read and overwrite random blocks past the page cache, beside what the drive gives."""
        options = self._options
        sizes = blocks_runs.Sizes(
            options.blocks_bytes, options.blocks_count, options.cache, options.cache_part
        )
        path = folder / "file"
        bench = blocks_runs.Blocks(path, sizes, options.device, options.build.resolve() / "bin")
        for case in blocks_runs.CASES:
            verb, block_bytes = case
            count = sizes.count_of(block_bytes)
            name, wanted = f"blocks {verb} {block_bytes}", count * block_bytes
            entries = [
                new_entry(name, mode, "cold", wanted, sizes.cache_of(block_bytes))
                | {"verb": verb, "block_bytes": block_bytes, "count": count}
                for mode in blocks_runs.MODES
            ]

            def measure(
                entry: dict[str, Any], number: int, case: tuple[str, int] = case
            ) -> dict[str, Any]:
                bench.prepare(entry["mode"], case[0], number)
                prepare((path,), "cold")
                left = max(self._deadline - time.monotonic(), 0)
                return bench.measure(entry["mode"], case, number, left)

            self._in_turns(entries, measure)
            self._keep(entries)

    def _in_turns(
        self, entries: list[dict[str, Any]], measure: Callable[[dict[str, Any], int], Any]
    ) -> None:
        """Add repetitions round by round; who fails is absent from then on."""
        for number in range(self._options.rounds):
            for entry in (each for each in entries if "why_absent" not in each):
                if time.monotonic() >= self._deadline:
                    entry["why_absent"] = "the time was over"
                    continue
                try:
                    entry["repetitions"].append(measure(entry, number))
                except subprocess.TimeoutExpired:
                    entry["why_absent"] = "the time was over"
                except (AbsentError, HippogriffError) as error:
                    entry["why_absent"] = str(error)
                except ValueError as error:
                    entry.update({"why_absent": str(error), "wrong": True})

    def _gather(self, folder: Path) -> None:
        """Run the program that measures all its ways and both states at once."""
        from bench import gather_runs  # It wants NumPy, which GPU machines need not have.

        options = self._options
        size_bytes = options.gather_bytes // options.row_bytes * options.row_bytes
        cache_bytes = options.cache or max(1 << 20, size_bytes // options.cache_part)
        entries = {
            (mode, state): new_entry("gather", mode, state, size_bytes, cache_bytes)
            for state in options.states
            for mode in gather_runs.MODES
        }
        why, wrong = "the time was over", False
        for _ in range(options.rounds):
            left = self._deadline - time.monotonic()
            if left <= 0:
                break
            sizes = (size_bytes, options.gather_rows, options.row_bytes, cache_bytes)
            program = options.build.resolve() / "bin" / "gather"
            try:
                seconds = gather_runs.measure_once(program, folder / "rows", sizes, left)
            except subprocess.TimeoutExpired:
                break
            except (ValueError, OSError) as error:
                why = str(error)
                wrong = "wrong" in why.lower()
                break
            for key, entry in entries.items():
                took = {"seconds": {"compute": seconds[key]}, "total_seconds": seconds[key]}
                entry["repetitions"].append({**took, "amplification": None})
        for entry in entries.values():
            entry.update({"why_absent": why, **({"wrong": True} if wrong else {})})
        self._keep(list(entries.values()))

    def _repeat(self, case: Case, mode: str, entry: dict[str, Any], *, check: bool) -> None:
        measured = self._run(case, mode, entry, check=check)
        if measured is not None and check and entry["state"] == "cold":
            # The oracle may have read the files before: they were not cold.
            measured = self._run(case, mode, entry, check=False)
        if measured is not None:
            entry["repetitions"].append(measured)

    def _run(
        self, case: Case, mode: str, entry: dict[str, Any], *, check: bool
    ) -> dict[str, Any] | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            entry["why_absent"] = "the time was over"
            return None
        for path in case.makes:
            path.unlink(missing_ok=True)
        prepare(case.files, entry["state"])
        program, *words = case.command
        command = [str(self._options.build.resolve() / "bin" / program), *words, "--mode", mode]
        command += ["--device", self._options.device, "--cache", str(entry["cache_bytes"])]
        command += ["--line", str(self._options.line), "--json", *(["--check"] if check else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            entry["why_absent"] = "the time was over"
            return None
        if done.returncode != 0:
            entry["why_absent"] = f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"
            entry["wrong"] = "WRONG" in done.stderr
            return None
        measured: dict[str, Any] = json.loads(done.stdout)["runs"][0]
        return measured


def new_entry(
    name: str, mode: str, state: str, data_bytes: int, cache_bytes: int
) -> dict[str, Any]:
    """Return what is told of a mode of a case, before it has run."""
    return {
        "case": name,
        "mode": mode,
        "state": state,
        "data_bytes": data_bytes,
        "cache_bytes": cache_bytes,
        "repetitions": [],
    }


def summary(repetitions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of what counts, and how far the times lie apart."""
    totals = [each["total_seconds"] for each in repetitions]
    amplifications = [each["amplification"] for each in repetitions]
    known = None not in amplifications
    return {
        "seconds_median": statistics.median(totals),
        "seconds_min": min(totals),
        "seconds_max": max(totals),
        "compute_seconds_median": statistics.median(
            each["seconds"]["compute"] for each in repetitions
        ),
        "amplification_median": statistics.median(amplifications) if known else None,
    }


def words_of(entry: dict[str, Any]) -> str:
    """Return a line that tells how a case went."""
    where = f"{entry['case']:24} {entry['state']:7} {entry['mode']:10}"
    if "summary" not in entry:
        return f"{where} absent: {entry['why_absent']}"
    found = entry["summary"]
    amplification = found["amplification_median"]
    moved = "written" if entry.get("verb") == "write" else "read"
    return f"{where} {found['seconds_median']:9.3f} s" + (
        "" if amplification is None else f", {amplification:.2f} bytes {moved} for one"
    )


def _names(known: tuple[str, ...]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(known)}")
        return names

    return parse


def _kinds(text: str) -> Any:
    return [] if text == "none" else _names(KINDS)(text)


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--build", type=Path, default=Path("build"), help="bin/ is in it")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the data are made")
    parser.add_argument("--device", default="cuda:0", help="cuda:N or host")
    parser.add_argument("--programs", type=_names(PROGRAMS), help="default: all for --device")
    parser.add_argument("--states", type=_names(STATES), default=["cached"], help="of the files")
    parser.add_argument("--scale", type=int, default=22, help="of graphs: 2^scale vertices")
    parser.add_argument("--kinds", type=_kinds, default=list(KINDS), help="of graphs, or none")
    parser.add_argument(
        "--graphs",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="graph files, beside the generated ones",
    )
    parser.add_argument("--sources", type=int, default=4, help="of breadth-first searches")
    parser.add_argument("--rows", type=int, default=100_000_000, help="of taxi trips")
    parser.add_argument("--numbers", type=int, default=100_000_000, help="of vectoradd")
    parser.add_argument("--gather-bytes", type=parse_size, default=1 << 30, help="of its file")
    parser.add_argument("--gather-rows", type=int, default=100_000, help="that are gathered")
    parser.add_argument("--row-bytes", type=int, default=512, help="of gather, a multiple of 8")
    parser.add_argument("--blocks-bytes", type=parse_size, default=1 << 30, help="of their file")
    parser.add_argument("--blocks-count", type=int, default=200_000, help="of each size, at most")
    parser.add_argument("--cache", type=parse_size, help="bytes; default: a part of the data")
    parser.add_argument("--cache-part", type=int, default=8, help="which part: one in so many")
    parser.add_argument("--line", type=parse_size, default=4096, help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=1500, help="seconds for all cases")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args(words)
    for path in options.graphs:
        if not path.is_file():
            parser.error(f"--graphs: {path} is no file")
    if len({path.name for path in options.graphs}) < len(options.graphs):
        parser.error("--graphs: two of the same name, which are cases' names")
    if options.programs is None:
        with_numpy = importlib.util.find_spec("numpy") is not None
        options.programs = [each for each in PROGRAMS if each != "gather" or with_numpy]
    return options


def on_host(options: argparse.Namespace) -> bool:
    """Whether no GPU is asked for."""
    return bool(options.device == "host")


def main() -> int:
    """Run; return 1 when an answer was wrong."""
    results = Bench(parse_arguments()).run()
    return 1 if any(case.get("wrong") for case in results["cases"]) else 0


if __name__ == "__main__":
    sys.exit(main())
