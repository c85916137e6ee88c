"""What the tests share: files to read, on disk and in memory, and a device to read them to."""

from __future__ import annotations

import atexit
import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Before the package is imported: tests must not touch the user's calibration.
_scratch = tempfile.TemporaryDirectory(prefix="hippogriff-tests-")
atexit.register(_scratch.cleanup)
os.environ["HIPPOGRIFF_CALIBRATION"] = str(Path(_scratch.name) / "calibration.json")
os.environ.setdefault("HIPPOGRIFF_DEVICE", "host")

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("hippogriff", deadline=None)
hypothesis.settings.load_profile("hippogriff")


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system with a drive, and one in memory."""
    if request.param == "disk":
        yield tmp_path
        return
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(prefix="hippogriff-tests-", dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    """A file of 48 MiB and a few bytes."""
    path = tmp_path / "big"
    path.write_bytes(random.Random(1).randbytes((48 << 20) + 13))
    return path
