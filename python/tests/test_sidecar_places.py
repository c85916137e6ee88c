"""Where the checksums of a file lie: beside it, beside a link to it, or as somebody says."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hippogriff import ChecksumMismatch, InvalidArgument, _replacement, _save
from hippogriff._checksum_files import checksum_files
from hippogriff.integrity import SidecarError, verify_checksums, write_checksums
from hippogriff.safetensors import load_file, save_file


def test_checksums_of_a_link_lie_beside_it_or_beside_its_file(tmp_path: Path) -> None:
    blob, link = tmp_path / "blobs" / "5f3a", tmp_path / "snapshots" / "model.safetensors"
    blob.parent.mkdir()
    link.parent.mkdir()
    link.symlink_to(Path("..", "blobs", "5f3a"))
    save_file({"x": np.arange(5)}, blob)
    with pytest.raises(FileNotFoundError) as raised:
        load_file(link, framework="np", verify=True)
    beside_link, beside_blob = Path(f"{link}.xxh3"), Path(f"{blob}.xxh3")
    assert f"open {beside_link}: No such file" in str(raised.value)
    assert str(raised.value).endswith(f"(nor is there {beside_blob})")
    save_file({"x": np.arange(5)}, link, checksum=True)
    assert beside_blob.exists()
    assert not beside_link.exists()
    load_file(link, framework="np", verify=True)
    verify_checksums(link)
    (told,) = checksum_files([str(link)], None, check=True, tell=lambda *_: None)
    assert told.sidecar == str(beside_blob)
    beside_link.write_bytes(b"those beside the link come first")
    with pytest.raises(SidecarError):
        load_file(link, framework="np", verify=True)
    assert write_checksums(link) == str(beside_link)
    beside_blob.unlink()
    load_file(link, framework="np", verify=True)
    verify_checksums(link)


def test_an_empty_path_of_checksums_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "model.safetensors"
    save_file({"x": np.arange(5)}, model, checksum=True)
    for call in (
        lambda: load_file(model, framework="np", verify=""),
        lambda: verify_checksums(model, ""),
        lambda: write_checksums(model, b""),
    ):
        with pytest.raises(InvalidArgument, match="is empty"):
            call()


def test_checksums_do_not_replace_their_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"12345")
    link, second = tmp_path / "link", tmp_path / "second"
    link.symlink_to(path)
    second.hardlink_to(path)
    for name, where in ((path, path), (path, link), (path, second), (link, path)):
        with pytest.raises(InvalidArgument, match="is the file itself"):
            write_checksums(name, where)
    assert path.read_bytes() == second.read_bytes() == b"12345"


def test_saves_of_one_file_at_once_leave_its_own_checksums(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for _ in range(10):
        with ThreadPoolExecutor(8) as pool:
            for each in [
                pool.submit(save_file, {"a": np.full(5000, number)}, path, checksum=True)
                for number in range(8)
            ]:
                each.result()
        load_file(path, framework="np", verify=True)
        assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, f"{path.name}.xxh3"]


def test_a_folder_that_somebody_has_locked_is_waited_for_no_longer_than_need_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_save, "_LOCK_SECONDS", 0.05)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        save_file({"a": np.zeros(5)}, tmp_path / "a", checksum=True)
    finally:
        os.close(descriptor)
    load_file(tmp_path / "a", framework="np", verify=True)


def test_checksums_of_a_file_that_was_replaced_meanwhile_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": np.zeros(5)}, path)

    def replace(*_: int) -> None:
        save_file({"a": np.ones(5)}, path, checksum=True)

    with pytest.raises(ChecksumMismatch, match="was replaced"):
        write_checksums(path, progress=replace)
    verify_checksums(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, f"{path.name}.xxh3"]


def test_checksums_are_not_written_while_somebody_saves(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    with ThreadPoolExecutor(1) as pool:
        with _save.alone_with(str(path)):
            made = pool.submit(write_checksums, path)
            with pytest.raises(TimeoutError):
                made.result(0.1)
        made.result()
    verify_checksums(path)


def test_a_save_that_was_late_leaves_the_checksums_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    commit = _replacement.Replacement.commit

    def commit_and_let_go(replacement: _replacement.Replacement) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(_save, "_LOCK_SECONDS", 0.01)
        commit(replacement)
        save_file({"a": np.ones(5)}, path, checksum=True)

    monkeypatch.setattr(_replacement.Replacement, "commit", commit_and_let_go)
    save_file({"a": np.zeros(5)}, path, checksum=True)
    np.testing.assert_array_equal(load_file(path, framework="np", verify=True)["a"], np.ones(5))
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, f"{path.name}.xxh3"]


def test_a_child_forked_during_a_save_does_not_keep_its_folder(tmp_path: Path) -> None:
    goes_on, told = os.pipe()
    with _save.alone_with(str(tmp_path / "a")):
        child = os.fork()
        if child == 0:
            os.close(told)
            os.read(goes_on, 1)
            os._exit(0)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(told)
        os.waitpid(child, 0)
        os.close(folder)
        os.close(goes_on)
