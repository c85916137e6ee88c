"""torch and CuPy on a GPU: skipped, visibly, where there is none."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1 << 20


def random_bytes(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


@pytest.fixture
def numbers_file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(5 * _MIB, dtype=np.float32).tobytes())
    return path


def test_torch_takes_an_array_without_a_copy(torch: Any, numbers_file: Path) -> None:
    array = hippogriff.read(numbers_file, device="cuda:0", dtype=torch.float32, shape=(-1, 1024))
    taken = torch.from_dlpack(array)
    assert taken.data_ptr() == array.address
    assert taken.shape == array.shape
    array.free()
    assert float(taken[3, 5]) == 3 * 1024 + 5
    other = torch.as_tensor(hippogriff.read(numbers_file, device="cuda:0", dtype="float32"))
    assert float(other[-1]) == 5 * _MIB - 1


def test_torch_tensors_are_filled_and_written(torch: Any, numbers_file: Path) -> None:
    tensor = torch.zeros(5 * _MIB, device="cuda:0")
    with hippogriff.open(numbers_file) as file:
        assert file.read_into(tensor) == 20 * _MIB
    assert torch.equal(tensor.cpu(), torch.arange(5 * _MIB, dtype=torch.float32))
    hippogriff.write(numbers_file.with_name("b"), tensor)
    assert numbers_file.with_name("b").read_bytes() == numbers_file.read_bytes()


def test_a_write_waits_for_work_on_torchs_current_stream(torch: Any, tmp_path: Path) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.zeros(16 * _MIB, dtype=torch.int32, device="cuda:0")
        torch.cuda._sleep(500_000_000)
        tensor += 7
        transfer = hippogriff.write_async(tmp_path / "a", tensor)
    transfer.wait(60)
    assert set(np.fromfile(tmp_path / "a", np.int32)) == {7}


def test_work_on_the_stream_waits_for_a_read_that_goes_before_it(
    torch: Any, numbers_file: Path
) -> None:
    stream = torch.cuda.Stream()
    tensor = torch.zeros(5 * _MIB, device="cuda:0")
    _ = tensor * 2  # CUDA loads a kernel at its first use, which must not be behind the wait
    torch.cuda.synchronize()
    with hippogriff.open(numbers_file) as file, torch.cuda.stream(stream):
        transfer = file.read_into_async(tensor, before_stream=True)
        doubled = tensor * 2
    stream.synchronize()
    transfer.wait(60)
    assert float(doubled[-1]) == 2 * (5 * _MIB - 1)


def test_a_strided_torch_tensor_is_refused(torch: Any, numbers_file: Path) -> None:
    tensor = torch.zeros((4, 4), device="cuda:0").T
    with hippogriff.open(numbers_file) as file:
        file.read_into(tensor.contiguous())
        with pytest.raises(hippogriff.InvalidArgument, match="contiguous"):
            file.read_into(tensor[:, 1:])


def test_torch_tensors_on_the_cpu_go_to_the_host_device(numbers_file: Path) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(100)
    with hippogriff.open(numbers_file) as file:
        file.read_into(tensor)
    assert float(tensor[99]) == 99


def test_cupy_arrays_are_filled_written_and_taken(cupy: Any, numbers_file: Path) -> None:
    target = cupy.zeros((5, _MIB), dtype=cupy.float32)
    with hippogriff.open(numbers_file) as file, cupy.cuda.Stream() as stream:
        file.read_into(target)
        stream.synchronize()
    assert float(target[4, 1]) == 4 * _MIB + 1
    hippogriff.write(numbers_file.with_name("b"), target)
    assert numbers_file.with_name("b").read_bytes() == numbers_file.read_bytes()
    taken = cupy.asarray(hippogriff.read(numbers_file, device="cuda:0", dtype="float32"))
    assert float(taken[-1]) == 5 * _MIB - 1
    with hippogriff.open(numbers_file) as file, pytest.raises(hippogriff.InvalidArgument):
        file.read_into(target[:, ::2])


@pytest.mark.parametrize("size", [1, 4097, 64 * _MIB + 5])
def test_arrays_go_to_a_gpu_and_back(cupy: Any, tmp_path: Path, size: int) -> None:
    assert cupy is not None
    data = random_bytes(size)
    (tmp_path / "a").write_bytes(data)
    array = hippogriff.read(tmp_path / "a", device="cuda:0")
    assert array.__dlpack_device__() == (2, 0)
    assert array.to_numpy().tobytes() == data
    hippogriff.write(tmp_path / "b", array)
    assert (tmp_path / "b").read_bytes() == data


class _Cuda:
    """Claims to be memory of a GPU, as `__cuda_array_interface__` tells it."""

    def __init__(self, **changes: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4, 4),
            "typestr": "<f4",
            "data": (4096, False),
            "strides": None,
            "version": 3,
            **changes,
        }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strides": (4, 16)}, "contiguous"),
        ({"data": (4096, True)}, "read-only"),
        ({"mask": object()}, "mask"),
    ],
)
def test_gpu_memory_that_cannot_be_filled_is_refused(changes: Any, reason: str) -> None:
    from hippogriff._regions import describe

    with pytest.raises(hippogriff.InvalidArgument, match=reason):
        describe(_Cuda(**changes), writable=True)


@pytest.mark.parametrize(("stream", "expected"), [(None, None), (1, 0), (2, 2), (123456, 123456)])
def test_the_stream_an_array_names_is_waited_for(stream: Any, expected: Any) -> None:
    from hippogriff._regions import describe

    region = describe(_Cuda(stream=stream, strides=(16, 4)), writable=True)
    assert (region.address, region.size_bytes, region.device) == (4096, 64, None)
    assert region.stream == expected


def test_streams_of_all_kinds_are_understood() -> None:
    from hippogriff._regions import stream_pointer

    class Torch:
        cuda_stream = 11

    class Cupy:
        ptr = 12

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 13

    assert [stream_pointer(each) for each in (10, Torch(), Cupy(), Protocol())] == [10, 11, 12, 13]
    with pytest.raises(TypeError):
        stream_pointer("stream")


@pytest.mark.parametrize("framework", ["pt", "cupy"])
def test_what_is_loaded_on_a_gpu_is_verified_there(
    framework: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from hippogriff.safetensors import load_file, load_into, save_file

    module = request.getfixturevalue({"pt": "torch"}.get(framework, framework))
    path = tmp_path / "model.safetensors"
    sizes = (0, 1, 239, 241, 3 * _MIB + 5)
    tensors = {f"t{size}": np.frombuffer(random_bytes(size), np.uint8) for size in sizes}
    save_file(tensors, path, checksum=True)
    loaded = load_file(path, device="cuda:0", framework=framework, verify=True)
    other = tmp_path / "other.safetensors"
    save_file(loaded, other, checksum=True)
    sidecars = [file.with_name(file.name + ".xxh3").read_bytes() for file in (path, other)]
    assert sidecars[0] == sidecars[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(hippogriff.ChecksumMismatch, match="tensor 't"):
        load_file(path, device="cuda:0", framework=framework, verify=True)
    with pytest.raises(hippogriff.ChecksumMismatch, match="tensor 't"):
        load_into(loaded, path, verify=True)
    assert module is not None
