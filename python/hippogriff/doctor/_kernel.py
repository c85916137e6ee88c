"""Checks of the kernel: what it has, and what a sandbox lets us use of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff.doctor._finding import Finding, note, ok, problem

if TYPE_CHECKING:
    from hippogriff.doctor._machine import Machine

_KERNEL_MIN = (5, 11)
_CACHESTAT_KERNEL = (6, 5)
_SECCOMP = (
    "docker run --security-opt seccomp=profile.json with a profile that allows {calls}; or "
    "seccomp=unconfined, where you trust what runs in it"
)
_NOT_PERMITTED = "Operation not permitted"


def kernel(machine: Machine) -> Finding:
    """Which Linux this is."""
    release = machine.release or "of an unknown version"
    if machine.kernel >= _CACHESTAT_KERNEL:
        return ok(f"Linux {release}")
    if machine.kernel >= _KERNEL_MIN:
        return note(
            f"Linux {release}",
            "before 6.5 the state of the page cache is asked page by page, not by cachestat",
            "a kernel of 6.5 or newer",
        )
    return note(
        f"Linux {release}",
        "before 5.11 drives are read by threads instead of io_uring, with more CPU time",
        "a kernel of 6.5 or newer",
    )


def io_uring(machine: Machine) -> Finding | None:
    """Whether drives are read by io_uring."""
    queue = str(machine.runtime.get("io_queue", ""))
    if not queue:
        return None
    if queue == "io_uring":
        return ok("io_uring works")
    slower = "drives are read by threads, at much the same speed with more CPU time"
    if machine.environ.get("HIPPOGRIFF_IO") == "threads":
        return note("io_uring is switched off", slower, "unset HIPPOGRIFF_IO")
    found = f"reads go by {queue}"
    level = machine.read_number("/proc/sys/kernel/io_uring_disabled")
    if level:
        who = "for everybody" if level == 2 else "for users without CAP_SYS_ADMIN"
        return note(
            f"{found}; kernel.io_uring_disabled is {level}: off {who}",
            slower,
            "sysctl -w kernel.io_uring_disabled=0 (as root, on the machine itself)",
        )
    if _NOT_PERMITTED in queue:
        calls = "io_uring_setup, io_uring_enter and io_uring_register"
        return note(f"{found}: a sandbox forbids it", slower, _SECCOMP.format(calls=calls))
    if "RLIMIT_MEMLOCK" in queue:
        return note(
            found,
            slower,
            "ulimit -l unlimited, or docker run --ulimit memlock=-1",
        )
    return note(found, slower, "a kernel of 5.11 or newer, built with CONFIG_IO_URING")


def page_cache_state(machine: Machine) -> Finding | None:
    """Whether the kernel tells what of a file is in the page cache."""
    why_not = machine.file.get("cachestat")
    if why_not is None:
        return None
    if not why_not:
        return ok("cachestat tells what is in the page cache")
    meaning = "it is asked by mincore and by reads that do not wait, less exactly for large files"
    if _NOT_PERMITTED in why_not and machine.kernel >= _CACHESTAT_KERNEL:
        advice = _SECCOMP.format(calls="cachestat")
        return note(f"cachestat: {why_not}: a sandbox forbids it", meaning, advice)
    return note(f"cachestat: {why_not}", meaning, "a kernel of 6.5 or newer")


def reads_that_do_not_wait(machine: Machine) -> Finding | None:
    """Whether RWF_NOWAIT works, by which cached pages are told from others while reading."""
    why_not = machine.file.get("nowait")
    place = machine.runtime.get("path") or {}
    if why_not is None or place.get("filesystem") in ("tmpfs", "ramfs"):
        return None
    if not why_not:
        return ok("reads can be told not to wait (RWF_NOWAIT)")
    return note(
        f"reads cannot be told not to wait (RWF_NOWAIT): {why_not}",
        "a page that leaves the page cache in the middle of a transfer is waited for",
        "keep the files on ext4, xfs or btrfs",
    )


def library(machine: Machine) -> Finding:
    """Whether the library starts and can look at the path."""
    error = machine.runtime.get("error")
    if error is None:
        return ok(f"hippogriff {machine.runtime.get('version')} starts")
    return problem(
        f"the library cannot look at {machine.path}: {error}",
        "nothing can be loaded from there, and some checks had nothing to look at",
        f"the message says what is wrong; `hippogriff info {machine.path}` says it again",
    )


CHECKS = (library, kernel, io_uring, page_cache_state, reads_that_do_not_wait)
