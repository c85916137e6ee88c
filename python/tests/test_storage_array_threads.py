"""What arrays in storage do where no more threads can be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_SETUP = """
import os, resource, sys, numpy
import hippogriff
hippogriff.empty(1, "u1", device="host")
hippogriff.StorageArray  # Its module, too, while it may be read.
most = resource.getrlimit(resource.RLIMIT_NPROC)[1]

def become_other_user():  # root may have as many threads as it likes
    os.setresuid(65534, 65534, 65534)

def allow(threads):
    resource.setrlimit(resource.RLIMIT_NPROC, (threads, most))

def opened(number):
    path = f"{sys.argv[1]}/{number}"
    return hippogriff.StorageArray(path, "u1", (4096,), mode="r+", device="host", load="none")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that other users may read, with the files `0` and `1` of 4096 zeros."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    for number in range(2):
        file = place / str(number)
        file.write_bytes(bytes(4096))
        file.chmod(0o666)
    yield place
    shutil.rmtree(place)


def _told(script: str, folder: Path) -> str:
    """Return what it prints, as a process that may become a user with few threads."""
    command = [sys.executable, "-c", _SETUP + script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if any(words in done.stderr for words in ("Permission denied", "No module named")):
        pytest.skip("another user may not read this checkout, or this Python")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_thread_for_it_an_array_says_so(folder: Path) -> None:
    script = """
become_other_user()
allow(1)
try:
    opened(0)
except hippogriff.OutOfHostMemory as error:
    print(error)
"""
    told = _told(script, folder)
    assert "start a thread for arrays" in told
    assert "pids.max" in told


def test_without_a_thread_for_it_a_flush_fails_alone(folder: Path) -> None:
    script = """
first, second = opened(0), opened(1)
second[:] = 2
become_other_user()
allow(1)
try:
    first.flush()
except hippogriff.OutOfHostMemory as error:
    print(error)
allow(most)
first.clear()
first[:] = 1
first.flush()
second.flush()
"""
    assert "start a thread for arrays" in _told(script, folder)
    assert (folder / "0").read_bytes() == b"\1" * 4096
    assert (folder / "1").read_bytes() == b"\2" * 4096


def test_without_threads_that_help_rows_are_taken_all_the_same(folder: Path) -> None:
    (folder / "0").write_bytes(b"\1" * 4096)
    script = """
array = opened(0)
become_other_user()
allow(1)
print(array.take(numpy.arange(4096)).sum())
"""
    assert _told(script, folder) == "4096\n"
