"""``hippogriff metrics``: the node for Prometheus."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from hippogriff._node import node_status
from hippogriff.errors import InvalidArgument
from hippogriff.sharing.transfers import TransferRates, traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import Metric

_DEVICE_SIZES = {
    "memory": "Memory of the device.",
    "promised": "Memory promised to reservations.",
    "outside": "Memory that programs use which take no part.",
    "free": "Memory that can be promised.",
    "used": "Memory really used.",
}

_ARRAY_SIZES = {
    "array_cache_bytes": ("cache_bytes", "Cache of an array in storage."),
    "array_in_flight": ("in_flight", "Its commands that are not answered."),
    "array_drive_limit": (
        "drive_limit",
        "Requests its process may have at the drive while others use that too; 0: not limited.",
    ),
}
_ARRAY_COUNTS = {
    "array_accesses": (
        "accesses",
        "Lines that it was asked for; absent where kernels use it that do not count them.",
    ),
    "array_misses": ("misses", "Lines that it read."),
    "array_overwritten": ("overwritten", "Lines that came without a read."),
    "array_written_back": ("written_back", "Lines that it wrote."),
    "array_read_bytes": ("read_bytes", "Bytes that it read."),
    "array_written_bytes": ("written_bytes", "Bytes that it wrote."),
}


class NodeCollector:
    """Asks the node anew for every scrape. Thread-safe."""

    def __init__(self) -> None:
        self._rates = TransferRates()

    def collect(self) -> Iterator[Metric]:
        """Yield gauges and counters."""
        status = node_status()
        for name, meaning in _DEVICE_SIZES.items():
            gauge = GaugeMetricFamily(f"hippogriff_device_{name}_bytes", meaning, labels=["device"])
            for device in status["devices"]:
                gauge.add_metric([device["uuid"]], device[f"{name}_bytes"])
            yield gauge
        yield from self._loads(status)
        yield from self._queues(status)
        self._rates.add_to(status)
        yield from self._transfers(status)
        yield from self._traffic(status)
        yield from self._arrays(status)

    def _loads(self, status: Mapping[str, Any]) -> Iterator[GaugeMetricFamily]:
        gauge = GaugeMetricFamily(
            "hippogriff_device_utilization_ratio",
            "Share of the last second in which a kernel ran, by NVML.",
            labels=["device", "model"],
        )
        for gpu in status["gpus"]:
            if "utilization_pct" in gpu:
                gauge.add_metric([gpu["uuid"], gpu["model"]], gpu["utilization_pct"] / 100)
        yield gauge

    def _queues(self, status: Mapping[str, Any]) -> Iterator[GaugeMetricFamily]:
        families = {
            "hippogriff_reservations": "Reservations that hold memory.",
            "hippogriff_deferred": "Reservations that are left for their first use.",
            "hippogriff_waiting": "Requests that wait for memory.",
            "hippogriff_waiting_bytes": "Memory that is waited for.",
            "hippogriff_waiting_seconds_max": "How long the oldest of them has waited.",
        }
        entries = status["reservations"]
        for name, meaning in families.items():
            gauge = GaugeMetricFamily(name, meaning, labels=["device"])
            for device in status["devices"]:
                of_device = [entry for entry in entries if entry["device"] == device["uuid"]]
                waiting = [entry for entry in of_device if entry["waits"]]
                value = {
                    "hippogriff_reservations": sum(entry["size_bytes"] > 0 for entry in of_device),
                    "hippogriff_deferred": sum(entry["deferred"] for entry in of_device),
                    "hippogriff_waiting": len(waiting),
                    "hippogriff_waiting_bytes": sum(
                        entry["wanted_bytes"] - entry["size_bytes"] for entry in waiting
                    ),
                    "hippogriff_waiting_seconds_max": max(
                        (entry["waited_seconds"] for entry in waiting), default=0
                    ),
                }[name]
                gauge.add_metric([device["uuid"]], value)
            yield gauge

    def _transfers(self, status: Mapping[str, Any]) -> Iterator[GaugeMetricFamily]:
        labels = ["device", "drive", "direction", "route"]
        count = GaugeMetricFamily("hippogriff_transfers", "Transfers in flight.", labels=labels)
        speed = GaugeMetricFamily(
            "hippogriff_transfer_bytes_per_second",
            "Their bytes per second since each began, together.",
            labels=labels,
        )
        sums: dict[tuple[str, ...], list[float]] = {}
        for entry in status["transfers"]:
            both = sums.setdefault(tuple(entry[label] for label in labels), [0, 0])
            both[0] += 1
            both[1] += 1e9 * entry["gb_per_second"]
        for key, (transfers, bytes_per_second) in sums.items():
            count.add_metric(key, transfers)
            speed.add_metric(key, bytes_per_second)
        yield count
        yield speed

    def _traffic(self, status: Mapping[str, Any]) -> Iterator[GaugeMetricFamily]:
        sums = traffic(status)
        for what, entries, label in (
            ("drive", sums["drives"], "drive"),
            ("link", sums["links"], "device"),
        ):
            programs = GaugeMetricFamily(
                f"hippogriff_{what}_programs",
                f"Programs that have transfers in flight over the {what}.",
                labels=[label],
            )
            speed = GaugeMetricFamily(
                f"hippogriff_{what}_bytes_per_second",
                "What its transfers in flight moved since the last scrape, or since they began.",
                labels=[label, "direction"],
            )
            for entry in entries:
                programs.add_metric([entry[label]], entry["programs"])
                for direction in ("send", "recv"):
                    bytes_per_second = 1e9 * entry[f"{direction}_gb_per_second"]
                    speed.add_metric([entry[label], direction], bytes_per_second)
            yield programs
            yield speed

    # Each array for itself: a sum would fall, and seem to begin anew, whenever one of them closes.
    def _arrays(self, status: Mapping[str, Any]) -> Iterator[Metric]:
        for family, values in (
            (GaugeMetricFamily, _ARRAY_SIZES),
            (CounterMetricFamily, _ARRAY_COUNTS),
        ):
            for name, (field, meaning) in values.items():
                labels = ["device", "pid", "client", "record"]
                metric = family(f"hippogriff_{name}", meaning, labels=labels)
                for entry in status["arrays"]:
                    if field == "accesses" and not entry["hits_counted"]:
                        continue
                    metric.add_metric([str(entry[label]) for label in labels], entry[field])
                yield metric


def registry() -> CollectorRegistry:
    """Return a registry with the node in it."""
    made = CollectorRegistry()
    made.register(NodeCollector())
    return made


def text() -> str:
    """Return one scrape in Prometheus's text format."""
    return generate_latest(registry()).decode()


def listen_address(listen: str) -> tuple[str, int]:
    """Read ``ADDRESS:PORT`` or ``PORT``; the address is this machine's own if not given."""
    address, _, port = listen.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) >= 2**16:
        raise InvalidArgument(f"--listen {listen}: write it like 9400 or 0.0.0.0:9400")
    return address or "127.0.0.1", int(port)


def serve(listen: str) -> None:
    """Answer scrapes until it is interrupted."""
    address, port = listen_address(listen)
    server, _thread = start_http_server(port, addr=address, registry=registry())
    print(f"http://{address}:{server.server_port}/metrics", flush=True)
    try:
        threading.Event().wait()
    finally:
        server.shutdown()
