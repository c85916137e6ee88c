"""What lands in host memory is hashed on the way: nothing reads it a second time to verify it."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from damage import flip

from hippogriff import ChecksumMismatch
from hippogriff import arrays as hippogriff_arrays
from hippogriff.arrays import _verify as arrays_verify
from hippogriff.integrity import write_checksums
from hippogriff.safetensors import (
    _into,
    _load,
    _verify,
    load_file,
    load_into,
    load_plan,
    safe_open,
    save_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK_BYTES = 1 << 18
_NAMES = [f"t{number}" for number in range(200)]


@pytest.fixture(autouse=True)
def nothing_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing memory afterwards is a failure; small loads have several batches."""

    def refuse(*_: Any) -> None:
        raise AssertionError("memory was hashed after it had landed")

    for module in (_verify, arrays_verify):
        monkeypatch.setattr(module, "checksum_memory", refuse)
    monkeypatch.setattr(_load, "_FIRST_BYTES", 1 << 20)
    monkeypatch.setattr(_load, "_HOST_LANDING_BYTES", 2 << 20)
    monkeypatch.setattr(_load, "_FIRST_TENSORS", 16)
    monkeypatch.setattr(_load, "_BATCH_TENSORS", 64)
    monkeypatch.setattr(_into, "_TENSORS_TOGETHER", 50)


def make_model(path: Path) -> dict[str, Any]:
    sizes, values = random.Random(5), np.random.default_rng(5)
    choices = (0, 1, 900, 30_000, _BLOCK_BYTES, _BLOCK_BYTES + 1, 3 * _BLOCK_BYTES - 7)
    tensors = {name: values.integers(0, 256, sizes.choice(choices), np.uint8) for name in _NAMES}
    save_file(tensors, path, checksum=True)
    return tensors


def _file(path: Path) -> Any:
    return load_file(path, framework="np", verify=True)


def _names(path: Path) -> Any:
    with safe_open(path, "np", verify=True) as file:
        return file.get_tensors(reversed(_NAMES))


def _one_by_one(path: Path) -> Any:
    with safe_open(path, "np", verify=True) as file:
        return {name: file.get_tensor(name) for name in _NAMES}


def _slices(path: Path) -> Any:
    with safe_open(path, "np", verify=True) as file:
        return {name: file.get_slice(name)[:] for name in _NAMES}


def _plan(path: Path) -> Any:
    return load_plan(path, {"cpu": None}, framework="np", verify=True)["cpu"]


def _arrays(path: Path) -> Any:
    with safe_open(path, "np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in _NAMES}
    arrays = {name: np.zeros(shape, np.uint8) for name, shape in shapes.items()}
    load_into(arrays, path, verify=True)
    return arrays


@pytest.mark.parametrize("load", [_file, _names, _one_by_one, _slices, _plan, _arrays])
def test_bits_of_a_model_are_verified_wherever_they_are(
    tmp_path: Path, load: Callable[[Path], Any]
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = make_model(path)
    found = load(path)
    for name, tensor in tensors.items():
        assert np.array_equal(found[name], tensor), name
    with safe_open(path, "np") as file:
        places = {name: file._header.tensors[name] for name in _NAMES}
    chosen = [tensor for tensor in places.values() if tensor.size_bytes]
    for tensor in (chosen[0], chosen[len(chosen) // 2], chosen[-1]):
        for at in {0, tensor.size_bytes // 2, tensor.size_bytes - 1}:
            flip(path, tensor.offset + at)
            with pytest.raises(ChecksumMismatch) as raised:
                load(path)
            flip(path, tensor.offset + at)
            (mismatch,) = raised.value.mismatches
            begin = at // _BLOCK_BYTES * _BLOCK_BYTES
            assert (mismatch.tensor, mismatch.offset) == (tensor.name, tensor.offset + begin)
    load(path)


def test_bits_of_an_array_are_verified_wherever_they_are(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    array = np.random.default_rng(1).integers(0, 256, 3 * _BLOCK_BYTES + 11, np.uint8)
    hippogriff_arrays.save_npy(path, array)
    write_checksums(path)
    assert np.array_equal(hippogriff_arrays.load_npy(path, verify=True), array)
    head = path.stat().st_size - array.nbytes
    for at in (0, _BLOCK_BYTES, array.nbytes - 1):
        flip(path, head + at)
        with pytest.raises(ChecksumMismatch):
            hippogriff_arrays.load_npy(path, verify=True)
        flip(path, head + at)
    hippogriff_arrays.load_npy(path, verify=True)


def test_threads_verify_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = make_model(path)
    failures: list[BaseException] = []

    def load() -> None:
        try:
            for _ in range(5):
                found = _file(path)
                assert all(np.array_equal(found[name], each) for name, each in tensors.items())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures
