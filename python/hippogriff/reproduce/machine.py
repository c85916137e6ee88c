"""What results say of the machine, the versions and the command they come from."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff import _library, _runtime, version
from hippogriff.reproduce.energy import driver_version
from hippogriff.reproduce.programs import PROGRAMS

if TYPE_CHECKING:
    from hippogriff.reproduce.bench import Bench
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


def _memory() -> str:
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * page_bytes / (1 << 30):.0f} GiB of memory"


_FILE = Path(__file__).resolve()
_REPOSITORY = _FILE.parents[3]


def _git(*words: str) -> str | None:
    """Return what git says of the repository of this file, or None where it says nothing."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=_REPOSITORY,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _digest(programs: Path) -> str:
    """Return a checksum of what measures and of what is measured."""
    digest = hashlib.sha256()
    files = [Path(_library.lib._name), *sorted(_FILE.parent.glob("*.py"))]
    files += [programs / program.name for program in PROGRAMS]
    for path in files:
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()[:16]


def build(programs: Path) -> Record:
    """Return which build it is: version and commit, and a checksum where these do not tell."""
    commit = os.environ.get("COMMIT", "")
    changed = False
    # An installation may lie in a repository of something else.
    if not commit and _git("ls-files", "--error-unmatch", str(_FILE)) is not None:
        commit = _git("rev-parse", "--short=12", "HEAD") or ""
        changed = _git("status", "--porcelain", "--untracked-files=no") != ""
    described: Record = {"version": version, "commit": commit}
    if changed or not commit:
        described["checksum"] = _digest(programs)
    return described


def _place(info: dict[str, Any]) -> dict[str, Any]:
    path = info.get("path") or {}
    drive = path.get("drive") or {}
    return {
        "filesystem": path.get("filesystem", ""),
        # Drives of one model are alike, whatever number they have on a machine.
        "drive": drive.get("model") or drive.get("name") or path.get("source", ""),
        "io_queue": info.get("io_queue", ""),
    }


def _cuda(info: dict[str, Any]) -> str:
    """Return the version of CUDA that the driver knows, as NVIDIA writes it; "" without one."""
    number = int((info.get("cuda") or {}).get("driver_version") or 0)
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def facts(bench: Bench, effort: str) -> Record:
    """Return them for JSON; what the context is made of is apart from what is `also` so."""
    info = _runtime.info(bench.places.files)
    found: dict[str, Any] = next(
        (each for each in info["devices"] if each.get("name") == bench.device), {}
    )
    names = ("name", "model", "uuid", "memory_total_bytes")
    on_gpu = bench.device != "host"
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "effort": effort,
        "command_line": shlex.join(["hippogriff", *sys.argv[1:]]),
        "build": build(bench.places.programs),
        "settings": bench.kept_settings(),
        "files": _place(info),
        "machine": {
            "processor": _first("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)),
            "device": found.get("model") or bench.device,
        },
        "also": {
            "host": platform.node(),
            "python": platform.python_version(),
            "memory": _memory(),
            "kernel": f"{platform.system()} {platform.release()}",
            "libc": " ".join(platform.libc_ver()),
            "nvidia_driver": driver_version() if on_gpu else "",
            "cuda": _cuda(info) if on_gpu else "",
            "device": {name: found[name] for name in names if name in found},
        },
    }
