"""Loading into torch's tensors and saving them, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff.safetensors import load_into, save_file

if TYPE_CHECKING:
    from pathlib import Path

torch: Any = pytest.importorskip("torch")


def _freed() -> Any:
    tensor = torch.zeros(4)
    tensor.untyped_storage().resize_(0)
    return tensor


# What holds no elements of its own, by what is said of it.
_WITHOUT = {
    "is on the device meta": lambda: torch.zeros(4, device="meta"),
    "is sparse": lambda: torch.zeros(4).to_sparse(),
    "has no memory now": _freed,
}


@pytest.mark.parametrize("convert", [False, True])
@pytest.mark.parametrize(
    ("words", "make"),
    [
        *_WITHOUT.items(),
        ("is expanded", lambda: torch.zeros(1).expand(4)),
        ("uninitialized", torch.nn.UninitializedParameter),
    ],
)
def test_tensors_that_cannot_be_filled_are_told_before_any_is(
    tmp_path: Path, words: str, make: Any, convert: bool
) -> None:
    path = tmp_path / "model.safetensors"
    kind = np.float64 if convert else np.float32
    save_file({"a": np.ones(4, np.float32), "b": np.ones(4, kind)}, path)
    first = torch.zeros(4)
    with pytest.raises(hippogriff.InvalidArgument, match=f"b.* {words}"):
        load_into({"a": first, "b": make()}, path, convert=convert)
    assert not first.any()


@pytest.mark.parametrize(("words", "make"), _WITHOUT.items())
def test_tensors_without_elements_are_not_saved(tmp_path: Path, words: str, make: Any) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match=f"'b': the tensor {words}"):
        save_file({"a": torch.ones(4), "b": make()}, tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []
