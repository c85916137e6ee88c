"""A load's own bound of pinned host memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

import hippogriff
from hippogriff import _library
from hippogriff._host_memory import host_memory_bytes, share_out
from hippogriff._regions import describe
from hippogriff._scatter import start_scatter
from hippogriff._sizes import parse_size
from hippogriff._transfer import Request
from hippogriff.arrays import load_npy, load_npz, open_npy, save_npy
from hippogriff.safetensors import LoadReport, load_file, load_into, load_plan, safe_open, save_file

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20

# Loads as to a GPU: a framework whose arrays are on the device `host` behind a link.
_PROGRAM = """
    import contextlib, json, sys
    import hippogriff
    from hippogriff import _abi, _transfer
    from hippogriff._regions import Region
    from hippogriff.safetensors import _load, _several, load_file, load_into, load_plan, safe_open

    class Linked:
        region = Region(0, 0, "host", False, None, None)

        def empty(self, dtype, shape, order="C"):
            return hippogriff.empty(shape, dtype="uint8", device="host")

        def empties(self, dtypes, shapes):
            return list(map(self.empty, dtypes, shapes))

        def prepare(self, sizes_bytes):
            pass

        def address(self, array):
            return array.address

        def addresses(self, arrays):
            return [self.address(array) for array in arrays]

        def synchronize(self):
            pass

        starts_gpu = False

        def current_stream(self):
            return contextlib.nullcontext

    # What is mapped needs no slots.
    _transfer.find_route = lambda route: _abi.Route.PIPELINED
    _load.make_framework = _several.make_framework = lambda framework, device: Linked()
    path, how, budget = sys.argv[1:]
    reports = []
    if how == "load_file":
        loaded = load_file(path, host_memory=budget, explain=reports.append)
    elif how == "load_plan":
        plan = {"one": ["a", "c"], "two": ["b", "d"]}
        found = load_plan(path, plan, host_memory=budget, explain=reports.append)
        loaded = {**found["one"], **found["two"]}
    else:
        with safe_open(path, framework="np") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}
        loaded = {n: hippogriff.empty(s, dtype="uint8", device="host") for n, s in shapes.items()}
        load_into(loaded, path, host_memory=budget)
    import safetensors.numpy
    same = [
        array.tobytes() == loaded[name].to_numpy().tobytes()
        for name, array in safetensors.numpy.load_file(path).items()
    ]
    (device,) = hippogriff.stats()["devices"]
    told = {"same": same, "pinned": device["pinned_bytes"], "parked": device["parked_bytes"]}
    told["reports"] = [report.host_memory_bytes for report in reports]
    print(json.dumps(told))
"""


def _in_process(*arguments: object, program: str = _PROGRAM) -> Any:
    environ = {name: text for name, text in os.environ.items() if "HIPPOGRIFF" not in name}
    settings = {
        "HIPPOGRIFF_LIBRARY": _library.lib._name,
        "HIPPOGRIFF_CALIBRATION": "",
        "HIPPOGRIFF_HOST_LINK": "20GB",
        "HIPPOGRIFF_CPUS": "12",  # Plans would be wide.
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        env={**environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Four tensors, 80 MiB together."""
    source = random.Random(7)
    tensors = {
        name: np.frombuffer(source.randbytes(20 * MIB + number), np.uint8)
        for number, name in enumerate("abcd")
    }
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path)
    return path


@pytest.mark.parametrize("how", ["load_file", "load_into", "load_plan"])
@pytest.mark.parametrize("budget", ["8MiB", "16MiB", "70MiB"])
@pytest.mark.parametrize("cached", [True, False])
def test_a_load_pins_no_more_than_it_may(model: Path, how: str, budget: str, cached: bool) -> None:
    with model.open("rb") as file:
        os.fsync(file.fileno())
        if not cached:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    told = _in_process(model, how, budget)
    size_bytes = int(budget[:-3]) * MIB
    assert told["same"] == [True] * 4
    assert 0 < told["pinned"] <= size_bytes
    assert told["parked"] == 0
    assert told["reports"] == ([] if how == "load_into" else [size_bytes])


# What else takes a budget, with arrays behind a link as above: (file, budget) to what it loaded, or
# None where it writes the file that is given as the second.
_OTHERS = """
    from hippogriff import _open as _typed
    from hippogriff.arrays import _load as _npy, load_npy, load_npz, open_npy, save_npy
    from hippogriff.safetensors import _open, save_file
    import ctypes
    import numpy as np

    _typed.make_framework = _npy.make_framework = _open.make_framework = _load.make_framework

    def there():
        array = hippogriff.empty(len(source), dtype="uint8", device="host")
        ctypes.memmove(array.address, source.ctypes.data, source.nbytes)
        return array

    path, how, budget = sys.argv[1:]
    source = np.load(path)
    if how == "safe_open":
        save_file({"a": source}, path)
        with safe_open(path, host_memory=budget) as file:
            loaded = file.get_tensor("a")
    elif how == "slice":
        save_file({"a": source}, path)
        with safe_open(path, host_memory=budget) as file:
            loaded = file.get_slice("a")[:]
    elif how == "load_npy":
        loaded = load_npy(path, host_memory=budget)
    elif how.startswith("load_npz"):
        save = np.savez_compressed if how.endswith("compressed") else np.savez
        save(path + ".npz", a=source)
        loaded = load_npz(path + ".npz", host_memory=budget)["a"]
    elif how == "open_npy":
        with open_npy(path, host_memory=budget) as file:
            loaded = file[:]
    elif how == "write":
        how = {"dtype": "uint8", "shape": source.shape, "host_memory": budget}
        with hippogriff.open(path, "w", **how) as file:
            file[:] = there()
        loaded = np.fromfile(path, np.uint8)
    elif how == "read":
        source.tofile(path)
        loaded = hippogriff.read(path, device="host", host_memory=budget)
    elif how == "write_file":
        hippogriff.write(path, there(), host_memory=budget)
        loaded = np.fromfile(path, np.uint8)
    elif how == "save_npy":
        save_npy(path, there(), host_memory=budget)
        loaded = np.load(path)
    else:
        save_file({"a": there()}, path, host_memory=budget)
        import safetensors.numpy
        loaded = safetensors.numpy.load_file(path)["a"]
    found = loaded if isinstance(loaded, np.ndarray) else loaded.to_numpy()
    (device,) = hippogriff.stats()["devices"]
    told = {"same": found.tobytes() == source.tobytes(), "pinned": device["pinned_bytes"]}
    print(json.dumps(told))
"""


@pytest.mark.parametrize(
    "how",
    [
        "safe_open",
        "slice",
        "load_npy",
        "load_npz",
        "load_npz_compressed",
        "open_npy",
        "write",
        "read",
        "write_file",
        "save_npy",
        "save_file",
    ],
)
def test_whatever_else_moves_arrays_pins_no_more_than_it_may(tmp_path: Path, how: str) -> None:
    path = tmp_path / "source.npy"
    np.save(path, np.frombuffer(random.Random(7).randbytes(70 * MIB), np.uint8))
    program = _PROGRAM[: _PROGRAM.index("    path, how, budget")] + _OTHERS
    told = _in_process(path, how, "8MiB", program=program)
    assert told["same"]
    assert 0 < told["pinned"] <= 8 * MIB


def test_one_channel_is_enough(model: Path) -> None:
    told = _in_process(model, "load_file", 4 * MIB)
    assert told["same"] == [True] * 4
    assert told["pinned"] == 4 * MIB


@pytest.mark.parametrize("budget", [4 * MIB, "4MiB", "16 MiB", 16_777_216])
def test_tensors_on_the_cpu_are_loaded_within_any_budget(model: Path, budget: int | str) -> None:
    expected = safetensors.numpy.load_file(model)
    reports: list[LoadReport] = []
    loaded = load_file(model, framework="np", host_memory=budget, explain=reports.append)
    assert all((loaded[name] == expected[name]).all() for name in expected)
    (report,) = reports
    assert report.as_dict()["host_memory_bytes"] == host_memory_bytes(budget)
    assert f"at most {host_memory_bytes(budget) >> 20}.00 MiB of host memory" in str(report)
    state = {name: np.empty_like(array) for name, array in expected.items()}
    load_into(state, model, host_memory=budget)
    assert all((state[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *((size, "4.00 MiB is the least") for size in (0, 1, 4 * MIB - 1, -1, "3MiB")),
        (2**63, "more than any host has"),
        (1 << 70, "more than any host has"),
        ("4 apples", "is not a size"),
        (True, "neither bytes nor a size"),
        (4e6, "neither bytes nor a size"),
    ],
)
def test_what_is_no_budget_is_refused_before_anything_is_opened(given: Any, words: str) -> None:
    for load in (
        lambda: load_file("/nowhere", framework="np", host_memory=given),
        lambda: load_into({}, "/nowhere", host_memory=given),
        lambda: load_plan("/nowhere", {"cpu": None}, framework="np", host_memory=given),
        lambda: safe_open("/nowhere", framework="np", host_memory=given),
        lambda: save_file({}, "/nowhere/x", host_memory=given),
        lambda: load_npy("/nowhere", host_memory=given),
        lambda: load_npz("/nowhere", host_memory=given),
        lambda: open_npy("/nowhere", host_memory=given),
        lambda: save_npy("/nowhere/x", np.zeros(1), host_memory=given),
        lambda: hippogriff.open("/nowhere", dtype="uint8", host_memory=given),
        lambda: hippogriff.read("/nowhere", host_memory=given),
        lambda: hippogriff.write("/nowhere/x", np.zeros(1), host_memory=given),
    ):
        with pytest.raises(hippogriff.InvalidArgument, match=words):
            load()


@pytest.mark.parametrize("text", ["x" * 5000, "9" * 5000, "9" * 18 + "TB", "\u0663MiB"])
def test_what_is_no_size_is_told_in_few_words(text: str) -> None:
    with pytest.raises(hippogriff.InvalidArgument) as raised:
        parse_size(text)
    assert len(str(raised.value)) < 200


def test_each_device_of_a_plan_needs_a_channel() -> None:
    plan = {"cpu": None, "host": None}
    with pytest.raises(hippogriff.InvalidArgument, match=r"8.00 MiB is the least for 2 devices"):
        load_plan("/nowhere", plan, framework="np", host_memory="4MiB")


def test_a_report_without_a_budget_tells_none(model: Path) -> None:
    reports: list[LoadReport] = []
    load_file(model, framework="np", explain=reports.append)
    assert reports[0].host_memory_bytes == 0
    assert "host memory" not in str(reports[0])


def test_shares_are_whole_steps_and_together_no_more_than_all() -> None:
    assert share_out(0, 4) == (4, 0)
    for size_bytes in range(4 * MIB, 300 * MIB, MIB):
        for most in (1, 2, 4, 8):
            in_flight, each = share_out(size_bytes, most)
            assert 1 <= in_flight <= most
            assert each >= 4 * MIB
            assert each % (4 * MIB) == 0
            assert in_flight * each <= size_bytes
    assert share_out(4 * MIB, 4) == (1, 4 * MIB)
    assert share_out(64 * MIB, 4) == (2, 32 * MIB)


def test_the_library_refuses_less_than_one_channel_needs(big_file: Path) -> None:
    array = np.empty(MIB, np.uint8)
    region = describe(array, writable=True)
    request = Request("auto", region=region, host_memory=4 * MIB - 1)
    with (
        hippogriff.open(big_file) as file,
        pytest.raises(hippogriff.InvalidArgument, match="4194304 bytes"),
    ):
        start_scatter(file, [(0, MIB, region.address)], request, array)


def test_the_command_has_the_budget(model: Path) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hippogriff", "load", str(model), *options],
            env={**os.environ, "HIPPOGRIFF_DEVICE": "host"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    done = run("--host-memory", "64MiB")
    assert done.returncode == 0, done.stderr
    assert "at most 64.00 MiB of host memory" in done.stdout
    done = run("--host-memory", "64MiB", "--json")
    assert json.loads(done.stdout)["host_memory_bytes"] == 64 * MIB
    done = run("--host-memory", "1MiB")
    assert done.returncode != 0
    assert "4.00 MiB is the least" in done.stderr
