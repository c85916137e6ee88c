"""Measures KvikIO, with its defaults and swept, and hippogriff's Python package beside it.

The cases, the file contents and the JSON are those of transfer_bench (see README.md). Run it from
the repository: `python3 -m bench.kvikio_bench`. Arrays are CuPy's on a GPU and NumPy's without
one. A contender that is not installed is absent, with the reason in the results. State "first"
times the first transfer of a process of its own each time, with all that it starts and pins.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import cases
from bench.cases import FIRST, GIB, MIB, RECV_SEED, SEND_SEED, STRIPE, Case, Place
from bench.contenders import make_contenders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.contenders import Contender

LATENCY_SIZE_MAX = MIB
FIRST_SIZE_MIN = 16 * MIB
# Of the settings swept, so many of the first round go on.
SWEPT_FURTHER = 3
DEFAULT_SIZES = "4KiB,64KiB,1MiB,16MiB,256MiB,1GiB,4GiB,8GiB"


@dataclass
class Measurement:
    """What one contender did in one case."""

    contender: Contender
    planned: int
    repetitions: list[dict[str, Any]] = field(default_factory=list)
    why_absent: str = ""


class Arrays:
    """Arrays on the device: CuPy's, or NumPy's on device host."""

    def __init__(self, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.module: Any = importlib.import_module("cupy") if on_gpu else np

    def empty(self, size: int) -> Any:
        """Return uninitialised bytes."""
        return self.module.empty(size, dtype=np.uint8)

    def synchronize(self) -> None:
        """Wait for all work on the device."""
        if self.on_gpu:
            self.module.cuda.Device().synchronize()

    def fill(self, array: Any, seed: int) -> None:
        """Put the pattern into an array."""
        for start in range(0, array.nbytes, STRIPE):
            size = min(STRIPE, array.nbytes - start)
            array[start : start + size] = cases.pattern(self.module, start, size, seed)
        self.synchronize()

    def differs(self, array: Any, offset: int, seed: int) -> bool:
        """Whether an array holds anything but the pattern."""
        for start in range(0, array.nbytes, STRIPE):
            size = min(STRIPE, array.nbytes - start)
            expected = cases.pattern(self.module, offset + start, size, seed)
            if not bool((array[start : start + size] == expected).all()):
                return True
        return False

    def facts(self) -> dict[str, Any]:
        """Name the device."""
        if not self.on_gpu:
            return {"name": "host"}
        runtime = self.module.cuda.runtime
        return {
            "name": "cuda:0",
            "model": runtime.getDeviceProperties(0)["name"].decode(),
            "cuda_driver_version": runtime.driverGetVersion(),
        }


def cpu_seconds() -> float:
    """Return the CPU time of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident(name: str) -> int:
    """Return VmRSS or VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


class Bench:
    """The run: contenders, arrays, deadline, and the document that grows."""

    def __init__(self, options: argparse.Namespace, contenders: list[Contender]) -> None:
        self.options = options
        self.contenders = contenders
        self.arrays = Arrays(options.device != "host")
        # Every process of state "first" has memory of its own.
        in_children = options.states == [FIRST] and not options.only
        self.array = self.arrays.empty(0 if in_children else max(options.sizes))
        self.deadline = time.monotonic() + options.budget_seconds
        self.document = describe(options, self.arrays)

    def measure_case(self, case: Case) -> None:
        """Run the rounds of a case; contenders take turns in each."""
        wanted = self.rounds(case)
        results = [Measurement(contender, wanted) for contender in self.contenders]
        if case.direction == "recv":
            self.arrays.fill(self.array[: case.size], RECV_SEED)
        for round_number in range(wanted):
            started = time.monotonic()
            for i in range(len(results)):
                self.repeat(case, results[(i + round_number) % len(results)])
                if time.monotonic() > self.deadline:
                    break
            if time.monotonic() + (time.monotonic() - started) > self.deadline:
                break
            if round_number == 0:
                leave_the_slow(results)
        for result in results:
            self.keep(case, result)

    def rounds(self, case: Case) -> int:
        """Return how often a case is measured."""
        if case.size <= 16 * MIB:
            return 4 * int(self.options.rounds)
        slow = not case.place.in_memory and case.state != "cached" and case.size >= GIB
        rounds = int(self.options.rounds)
        return min(rounds, 2) if slow else rounds

    def repeat(self, case: Case, result: Measurement) -> None:
        """Take one measurement; a failure ends this contender's part in the case."""
        if result.why_absent or len(result.repetitions) >= result.planned:
            return
        if case.state == FIRST:
            self.repeat_in_child(case, result)
            return
        array = self.array[: case.size]
        try:
            first = not result.repetitions
            if case.direction == "recv":
                cases.clear_target(case.place)
            else:
                cases.set_cached(case)
                if first:
                    array.fill(0xA5)
            self.arrays.synchronize()
            repetition = self.time(case, result.contender, array)
            if first:
                self.verify(case, array)
            result.repetitions.append(repetition)
        except Exception as error:  # KvikIO raises many kinds, and each is a result.
            result.why_absent = f"{type(error).__name__}: {error}"[:500]

    def repeat_in_child(self, case: Case, result: Measurement) -> None:
        """Take one measurement in a process of its own."""
        cases.set_cached(case)
        only = {"name": result.contender.name, "parameters": result.contender.parameters}
        command = [sys.executable, "-m", "bench.kvikio_bench", "--only", json.dumps(only)]
        command += ["--dirs", str(case.place.directory), "--sizes", str(case.size)]
        command += ["--device", self.options.device, "--keep-files"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
            result.repetitions.append(json.loads(done.stdout))
        except subprocess.SubprocessError as error:
            words = getattr(error, "stderr", None) or str(error)
            result.why_absent = str(words).strip().rpartition("\n")[2][:500]

    def measure_first(self, place: Place, size: int) -> dict[str, Any]:
        """Return what this process's first transfer costs; raises ValueError for wrong bytes."""
        case = Case("send", FIRST, place, size)
        self.array.fill(0xA5)
        self.arrays.synchronize()
        repetition = self.time(case, self.contenders[0], self.array)
        self.verify(case, self.array)
        return repetition

    def time(self, case: Case, contender: Contender, array: Any) -> dict[str, Any]:
        """Run a contender once and return what it cost."""
        share = -1.0
        if case.direction == "send":
            descriptor = os.open(case.place.source, os.O_RDONLY)
            share = cases.cached_share(descriptor, 0, case.size)
            os.close(descriptor)
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        memory = resident("VmRSS")
        cpu = cpu_seconds()
        start = time.perf_counter()
        if case.direction == "send":
            contender.send(case.place.source, array, 0)
        else:
            contender.recv(case.place.target, array, 0)
            if not case.place.in_memory:
                cases.sync_data(case.place.target)
        self.arrays.synchronize()
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds() - cpu,
            "resident_growth_bytes": resident("VmHWM") - memory,
            "cached_before": share,
        }

    def verify(self, case: Case, array: Any) -> None:
        """Compare what was moved with the pattern, byte for byte."""
        if case.direction == "send":
            wrong = self.arrays.differs(array, 0, SEND_SEED)
        else:
            wrong = case.place.target.stat().st_size != case.size
            host = Arrays(on_gpu=False)
            with case.place.target.open("rb") as file:
                # A sixteenth of a large file, as transfer_bench does.
                step = STRIPE * (16 if case.size > GIB else 1)
                for start in range(0, case.size, step):
                    file.seek(start)
                    piece = np.frombuffer(file.read(min(STRIPE, case.size - start)), np.uint8)
                    wrong = wrong or host.differs(piece, start, RECV_SEED)
        if wrong:
            raise ValueError("WRONG CONTENTS")

    def keep(self, case: Case, result: Measurement) -> None:
        """Add a contender's part to the document and print it."""
        entry: dict[str, Any] = {
            **case.describe(),
            "contender": result.contender.name,
            "parameters": result.contender.parameters,
            "planned_repetitions": result.planned,
        }
        label = f"  {result.contender.name:<18} {json.dumps(result.contender.parameters):<60}"
        if result.why_absent:
            entry["why_absent"] = result.why_absent
            print(label, "absent:", result.why_absent)
        elif len(result.repetitions) < result.planned:
            self.document["dropped"].append(
                {**entry, "planned": result.planned, "done": len(result.repetitions)}
            )
        if result.repetitions:
            rates = [case.size / 1e9 / r["seconds"] for r in result.repetitions]
            cpu = [r["cpu_seconds"] / (case.size / 1e9) for r in result.repetitions]
            entry["verified"] = "a sixteenth" if case.direction == "recv" else "every byte"
            if case.size <= GIB:
                entry["verified"] = "every byte"
            entry["repetitions"] = result.repetitions
            entry["summary"] = {
                "gb_per_second_median": statistics.median(rates),
                "gb_per_second_min": min(rates),
                "gb_per_second_max": max(rates),
                "cpu_seconds_per_gb_median": statistics.median(cpu),
            }
            print(f"{label} {statistics.median(rates):7.2f} GB/s {statistics.median(cpu):.3f} CPU")
        self.document["results"].append(entry)

    def measure_latency(self, place: Place, direction: str, size: int) -> None:
        """Time single operations at random offsets; contenders take turns in blocks of 100.

        Without the settings swept: they say how many threads share what one alone moves here.
        """
        contenders = [c for c in self.contenders if c.name != "kvikio_swept"]
        file_size = min(max(self.options.sizes), GIB)
        case = Case(direction, "cached", place, file_size)
        if direction == "send":
            cases.set_cached(case)
        else:
            cases.clear_target(place)
            with place.target.open("wb") as file:
                for start in range(0, file_size, STRIPE):
                    file.write(bytes(min(STRIPE, file_size - start)))
        array = self.array[:size]
        random = np.random.default_rng(size)
        times: list[list[float]] = [[] for _ in contenders]
        blocks = 10 if self.options.rounds >= 5 else 2
        for block in range(blocks):
            for i in range(len(contenders)):
                which = (i + block) % len(contenders)
                contender = contenders[which]
                call = contender.send if direction == "send" else contender.recv
                path = place.source if direction == "send" else place.target
                offsets = random.integers(0, (file_size - size) // 4096 + 1, size=100) * 4096
                with contextlib.suppress(Exception):
                    times[which] += list(self.time_operations(call, path, array, offsets))
        for contender, seconds in zip(contenders, times, strict=True):
            if seconds:
                self.keep_latency({**case.describe(), "size_bytes": size}, contender, seconds)

    @staticmethod
    def time_operations(
        call: Callable[[Path, Any, int], None], path: Path, array: Any, offsets: Any
    ) -> Iterator[float]:
        """Yield the seconds of a call at each offset. Opening the file is part of it."""
        for offset in offsets:
            start = time.perf_counter()
            call(path, array, int(offset))
            yield time.perf_counter() - start

    def keep_latency(
        self, fields: dict[str, Any], contender: Contender, seconds: list[float]
    ) -> None:
        """Add percentiles to the document."""
        percentiles = np.percentile(seconds, [0, 50, 90, 99, 100])
        names = ("min", "p50", "p90", "p99", "max")
        values = dict(zip(names, map(float, percentiles), strict=True))
        self.document["latencies"].append(
            {
                **fields,
                "contender": contender.name,
                "parameters": contender.parameters,
                "operations": len(seconds),
                "verified": "no",
                "note": "each operation opens the file",
                "seconds": {**values, "mean": float(np.mean(seconds))},
            }
        )
        print(
            f"  {fields['size_bytes']:>8} B {contender.name:<18} p50 {values['p50'] * 1e6:.1f} us"
        )

    def save(self) -> None:
        """Write the document so that a run that is cut off leaves what it had."""
        if self.options.json:
            part = self.options.json.with_suffix(".part")
            part.write_text(json.dumps(self.document, indent=1) + "\n")
            part.replace(self.options.json)

    def run(self) -> None:
        """Measure everything that the time allows, and remove the files."""
        places = [Place(directory, *kind_of(directory)) for directory in self.options.dirs]
        for place in places:
            cases.create_source(place, max(self.options.sizes))
        try:
            for place in places:
                for size in self.options.sizes if self.options.states != [FIRST] else []:
                    if size <= LATENCY_SIZE_MAX and size < max(self.options.sizes):
                        for direction in self.options.directions:
                            self.measure_latency(place, direction, size)
            for case in self.cases(places):
                if time.monotonic() < self.deadline:
                    print(f"{case.place.filesystem} {case.direction} {case.state} {case.size}")
                    self.measure_case(case)
                else:
                    self.document["dropped"].append({**case.describe(), "contender": "all"})
                self.save()
        finally:
            for place in places:
                place.target.unlink(missing_ok=True)
                if not self.options.keep_files:
                    place.source.unlink(missing_ok=True)

    def cases(self, places: list[Place]) -> Iterator[Case]:
        """Yield the cases in order of measurement."""
        for direction in self.options.directions:
            for state in self.options.states:
                for place in places:
                    for size in self.options.sizes:
                        wanted = size >= MIB and (direction == "recv") == (state == "empty_file")
                        if place.in_memory and state not in {"cached", FIRST, "empty_file"}:
                            wanted = False
                        if state == FIRST and size < FIRST_SIZE_MIN:
                            wanted = False
                        if state == "half_cached" and size < 16 * MIB:
                            wanted = False
                        if state == "striped" and size < 4 * STRIPE:
                            wanted = False
                        if wanted:
                            yield Case(direction, state, place, size)


def kind_of(directory: Path) -> tuple[str, bool]:
    """Return the type of a file system, and whether it is in memory."""
    kind = cases.filesystem_of(directory)
    return kind, kind == "tmpfs"


def leave_the_slow(results: list[Measurement]) -> None:
    """After one round, leave all but the fastest of the settings swept at what they have."""
    swept = [r for r in results if r.contender.name == "kvikio_swept" and r.repetitions]
    swept.sort(key=lambda result: float(result.repetitions[0]["seconds"]))
    for result in swept[SWEPT_FURTHER:]:
        result.planned = 1


def describe(options: argparse.Namespace, arrays: Arrays) -> dict[str, Any]:
    """Start the document: where, when and with what."""
    processor = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("kvikio", "cupy", "hippogriff"):
        if name in sys.modules:
            module = sys.modules[name]
            version = getattr(module, "__version__", getattr(module, "version", "unknown"))
            versions[name] = str(version)
    return {
        "schema": "hippogriff-bench/1",
        "program": "kvikio_bench",
        "commit": options.commit,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command_line": [f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]],
        "budget_seconds": options.budget_seconds,
        "versions": versions,
        "machine": {
            "processor": processor,
            "cores": len(os.sched_getaffinity(0)),
            "kernel": f"{platform.system()} {platform.release()}",
            "device": arrays.facts(),
        },
        "results": [],
        "latencies": [],
        "dropped": [],
    }


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dirs", default=".,/dev/shm")
    parser.add_argument("--sizes", default=DEFAULT_SIZES)
    parser.add_argument("--directions", default="send,recv")
    parser.add_argument("--states", default=",".join(cases.STATES))
    parser.add_argument("--device", choices=["cuda:0", "host"], default="cuda:0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget-seconds", type=float, default=300)
    parser.add_argument("--quick", action="store_true", help="up to 256 MiB, no sweep, 2 rounds")
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--keep-files", action="store_true")
    parser.add_argument("--only", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.dirs = [Path(directory) for directory in options.dirs.split(",")]
    options.sizes = sorted(cases.parse_size(size) for size in options.sizes.split(","))
    options.directions = options.directions.split(",")
    options.states = options.states.split(",")
    if options.quick:
        options.sizes = [size for size in options.sizes if size <= 256 * MIB]
        options.rounds = min(options.rounds, 2)
    return options


def first_transfer(options: argparse.Namespace) -> int:
    """Measure one contender once, in this process, and print it."""
    contenders, _ = make_contenders(sweep=False, naive=True)
    chosen = [
        contender
        for contender in contenders
        if {"name": contender.name, "parameters": contender.parameters} == options.only
    ]
    place = Place(options.dirs[0], *kind_of(options.dirs[0]))
    print(json.dumps(Bench(options, chosen).measure_first(place, options.sizes[0])))
    return 0


def main() -> int:
    """Run and return the exit code."""
    options = parse_arguments()
    if options.only:
        return first_transfer(options)
    contenders, absent = make_contenders(
        sweep=not (options.quick or options.no_sweep), naive=FIRST in options.states
    )
    for name, reason in absent.items():
        print(f"{name} is absent: {reason}")
    if not contenders:
        print("nothing to measure", file=sys.stderr)
        return 1
    bench = Bench(options, contenders)
    bench.document["absent"] = absent
    bench.run()
    bench.save()
    print(f"{len(bench.document['dropped'])} measurements cut short for want of time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
