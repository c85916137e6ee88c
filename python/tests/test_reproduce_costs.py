"""`hippogriff reproduce`: instructions that are counted, and what programs cost, as figures."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from reproduce_programs import SECONDS, answer, fake_programs, whole

from hippogriff.errors import InvalidArgument
from hippogriff.reproduce import callgrind, instructions
from hippogriff.reproduce.all_figures import figures
from hippogriff.reproduce.bench import AbsentError, Bench, MeasurementError, Places
from hippogriff.reproduce.children import Surroundings
from hippogriff.reproduce.effort import QUICK
from hippogriff.reproduce.experiments import Experiments, Unit
from hippogriff.reproduce.figures import Measurements
from hippogriff.reproduce.instructions import SOFTWARE, Counter
from hippogriff.reproduce.journal import Journal
from hippogriff.reproduce.programs import BY_NAME, PROGRAMS, find_programs

if TYPE_CHECKING:
    from pathlib import Path

_PHASES = {"start": 900, "read": 100, "copy_in": 300, "kernels": 5000, "copy_out": 50, "write": 50}


def fake_valgrind(folder: Path, phases: int = len(_PHASES)) -> Path:
    """A valgrind that counts what `_PHASES` says, for as many phases."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "valgrind"
    writes = "\n".join(
        f'  echo "totals: {count}" >"$out.{number}"'
        for number, count in enumerate(list(_PHASES.values())[:phases], 1)
    )
    path.write_text(
        '#!/bin/sh\n[ "$1" != --version ] || { echo valgrind-1; exit; }\n'
        "for word; do case $word in --callgrind-out-file=*) out=${word#*=} ;; esac; done\n"
        f'{writes}\necho "totals: 7" >"$out"\n'
        'while case $1 in -*) ;; *) false ;; esac; do shift; done\nexec "$@"\n'
    )
    path.chmod(0o755)
    return path


def whole_answer(folder: Path) -> Path:
    """Programs whose conventional way has all of the phases."""
    programs = fake_programs(folder)
    for program in PROGRAMS:
        path = programs / program.name
        path.write_text(
            path.read_text().replace(
                '"kernels": 1.0, "write"', '"kernels": 1.0, "copy_out": 1, "write"'
            )
        )
    return programs


def counted_units(tmp_path: Path) -> list[Unit]:
    bench = Bench(Places(tmp_path, tmp_path, whole_answer(tmp_path / "bin")), "host", 60)
    units = Experiments(bench, QUICK, Journal(tmp_path / "journal")).units(("E4",))
    return [unit for unit in units if unit.key.startswith("instructions/")]


def test_instructions_are_counted_by_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{fake_valgrind(tmp_path / 'v').parent}:{os.environ['PATH']}")
    units = counted_units(tmp_path)
    assert [unit.key for unit in units] == [
        f"instructions/nn/tiny/{way}/0" for way in ("baseline", "pipelined", "run")
    ]
    record = units[0].measure()
    assert record["instructions"] == {**_PHASES, "end": 7}, record
    assert record["valgrind"] == "valgrind-1"
    assert record["command"][-2:] == ["--device", "host"]
    assert callgrind.moved_instructions(record) == 500
    assert not list(tmp_path.glob("*/result.callgrind*"))
    # Ours has fewer phases: they do not fit what was counted.
    assert "saw the ends of 6 phases instead of 4" in units[2].measure()["failure"]


def test_without_valgrind_instructions_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "valgrind" in counted_units(tmp_path)[0].measure()["absent"]


def test_instructions_that_valgrind_does_not_know_are_no_failure(tmp_path: Path) -> None:
    valgrind = fake_valgrind(tmp_path)
    words = ["sh", "-c", "kill -ILL $$"]
    with pytest.raises(AbsentError, match="does not know an instruction"):
        callgrind.count(str(valgrind), words, tmp_path, Surroundings(dict(os.environ), (), 60))


def test_programs_without_symbols_are_not_counted(tmp_path: Path) -> None:
    valgrind = fake_valgrind(tmp_path, phases=0)
    words = ["sh", "-c", 'echo "$ANSWER"']
    around = Surroundings({**os.environ, "ANSWER": json.dumps(answer("run"))}, (), 60)
    with pytest.raises(MeasurementError, match="0 phases instead of 4: programs without symbols"):
        callgrind.count(str(valgrind), words, tmp_path, around)
    assert not list(tmp_path.glob("result.*"))


def test_callgrind_counts_a_real_program(tmp_path: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("no valgrind")
    try:
        programs = find_programs()
    except InvalidArgument as error:
        pytest.skip(str(error))
    bench = Bench(Places(tmp_path, tmp_path, programs), "host", 120)
    effort = dataclasses.replace(QUICK, counted_programs=("lud",))
    units = Experiments(bench, effort, Journal(tmp_path / "journal")).units(("E4",))
    try:
        record = next(unit for unit in units if unit.key == "instructions/lud/tiny/run/0").measure()
    finally:
        bench.clean(keep_inputs=False)
    assert "failure" not in record, record
    assert list(record["instructions"]) == ["start", "send", "kernels", "recv", "end"]
    # Two thirds of n³ multiplications and subtractions, in vectors of at most 16.
    assert record["instructions"]["kernels"] > 384**3 / 3 / 16
    assert 1000 < callgrind.moved_instructions(record) < record["instructions"]["kernels"]


def test_counter_counts_processes_from_their_start_to_their_end() -> None:
    burn = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"]
    with Counter(SOFTWARE, 1) as counter:  # the task's nanoseconds: every processor has these
        subprocess.run(["sh", "-c", 'exec "$@"', "sh", *burn], check=True)
        found = counter.found()
    if "why_absent" in found:
        pytest.skip(found["why_absent"])
    assert 0.25e9 < found["count"] < 30e9
    assert found["of"] in ("user and kernel", "user")


def test_counter_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "_CALLS", {})
    with Counter() as counter:
        assert counter.found() == {"why_absent": "perf_event_open: Function not implemented"}


def counted(program: str, way: str, **counts: int) -> dict[str, Any]:
    fields = {"program": program, "scale": "small", "state": "cached", "way": way}
    return {"key": f"instructions/{program}/small/{way}/0", **fields, "instructions": counts}


def test_instructions_stand_beside_the_papers() -> None:
    assert next(f for f in figures(Measurements([], [])) if f.name == "instructions").empty
    records = [
        counted("nn", "baseline", **_PHASES, end=7),
        counted("nn", "run", start=5, send=90, kernels=9999, recv=10, end=8),
        counted("nn", "pipelined", start=5, send=590, kernels=9999, recv=10, end=8),
    ]
    for way, count in (("baseline", 1000), ("run", 400)):
        counter = {"count": count, "of": "user"}
        records.append({**whole("nn", way, 0), "counter": counter})
    records.append({**whole("lud", "run", 0), "counter": {"why_absent": "perf: no such file"}})
    figure = next(f for f in figures(Measurements([], records)) if f.name == "instructions")
    by_counter, moved, copied = figure.panels
    assert "(user) of whole processes by the counter, large inputs" in by_counter.title
    assert [v.median for v in by_counter.series["hippogriff"] if v] == [0.4, 0.4]
    assert [v.median for v in moved.series["hippogriff"] if v] == [0.2, 0.2]
    assert [v.median for v in moved.series["pipelined by hand"] if v] == [1.2, 1.2]
    assert [said.value for said in moved.said] == [1 / 5.5, 1 / 3, 1.6]
    assert [v.median for v in copied.series["conventional"] if v] == [0.75]
    assert [said.value for said in copied.said] == [0.25, 0.51]
    assert any("perf: no such file" in note for note in figure.notes)
    assert figure.why.endswith(".")


def test_page_faults_are_shown_of_every_size_beside_the_papers() -> None:
    records = [whole("nn", way, 0) for way in SECONDS]
    records += [
        {**record, "scale": scale} for record in records[:3] for scale in ("small", "medium")
    ]
    figure = next(f for f in figures(Measurements([], records)) if f.name == "costs")
    titles = [panel.title for panel in figure.panels]
    assert titles[:3] == [
        f"page faults, {scale} inputs, cold" for scale in ("large", "medium", "small")
    ]
    assert titles[3:] == [
        f"{name}, large inputs, cold"
        for name in ("CPU seconds", "context switches", "peak of resident memory")
    ]
    assert [panel.theirs.split()[1] for panel in figure.panels[:3]] == ["large", "medium", "small"]


def test_where_time_goes_is_shown_of_every_size() -> None:
    records = [{**whole("nn", "baseline", 0), "scale": scale} for scale in ("small", "large")]
    figure = next(f for f in figures(Measurements([], records)) if f.name == "where_time_goes")
    assert [panel.title for panel in figure.panels] == [
        *("large inputs, cold, conventional", "small inputs, cold, conventional"),
        "average by size of the input",
    ]
    assert "80% of small inputs, 80% of large inputs" in figure.why


def test_copying_is_shown_as_a_share_of_reading() -> None:
    records = [whole("nn", way, 0) for way in SECONDS]  # 2 s are read, 1 s is copied
    records.append({**whole("nn", "baseline", 0), "state": "cached"})
    figure = next(f for f in figures(Measurements([], records)) if f.name == "copying")
    (panel,) = figure.panels
    for state in ("cold", "cached"):
        assert [value.median for value in panel.series[state] if value] == [1 / 3, 1 / 3]
    assert [said.value for said in panel.said] == [0.33, 0.51]
    assert "large inputs, cold 33%; large inputs, cached 33%" in figure.why


def test_short_inputs_have_short_kernels() -> None:
    assert BY_NAME["gaussian"].arguments("small", short=True) == ["1024"]
    assert BY_NAME["gaussian"].arguments("tiny", short=True) == ["256"]
    assert BY_NAME["hotspot"].arguments("small", short=True) == ["2048", "--steps", "4"]
    assert BY_NAME["hotspot"].arguments("small") == ["2048", "--steps", "60"]
