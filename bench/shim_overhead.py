"""Times programs as they are and under `hippogriff run`, in turns: what the shim costs them.

Run it where torch and CuPy see a GPU: `python3 -m bench.shim_overhead --json FILE`. Each round runs
every program once without and once with `hippogriff run`, in another order each time; a program
says how long its own loop took, so that starting it does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from bench.gpu_samples import gpu_facts

SCHEMA = "hippogriff-shim/1"
_MEMORY = "8GiB"
_PATIENCE = 300

# Each prints the median seconds of a step of its own.
PROGRAMS = {
    "training step (PyTorch, transformer of 6 layers)": """
        import statistics, time, torch
        torch.manual_seed(1)
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        inputs = torch.randn(16, 128, 512, device="cuda")
        def step():
            optimizer.zero_grad(set_to_none=True)
            model(inputs).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
        for _ in range(20):
            step()
        seconds = []
        for _ in range(200):
            begin = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begin)
        print(statistics.median(seconds))
    """,
    "training step without torch's cache": """
        import os
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        import statistics, time, torch
        torch.manual_seed(1)
        sizes = [1024] * 9
        layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
        model = torch.nn.Sequential(*layers).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        inputs = torch.randn(4096, 1024, device="cuda")
        def step():
            optimizer.zero_grad(set_to_none=True)
            model(inputs).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
        for _ in range(5):
            step()
        seconds = []
        for _ in range(50):
            begin = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begin)
        print(statistics.median(seconds))
    """,
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:4])} …: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def measure(rounds: int, budget: float) -> list[dict[str, Any]]:
    """Return for every program the seconds of a step, by round, without and with the shim."""
    results: list[dict[str, Any]] = [
        {"program": program, "alone_seconds": [], "run_seconds": []} for program in PROGRAMS
    ]
    begin = time.monotonic()
    for number in range(rounds):
        for result in results:
            if time.monotonic() - begin > budget:
                return results
            for behind in ((False, True), (True, False))[number % 2]:
                seconds = step_seconds(PROGRAMS[result["program"]], behind=behind)
                result["run_seconds" if behind else "alone_seconds"].append(seconds)
    return results


def main() -> int:
    """Measure and print; write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=600, help="seconds; then no more begins")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    results = measure(options.rounds, options.budget)
    for result in results:
        if not result["run_seconds"] or not result["alone_seconds"]:
            continue
        alone, run = (statistics.median(result[name]) for name in ("alone_seconds", "run_seconds"))
        words = f"{alone * 1e6:10.2f} µs, {run * 1e6:10.2f} under hippogriff run, {run / alone:.4f}"
        print(f"{result['program']:50} {words}")
    if options.json:
        about = {
            "schema": SCHEMA,
            "commit": options.commit,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command_line": f"python3 -m bench.shim_overhead --rounds {options.rounds}",
            "machine": {"device": gpu_facts(0), "cores": len(os.sched_getaffinity(0))},
            "results": results,
        }
        options.json.write_text(json.dumps(about, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
