"""Checkpoints of several files, and the index that says which tensor is in which."""

from __future__ import annotations

import json
import os
import resource
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from test_safetensors import assert_equal, make_tensors

from hippogriff import IoError
from hippogriff.safetensors import (
    LoadReport,
    SafetensorError,
    load_file,
    load_into,
    load_plan,
    save_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_several_files_and_an_index_are_loaded_as_one(tmp_path: Path) -> None:
    tensors = make_tensors(4, 60)
    names = sorted(tensors)
    shards = {"a-1.safetensors": names[:20], "a-2.safetensors": names[20:]}
    for shard, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, tmp_path / shard)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {name: shard for shard, inside in shards.items() for name in inside}
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert_equal(load_file(index, framework="np"), tensors)
    assert_equal(load_file([tmp_path / shard for shard in shards], framework="np"), tensors)
    with pytest.raises(SafetensorError, match="also in a file before"):
        load_file([tmp_path / "a-1.safetensors"] * 1 + [_copy(tmp_path)], framework="np")


def test_a_file_by_several_paths_is_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_file({"a": np.arange(3)}, "s1.st")
    Path("link.st").symlink_to("s1.st")
    index = _write_index(tmp_path, {"a": "s1.st"})
    paths = ["s1.st", "./s1.st", "link.st", str(tmp_path / "s1.st"), f"../{tmp_path.name}/s1.st"]
    reports: list[LoadReport] = []
    loaded = load_file([*paths, str(index)], framework="np", explain=reports.append)
    assert loaded["a"].tolist() == [0, 1, 2]
    assert [file.path for file in reports[0].files] == ["s1.st"]


def _copy(folder: Path) -> Path:
    copy = folder / "b.safetensors"
    copy.write_bytes((folder / "a-1.safetensors").read_bytes())
    return copy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": 3}',
        '{"weight_map": {}}',
        '{"weight_map": {"x": "../x.safetensors"}}',
        '{"weight_map": {"x": "/etc/passwd"}}',
        '{"weight_map": {"x": 3}}',
        "[" * 100_000,
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(SafetensorError, match=r"index\.json"):
        load_file(index, framework="np")


def _write_index(folder: Path, weight_map: dict[str, str]) -> Path:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return index


_LOADERS: dict[str, Callable[[Path, list[str]], object]] = {
    "load_file": lambda index, _: load_file(index, framework="np"),
    "load_into": lambda index, names: load_into({name: np.zeros(3) for name in names}, index),
    "load_plan": lambda index, _: load_plan(index, {"cpu": None}, framework="np"),
}


@pytest.mark.parametrize("load", _LOADERS.values(), ids=_LOADERS)
@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"a": "1", "b": "2", "c": "2"}, "tensor 'c' is in .*2, which does not have it$"),
        ({"a": "2", "b": "2"}, "tensor 'a' is in .*2, which does not have it$"),
        ({"a": "1", "d": "2", "c": "2"}, "tensor 'c' .* nor 1 others that should be there$"),
    ],
    ids=["in no shard", "in another shard", "several"],
)
def test_a_tensor_that_an_index_promises_and_its_shard_lacks_is_told_before_anything_is_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    load: Callable[[Path, list[str]], object],
    weight_map: dict[str, str],
    words: str,
) -> None:
    save_file({"a": np.ones(3)}, tmp_path / "1")
    save_file({"b": np.ones(3)}, tmp_path / "2")
    index = _write_index(tmp_path, weight_map)

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was loaded")

    for module in ("_load.load_tensors", "_several.load_tensors", "_into._fill"):
        monkeypatch.setattr(f"hippogriff.safetensors.{module}", fail)
    with pytest.raises(SafetensorError, match=words) as raised:
        load(index, ["a", "b"])
    assert str(raised.value).startswith(str(index))


def test_tensors_that_an_index_does_not_list_are_loaded_from_its_shards(tmp_path: Path) -> None:
    save_file({"a": np.ones(3), "more": np.ones(2)}, tmp_path / "1")
    index = _write_index(tmp_path, {"a": "1"})
    assert load_file(index, framework="np").keys() == {"a", "more"}
    assert load_file([tmp_path / "1", index, index], framework="np").keys() == {"a", "more"}


@pytest.mark.parametrize(
    "text",
    ['{"weight_map": {"x": "1", "x": "2"}}', '{"weight_map": {"x": "1"}, "weight_map": {}}'],
)
def test_an_index_with_a_name_twice_is_refused(tmp_path: Path, text: str) -> None:
    for name in ("1", "2"):
        save_file({"x": np.ones(3)}, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(
        SafetensorError, match=r"index\.json is no index of shards: it has '.*' twice"
    ):
        load_file(index, framework="np")


def test_an_index_of_very_many_objects_is_refused_before_they_are_made(tmp_path: Path) -> None:
    save_file({"a": np.arange(3)}, tmp_path / "s1.st")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "s1.st"}, "x": [' + "{}," * 2_000_000 + "{}]}")
    tracemalloc.start()
    try:
        with pytest.raises(SafetensorError, match="more than 65536 objects and lists"):
            load_file(index, framework="np")
        assert tracemalloc.get_traced_memory()[1] < 4 * index.stat().st_size
    finally:
        tracemalloc.stop()
    # Of other encodings a string's end may be none.
    index.write_text('{"weight_map": {"a": "s1.st"}, "\u0122": [{}]}', encoding="utf-16-le")
    with pytest.raises(SafetensorError, match="no index of shards"):
        load_file(index, framework="np")
    # Those within names and texts are none.
    more = {"a": "s1.st"}, {"note": '"[{\\' * 70_000, "nested": [[{}]]}
    index.write_text(json.dumps({"weight_map": more[0], "metadata": more[1]}))
    assert load_file(index, framework="np")["a"].tolist() == [0, 1, 2]


def test_too_many_shards_for_the_limit_of_open_files_say_what_to_do(tmp_path: Path) -> None:
    names = [f"{number}.safetensors" for number in range(40)]
    for name in names:
        save_file({name: np.ones(3)}, tmp_path / name)
    index = _write_index(tmp_path, {name: name for name in names})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 20, hard))
    try:
        with pytest.raises(IoError, match=r"Too many open files \(errno 24\); .*ulimit -n"):
            load_file(index, framework="np")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(load_file(index, framework="np")) == 40
