"""Which devices a command gets: those that fit it best now, else the one where it waits least."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hippogriff._sizes import format_apart
from hippogriff.errors import InvalidArgument, OutOfDeviceMemory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLACEMENTS = ("pack", "spread")


@dataclass(frozen=True)
class Candidate:
    """A device as the node sees it now; sizes in bytes."""

    uuid: str
    memory_bytes: int
    free_bytes: int
    waiting_bytes: int


def candidates(status: Mapping[str, Any], host_bytes: int) -> list[Candidate]:
    """Return the GPUs this process may use, or device `host` where there is none."""
    if not status["gpus"]:
        return [_candidate(status, "host", host_bytes, 0)]
    gpus = visible(status["gpus"], os.environ)
    return [_candidate(status, gpu["uuid"], gpu["memory_bytes"], gpu["used_bytes"]) for gpu in gpus]


def _candidate(status: Mapping[str, Any], uuid: str, memory: int, used: int) -> Candidate:
    known = next((device for device in status["devices"] if device["uuid"] == uuid), None)
    waiting = sum(
        reservation["wanted_bytes"] - reservation["size_bytes"] - reservation["kept_bytes"]
        for reservation in status["reservations"]
        if reservation["device"] == uuid and reservation["waits"]
    )
    # What others will take at their first use counts as theirs: else all of them would come here.
    deferred = sum(
        reservation["wanted_bytes"] - reservation["kept_bytes"]
        for reservation in status["reservations"]
        if reservation["device"] == uuid and reservation["deferred"]
    )
    free = memory - used if known is None else known["free_bytes"]
    capacity = memory if known is None else known["memory_bytes"]
    # What a device that nobody uses was known to have, that may be another one now.
    if not any(reservation["device"] == uuid for reservation in status["reservations"]):
        free = max(free + memory - capacity, 0)
        capacity = memory
    left = max(free - deferred, 0)
    return Candidate(uuid, capacity, left, waiting + deferred - (free - left))


def visible(
    gpus: Sequence[Mapping[str, Any]], environment: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, which a workload manager may have set.

    Raises
    ------
    InvalidArgument
        When it names a GPU that is not there, or counts GPUs of several models as only CUDA does.
    """
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(gpus)
    chosen = []
    in_bus_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    countable = in_bus_order or len({gpu.get("model") for gpu in gpus}) <= 1
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name.isdecimal() and not countable:
            raise InvalidArgument(
                "CUDA_VISIBLE_DEVICES counts GPUs of several models in an order of CUDA's own: set "
                "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name UUIDs"
            )
        found = [
            gpu
            for gpu in gpus
            if (name.isdecimal() and gpu["index"] == int(name))
            or (not name.isdecimal() and gpu["uuid"].startswith(name))
        ]
        if len(found) != 1:
            raise InvalidArgument(f"CUDA_VISIBLE_DEVICES names {name!r}: there is no such GPU here")
        chosen += [gpu for gpu in found if gpu not in chosen]
    if not chosen:
        raise InvalidArgument("CUDA_VISIBLE_DEVICES hides all GPUs: --device host runs without")
    return chosen


def order(devices: Sequence[Candidate], size_bytes: int, placement: str) -> list[Candidate]:
    """Return the devices that are large enough, best first.

    Those where it fits now come first: the one with the least memory left over (pack), or the most
    (spread). Then those with the shortest queue.

    Raises
    ------
    OutOfDeviceMemory
        When no device is large enough.
    """
    large = [device for device in devices if device.memory_bytes >= size_bytes]
    if not large:
        largest = max((device.memory_bytes for device in devices), default=0)
        asked, there = format_apart(size_bytes, largest)
        raise OutOfDeviceMemory(f"{asked} asked, and the largest device has {there}")
    sign = 1 if placement == "pack" else -1

    def rank(device: Candidate) -> tuple[int, int, int]:
        if device.free_bytes >= size_bytes and device.waiting_bytes == 0:
            return 0, sign * device.free_bytes, 0
        return 1, device.waiting_bytes, -device.free_bytes

    return sorted(large, key=rank)
