"""How busy a GPU is and how much of its memory is used, over time, as nvidia-smi tells it."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading
from datetime import datetime
from typing import Any

QUERY = "timestamp,utilization.gpu,memory.used,memory.total"
_TIME = "%Y/%m/%d %H:%M:%S.%f"  # The machine's own time.
_END_SECONDS = 5


def gpu_facts(number: int) -> dict[str, Any] | None:
    """Return a GPU's model, driver and memory in bytes, or None without one or nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total"]
    command += ["--format=csv,noheader,nounits", "-i", str(number)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    fields = [field.strip() for field in done.stdout.strip().split(",")]
    if done.returncode != 0 or len(fields) != 3 or not fields[2].isdigit():
        return None
    return {
        "name": f"cuda:{number}",
        "model": fields[0],
        "driver": fields[1],
        "memory_bytes": int(fields[2]) << 20,
    }


def parse_sample(line: str) -> tuple[datetime, float, int, int] | None:
    """Read a line: when, per cent of the time a kernel ran, bytes used, bytes there are."""
    when, _, rest = line.partition(",")
    try:
        busy, used, total = (float(field) for field in rest.split(","))
        at = datetime.strptime(when.strip(), _TIME)
    except ValueError:  # The driver says N/A, or an error in words.
        return None
    return at, busy, int(used) << 20, int(total) << 20


class GpuSamples:
    """Samples while a `with` block runs; `summary` tells what was seen, or why nothing was.

    Samples are [seconds since the beginning, per cent busy, bytes used].
    """

    def __init__(self, number: int | None, every_ms: int) -> None:
        self._number = number
        self._every_ms = every_ms
        self._samples: list[tuple[float, float, int]] = []
        self._total_bytes = 0
        self._begin = datetime.now()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> GpuSamples:
        """Begin."""
        if self._number is None or shutil.which("nvidia-smi") is None:
            return self
        command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
        command += ["-i", str(self._number), f"--loop-ms={self._every_ms}"]
        if shutil.which("stdbuf") is not None:  # Lines as they come, into a pipe too.
            command = ["stdbuf", "-oL", *command]
        self._begin = datetime.now()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        if self._process is None or self._thread is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_SECONDS)
        self._thread.join(_END_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if sample := parse_sample(line):
                at, busy, used, self._total_bytes = sample
                self._samples.append((round((at - self._begin).total_seconds(), 3), busy, used))

    def summary(self) -> dict[str, Any]:
        """Return averages and the samples, for JSON."""
        if self._process is None:
            return {"why_absent": "no GPU, or no nvidia-smi"}
        if not self._samples:
            return {"why_absent": "nvidia-smi gave no samples"}
        used = statistics.fmean(sample[2] for sample in self._samples)
        return {
            "average_busy_percent": statistics.fmean(sample[1] for sample in self._samples),
            "average_memory_percent": 100 * used / self._total_bytes,
            "memory_bytes": self._total_bytes,
            "samples": self._samples,
        }
