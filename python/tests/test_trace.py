"""HIPPOGRIFF_TRACE: what is in a trace, whoever is forked, killed or writes beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SMALL, LARGE = 1 << 20, 24 << 20
PATIENCE = 60
READS = """
    import sys, hippogriff as h
    for name in sys.argv[1:]:
        h.read(name, device="host")
"""
# Into memory that is there, from which a synchronous transfer takes the short path.
INTO = """
    import sys, numpy as np, hippogriff as h
    with h.open(sys.argv[1]) as file:
        file.read_into(h.empty({size}, "uint8", device="host"))
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[int, str]:
    made = {}
    for size in (SMALL, LARGE):
        path = tmp_path / f"{size}.bin"
        path.write_bytes(os.urandom(size))
        made[size] = str(path)
    return made


def start(trace: Path, code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        # From Python 3.12 on a fork beside threads, which is what is tested, is warned of.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code), *words],
        env={**os.environ, "HIPPOGRIFF_TRACE": str(trace), "HIPPOGRIFF_NODE": "off"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(trace: Path, code: str, *words: str) -> None:
    program = start(trace, code, *words)
    _, errors = program.communicate(timeout=PATIENCE)
    assert (program.returncode, errors) == (0, "")


def slices(trace: Path) -> list[dict[str, Any]]:
    events = json.loads(trace.read_text())
    tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M"}
    found = [event for event in events if event["ph"] == "X"]
    assert all((event["pid"], event["tid"]) in tracks for event in found)
    assert all(event["dur"] >= 0 and event["ts"] > 0 for event in found)
    return found


def test_every_byte_of_a_transfer_is_in_a_slice(tmp_path: Path, files: dict[int, str]) -> None:
    trace = tmp_path / "trace.json"
    run(trace, READS, files[LARGE])
    covered = {
        block
        for event in slices(trace)
        for block in range(
            event["args"]["offset"] >> 12, (event["args"]["offset"] + event["args"]["bytes"]) >> 12
        )
    }
    assert covered == set(range(LARGE >> 12))


def test_small_transfers_are_in_it(tmp_path: Path, files: dict[int, str]) -> None:
    trace = tmp_path / "trace.json"
    run(trace, INTO.format(size=SMALL), files[SMALL])
    (event,) = slices(trace)
    assert (event["name"], event["args"]) == ("small send", {"offset": 0, "bytes": SMALL})


def test_a_trace_of_nothing_is_json_and_may_be_written_over(
    tmp_path: Path, files: dict[int, str]
) -> None:
    trace = tmp_path / "trace.json"
    for _ in range(2):
        run(trace, "import hippogriff as h; h.empty(1, 'uint8', device='host')")
        assert slices(trace) == []
    for _ in range(2):
        run(trace, READS, files[LARGE])
        assert slices(trace)


def test_a_forked_child_leaves_the_trace_whole_and_has_its_own(
    tmp_path: Path, files: dict[int, str]
) -> None:
    trace = tmp_path / "trace.json"
    code = """
        import os, sys, hippogriff as h
        h.read(sys.argv[1], device="host")
        idle = os.fork()
        if idle == 0:
            sys.exit(0)
        os.waitpid(idle, 0)
        reads = os.fork()
        h.read(sys.argv[1], device="host")
        if reads == 0:
            sys.exit(0)
        assert os.waitpid(reads, 0)[1] == 0
    """
    run(trace, code, files[LARGE])
    (of_child,) = tmp_path.glob("trace.*.json")
    assert len({event["pid"] for event in slices(trace)}) == 1
    assert {str(event["pid"]) for event in slices(of_child)} == {of_child.name.split(".")[1]}


def test_programs_that_share_the_variable_write_a_file_each(
    tmp_path: Path, files: dict[int, str]
) -> None:
    trace = tmp_path / "trace.json"
    waits = READS + "\n    print('read', flush=True); sys.stdin.read()"
    holder = start(trace, waits, files[LARGE])
    assert holder.stdout is not None
    assert holder.stdout.readline() == "read\n"
    run(trace, READS, files[LARGE])
    holder.communicate(timeout=PATIENCE)
    (beside,) = tmp_path.glob("trace.*.json")
    assert {event["pid"] for event in slices(trace)} == {holder.pid}
    assert slices(beside)


def test_a_killed_program_leaves_whole_lines(tmp_path: Path, files: dict[int, str]) -> None:
    trace = tmp_path / "trace.json"
    program = start(
        trace,
        """
            import sys, hippogriff as h
            print(len(h.read(sys.argv[1], device="host")), flush=True)
            while True:
                h.read(sys.argv[1], device="host")
        """,
        files[LARGE],
    )
    assert program.stdout is not None
    program.stdout.readline()
    program.send_signal(signal.SIGKILL)
    program.communicate(timeout=PATIENCE)
    text = trace.read_text()
    assert len(json.loads(text + "\n]")) > 10


@pytest.mark.parametrize("content", [b"\0\0", b"[1, 2]\n", b'[\n{"name": 1}]'])
def test_a_file_that_is_no_trace_is_left_alone(
    tmp_path: Path, files: dict[int, str], content: bytes
) -> None:
    trace = tmp_path / "data.bin"
    trace.write_bytes(content)
    program = start(trace, READS, files[SMALL])
    _, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode != 0
    assert "data.bin: invalid argument; the file has something else in it" in errors
    assert trace.read_bytes() == content
