"""Registers, stack and spills of the kernels over arrays, and how many of their warps run at once.

python3 -m bench.kernel_resources measure  compiles them: bench/results/kernels/resources.json
python3 -m bench.kernel_resources page     writes docs/array_kernels.md from that file
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/kernels/resources.json"
PAGE = ROOT / "docs/array_kernels.md"
SCHEMA = "hippogriff-kernel-resources/1"

# The files, and the threads of a group that their kernels are launched with.
SOURCES = {
    "src/array/row_kernels.cu": 256,
    "bench/array/array_bench.cu": 128,
    "workloads/graph/graph_kernel.cu": 256,
    "workloads/queries/queries_kernel.cu": 256,
    "workloads/vectoradd/vectoradd_kernel.cu": 256,
    "workloads/blocks/blocks_kernel.cu": 256,
}
ARCHITECTURES = ("sm_80", "sm_90")

# Of a multiprocessor of both architectures (CUDA's programming guide, compute capabilities).
_REGISTERS = 65536
_WARPS_MAX = 64
_GROUPS_MAX = 32
_REGISTERS_UNIT = 256  # that a warp is given at once
_PARTITIONS = 4  # each with a share of the registers

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_FUNCTION = re.compile(r"Function properties for (\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")


def occupancy(registers: int, threads: int) -> float:
    """Return the share of a multiprocessor's warps that so many registers a thread leave room for.

    Groups of so many threads. Shared memory, which these kernels do not use, is left out.
    """
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // _REGISTERS_UNIT) * _REGISTERS_UNIT
    room = _REGISTERS // _PARTITIONS // of_warp * _PARTITIONS
    groups = min(room // warps, _WARPS_MAX // warps, _GROUPS_MAX)
    return groups * warps / _WARPS_MAX


def parse(text: str) -> list[dict[str, Any]]:
    """Return what ptxas -v says of each kernel; spills with those of all functions beneath it."""
    kernels: list[dict[str, Any]] = []
    function = ""
    for line in text.splitlines():
        if found := _ENTRY.search(line):
            kernels.append(
                {
                    "kernel": found[1],
                    "architecture": found[2],
                    "registers": 0,
                    "stack_bytes": 0,
                    "spill_bytes": 0,
                }
            )
        elif found := _FUNCTION.search(line):
            function = found[1]
        elif kernels and (found := _STACK.search(line)):
            kernels[-1]["spill_bytes"] += int(found[2]) + int(found[3])
            if function == kernels[-1]["kernel"]:
                kernels[-1]["stack_bytes"] = int(found[1])
        elif kernels and (found := _USED.search(line)):
            kernels[-1]["registers"] = int(found[1])
    return kernels


def _compile(nvcc: str, source: str, architecture: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as out:
        options = ["-cubin", "-std=c++20", "-O3", f"-arch={architecture}", "-Xptxas", "-v"]
        folders = [f"-I{ROOT / folder}" for folder in ("include", "src", ".")]
        done = subprocess.run(
            [nvcc, *options, *folders, "-o", out.name, str(ROOT / source)],
            check=True,
            capture_output=True,
            text=True,
        )
    return done.stderr


def measure() -> dict[str, Any]:
    """Compile all files for all architectures."""
    toolkit = subprocess.run(
        [ROOT / "tools/find-cuda"], check=True, capture_output=True, text=True
    ).stdout.strip()
    nvcc = f"{toolkit}/bin/nvcc"
    version = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"release [\d.]+, (V[\d.]+)", version.stdout)
    kernels = []
    for source, threads in SOURCES.items():
        for architecture in ARCHITECTURES:
            kernels += [
                {
                    "source": source,
                    **kernel,
                    "kernel": name_of(kernel["kernel"]),
                    "threads": threads,
                    "occupancy": occupancy(kernel["registers"], threads),
                }
                for kernel in parse(_compile(nvcc, source, architecture))
            ]
    return {"schema": SCHEMA, "nvcc": found[1] if found else "", "kernels": kernels}


def name_of(symbol: str) -> str:
    """Return a kernel's own name of its symbol, without namespaces, and its template's types."""
    done = subprocess.run(["c++filt", symbol], check=True, capture_output=True, text=True)
    name = done.stdout.strip().replace("(anonymous namespace)::", "").partition("(")[0]
    return re.sub(r"\w+::", "", name.removeprefix("void ")).replace("> >", ">>")


def page(results: dict[str, Any]) -> str:
    """Return the page."""
    lines = [
        "# Kernels over arrays: registers and occupancy",
        "",
        "Made by `python3 -m bench.kernel_resources page` from",
        "[results](../bench/results/kernels/resources.json) of",
        "`python3 -m bench.kernel_resources measure`, which compiles for",
        f"{' and '.join(ARCHITECTURES)} with nvcc {results['nvcc']}: no GPU is needed. Spills are",
        "those of the kernel and of all functions that it calls, stores and loads together.",
        "Occupancy is the share of a multiprocessor's 64 warps that the registers leave room for,",
        "with groups of so many threads; threads that wait for lines do not need much of it.",
        "",
        "Where warnings are errors (`WERROR=ON`, as in continuous integration) the library is not",
        "built with a kernel that spills (`ptxas -warn-spills`). Of what measures one does,",
        "as is meant: `elements_64` shows `view[i]` in a kernel that is held to 64 registers.",
        "The programs' kernels have registers for 16 warps a multiprocessor, and 24 in searches",
        "from above: with 32 they spilled 1 to 4 KB and were no quicker, but for those (H100).",
    ]
    for source in SOURCES:
        lines += [
            "",
            f"## {source}",
            "",
            "| kernel | | registers | stack, bytes | spills, bytes | threads | occupancy |",
            "|---|---|--:|--:|--:|--:|--:|",
        ]
        lines += [
            f"| `{each['kernel']}` | {each['architecture']} | {each['registers']} | "
            f"{each['stack_bytes']} | {each['spill_bytes']} | {each['threads']} | "
            f"{each['occupancy']:.2f} |"
            for each in sorted(
                (each for each in results["kernels"] if each["source"] == source),
                key=lambda each: (each["kernel"], each["architecture"]),
            )
        ]
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Do what one word says."""
    if words == ["measure"]:
        RESULTS.write_text(json.dumps(measure(), indent=1) + "\n")
    elif words == ["page"]:
        PAGE.write_text(page(json.loads(RESULTS.read_text())))
    else:
        sys.stderr.write(__doc__ or "")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
