"""Files of a container's image: overlayfs, on which cachestat counts no page."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hippogriff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZES = [1 << 20, 16 << 20]  # counted page by page, and by windows


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """A folder of an overlay, where root may mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts an overlay")
    layers = {name: tmp_path / name for name in ("lowerdir", "upperdir", "workdir")}
    for folder in (*layers.values(), tmp_path / "merged"):
        folder.mkdir()
    options = ",".join(f"{name}={folder}" for name, folder in layers.items())
    command = ["mount", "-t", "overlay", "overlay", "-o", options, str(tmp_path / "merged")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if made.returncode:
        pytest.skip(f"no overlay: {made.stderr.strip()}")
    yield tmp_path / "merged"
    subprocess.run(["umount", tmp_path / "merged"], timeout=60, check=True)


@pytest.mark.parametrize("size", SIZES)
def test_the_page_cache_of_an_overlay_is_seen(overlay: Path, size: int) -> None:
    path, content = overlay / "file", os.urandom(size)
    path.write_bytes(content)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        assert file.read() == content
        assert hippogriff.explain(path)["cached_fraction"] == 1
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert hippogriff.explain(path)["cached_fraction"] < 0.5
    array = hippogriff.read(path, device="host")
    assert np.from_dlpack(array).tobytes() == content  # type: ignore[arg-type,unused-ignore]
