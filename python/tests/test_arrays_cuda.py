"""Arrays of torch and CuPy from files, on a GPU: skipped, visibly, where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff import ChecksumMismatch
from hippogriff.arrays import load_npy, load_npz, open_npy, save_npy
from hippogriff.integrity import write_checksums

if TYPE_CHECKING:
    from pathlib import Path

_INDICES: list[Any] = [
    np.s_[3:7],
    np.s_[-1],
    np.s_[:, 5],
    np.s_[::7, 1:, ::2],
    np.s_[2, 3, 4],
    np.s_[5:5],
    np.s_[..., 0],
]


def make_array(dtype: str = "float32") -> Any:
    """Make an array of 40 MiB or so, of which blocks hold a part."""
    return np.random.default_rng(7).integers(0, 100, (3000, 70, 50)).astype(dtype)


@pytest.fixture(params=["torch", "torch on the CPU", "cupy"])
def where(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A framework and a device."""
    if request.param == "torch on the CPU":
        pytest.importorskip("torch")
        return "pt", "cpu"
    request.getfixturevalue(request.param)
    return ("pt", "cuda:0") if request.param == "torch" else ("cupy", "cuda:0")


def to_numpy(array: Any) -> Any:
    """Copy to the host."""
    if hasattr(array, "cpu"):
        return array.cpu().numpy()
    return array.get() if hasattr(array, "get") else np.asarray(array)


def check(found: Any, expected: Any, where: tuple[str, str]) -> None:
    """Compare framework, device, shape, element type and values."""
    assert type(found).__module__.partition(".")[0] == {"pt": "torch", "cupy": "cupy"}[where[0]]
    if where[0] == "pt":
        assert str(found.device) == where[1]
    array = to_numpy(found)
    assert array.shape == np.shape(expected)
    assert array.dtype == np.asarray(expected).dtype
    assert (array == expected).all()


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64"]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_loaded(
    tmp_path: Path, where: tuple[str, str], dtype: str, order: str
) -> None:
    array = np.array(make_array(dtype)[:300], order="F" if order == "F" else "C")
    np.save(tmp_path / "x.npy", array)
    check(load_npy(tmp_path / "x.npy", where[1], framework=where[0]), array, where)


@pytest.mark.parametrize("array", [np.array(3.5), np.zeros((0, 4)), np.zeros((2, 0))])
def test_arrays_of_one_element_and_of_none_are_loaded(
    tmp_path: Path, where: tuple[str, str], array: Any
) -> None:
    np.save(tmp_path / "x.npy", array)
    check(load_npy(tmp_path / "x.npy", where[1], framework=where[0]), array, where)


def test_arrays_are_compared_with_their_checksums(tmp_path: Path, where: tuple[str, str]) -> None:
    path = tmp_path / "x.npy"
    np.save(path, make_array())
    write_checksums(path)
    check(load_npy(path, where[1], framework=where[0], verify=True), make_array(), where)
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(ChecksumMismatch, match="of the file: expected"):
        load_npy(path, where[1], framework=where[0], verify=True)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files_are_loaded(tmp_path: Path, where: tuple[str, str], save: Any) -> None:
    arrays = {"a": make_array(), "b": np.arange(5), "e": np.zeros(0), "f": make_array().T}
    save(tmp_path / "x.npz", **arrays)
    found = load_npz(tmp_path / "x.npz", where[1], framework=where[0], verify=True)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        check(found[name], array, where)


@pytest.mark.parametrize("order", ["C", "F"])
def test_parts_are_loaded_into_new_arrays_and_old_ones(
    tmp_path: Path, where: tuple[str, str], order: str
) -> None:
    array = np.array(make_array(), order="F" if order == "F" else "C")
    np.save(tmp_path / "x.npy", array)
    with open_npy(tmp_path / "x.npy", device=where[1], framework=where[0]) as file:
        for index in _INDICES:
            found = file[index]
            check(found, array[index], where)
            found *= 0
            file.read_into(found, index)
            check(found, array[index], where)


def test_parts_are_written(tmp_path: Path, where: tuple[str, str]) -> None:
    array = make_array()
    np.save(tmp_path / "x.npy", array)
    with open_npy(tmp_path / "x.npy", "r+", device=where[1], framework=where[0]) as file:
        for index in (np.s_[3:7], np.s_[9:20:3, 5:9], np.s_[1, 2, 3]):
            file[index] = file[index] + 1
            array[index] += 1
    assert (np.load(tmp_path / "x.npy") == array).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_saved(tmp_path: Path, where: tuple[str, str], order: str) -> None:
    array = np.array(make_array("int16"), order="F" if order == "F" else "C")
    np.save(tmp_path / "x.npy", array)
    save_npy(tmp_path / "y.npy", load_npy(tmp_path / "x.npy", where[1], framework=where[0]))
    assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "x.npy").read_bytes()


def test_what_only_numpy_has_is_told(tmp_path: Path, where: tuple[str, str]) -> None:
    for array in (np.arange(3, dtype=">f4"), np.array(["a"]), np.zeros(2, [("a", "i4")])):
        np.savez(tmp_path / "x.npz", some=array)
        with pytest.raises(hippogriff.Unsupported, match=r"x\.npz: 'some'"):
            load_npz(tmp_path / "x.npz", where[1], framework=where[0])


def test_small_floats_are_loaded_by_torch(torch: Any, tmp_path: Path) -> None:
    values = torch.arange(1000).to(torch.bfloat16)
    (tmp_path / "x").write_bytes(values.view(torch.int16).numpy().tobytes())
    with hippogriff.open(
        tmp_path / "x", dtype=torch.bfloat16, shape=(10, 100), device="cuda", framework="pt"
    ) as file:
        assert torch.equal(file[3:5, ::9].cpu(), values.reshape(10, 100)[3:5, ::9])


def test_a_part_waits_for_work_on_the_memory_it_goes_to(torch: Any, tmp_path: Path) -> None:
    array = make_array()
    np.save(tmp_path / "x.npy", array)
    stream = torch.cuda.Stream()
    with open_npy(tmp_path / "x.npy", device="cuda:0", framework="pt") as file:
        with torch.cuda.stream(stream):
            target = torch.zeros((3000, 50), device="cuda:0")
            torch.cuda._sleep(200_000_000)
            target += 7
            file.read_into(target, np.s_[:, 5])
            found = target.clone()
        stream.synchronize()
    assert (found.cpu().numpy() == array[:, 5]).all()
