"""Transfers of other processes, as people and Prometheus see them."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from node_programs import PATIENCE, until
from node_programs import status as node_status
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from hippogriff import _show
from hippogriff.sharing import metrics, show
from hippogriff.sharing.arrays import ArrayRates
from hippogriff.sharing.transfers import TransferRates, traffic

if TYPE_CHECKING:
    from pathlib import Path


def transfer(pid: int, **changes: Any) -> dict[str, Any]:
    return {
        "pid": pid,
        "client": 1,
        "device": "GPU-1",
        "drive": "nvme0n1",
        "direction": "send",
        "route": "pipelined",
        "phase": "moving",
        "wants_memory": False,
        "channels": 1,
        "drive_requests": 4,
        "bytes_total": 4 << 30,
        "bytes_done": 1 << 30,
        "seconds": 0.5,
        "gb_per_second": 2.0,
        **changes,
    }


def status(*transfers: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": "/dev/shm/some",
        "policy": "mmu",
        "gpus": [],
        "devices": [],
        "reservations": [],
        "clients": [],
        "transfers": list(transfers),
        "arrays": [],
    }


def rendered(**of: Any) -> str:
    console = Console(width=160, record=True, quiet=False, force_terminal=False)
    with console.capture() as captured:
        for part in show.parts(of["status"], ArrayRates(), TransferRates()):
            console.print(part)
    return captured.get()


def test_the_view_lists_transfers_in_flight() -> None:
    text = rendered(status=status(transfer(77), transfer(78, wants_memory=True, phase="waiting")))
    assert "77" in text
    assert "nvme0n1" in text
    assert "2.00" in text
    assert "waits for memory" in text
    assert "nvme0n1" not in rendered(status=status())


@pytest.mark.parametrize("is_terminal", [False, True], ids=["a pipe", "a dumb terminal"])
def test_what_has_no_screen_gets_one_view_below_the_other(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    shown = io.StringIO()
    environ = {"TERM": "dumb"}
    console = Console(file=shown, width=160, force_terminal=is_terminal, _environ=environ)
    seen = iter([status(transfer(77)), status(transfer(78))])
    monkeypatch.setattr(show, "stdout", lambda: console)
    monkeypatch.setattr(show, "node_status", lambda: next(seen))
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(StopIteration):
        show.follow_status(1.0)
    assert shown.getvalue().count("/dev/shm/some: mmu\n") == 2
    assert "\x1b[?" not in shown.getvalue()


def test_metrics_sum_transfers_by_way(monkeypatch: Any) -> None:
    seen = status(transfer(1), transfer(2), transfer(3, drive="", direction="recv"))
    monkeypatch.setattr(metrics, "node_status", lambda: seen)
    registry = CollectorRegistry()
    registry.register(metrics.NodeCollector())
    text = generate_latest(registry).decode()
    way = 'device="GPU-1",direction="send",drive="nvme0n1",route="pipelined"'
    assert f"hippogriff_transfers{{{way}}} 2.0" in text
    assert f"hippogriff_transfer_bytes_per_second{{{way}}} 4e+09" in text


class Looks:
    """Looks at a node a second after each other, and the rates of transfers then."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rates = TransferRates(lambda: self.now)

    def look(self, *transfers: dict[str, Any]) -> list[float]:
        seen = status(*transfers)
        self.rates.add_to(seen)
        self.now += 1
        return [each["gb_per_second_now"] for each in seen["transfers"]]


def at(seconds: float, done: float, **changes: Any) -> dict[str, Any]:
    """Return a transfer after so many seconds and GB."""
    done_bytes = int(done * 1e9)
    return transfer(
        1, seconds=seconds, bytes_done=done_bytes, gb_per_second=done / seconds, **changes
    )


def test_rates_are_those_between_two_looks() -> None:
    looks = Looks()
    assert looks.look(at(1, 1)) == pytest.approx([1], rel=1e-6)
    assert looks.look(at(2, 1)) == pytest.approx([0], abs=1e-6)
    assert looks.look(at(3, 3.5)) == pytest.approx([2.5], rel=1e-6)
    assert looks.look() == []
    assert looks.look(at(5, 4)) == pytest.approx([0.8], rel=1e-6), "nothing is known of before"


def test_rates_hold_where_two_looks_are_too_close() -> None:
    looks = Looks()
    looks.look(at(1, 1))
    looks.look(at(2, 3))
    looks.now = 101.01
    assert looks.look(at(2.01, 3)) == pytest.approx([2], rel=1e-6)
    looks.now = 102
    assert looks.look(at(3, 4)) == pytest.approx([1], rel=1e-6)


def test_transfers_that_are_alike_are_told_apart_by_when_they_began() -> None:
    looks = Looks()
    looks.look(at(5, 1), at(1, 3))
    assert looks.look(at(2, 4), at(6, 3)) == pytest.approx([1, 2], rel=1e-6)
    assert looks.look(at(0.5, 2), at(7, 3)) == pytest.approx([4, 0], rel=1e-6)
    # One that began when another did, and has done less, is another one.
    assert looks.look(at(1.5, 1)) == pytest.approx([1 / 1.5], rel=1e-6)


def test_traffic_is_summed_up_by_drive_and_by_link() -> None:
    seen = status(
        transfer(1, client=1),
        transfer(1, client=1, direction="recv", gb_per_second=1.0),
        transfer(2, client=2, device="GPU-2", gb_per_second_now=0.5),
        transfer(3, client=3, drive=""),
        transfer(4, client=4, drive="sda", device=""),
    )
    assert traffic(seen) == {
        "drives": [
            {
                "drive": "nvme0n1",
                "transfers": 3,
                "programs": 2,
                "send_gb_per_second": 2.5,
                "recv_gb_per_second": 1.0,
            },
            {
                "drive": "sda",
                "transfers": 1,
                "programs": 1,
                "send_gb_per_second": 2.0,
                "recv_gb_per_second": 0.0,
            },
        ],
        "links": [
            {
                "device": "GPU-1",
                "transfers": 3,
                "programs": 2,
                "send_gb_per_second": 4.0,
                "recv_gb_per_second": 1.0,
            },
            {
                "device": "GPU-2",
                "transfers": 1,
                "programs": 1,
                "send_gb_per_second": 0.5,
                "recv_gb_per_second": 0.0,
            },
        ],
    }


def test_the_view_has_a_row_for_each_drive_and_link() -> None:
    seen = status(transfer(1), transfer(2, client=2, direction="recv"))
    seen["gpus"] = [{"uuid": "GPU-1", "index": 3, "memory_bytes": 1, "used_bytes": 0}]
    seen["devices"] = [{**seen["gpus"][0], "promised_bytes": 0, "outside_bytes": 0}]
    seen["clients"] = [{"client": 1, "unshown_transfers": 5}, {"client": 2}]
    text = rendered(status=seen)
    rows = [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]
    assert "drive nvme0n1 2 2 2.00 2.00 4.00" in rows
    assert "link of GPU 3 2 2 2.00 2.00 4.00" in rows
    assert "5 more transfers are in flight" in text


def test_metrics_sum_transfers_by_drive_and_by_link(monkeypatch: Any) -> None:
    collector = metrics.NodeCollector()
    registry = CollectorRegistry()
    registry.register(collector)
    both = [transfer(1), transfer(2, client=2, direction="recv", drive="")]
    monkeypatch.setattr(metrics, "node_status", lambda: status(*both))
    text = generate_latest(registry).decode()
    assert 'hippogriff_drive_programs{drive="nvme0n1"} 1.0' in text
    assert 'hippogriff_link_programs{device="GPU-1"} 2.0' in text
    assert 'hippogriff_drive_bytes_per_second{direction="send",drive="nvme0n1"} 2e+09' in text
    assert 'hippogriff_link_bytes_per_second{device="GPU-1",direction="recv"} 2e+09' in text
    both[0] = {**both[0], "seconds": 0.7, "bytes_done": both[0]["bytes_done"] + 10**8}
    text = generate_latest(registry).decode()
    assert 'hippogriff_drive_bytes_per_second{direction="send",drive="nvme0n1"} 5' in text


def test_ps_sums_transfers_of_programs_up(machine: dict[str, str], big_file: Path) -> None:
    hold = "import time, hippogriff; held = hippogriff.reserve('60MiB'); time.sleep(600)"
    read = f"import hippogriff; hippogriff.read({str(big_file)!r}, memory_timeout=600)"
    programs = []
    try:
        for code, key in ((hold, "reservations"), (read, "transfers")):
            programs.append(subprocess.Popen([sys.executable, "-c", code], env=machine))
            until(lambda key=key: bool(node_status(machine)[key]))  # type: ignore[misc]
        (link,) = node_status(machine)["traffic"]["links"]
        assert (link["device"], link["transfers"], link["programs"]) == ("host", 1, 1)
    finally:
        for program in programs:
            program.kill()
            program.wait(PATIENCE)


def plan(threads: int, depth: int) -> dict[str, Any]:
    return {
        "direct_channels": 0,
        "mapped_channels": 0,
        "buffered_channels": threads,
        "direct_io_depth": depth,
        "park": False,
    }


def test_explain_says_who_else_is_there_and_what_that_changed() -> None:
    routes = [{"route": "pipelined", "possible": True, "seconds": 4.0, "plan": plan(0, 4)}]
    outlook: dict[str, Any] = {
        "chosen": "pipelined",
        "routes": routes,
        "other_processes": {
            "drive": {"processes": 3, "bytes_per_second": 5e9, "requests": 12},
            "link": {"processes": 0, "bytes_per_second": 0.0},
            "want_memory": 1,
            "without_them": {"route": "pipelined", "seconds": 1.0, "plan": plan(0, 16)},
        },
    }
    text = "\n".join(_show.other_processes(outlook))
    assert "3 other programs move 5.00 GB/s over this drive: 1 of 4 shares" in text
    assert "1 wait for memory" in text
    assert "without them: pipelined in 1.000000 s" in text
    assert "depth 16 at the drive" in text
    assert "depth 4 at the drive" in text
    assert _show.other_processes({"chosen": "pipelined", "routes": routes}) == []
