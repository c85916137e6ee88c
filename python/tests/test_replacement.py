"""Files that are replaced as a whole: their modes, and what is left where that ends early."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff._replacement import Replacement
from hippogriff.arrays import save_npy

if TYPE_CHECKING:
    from pathlib import Path


def test_the_mode_is_that_of_the_file_that_was_there_as_the_new_one_began(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o644)
    replacement = Replacement(path)
    replacement.create(0o666)
    path.unlink()
    replacement.commit()
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("write", [save_npy, hippogriff.write])
def test_a_file_without_a_name_is_not_replaced_by_a_stray_one(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        path.unlink()
        (tmp_path / "file (deleted)").write_bytes(b"somebody's")
        link = f"/proc/self/fd/{file.fileno()}"
        with pytest.raises(hippogriff.InvalidArgument, match="no name"):
            write(link, np.zeros(0, np.uint8))  # an empty one: the library has no part in it
    assert [each.name for each in tmp_path.iterdir()] == ["file (deleted)"]
    assert (tmp_path / "file (deleted)").read_bytes() == b"somebody's"


def _let_syncs_of_folders_fail(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    sync = os.fsync

    def fail(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, "made to fail")
        sync(file)

    monkeypatch.setattr(os, "fsync", fail)


def test_a_folder_that_its_file_system_does_not_sync_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _let_syncs_of_folders_fail(monkeypatch, errno.EINVAL)
    path = tmp_path / "numbers.npy"
    for number in range(2):
        save_npy(path, np.full(5, number))
        assert np.load(path).tolist() == [number] * 5


def test_where_the_folder_cannot_be_synced_that_is_told_and_the_new_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "numbers.npy"
    save_npy(path, np.zeros(5))
    _let_syncs_of_folders_fail(monkeypatch, errno.EIO)
    with pytest.raises(hippogriff.IoError) as raised:
        save_npy(path, np.ones(5))
    assert raised.value.operation == "sync folder"
    assert str(raised.value) == f"sync folder {tmp_path}: Input/output error (errno 5)"
    assert np.load(path).tolist() == [1] * 5
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_behind_the_new_name_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    replacement = Replacement(path)
    replacement.create(0o666)
    link = os.link

    def be_interrupted(*arguments: Any, **options: Any) -> None:
        link(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        replacement.commit()
    replacement.discard()
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_that_is_dropped_is_removed_by_the_process_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replacement, "_open", Replacement._open_named)  # As on NFS.
    replacements = [Replacement(tmp_path / "file")]
    replacements[0].create(0o666)
    child = os.fork()
    if child == 0:
        replacements.clear()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    replacements.clear()
    assert list(tmp_path.iterdir()) == []
