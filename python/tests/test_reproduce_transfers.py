"""E2 of `hippogriff reproduce`: transfers by size, width and route."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from hippogriff.errors import Unsupported
from hippogriff.reproduce import _transfer, children
from hippogriff.reproduce.all_figures import figures
from hippogriff.reproduce.bench import NO_SUCH_ROUTE, ROUTES, Bench, Places
from hippogriff.reproduce.children import Outcome
from hippogriff.reproduce.effort import FULL, QUICK
from hippogriff.reproduce.experiments import Experiments, Unit
from hippogriff.reproduce.figures import Measurements
from hippogriff.reproduce.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1 << 20


def units_of(tmp_path: Path, effort: Any = QUICK) -> list[Unit]:
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    return Experiments(bench, effort, Journal(tmp_path / "journal")).units(("E2",))


@pytest.mark.parametrize("effort", [QUICK, FULL])
def test_transfers_are_measured_by_each_route_and_by_the_chosen_one(
    tmp_path: Path, effort: Any
) -> None:
    keys = {unit.key for unit in units_of(tmp_path, effort)}
    for size_bytes in effort.routed_bytes:
        for kind in ("send/cold", "send/cached", "recv/cold"):
            assert {f"transfer/{size_bytes}/{kind}/{way}" for way in (*ROUTES, "run")} <= keys


def test_a_route_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(4 * _MIB))
    for route in ("direct", "pipelined", "parked"):
        said = _transfer.measure([str(file), "send", "cached", route, "1"])
        assert said["route"] == route
    assert _transfer.measure([str(file), "send", "cached", "run", "1"])["route"] != "parked"


def test_a_route_that_there_is_not_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: list[str]) -> dict[str, object]:
        raise Unsupported("no GPUDirect Storage")

    monkeypatch.setattr(_transfer, "measure", refuse)
    assert _transfer.main([]) == NO_SUCH_ROUTE
    said = Outcome(status=NO_SUCH_ROUTE, seconds=1, output=capsys.readouterr().out, errors="")
    monkeypatch.setattr(children, "run", lambda *_: said)
    by_key = {unit.key: unit for unit in units_of(tmp_path)}
    recv = f"transfer/{16 * _MIB}/recv/cold"  # which needs no file that is cold
    try:
        direct = by_key[f"{recv}/direct"].measure()
        ours = by_key[f"{recv}/run"].measure()
    finally:
        Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60).clean(keep_inputs=False)
    assert "no GPUDirect Storage" in direct["absent"]
    assert "absent" not in ours, "only a route may be missing"
    assert "no GPUDirect Storage" in ours["failure"]


def moved(way: str, size_bytes: int, seconds: float) -> dict[str, Any]:
    fields = {"bytes": size_bytes, "direction": "send", "state": "cached", "way": way}
    key = f"transfer/{size_bytes}/send/cached/{way}"
    return {"key": key, **fields, "result": {"seconds": [seconds] * 2}}


def test_routes_are_shown_beside_the_chosen_one() -> None:
    records = [moved(way, 16 * _MIB, 0.01) for way in ("baseline", "one_channel", "run")]
    records += [moved(way, 16 * _MIB, 0.02) for way in ("mapped", "pipelined")]
    records.append(moved("run", _MIB, 0.001))
    figure = next(f for f in figures(Measurements([], records)) if f.name == "throughput")
    width, routes = figure.panels
    assert width.title == "file to device, cached"
    assert routes.title == "by route: file to device, cached"
    assert width.places == ("1 MiB", "16 MiB")
    assert not any("route" in name for name in width.series)
    assert routes.places == ("16 MiB",)
    shown = {name: values[0].median for name, values in routes.series.items() if values[0]}
    assert shown == {
        "mapped route": pytest.approx(16 * _MIB / 0.02 / 1e9),
        "pipelined route": pytest.approx(16 * _MIB / 0.02 / 1e9),
        "hippogriff": pytest.approx(16 * _MIB / 0.01 / 1e9),
    }
