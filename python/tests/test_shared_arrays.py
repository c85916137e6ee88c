"""Arrays in storage of other processes, as people, scripts and Prometheus see them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from hippogriff.sharing import metrics, show
from hippogriff.sharing.arrays import ArrayRates
from hippogriff.sharing.transfers import TransferRates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("numpy")
PATIENCE = 60
MIB = 1 << 20


def array(pid: int, **changes: Any) -> dict[str, Any]:
    return {
        "pid": pid,
        "client": 1,
        "record": 0,
        "device": "host",
        "size_bytes": 64 << 30,
        "cache_bytes": 8 << 30,
        "line_bytes": 4096,
        "opened_ns": 5,
        "seconds": 10.0,
        "accesses": 1000,
        "hits": 750,
        "misses": 200,
        "overwritten": 50,
        "written_back": 20,
        "read_bytes": 40 * 10**9,
        "written_bytes": 5 * 10**9,
        "in_flight": 17,
        "drive_limit": 0,
        "hits_counted": True,
        **changes,
    }


def status(*arrays: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": "/dev/shm/some",
        "policy": "mmu",
        "gpus": [],
        "devices": [],
        "reservations": [],
        "clients": [],
        "transfers": [],
        "arrays": list(arrays),
    }


def rows(rates: ArrayRates, *arrays: dict[str, Any]) -> list[list[str]]:
    """Return the cells of the arrays' part."""
    console = Console(width=160, force_terminal=False)
    with console.capture() as captured:
        for part in show.parts(status(*arrays), rates, TransferRates()):
            console.print(part)
    pids = {str(entry["pid"]) for entry in arrays}
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines()
    ]
    return [row for row in cells if row and row[0] in pids]


def test_the_view_lists_arrays_with_their_rates_since_they_were_opened() -> None:
    of_gpu = array(78, device="GPU-1", accesses=0, hits=0, hits_counted=False)
    sizes = ["64.00 GiB", "8.00 GiB", "4.00 KiB"]
    assert rows(ArrayRates(), array(77), of_gpu) == [
        ["77", "host", *sizes, "75.0%", "75.0%", "20", "4.00", "0.50", "17"],
        ["78", "GPU-1", *sizes, "not counted", "not counted", "20", "4.00", "0.50", "17"],
    ]
    idle = array(79, accesses=0, hits=0)
    assert rows(ArrayRates(), idle)[0][5:7] == ["-", "-"]
    assert rows(ArrayRates()) == []


def test_the_view_tells_how_hits_are_counted_where_they_are_not() -> None:
    console = Console(width=160, force_terminal=False)
    for counted in (True, False):
        with console.capture() as captured:
            for part in show.parts(
                status(array(77, hits_counted=counted)), ArrayRates(), TransferRates()
            ):
                console.print(part)
        assert ("HIPPOGRIFF_COUNT_ACCESSES" in captured.get()) is not counted


def test_the_view_tells_what_a_process_may_have_at_a_drive_that_others_use() -> None:
    assert rows(ArrayRates(), array(77, drive_limit=24))[0][-1] == "17 (drive: 24)"


def test_the_live_view_has_rates_between_two_looks() -> None:
    rates = ArrayRates()
    rows(rates, array(77))
    later = {"seconds": 12.0, "accesses": 1100, "hits": 849, "misses": 201}
    expected = ["77.2%", "99.0%", "0", "1.00", "0.00"]
    assert rows(rates, array(77, **later, read_bytes=42 * 10**9))[0][5:10] == expected
    same = array(77, **later, read_bytes=42 * 10**9)
    assert rows(rates, same)[0][5:10] == expected, "its owner has written nothing new meanwhile"


def test_an_array_in_the_place_of_another_begins_anew() -> None:
    rates = ArrayRates()
    rows(rates, array(77))
    fresh = array(77, opened_ns=6, seconds=20.0, accesses=4000, hits=3000, misses=1000)
    assert rows(rates, fresh)[0][5:8] == ["75.0%", "75.0%", "50"]


def test_numbers_that_cannot_be_are_shown_and_break_nothing() -> None:
    rates = ArrayRates()
    odd = array(77, seconds=0.0, accesses=1, hits=1 << 62, size_bytes=0, line_bytes=1 << 62)
    rows(rates, odd)
    fewer = array(77, seconds=1.0, accesses=0, hits=0, misses=0, read_bytes=0, written_bytes=0)
    assert rows(rates, fewer)[0][5:10] == ["-", "-", "0", "0.00", "0.00"]


def test_metrics_count_each_array_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "node_status", lambda: status(array(77), array(78, misses=3)))
    registry = CollectorRegistry()
    registry.register(metrics.NodeCollector())
    text = generate_latest(registry).decode()
    first, second = (f'client="1",device="host",pid="{pid}",record="0"' for pid in (77, 78))
    assert f"hippogriff_array_misses_total{{{first}}} 200.0" in text
    assert f"hippogriff_array_misses_total{{{second}}} 3.0" in text
    assert f"hippogriff_array_cache_bytes{{{first}}} 8.589934592e+09" in text
    assert f"hippogriff_array_in_flight{{{first}}} 17.0" in text
    assert f"hippogriff_array_drive_limit{{{first}}} 0.0" in text


def test_metrics_leave_out_what_nobody_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    both = status(array(77), array(78, accesses=5, hits=0, hits_counted=False))
    monkeypatch.setattr(metrics, "node_status", lambda: both)
    registry = CollectorRegistry()
    registry.register(metrics.NodeCollector())
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if line.startswith("hippogriff_array_accesses_total{")] == [
        'hippogriff_array_accesses_total{client="1",device="host",pid="77",record="0"} 1000.0'
    ]


def arrays_seen(machine: dict[str, str]) -> list[dict[str, Any]]:
    """Return what another process is told of arrays."""
    answer = subprocess.run(
        [sys.executable, "-m", "hippogriff", "ps", "--json"],
        env=machine,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    arrays: list[dict[str, Any]] = json.loads(answer.stdout)["arrays"]
    return arrays


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for as long as a busy machine may take."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


OWNER = """
    import sys, hippogriff
    with hippogriff.StorageArray(sys.argv[1], "uint8", (4 << 20,), cache="1MiB") as array:
        array[: 2 << 20]
        array[7]
        print(array.statistics()["misses"], flush=True)
        sys.stdin.readline()
    print("closed", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_process_sees_anothers_array_until_that_ends(
    machine: dict[str, str], tmp_path: Path, *, killed: bool
) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(4 * MIB))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(path)],
        env=machine,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        try:
            misses = int(owner.stdout.readline())
            assert misses >= 512
            until(lambda: arrays_seen(machine)[0]["misses"] == misses)
            seen = arrays_seen(machine)[0]
            assert seen["pid"] == owner.pid
            assert seen["device"] == "host"
            assert seen["size_bytes"] == 4 * MIB
            assert seen["cache_bytes"] == MIB
            assert seen["line_bytes"] == 4096
            assert seen["accesses"] >= 512
            assert seen["hits"] <= seen["accesses"]
            assert seen["read_bytes"] == misses * 4096
            assert seen["written_bytes"] == 0
            assert seen["in_flight"] == 0
            assert seen["hits_counted"] is True
            assert seen["drive_limit"] == 0
            assert seen["seconds"] > 0
            if killed:
                owner.kill()
                owner.wait(PATIENCE)
            else:
                owner.stdin.write("\n")
                owner.stdin.flush()
                assert owner.stdout.readline() == "closed\n"
            assert arrays_seen(machine) == []
        finally:
            owner.kill()
