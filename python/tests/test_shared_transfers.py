"""Transfers of other processes, as people and Prometheus see them."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from hippogriff import _show
from hippogriff.sharing import metrics, show
from hippogriff.sharing.arrays import ArrayRates


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
        for part in show.parts(of["status"], ArrayRates()):
            console.print(part)
    return captured.get()


def test_the_view_lists_transfers_in_flight() -> None:
    text = rendered(status=status(transfer(77), transfer(78, wants_memory=True, phase="waiting")))
    assert "77" in text
    assert "nvme0n1" in text
    assert "2.00" in text
    assert "waits for memory" in text
    assert "nvme0n1" not in rendered(status=status())


def test_metrics_sum_transfers_by_way(monkeypatch: Any) -> None:
    seen = status(transfer(1), transfer(2), transfer(3, drive="", direction="recv"))
    monkeypatch.setattr(metrics, "node_status", lambda: seen)
    registry = CollectorRegistry()
    registry.register(metrics.NodeCollector())
    text = generate_latest(registry).decode()
    way = 'device="GPU-1",direction="send",drive="nvme0n1",route="pipelined"'
    assert f"hippogriff_transfers{{{way}}} 2.0" in text
    assert f"hippogriff_transfer_bytes_per_second{{{way}}} 4e+09" in text


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
