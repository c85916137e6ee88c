"""What results say of the machine, the versions and the command they come from."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff import _runtime, version

if TYPE_CHECKING:
    from hippogriff.reproduce.journal import Record


def _first(path: str, name: str) -> str:
    """Return the first value after "name ... :" in a file; "" when there is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _commit() -> str:
    repository = Path(__file__).resolve().parents[3]
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _place(files: Path) -> dict[str, Any]:
    facts: dict[str, Any] = _runtime.info(files)
    path = facts.get("path") or {}
    return {
        "filesystem": path.get("filesystem", ""),
        "drive": (path.get("drive") or {}).get("name", ""),
        "io_queue": facts.get("io_queue", ""),
    }


def facts(device: str, files: Path, effort: str) -> Record:
    """Return them for JSON."""
    found = next((each for each in _runtime.devices() if each.get("name") == device), {})
    names = ("name", "model", "uuid", "driver_version", "memory_total_bytes")
    described = {name: found[name] for name in names if name in found}
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "effort": effort,
        "command_line": shlex.join(["hippogriff", *sys.argv[1:]]),
        "commit": os.environ.get("COMMIT") or _commit(),
        "versions": {"hippogriff": version, "python": platform.python_version()},
        "machine": {
            "processor": _first("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)),
            "memory": _first("/proc/meminfo", "MemTotal"),
            "kernel": f"{platform.system()} {platform.release()}",
            "device": described.get("model") or device,
            "device_facts": described,
            "files": _place(files),
        },
    }
