"""Checksums of files: made, compared, and what is told when something differs."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import xxhash
from damage import flip
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hippogriff import ChecksumMismatch, InvalidArgument, _sidecar, _xxh3
from hippogriff._library import lib
from hippogriff._regions import describe
from hippogriff._sidecar import format_sidecar, parse_sidecar
from hippogriff.errors import check
from hippogriff.integrity import SidecarError, verify_checksums, write_checksums
from hippogriff.safetensors import (
    SafetensorError,
    _load,
    load_file,
    load_into,
    safe_open,
    save_file,
)

_BLOCK = _sidecar.BLOCK_BYTES


def data_offset(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def make_model(path: Path) -> dict[str, Any]:
    """Write tensors of no bytes, few, exactly a block, and several."""
    values = np.random.default_rng(1)
    sizes = {"empty": 0, "few": 3, "block": _BLOCK, "large": 3 * _BLOCK + 5, "more": 77}
    tensors = {name: values.integers(0, 256, size, np.uint8) for name, size in sizes.items()}
    tensors["scalar"] = np.array(2.5)
    save_file(tensors, path, {"who": "hippogriff"})
    return tensors


@pytest.fixture
def model(folder: Path) -> Path:
    path = folder / "model.safetensors"
    make_model(path)
    write_checksums(path)
    return path


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), max_size=20),
    st.integers(1, 6000),
)
@settings(deadline=None, max_examples=60)
def test_checksums_of_memory_are_those_of_xxhash(
    parts: list[tuple[int, int]], block_bytes: int
) -> None:
    data = random.Random(1).randbytes(10_000)
    region = describe(data, writable=False)
    found = _xxh3.checksum_parts(
        [(region.address + start, size) for start, size in parts], region, block_bytes
    )
    assert list(found) == [
        xxhash.xxh3_64_intdigest(data[at : min(at + block_bytes, start + size)])
        for start, size in parts
        for at in range(start, start + size, block_bytes)
    ]
    assert _xxh3.checksum_bytes(data) == xxhash.xxh3_64_intdigest(data)
    assert _xxh3.checksum_bytes(b"") == xxhash.xxh3_64_intdigest(b"")


def test_calls_are_cut_between_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random.Random(2).randbytes(50_000)
    region = describe(data, writable=False)
    parts = [(region.address, 20_000), (region.address + 20_000, 1), (region.address + 20_001, 999)]
    whole = _xxh3.checksum_parts(parts, region, 700)
    monkeypatch.setattr(_xxh3, "_CALL_BYTES", 2_500)
    assert _xxh3.checksum_parts(parts, region, 700) == whole


def test_wrong_calls_are_refused() -> None:
    region = describe(bytes(10), writable=False)
    with pytest.raises(InvalidArgument, match="0 bytes"):
        check(lib.hippogriff_checksum(None, 0, 0, None, None, 0))
    with pytest.raises(InvalidArgument, match="not memory of device"):
        _xxh3.checksum_parts([(region.address, 10)], region._replace(host_memory=False), 5)


def test_sidecar_holds_what_xxhash_computes(model: Path) -> None:
    data = model.read_bytes()
    start = data_offset(model)
    with safetensors.safe_open(model, framework="np") as file:
        tensors = [file.get_tensor(name).tobytes() for name in file.offset_keys()]
    sidecar = parse_sidecar(model.with_name(model.name + ".xxh3").read_bytes())
    assert sidecar.file_bytes == len(data)
    assert (sidecar.head_bytes, sidecar.block_bytes) == (start, _BLOCK)
    assert sidecar.head_checksum == xxhash.xxh3_64_intdigest(data[:start])
    assert list(sidecar.checksums) == [
        xxhash.xxh3_64_intdigest(tensor[at : at + _BLOCK])
        for tensor in tensors
        for at in range(0, len(tensor), _BLOCK)
    ]


def test_verified_loading_gives_the_same(model: Path) -> None:
    expected = load_file(model, framework="np")
    found = load_file(model, framework="np", verify=True)
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
    verify_checksums(model)


@pytest.mark.parametrize("tensor", ["few", "block", "large", "more", "scalar"])
def test_any_changed_byte_is_told_with_tensor_and_range(model: Path, tensor: str) -> None:
    with safe_open(model, framework="np") as file:
        info = file._header.tensors[tensor]
    for place in {0, info.size_bytes // 2, info.size_bytes - 1}:
        flip(model, info.offset + place)
        block = place // _BLOCK * _BLOCK
        size = min(_BLOCK, info.size_bytes - block)
        for look in (
            lambda: load_file(model, framework="np", verify=True),
            lambda: load_into(load_file(model, framework="np"), model, verify=True),
            lambda: safe_open(model, framework="np", verify=True).get_tensor(tensor),
            lambda: verify_checksums(model),
        ):
            with pytest.raises(ChecksumMismatch) as raised:
                look()
            (mismatch,) = raised.value.mismatches
            assert mismatch.tensor == tensor
            assert (mismatch.offset, mismatch.size) == (info.offset + block, size)
            assert mismatch.tensor_offset == block
            assert mismatch.expected != mismatch.found
            assert raised.value.missing == ((info.offset + block, size),)
            assert raised.value.object == str(model)
            words = str(raised.value)
            assert f"tensor '{tensor}', bytes {block} to {block + size} " in words
            assert f"{mismatch.expected:#018x}" in words
        flip(model, info.offset + place)
    load_file(model, framework="np", verify=True)


def test_all_that_differs_is_listed_and_adjacent_blocks_are_one_range(model: Path) -> None:
    with safe_open(model, framework="np") as file:
        info = file._header.tensors["large"]
    for block in (0, 1, 3):
        flip(model, info.offset + block * _BLOCK)
    flip(model, info.offset - 1)
    with pytest.raises(ChecksumMismatch, match="and 1 blocks more") as raised:
        verify_checksums(model)
    assert len(raised.value.mismatches) == 4
    assert len(raised.value.missing) == 2
    with pytest.raises(ChecksumMismatch) as loading:
        load_file(model, framework="np", verify=True)
    assert loading.value.mismatches == raised.value.mismatches
    assert loading.value.missing == raised.value.missing
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (type(copy), str(copy)) == (ChecksumMismatch, str(raised.value))
    assert copy.mismatches == raised.value.mismatches


def test_tensors_beside_a_damaged_one_are_verified_and_loaded(model: Path) -> None:
    with safe_open(model, framework="np", verify=True) as file:
        flip(model, file._header.tensors["large"].offset)
        assert file.get_tensor("few").size == 3
        assert file.get_slice("large")[_BLOCK:].size == 2 * _BLOCK + 5
        with pytest.raises(ChecksumMismatch, match="tensor 'large'"):
            file.get_slice("large")[:2]
        with pytest.raises(ChecksumMismatch, match="tensor 'large'"):
            file.get_tensors(["few", "large"])


def test_changed_head_is_told(model: Path) -> None:
    text = model.read_bytes()
    for changed in (text.replace(b'"few"', b'"fow"', 1), text.replace(b'{"', b'["', 1)):
        model.write_bytes(changed)
        for look in (
            lambda: load_file(model, framework="np", verify=True),
            lambda: verify_checksums(model),
        ):
            with pytest.raises(ChecksumMismatch, match="bytes 0 to") as raised:
                look()
            assert raised.value.mismatches[0].size == data_offset(model)
    model.write_bytes(b"\xff" * 8 + text[8:])
    with pytest.raises(ChecksumMismatch, match="bytes 0 to"):
        load_file(model, framework="np", verify=True)
    with pytest.raises(SafetensorError):
        load_file(model, framework="np")


@pytest.mark.parametrize("change", [-1, 1, -5000])
def test_truncated_and_extended_files_are_told(folder: Path, change: int) -> None:
    path = folder / "data.bin"
    data = random.Random(3).randbytes(1_000_000)
    path.write_bytes(data)
    write_checksums(path)
    path.write_bytes(data[:change] if change < 0 else data + b"x")
    words = f"has {1_000_000 + change} bytes, and its checksums in .* are of 1000000"
    with pytest.raises(ChecksumMismatch, match=words) as raised:
        verify_checksums(path)
    assert raised.value.mismatches == ()


def test_replaced_file_has_stale_checksums(model: Path) -> None:
    save_file({"other": np.zeros(5)}, model)
    with pytest.raises(ChecksumMismatch, match="not the file they were made of"):
        load_file(model, framework="np", verify=True)


@pytest.mark.parametrize("size", [0, 1, _BLOCK, 5 * _BLOCK, (40 << 20) + 77])
def test_files_without_tensors(folder: Path, size: int) -> None:
    path = folder / "data.bin"
    path.write_bytes(random.Random(size).randbytes(size))
    told: list[tuple[int, int]] = []
    assert write_checksums(path, progress=lambda *done: told.append(done)) == f"{path}.xxh3"
    assert told[-1:] == ([(size, size)] if size else [])
    verify_checksums(path)
    for place in {0, size // 2, size - 1} if size else set():
        flip(path, place)
        with pytest.raises(ChecksumMismatch) as raised:
            verify_checksums(path)
        (mismatch,) = raised.value.mismatches
        assert mismatch.offset == mismatch.tensor_offset == place // _BLOCK * _BLOCK
        assert mismatch.tensor == ""
        flip(path, place)


def test_checksums_may_lie_elsewhere(model: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (model.parent / "model.safetensors.xxh3").unlink()
    with pytest.raises(FileNotFoundError, match="hippogriff checksum"):
        load_file(model, framework="np", verify=True)
    named = elsewhere / "sums"
    assert write_checksums(model, elsewhere) == str(elsewhere / "model.safetensors.xxh3")
    assert write_checksums(model, named) == str(named)
    for where in (elsewhere, named):
        load_file(model, framework="np", verify=where)
        verify_checksums(model, where)


def test_shards_have_checksums_each(folder: Path) -> None:
    for number in range(3):
        save_file({f"t{number}": np.arange(5)}, folder / f"{number}.safetensors", checksum=True)
    paths = sorted(folder.glob("*.safetensors"))
    assert len(load_file(paths, framework="np", verify=True)) == 3
    assert len(load_file(paths, framework="np", verify=folder)) == 3
    with pytest.raises(InvalidArgument, match="name a folder"):
        load_file(paths, framework="np", verify=folder / "0.safetensors.xxh3")
    (folder / "2.safetensors.xxh3").unlink()
    with pytest.raises(FileNotFoundError, match=r"2\.safetensors\.xxh3"):
        load_file(paths, framework="np", verify=True)


def test_saving_with_checksums_writes_those_of_the_file(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = make_model(path)
    write_checksums(path)
    sidecar = folder / "model.safetensors.xxh3"
    expected = sidecar.read_bytes()
    path.unlink()
    sidecar.unlink()
    save_file(tensors, path, {"who": "hippogriff"}, checksum=True)
    assert sidecar.read_bytes() == expected
    assert sorted(folder.iterdir()) == [path, sidecar]
    load_file(path, framework="np", verify=True)


def test_interrupted_saving_leaves_no_checksums_beside_another_file(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hippogriff._replacement import Replacement

    sidecar, before = model.with_name(model.name + ".xxh3"), model.read_bytes()
    commits: list[str] = []
    commit = Replacement.commit

    def fail(replacement: Replacement, nth: int) -> None:
        commits.append(replacement.name)
        if len(commits) == nth:
            raise KeyboardInterrupt
        commit(replacement)

    for nth in (1, 2):
        commits.clear()
        write_checksums(model)
        monkeypatch.setattr(Replacement, "commit", lambda each, nth=nth: fail(each, nth))
        with pytest.raises(KeyboardInterrupt):
            save_file({"other": np.arange(9)}, model, checksum=True)
        monkeypatch.setattr(Replacement, "commit", commit)
        assert list(model.parent.iterdir()) == [model]
        assert (model.read_bytes() == before) == (nth == 1)
        assert not sidecar.exists()


def test_failing_to_save_leaves_file_and_checksums_as_they_were(model: Path) -> None:
    before = {path: path.read_bytes() for path in model.parent.iterdir()}
    with pytest.raises(InvalidArgument):
        save_file({"a": np.arange(6).reshape(2, 3).T}, model, checksum=True)
    assert {path: path.read_bytes() for path in model.parent.iterdir()} == before


def test_interrupted_reading_leaves_nothing(model: Path) -> None:
    sidecar = model.with_name(model.name + ".xxh3")
    before = sidecar.read_bytes()

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    for call in (write_checksums, verify_checksums):
        with pytest.raises(KeyboardInterrupt):
            call(model, progress=interrupt)
    assert sorted(model.parent.iterdir()) == [model, sidecar]
    assert sidecar.read_bytes() == before


def test_interrupted_renaming_leaves_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hippogriff._replacement import Replacement

    def interrupt(_: Replacement) -> None:
        raise KeyboardInterrupt

    before = {path: path.read_bytes() for path in model.parent.iterdir()}
    monkeypatch.setattr(Replacement, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_checksums(model)
    assert {path: path.read_bytes() for path in model.parent.iterdir()} == before


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(InvalidArgument, match="no regular file"):
            write_checksums(path, tmp_path / "sums")


def test_many_threads_verify_one_file(model: Path) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                load_file(model, framework="np", verify=True)
                if number % 2:
                    verify_checksums(model)
                else:
                    write_checksums(model)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_converted_and_shared_arrays_are_verified(model: Path) -> None:
    flip(model, data_offset(model))  # of the scalar, which comes first
    other = {"scalar": np.zeros((), np.float32)}
    with pytest.raises(ChecksumMismatch, match="tensor 'scalar'"):
        load_into(other, model, strict=False, convert=True, verify=True)
    load_into(other, model, strict=False, convert=True)


def test_large_models_are_verified_batch_by_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hippogriff.safetensors import _load

    monkeypatch.setattr(_load, "_HOST_LANDING_BYTES", 100_000)
    monkeypatch.setattr(_load, "_FIRST_BYTES", 10_000)
    path = folder / "model.safetensors"
    tensors = {f"t{n}": np.random.default_rng(n).random(1 + 997 * n % 9000) for n in range(300)}
    save_file(tensors, path, checksum=True)
    started: list[Any] = []
    start = vars(_load)["start_segments"]

    def told(*arguments: Any, **more: Any) -> Any:
        started.append(arguments)
        return start(*arguments, **more)

    monkeypatch.setattr(_load, "start_segments", told)
    loaded = load_file(path, framework="np", verify=True)
    assert len(started) > 50
    assert all(np.array_equal(loaded[name], tensors[name]) for name in tensors)
    for place in random.Random(1).sample(range(data_offset(path), path.stat().st_size), 20):
        flip(path, place)
        with pytest.raises(ChecksumMismatch) as raised:
            load_file(path, framework="np", verify=True)
        (mismatch,) = raised.value.mismatches
        assert mismatch.offset <= place < mismatch.offset + mismatch.size
        flip(path, place)


def test_sidecars_that_are_no_such_files_are_refused(model: Path) -> None:
    sidecar = model.with_name(model.name + ".xxh3")
    good = sidecar.read_bytes()

    def refused(words: str) -> None:
        for look in (
            lambda: load_file(model, framework="np", verify=True),
            lambda: verify_checksums(model),
        ):
            with pytest.raises(SidecarError, match=words) as raised:
                look()
            assert str(sidecar) in str(raised.value)

    sidecar.write_bytes(b"")
    refused("no file of checksums")
    sidecar.write_bytes(good[:-1])
    refused("bytes, not those of")
    with sidecar.open("r+b") as file:
        file.truncate(1 << 40)
    refused("bytes, not those of")
    sidecar.unlink()
    os.mkfifo(sidecar)
    refused("no regular file")
    sidecar.unlink()
    sidecar.mkdir()
    with pytest.raises((SidecarError, IsADirectoryError)):
        verify_checksums(model)


def test_sidecar_with_another_number_of_checksums_is_refused(model: Path) -> None:
    sidecar = model.with_name(model.name + ".xxh3")
    parsed = parse_sidecar(sidecar.read_bytes())
    sidecar.write_bytes(format_sidecar(parsed._replace(checksums=parsed.checksums[:-1])))
    for look in (
        lambda: load_file(model, framework="np", verify=True),
        lambda: verify_checksums(model),
    ):
        with pytest.raises(SidecarError, match="make them anew"):
            look()


@given(data=st.data())
@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_wrong_checksum_is_found(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "m.safetensors"
    if not path.exists():
        make_model(path)
        write_checksums(path)
    sidecar = path.with_name(path.name + ".xxh3")
    good = sidecar.read_bytes()
    parsed = parse_sidecar(good)
    wrong = data.draw(st.sets(st.integers(0, len(parsed.checksums) - 1), min_size=1))
    checksums = array("Q", parsed.checksums)
    for number in wrong:
        checksums[number] ^= 1
    sidecar.write_bytes(format_sidecar(parsed._replace(checksums=checksums)))
    try:
        with pytest.raises(ChecksumMismatch) as raised:
            load_file(path, framework="np", verify=True)
        assert len(raised.value.mismatches) == len(wrong)
        with pytest.raises(ChecksumMismatch) as verified:
            verify_checksums(path)
        assert verified.value.mismatches == raised.value.mismatches
    finally:
        sidecar.write_bytes(good)


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hippogriff", "checksum", *map(str, arguments)],
        env={**os.environ, "HIPPOGRIFF_LIBRARY": lib._name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_command_writes_and_checks(model: Path) -> None:
    other = model.with_name("data.bin")
    other.write_bytes(bytes(600_000))
    sidecar = model.with_name(model.name + ".xxh3")
    expected = sidecar.read_bytes()
    sidecar.unlink()
    done = _run(model, other)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == f"{other}: 585.94 KiB, checksums are in {other}.xxh3"
    assert sidecar.read_bytes() == expected
    done = _run("--check", model, other)
    assert (done.returncode, done.stdout.count("verified")) == (0, 2)
    flip(other, 300_000)
    done = _run("--check", other, model)
    assert (done.returncode, done.stderr) == (1, "")
    assert "DIFFERS in 1 blocks\n  bytes 262144 to 524288 of the file: expected 0x" in done.stdout
    (told,) = [line for line in done.stdout.splitlines() if line.startswith(f"{model}: ")]
    assert told.endswith(", verified")
    done = _run("--check", "--json", other, model, model.with_name("none"))
    assert done.returncode == 1
    differing, same, none = json.loads(done.stdout)
    assert [each["ok"] for each in (differing, same, none)] == [False, True, False]
    (mismatch,) = differing["mismatches"]
    assert (mismatch["offset"], mismatch["size"]) == (262144, 262144)
    block = other.read_bytes()[262144:524288]
    assert mismatch["found"] == xxhash.xxh3_64_hexdigest(block)
    assert "No such file" in none["error"]


def test_command_knows_indexes_and_other_folders(folder: Path, tmp_path: Path) -> None:
    names = [f"{number}.safetensors" for number in range(2)]
    for name in names:
        save_file({name: np.arange(5)}, folder / name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: name for name in names}}))
    elsewhere = tmp_path / "new" / "sums"
    assert _run(index, "--dir", elsewhere).returncode == 0
    assert sorted(path.name for path in elsewhere.iterdir()) == [f"{name}.xxh3" for name in names]
    assert _run("--check", index, "--dir", elsewhere).returncode == 0
    assert len(load_file(index, framework="np", verify=elsewhere)) == 2
    assert _run("--check", index).returncode == 1
    (tmp_path / "file").touch()
    assert "make the folder" in _run(index, "--dir", tmp_path / "file").stderr


_ON_THE_FAKE_GPU = """
import random, sys, hippogriff, xxhash
from hippogriff import _xxh3
from hippogriff._regions import describe
data = random.Random(1).randbytes(3_000_001)
array = hippogriff.empty(len(data), dtype="uint8", device="cuda:0")
with hippogriff.open(sys.argv[1], "w") as file:
    file.write_from(data)
    file.read_into(array)
region = describe(array, writable=False)
assert (region.device, region.host_memory) == ("cuda:0", False)
found = _xxh3.checksum_parts([(region.address + 1, 3_000_000)], region, 262144)
assert list(found) == [
    xxhash.xxh3_64_intdigest(data[at : at + 262144]) for at in range(1, len(data), 262144)
]
"""


def test_checksums_of_gpu_memory_over_the_fake_driver(tmp_path: Path) -> None:
    fake = Path(lib._name).resolve().with_name("libhippogriff_fake_cuda.so")
    if not fake.is_file():
        pytest.skip(f"{fake} was not built")
    subprocess.run(
        [sys.executable, "-c", _ON_THE_FAKE_GPU, str(tmp_path / "data")],
        env={
            **os.environ,
            "HIPPOGRIFF_LIBRARY": lib._name,
            "HIPPOGRIFF_CUDA_DRIVER": str(fake),
        },
        check=True,
        timeout=60,
    )


def test_too_few_checksums_are_told_also_where_a_batch_lands_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_load, "_FIRST_BYTES", 1000)
    monkeypatch.setattr(_load, "_HOST_LANDING_BYTES", 1000)
    path = tmp_path / "model.safetensors"
    tensors = {name: np.zeros(size, np.uint8) for name, size in (("a", 1000), ("b", 8000))}
    save_file({**tensors, "c": np.zeros(5, np.uint8)}, path, checksum=True)
    sidecar = Path(f"{path}.xxh3")
    fewer = parse_sidecar(sidecar.read_bytes())._replace(checksums=array("Q"))
    sidecar.write_bytes(format_sidecar(fewer))
    with pytest.raises(SidecarError, match="more blocks than its checksums"):
        load_file(path, framework="np", verify=True, host_memory="4MiB")
