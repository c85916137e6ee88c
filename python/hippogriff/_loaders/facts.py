"""What a run of `hippogriff bench loaders` says of itself: machine, versions, command line."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff import version
from hippogriff._loaders.contenders import version_of
from hippogriff._runtime import info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hippogriff._loaders.bench import Plan, Row

SCHEMA = "hippogriff-loaders/1"


def document(plan: Plan, rows: Sequence[Row], started: float) -> dict[str, Any]:
    """Return the whole of a run for JSON; `started` is in seconds since 1970."""
    return {
        "schema": SCHEMA,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "commit": os.environ.get("COMMIT", ""),  # where whoever measures knows it
        "command_line": shlex.join(["hippogriff", *sys.argv[1:]]),
        "versions": {
            "python": platform.python_version(),
            "hippogriff": version,
            **{name: version_of(name) for name in ("numpy", "torch")},
        },
        "machine": {
            "processor": _first("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)),
            "memory": _first("/proc/meminfo", "MemTotal"),
            "kernel": f"{platform.system()} {platform.release()}",
            "device": _device_facts(plan),
        },
        "device": plan.device,
        "repeat": plan.repeat,
        "rounds": plan.rounds,
        "rows": [row.as_dict() for row in rows],
    }


def _device_facts(plan: Plan) -> dict[str, Any]:
    name = "host" if plan.device == "cpu" else plan.device
    for device in info(plan.folders[0])["devices"]:
        if device["name"] == name:
            return {"name": name, "model": device["model"]}
    return {"name": name, "model": ""}


def _first(path: str, name: str) -> str:
    """Return the first value after "name ... :" in a file; "" when there is none."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
