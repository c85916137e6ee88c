"""E6 of `hippogriff reproduce`: weaker CPUs, their speed and energy."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from reproduce_programs import fake_programs, whole

from hippogriff.reproduce import experiments, papers
from hippogriff.reproduce.all_figures import figures
from hippogriff.reproduce.bench import Bench, Places
from hippogriff.reproduce.effort import QUICK
from hippogriff.reproduce.experiments import Experiments
from hippogriff.reproduce.figures import Measurements
from hippogriff.reproduce.journal import Journal
from hippogriff.reproduce.report import write_page

if TYPE_CHECKING:
    from pathlib import Path


class FakeMeter:
    """A counter of a GPU's energy, or none."""

    measures = True

    def __init__(self, _device: str) -> None:
        pass

    def begin(self) -> None:
        pass

    def end(self) -> dict[str, Any]:
        measured = {"gpu_joules": 100.0} if self.measures else {}
        return {"seconds": 2.0, "measured": measured, "why_absent": {"cpu": "no RAPL"}}


def measured(tmp_path: Path, case: str) -> dict[str, Any]:
    programs = fake_programs(tmp_path / "bin")
    bench = Bench(Places(tmp_path, tmp_path, programs), "host", 60)
    effort = dataclasses.replace(QUICK, core_programs=("nn",), energy_seconds=0.5)
    units = Experiments(bench, effort, Journal(tmp_path / "journal")).units(("E6",))
    record = next(unit for unit in units if unit.key == f"cores/nn/tiny/{case}/run/0").measure()
    if "absent" in record:  # no file is cold here
        pytest.skip(record["absent"])
    return record


def test_energy_of_few_cores_is_measured_over_seconds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "Meter", FakeMeter)
    alone = measured(tmp_path, "1/alone")
    assert len(alone["repeats"]) >= 1, "it was too short for the counter"
    assert alone["energy"]["measured"] == {"gpu_joules": 100.0}
    runs = 1 + len(alone["repeats"])
    assert alone["energy"]["modelled"]["cpu_joules"] == pytest.approx(7.5 * runs)
    assert measured(tmp_path, "1/busy")["repeats"] == []
    monkeypatch.setattr(FakeMeter, "measures", False)
    assert measured(tmp_path, "1/alone")["repeats"] == []


def cores(count: int, way: str, joules: float, *, modelled: float = 50.0) -> dict[str, Any]:
    record = whole("nn", way, 0)
    energy = {
        "seconds": 2.0,
        "measured": {"gpu_joules": joules},
        "modelled": {"cpu_joules": modelled},
        "why_absent": {"cpu": "no RAPL"},
    }
    key = f"cores/nn/large/{count}/alone/{way}/0"
    more = {"key": key, "cores": count, "busy": False, "energy": energy, "repeats": [record]}
    return {**record, **more}


def named(records: list[dict[str, Any]], name: str) -> Any:
    return next(each for each in figures(Measurements([], records)) if each.name == name)


def medians(panel: Any, way: str) -> dict[str, float]:
    values = zip(panel.places, panel.series[way], strict=True)
    return {place: round(value.median, 3) for place, value in values if value is not None}


def test_weak_cpus_stand_beside_the_papers() -> None:
    idle = {
        "key": "energy/idle/0",
        "idle": True,
        "energy": {"measured": {"gpu_joules": 20.0}, "seconds": 2.0, "why_absent": {}},
    }
    records = [
        idle,
        cores(4, "baseline", 200.0, modelled=100.0),
        cores(4, "run", 100.0),
        cores(1, "run", 120.0),
    ]
    speed = named(records, "weak_cpus").panels[0]
    assert speed.said == papers.WEAK_CPU
    assert medians(speed, "hippogriff") == {"4 cores": 1.667, "1 core": 1.667}
    with_idle, above_idle = named(records, "weak_energy").panels
    assert with_idle.said == papers.WEAK_ENERGY
    assert "GPU board, measured, idle included" in with_idle.title
    assert medians(with_idle, "hippogriff") == {"4 cores": 0.5, "1 core": 0.6}
    assert medians(above_idle, "hippogriff") == {"4 cores": 0.444, "1 core": 0.556}
    modelled = named(records, "modelled_weak_energy")
    assert [medians(panel, "hippogriff") for panel in modelled.panels] == [
        {"4 cores": 0.5, "1 core": 0.5}
    ]
    assert "A model, not a measurement" in modelled.why


def test_means_of_programs_are_not_shown_as_medians_of_runs(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "results")
    machine = {"device": "G", "processor": "P", "cores": 4}
    facts = {
        "started": "now",
        "effort": "full",
        "command_line": "x",
        "build": {},
        "machine": machine,
    }
    journal.begin_run(facts)
    for record in (cores(4, "baseline", 1.0), cores(4, "run", 1.0)):
        journal.add(record)
    page = write_page([tmp_path / "results"], tmp_path / "page", plots=False).read_text()
    assert "<tr><td>4 cores</td><td>1</td><td></td><td>1.67</td></tr>" in page


def test_results_of_before_have_speed_alone() -> None:
    records = [cores(4, way, 1.0) for way in ("baseline", "run")]
    for record in records:
        del record["energy"], record["repeats"]
    assert not named(records, "weak_cpus").empty
    assert named(records, "weak_energy").empty
    assert named(records, "modelled_weak_energy").empty
