"""Limits that control groups put on this process, of versions 1 and 2."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hippogriff.doctor._machine import Machine

_ROOT = "/sys/fs/cgroup"
# Version 1 says "no limit" by a number near 2**63.
_NO_LIMIT = 2**62


def memory_bytes_max(machine: Machine) -> int | None:
    """Return the most memory the process may use; None: no limit."""
    return _least(machine, "memory", ("memory.max", "memory.limit_in_bytes"))


def memory_bytes_high(machine: Machine) -> int | None:
    """Return the memory from which on the kernel slows the process down; None: no limit."""
    return _least(machine, "memory", ("memory.high", ""))


def processes_left(machine: Machine) -> int | None:
    """Return how many more threads may be started; None: no limit."""
    left = [
        limit - (machine.read_number(f"{folder}/pids.current") or 0)
        for folder in _folders(machine, "pids")
        if (limit := machine.read_number(f"{folder}/pids.max")) is not None
    ]
    return min(left, default=None)


def cpus_max(machine: Machine) -> float | None:
    """Return how many CPUs' time the process may use, 0.5 for half of one; None: no limit."""
    shares = [share for share in map(machine.read, _files(machine, "cpu", "cpu.max")) if share]
    cpus = [_share(*text.split()) for text in shares if len(text.split()) == 2]
    for folder in _folders(machine, "cpu"):
        quota = machine.read(f"{folder}/cpu.cfs_quota_us") or ""
        cpus.append(_share(quota.strip(), machine.read(f"{folder}/cpu.cfs_period_us") or ""))
    least = min(cpus, default=math.inf)
    return None if math.isinf(least) else least


def _share(quota: str, period: str) -> float:
    try:
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (ValueError, ZeroDivisionError):
        return math.inf


def _least(machine: Machine, controller: str, names: tuple[str, str]) -> int | None:
    limits = [
        limit
        for name in filter(None, names)
        for file in _files(machine, controller, name)
        if (limit := machine.read_number(file)) is not None and limit < _NO_LIMIT
    ]
    return min(limits, default=None)


def _files(machine: Machine, controller: str, name: str) -> list[str]:
    return [f"{folder}/{name}" for folder in _folders(machine, controller)]


def _folders(machine: Machine, controller: str) -> Iterator[str]:
    """Give the folders whose limits hold here: the process's group and those around it.

    In a container the group's path is often that of the machine outside, where nothing is; the
    container's own limits are then at the top.
    """
    for line in (machine.read("/proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            tops = [_ROOT, f"{_ROOT}/unified"]
        elif controller in controllers.split(","):
            tops = [f"{_ROOT}/{controllers}", f"{_ROOT}/{controller}"]
        else:
            continue
        group = PurePosixPath("/" + path.lstrip("/"))
        for top in dict.fromkeys(tops):
            for folder in (group, *group.parents):
                yield (top + str(folder)).rstrip("/")
