"""What checks may ask of the machine: files of the system, the environment, and three probes.

Whatever can hang or crash (a driver, a dead network file system) is asked in a process of its own.
Tests give a folder with made-up /proc and /sys, and made-up answers of the probes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROBE_SECONDS = 20.0
_PIECE_BYTES = 64 << 10
_PIECES_MAX = 256
_HERE = Path(__file__).resolve().parent


class Machine:
    """The machine, as far as it concerns the files at a path.

    Parameters
    ----------
    path : str or path-like
        A file or folder.
    root : path-like
        Stands before every file that is asked for.
    environ : mapping, optional
        The environment; the process's if not given.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        root: str | os.PathLike[str] = "/",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 (resolving could ask a dead server)
        self.environ = dict(os.environ if environ is None else environ)
        self._root = Path(root)

    def read(self, name: str) -> str | None:
        """Return the text of a file, ``"/proc/self/limits"``; None when it cannot be read.

        What is no regular file, such as a pipe that nobody writes to, is not read.
        """
        try:
            descriptor = os.open(self._at(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                # The kernel refuses large reads of some files.
                pieces = iter(functools.partial(os.read, descriptor, _PIECE_BYTES), b"")
                return b"".join(itertools.islice(pieces, _PIECES_MAX)).decode(errors="replace")
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            return None

    def read_number(self, name: str) -> int | None:
        """Return the whole number in a file; None when there is none (or the word ``max``)."""
        try:
            return int(self.read(name) or "")
        except ValueError:
            return None

    def exists(self, name: str) -> bool:
        """Tell whether there is such a file."""
        return os.path.lexists(self._at(name))

    def names(self, folder: str) -> list[str]:
        """List what is in a folder, sorted; nothing when it cannot be read."""
        try:
            return sorted(entry.name for entry in self._at(folder).iterdir())
        except OSError:
            return []

    def changed(self, name: str) -> float | None:
        """Return when a file was last changed, in seconds since 1970; None when there is none."""
        try:
            return self._at(name).stat().st_mtime
        except OSError:
            return None

    def size_bytes(self, folder: str) -> int | None:
        """Return the size of the file system of a folder; None when it cannot be asked."""
        try:
            facts = os.statvfs(self._at(folder))
        except OSError:
            return None
        return facts.f_blocks * facts.f_frsize

    @functools.cached_property
    def release(self) -> str:
        """Release of the kernel, such as ``"6.8.0-45-generic"``; empty when it does not tell."""
        return (self.read("/proc/sys/kernel/osrelease") or "").strip()

    @functools.cached_property
    def kernel(self) -> tuple[int, int]:
        """Version of Linux, (0, 0) when it does not tell."""
        match = re.match(r"(\d+)\.(\d+)", self.release)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @functools.cached_property
    def memory_bytes(self) -> int:
        """All memory of the machine; 0 when it does not tell."""
        match = re.search(r"^MemTotal:\s+(\d+) kB", self.read("/proc/meminfo") or "", re.MULTILINE)
        return int(match[1]) * 1024 if match else 0

    @functools.cached_property
    def cpus(self) -> set[int]:
        """CPUs that this process may use."""
        text = self.read("/proc/self/status") or ""
        match = re.search(r"^Cpus_allowed_list:\s*(\S+)", text, re.MULTILINE)
        return parse_list(match[1]) if match else set()

    def limit(self, name: str) -> int | None:
        """Return the soft limit of a resource as ``/proc/self/limits`` calls it; None: no limit."""
        pattern = rf"^{re.escape(name)}\s+(\d+)\s"
        match = re.search(pattern, self.read("/proc/self/limits") or "", re.MULTILINE)
        return int(match[1]) if match else None

    @functools.cached_property
    def runtime(self) -> dict[str, Any]:
        """What ``hippogriff info`` says of the path, or ``{"error": why not}``.

        Where there are GPUs they are left out, because asking them takes memory on each.
        """
        hidden = {"HIPPOGRIFF_CUDA_DRIVER": ""} if self.driver.get("devices") else {}
        hidden["HIPPOGRIFF_TRACE"] = ""
        command = ["-m", "hippogriff", "info", "--json", "--", self.path]
        return self._ask(command, {**self.environ, **hidden})

    @functools.cached_property
    def driver(self) -> dict[str, Any]:
        """What CUDA's driver says; see probe_driver.py."""
        library = self.environ.get("HIPPOGRIFF_CUDA_DRIVER", "libcuda.so.1")
        return self._ask(["-I", str(_HERE / "probe_driver.py"), library], self.environ)

    @functools.cached_property
    def file(self) -> dict[str, Any]:
        """What the file system at the path can do; see probe_file.py."""
        return self._ask(["-I", str(_HERE / "probe_file.py"), self.path], self.environ)

    def _at(self, name: str) -> Path:
        return self._root / name.lstrip("/")

    def _ask(self, arguments: list[str], environ: Mapping[str, str]) -> dict[str, Any]:
        if not sys.executable:
            return {"error": "this Python does not know its own program"}
        try:
            return _run([sys.executable, *arguments], environ)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return {"error": str(error)}


def _run(command: list[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """Run a program that prints a JSON object, for a bounded time."""
    process = subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        answer, complaint = process.communicate(timeout=_PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        # A process that waits for a dead server cannot be killed: it is left alone.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        return {"error": f"no answer within {_PROBE_SECONDS:.0f} s"}
    if process.returncode != 0:
        last = (complaint.strip().splitlines() or ["it said nothing"])[-1]
        ended = f" (ended by signal {-process.returncode})" if process.returncode < 0 else ""
        return {"error": f"{last}{ended}"}
    result = json.loads(answer)
    return result if isinstance(result, dict) else {"error": "the answer is no JSON object"}


def parse_list(text: str) -> set[int]:
    """Read the kernel's lists of CPUs: ``"0-3,8"``."""
    found: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match:
            found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found
