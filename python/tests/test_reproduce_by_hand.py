"""E3 of `hippogriff reproduce`: pipelines by hand are tuned, and compared with by the best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from reproduce_programs import SECONDS, answer, fake_programs, whole

from hippogriff.reproduce.all_figures import figures
from hippogriff.reproduce.bench import Bench, Places
from hippogriff.reproduce.effort import FULL, QUICK
from hippogriff.reproduce.experiments import Experiments
from hippogriff.reproduce.figures import Measurements
from hippogriff.reproduce.journal import Journal
from hippogriff.reproduce.report import write_page
from hippogriff.reproduce.targets import targets

if TYPE_CHECKING:
    from pathlib import Path


def test_pipelines_by_hand_are_run_in_other_shapes(tmp_path: Path) -> None:
    bench = Bench(Places(tmp_path, tmp_path, fake_programs(tmp_path / "bin")), "host", 60)
    units = Experiments(bench, QUICK, Journal(tmp_path / "journal")).units(("E3",))
    (unit,) = [each for each in units if each.key == "shape/hybridsort/tiny/cached/2 x 64KiB/0"]
    record = unit.measure()
    assert record["command"][-4:] == ["--threads", "2", "--piece", "64KiB"], record
    assert record["command"][1] == "pipelined"
    assert record["shape"] == "2 x 64KiB"
    (beside,) = [each for each in units if each.key == "shape/hybridsort/tiny/cached/run/0"]
    assert beside.measure()["command"][1] == "run", "hippogriff takes its turn"
    assert {threads for threads, _ in FULL.shapes} == {4, 8, 12, 24}
    assert {piece for _, piece in FULL.shapes} > {"1MiB", "2MiB"}


def test_the_fastest_shape_is_measured_again_beside_hippogriff(tmp_path: Path) -> None:
    bench = Bench(Places(tmp_path, tmp_path, fake_programs(tmp_path / "bin")), "host", 60)
    journal = Journal(tmp_path / "journal")
    units = Experiments(bench, replace(QUICK, tuned_repetitions=2), journal).units(("E3",))
    again = [each for each in units if each.key.startswith("tuned/hybridsort/tiny/cold/")]
    assert [each.key.split("/", 4)[4] for each in again] == [
        *("run/0", "pipelined/0"),
        *("pipelined/1", "run/1"),
    ]
    lacking = again[0].measure()
    assert "no shape of the pipeline by hand was measured" in lacking["failure"]
    for shape, send in (("default", 2.0), ("2 x 64KiB", 1.0)):
        record = {**shaped(shape, send, 0), "key": f"shape/hybridsort/tiny/cold/{shape}/0"}
        journal.add(record)
    ours, by_hand = (each.measure() for each in again[:2])
    journal.add(ours)
    for number in range(2):
        record = {
            **shaped("default", 0.5, number),
            "key": f"shape/hybridsort/tiny/cold/default/{number}",
        }
        journal.add(record)
    assert again[2].measure()["shape"] == "2 x 64KiB", "it stays with what it chose"
    assert ours["command"][1] == "run"
    assert "--threads" not in ours["command"]
    assert by_hand["command"][-4:] == ["--threads", "2", "--piece", "64KiB"]
    assert ours["shape"] == by_hand["shape"] == "2 x 64KiB"


def test_what_has_no_cold_state_is_not_tuned_there(tmp_path: Path) -> None:
    bench = Bench(Places(tmp_path, tmp_path, fake_programs(tmp_path / "bin")), "host", 60)
    journal = Journal(tmp_path / "journal")
    units = Experiments(bench, QUICK, journal).units(("E3",))
    for unit in units:
        if unit.key.startswith("shape/hybridsort/tiny/cold/"):
            journal.add({"key": unit.key, "absent": "there is no cold state here"})
    again = [each for each in units if each.key.startswith("tuned/hybridsort/tiny/cold/")]
    records = [each.measure() for each in again]
    assert [record["absent"] for record in records] == 2 * ["there is no cold state here"]
    assert not any("failure" in record for record in records)


def again(way: str, send: float, number: int, shape: str = "8 x 4MiB") -> dict[str, Any]:
    record = shaped(shape, send, number)
    return {**record, "key": f"tuned/nn/large/cold/{way}/{number}", "way": way}


def test_what_was_measured_again_counts() -> None:
    records = []
    for number in range(5):
        records += [shaped("default", 2.0, number), shaped("8 x 4MiB", 0.5, number)]
        records += [shaped("run", 1.0, number), again("pipelined", 1.5, number)]
        records.append(again("run", 1.0, number))
    # Of another shape, which somebody's earlier run had chosen.
    records += [again("pipelined", 9.0, number, "4 x 1MiB") for number in (5, 6)]
    records += [again("run", 0.1, number, "4 x 1MiB") for number in (5, 6)]
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    (_, panel) = made["by_hand"].panels
    assert panel.places == ("nn cold",)
    values = {name: [each and each.median for each in row] for name, row in panel.series.items()}
    # 3 and 3.5 s; the least of the shapes' medians was 2.5.
    assert values == {
        "the best shape by hand": [1.0],
        "hippogriff": [pytest.approx(3 / 3.5)],
    }
    found = {each.text: each for each in targets(Measurements([], records), made)}
    tuned = found["the same over their best shape, of those tuned, worst"]
    assert tuned.measured == pytest.approx(3 / 3.5)
    assert tuned.verdict == "met"


def test_few_that_were_measured_again_decide_nothing() -> None:
    records = [again("pipelined", 0.5, 0), again("run", 1.0, 0)]
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    assert made["by_hand"].why == "Hippogriff over the best shape, in turns: nn cold, large, 1.20."
    for number in range(2):
        records += [shaped("default", 2.0, number), shaped("8 x 4MiB", 1.5, number)]
        records.append(shaped("run", 1.0, number))
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    found = {each.text: each for each in targets(Measurements([], records), made)}
    tuned = found["the same over their best shape, of those tuned, worst"]
    assert tuned.measured == pytest.approx(3 / 3.5)
    assert tuned.between is None


def test_what_chance_makes_of_a_ratio_is_said(tmp_path: Path) -> None:
    records = []
    for number in range(9):
        records.append(shaped("default", 2.0, number))
        records.append(again("pipelined", 1.5 + 0.1 * (number % 3), number))
        records.append(again("run", 1.0 + 0.5 * (number % 3), number))
    measured = Measurements([], records)
    made = {figure.name: figure for figure in figures(measured)}
    found = {each.text: each for each in targets(measured, made)}
    tuned = found["the same over their best shape, of those tuned, worst"]
    assert tuned.measured == pytest.approx(3.5 / 3.6)
    assert tuned.between is not None
    low, high = tuned.between
    assert 3 / 3.7 <= low < 3.5 / 3.6 < high <= 4 / 3.5
    assert tuned.verdict == "cannot tell"
    said = f"nn cold, large, 0.97 ({low:.2f} to {high:.2f})"
    assert said in made["by_hand"].why, made["by_hand"].why
    journal = Journal(tmp_path / "results")
    machine = {"device": "G", "processor": "P", "cores": 4}
    about = {"started": "now", "effort": "full", "command_line": "x", "build": {}}
    journal.begin_run({**about, "machine": machine})
    for record in records:
        journal.add({**record, "experiments": ["E3"]})
    page = write_page([tmp_path / "results"], tmp_path / "page", plots=False).read_text()
    assert f"0.972 ({low:.2f} to {high:.2f})" in page


def shaped(shape: str, send: float, number: int) -> dict[str, Any]:
    seconds = {**SECONDS["pipelined"], "send": send}
    result = {**answer("pipelined"), "seconds": seconds, "total_seconds": sum(seconds.values())}
    fields = {"program": "nn", "scale": "large", "state": "cold", "shape": shape}
    return {"key": f"shape/nn/large/cold/{shape}/{number}", **fields, "result": result}


def test_hippogriff_is_compared_with_the_best_shape() -> None:
    records = [whole("nn", way, 0) for way in ("run", "pipelined")]  # 3 and 3.5 s
    for number in range(2):
        records += [shaped("default", 2.0, number), shaped("8 x 4MiB", 1.0, number)]
    measured = Measurements([], records)
    made = {figure.name: figure for figure in figures(measured)}
    (panel,) = made["by_hand"].panels
    assert panel.places == ("default", "8 x 4MiB")
    assert [value.median for value in panel.series["nn cold"] if value] == [1.0, 0.75]
    assert "nn cold, large, 0.75 (8 x 4MiB)" in made["by_hand"].why
    found = {each.text: each for each in targets(measured, made)}
    plain = found["seconds over those pipelined by hand, large, worst"]
    tuned = found["the same over their best shape, of those tuned, worst"]
    assert plain.measured == pytest.approx(3 / 3.5)
    assert plain.verdict == "met"
    assert tuned.measured == pytest.approx(3 / 3.5 / 0.75)
    assert tuned.verdict == "not met"
    for number in range(2):
        records.append(shaped("run", 0.5, number))
    beside = {figure.name: figure for figure in figures(Measurements([], records))}
    (panel,) = beside["by_hand"].panels
    assert panel.places == ("default", "8 x 4MiB", "hippogriff")
    assert "nn cold, large, 0.75 (8 x 4MiB; hippogriff beside it 0.62)" in beside["by_hand"].why
    found = {each.text: each for each in targets(Measurements([], records), beside)}
    tuned = found["the same over their best shape, of those tuned, worst"]
    assert tuned.measured == pytest.approx(2.5 / 3)
    assert tuned.verdict == "met"
