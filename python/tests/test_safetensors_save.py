"""Saving safetensors files: what fails, what is replaced, what is left."""

from __future__ import annotations

import errno
import gc
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hippogriff
from hippogriff import _regions
from hippogriff.integrity import write_checksums
from hippogriff.safetensors import load_file, save_file


def test_failed_saves_leave_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    path.write_bytes(b"before")
    strided = np.zeros((4, 4))[:, ::2]
    for wrong in ({"x": strided}, {"x": np.array([object()])}, {"__metadata__": np.zeros(1)}):
        with pytest.raises(hippogriff.InvalidArgument):
            save_file(wrong, path)
    with pytest.raises(hippogriff.InvalidArgument):
        save_file({}, path, {"a": 1})  # type: ignore[dict-item]
    with pytest.raises(hippogriff.InvalidArgument, match="no mapping of names"):
        save_file([np.zeros(1)], path)  # type: ignore[arg-type]
    with pytest.raises(hippogriff.IoError):
        save_file({"x": np.zeros(1)}, tmp_path / "absent" / "x.safetensors")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def _name_new_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file system be one that has no files without names, as NFS."""
    real = os.open

    def open_named(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "made to fail")
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", open_named)


@pytest.mark.parametrize("named", [False, True])
def test_a_save_that_fails_calls_the_file_by_its_name_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    path = tmp_path / "new.safetensors"
    if named:
        _name_new_files(monkeypatch)

    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "made to fail")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail)
        with pytest.raises(hippogriff.IoError) as raised:
            save_file({"x": np.zeros(9)}, path)
    assert str(raised.value) == f"write {path}: No space left on device (errno 28)"
    assert raised.value.object == raised.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
    save_file({"x": np.zeros(9)}, path)
    assert list(tmp_path.iterdir()) == [path]
    assert len(load_file(path, framework="np")["x"]) == 9


@pytest.mark.parametrize(("step", "operation"), [("fsync", "sync"), ("replace", "rename")])
def test_a_save_whose_temporary_file_cannot_be_removed_tells_what_failed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, operation: str
) -> None:
    path = tmp_path / "kept.safetensors"
    path.write_bytes(b"before")

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "made to fail")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "made to fail")

    _name_new_files(monkeypatch)
    # As a file system does that becomes read-only when its drive fails.
    owner: object = os if step == "fsync" else Path
    monkeypatch.setattr(owner, step, fail)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(hippogriff.IoError) as raised:
        save_file({"x": np.zeros(9)}, path)
    assert (raised.value.operation, raised.value.errno) == (operation, errno.EIO)
    (left,) = (each for each in tmp_path.iterdir() if each != path)
    assert raised.value.__notes__ == [f"remove {left}: Read-only file system (errno 30)"]
    assert path.read_bytes() == b"before"


def test_names_may_be_as_long_as_the_file_system_takes_them(tmp_path: Path) -> None:
    path = tmp_path / ("\u6f22" * 80)  # 240 bytes
    save_file({"x": np.zeros(9)}, path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_checksums_are_for_those_who_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    save_file({"x": np.zeros(9)}, path, checksum=True)
    assert stat.S_IMODE((tmp_path / "secret.xxh3").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="files of others are root's to make")
def test_whoever_owns_the_folder_is_not_lent_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "theirs"
    victim.touch(0o600)
    path.touch(0o644)
    os.chown(path, 1000, 1000)
    real = os.link

    def link(source: Any, name: str, **options: Any) -> None:
        real(source, name, **options)
        (tmp_path / name).unlink()
        (tmp_path / name).symlink_to(victim)

    monkeypatch.setattr(os, "link", link)
    save_file({"x": np.zeros(9)}, path)
    assert (victim.stat().st_uid, stat.S_IMODE(victim.stat().st_mode)) == (0, 0o600)


def test_checksums_of_a_file_that_nobody_may_write_can_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    save_file({"x": np.zeros(9)}, path)
    path.chmod(0o444)
    for _ in range(2):
        write_checksums(path)
        assert stat.S_IMODE((tmp_path / "kept.xxh3").stat().st_mode) & 0o200
    path.chmod(0o400)
    (tmp_path / "elsewhere").mkdir()
    write_checksums(path, tmp_path / "elsewhere")
    (made,) = (tmp_path / "elsewhere").iterdir()
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_saving_follows_links_and_keeps_modes(tmp_path: Path) -> None:
    target, link = tmp_path / "target.st", tmp_path / "link.st"
    target.touch(mode=0o600)
    link.symlink_to(target.name)
    save_file({"x": np.arange(3)}, link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert (load_file(target, framework="np")["x"] == np.arange(3)).all()
    long = tmp_path / ("n" * 255)
    save_file({"x": np.arange(3)}, long)
    assert sorted(tmp_path.iterdir()) == sorted([target, link, long])


def test_saving_replaces_only_regular_files(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder, "/dev/null", f"{tmp_path}/new/"):
        with pytest.raises(hippogriff.HippogriffError, match=r"regular|folder"):
            save_file({"x": np.zeros(1)}, path)
    assert pipe.is_fifo()
    assert Path("/dev/null").is_char_device()


def test_what_would_be_lost_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "x.st"
    array = np.zeros(10)
    masked = np.ma.masked_array([1, 2], [True, False])
    for wrong, words in (({"x": masked}, "mask"), ({"\ud800": array}, "Unicode")):
        with pytest.raises(hippogriff.InvalidArgument, match=words):
            save_file(wrong, path)
    with pytest.raises(hippogriff.InvalidArgument, match="Unicode"):
        save_file({"x": array}, path, {"a": "\ud800"})
    with pytest.raises(hippogriff.InvalidArgument, match="zero byte"):
        save_file({"x": array}, f"{path}\0")
    assert list(tmp_path.iterdir()) == []


def test_the_memory_of_each_tensor_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    real = _regions._describe_numpy

    def describe(array: Any) -> Any:
        looked_up.append(array)
        return real(array)

    monkeypatch.setattr(_regions, "_describe_numpy", describe)
    arrays = [np.full(number, 1.0) for number in (0, 1, 600)]
    save_file({str(number): array for number, array in enumerate(arrays)}, tmp_path / "x.st")
    for array in arrays:
        assert sum(each is array for each in looked_up) == 1


def test_the_header_is_what_a_json_encoder_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.st"
    names = ['quote"', "back\\slash", "tab\t", "\x00\x1f\x7f", "\u00fc\u2028\U0001f600", ""]
    metadata = {'"': "\n\u00e4", "__metadata__": "}"}
    save_file({name: np.zeros((2, 0, 3), np.int8) for name in names}, path, metadata)
    content = path.read_bytes()
    text = content[8 : 8 + int.from_bytes(content[:8], "little")].decode()
    fields = json.loads(text)
    assert fields.pop("__metadata__") == metadata
    assert fields.keys() == set(names)
    assert fields[""] == {"dtype": "I8", "shape": [2, 0, 3], "data_offsets": [0, 0]}
    again = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    assert text.rstrip(" ") == again
    assert load_file(path, framework="np").keys() == set(names)


def test_the_collector_runs_while_a_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = os.pwritev

    def write(*arguments: Any) -> int:
        seen.append(gc.isenabled())
        return real(*arguments)

    monkeypatch.setattr(os, "pwritev", write)
    save_file({"x": np.zeros(9)}, tmp_path / "x.st")
    assert seen == [True]


def test_large_arrays_between_small_ones_are_written_by_transfers(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    large, small = 8 << 20, (1, 100, 4095, 4097, 70_000)
    generator = np.random.default_rng(5)
    # Of one type each, so that they stay in this order, and begin wherever they come.
    sizes = [size for each in small for size in (each, large + each, large)] + [large - 1]
    tensors = {
        f"t{number:02}": generator.integers(0, 255, size, np.uint8)
        for number, size in enumerate(sizes)
    }
    reports: list[Any] = []
    save_file(tensors, path, explain=reports.append)
    loaded = load_file(path, framework="np")
    assert loaded.keys() == tensors.keys()
    assert all(np.array_equal(loaded[name], tensors[name]) for name in tensors)
    by_route = reports[0].as_dict()["files"][0]["bytes_by_route"]
    by_caller = sum(size for size in sizes if size < large)
    header_bytes = path.stat().st_size - sum(sizes)
    assert by_route.pop("caller") == by_caller + header_bytes
    assert sum(by_route.values()) == sum(size for size in sizes if size >= large)
