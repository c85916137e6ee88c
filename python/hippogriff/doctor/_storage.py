"""Checks of where the files are."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from hippogriff._sizes import format_size
from hippogriff.doctor._finding import Finding, note, ok

if TYPE_CHECKING:
    from hippogriff.doctor._machine import Machine

_IN_MEMORY = ("tmpfs", "ramfs")
_NETWORK = ("nfs", "nfs4", "cifs", "smb2", "smb3", "9p", "virtiofs", "ceph", "afs", "glusterfs")
_OLD_DAYS = 180
_DAY_SECONDS = 86400
_SHARED_MEMORY_MIN = 1 << 30
_DEFAULT_SPEEDS = "routes are predicted from another machine's speeds until transfers correct them"


def file_system(machine: Machine) -> Finding | None:
    """Which kind of file system the path is on."""
    place = machine.runtime.get("path")
    if not place:
        return None
    kind = str(place.get("filesystem", "unknown"))
    found = f"{place.get('mount_point')} is {kind}, drive {_drive(machine) or 'none'}"
    if kind == "overlay":
        return note(
            found,
            "files of a container's image: layers lie between, and what is written is copied first",
            "keep models in a volume: docker run -v /models:/models",
        )
    if kind in _NETWORK:
        return note(
            found,
            "a network file system: the page cache and the server decide the speed",
            "copy the files to a local drive first, if they are loaded often",
        )
    if kind == "fuse" or kind.startswith("fuse."):
        return note(
            found,
            "a program serves every read, often in pieces of 128 KiB",
            "copy the files to a local drive first, if they are loaded often",
        )
    return ok(found)


def direct_io(machine: Machine) -> Finding | None:
    """Whether files can be read past the page cache."""
    facts, place = machine.file, machine.runtime.get("path") or {}
    if place.get("filesystem") in _IN_MEMORY:
        return ok("files are in memory: there is no drive to read directly")
    hopeless = facts.get("why_not") or facts.get("error")
    if hopeless:
        return note(
            f"direct I/O was not tried: {hopeless}",
            "whether cold files are read past the page cache is not known",
            "name a file that can be read, or a folder that can be written to",
        )
    why_not = facts.get("direct_io")
    if why_not is None:
        return None
    if not why_not:
        return ok(f"direct I/O works, blocks of {format_size(facts.get('block_bytes', 0))}")
    return note(
        f"direct I/O (O_DIRECT): {why_not}",
        "cold files are read through the page cache, with more CPU time and less speed; with "
        "GPUDirect Storage nothing is read directly",
        "keep the files on ext4 or xfs on a local drive, not on overlay, FUSE or encrypted folders",
    )


def shared_memory(machine: Machine) -> Finding | None:
    """Whether /dev/shm has room for what worker processes pass to each other."""
    size_bytes = machine.size_bytes("/dev/shm")
    if size_bytes is None:
        return note(
            "there is no /dev/shm",
            "DataLoader workers cannot pass tensors",
            "docker run --shm-size=8g, or --ipc=host",
        )
    found = f"/dev/shm has {format_size(size_bytes)}"
    if size_bytes >= _SHARED_MEMORY_MIN:
        return ok(found)
    return note(
        found,
        "DataLoader workers pass tensors through it, and die with a bus error when it is full",
        "docker run --shm-size=8g, or --ipc=host",
    )


def calibration(machine: Machine) -> Finding | None:
    """Whether the speeds of this drive and these devices were measured here."""
    facts = machine.runtime
    if "error" in facts or "calibration_file" not in facts:
        return None
    file, drive = str(facts["calibration_file"]), str((facts.get("drive") or {}).get("name", ""))
    folder = machine.file.get("folder", machine.path)
    command = f"hippogriff calibrate {folder} (10 s for each device: --device)"
    if not file:
        return note("HIPPOGRIFF_CALIBRATION is empty", _DEFAULT_SPEEDS, "unset it")
    text = machine.read(file)
    if text is None and machine.changed(file) is not None:
        return note(
            f"{file} is no file that can be read",
            "it is ignored: " + _DEFAULT_SPEEDS,
            "remove it, or name another one by HIPPOGRIFF_CALIBRATION",
        )
    if text is None:
        return note(f"there is no calibration at {file}", _DEFAULT_SPEEDS, command)
    try:
        known = json.loads(text)
        entries = {**known["drives"], **known["links"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return note(f"{file} cannot be understood", "it is ignored: " + _DEFAULT_SPEEDS, command)
    gpus = [device["uuid"] for device in machine.driver.get("devices") or []]
    missing = [name for name in [drive, *(gpus or ["host"])] if not _measured(entries, name)]
    if missing:
        return note(f"not calibrated: {', '.join(missing)}", _DEFAULT_SPEEDS, command)
    days = int((time.time() - (machine.changed(file) or time.time())) / _DAY_SECONDS)
    if days > _OLD_DAYS:
        return note(
            f"the calibration of {drive} was last corrected {days} days ago",
            "a new drive, kernel or driver may be faster than predicted",
            command,
        )
    return ok(f"{drive} is calibrated, corrected {days} days ago")


def _measured(entries: dict[str, Any], name: str) -> bool:
    entry = entries.get(name)
    return isinstance(entry, dict) and entry.get("measured") is True


def _drive(machine: Machine) -> str:
    drive = (machine.runtime.get("path") or {}).get("drive")
    return " ".join(filter(None, (drive.get("name"), drive.get("model")))) if drive else ""


CHECKS = (file_system, direct_io, shared_memory, calibration)
