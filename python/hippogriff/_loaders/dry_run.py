"""`hippogriff load`: a load for its time alone, with or without torch."""

from __future__ import annotations

import functools
import importlib.util
import re
from typing import TYPE_CHECKING

from hippogriff._runtime import default_device, device_name
from hippogriff.arrays._archive import SIGNATURE
from hippogriff.arrays._header import MAGIC
from hippogriff.arrays._load import load_npy, load_npz
from hippogriff.errors import InvalidArgument, Unsupported
from hippogriff.safetensors._load import load_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hippogriff._report import LoadReport

_DEVICE = re.compile(r"(cpu|cuda)(:\d+)?")
# By what files begin with, and where that says nothing by their names.
_ARRAYS: dict[bytes, Callable[..., object]] = {MAGIC: load_npy, SIGNATURE: load_npz}
_NAMED: dict[str, Callable[..., object]] = {".npy": load_npy, ".npz": load_npz}


def torch_device(device: str | None) -> str:
    """Return torch's name of a device of ours, or of the default one."""
    name = device_name(device) or default_device()
    return "cpu" if name == "host" else name


def dry_run(
    files: list[Path], device: str | None, *, verify: bool, host_memory: str | None = None
) -> LoadReport:
    """Load files, compared with their checksums where that is wanted, and let go of the tensors.

    What begins as `.npy` and `.npz` files do, or is called so, is loaded as arrays, one after the
    other, all else as one model.

    Raises
    ------
    InvalidArgument
        When there is no file, no such device, or too little host memory.
    Unsupported
        When nothing is installed whose arrays could be on the device.
    """
    if not files:
        raise InvalidArgument("load: name a file")
    target = torch_device(device)
    framework = _framework_for(target)
    reports: list[LoadReport] = []
    for load in _loads(files):
        load(
            device=target,
            framework=framework,
            verify=verify,
            host_memory=host_memory,
            explain=reports.append,
        )
    for report in reports[1:]:
        reports[0].add(report)
    for file in reports[0].files:
        file.device = target
    return reports[0]


def _loads(files: list[Path]) -> list[Callable[..., object]]:
    """Return what loads them: arrays one by one, all of a model in one go."""
    loads: list[Callable[..., object]] = []
    model: list[Path] = []
    for path in files:
        begun = (load for begin, load in _ARRAYS.items() if _begins(path, begin))
        load = next(begun, _NAMED.get(path.suffix.lower()))
        if load is None:
            model.append(path)
        else:
            loads.append(functools.partial(load, path))
    return [functools.partial(load_file, model), *loads] if model else loads


def _begins(path: Path, begin: bytes) -> bool:
    try:
        if not path.is_file():  # a pipe would be waited for
            return False
        with path.open("rb") as file:
            return file.read(len(begin)) == begin
    except OSError:  # which loading it will tell
        return False


def _framework_for(device: str) -> str:
    """Name what can hold tensors there; on the CPU NumPy, which is imported soonest."""
    if not _DEVICE.fullmatch(device):
        raise InvalidArgument(
            f'device {device!r:.100} is none of "cpu", "cuda", "cuda:1", …', object=device
        )
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
