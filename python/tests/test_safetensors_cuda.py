"""safetensors with torch and CuPy on a GPU: skipped, visibly, where there is none."""

from __future__ import annotations

import gc
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors

import hippogriff
from hippogriff.safetensors import load_file, load_into, safe_open, save_file

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1 << 20
_GPU = "cuda:0"


def _dtypes(torch: Any) -> list[Any]:
    names = (
        "bool uint8 int8 int16 uint16 float16 bfloat16 int32 uint32 float32 float64 int64 uint64 "
        "complex64 float8_e4m3fn float8_e5m2"
    )
    return [getattr(torch, name) for name in names.split()]


def make_model(torch: Any, count: int = 60) -> dict[str, Any]:
    """Make tensors of all element types and odd sizes: empty, without dimensions, larger ones."""
    torch.manual_seed(1)
    tensors = {}
    dtypes = _dtypes(torch)
    shapes: list[tuple[int, ...]] = [(), (0,), (3, 0, 2), (1,), (17, 3), (1000, 333), (5, 1, 7, 11)]
    for number in range(count):
        dtype, shape = dtypes[number % len(dtypes)], shapes[number % len(shapes)]
        raw = torch.randint(0, 2, (*shape, 16), dtype=torch.uint8)
        if dtype is not torch.bool:
            raw = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        itemsize = torch.empty((), dtype=dtype).element_size()
        bits = raw[..., :itemsize].contiguous()
        tensors[f"layer.{number}"] = bits.view(dtype).reshape(shape)
    tensors["big"] = torch.randint(-(2**31), 2**31 - 1, (5 * _MIB + 3,), dtype=torch.int32)
    return tensors


def bits_of(torch: Any, tensor: Any) -> bytes:
    """Return a tensor's bytes, whatever its type."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes())


def assert_same(torch: Any, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare names, element types, shapes and bytes."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert bits_of(torch, found[name]) == bits_of(torch, tensor), name


def assert_own_memory(*models: dict[str, Any]) -> None:
    """Each tensor is alone in its storage, and no two overlap."""
    every = [tensor for tensors in models for tensor in tensors.values()]
    sizes = [tensor.numel() * tensor.element_size() for tensor in every]
    assert [tensor.untyped_storage().nbytes() for tensor in every] == sizes
    addresses = [tensor.data_ptr() for tensor in every]
    spans = sorted(span for span in zip(addresses, sizes, strict=True) if span[1])
    for (address, size), (after, _) in itertools.pairwise(spans):
        assert address + size <= after


@pytest.fixture
def model(torch: Any, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A file that the reference implementation wrote from torch tensors."""
    reference = pytest.importorskip("safetensors.torch")
    tensors = make_model(torch)
    path = tmp_path / "model.safetensors"
    reference.save_file(tensors, path, {"format": "pt"})
    return path, tensors


@pytest.mark.parametrize("device", ["cpu", "cuda", _GPU, 0])
def test_torch_tensors_are_what_the_reference_saved(
    torch: Any, model: tuple[Path, dict[str, Any]], device: object
) -> None:
    path, tensors = model
    loaded = load_file(path, device=device)
    assert_same(torch, loaded, tensors)
    kind = "cpu" if device == "cpu" else "cuda"
    assert {tensor.device.type for tensor in loaded.values()} == {kind}
    assert not any(tensor.requires_grad for tensor in loaded.values())


def test_each_gpu_is_loaded_whichever_is_current(
    torch: Any, model: tuple[Path, dict[str, Any]]
) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    path, tensors = model
    for current, target in itertools.product((0, 1), (0, 1)):
        with torch.cuda.device(current):
            loaded = load_file(path, device=f"cuda:{target}")
            assert {tensor.device.index for tensor in loaded.values()} == {target}
            assert torch.cuda.current_device() == current
        assert_same(torch, loaded, tensors)
        for tensor in loaded.values():  # and it is there that it may be worked on
            assert (tensor.reshape(-1)[:1] == tensor.reshape(-1)[:1]).device.index == target


def test_every_tensor_owns_its_memory(torch: Any, model: tuple[Path, dict[str, Any]]) -> None:
    path, tensors = model
    first, second = load_file(path, device=_GPU), load_file(path, device=_GPU)
    assert_own_memory(first, second)
    for tensor in first.values():
        if tensor.numel():
            tensor.view(torch.uint8).reshape(-1).fill_(1) if tensor.dim() else None
    assert_same(torch, second, tensors)


def test_the_cpu_and_the_gpu_may_be_loaded_at_once(
    torch: Any, model: tuple[Path, dict[str, Any]]
) -> None:
    import concurrent.futures

    path, tensors = model
    devices = ["cpu", _GPU] * 6
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for loaded in pool.map(lambda device: load_file(path, device=device), devices):
            assert_same(torch, loaded, tensors)


def test_slices_are_the_references(torch: Any, model: tuple[Path, dict[str, Any]]) -> None:
    path, tensors = model
    name = next(name for name, tensor in tensors.items() if tensor.shape == (1000, 333))
    indices = (
        np.s_[3:90],
        np.s_[:, 5:8],
        np.s_[7, 2:],
        np.s_[..., -1],
        np.s_[::7, ::3],
        np.s_[0:0],
    )
    with safe_open(path, framework="pt", device=_GPU) as file:
        part = file.get_slice(name)
        assert part.get_shape() == [1000, 333]
        for index in indices:
            found = part[index]
            assert found.device.type == "cuda"
            assert bits_of(torch, found) == bits_of(torch, tensors[name][index]), index


def test_loads_wait_for_the_stream_that_is_current_then(
    torch: Any, model: tuple[Path, dict[str, Any]]
) -> None:
    path, tensors = model
    count = 5 * _MIB + 3
    with safe_open(path, framework="pt", device=_GPU) as file:
        for _ in range(6):
            with torch.cuda.stream(torch.cuda.Stream()):
                # Its memory goes back to the stream's cache with work on it still under way.
                busy = torch.zeros(count, dtype=torch.int32, device=_GPU)
                torch.cuda._sleep(100_000_000)
                busy.fill_(7)
                del busy
                loaded = file.get_tensor("big")
                assert bits_of(torch, loaded) == bits_of(torch, tensors["big"])


@pytest.mark.parametrize("target_device", ["cpu", _GPU])
def test_a_module_is_filled_in_place(torch: Any, tmp_path: Path, target_device: str) -> None:
    reference = pytest.importorskip("safetensors.torch")
    source = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.BatchNorm1d(500))
    path = tmp_path / "module.safetensors"
    reference.save_file(source.state_dict(), path)
    target = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.BatchNorm1d(500))
    target.to(target_device)
    places = {name: tensor.data_ptr() for name, tensor in target.state_dict().items()}
    names = load_into(target, path)
    assert names == ([], [])
    assert places == {name: tensor.data_ptr() for name, tensor in target.state_dict().items()}
    assert_same(torch, dict(target.state_dict()), dict(source.state_dict()))


def test_a_module_takes_another_type_and_layout(torch: Any, tmp_path: Path) -> None:
    source = {
        "weight": torch.randn(500, 300),
        "bias": torch.randn(500),
        "turned": torch.randn(30, 20),
    }
    path = tmp_path / "float32.safetensors"
    save_file(source, path)
    target = {
        "weight": torch.zeros(500, 300, dtype=torch.bfloat16, device=_GPU),
        "bias": torch.zeros(500, device=_GPU),
        "turned": torch.zeros(20, 30, device=_GPU).T,
    }
    with pytest.raises(hippogriff.InvalidArgument, match="convert"):
        load_into(target, path)
    load_into(target, path, convert=True)
    assert torch.equal(target["weight"].cpu(), source["weight"].to(torch.bfloat16))
    assert torch.equal(target["bias"].cpu(), source["bias"])
    assert torch.equal(target["turned"].cpu(), source["turned"])


def test_nothing_is_kept_on_the_gpu_beside_the_tensors(torch: Any, tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.torch")
    path = tmp_path / "large.safetensors"
    tensors = {
        f"t{number}": torch.randn(64 * _MIB // 4, dtype=torch.float32) for number in range(8)
    }
    reference.save_file(tensors, path)
    target = {name: torch.zeros_like(tensor, device=_GPU) for name, tensor in tensors.items()}
    load_into(target, path)  # What the driver and the runtime make once.
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info(0)[0]
    load_into(target, path)
    assert before - torch.cuda.mem_get_info(0)[0] < 32 * _MIB
    assert_same(torch, target, tensors)
    del target
    gc.collect()


@pytest.mark.parametrize("each_bytes", [100_000, 429_496, _MIB // 2, 700_000, _MIB, 8 * _MIB])
def test_a_load_takes_the_memory_of_its_tensors_and_no_more(
    torch: Any, tmp_path: Path, each_bytes: int
) -> None:
    path = tmp_path / "model.safetensors"
    count = 512 * _MIB // each_bytes
    flat = np.random.default_rng(7).integers(0, 256, count * each_bytes, np.uint8)
    tensors = {f"t{n}": part for n, part in enumerate(np.split(flat, count))}
    save_file(tensors, path)
    load_file(path, device=_GPU)  # What the driver and the runtime make once.
    gc.collect()
    torch.cuda.empty_cache()
    before, free_before = torch.cuda.memory_reserved(0), torch.cuda.mem_get_info(0)[0]
    loaded = load_file(path, device=_GPU)
    assert torch.cuda.memory_reserved(0) - before < flat.nbytes + 32 * _MIB
    assert free_before - torch.cuda.mem_get_info(0)[0] < flat.nbytes + 32 * _MIB
    assert_own_memory(loaded)
    together = torch.cat([loaded[name] for name in tensors]).cpu()
    assert torch.equal(together, torch.from_numpy(flat))
    again = load_file(path, device=_GPU)
    assert torch.equal(torch.cat([again[name] for name in tensors]).cpu(), together)


def test_torchs_allocator_is_set_as_before_after_small_tensors(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.safetensors"
    save_file({f"t{number}": np.zeros(429_496, np.uint8) for number in range(600)}, path)

    def settings() -> Any:
        return torch.cuda.memory._snapshot()["allocator_settings"]

    before = settings()
    loaded = load_file(path, device=_GPU)
    after = settings()
    assert after.pop("PYTORCH_CUDA_ALLOC_CONF") in ("", "expandable_segments:False")
    before.pop("PYTORCH_CUDA_ALLOC_CONF")
    assert after == before
    held = {segment["is_expandable"] for segment in torch.cuda.memory_snapshot()}
    assert held == {True, False}
    words = "max_split_size_mb:64"
    torch._C._accelerator_setAllocatorSettings(words)
    try:
        again = load_file(path, device=_GPU)
        assert settings()["PYTORCH_CUDA_ALLOC_CONF"] == words
    finally:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    assert len(loaded) == len(again) == 600


def test_what_is_saved_from_the_gpu_the_reference_loads(torch: Any, tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.torch")
    tensors = make_model(torch)
    path = tmp_path / "saved.safetensors"
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        on_gpu = {name: tensor.to(_GPU) for name, tensor in tensors.items()}
        torch.cuda._sleep(100_000_000)
        on_gpu["late"] = torch.zeros(4 * _MIB, dtype=torch.int32, device=_GPU) + 5
        save_file(on_gpu, path, {"who": "hippogriff"})
    tensors["late"] = torch.full((4 * _MIB,), 5, dtype=torch.int32)
    assert_same(torch, reference.load_file(path), tensors)
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata() == {"who": "hippogriff"}


def test_cupy_arrays_are_loaded_sliced_filled_and_saved(cupy: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    tensors: dict[str, Any] = {
        "a": random.standard_normal((500, 333)).astype(np.float32),
        "b": random.integers(0, 255, 3 * _MIB + 1, dtype=np.uint8),
        "c": np.float64(3.5).reshape(()),
        "d": np.zeros((0, 3), np.int16),
        "e": random.standard_normal((40, 30)).astype(np.complex64),
    }
    path = tmp_path / "np.safetensors"
    save_file(tensors, path)
    loaded = load_file(path, device=_GPU, framework="cupy")
    for name, array in tensors.items():
        assert isinstance(loaded[name], cupy.ndarray)
        assert loaded[name].dtype == array.dtype
        assert cupy.asnumpy(loaded[name]).tobytes() == array.tobytes(), name
    with safe_open(path, framework="cupy", device=_GPU) as file:
        assert (cupy.asnumpy(file.get_slice("a")[3:7, ::2]) == tensors["a"][3:7, ::2]).all()
    target = {name: cupy.zeros(array.shape, array.dtype) for name, array in tensors.items()}
    target["a"] = cupy.zeros((333, 500), np.float32).T
    load_into(target, path)
    for name, array in tensors.items():
        assert cupy.asnumpy(target[name]).tobytes() == array.tobytes(), name
    save_file(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_many_small_tensors_come_right(torch: Any, tmp_path: Path) -> None:
    flat = torch.arange(3_000_000, dtype=torch.int32)
    sizes = np.random.default_rng(5).integers(1, 500, 10_000)
    ends = np.cumsum(sizes)
    tensors = {
        f"t{number:05}": flat[end - size : end].clone()
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True))
    }
    path = tmp_path / "many.safetensors"
    save_file(tensors, path)
    before = hippogriff.stats()["transfers_finished"]
    loaded = load_file(path, device=_GPU)
    assert hippogriff.stats()["transfers_finished"] - before <= 4
    together = torch.cat([loaded[name] for name in tensors]).cpu()
    assert torch.equal(together, torch.cat(list(tensors.values())))


def test_out_of_gpu_memory_is_the_frameworks_error(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(64 * _MIB, dtype=torch.uint8)}, path)
    gc.collect()
    torch.cuda.empty_cache()
    there = torch.cuda.get_device_properties(0).total_memory
    allowed = torch.cuda.memory_reserved(0) + 48 * _MIB
    torch.cuda.set_per_process_memory_fraction(allowed / there, 0)
    try:
        with pytest.raises((hippogriff.OutOfDeviceMemory, torch.OutOfMemoryError)):
            load_file(path, device=_GPU)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
    assert load_file(path, device=_GPU)["a"].numel() == 64 * _MIB
