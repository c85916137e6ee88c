"""Measures `load_plan` on several GPUs, beside `load_file` on one and on each in turn.

Run it from the repository, where torch and GPUs are: `python3 -m bench.plan_bench --dir /dev/shm`.
Each line is checked once, tensor by tensor, against what safetensors loads. GB/s count what
arrives on all GPUs; medians of warm loads, the first in its own column.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch

from bench.gpu_samples import gpu_facts
from bench.plan_page import SCHEMA
from bench.sharing import machine
from hippogriff._loaders.contenders import array_bytes
from hippogriff._loaders.model import make_model, sums_path
from hippogriff._measurement import warm
from hippogriff._sizes import parse_size
from hippogriff.safetensors import load_file, load_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Loaded = dict[str, dict[str, Any]]
    Cut = Callable[[Any, int], Any]


@dataclass
class Line:
    """One way to load, and how long each time took."""

    what: str
    arrived_bytes: int
    seconds: list[float]

    @property
    def gb_per_second(self) -> float:
        """The median of all but the first."""
        return self.arrived_bytes / statistics.median(self.seconds[1:]) / 1e9

    @property
    def first_gb_per_second(self) -> float:
        """The first."""
        return self.arrived_bytes / self.seconds[0] / 1e9


class PlanBench:
    """Loads one file in several ways to several GPUs."""

    def __init__(self, path: Path, devices: Sequence[str], repeat: int) -> None:
        self._path = path
        self._devices = list(devices)
        self._repeat = repeat
        self._truth = safetensors.torch.load_file(path)

    def run(self) -> list[Line]:
        """Measure everything."""
        path, devices, names = self._path, self._devices, list(self._truth)
        count = len(devices)

        def part(array: Any, number: int, dimension: int) -> slice:
            rows = array.shape[dimension] // count
            return slice(number * rows, (number + 1) * rows)

        by_name = {d: names[number::count] for number, d in enumerate(devices)}
        rows = {
            d: {name: part(self._truth[name], number, 0) for name in names}
            for number, d in enumerate(devices)
        }
        columns = {
            d: {name: (slice(None), part(self._truth[name], number, 1)) for name in names}
            for number, d in enumerate(devices)
        }
        return [
            self._measure(
                "load_file to the first", lambda: {devices[0]: load_file(path, device=devices[0])}
            ),
            self._measure(
                "load_file to each in turn", lambda: {d: load_file(path, device=d) for d in devices}
            ),
            self._measure(
                "load_plan: all to each", lambda: load_plan(path, dict.fromkeys(devices))
            ),
            self._measure("load_plan: each its tensors", lambda: load_plan(path, by_name)),
            self._measure(
                "load_plan: each its rows",
                lambda: load_plan(path, rows),
                lambda array, number: array[part(array, number, 0)],
            ),
            self._measure(
                "load_plan: each its columns",
                lambda: load_plan(path, columns),
                lambda array, number: array[:, part(array, number, 1)],
            ),
        ]

    def _measure(
        self, what: str, load: Callable[[], Loaded], cut: Cut = lambda array, _: array
    ) -> Line:
        line = Line(what, 0, [])
        for _ in range(self._repeat + 1):
            self._synchronize()
            begin = time.perf_counter()
            loaded = load()
            self._synchronize()
            line.seconds.append(time.perf_counter() - begin)
            if not line.arrived_bytes:
                self._check(what, loaded, cut)
                line.arrived_bytes = sum(
                    array_bytes(array) for each in loaded.values() for array in each.values()
                )
            del loaded
        print(
            f"{what:28} {line.gb_per_second:7.1f} GB/s, first {line.first_gb_per_second:.1f}",
            file=sys.stderr,
        )
        return line

    def _check(self, what: str, loaded: Loaded, cut: Cut) -> None:
        for device, arrays in loaded.items():
            number = self._devices.index(device)
            for name, array in arrays.items():
                expected = cut(self._truth[name], number).contiguous()
                here = array.cpu().contiguous()
                if array.device != torch.device(device) or not torch.equal(
                    here.view(torch.uint8), expected.view(torch.uint8)
                ):
                    raise SystemExit(f"{what}: tensor {name!r} is wrong on {device}")

    def _synchronize(self) -> None:
        for device in self._devices:
            torch.cuda.synchronize(device)


def main() -> None:
    """Make a model, measure, print a table on stderr and JSON on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--size", default="4GiB")
    parser.add_argument("--tensors", type=int, default=70)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    model_bytes = parse_size(options.size)
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    path = options.dir / f".hippogriff-plan-{secrets.token_hex(8)}.safetensors"
    try:
        make_model(path, options.tensors, model_bytes)
        warm(path)
        warm(path)
        lines = PlanBench(path, devices, options.repeat).run()
    finally:
        path.unlink(missing_ok=True)
        sums_path(path).unlink(missing_ok=True)
    document = {
        "schema": SCHEMA,
        "commit": options.commit,
        "started": started,
        "command_line": shlex.join(["python3", "-m", "bench.plan_bench", *sys.argv[1:]]),
        "machine": machine(gpu_facts(0)),
        "devices": [torch.cuda.get_device_name(device) for device in devices],
        "tensors": options.tensors,
        "model_bytes": model_bytes,
        "lines": [asdict(line) for line in lines],
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
