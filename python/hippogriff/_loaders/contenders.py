"""Who loads: hippogriff and the loaders that people use, each with its defaults and other settings.

Nothing is installed: a contender takes part where its package can be imported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Load = Callable[[str, str, dict[str, Any]], dict[str, Any]]

MIB = 1 << 20


@dataclass(frozen=True)
class Contender:
    """One loader with one setting.

    Attributes
    ----------
    name : str
        What it is called in results.
    package : str
        Its distribution on PyPI.
    module : str
        What must be importable.
    load : callable
        Of path, torch device and options; returns the tensors by name.
    options : dict
        Given to `load`.
    environment : dict of str to str
        Set before its module is imported.
    on_cpu : bool
        Whether it loads to the CPU too.
    """

    name: str
    package: str
    module: str
    load: Load
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    on_cpu: bool = False

    @property
    def defaults(self) -> bool:
        """Whether it runs as it comes."""
        return not self.options and not self.environment

    def why_not(self, device: str) -> str:
        """Why it does not take part on a device; "" when it does."""
        if device == "cpu" and not self.on_cpu:
            return "it loads to GPUs only"
        if importlib.util.find_spec(self.module) is None:
            return f"not installed: pip install {self.package}"
        if self.load is _prefetch and not _has_prefetch():
            return f"safetensors {version_of('safetensors')} has no prefetch"
        return ""


def version_of(package: str) -> str:
    """Return the version of an installed distribution; "" when it is none."""
    if package == "hippogriff-gpu":
        return str(_import("hippogriff").version)  # also from a checkout
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _import(module: str) -> Any:
    return importlib.import_module(module)


def _framework() -> str:
    return "pt" if importlib.util.find_spec("torch") is not None else "np"


def _hippogriff(path: str, device: str, options: dict[str, Any]) -> dict[str, Any]:
    load = _import("hippogriff.safetensors").load_file
    loaded: dict[str, Any] = load(
        path, device=device, framework=_framework(), progress=False, **options
    )
    return loaded


def _safetensors(path: str, device: str, options: dict[str, Any]) -> dict[str, Any]:
    if _framework() == "np":
        loaded: dict[str, Any] = _import("safetensors.numpy").load_file(path, **options)
    else:
        loaded = _import("safetensors.torch").load_file(path, device=device, **options)
    return loaded


def _has_prefetch() -> bool:
    return hasattr(_import("safetensors").safe_open, "prefetch")


def _prefetch(path: str, device: str, options: dict[str, Any]) -> dict[str, Any]:
    opened = _import("safetensors").safe_open(path, framework="pt", device=device)
    with opened as file, file.prefetch(**options) as loader:
        return dict(loader)


def _fastsafetensors(path: str, device: str, options: dict[str, Any]) -> dict[str, Any]:
    loader = _import("fastsafetensors").SafeTensorsFileLoader(None, device, **options)
    try:
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device()
        try:
            return {name: buffers.get_tensor(name) for name in loader.get_keys()}
        finally:
            buffers.close()
    finally:
        loader.close()


def _runai(path: str, device: str, options: dict[str, Any]) -> dict[str, Any]:
    with _import("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_files([path], device=device, **options)
        return dict(streamer.get_tensors())


def _instanttensor(path: str, device: str, options: dict[str, Any]) -> dict[str, Any]:
    opened = _import("instanttensor").safe_open([path], framework="pt", device=device, **options)
    with opened as file:
        return dict(file.tensors())


def _kvikio(path: str, device: str, options: dict[str, Any]) -> dict[str, Any]:
    """Read each tensor into one of torch's, all at once, as KvikIO's futures let one do."""
    torch, kvikio = _import("torch"), _import("kvikio")
    defaults = _import("kvikio.defaults")
    names = _import("hippogriff._frameworks")
    with open(path, "rb") as opened:  # noqa: PTH123 (not what is measured)
        size = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(size))
    header.pop("__metadata__", None)
    tensors, futures = {}, []
    if options:
        defaults.set(options)
    with kvikio.CuFile(path, "r") as file:
        for name, tensor in header.items():
            dtype = getattr(torch, names._TORCH_NAMES[tensor["dtype"]])
            tensors[name] = torch.empty(tensor["shape"], dtype=dtype, device=device)
            begin, end = tensor["data_offsets"]
            if begin < end:
                flat = tensors[name].view(torch.uint8).reshape(-1)
                futures.append((file.pread(flat, end - begin, 8 + size + begin), end - begin))
        for future, expected in futures:
            if future.get() != expected:
                raise OSError(f"{path}: KvikIO read less than {expected} bytes")
    return tensors


def _kvikio_settings(threads: int, **more: Any) -> dict[str, Any]:
    return {"num_threads": threads, "task_size": 4 * MIB, "bounce_buffer_size": 4 * MIB, **more}


_PEERS: list[tuple[str, str, str, Load, dict[str, tuple[dict[str, Any], dict[str, str]]]]] = [
    ("safetensors", "safetensors", "safetensors", _safetensors, {}),
    (
        "safetensors prefetch",
        "safetensors",
        "safetensors",
        _prefetch,
        {"16 threads": ({"threads": 16}, {})},
    ),
    (
        "fastsafetensors",
        "fastsafetensors",
        "fastsafetensors",
        _fastsafetensors,
        {
            "no GDS": ({"nogds": True}, {}),
            "no GDS, buffered": ({"nogds": True}, {"FASTSAFETENSORS_ODIRECT": "0"}),
            "no GDS, buffered, 256 MiB": (
                {"nogds": True, "bbuf_size_kb": 256 * 1024},
                {"FASTSAFETENSORS_ODIRECT": "0"},
            ),
        },
    ),
    (
        "runai",
        "runai-model-streamer",
        "runai_model_streamer",
        _runai,
        {
            "32 threads": ({}, {"RUNAI_STREAMER_CONCURRENCY": "32"}),
            "32 threads, 1 GiB": (
                {},
                {"RUNAI_STREAMER_CONCURRENCY": "32", "RUNAI_STREAMER_MEMORY_LIMIT": str(1 << 30)},
            ),
        },
    ),
    (
        "instanttensor",
        "instanttensor",
        "instanttensor",
        _instanttensor,
        {
            "buffered": ({}, {"INSTANTTENSOR_BACKEND": "BUFFERED"}),
            "mmap": ({}, {"INSTANTTENSOR_BACKEND": "MMAP"}),
        },
    ),
    (
        "kvikio",
        "kvikio-cu13",
        "kvikio",
        _kvikio,
        {
            "8 threads": (_kvikio_settings(8), {}),
            "16 threads": (_kvikio_settings(16), {}),
            "8 threads, direct": (_kvikio_settings(8, auto_direct_io_read=True), {}),
        },
    ),
]


def all_contenders(*, settings: bool = True) -> list[Contender]:
    """Return hippogriff, then the others with their defaults, and then with other settings."""
    contenders = [Contender("hippogriff", "hippogriff-gpu", "hippogriff", _hippogriff, on_cpu=True)]
    tuned = []
    for name, package, module, load, variants in _PEERS:
        contenders.append(Contender(name, package, module, load, on_cpu=load is _safetensors))
        for variant, (options, environment) in variants.items():
            title = f"{name}, {variant}"
            tuned.append(Contender(title, package, module, load, options, environment))
    return contenders + (tuned if settings else [])


def array_bytes(array: Any) -> int:
    """Return the bytes of a tensor or an array."""
    if hasattr(array, "element_size"):
        return int(array.numel() * array.element_size())
    return int(math.prod(array.shape) * array.dtype.itemsize)
