"""Who saves: hippogriff, and safetensors, made durable as hippogriff's is."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from hippogriff._loaders.contenders import array_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Save = Callable[[Path], int]


def savers(model: Path, device: str) -> list[tuple[str, str, Save]]:
    """Return name, package, and a function that saves the model's tensors and tells their bytes."""
    from hippogriff.safetensors import load_file, save_file

    torch_is_here = importlib.util.find_spec("torch") is not None
    framework = "pt" if torch_is_here else "np"
    tensors = load_file(model, device=device, framework=framework, progress=False)
    size_bytes = sum(map(array_bytes, tensors.values()))

    def save(target: Path) -> int:
        save_file(tensors, target)
        return size_bytes

    found: list[tuple[str, str, Save]] = [("hippogriff", "hippogriff-gpu", save)]
    if importlib.util.find_spec("safetensors") is not None:
        found.append(("safetensors + fsync", "safetensors", _reference(tensors, torch_is_here)))
    return found


def _reference(tensors: dict[str, Any], torch_is_here: bool) -> Save:
    module = importlib.import_module(f"safetensors.{'torch' if torch_is_here else 'numpy'}")

    def save(target: Path) -> int:
        module.save_file(tensors, target)
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return sum(map(array_bytes, tensors.values()))

    return save
