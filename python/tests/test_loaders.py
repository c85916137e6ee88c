"""`hippogriff load` and `hippogriff bench loaders`, run as users run them."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hippogriff import _library
from hippogriff._loaders import bench, contenders, limits, worker
from hippogriff._loaders.bench import LoadersBench, Plan
from hippogriff._loaders.contenders import Contender, all_contenders
from hippogriff._loaders.model import make_model, wrong_tensors
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors import load_file, save_file

_MIB = 1 << 20


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HIPPOGRIFF_LIBRARY": _library.lib._name}
    environment["HIPPOGRIFF_DEVICE"] = "host"
    return subprocess.run(
        [sys.executable, "-m", "hippogriff", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_load_is_timed_and_explained(tmp_path: Path) -> None:
    paths = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for path in paths:
        save_file({path.name: np.zeros(_MIB, np.uint8)}, path, checksum=True)
    assert _run("load", *paths, "--verify").returncode == 0
    done = _run("load", *paths)
    assert done.returncode == 0, done.stderr
    assert "a.safetensors to cpu: 1 tensor, 1.00 MiB" in done.stdout
    report = json.loads(_run("load", *paths, "--json").stdout)
    assert [file["bytes"] for file in report["files"]] == [_MIB, _MIB]
    assert report["bytes"] == 2 * _MIB
    assert report["gb_per_second"] > 0


def test_arrays_are_loaded_beside_models(tmp_path: Path) -> None:
    array, small = np.zeros(_MIB, np.uint8), np.arange(6)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", a=array, b=small)
    (tmp_path / "a.npy").rename(tmp_path / "A.NPY")  # what it is says its first bytes
    save_file({"a": array}, tmp_path / "c")
    report = json.loads(
        _run("load", *(tmp_path / n for n in ("A.NPY", "b.npz", "c")), "--json").stdout
    )
    found = {Path(file["path"]).name: (file["tensors"], file["bytes"]) for file in report["files"]}
    assert found == {"c": (1, _MIB), "A.NPY": (1, _MIB), "b.npz": (2, _MIB + small.nbytes)}
    assert {file["device"] for file in report["files"]} == {"cpu"}
    assert report["seconds"] >= sum(file["seconds"] for file in report["files"])
    assert report["bytes"] == sum(file["bytes"] for file in report["files"])


@pytest.mark.parametrize("kind", [".npy", ".npz"])
def test_a_damaged_array_is_judged_as_what_it_is_called(tmp_path: Path, kind: str) -> None:
    damaged = tmp_path / f"damaged{kind}"
    damaged.write_bytes(b"no array")
    done = _run("load", damaged)
    assert done.returncode == 1
    assert f"not as {kind} does" in done.stderr


def test_what_cannot_be_loaded_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"nothing like it")
    save_file({"a": np.zeros(9)}, tmp_path / "unchecked")
    assert "unchecked.xxh3" in _run("load", tmp_path / "unchecked", "--verify").stderr
    (tmp_path / "bad.npy").write_bytes(b"nothing like it")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / each for each in ("bad", "bad.npy", "missing", "pipe")):
        done = _run("load", path)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert str(path) in done.stderr


def test_loaders_are_compared(tmp_path: Path) -> None:
    tmp_path /= "[a/b]"  # which is no markup
    tmp_path.mkdir(parents=True)
    options = ("--dir", tmp_path, "--size", "4MiB", "--tensors", 7, "--repeat", 2, "--rounds", 1)
    done = _run("bench", "loaders", *options, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert {row["state"] for row in rows} >= {"cached", "save"}
    for name in ("hippogriff", "safetensors"):
        (row,) = (r for r in rows if (r["contender"], r["state"]) == (name, "cached"))
        assert row["why_not"] == ""
        assert row["gb_per_second"] > 0
        assert len(row["processes"][0]["seconds"]) == 2
    absent = [row for row in rows if row["contender"] == "kvikio"]
    assert all(row["why_not"] for row in absent)
    assert list(tmp_path.iterdir()) == []
    table = _run("bench", "loaders", *options, "--no-cold", "--no-save")
    assert "hippogriff" in table.stdout
    assert f"{tmp_path}, cached" in table.stdout
    (tmp_path / "file").touch()
    assert "is no folder" in _run("bench", "loaders", "--dir", tmp_path / "file").stderr


def test_what_no_time_is_left_for_says_so(tmp_path: Path) -> None:
    plan = Plan((tmp_path,), "cpu", (3,), 1 << 16, cold=False, budget_seconds=0)
    measured = LoadersBench(plan, lambda *_: None).run()
    rows = {(row.case["state"], row.contender): row for row in measured}
    for state in ("cached", "save"):
        assert rows[state, "hippogriff"].why_not == "no time was left"
        assert rows[state, "hippogriff"].later() is None
    assert "GPU" in rows["cached", "kvikio"].why_not


def test_those_that_are_named_take_part_alone(tmp_path: Path) -> None:
    plan = Plan((tmp_path,), "cpu", (3,), 1 << 16, 1, 1, cold=False, only=("HIPPO", "prefetch"))
    rows = LoadersBench(plan, lambda *_: None).run()
    took_part = {(row.contender, row.case["state"]) for row in rows}
    assert {each for each in took_part if not each[0].startswith("limit")} == {
        ("hippogriff", "cached"),
        ("safetensors prefetch", "cached"),
        ("hippogriff", "save"),
    }
    done = _run("bench", "loaders", "--dir", tmp_path, "--only", "torchsnapshot")
    assert done.returncode == 1
    assert "no loader has 'torchsnapshot' in its name: there are hippogriff; " in done.stderr


def test_what_was_loaded_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 5, 40_000)
    loaded = load_file(path, framework="np")
    assert wrong_tensors(path, loaded) == []
    names = list(loaded)
    loaded[names[1]][3, 7] += 1
    del loaded[names[2]]
    assert wrong_tensors(path, loaded) == sorted(names[1:3])
    with pytest.raises(InvalidArgument, match="too few"):
        make_model(tmp_path / "empty", 100, 1000)


def test_who_takes_part_is_told() -> None:
    found = all_contenders()
    assert found[0].name == "hippogriff"
    assert len({each.name for each in found}) == len(found)
    assert all(each.defaults for each in all_contenders(settings=False))
    for each in found:
        assert each.on_cpu or "GPU" in each.why_not("cpu")


@pytest.mark.parametrize(
    ("cached", "loads", "failure"),
    [([0.0, 0.0], 2, ""), ([0.0, 1.0], 1, ""), ([1.0], 0, "AssertionError: the file stays")],
)
def test_what_stays_in_the_page_cache_is_no_cold_load(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cached: list[float],
    loads: int,
    failure: str,
) -> None:
    path = tmp_path / "model.safetensors"
    make_model(path, 3, 1 << 16)
    fractions = iter(cached)
    monkeypatch.setattr(worker, "cached_fraction", lambda _: next(fractions))
    monkeypatch.setattr(worker, "make_cold", lambda _: None)
    outcome = worker.Outcome("hippogriff")
    task = worker.Task("hippogriff", str(path), "cpu", "cold", 2, 60.0)
    ours = next(each for each in all_contenders() if each.name == "hippogriff")
    try:
        worker._measure(ours, task, outcome)
    except AssertionError as error:
        outcome.failure = f"{type(error).__name__}: {error}"
    assert outcome.failure.startswith(failure)
    assert bool(outcome.failure) == bool(failure)
    assert len(outcome.seconds) == len(outcome.cached_before) == loads


def _crash(*_: Any) -> dict[str, Any]:
    os._exit(7)


def _wrong(path: str, *_: Any) -> dict[str, Any]:
    loaded = load_file(path, framework="np")
    next(iter(loaded.values()))[0, 0] += 1
    return loaded


@pytest.mark.parametrize(("load", "words"), [(_crash, "died"), (_wrong, "wrong tensors")])
def test_a_loader_that_fails_is_told_and_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Any, words: str
) -> None:
    def pair(*, settings: bool = True) -> list[Contender]:
        assert isinstance(settings, bool)
        good, bad = contenders._hippogriff, load
        return [
            Contender("good", "hippogriff-gpu", "hippogriff", good, on_cpu=True),
            Contender("bad", "hippogriff-gpu", "hippogriff", bad, on_cpu=True),
        ]

    monkeypatch.setattr(bench, "all_contenders", pair)
    monkeypatch.setattr(worker, "all_contenders", pair)
    # Forked, so that the worker sees what was patched.
    forked = _Forked(multiprocessing.get_context("fork"))
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: forked)
    plan = Plan((tmp_path,), "cpu", (3,), 1 << 16, repeat=2, rounds=2, cold=False, save=False)
    rows = {row.contender: row for row in LoadersBench(plan, lambda *_: None).run()}
    assert rows["good"].why_not == ""
    assert rows["good"].later() is not None
    assert words in rows["bad"].why_not


class _Forked:
    def __init__(self, context: Any) -> None:
        self.Pipe, self.Process = context.Pipe, context.Process

    def set_forkserver_preload(self, modules: list[str]) -> None:
        assert modules == ["torch"]


def test_a_drives_limit_is_what_its_blocks_take(folder: Path) -> None:
    path = folder / "x.bin"
    path.write_bytes(bytes(16 << 20))
    read = limits.read_limits(path)
    written = limits.write_limits(folder / "y.bin", 8 << 20)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        assert (read, written) == ({}, {})
    else:
        assert read.keys() == written.keys()
        assert "O_DIRECT, 4 x 512 KiB" in read
        assert all(0 < rate < 1000 for rate in [*read.values(), *written.values()])
    assert [each.name for each in folder.iterdir()] == ["x.bin"]
    path.write_bytes(bytes(1000))
    assert limits.read_limits(path) == {}


def test_each_way_reads_another_part_in_the_next_turn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "x.bin"
    path.write_bytes(bytes(16 << 20))
    read: dict[str, set[int]] = {}

    def note(_path: Path, _flags: int, _move: object, extent: Any, shape: object) -> float:
        assert extent.size_bytes == 4 << 20
        read.setdefault(str(shape), set()).add(extent.offset)
        return 1.0

    monkeypatch.setattr(limits, "_direct", note)
    for turn in range(4):
        limits.read_limits(path, turn)
    assert all(offsets == {0, 4 << 20, 8 << 20, 12 << 20} for offsets in read.values())


def test_the_limit_is_the_way_that_is_best_by_its_median(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = iter([{"a": 9.0, "b": 2.0}, {"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 3.0}])
    monkeypatch.setattr(bench, "read_limits", lambda _path, _turn: next(measured))
    limit = bench._Limit({"state": "cold", "size_bytes": 10**9}, "cuda:0")
    assert limit.rows() == []
    for _ in range(3):
        limit.measure(folder)
    (row,) = limit.rows()
    assert row.contender == "limit: b"
    assert row.later() == 2.0
    assert len(row.outcomes) == 3


def test_the_two_best_ways_of_writing_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measure(_path: Path, _size: int, ways: Any) -> dict[str, float]:
        asked.append(ways)
        rates = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 1.0}
        return {way: rate for way, rate in rates.items() if ways is None or way in ways}

    monkeypatch.setattr(bench, "write_limits", measure)
    limit = bench._Limit({"state": "save", "size_bytes": 10**9}, "cpu")
    for _ in range(3):
        limit.measure(folder)
    assert asked == [None, ["b", "c"], ["b", "c"]]
    assert limit.rows()[0].contender == "limit: b"
