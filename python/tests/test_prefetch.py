"""Reading ahead into the page cache for a read that will come."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff import HippogriffError, InvalidArgument, IoError
from hippogriff._file import File
from hippogriff._frameworks import _Numpy
from hippogriff.safetensors import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1 << 20
_PATIENCE = 20.0


def drop_from_page_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(path: Path) -> float:
    """Return how much of a file is in the page cache, 0 to 1."""
    return float(hippogriff.explain(path, device="host")["cached_fraction"])


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file of which nothing is in the page cache."""
    path = tmp_path / "data"
    path.write_bytes(np.random.default_rng(3).bytes(24 * _MIB))
    drop_from_page_cache(path)
    if cached_share(path) > 0.5:
        pytest.skip("this file system keeps its files in memory")
    return path


def _comes(path: Path, share: float = 1.0) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while cached_share(path) < share:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_file_is_read_ahead_by_path_and_by_file(cold: Path) -> None:
    hippogriff.prefetch(cold)
    assert _comes(cold)
    drop_from_page_cache(cold)
    with hippogriff.open(cold) as file:
        # Sent: that makes room for what is asked for next.
        file.read_into(np.empty(24 * _MIB, np.uint8))
        drop_from_page_cache(cold)
        file.prefetch(12 * _MIB, 6 * _MIB)
        assert _comes(cold, 0.2)
    assert cached_share(cold) < 0.5


def test_what_cannot_be_read_ahead_is_told(cold: Path) -> None:
    for offset, size in ((25 * _MIB, None), (0, 25 * _MIB), (-1, None), (0, -1)):
        with pytest.raises(InvalidArgument):
            hippogriff.prefetch(cold, offset, size)
    with pytest.raises(IoError):
        hippogriff.prefetch(cold.with_name("nothing"))
    with pytest.raises(InvalidArgument):
        hippogriff.prefetch(cold.parent)
    file = hippogriff.open(cold)
    file.close()
    with pytest.raises(InvalidArgument):
        file.prefetch()
    hippogriff.prefetch(cold, 0, 0)
    hippogriff.prefetch(cold, 24 * _MIB)
    assert cached_share(cold) < 0.5


def test_nothing_is_read_ahead_where_nothing_is_parked(cold: Path) -> None:
    code = f"import hippogriff, time; hippogriff.prefetch({str(cold)!r}); time.sleep(0.3)"
    for parking, comes in (("off", False), ("64MiB", True)):
        environment = {**os.environ, "HIPPOGRIFF_PARKING": parking}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        assert (cached_share(cold) > 0.5) == comes


def test_a_load_that_starts_a_gpu_reads_ahead_and_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}.safetensors" for number in range(2)]
    for number, path in enumerate(paths):
        save_file({f"t{number}": np.full(100, number)}, path)
    asked: list[str] = []

    def refuse(self: File, *_: Any) -> None:
        asked.append(self.path)
        raise HippogriffError("no thread")

    monkeypatch.setattr(File, "prefetch", refuse)
    assert len(load_file(paths, framework="np")) == 2
    assert asked == []
    monkeypatch.setattr(_Numpy, "starts_gpu", True)
    loaded = load_file(paths, framework="np")
    assert asked == [str(paths[0])]
    assert all((loaded[f"t{number}"] == number).all() for number in range(2))
