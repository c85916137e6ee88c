"""Checks of the limits that a container or a shell puts on the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff._sizes import format_size, parse_size
from hippogriff.doctor import _cgroups
from hippogriff.doctor._finding import Finding, note, ok, problem
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from hippogriff.doctor._machine import Machine

_MIB = 1 << 20
_PINBUFFER_BYTES = 256 * _MIB
_PINBUFFER_BYTES_MIN = 64 * _MIB
_THREADS_MIN, _THREADS_MAX = 4, 16
_THREADS_MORE = 4
_SLOW_CPUS = 4
_OPEN_FILES_MIN = 1024


def memory_limit(machine: Machine) -> Finding:
    """Whether the pinbuffer and parked data fit into the memory the process may use."""
    limit = _cgroups.memory_bytes_max(machine)
    if limit is None or (machine.memory_bytes and limit >= machine.memory_bytes):
        return ok(f"no limit of memory below the machine's {format_size(machine.memory_bytes)}")
    found = f"the control group's memory limit is {format_size(limit)}"
    gpus = len(machine.driver.get("devices") or [])
    wanted = _setting(machine, "HIPPOGRIFF_PINBUFFER", _PINBUFFER_BYTES)
    of_host = max(wanted // 4, _PINBUFFER_BYTES_MIN)
    of_gpu = max((wanted - wanted // 4) // max(1, gpus), _PINBUFFER_BYTES_MIN)
    pinbuffer = of_host + gpus * of_gpu
    if pinbuffer > limit // 2:
        return problem(
            f"{found}, the pinbuffer may take {format_size(pinbuffer)}",
            "with the rest of the program the kernel may end the process (OOM)",
            f"HIPPOGRIFF_PINBUFFER=64MiB, or docker run --memory={_gib(4 * pinbuffer)}",
        )
    parking = _setting(machine, "HIPPOGRIFF_PARKING", limit // 4)
    if parking + pinbuffer > limit:
        return note(
            f"{found}, data that waits for a device may take {format_size(parking)}",
            "a load that waits for GPU memory may be ended by the kernel (OOM)",
            f"HIPPOGRIFF_PARKING={limit // 4 // _MIB}MiB",
        )
    return ok(f"{found}: pinbuffer and parked data fit")


def memory_throttle(machine: Machine) -> Finding | None:
    """Whether the kernel slows the process down before it is out of memory."""
    high = _cgroups.memory_bytes_high(machine)
    if high is None:
        return None
    return note(
        f"memory.high of the control group is {format_size(high)}",
        "above it the kernel takes memory back, page cache first, and slows the process down: "
        "files do not stay cached",
        "raise memory.high, or set it to max",
    )


def cpu_quota(machine: Machine) -> Finding | None:
    """Whether there are CPUs enough for several threads."""
    count, quota = len(machine.cpus), _cgroups.cpus_max(machine)
    if not count:
        return None
    usable = min(count, quota or count)
    found = f"CPUs: {count}" + (f", the control group's quota is {quota:g}" if quota else "")
    slow = "page-cache reads need some CPUs: one copies 4 to 8 GB/s"
    more = "docker run --cpus=8; Kubernetes: resources.limits.cpu; taskset, if it was used"
    if usable <= 1:
        return problem(found, f"{slow}; threads share the one and are held up by the quota", more)
    if usable < _SLOW_CPUS:
        return note(found, slow, more)
    return ok(found)


def thread_limit(machine: Machine) -> Finding:
    """Whether threads may be started."""
    left = _cgroups.processes_left(machine)
    own = machine.limit("Max processes")
    limits = [limit for limit in (left, own) if limit is not None]
    least = min(limits, default=None)
    threads = _threads(machine)
    if least is None or least >= 4 * threads:
        return ok("threads enough" if least is None else f"{least} more threads may be started")
    words = f"{least} more threads may be started, a transfer may want {threads} for each device"
    advice = "docker run --pids-limit=-1, or ulimit -u; else HIPPOGRIFF_THREADS=4"
    if least < threads:
        return problem(words, "transfers have fewer threads, or fail when there is none", advice)
    return note(words, "several processes or devices may run out of them", advice)


def locked_memory(machine: Machine) -> Finding:
    """Whether the limit of locked memory stands in the way."""
    limit = machine.limit("Max locked memory")
    if limit is None:
        return ok("locked memory is not limited")
    found = f"the limit of locked memory is {format_size(limit)}"
    if limit >= _PINBUFFER_BYTES:
        return ok(found)
    if not machine.driver.get("devices") and machine.kernel >= (5, 12):
        return ok(f"{found}: it does not matter without a GPU on Linux 5.12 or newer")
    return note(
        found,
        "io_uring before Linux 5.12 and some drivers and sandboxes count pinned memory against "
        "it; where they refuse, copies go through ordinary memory, several times slower",
        "ulimit -l unlimited, docker run --ulimit memlock=-1, systemd: LimitMEMLOCK=infinity",
    )


def open_files(machine: Machine) -> Finding:
    """Whether files enough may be open."""
    limit = machine.limit("Max open files")
    if limit is None or limit >= _OPEN_FILES_MIN:
        return ok(f"{'any number of' if limit is None else limit} files may be open")
    return note(
        f"{limit} files may be open",
        "a checkpoint of many shards is opened as a whole: one for each file",
        "ulimit -n 4096, or docker run --ulimit nofile=4096",
    )


def address_space(machine: Machine) -> Finding | None:
    """Whether the address space is limited, as CUDA and mappings do not expect."""
    limit = machine.limit("Max address space")
    if limit is None:
        return None
    return note(
        f"the address space is limited to {format_size(limit)}",
        "CUDA reserves far more than it uses and may not start; mappings of files may fail",
        "ulimit -v unlimited",
    )


def _threads(machine: Machine) -> int:
    """How many threads the library starts for a device at most."""
    try:
        return int(machine.environ.get("HIPPOGRIFF_THREADS", ""))
    except ValueError:
        cpus = min(len(machine.cpus) or 1, _cgroups.cpus_max(machine) or _THREADS_MAX)
        return int(min(max(cpus, _THREADS_MIN), _THREADS_MAX)) + _THREADS_MORE


def _setting(machine: Machine, name: str, default: int) -> int:
    if machine.environ.get(name) == "off":
        return 0
    try:
        return parse_size(machine.environ.get(name, "")) or default
    except InvalidArgument:
        return default


def _gib(size_bytes: int) -> str:
    return f"{-(-size_bytes // (1 << 30))}g"


CHECKS = (
    memory_limit,
    memory_throttle,
    cpu_quota,
    thread_limit,
    locked_memory,
    open_files,
    address_space,
)
