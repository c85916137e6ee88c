"""Asks CUDA's driver what there is, without a context: nothing is taken of a GPU's memory.

A program of its own, standing on the standard library alone: a driver may hang or crash. Its
argument is the driver's library; it prints a JSON object: `why_not`, `code` (the CUresult that said
no), `version` (of CUDA, 12040 for 12.4), `library` (the file), and `devices`: `name`, `uuid`,
`bus_id`, `compute_mode` (0 default, 2 prohibited, 3 one process).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

_COMPUTE_MODE = 20
_NAME_BYTES = 256


def ask(library: str) -> dict[str, Any]:
    """Return what the driver in `library` says."""
    facts: dict[str, Any] = {"why_not": "", "code": 0, "version": 0, "library": "", "devices": []}
    if not library:
        return {**facts, "why_not": "CUDA is switched off by an empty HIPPOGRIFF_CUDA_DRIVER"}
    try:
        driver = ctypes.CDLL(library)
        facts["library"] = _file_of(library)
        version, count = ctypes.c_int(), ctypes.c_int()
        driver.cuDriverGetVersion(ctypes.byref(version))
        facts["version"] = version.value
        code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        if code:
            return {**facts, "code": code, "why_not": f"the driver does not start (error {code})"}
        facts["devices"] = [_device(driver, index) for index in range(count.value)]
    except (OSError, AttributeError) as error:
        facts["why_not"] = str(error)
    return facts


def _device(driver: ctypes.CDLL, index: int) -> dict[str, Any]:
    handle, mode = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    bus_id = ctypes.create_string_buffer(_NAME_BYTES)
    uuid = (ctypes.c_ubyte * 16)()
    driver.cuDeviceGet(ctypes.byref(handle), index)
    driver.cuDeviceGetName(name, _NAME_BYTES, handle)
    driver.cuDeviceGetPCIBusId(bus_id, _NAME_BYTES, handle)
    driver.cuDeviceGetAttribute(ctypes.byref(mode), _COMPUTE_MODE, handle)
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    get_uuid(ctypes.byref(uuid), handle)
    digits = bytes(uuid).hex()
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return {
        "name": name.value.decode(errors="replace"),
        "uuid": "GPU-" + "-".join(groups),
        "bus_id": bus_id.value.decode(errors="replace").lower(),
        "compute_mode": mode.value,
    }


def _file_of(library: str) -> str:
    """Find the file that was loaded, whose name has the driver's version."""
    stem = Path(library).name.split(".so")[0]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            file = line.partition("/")[2]
            if Path(file).name.startswith(stem):
                return "/" + file
    return ""


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1])))
