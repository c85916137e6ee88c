"""What sharing a GPU costs: reserving, a call through the shim, a program under `hippogriff run`.

Run it in the repository, where torch and CuPy see a GPU: `python3 -m bench.sharing_costs --json
FILE`. Each round runs every program without and with `hippogriff run`, in another order each time,
and the one that waits for Python several times; a program says how long its own loop took, so that
starting it does not count.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from bench import sharing_costs_page
from bench.gpu_samples import gpu_facts
from bench.sharing import machine

SCHEMA = "hippogriff-sharing-costs/1"
_MEMORY = "8GiB"
_PATIENCE = 300
_NULL_DRIVER = "libhippogriff_null_cuda.so"
_CALLS = "2000"  # of a kind, nine times: some allocations take 60 µs

# Each prints the seconds of a step of its own: the median, and of training steps the least median
# of ten blocks, because other machines' work on the same processor only ever adds.
_TRAINING = """
        import statistics, time, torch
        torch.manual_seed(1)
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        inputs = torch.randn({batch}, {tokens}, 512, device="cuda")
        def step():
            optimizer.zero_grad(set_to_none=True)
            model(inputs).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
        for _ in range(20):
            step()
        medians = []
        for _ in range(10):
            seconds = []
            for _ in range({steps}):
                begin = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - begin)
            medians.append(statistics.median(seconds))
        print(min(medians))
    """

_SMALL_STEP = "training step (PyTorch, transformer of 6 layers)"
_TIMES_A_ROUND = {_SMALL_STEP: 3}  # It scatters by a third by itself.

PROGRAMS = {
    _SMALL_STEP: _TRAINING.format(batch=16, tokens=128, steps=20),
    "training step, eight times the tokens": _TRAINING.format(batch=64, tokens=256, steps=6),
    "kernels of 10 µs, one after the other (CuPy)": """
        import statistics, time, cupy
        code = r'''extern "C" __global__ void spin(long long ns) {
          long long begin, now;
          asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
          do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < ns);
        }'''
        spin = cupy.RawKernel(code, "spin")
        def step():
            for _ in range(1000):
                spin((1,), (1,), (cupy.int64(8500),))
            cupy.cuda.get_current_stream().synchronize()
        seconds = []
        for _ in range(60):
            begin = time.perf_counter()
            step()
            seconds.append((time.perf_counter() - begin) / 1000)
        print(statistics.median(seconds[10:]))
    """,
    "kernels of 10 µs, waiting for each (CuPy)": """
        import statistics, time, cupy
        code = r'''extern "C" __global__ void spin(long long ns) {
          long long begin, now;
          asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
          do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < ns);
        }'''
        spin, stream = cupy.RawKernel(code, "spin"), cupy.cuda.get_current_stream()
        def step():
            for _ in range(1000):
                spin((1,), (1,), (cupy.int64(8500),))
                stream.synchronize()
        seconds = []
        for _ in range(40):
            begin = time.perf_counter()
            step()
            seconds.append((time.perf_counter() - begin) / 1000)
        print(statistics.median(seconds[10:]))
    """,
}


def step_seconds(code: str, *, behind: bool) -> float:
    """Run a program; return the seconds of its step."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    if behind:
        command = [sys.executable, "-m", "hippogriff", "run", "--memory", _MEMORY, "--", *command]
    return float(output_of(command).split()[-1])


def output_of(command: list[str]) -> str:
    """Run a program that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:4])} …: {done.stderr[-2000:]}")
    return done.stdout


def measure(rounds: int, budget: float) -> list[dict[str, Any]]:
    """Return for every program the seconds of a step, by round, without and with the shim."""
    results: list[dict[str, Any]] = [
        {"program": program, "alone_seconds": [], "run_seconds": []} for program in PROGRAMS
    ]
    begin = time.monotonic()
    for number in range(rounds):
        for result in results:
            program = result["program"]
            for again in range(_TIMES_A_ROUND.get(program, 1)):
                if time.monotonic() - begin > budget:
                    return results
                for behind in ((False, True), (True, False))[(number + again) % 2]:
                    seconds = step_seconds(PROGRAMS[program], behind=behind)
                    result["run_seconds" if behind else "alone_seconds"].append(seconds)
    return results


def calls(build: Path, driver: str) -> list[dict[str, Any]]:
    """Return what a call takes in ns, of the driver alone and behind the shim."""
    shim = build / "lib" / "hippogriff" / "shim" / "libcuda.so.1"
    command = [str(build / "bin" / "shim_bench"), str(shim), driver, _CALLS]
    lines = output_of(command).splitlines()
    found = [re.fullmatch(r"(.*\S) +([\d.]+) +([\d.]+) +-?[\d.]+", line) for line in lines]
    return [
        {"call": each[1], "driver_ns": float(each[2]), "shim_ns": float(each[3])}
        for each in found
        if each
    ]


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--build", type=Path, default=Path("build"), help="bin/ is in it")
    parser.add_argument("--driver", default="", help="libcuda.so.1; default: the loader's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=600, help="seconds; then no more begins")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    results: dict[str, Any] = {
        "schema": SCHEMA,
        "commit": options.commit,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command_line": shlex.join(["python3", "-m", "bench.sharing_costs", *sys.argv[1:]]),
        "machine": machine(gpu_facts(0)),
        "stages_us": json.loads(output_of([str(options.build / "bin" / "noded_noded_bench")])),
        "calls": calls(options.build, options.driver or "libcuda.so.1"),
        "calls_of_null_driver": calls(options.build, str(options.build / _NULL_DRIVER)),
    }
    results["programs"] = measure(options.rounds, options.budget)
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(sharing_costs_page.tables(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
