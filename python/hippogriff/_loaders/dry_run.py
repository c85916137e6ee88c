"""`hippogriff load`: a load for its time alone, with or without torch."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from hippogriff._runtime import default_device, device_name
from hippogriff.errors import InvalidArgument, Unsupported
from hippogriff.safetensors._load import load_file

if TYPE_CHECKING:
    from pathlib import Path

    from hippogriff._report import LoadReport


def torch_device(device: str | None) -> str:
    """Return torch's name of a device of ours, or of the default one."""
    name = device_name(device) or default_device()
    return "cpu" if name == "host" else name


def dry_run(
    files: list[Path], device: str | None, *, verify: bool, host_memory: str | None = None
) -> LoadReport:
    """Load files, compared with their checksums where that is wanted, and let go of the tensors.

    Raises
    ------
    InvalidArgument
        When there is no file, or too little host memory.
    Unsupported
        When nothing is installed whose arrays could be on the device.
    """
    if not files:
        raise InvalidArgument("load: name a file")
    target = torch_device(device)
    reports: list[LoadReport] = []
    framework = _framework_for(target)
    load_file(
        files,
        target,
        framework=framework,
        verify=verify,
        host_memory=host_memory,
        explain=reports.append,
    )
    return reports[0]


def _framework_for(device: str) -> str:
    """Name what can hold tensors there; on the CPU NumPy, which is imported soonest."""
    on_cpu = device == "cpu"
    wanted = {"np": "numpy", "pt": "torch"} if on_cpu else {"pt": "torch", "cupy": "cupy"}
    for framework, module in wanted.items():
        if importlib.util.find_spec(module) is not None:
            return framework
    raise Unsupported(
        f"load: tensors on {device} need one of {', '.join(wanted.values())}, and none is "
        f"installed: pip install {'numpy' if on_cpu else 'torch'}",
        operation="import",
        object=next(iter(wanted.values())),
    )
