"""Where the checksums of a file lie: beside it, beside a link to it, or as somebody says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hippogriff import InvalidArgument
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
