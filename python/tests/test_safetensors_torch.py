"""Loading into torch's tensors and saving them, on the CPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hippogriff
from hippogriff._frameworks import _TORCH_NAMES
from hippogriff.arrays import open_npy, save_npy
from hippogriff.safetensors import SafetensorError, load_file, load_into, safe_open, save_file

if TYPE_CHECKING:
    from pathlib import Path

safetensors: Any = pytest.importorskip("safetensors")
torch: Any = pytest.importorskip("torch")
reference: Any = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.torch


def _freed() -> Any:
    tensor = torch.zeros(4)
    getattr(tensor, "untyped_storage", tensor.storage)().resize_(0)  # The first from torch 2.0 on.
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


@pytest.mark.parametrize("old_torch", [False, True])
@pytest.mark.parametrize("way", ["straight", "converted", "file", "many", "array"])
def test_a_backward_pass_through_what_was_overwritten_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, old_torch: bool
) -> None:
    if old_torch:
        monkeypatch.delattr(torch.autograd.graph, "increment_version", raising=False)
    path = tmp_path / "values"
    values = np.ones((3, 4), np.float64 if way == "converted" else np.float32)
    module = torch.nn.Linear(4, 3, bias=False)
    kept = torch.nn.Linear(4, 3, bias=False)
    loss, other = (module.weight**2).sum(), (kept.weight**2).sum()
    weight = module.weight.detach()
    if way in {"straight", "converted"}:
        save_file({"weight": values}, path)
        load_into(module, path, convert=True)
    elif way == "array":
        save_npy(path, values)
        with open_npy(path) as array:
            array.read_into(weight)
    else:
        path.write_bytes(values.tobytes())
        with hippogriff.open(path) as file:
            if way == "file":
                file.read_into(weight)
            else:
                file.read_into_many([(0, weight[:1]), (32, weight[2:])])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    other.backward()
    assert (module.weight[0] == 1).all()


def test_tensors_of_inference_mode_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones(4, np.float32)}, path)
    with torch.inference_mode():
        tensor = torch.zeros(4)
        load_into({"a": tensor}, path)
    load_into({"a": tensor}, path)
    assert (tensor == 1).all()


def _packed(*shape: int) -> Any:
    """Make a tensor of F4: two elements in each of torch's."""
    values = torch.arange(int(np.prod(shape)), dtype=torch.uint8).reshape(shape)
    return values.view(torch.float4_e2m1fn_x2)


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no F4")
def test_f4_is_saved_and_loaded_in_place_as_the_reference_does(tmp_path: Path) -> None:
    path, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    tensors = {"a": _packed(3, 4), "b": _packed(0, 5), "c": _packed(6)}
    save_file(tensors, path)
    reference.save_file(tensors, theirs)
    assert path.read_bytes() == theirs.read_bytes()
    assert load_file(path)["a"].shape == (3, 4)
    wide = torch.zeros(6, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    state = {"a": torch.zeros_like(_packed(3, 4)), "b": _packed(0, 5), "c": wide[:, 1]}
    load_into(state, path)
    for name, tensor in tensors.items():
        found = state[name].contiguous().view(torch.uint8)
        assert torch.equal(found, tensor.view(torch.uint8))
    with pytest.raises(hippogriff.InvalidArgument, match=r"a has the shape \(3, 8\) there and"):
        load_into({**state, "a": _packed(3, 8)}, path)
    floats = {"a": torch.zeros(3, 8), "b": state["b"], "c": torch.zeros(12)}
    with pytest.raises(hippogriff.InvalidArgument, match="a is F4 there and F32 here, which"):
        load_into(floats, path, convert=True)
    with pytest.raises(hippogriff.InvalidArgument, match="'d': torch packs F4 by two"):
        save_file({"d": _packed(1)[0]}, path)


def test_no_device_is_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(4)}, path)
    assert load_file(path, None)["a"].device == torch.device("cpu")
    with safe_open(path, "pt", device=None) as file:
        assert file.get_tensor("a").device == torch.device("cpu")


def test_only_what_torch_lacks_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "uint16", raising=False)  # Torch has it from 2.3 on.
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones((2, 3), np.float32), "b": np.ones(5, np.uint16)}, path)
    told = rf"'b': torch {re.escape(torch.__version__)} has no element type for U16"
    with pytest.raises(hippogriff.Unsupported, match=told):
        load_file(path)
    into = torch.zeros(2, 3)
    assert load_into({"a": into}, path, strict=False) == ([], ["b"])
    with safe_open(path, "pt") as file:
        for found in (file.get_tensor("a"), file.get_slice("a")[:], into):
            assert torch.equal(found, torch.ones(2, 3))
        with pytest.raises(hippogriff.Unsupported, match=told):
            file.get_tensor("b")


def test_a_torch_without_cuda_is_told_where_a_gpu_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch.cuda, "init", init)
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(4)}, path)
    with pytest.raises(hippogriff.Unsupported, match=r"device cuda:0: torch .* not compiled"):
        load_file(path, "cuda:0")


_DTYPES = [getattr(torch, name) for name in _TORCH_NAMES.values() if hasattr(torch, name)]


def _bytes_of(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(
        st.tuples(st.sampled_from(_DTYPES), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
        max_size=30,
    ),
    seed=st.integers(0, 2**32),
)
def test_files_of_the_package_are_loaded_as_by_it(
    tmp_path: Path, kinds: list[tuple[Any, list[int]]], seed: int
) -> None:
    path = tmp_path / "theirs.safetensors"
    source = np.random.default_rng(seed)
    tensors = {}
    for number, (dtype, shape) in enumerate(kinds):
        tensors[f"{number}"] = tensor = torch.empty(shape, dtype=dtype)
        size_bytes = tensor.numel() * tensor.element_size()
        values = source.integers(0, 2 if dtype == torch.bool else 256, size_bytes, np.uint8)
        tensor.reshape(-1).view(torch.uint8).numpy()[:] = values
    reference.save_file(tensors, path)
    expected = reference.load_file(path)
    places = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    load_into(places, path)
    save_file(tensors, tmp_path / "ours.safetensors")
    again = reference.load_file(tmp_path / "ours.safetensors")
    for found in (load_file(path), places, again):
        assert found.keys() == expected.keys()
        for name, theirs in expected.items():
            assert (found[name].dtype, found[name].shape) == (theirs.dtype, theirs.shape)
            assert _bytes_of(found[name]) == _bytes_of(theirs) == _bytes_of(tensors[name])


_MORE_INDICES: list[Any] = [
    [0, 2],
    [],
    (0, [1, 2]),
    None,
    (slice(None), None),
    (..., ...),
    (..., None, 1),
    range(2),
    True,
    np.array([0, 1]),
    torch.tensor([2]),
    torch.tensor([2, 0, 2]),
    (torch.tensor([1, 0]), torch.tensor([3, 2])),
    torch.tensor([True, False, True]),
    (slice(None), torch.tensor([True, False, True, False])),
]


@pytest.mark.parametrize("index", _MORE_INDICES, ids=repr)
def test_slices_take_what_torch_takes(tmp_path: Path, index: Any) -> None:
    path = tmp_path / "model.safetensors"
    reference.save_file({"a": torch.arange(24.0).reshape(3, 4, 2)}, path)
    with safe_open(path, "pt") as ours, safetensors.safe_open(path, "pt") as theirs:
        part, expected = ours.get_slice("a")[index], theirs.get_slice("a")[index]
    assert part.shape == expected.shape
    assert torch.equal(part, expected)


@pytest.mark.parametrize(
    ("index", "kind"),
    [([7], IndexError), (torch.tensor([5]), IndexError), ("a", SafetensorError)],
)
def test_slices_that_torch_refuses_name_file_and_tensor(
    tmp_path: Path, index: Any, kind: type[Exception]
) -> None:
    path = tmp_path / "model.safetensors"
    reference.save_file({"a": torch.arange(3.0)}, path)
    with safe_open(path, "pt") as file, pytest.raises(kind, match=r"model.*tensor 'a'") as caught:
        file.get_slice("a")[index]
    assert isinstance(caught.value, SafetensorError)


def test_the_host_is_torchs_cpu_and_other_devices_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    reference.save_file({"a": torch.arange(3.0)}, path)
    assert load_file(path, "host")["a"].device.type == "cpu"
    with pytest.raises(hippogriff.InvalidArgument, match="device 'bogus': Expected one of cpu"):
        load_file(path, "bogus")
