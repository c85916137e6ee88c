"""What `hippogriff reproduce` takes, counts and says, and what it does when a drive is full."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from reproduce_programs import answer, fake_programs
from test_reproduce import reproduce

from hippogriff import _runtime
from hippogriff._usage import device_of
from hippogriff.errors import InvalidArgument, IoError
from hippogriff.reproduce import children, commands, energy, machine
from hippogriff.reproduce.bench import AbsentError, Bench, MeasurementError, Places, result_of
from hippogriff.reproduce.command import INTERRUPTED, Options, run, say, write_report
from hippogriff.reproduce.effort import FULL, QUICK, Slice, slice_of
from hippogriff.reproduce.energy_figures import Idle
from hippogriff.reproduce.experiments import Experiments, Unit
from hippogriff.reproduce.journal import SCHEMA, Journal, load
from hippogriff.reproduce.run import measure


def test_what_a_full_drive_had_no_room_for_is_measured_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(Places(tmp_path, tmp_path, fake_programs(tmp_path / "bin")), "host", 60)
    journal = Journal(tmp_path)
    units = Experiments(bench, QUICK, journal).units(("E2",))
    monkeypatch.setattr(
        "hippogriff.reproduce.experiments.children.run",
        lambda *_: pytest.fail("there is no room to measure in"),
    )
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
        summary = measure(units, journal, 60, quiet=True)
    assert len(summary.failed) == len(units)
    assert all(f"are free in {tmp_path}" in why for why in summary.failed.values())
    assert (summary.done, summary.absent, summary.complete) == (0, {}, False)
    assert not any(journal.has(unit.key) for unit in units)


def test_versions_of_driver_and_cuda_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nvml:
        def nvmlInit_v2(self) -> int:  # noqa: N802
            return 0

        def nvmlSystemGetDriverVersion(self, text: Any, _: int) -> int:  # noqa: N802
            text.value = b"580.95.05"
            return 0

    monkeypatch.setattr(energy, "_nvml", Nvml)
    assert energy.driver_version() == "580.95.05"
    assert machine._cuda({"cuda": {"driver_version": 13020}}) == "13.2"
    assert machine._cuda({"cuda": {"driver_version": 0}}) == ""

    def none() -> None:
        raise OSError("no library")

    monkeypatch.setattr(energy, "_nvml", none)
    assert energy.driver_version() == ""


def test_medians_of_a_full_run_are_of_five_at_least() -> None:
    counts = (FULL.repetitions, FULL.few, FULL.transfer_repetitions, FULL.setting_repetitions)
    assert min(counts) >= 5


def test_only_what_was_measured_is_counted_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> dict[str, Any]:
        raise MeasurementError("no")

    def lack() -> dict[str, Any]:
        raise AbsentError("not here")

    acts = {"a": fail, "b": lack, "c": lambda: {"x": 1}, "d": lambda: {"x": 2}}
    units = [Unit(key, ("E1",), "g", 1.0, act) for key, act in acts.items()]
    journal = Journal(tmp_path)
    summary = measure(units, journal, 60, quiet=True)
    say(summary, tmp_path / "results.json", None)
    assert "2 of 4 measurements are in" in capsys.readouterr().out
    # What failed before has not vanished because there is no time to try it again.
    again = measure(units, journal, -1, quiet=True)
    assert (again.done, again.failed, again.absent) == (2, {"a": "no"}, {"b": "not here"})
    units[0] = Unit("a", ("E1",), "g", 1.0, lambda: {"x": 3})
    assert measure(units, journal, 60, quiet=True).complete


@pytest.mark.parametrize("name", ["foo", "cuda:7", "cuda:x", "cuda:", "cuda:-1", "cuda:00", ""])
def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    there = [{"name": "cuda:0"}, {"name": "cuda:1"}, {"name": "host"}]
    monkeypatch.setattr(_runtime, "devices", lambda: there)
    assert [device_of(known) for known in ("cpu", "host", "cuda:1")] == ["host", "host", "cuda:1"]
    with pytest.raises(InvalidArgument, match=f"no device '{name}' here, but cuda:0, cuda:1, host"):
        device_of(name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget-seconds", "-5"), "--budget-seconds -5.0 is no time"),
        (("--budget-seconds", "nan"), "--budget-seconds nan is no time"),
        (("--report", "."), "--report measures nothing and shows all of the results: leave --"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = reproduce(tmp_path, fake_programs(tmp_path / "bin"), *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--quick", {"quick": True}),
        ("--full", {"full": True}),
        ("--experiments", {"experiments": "E3"}),
        ("--only", {"only": "nn"}),
        ("--sizes", {"sizes": ""}),
        ("--configurations", {"configurations": "drive"}),
        ("--repetitions", {"repetitions": 5}),
        ("--dir", {"files": "."}),
        ("--device", {"device": "host"}),
        ("--programs", {"programs": "."}),
        ("--budget-seconds", {"budget_seconds": 0.0}),
        ("--timeout", {"timeout": 10.0}),
        ("--keep-inputs", {"keep_inputs": True}),
        ("--no-report", {"no_report": True}),
    ],
)
def test_a_report_measures_nothing_and_is_of_all_that_was_measured(
    tmp_path: Path, option: str, words: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match=f"shows all of the results: leave {option} out"):
        commands.reproduce(report_of=[str(tmp_path)], out=str(tmp_path / "out"), **words)
    assert not (tmp_path / "out").exists()


def test_a_device_that_is_not_there_is_told_before_anything_is_made(tmp_path: Path) -> None:
    done = reproduce(tmp_path, fake_programs(tmp_path / "bin"), "--device", "foo")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no device 'foo' here, but " in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", " , "])
def test_a_slice_of_no_names_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"names no programs, which are .*nn"):
        slice_of(text, None, 0)
    with pytest.raises(InvalidArgument, match=r"names no sizes, which are .*large"):
        slice_of(None, text, 0)
    done = reproduce(tmp_path, fake_programs(tmp_path / "bin"), "--only", text)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[1]", "no measurement of hippogriff reproduce"),
        ("{}", "no measurement of hippogriff reproduce"),
        ('{"schema": "hippogriff-reproduce/1"}', "'hippogriff-reproduce/1' is another version's"),
        (f'{{"schema": "{SCHEMA}"}}', "neither a measurement nor a run"),
        (f'{{"schema": "{SCHEMA}", "key": {10**400}}}', "it has a number of 401 digits"),
        (f'{{"schema": "{SCHEMA}", "key": {"9" * 9999}}}', "it has a number of 9999 digits"),
        (f'{{"schema": "{SCHEMA}", "key": "a"}}', "neither a measurement nor a run"),
        (f'{{"schema": "{SCHEMA}", "run": 3}}', "neither a measurement nor a run"),
        (f'{{"schema": "{SCHEMA}", "run": {{}}}}', "neither a measurement nor a run"),
        (
            f'{{"schema": "{SCHEMA}", "run": {{"context": "", "machine": 1}}}}',
            "the machine of a run",
        ),
        (f'{{"schema": "{SCHEMA}", "run": {{"context": "", "build": []}}}}', "the build of a run"),
        (f'{{"schema": "{SCHEMA}", "key": "a", "context": "", "runs": [1]}}', "the runs of 'a'"),
        (
            f'{{"schema": "{SCHEMA}", "key": "a", "context": "", "result": {{}}}}',
            "a result of 'a': KeyError",
        ),
    ],
)
def test_lines_of_something_else_are_told_by_file_and_number(
    tmp_path: Path, line: str, words: str
) -> None:
    journal = Journal(tmp_path)
    journal.add({"key": "a", "seconds": 1})
    with journal.path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InvalidArgument, match=f"^{re.escape(f'{journal.path}, line 2: {words}')}"):
        Journal(tmp_path)


def test_torn_last_line_is_dropped_and_damage_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add({"key": "a", "seconds": 1})
    journal.add({"key": "b", "failure": "x"})
    with journal.path.open("a") as file:
        file.write('{"schema": "hippogriff-repro')
    again = Journal(tmp_path)
    assert (again.has("a"), again.has("b"), again.has("c")) == (True, False, False)
    again.add({"key": "b"})
    assert Journal(tmp_path).has("b")
    assert len(journal.path.read_text().splitlines()) == 3
    journal.path.write_text("nonsense\n")
    with pytest.raises(InvalidArgument, match="line 1"):
        Journal(tmp_path)


def test_a_lost_end_of_a_line_loses_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for name in ("a", "b"):
        journal.add({"key": name, "note": f'{{"schema": "{SCHEMA}"'})
    journal.path.write_bytes(journal.path.read_bytes().replace(b"\n", b"", 1))
    assert [record["key"] for record in Journal(tmp_path).records] == ["a", "b"]


@pytest.mark.parametrize("cut_bytes", [1, 12, 40, 60])
def test_files_are_put_one_behind_the_other_though_the_first_was_cut_off(
    tmp_path: Path, cut_bytes: int
) -> None:
    for name in ("one", "two"):
        journal = Journal(tmp_path / name)
        journal.begin_run({"started": name})
        journal.add({"key": f"{name}/a", "seconds": 1})
    one, two = ((tmp_path / name / "measurements.jsonl").read_bytes() for name in ("one", "two"))
    both = Journal(tmp_path / "both")
    both.path.write_bytes(one[:-cut_bytes] + two)
    found = Journal(tmp_path / "both")
    assert [record["key"] for record in found.records][-1] == "two/a"
    assert [run["started"] for run in found.runs] == ["one", "two"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"runs": [1], "measurements": []}, "neither a measurement nor a run"),
        ({"runs": [], "measurements": ["x"]}, "neither a measurement nor a run"),
        ({"runs": 3, "measurements": []}, "no lists of runs and measurements"),
        ({}, "no lists of runs and measurements"),
        (
            {"runs": [{"context": "c", "machine": {"device": "G"}}], "measurements": []},
            "the machine of a run does not",
        ),
        (
            {
                "runs": [],
                "measurements": [{"key": "k", "context": "c", "result": {"total_seconds": "abc"}}],
            },
            "a result of 'k'",
        ),
    ],
)
def test_results_with_something_else_in_them_are_told_by_file(
    tmp_path: Path, document: dict[str, Any], words: str
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"schema": SCHEMA, **document}))
    with pytest.raises(InvalidArgument, match=f"^{re.escape(str(path))} has no results.*{words}"):
        load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("null", "no measurement of hippogriff reproduce"),
        ('{"runs": []}', "no measurement of hippogriff reproduce"),
        ("x", "it is no JSON"),
    ],
)
def test_files_of_something_else_are_no_results(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=f"^{re.escape(str(path))} has no results.*{words}"):
        load(path)


def test_pipes_are_no_results_and_what_is_not_there_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "measurements.jsonl")
    for read in (load, Journal):
        with pytest.raises(InvalidArgument, match=r"measurements\.jsonl is no regular file"):
            read(tmp_path)
    with pytest.raises(InvalidArgument, match=r"measurements\.jsonl is no regular file"):
        load(tmp_path / "measurements.jsonl")
    with pytest.raises(FileNotFoundError, match="nope: No such file") as raised:
        load(tmp_path / "nope")
    assert raised.value.errno == errno.ENOENT


def test_results_that_are_kept_are_results() -> None:
    folder = Path(__file__).parents[2] / "bench" / "results" / "reproduce"
    paths = sorted(folder.glob("*.json"))
    if not paths:
        pytest.skip("no checkout")
    assert all(load(path).records for path in paths)


def test_a_part_of_which_there_is_nothing_is_refused(tmp_path: Path) -> None:
    programs = fake_programs(tmp_path / "bin")
    done = reproduce(tmp_path, programs, "--experiments", "E1", "--only", "mixed")
    assert (done.returncode, done.stdout) == (1, "")
    assert "E1: nothing of it is of the part that is named" in done.stderr


def test_signals_that_end_programs_are_named() -> None:
    killed = children.run(["sh", "-c", "kill -SEGV $$"], children.Surroundings())
    assert killed.failure == "killed by SIGSEGV"


@pytest.mark.parametrize(
    ("total", "parts", "words"),
    [
        (-5.0, {}, "-5.0 cannot be"),
        (float("inf"), {}, "no JSON"),
        (True, {}, "True is no number"),
        (2.0, {"read": "1"}, "'1' is no number"),
        (1.0, {"read": 1.5}, "read took 1.5 of 1.0 seconds"),
        (1.0, {"read": -0.1}, "-0.1 cannot be"),
    ],
)
def test_seconds_that_cannot_be_are_no_result(
    total: Any, parts: dict[str, Any], words: str
) -> None:
    said = answer("run", total_seconds=total, seconds=parts)
    with pytest.raises(MeasurementError, match=re.escape(words)):
        result_of(json.dumps(said))


class _Counter:
    """A GPU's counter and clock that are told what is taken each second, and how quick it is."""

    def __init__(self, watts: list[float], clocks: list[int]) -> None:
        self._watts, self._clocks = watts, clocks
        self.seconds, self.fails_after = 0, 1 << 30

    def joules(self) -> float | None:
        if self.seconds > self.fails_after:
            return None
        return sum(self._watts[min(each, len(self._watts) - 1)] for each in range(self.seconds))

    def clocks_are_low(self) -> bool:
        return 2 * self._clocks[min(self.seconds, len(self._clocks) - 1)] < 1980


def _rest(
    monkeypatch: pytest.MonkeyPatch, counter: _Counter | None
) -> tuple[bool | None, energy.Meter]:
    def sleep(seconds: float) -> None:
        if counter is not None:
            counter.seconds += int(seconds)

    monkeypatch.setattr(time, "monotonic", lambda: float(counter.seconds if counter else 0))
    monkeypatch.setattr(time, "sleep", sleep)
    meter = energy.Meter("host")
    if counter is not None:
        meter.gpu = counter  # type: ignore[assignment]
    return meter.rest(), meter


@pytest.mark.parametrize(
    ("watts", "clocks", "seconds", "rested"),
    [
        ([77.0], [345], 4, True),
        ([138.0, 138.0, 104.0, 78.0, 77.0], [1980, 1980, 525, 345], 8, True),
        ([134.0] * 5 + [77.0], [1980] * 5 + [345], 10, True),
        ([131.0], [1980], 20, False),  # another process holds a context
        ([138.0, 138.0, 78.0, 78.0] * 9, [345], 20, False),
    ],
)
def test_idle_is_measured_when_the_gpu_has_come_to_rest(
    monkeypatch: pytest.MonkeyPatch,
    watts: list[float],
    clocks: list[int],
    seconds: int,
    rested: bool,
) -> None:
    counter = _Counter(watts, clocks)
    assert _rest(monkeypatch, counter)[0] is rested
    assert counter.seconds == seconds


def test_nothing_is_known_of_rest_without_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _rest(monkeypatch, None)[0] is None
    counter = _Counter([77.0, 138.0, 77.0], [345])
    counter.fails_after = 3
    assert _rest(monkeypatch, counter)[0] is None


def test_power_at_rest_counts_where_there_is_any() -> None:
    def idle(joules: float, **more: bool) -> dict[str, Any]:
        return {
            "idle": True,
            "energy": {"seconds": 2.0, "measured": {"gpu_joules": joules}},
            **more,
        }

    moving = [idle(260.0), idle(250.0, rested=False)]
    assert Idle(moving).watts == {"gpu": 127.5}
    assert not Idle(moving).rested
    assert Idle([*moving, idle(154.0, rested=True)]).watts == {"gpu": 77.0}


def test_a_full_drive_is_told_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)

    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "made to fail")

    for write in (fail, lambda _, line: len(line) - 1):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(IoError, match=f"^write {journal.path}: No space left"):
                journal.add({"key": "a"})
    (tmp_path / "results.writing").symlink_to("/dev/full")
    with pytest.raises(IoError, match=rf"^write {tmp_path}/results\.writing: No space left"):
        journal.write_results()
    journal.add({"key": "a"})
    page = tmp_path / "report"
    page.mkdir()
    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(IoError, match=f"^write {page}: No space left"):
        write_report([tmp_path], page)


def test_an_interrupt_while_the_report_is_drawn_leaves_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("hippogriff.reproduce.command.write_report", interrupted)
    monkeypatch.setattr("signal.signal", lambda *_arguments: None)  # They stay as they are.
    options = Options(
        effort="quick",
        experiments="E3",
        out=tmp_path / "out",
        files=None,
        device="host",
        programs=fake_programs(tmp_path / "bin"),
        budget_seconds=0,
        timeout_seconds=60,
        part=Slice(programs=("nn",), repetitions=1),
        keep_inputs=False,
        report=True,
        json=False,
    )
    assert run(options) == INTERRUPTED
    said = capsys.readouterr()
    assert f"measurements are in {tmp_path / 'out' / 'results.json'}" in said.out
    assert "report:" not in said.out
    assert "the same command goes on where this one ended" in said.err
