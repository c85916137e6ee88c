"""`hippogriff reproduce`: figures, targets and the report, from whatever there is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from reproduce_programs import SECONDS, whole

from hippogriff.errors import InvalidArgument
from hippogriff.reproduce import papers
from hippogriff.reproduce.all_figures import figures
from hippogriff.reproduce.command import write_report
from hippogriff.reproduce.commands import reproduce
from hippogriff.reproduce.figures import Measurements, Value, inverse
from hippogriff.reproduce.journal import Journal, load
from hippogriff.reproduce.report import merged, write_page
from hippogriff.reproduce.targets import targets
from hippogriff.reproduce.together_figures import LIMIT

if TYPE_CHECKING:
    from pathlib import Path


def test_figures_stand_beside_the_papers_and_are_made_of_whatever_there_is() -> None:
    assert all(figure.empty for figure in figures(Measurements([], [])))
    records = [whole("nn", way, number) for way in SECONDS for number in range(3)]
    records.append({"key": "whole/lud/large/cold/run/0", "failure": "no"})
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    panel = made["movement_speedup"].panels[0]
    assert (panel.places[-1], panel.said) == ("average", papers.MOVEMENT_SPEEDUP["large"])
    ours = panel.series["hippogriff"]
    assert [value.median for value in ours if value is not None] == [2.0, 2.0]
    assert made["speedup"].panels[0].series["hippogriff"][-1] == inverse(
        Value(0.6, 0.6, 0.6, 1, of_programs=True)
    )
    assert "2.00 (by hand 1.60)" in made["movement_speedup"].why
    assert {name for name, figure in made.items() if figure.empty} == {
        *("throughput", "energy", "modelled_energy", "weak_cpus", "together", "sensitivity"),
        *("weak_energy", "modelled_weak_energy", "by_hand", "idle_energy", "kernel_energy"),
        *("kernels", "instructions"),
    }


def test_targets_are_judged_by_what_was_measured() -> None:
    records = [whole("nn", way, number) for way in SECONDS for number in range(3)]
    records += [
        {
            "key": f"together/nn/large/{name}/0",
            "workload": "nn",
            "configuration": name,
            "scale": "large",
            "seconds": seconds,
            "failures": 0,
            "runs": [],
        }
        for name, seconds in (("in_turns", 8.0), ("direct_most", 6.0), ("everything", 4.0))
    ]
    measured = Measurements([], records)
    found = targets(measured, {figure.name: figure for figure in figures(measured)})
    verdicts = {each.text: (each.measured, each.verdict) for each in found}
    assert verdicts["speed-up of data movement, large inputs, cold"] == (2.0, "met")
    assert verdicts["eight at once, over one after another"] == (2.0, "met")
    assert verdicts["eight at once, over always the direct-most route"] == (1.5, "met")
    assert verdicts["eight at once, programs of hippogriff that failed"] == (0.0, "met")
    assert verdicts["page faults, of the conventional programs', large"] == (1.0, "not met")
    assert verdicts["energy measured, idle included"] == (None, "not measured")


def energy(way: str, measured: dict[str, float], cpu_joules: float) -> dict[str, Any]:
    return {
        "key": f"energy/nn/large/cold/{way}/0",
        "program": "nn",
        "scale": "large",
        "state": "cold",
        "way": way,
        "runs": [whole("nn", way, 0)] * 2,
        "energy": {
            "seconds": 10.0,
            "measured": measured,
            "modelled": {"cpu_joules": cpu_joules},
            "why_absent": {} if "cpu_joules" in measured else {"cpu": "no RAPL"},
        },
    }


def idle(**joules: float) -> dict[str, Any]:
    parts = {"measured": joules, "seconds": 2.0, "why_absent": {}}
    return {"key": "energy/idle/0", "idle": True, "energy": parts}


def of_ours(figure: Any) -> dict[str, float]:
    """The averages of hippogriff in a figure, by panel and kind."""
    found = {}
    for panel in figure.panels:
        for name, values in panel.series.items():
            if name.startswith("hippogriff, ") and values[-1] is not None:
                found[f"{panel.title}: {name}"] = values[-1].median
    return found


def test_energy_that_was_modelled_is_not_among_what_was_measured() -> None:
    records = [
        idle(gpu_joules=20.0),
        energy("baseline", {"gpu_joules": 300.0}, 100.0),
        energy("run", {"gpu_joules": 200.0}, 20.0),
    ]
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    measured = of_ours(made["energy"])
    title = "energy, GPU board, measured, large inputs, cold: hippogriff, "
    assert measured[f"{title}idle included"] == 200 / 300
    assert measured[f"{title}above idle"] == (200 - 100) / (300 - 100)
    assert not [name for name in measured if "CPU" in name]
    modelled = of_ours(made["modelled_energy"])
    title = "energy, modelled, large inputs, cold: hippogriff, "
    assert modelled[f"{title}CPU alone"] == 20 / 100
    assert modelled[f"{title}modelled sum"] == (100 + 20) / (200 + 100)
    assert any("not measured here: no RAPL" in note for note in made["energy"].notes)
    (shares,) = made["idle_energy"].panels
    idle_share = [value.median for value in shares.series["cold"] if value]
    assert idle_share == pytest.approx([100 / 300, 100 / 300])
    assert shares.said == papers.IDLE_ENERGY_SHARE["large"]
    measured_only = Measurements([], records)
    found = targets(measured_only, made)
    values = {each.text: each.measured for each in found if each.text.startswith("energy ")}
    assert values == {
        "energy measured, idle included (GPU board)": 200 / 300,
        "energy measured, above idle (GPU board)": 0.5,
        "energy above idle, modelled (GPU board measured, CPU by a model)": 0.4,
    }


def test_energy_above_idle_is_that_of_every_source() -> None:
    records = [
        idle(gpu_joules=20.0, cpu_joules=10.0),
        energy("baseline", {"gpu_joules": 300.0, "cpu_joules": 150.0}, 100.0),
        energy("run", {"gpu_joules": 200.0, "cpu_joules": 100.0}, 20.0),
    ]
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    measured = of_ours(made["energy"])
    assert made["modelled_energy"].empty, "what is measured needs no model"
    title = "large inputs, cold: hippogriff, above idle"
    assert measured[f"energy, CPU packages, measured, {title}"] == (100 - 50) / (150 - 50)
    assert measured[f"energy, GPU board and CPU packages, measured, {title}"] == 150 / 300


def results(folder: Path, device: str, records: list[dict[str, Any]], started: str = "now") -> Path:
    run = {
        "started": started,
        "effort": "full",
        "command_line": "hippogriff reproduce <x>",
        "build": {"version": "0"},
        "machine": {"processor": "P", "device": device, "cores": 2},
    }
    journal = Journal(folder)
    journal.begin_run(run)
    for record in records:
        journal.add(record)
    return folder


def test_report_of_partial_results_says_what_is_missing(tmp_path: Path) -> None:
    records = [whole("nn", way, 0) for way in SECONDS]
    absent = {"key": "together/nn/mps/0", "absent": "no GPU here"}
    one = results(tmp_path / "one", "G", [*records, absent])
    two = results(tmp_path / "two", "G", [{"key": records[0]["key"], "failure": "later"}])
    page = write_page([one, two], tmp_path / "report", plots=False).read_text()
    assert page.count("Not measured yet.") >= 5
    assert "no GPU here" in page
    assert "hippogriff reproduce &lt;x&gt;" in page
    assert "later" not in page, "a failure replaced a measurement"
    Journal(one).write_results()
    assert load(one / "results.json") == load(one)
    with pytest.raises(InvalidArgument, match="differ from the others' in machine"):
        merged([one, results(tmp_path / "three", "another", [])])
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json: No such file"):
        merged([tmp_path / "nowhere.json"])


def test_page_that_was_written_is_told_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = results(tmp_path / "one", "G", [whole("nn", "run", 0)])
    reproduce(report_of=[str(folder)], out=str(tmp_path / "report"), json=True)
    page = tmp_path / "report" / "report.html"
    assert page.is_file()
    assert json.loads(capsys.readouterr().out) == {"report": str(page)}


def test_tables_say_of_how_many_repetitions_a_median_is(tmp_path: Path) -> None:
    records = [whole("nn", way, number) for way in SECONDS for number in range(3)]
    records += [whole("lud", way, 0) for way in SECONDS]
    folder = results(tmp_path / "one", "G", records)
    page = write_page([folder], tmp_path / "report", plots=False).read_text()
    row = "<tr><td>NN</td><td>1.67 <small>(1.67 to 1.67 of 3)</small></td>"
    assert row in page
    assert "<tr><td>LUD</td><td>1.67 <small>(once)</small></td>" in page
    assert "<tr><td>average</td><td>1.67</td>" in page
    assert "<td>0.872</td>" in page, "the papers do not say of how many"
    faster = whole("lud", "run", 1)
    faster["result"] = {**faster["result"], "total_seconds": 3.0}
    folder = results(tmp_path / "two", "G", [*records, faster])
    page = write_page([folder], tmp_path / "report", plots=False).read_text()
    assert "<tr><td>LUD</td><td>2 <small>(1.67 to 2.5 of 1)</small></td>" in page


def test_papers_numbers_stand_beside_those_of_every_size() -> None:
    records = [{**whole("nn", way, 0), "scale": "tiny"} for way in SECONDS]
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    assert made["speedup"].panels[0].said[0].what == "Gullfoss, small inputs"
    faults = made["costs"].panels[0]
    assert faults.theirs == "papers: small inputs (Gullfoss, table 3)"
    assert all(faults.series[faults.theirs])
    assert not faults.empty
    sizes = made["where_time_goes"].panels[1]
    assert sizes.places == ("tiny", "small", "medium", "large")
    for figure in made.values():
        assert figure.why.endswith(".")


def test_average_of_the_eight_is_of_all_workloads_or_none() -> None:
    def eight(workload: str, name: str, failures: int) -> dict[str, Any]:
        fields = {"workload": workload, "configuration": name, "scale": "large", "seconds": 2.0}
        key = f"together/{workload}/large/{name}/0"
        return {"key": key, **fields, "failures": failures, "runs": [{}] * 8}

    records = [eight(workload, "in_turns", 0) for workload in ("nn", "lud")]
    records += [eight("nn", "unmodified", 0), eight("lud", "unmodified", 3)]
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    values = made["together"].panels[0].series["unmodified, at once"]
    assert [value is None for value in values] == [False, True, True]
    assert "in which any did is in no bar" in made["together"].notes[0]
    assert any("3 of 16 programs failed" in note for note in made["together"].notes)


def test_the_eight_are_compared_with_both_ways_of_unmodified_programs() -> None:
    def eight(name: str, seconds: float, failures: int = 0) -> dict[str, Any]:
        fields = {"workload": "nn", "configuration": name, "scale": "large", "seconds": seconds}
        key = f"together/nn/large/{name}/{seconds}"
        return {"key": key, **fields, "failures": failures, "runs": []}

    of = {"in_turns": 12.0, "direct_most": 5.0, "everything": 6.0}
    records = [eight(*each) for each in of.items()]
    records += [eight("unmodified", 9.0), eight("unmodified", 1.0, failures=2)]
    records.append({**eight("in_turns", 8.0), "workload": "lud"})
    measured = Measurements([], records)
    made = {figure.name: figure for figure in figures(measured)}
    turns, at_once = made["together"].panels
    ours = [panel.series["everything"][0] for panel in (turns, at_once)]
    assert [value and value.median for value in ours] == [2.0, 1.5]
    assert "unmodified, at once" not in at_once.series
    assert (turns.said, at_once.said) == ((), papers.TOGETHER["large"])
    of_targets = {each.text: each for each in targets(measured, made)}
    text = "eight at once, over the unmodified at once, of repetitions in which none failed"
    assert (of_targets[text].measured, of_targets[text].verdict) == (1.5, "met")
    slowest = of_targets["eight at once, the slowest workload over always the direct-most route"]
    assert slowest.measured == pytest.approx(5 / 6)
    assert slowest.verdict == "not met"


def test_the_eight_are_compared_with_the_direct_most_route_alone() -> None:
    def eight(name: str, seconds: float) -> dict[str, Any]:
        fields = {"workload": "nn", "configuration": name, "scale": "large", "seconds": seconds}
        return {"key": f"together/nn/large/{name}/0", **fields, "failures": 0, "runs": []}

    measured = Measurements([], [eight("direct_most", 5.0), eight("everything", 4.0)])
    made = {figure.name: figure for figure in figures(measured)}
    found = {each.text: each.measured for each in targets(measured, made)}
    assert found["eight at once, over always the direct-most route"] == pytest.approx(1.25)
    assert found["eight at once, over one after another"] is None


def test_damaged_measurements_are_told_with_their_file(tmp_path: Path) -> None:
    record = {**whole("nn", "run", 0), "experiments": None}
    folder = results(tmp_path / "one", "G", [record])
    with pytest.raises(InvalidArgument, match=rf"measurement in {folder} is damaged: TypeError"):
        write_report([folder], tmp_path / "report")


def test_settings_are_compared_with_the_default_runs_of_all_of_them() -> None:
    def run(setting: str, value: str, seconds: float, number: int) -> dict[str, Any]:
        record = whole("nn", "run", number)
        parts = {"start": 1.0, "kernels": 1.0, "send": seconds}
        result = {**record["result"], "seconds": parts}
        fields = {"setting": setting, "value": value, "scale": "large", "result": result}
        return {**record, **fields, "key": f"setting/nn/large/cold/{setting}/{value}/{number}"}

    records = [run("piece", "2MiB", 9.0, 0), run("piece", "1MiB", 2.0, 0)]
    records += [run("pinbuffer", "256MiB", each, n) for n, each in enumerate((2.0, 2.0))]
    records += [run("pinbuffer", "64MiB", 4.0, 0)]
    made = {figure.name: figure for figure in figures(Measurements([], records))}
    for panel, wanted in zip(made["sensitivity"].panels, ([1.0, 1.0], [2.0, 1.0]), strict=True):
        values = panel.series["nn cold"]
        assert [value and value.median for value in values] == wanted
        assert sorted(value.count for value in values if value)[-1] == 3


def test_limit_of_the_drive_stands_beside_the_eight() -> None:
    def eight(name: str, seconds: float) -> dict[str, Any]:
        fields = {"workload": "nn", "configuration": name, "scale": "large", "seconds": seconds}
        return {"key": f"together/nn/large/{name}/0", **fields, "failures": 0, "runs": []}

    seconds = {"in_turns": 40.0, "direct_most": 15.0, "everything": 12.0, "drive": 10.0}
    measured = Measurements([], [eight(*each) for each in seconds.items()])
    made = {figure.name: figure for figure in figures(measured)}
    panel = made["together"].panels[0]
    assert [value.median for value in panel.series[LIMIT] if value] == [4.0, pytest.approx(4.0)]
    assert panel.said == papers.TOGETHER["large"]
    limits = {each.text: each.limit for each in targets(measured, made)}
    assert limits["eight at once, over one after another"] == pytest.approx(4.0)
    assert limits["eight at once, over always the direct-most route"] == pytest.approx(1.5)
    assert limits["eight at once, the slowest workload"] is None
    without = figures(Measurements([], measured.records[:3]))
    assert not any(without[-2].panels[0].series[LIMIT])


def test_programs_by_hand_are_never_faster_at_any_size(tmp_path: Path) -> None:
    records = [whole("nn", way, 0) for way in SECONDS]
    slow = {**whole("nn", "run", 0), "key": "whole/nn/small/cold/run/0", "scale": "small"}
    slow["result"] = {**slow["result"], "total_seconds": 9.0}
    by_hand = {**whole("nn", "pipelined", 0), "key": "whole/nn/small/cold/pipelined/0"}
    records += [slow, {**by_hand, "scale": "small"}]
    folder = results(tmp_path / "one", "G", records)
    page = write_page([folder], tmp_path / "report", plots=False).read_text()
    row = "seconds over those pipelined by hand, small, worst</td><td>≤ 1.03</td><td>2.29</td>"
    assert f"{row}<td>not met</td>" in page
    assert "by hand, large, worst</td><td>≤ 1.03</td><td>0.857</td><td>met</td>" in page


def test_results_of_several_builds_make_a_page_where_that_is_wanted(tmp_path: Path) -> None:
    one = results(tmp_path / "one", "G", [whole("nn", "run", 0)])
    two = Journal(tmp_path / "two")
    run = {**Journal(one).runs[-1], "build": {"version": "1"}}
    del run["context"]
    two.begin_run(run)
    two.add(whole("nn", "baseline", 0))
    paths = [one, two.path.parent]
    with pytest.raises(InvalidArgument, match="differ from the others' in build"):
        merged(paths)
    assert len(merged(paths, builds_differ=True).records) == 2
    page = write_page(paths, tmp_path / "page", plots=False, builds_differ=True).read_text()
    assert "Of 2 builds" in page
    other = results(tmp_path / "three", "another", [])
    with pytest.raises(InvalidArgument, match="differ from the others' in machine"):
        merged([one, other], builds_differ=True)


def test_papers_numbers_of_the_eight_are_by_size() -> None:
    fields = {"workload": "nn", "configuration": "everything", "seconds": 1.0, "failures": 0}
    for scale in papers.SCALES:
        record = {"key": f"together/nn/{scale}/everything/0", **fields, "scale": scale, "runs": []}
        records = [record, {**record, "configuration": "in_turns", "key": "together/nn/x/0"}]
        figure = next(f for f in figures(Measurements([], records)) if f.name == "together")
        assert figure.panels[0].said == papers.TOGETHER[scale]


def test_plots_are_drawn_as_svg_and_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = results(tmp_path / "one", "G", [whole("nn", way, 0) for way in SECONDS])
    page = write_page([folder], tmp_path / "report", plots=True)
    drawn = {path.name for path in page.parent.iterdir()}
    svg = (page.parent / "speedup.svg").read_text()
    assert "currentColor" in svg
    assert "prefers-color-scheme: dark" in svg
    assert {"speedup.svg", "speedup.png", "costs.svg", "report.html"} <= drawn
    assert "together.svg" not in drawn
