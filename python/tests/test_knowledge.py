"""What the runtime knows: devices, info, predictions, counters, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hippogriff
from hippogriff._sizes import format_size, parse_size

if TYPE_CHECKING:
    from pathlib import Path


def test_the_host_device_is_always_there() -> None:
    hosts = [device for device in hippogriff.devices() if device["name"] == "host"]
    assert len(hosts) == 1
    assert 0 < hosts[0]["memory_free_bytes"] <= hosts[0]["memory_total_bytes"]


def test_info_tells_the_place_and_what_routes_can_do_there(tmp_path: Path) -> None:
    facts = hippogriff.info(tmp_path)
    assert facts["version"] == hippogriff.version
    assert facts["path"]["path"] == str(tmp_path)
    registered = facts["io_registered_buffers"]
    assert registered["possible"] or len(registered["why_not"]) > 10
    for route in facts["devices"][0]["routes"]:
        for ability in (route["send"], route["recv"]):
            assert ability["possible"] or len(ability["why_not"]) > 10
    with pytest.raises(hippogriff.HippogriffError):
        hippogriff.info(tmp_path / "nothing")


@pytest.mark.parametrize("direction", ["send", "recv"])
def test_explain_predicts_every_route_or_says_why_not(big_file: Path, direction: str) -> None:
    outlook = hippogriff.explain(big_file, direction=direction, device="host")
    assert [route["route"] for route in outlook["routes"]] == [
        "direct",
        "mapped",
        "pipelined",
        "parked",
    ]
    possible = {route["route"]: route for route in outlook["routes"] if route["possible"]}
    assert possible[outlook["chosen"]]["seconds"] > 0
    for route in outlook["routes"]:
        assert route["possible"] or route["why_not"]


def test_explain_refuses_what_there_is_not(big_file: Path, tmp_path: Path) -> None:
    with pytest.raises(hippogriff.InvalidArgument):
        hippogriff.explain(big_file, direction="sideways")
    with pytest.raises(hippogriff.InvalidArgument):
        hippogriff.explain(big_file, offset=1 << 40, device="host")
    with pytest.raises(hippogriff.InvalidArgument, match="only"):
        hippogriff.explain(big_file, size=1 << 40, device="host")
    with pytest.raises(FileNotFoundError):
        hippogriff.explain(tmp_path / "nothing")


def test_counters_count(big_file: Path) -> None:
    before = hippogriff.stats()["transfers_finished"]
    hippogriff.read(big_file, device="host")
    assert hippogriff.stats()["transfers_finished"] == before + 1


def test_the_default_device_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPOGRIFF_DEVICE", "host")
    assert hippogriff.default_device() == "host"
    assert hippogriff.empty(1).device == "host"


def test_what_the_calibration_callback_raises_comes_out(tmp_path: Path) -> None:
    steps: list[str] = []

    def stop(step: str, fraction: float) -> None:
        steps.append(step)
        assert 0 <= fraction <= 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hippogriff.calibrate(tmp_path, device="host", progress=stop)
    assert len(steps) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 65536),
        ("1.5 GiB", 3 << 29),
        ("2 gb", 2 * 10**9),
        ("0.1KB", 100),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "1 XB", "1..5", "9" * 30, "9999999TiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(hippogriff.InvalidArgument):
        parse_size(text)


def test_sizes_are_written_for_people() -> None:
    assert format_size(0) == "0 B"
    assert format_size(1023) == "1023 B"
    assert format_size(3 << 29) == "1.50 GiB"
    assert format_size(5 << 40) == "5.00 TiB"
