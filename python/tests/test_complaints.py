"""What users of other loaders complain of, and that it does not happen here.

The numbers are those of docs/complaints.md. What needs a GPU is tested in test_cuda.py.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

import hippogriff
from hippogriff import _library
from hippogriff.safetensors import load_file, load_into, safe_open, save_file

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1 << 20
FAKE_CUDA = Path(_library.lib._name).parent / "libhippogriff_fake_cuda.so"

Tensors = dict[str, np.ndarray[Any, Any]]


def _tensors(seed: int, count: int, each_bytes: int) -> Tensors:
    source = random.Random(seed)
    return {
        f"layer{number:02}": np.frombuffer(source.randbytes(each_bytes), np.uint8)
        for number in range(count)
    }


def _save(path: Path, tensors: Tensors) -> Path:
    safetensors.numpy.save_file(tensors, path)
    return path


def _leave_cached(path: Path, begin: int = 0, size: int = 0) -> None:
    """Let the page cache have all of a file but an extent (size 0: to its end); skip if it won't.

    A file system in memory keeps everything, some others let go of nothing.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while file.read(MIB):
            pass
        os.posix_fadvise(file.fileno(), begin, size, os.POSIX_FADV_DONTNEED)
    outlook = hippogriff.explain(path, device="host", offset=begin, size=size or None)
    if outlook["cached_fraction"] > 0.01:
        pytest.skip("this file system does not let go of cached pages")


def _report(path: Path) -> dict[str, Any]:
    """Read a file into memory of hippogriff's, and return what it tells of that."""
    array = hippogriff.empty(path.stat().st_size, dtype="uint8", device="host")
    with hippogriff.open(path) as file:
        transfer = file.read_into_async(array)
        transfer.wait()
    assert array.to_numpy().tobytes() == path.read_bytes()
    return transfer.report()


def _in_process(program: str, *arguments: object, **more: str) -> Any:
    """Run a program that prints JSON in a process of its own, without our settings."""
    environ = {name: text for name, text in os.environ.items() if "HIPPOGRIFF" not in name}
    environ["HIPPOGRIFF_NODE"] = os.environ["HIPPOGRIFF_NODE"]  # not the user's books
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        env={**environ, **more, "HIPPOGRIFF_LIBRARY": _library.lib._name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


# 1. Buffers that are used again corrupt weights.


def test_1_tensors_own_their_memory_whatever_is_loaded_after_them(tmp_path: Path) -> None:
    models = {
        _save(tmp_path / f"{seed}.safetensors", tensors): tensors
        for seed in range(6)
        for tensors in [_tensors(seed, 9, 300_001)]
    }
    loaded = {path: load_file(path, framework="np") for path in models}
    for path, tensors in models.items():
        with safe_open(path, framework="np") as file:
            one, part = file.get_tensor("layer03"), file.get_slice("layer04")[5:50_000]
        _same(loaded[path], tensors)
        assert one.tobytes() == tensors["layer03"].tobytes()
        assert part.tobytes() == tensors["layer04"][5:50_000].tobytes()
    arrays = [array for one in loaded.values() for array in one.values()]
    assert all(array.flags.owndata and array.flags.writeable for array in arrays)
    # Whoever changes one changes no other, and no file.
    arrays[0].fill(1)
    first, *others = models
    loaded[first].pop("layer00")
    for path in others:
        _same(loaded[path], models[path])
    _same(load_file(first, framework="np"), models[first])
    load_into(loaded[others[0]], others[1], strict=False)
    _same(loaded[others[1]], models[others[1]])
    # Files may go.
    for path in models:
        path.write_bytes(b"")
    _same(loaded[others[2]], models[others[2]])


def _same(loaded: Mapping[str, Any], tensors: Tensors) -> None:
    for name, array in loaded.items():
        assert array.tobytes() == tensors[name].tobytes(), name


# 2. Memory beside the tensors, and memory that is kept.


def test_2_memory_beside_the_tensors_is_bounded_and_given_back(tmp_path: Path) -> None:
    path = _save(tmp_path / "model.safetensors", _tensors(2, 16, 16 * MIB))
    program = """
        import gc, json, re, sys
        from hippogriff.safetensors import load_file

        def memory(what):
            text = open("/proc/self/status").read()
            return int(re.search(rf"^{what}:\\s+(\\d+) kB", text, re.MULTILINE)[1]) << 10

        def load():
            return load_file(sys.argv[1], framework="np")

        def grown(begin):
            return memory("RssAnon") - begin

        load_file(sys.argv[2], framework="np")  # imports, threads
        begin, peak = memory("RssAnon"), memory("VmHWM")
        loaded = load()
        told = {"tensors": sum(a.nbytes for a in loaded.values()), "loaded": grown(begin)}
        told["peak"] = memory("VmHWM") - peak
        del loaded
        gc.collect()
        told["closed"] = grown(begin)
        for _ in range(4):
            load()
        told["again"] = grown(begin)
        print(json.dumps(told))
    """
    small = _save(tmp_path / "small.safetensors", _tensors(3, 2, 1000))
    # malloc may keep what NumPy gives back, unless it is told the size from which it maps memory.
    settings = {"HIPPOGRIFF_CALIBRATION": "", "MALLOC_MMAP_THRESHOLD_": "131072"}
    told = _in_process(program, path, small, **settings)
    budget = 64 * MIB
    assert told["tensors"] == 256 * MIB
    assert told["loaded"] < told["tensors"] + budget
    assert told["peak"] < told["tensors"] + budget
    assert told["closed"] < budget
    assert told["again"] < budget


def test_2_the_pinbuffer_is_no_larger_than_it_may_be(tmp_path: Path) -> None:
    path = _save(tmp_path / "model.safetensors", _tensors(2, 8, 16 * MIB))
    program = """
        import json, sys, hippogriff

        array = hippogriff.read(sys.argv[1], device="host", route="pipelined")
        (device,) = hippogriff.stats()["devices"]
        print(json.dumps({"pinned": device["pinned_bytes"], "parked": device["parked_bytes"]}))
    """
    settings = {"HIPPOGRIFF_PINBUFFER": "64MiB", "HIPPOGRIFF_HOST_LINK": "10GB"}
    told = _in_process(program, path, **settings, HIPPOGRIFF_CALIBRATION="")
    assert 0 < told["pinned"] <= 65 * MIB  # and a channel of the short path
    assert told["parked"] == 0


def test_2_a_load_uses_no_more_host_memory_than_it_was_given(tmp_path: Path) -> None:
    path = _save(tmp_path / "model.safetensors", _tensors(2, 6, 16 * MIB))
    program = """
        import json, sys, hippogriff
        from hippogriff.safetensors import load_into

        names = [f"layer{number:02}" for number in range(6)]
        state = {name: hippogriff.empty(16 << 20, device="host") for name in names}
        load_into(state, sys.argv[1], host_memory="16MiB")
        (device,) = hippogriff.stats()["devices"]
        same = open(sys.argv[1], "rb").read().endswith(state["layer05"].to_numpy().tobytes())
        told = {"pinned": device["pinned_bytes"], "parked": device["parked_bytes"]}
        print(json.dumps({**told, "same": same}))
    """
    settings = {"HIPPOGRIFF_HOST_LINK": "10GB", "HIPPOGRIFF_CPUS": "12"}
    told = _in_process(program, path, **settings, HIPPOGRIFF_CALIBRATION="")
    assert told["pinned"] <= 16 * MIB
    assert (told["parked"], told["same"]) == (0, True)


# 3. Which way was taken, and why not another.


def test_3_the_route_is_told_and_others_say_why_not(folder: Path) -> None:
    path = folder / "a"
    path.write_bytes(random.Random(3).randbytes(8 * MIB))
    outlook = hippogriff.explain(path, device="host")
    for route in outlook["routes"]:
        assert route["seconds"] > 0 if route["possible"] else route["why_not"]
    report = _report(path)
    assert set(report["route"].split("+")) <= {route["route"] for route in outlook["routes"]}
    assert sum(lane["bytes"] for lane in report["lanes"].values()) == report["bytes"]
    assert sum(report["bytes_by_route"].values()) == report["bytes"]
    assert "+".join(report["bytes_by_route"]) == report["route"]


@pytest.mark.skipif(not FAKE_CUDA.exists(), reason="the fake driver was not built")
def test_3_without_gpudirect_storage_another_route_is_taken_and_the_reason_told(
    tmp_path: Path,
) -> None:
    program = """
        import json, sys, hippogriff

        path = sys.argv[1]
        told = {each["route"]: each for each in hippogriff.explain(path, device="cuda:0")["routes"]}
        with hippogriff.open(path) as file:
            array = hippogriff.empty(file.size, dtype="uint8", device="cuda:0")
            transfer = file.read_into_async(array)
            transfer.wait()
        same = array.to_numpy().tobytes() == open(path, "rb").read()
        try:
            hippogriff.read(path, device="cuda:0", route="direct")
        except hippogriff.Unsupported as error:
            refused = str(error)
        info = hippogriff.info(path)["gpudirect_storage"]
        print(json.dumps([told["direct"], transfer.report()["route"], same, refused, info]))
    """
    path = tmp_path / "a"
    path.write_bytes(random.Random(4).randbytes(8 * MIB))
    direct, route, same, refused, info = _in_process(
        program,
        path,
        HIPPOGRIFF_CUDA_DRIVER=str(FAKE_CUDA),
        HIPPOGRIFF_GDS_ROOT=str(tmp_path),
        HIPPOGRIFF_CALIBRATION="",
    )
    assert same
    assert "direct" not in route
    assert not direct["possible"]
    assert direct["why_not"].startswith("GPUDirect Storage is not set up")
    assert direct["why_not"] in refused
    assert info == {"real": False, "why_not": direct["why_not"]}


# 4. Direct I/O that is slower than reading.


@pytest.mark.parametrize("cached", [True, False])
def test_4_the_route_is_chosen_by_what_it_costs(tmp_path: Path, cached: bool) -> None:
    path = tmp_path / "a"
    path.write_bytes(random.Random(5).randbytes(16 * MIB))
    if not cached:
        _leave_cached(path)
    outlook = hippogriff.explain(path, device="host")
    possible = {route["route"]: route for route in outlook["routes"] if route["possible"]}
    least = min(route["seconds"] for route in possible.values())
    chosen = possible[outlook["chosen"]]
    assert chosen["seconds"] <= 1.1 * least
    assert all(
        chosen["cpu_seconds"] <= route["cpu_seconds"]
        for route in possible.values()
        if route["seconds"] == least
    )


# 5. Page faults of mappings on cold storage.


def test_5_cold_files_are_read_without_page_faults(tmp_path: Path) -> None:
    path = _save(tmp_path / "model.safetensors", _tensors(6, 8, 4 * MIB))
    small = _save(tmp_path / "small.safetensors", _tensors(7, 2, 1000))
    _leave_cached(path)
    program = """
        import json, re, resource, sys
        from hippogriff.safetensors import load_file

        def facts():
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
            told = open("/proc/self/io").read()
            read = [int(each) for each in re.findall(r"(?:rchar|read_bytes): (\\d+)", told)]
            return faults, sum(read)

        load_file(sys.argv[1], framework="np")  # imports, threads
        begin = facts()
        loaded = load_file(sys.argv[2], framework="np")
        faults, read = (now - before for now, before in zip(facts(), begin))
        mapped = sys.argv[2] in open("/proc/self/maps").read()
        print(json.dumps([sum(a.nbytes for a in loaded.values()), faults, read, mapped]))
    """
    told = _in_process(program, small, path, HIPPOGRIFF_CALIBRATION="")
    size_bytes, faults, read, mapped = told
    assert size_bytes == 32 * MIB
    assert read >= size_bytes
    assert not mapped
    assert faults < 16


def test_5_what_is_cold_goes_past_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(random.Random(8).randbytes(32 * MIB))
    _leave_cached(path)
    before = hippogriff.explain(path, device="host")
    if not before["direct_io"]:
        pytest.skip(f"no O_DIRECT here: {before['why_not_direct_io']}")
    array = hippogriff.read(path, device="host")
    assert hippogriff.explain(path, device="host")["cached_fraction"] < 0.1
    assert array.to_numpy().tobytes() == path.read_bytes()


# 6. Direct or buffered must be chosen by hand.


@pytest.mark.parametrize(("cold", "expected"), [(0, 0.0), (1, 1.0), (0.5, 0.5)])
def test_6_what_is_cached_comes_from_the_cache_and_the_rest_from_the_drive(
    tmp_path: Path, cold: float, expected: float
) -> None:
    size = 64 * MIB
    path = tmp_path / "a"
    path.write_bytes(random.Random(9).randbytes(size))
    if cold:
        _leave_cached(path, 0, round(cold * size))
    report = _report(path)
    assert report["bytes_from_disk"] / size == pytest.approx(expected, abs=0.05)
    assert report["bytes_from_page_cache"] + report["bytes_from_disk"] == size


# 7. Tuning.


def test_7_nothing_is_to_be_tuned() -> None:
    parts = ("thread", "worker", "buffer", "block", "chunk", "depth", "queue", "direct", "mmap")
    for function in (load_file, load_into, safe_open, hippogriff.read):
        names = " ".join(inspect.signature(function).parameters)
        assert not any(part in names for part in parts), f"{function.__name__}: {names}"


def test_7_defaults_choose_by_the_state_of_each_file(tmp_path: Path) -> None:
    paths = [tmp_path / "warm", tmp_path / "cold"]
    for path in paths:
        path.write_bytes(random.Random(10).randbytes(16 * MIB))
    _leave_cached(paths[1])
    program = """
        import json, sys, hippogriff

        told = []
        for path in sys.argv[1:]:
            with hippogriff.open(path) as file:
                array = hippogriff.empty(file.size, dtype="uint8", device="host")
                transfer = file.read_into_async(array)
                transfer.wait()
                told.append(transfer.report()["bytes_from_disk"])
        print(json.dumps(told))
    """
    # No variable of ours but the library's name; a home without a calibration.
    assert _in_process(program, *paths, XDG_CACHE_HOME=str(tmp_path)) == [0, 16 * MIB]


# 8. Corrupt shards are served.


def test_8_a_corrupt_shard_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    save_file(_tensors(8, 4, MIB), path, checksum=True)
    loaded = load_file(path, framework="np", verify=True)
    place = path.stat().st_size - MIB - 5  # in the last but one
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(hippogriff.ChecksumMismatch, match="layer02") as raised:
        load_file(path, framework="np", verify=True)
    (mismatch,) = raised.value.mismatches
    assert mismatch.offset <= place < mismatch.offset + mismatch.size
    assert load_file(path, framework="np").keys() == loaded.keys()


def test_the_documentation_names_these_tests() -> None:
    text = (Path(__file__).parents[2] / "docs" / "complaints.md").read_text(encoding="utf-8")
    tests = {name for name in globals() if re.match(r"test_\d_", name)}
    assert set(re.findall(r"`(test_\d_\w+)`", text)) == tests
