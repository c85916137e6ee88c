"""How a stream of tensors is cut into transfers, and what the tensors of torch are made by."""

from __future__ import annotations

import itertools
import json
import os
import sys
import tracemalloc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hippogriff
from hippogriff import _frameworks
from hippogriff._frameworks import make_framework
from hippogriff._scatter import start_segments
from hippogriff._transfer import Request
from hippogriff.safetensors import (
    SafetensorError,
    _holes,
    _load,
    load_file,
    load_into,
    safe_open,
    save_file,
)
from hippogriff.safetensors._holes import GAP_BYTES, between_holes
from hippogriff.safetensors._load import _batches, _Made, _together
from hippogriff.safetensors._tensor import Columns, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Small ones: first bytes, growth, first tensors, tensors, most tensors; gap.
_LIMITS: dict[str, Any] = {
    "_FIRST_BYTES": 10,
    "_BATCH_GROWTH": 3,
    "_FIRST_TENSORS": 2,
    "_BATCH_TENSORS": 5,
    "_BATCH_TENSORS_MAX": 9,
}
_GAP_BYTES = 4


def _cut_one_by_one(tensors: list[TensorInfo], bytes_max: int) -> list[list[str]]:
    """Do what `_batches` does, tensor by tensor."""
    batches: list[list[str]] = []
    batch: list[str] = []
    size_bytes, end = 0, 0
    most_bytes, many = _LIMITS["_FIRST_BYTES"], _LIMITS["_FIRST_TENSORS"]
    for tensor in tensors:
        large = (
            size_bytes >= most_bytes
            or (size_bytes >= _LIMITS["_FIRST_BYTES"] and len(batch) >= many)
            or len(batch) == _LIMITS["_BATCH_TENSORS_MAX"]
        )
        if batch and (large or tensor.offset - end > _GAP_BYTES):
            batches.append(batch)
            batch, size_bytes = [], 0
            most_bytes = min(most_bytes * _LIMITS["_BATCH_GROWTH"], bytes_max)
            many = min(2 * many, _LIMITS["_BATCH_TENSORS"])
        batch.append(tensor.name)
        size_bytes += tensor.size_bytes
        end = tensor.offset + tensor.size_bytes
    return [*batches, batch] if batch else batches


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), max_size=60),
    st.lists(st.integers(0, 12), max_size=12),
    st.integers(11, 200),
)
def test_batches_are_those_of_a_stream_of_single_tensors(
    rows: list[tuple[int, int]], pieces: list[int], bytes_max: int
) -> None:
    tensors, offset = [], 100
    for number, (hole, size) in enumerate(rows):
        offset += hole
        tensors.append(TensorInfo(f"{number}", "U8", (size,), offset, size))
        offset += size
    cuts = [0, *itertools.accumulate(pieces), len(tensors)]
    stream = [Columns.of(tensors[begin:end]) for begin, end in itertools.pairwise(cuts)]
    with mock.patch.multiple(_load, **_LIMITS), mock.patch.object(_holes, "GAP_BYTES", _GAP_BYTES):
        batches = list(_batches(stream, bytes_max))
    assert [list(batch.names) for batch in batches] == _cut_one_by_one(tensors, bytes_max)
    assert [tensor for batch in batches for tensor in batch.tensors()] == tensors


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30))
def test_runs_end_where_a_hole_is_and_nowhere_else(rows: list[tuple[int, int]]) -> None:
    sizes, offsets, offset = [size for _, size in rows], [], 7
    for hole, size in rows:
        offset += hole
        offsets.append(offset)
        offset += size
    with mock.patch.object(_holes, "GAP_BYTES", _GAP_BYTES):
        runs = list(between_holes(offsets, sizes))
    assert [number for run in runs for number in range(*run)] == list(range(len(rows)))
    expected = {number for number, (hole, _) in enumerate(rows) if number and hole > _GAP_BYTES}
    assert {first for first, _ in runs} == ({0} | expected if rows else set())


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.lists(st.integers(0, 12), min_size=1, max_size=4)),
        max_size=40,
    ),
    st.integers(1, 200),
)
def test_what_is_joined_ends_at_holes_and_before_it_is_too_large(
    rows: list[tuple[int, list[int]]], bytes_max: int
) -> None:
    groups: list[_Made] = []
    expected: list[list[int]] = []
    offset, number, joined_bytes = 100, 0, 0
    for hole, sizes in rows:
        offset += hole
        numbers = list(range(number, number + len(sizes)))
        ends = list(itertools.accumulate(sizes, initial=offset))
        group = [
            TensorInfo(f"{n}", "U8", (size,), begin, size)
            for n, size, begin in zip(numbers, sizes, ends[:-1], strict=True)
        ]
        groups.append(_Made(Columns.of(group), [f"array {n}" for n in numbers], numbers))
        if not expected or hole > _GAP_BYTES or joined_bytes + sum(sizes) > bytes_max:
            expected.append([])
            joined_bytes = 0
        expected[-1] += numbers
        joined_bytes += sum(sizes)
        offset, number = ends[-1], number + len(sizes)
    with mock.patch.object(_holes, "GAP_BYTES", _GAP_BYTES):
        joined = list(_together(groups, bytes_max))
    assert [each.addresses for each in joined] == expected
    arrays = [array for each in joined for array in each.arrays]
    assert arrays == [f"array {n}" for n in range(number)]
    assert [each for group in joined for each in group.columns.tensors()] == [
        tensor for group in groups for tensor in group.columns.tensors()
    ]


def _facts(array: Any) -> tuple[Any, ...]:
    storage = getattr(array, "untyped_storage", array.storage)()  # The first from torch 2.0 on.
    own = storage.nbytes() == array.numel() * array.element_size()
    return array.shape, array.stride(), array.dtype, array.device, array.is_inference(), own


@pytest.mark.torch
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_tensors_made_together_are_as_those_that_are_made_alone(
    monkeypatch: pytest.MonkeyPatch, known: bool, inference: bool
) -> None:
    torch: Any = pytest.importorskip("torch")
    shapes: list[tuple[int, ...]] = [(), (0,), (7,), (2, 0, 3), (1, 5, 1), (3, 4, 2), (7,)]
    names = _frameworks._TORCH_NAMES.items()
    dtypes = [name for name, theirs in names if name != "F4" and hasattr(torch, theirs)]
    if hasattr(torch._C, "_dynamo"):
        if not known:
            monkeypatch.delattr(torch._C._dynamo.guards, "_empty_strided_cpu")
    elif known:
        pytest.skip(f"torch {torch.__version__} has no _empty_strided_cpu")
    kinds = list(itertools.product(dtypes, shapes))
    maker: Any = make_framework("pt", "cpu")
    with torch.inference_mode(inference):
        arrays = maker.empties(*zip(*kinds, strict=True))
        alone = [torch.empty(shape, dtype=maker.empty(dtype, ()).dtype) for dtype, shape in kinds]
    assert (maker._strided is not None) == known
    assert list(map(_facts, arrays)) == list(map(_facts, alone))
    addresses = [array.data_ptr() for array in arrays if array.numel()]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.torch
@pytest.mark.parametrize(
    "other",
    [
        lambda torch: torch.empty((2, 3), dtype=torch.int32),
        lambda torch: torch.empty((3, 2), dtype=torch.int16),
        lambda torch: torch.empty((2, 3), dtype=torch.int16, device="meta"),
        lambda torch: torch.empty((3, 2), dtype=torch.int16).t(),
    ],
)
def test_what_makes_other_tensors_than_expected_is_not_used(
    monkeypatch: pytest.MonkeyPatch, other: Any
) -> None:
    torch: Any = pytest.importorskip("torch")
    guards = SimpleNamespace(_empty_strided_cpu=lambda *_: other(torch))
    monkeypatch.setattr(torch._C, "_dynamo", SimpleNamespace(guards=guards), raising=False)
    [array] = make_framework("pt", "cpu").empties(["F32"], [(5, 4)])
    assert (array.dtype, array.shape) == (torch.float32, (5, 4))


@pytest.mark.torch
def test_lengths_that_torch_refuses_are_refused_in_its_words() -> None:
    torch: Any = pytest.importorskip("torch")
    shape = 0, 2**40, 2**40
    try:
        torch.empty(shape)
    except RuntimeError as error:
        alone = str(error)
    else:
        pytest.skip(f"torch {torch.__version__} refuses none")
    with pytest.raises(RuntimeError) as together:
        make_framework("pt", "cpu").empties(["U8", "U8"], [(2,), shape])
    assert str(together.value) == alone


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The transfers that are started."""
    found: list[Any] = []

    def start(request: Request, *arguments: Any, **options: Any) -> Any:
        found.append(arguments)
        return plain(request, *arguments, **options)

    plain = Request.start
    monkeypatch.setattr(Request, "start", start)
    return found


_HOLED = {"a": 9, "hole": GAP_BYTES + 1, "empty": 0, "big": GAP_BYTES}


@pytest.fixture
def holed(tmp_path: Path) -> Path:
    """A file with an empty tensor between what is not wanted and something large."""
    begin, fields = 0, {}
    for name, size in _HOLED.items():
        fields[name] = {"dtype": "U8", "shape": [size], "data_offsets": [begin, begin + size]}
        begin += size
    header = json.dumps(fields).encode()
    path = tmp_path / "holed.st"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(range(256)) * 9000)
    os.truncate(path, 8 + len(header) + begin)
    return path


@pytest.mark.parametrize("names", [*itertools.permutations(["a", "empty", "big"])])
def test_a_hole_is_left_out_in_whatever_order_tensors_are_asked_for(
    holed: Path, started: list[Any], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_load, "small_bytes", lambda _: 0)  # else the first needs no transfer
    everything = load_file(holed, framework="np")
    started.clear()
    with safe_open(holed, "np") as file:
        found = file.get_tensors(names)
    assert all(np.array_equal(found[name], everything[name]) for name in names)
    assert len(started) == 2


def test_a_hole_is_left_out_of_what_is_loaded_into_arrays(holed: Path, started: list[Any]) -> None:
    everything = load_file(holed, framework="np")
    started.clear()
    found = {name: np.zeros(_HOLED[name], np.uint8) for name in ("big", "empty", "a")}
    assert load_into(found, holed, strict=False).unexpected_keys == ["hole"]
    assert all(np.array_equal(found[name], everything[name]) for name in found)
    assert len(started) == 2
    started.clear()
    load_into({name: np.zeros(size, np.uint8) for name, size in _HOLED.items()}, holed)
    assert len(started) == 1


def test_tensors_that_are_asked_for_one_by_one_start_no_transfers(
    tmp_path: Path, started: list[Any]
) -> None:
    tensors: dict[str, Any] = {
        f"t{number}": np.full((3, number), number, np.int16) for number in range(100)
    }
    tensors["large"] = np.arange(1 << 20)  # of a longer type: first in the file
    save_file(tensors, tmp_path / "x.st")
    started.clear()
    with safe_open(tmp_path / "x.st", "np") as file:
        for name in file.keys():  # noqa: SIM118 (as safetensors has it)
            assert np.array_equal(file.get_tensor(name), tensors[name])
        assert len(started) == 1
        assert np.array_equal(file.get_slice("t9")[1:], tensors["t9"][1:])
        assert len(started) == 1
        os.truncate(tmp_path / "x.st", (tmp_path / "x.st").stat().st_size - 1)
        with pytest.raises(hippogriff.ShortFile, match="the file ends at byte"):
            file.get_tensor("t99")


def _count_calls(call: Callable[[], object]) -> int:
    """Count the functions, of Python and of C, that something calls."""
    events: list[str] = []
    call()  # what is done once
    sys.setprofile(lambda _, event, __: events.append(event))
    try:
        call()
    finally:
        sys.setprofile(None)
    return sum(event in {"call", "c_call"} for event in events)


def test_small_tensors_and_slices_take_few_calls(tmp_path: Path) -> None:
    save_file({"x": np.zeros((100, 64))}, tmp_path / "x.st")
    with safe_open(tmp_path / "x.st", "np") as file:
        part = file.get_slice("x")
        # Such a read takes 1 µs itself; 27, 91 and 115 calls when this was written.
        assert _count_calls(lambda: file.get_tensor("x")) <= 32
        assert _count_calls(lambda: part[5]) <= 105
        assert _count_calls(lambda: part[5:90:30]) <= 130


def test_many_tensors_take_little_memory_beside_them(tmp_path: Path) -> None:
    count = 30_000  # Of 100,000, which take so much longer, it is 64 MiB at most.
    tensors = {f"layer.{number}.weight": np.zeros(4, np.float32) for number in range(count)}
    path = tmp_path / "x.st"
    calls: list[Callable[[], object]] = [
        lambda: save_file(tensors, path),
        lambda: load_into(tensors, path),
    ]
    peaks = []
    tracemalloc.start()
    try:
        for call in calls:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            call()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    header_bytes = path.stat().st_size - count * 16
    assert max(peaks) < (64 << 20) * count / 100_000 + header_bytes, peaks


def test_files_of_few_bytes_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = 0

    def count(*arguments: Any, **named: Any) -> Any:
        nonlocal started
        started += 1
        return start_segments(*arguments, **named)

    monkeypatch.setattr(_load, "start_segments", count)
    path = tmp_path / "small.safetensors"
    values = np.random.default_rng(2)
    for tensors, transfers in (
        ({"one": values.random(16_000)}, 0),
        ({f"t{n}": values.random(values.integers(0, 300)) for n in range(64)}, 0),
        ({f"t{n}": values.random(3) for n in range(65)}, 1),
        ({"large": values.random(40_000)}, 1),
        ({"none": np.zeros((0, 5)), "zero": np.array(7.0)}, 0),
        ({"none": np.zeros((0, 5))}, 0),
    ):
        save_file(tensors, path, checksum=True)
        started = 0
        reports: list[Any] = []
        for explain in (False, reports.append):
            loaded = load_file(path, framework="np", explain=explain)
            assert loaded.keys() == tensors.keys()
            for name, array in tensors.items():
                np.testing.assert_array_equal(loaded[name], array)
                assert loaded[name].shape == array.shape
        assert started == 2 * transfers
        assert ("by the calling thread" in str(reports[0])) == (
            not transfers and any(array.size for array in tensors.values())
        )
        load_file(path, framework="np", verify=True)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SafetensorError):
        load_file(path, framework="np")
