"""E7's limit: the drive alone reads and writes what the eight programs do."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from reproduce_programs import fake_programs

from hippogriff._huge_pages import touched_memory
from hippogriff.reproduce import drive
from hippogriff.reproduce.bench import Bench, Places
from hippogriff.reproduce.together import Need, Together


def test_drive_alone_reads_and_writes_what_the_eight_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(Places(tmp_path, tmp_path, fake_programs(tmp_path / "bin")), "host", 60)
    seen: list[drive.Job] = []
    moved = drive._Mover.run

    def look(mover: drive._Mover, job: drive.Job) -> None:
        moved(mover, job)
        assert job.target.stat().st_size == job.target_bytes == 5 << 20
        assert any(job.target.read_bytes()[-4096:])
        seen.append(job)

    monkeypatch.setattr(drive._Mover, "run", look)
    record = Together(bench, "tiny", {"nn": Need(4096, 0, 5 << 20)}).measure_drive("nn")
    assert len(seen) == 8 * len(drive.SHAPES)
    assert len({job.source for job in seen}) == 8
    assert record["seconds"] == min(each["seconds"] for each in record["tries"])
    sizes = {job.source: job.source.stat().st_size for job in seen}
    assert (record["read_bytes"], record["written_bytes"]) == (sum(sizes.values()), 40 << 20)
    assert not list(bench.files.glob("result.*")), "what it wrote is removed"


@pytest.mark.parametrize("source_bytes", [0, 1, 4096, (3 << 20) + 1])
def test_drive_moves_every_byte_of_files_of_any_size(tmp_path: Path, source_bytes: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * source_bytes)
    read: list[int] = []
    preadv = os.preadv

    def count(*words: Any) -> int:
        read.append(preadv(*words))
        return read[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "preadv", count)
        drive.move(
            [drive.Job(source, tmp_path / "target", source_bytes)], drive.Shape(1, 2, 1 << 20), 60
        )
    assert sum(read) == source_bytes
    assert (tmp_path / "target").stat().st_size == source_bytes


def test_drive_tells_of_files_that_cannot_be_moved_and_stops(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    jobs = [drive.Job(source, tmp_path / "a", 9), drive.Job(tmp_path / "none", tmp_path / "b", 1)]
    with pytest.raises(FileNotFoundError, match="none"):
        drive.move(jobs, drive.Shape(2, 2, 1 << 20), 60)
    with pytest.raises(TimeoutError):
        drive.move([drive.Job(source, tmp_path / "c", 1)], drive.Shape(1, 2, 1 << 20), -1)


def test_a_job_that_fails_leaves_its_memory_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EIO, "the drive is gone")

    source = tmp_path / "source"
    source.write_bytes(b"x")
    mover = drive._Mover(drive.Shape(1, 2, 1 << 20), 60)
    monkeypatch.setattr(os, "preadv", refuse)
    with pytest.raises(OSError, match="the drive is gone"):
        mover.run(drive.Job(source, tmp_path / "target", 1))
    assert len(mover._memory) == 2


def test_memory_for_direct_io_may_be_of_huge_pages() -> None:
    memory = touched_memory(4 << 20, b"noise")
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert (address % (2 << 20), len(memory)) == (0, 4 << 20)
    assert bytes(memory[:10]) == b"noisenoise"
    assert memory[-1] != 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= address < end:
            assert line.split()[1] == "rw-p", "shared memory has small pages"
