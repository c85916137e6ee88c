"""Runs many programs that share a device: one after the other, packed by hand, and by the node.

Run it from the repository, where the programs are built: `python3 -m bench.sharing --json FILE`.
bench/README.md says what the modes are. Results are written after every case, so that what was
measured is kept when a run is cut off.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from bench.gpu_samples import GpuSamples, gpu_facts
from bench.sharing_runs import (
    MEMORY_SHARE,
    MIXED,
    MODES,
    Setup,
    UnavailableError,
    instances_of,
    run_mode,
)
from hippogriff._sizes import parse_size

SCHEMA = "hippogriff-sharing/1"
INSTANCES_MAX = 12
# What a context, its kernels and the driver take of a GPU, whoever runs.
_LEFT_OF_GPU = 0.98


def _first(path: str, name: str) -> str:
    """Return the first value after "name ... :" in a file; "" when there is none."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def machine(device: dict[str, Any] | None) -> dict[str, Any]:
    """Return what results say of this machine."""
    return {
        "processor": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "device": device,
    }


def document(options: argparse.Namespace, setup: Setup, device: dict[str, Any]) -> dict[str, Any]:
    """Return what a run says of itself, with no cases yet."""
    return {
        "schema": SCHEMA,
        "commit": options.commit,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command_line": shlex.join(["python3", "-m", "bench.sharing", *sys.argv[1:]]),
        "budget_seconds": options.budget,
        "versions": {"python": platform.python_version()},
        "machine": machine(device),
        "device_bytes": setup.device_bytes,
        "memory_bytes": {program: setup.memory_bytes(program) for program in MEMORY_SHARE},
        "program_options": setup.options,
        "cases": [],
    }


def save(path: Path, results: dict[str, Any]) -> None:
    """Replace the file as a whole: a reader, or the end of the machine, finds it complete."""
    about = json.dumps({key: value for key, value in results.items() if key != "cases"}, indent=1)
    cases = ",\n".join(json.dumps(case) for case in results["cases"])  # A line each: many samples.
    temporary = path.with_suffix(".writing")
    temporary.write_text(f'{about[:-2]},\n "cases": [\n{cases}\n]\n}}\n')
    temporary.replace(path)


class Bench:
    """Runs cases one after the other while the time lasts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        number = None if options.device == "host" else int(options.device.removeprefix("cuda:"))
        facts = None if number is None else gpu_facts(number)
        device_bytes = options.device_memory
        if device_bytes is None and facts is not None:
            device_bytes = int(facts["memory_bytes"] * _LEFT_OF_GPU)
        if device_bytes is None:
            raise SystemExit("nvidia-smi does not tell the device's memory: say --device-memory")
        nameless = {"name": options.device, "model": f"device {options.device}"}
        self._number = number if facts is not None else None
        self._setup = Setup(
            options.build.resolve() / "bin",
            tuple(shlex.split(options.hippogriff)),
            options.device,
            device_bytes,
            options.timeout,
            {program: shlex.split(getattr(options, program)) for program in MEMORY_SHARE},
        )
        self._results = document(options, self._setup, facts or nameless)
        self._checksums: dict[str, str] = {}
        self._absent: dict[str, str] = {}  # modes that do not exist here, and why
        self._deadline = time.monotonic() + options.budget

    def run(self) -> dict[str, Any]:
        """Run all cases; return the document."""
        for workload in self._options.workloads:
            for count in self._options.instances:
                if workload == MIXED and count % len(MEMORY_SHARE) != 0:
                    continue
                for mode in self._options.modes:
                    self._results["cases"].append(self._case(workload, count, mode))
                    save(self._options.json, self._results)
        return self._results

    def _case(self, workload: str, count: int, mode: str) -> dict[str, Any]:
        case: dict[str, Any] = {"workload": workload, "instances": count, "mode": mode}
        if time.monotonic() >= self._deadline:
            return case | {"why_absent": "the time was over"}
        if mode in self._absent:
            return case | {"why_absent": self._absent[mode]}
        samples = GpuSamples(self._number, self._options.sample_ms)
        try:
            with samples:
                programs = instances_of(workload, count)
                case |= run_mode(self._setup, mode, programs, self._deadline)
        except UnavailableError as why:
            self._absent[mode] = str(why)
            self._say(case, f"absent: {why}")
            return case | {"why_absent": str(why)}
        case["wrong"] = self._wrong_answers(case["runs"])
        case["gpu"] = samples.summary()
        words = f"{case['seconds']:8.2f} s, {case['failures']} failed, {case['wrong']} wrong"
        self._say(case, words + (", cut short" if case["cut"] else ""))
        return case

    def _wrong_answers(self, runs: list[dict[str, Any]]) -> int:
        """Count answers that are not those of the program's first instance."""
        answers = [(run["program"], run["checksum"]) for run in runs if run["exit_status"] == 0]
        return sum(
            self._checksums.setdefault(program, checksum) != checksum
            for program, checksum in answers
        )

    @staticmethod
    def _say(case: dict[str, Any], words: str) -> None:
        print(f"{case['workload']:9} {case['instances']:3} {case['mode']:20} {words}", flush=True)


def _names(known: tuple[str, ...]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(known)}")
        return names

    return parse


def _counts(text: str) -> list[int]:
    counts = [int(word) for word in text.split(",")]
    if not all(1 <= count <= INSTANCES_MAX for count in counts):
        raise argparse.ArgumentTypeError(f"instances are from 1 to {INSTANCES_MAX}")
    return counts


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    workloads = (*MEMORY_SHARE, MIXED)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--build", type=Path, default=Path("build"), help="bin/ is in it")
    parser.add_argument("--device", default="cuda:0", help="cuda:N or host")
    parser.add_argument(
        "--device-memory",
        type=parse_size,
        help="what programs share; default: the GPU's, less 2 %%",
    )
    parser.add_argument("--workloads", type=_names(workloads), default=list(workloads))
    parser.add_argument("--modes", type=_names(MODES), default=list(MODES))
    parser.add_argument("--instances", type=_counts, default=[1, 3, 6, 12])
    parser.add_argument("--budget", type=float, default=1500, help="seconds for all cases")
    parser.add_argument("--timeout", type=int, default=600, help="seconds an instance may wait")
    parser.add_argument("--sample-ms", type=int, default=100)
    parser.add_argument("--hippogriff", default=f"{sys.executable} -m hippogriff")
    parser.add_argument("--commit", default="unknown")
    for program in MEMORY_SHARE:
        parser.add_argument(f"--{program}", default="", help=f"more options of {program}")
    return parser.parse_args(words)


def main() -> int:
    """Run; return 1 when an answer was wrong."""
    results = Bench(parse_arguments()).run()
    return 1 if any(case.get("wrong") for case in results["cases"]) else 0


if __name__ == "__main__":
    sys.exit(main())
