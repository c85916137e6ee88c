"""What the tests share: files to read, on disk and in memory, and a device to read them to."""

from __future__ import annotations

import atexit
import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.fixture(scope="session")
def draw_index() -> Callable[[st.DataObject, tuple[int, ...]], tuple[Any, ...]]:
    """Return what draws an index of integers, slices and ellipses, in bounds or not."""
    bound = st.none() | st.integers(-12, 12)
    step = st.none() | st.integers(1, 4)
    number = st.integers(-9, 8)
    parts = st.builds(slice, bound, bound, step) | number | number.map(np.int64)

    def draw(data: st.DataObject, shape: tuple[int, ...]) -> tuple[Any, ...]:
        index: list[Any] = data.draw(st.lists(parts, max_size=len(shape)))
        if data.draw(st.booleans()):
            index.insert(data.draw(st.integers(0, len(index))), Ellipsis)
        return tuple(index)

    return draw


@pytest.fixture
def torch() -> Any:
    """Return torch where it sees a GPU."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return module


@pytest.fixture
def cupy() -> Any:
    """Return CuPy where it sees a GPU."""
    module = pytest.importorskip("cupy")
    try:
        count = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError:
        count = 0
    if not count:
        pytest.skip("CuPy sees no GPU")
    return module
