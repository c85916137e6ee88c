"""Raw block devices as files, on a loop device where root may make one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hippogriff
from hippogriff import _library
from hippogriff.safetensors import save_file

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = (3 << 20) + 512


@pytest.fixture(params=[512, 4096])
def device(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A block device, whose blocks have 512 or 4096 bytes, of SIZE bytes or a few more."""
    losetup = shutil.which("losetup", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if losetup is None or os.geteuid() != 0:
        pytest.skip("only root makes loop devices, with losetup")
    behind = tmp_path / "behind"
    with behind.open("wb") as file:
        file.truncate(-(-SIZE // request.param) * request.param)
    command = [losetup, "--find", "--show", "--sector-size", str(request.param), str(behind)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if made.returncode:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    path = Path(made.stdout.strip())
    yield path
    subprocess.run([losetup, "--detach", path], timeout=60, check=True)


def _size(path: Path) -> int:
    with path.open("rb") as file:
        return file.seek(0, os.SEEK_END)


def _drop_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_a_device_is_written_and_read_whole(device: Path) -> None:
    size = _size(device)
    content = np.random.default_rng(1).integers(0, 255, size, np.uint8)
    assert hippogriff.write(device, content) == size
    _drop_cache(device)
    assert device.is_block_device()
    assert device.read_bytes() == content.tobytes()
    for route in ("auto", "pipelined", "mapped", "parked", "direct"):
        _drop_cache(device)
        assert (hippogriff.read(device, device="host", route=route).to_numpy() == content).all()


def test_parts_with_any_ends_are_written_in_place(device: Path) -> None:
    size = _size(device)
    content = np.zeros(size, np.uint8)
    with hippogriff.open(device, "r+") as file:
        assert file.size == size
        for offset, part in ((777, 300_001), (size - 100, 100), (4096, 2 << 20)):
            content[offset : offset + part] = offset % 251 + 1
            assert file.write_from(content[offset : offset + part], offset) == part
            back = np.zeros(part, np.uint8)
            _drop_cache(device)
            assert file.read_into(back, offset) == part
            assert (back == offset % 251 + 1).all()
    assert device.read_bytes() == content.tobytes()


def test_what_is_too_large_is_refused_and_nothing_is_written(device: Path) -> None:
    size = _size(device)
    with pytest.raises(OSError, match="more than") as told:
        hippogriff.write(device, np.ones(size + 1, np.uint8))
    assert isinstance(told.value, hippogriff.IoError)
    with hippogriff.open(device, "r+") as file, pytest.raises(hippogriff.IoError, match="ENOSPC"):
        file.write_from(np.ones(1000, np.uint8), size - 999)
    assert not any(device.read_bytes())


def test_nothing_is_put_in_the_place_of_a_device(device: Path) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match="no regular file"):
        save_file({"a": np.ones(3)}, device)
    with pytest.raises(hippogriff.InvalidArgument, match="no regular file"):
        hippogriff.write(device, np.ones(0))
    assert device.is_block_device()


def test_the_command_copies_to_a_device_and_from_it(device: Path, tmp_path: Path) -> None:
    source, back, large = (tmp_path / name for name in ("source", "back", "large"))
    content = np.random.default_rng(2).bytes(2_000_001)
    source.write_bytes(content)
    large.write_bytes(bytes(SIZE + 8192))

    def command(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hippogriff", *map(str, arguments)],
            env={**os.environ, "HIPPOGRIFF_LIBRARY": _library.lib._name},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    done = command("copy", "--verify", source, device)
    assert done.returncode == 0, done.stderr
    assert device.is_block_device()
    assert device.read_bytes()[: len(content)] == content
    done = command("copy", "--verify", device, back)
    assert done.returncode == 0, done.stderr
    assert back.read_bytes() == device.read_bytes()
    assert command("copy", large, device).returncode != 0
    assert device.read_bytes()[: len(content)] == content
    told = command("info", device).stdout
    assert f"{device}: a block device of 3.00 MiB, drive {device.name}" in told


def test_a_write_that_finds_no_room_takes_none(device: Path, tmp_path: Path) -> None:
    mkfs = shutil.which("mkfs.ext4", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mkfs is None or mount is None or umount is None:
        pytest.skip("no mkfs.ext4, mount and umount")
    subprocess.run([mkfs, "-q", str(device)], timeout=60, check=True, capture_output=True)
    folder = tmp_path / "full"
    folder.mkdir()
    if subprocess.run([mount, device, folder], timeout=60, check=False).returncode:
        pytest.skip("it cannot be mounted")
    try:
        for before in (b"", b"x" * 5000):
            path = folder / "f"
            path.write_bytes(before)
            os.sync()
            free = os.statvfs(folder).f_bfree
            with (
                hippogriff.open(path, "r+") as file,
                pytest.raises(OSError, match="No space left"),
            ):
                file.write_from(np.ones(8 << 20, np.uint8), len(before))
            assert path.read_bytes() == before
            assert os.statvfs(folder).f_bfree >= free - 2  # which may say where the others are
    finally:
        subprocess.run([umount, folder], timeout=60, check=True)
