"""`hippogriff reproduce`: resuming, failures that are told, time limits, partial reports."""

from __future__ import annotations

import json
import mmap
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from reproduce_programs import answer, fake_programs

from hippogriff._measurement import Sample, make_cold
from hippogriff.errors import InvalidArgument
from hippogriff.reproduce import _transfer, children, machine, page_cache
from hippogriff.reproduce import bench as bench_module
from hippogriff.reproduce.bench import (
    CACHED,
    COLD,
    AbsentError,
    Bench,
    MeasurementError,
    Places,
    moved_seconds,
    result_of,
)
from hippogriff.reproduce.children import Surroundings
from hippogriff.reproduce.command import chosen
from hippogriff.reproduce.effort import EXPERIMENTS, FULL, QUICK, cut, slice_of
from hippogriff.reproduce.experiments import Experiments, Unit, scaled
from hippogriff.reproduce.journal import Journal, load
from hippogriff.reproduce.page_cache import Residency, residency
from hippogriff.reproduce.programs import BY_NAME, PROGRAMS, find_programs
from hippogriff.reproduce.report import merged, write_page
from hippogriff.reproduce.run import Estimate, measure
from hippogriff.reproduce.together import CONFIGURATIONS, MIXED, Need, Together, programs_of

_LONG_SECONDS = 120.0


def command(tmp_path: Path, programs: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "hippogriff", "reproduce", "--quick", "--experiments", "E1"]
    words += ["--out", str(tmp_path / "out"), "--programs", str(programs), "--device", "host"]
    return [*words, "--no-report", *more]


def reproduce(tmp_path: Path, programs: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(tmp_path, programs, *more),
        capture_output=True,
        text=True,
        timeout=_LONG_SECONDS,
        check=False,
    )


def lines_of(tmp_path: Path) -> list[dict[str, Any]]:
    text = (tmp_path / "out" / "measurements.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def there(done: subprocess.CompletedProcess[str]) -> int:
    """Count what needs no other run: in some file systems no file is cold."""
    summary = json.loads(done.stdout)
    return int(summary["done"]) + len(summary["absent"])


def keys_of(tmp_path: Path) -> list[str]:
    return [line["key"] for line in lines_of(tmp_path) if "key" in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_run_keeps_what_it_has_and_the_next_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    fifo, go_on = tmp_path / "fifo", tmp_path / "go_on"
    os.mkfifo(fifo)
    # As long as one of its processes lives, it holds the fifo's writing end.
    waits = f"[ -e {go_on} ] || {{ exec 9>{fifo}; sleep 600 & wait; }}"
    programs = fake_programs(tmp_path / "bin", hotspot=waits)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(
        command(tmp_path, programs), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        # Someone has opened it once its poll no longer says that nobody writes.
        end = time.monotonic() + _LONG_SECONDS
        while not _has_writer(fifo) and time.monotonic() < end:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        process.send_signal(number)
        said, _ = process.communicate(timeout=_LONG_SECONDS)
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        assert poll.poll(30_000) == [(reading, select.POLLHUP)], "a child was left behind"
    finally:
        process.kill()
        process.wait()
        os.close(reading)
    assert process.returncode == 130, said
    assert "goes on where this one ended" in said
    before = keys_of(tmp_path)
    assert 0 < len(before) < 2 * len(PROGRAMS)
    assert not any("hotspot" in key for key in before)
    assert not list((tmp_path / "out").glob("hippogriff-reproduce-*")), "inputs were left behind"
    go_on.touch()
    done = reproduce(tmp_path, programs)
    assert done.returncode == 0, done.stdout + done.stderr
    after = keys_of(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == 2 * len(PROGRAMS)
    again = reproduce(tmp_path, programs, "--json")
    assert keys_of(tmp_path) == after
    assert there(again) == len(after)


def _has_writer(fifo: Path) -> bool:
    """Whether a process other than this one has the fifo open."""
    for link in Path("/proc").glob("[0-9]*/fd/9"):
        try:
            if link.readlink() == fifo:
                return True
        except OSError:
            continue
    return False


def test_failures_are_told_everywhere_and_tried_again(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    breaks = f"[ -e {mended} ] || {{ echo the drive is gone >&2; exit 1; }}"
    programs = fake_programs(tmp_path / "bin", nn=breaks, lud=f"[ -e {mended} ] || exec echo what")
    done = reproduce(tmp_path, programs)
    assert done.returncode == 1
    assert "FAILED whole/nn/tiny/cold/baseline/0: exit status 1: the drive is gone" in done.stdout
    assert "FAILED whole/lud/tiny/cold/baseline/1: its output is no JSON" in done.stdout
    assert "'what\\n'" in done.stdout
    page = write_page([tmp_path / "out"], tmp_path / "report", plots=False).read_text()
    assert page.count('<li class="failed">') == 4
    assert "the drive is gone" in page
    mended.touch()
    assert reproduce(tmp_path, programs).returncode == 0
    page = write_page([tmp_path / "out"], tmp_path / "report", plots=False).read_text()
    assert '<li class="failed">' not in page
    assert len(keys_of(tmp_path)) == 2 * len(PROGRAMS) + 4


def test_wrong_results_are_failures(tmp_path: Path) -> None:
    programs = fake_programs(tmp_path / "bin")
    (programs / "cfd").write_text(
        (programs / "cfd").read_text().replace("echo correct", "echo WRONG; exit 1")
    )
    done = reproduce(tmp_path, programs)
    assert done.returncode == 1
    assert "its result is wrong: exit status 1: WRONG" in done.stdout


def test_result_that_is_compared_with_nothing_is_a_failure(tmp_path: Path) -> None:
    programs = fake_programs(tmp_path / "bin", nn="[ $1 != baseline ] || exit 1")
    done = reproduce(tmp_path, programs, "--experiments", "E3", "--only", "nn")
    assert done.returncode == 1
    for way in ("run", "pipelined"):
        key = f"FAILED whole/nn/tiny/cold/{way}/0: "
        assert f"{key}its result was compared with nothing" in done.stdout


def test_other_result_than_the_conventional_is_a_failure(tmp_path: Path) -> None:
    programs = fake_programs(tmp_path / "bin")
    text = (programs / "nn").read_text()
    (programs / "nn").write_text(text.replace('run) echo > "$3"', 'run) echo 2 > "$3"'))
    done = reproduce(tmp_path, programs, "--experiments", "E3", "--only", "nn")
    assert "FAILED whole/nn/tiny/cold/run/0: its result is not that of the conv" in done.stdout
    assert "pipelined" not in done.stdout


@pytest.mark.parametrize("leaves", ['rm -f "$3"', ': > "$3"'])
def test_missing_result_is_a_failure(tmp_path: Path, leaves: str) -> None:
    programs = fake_programs(tmp_path / "bin")
    text = (programs / "nn").read_text()
    (programs / "nn").write_text(text.replace('baseline) echo > "$3"', f"baseline) {leaves}"))
    done = reproduce(tmp_path, programs, "--only", "nn")
    for number in range(2):
        assert f"FAILED whole/nn/tiny/cold/baseline/{number}: it" in done.stdout


def test_program_that_takes_too_long_is_ended_and_told(tmp_path: Path) -> None:
    programs = fake_programs(tmp_path / "bin", kmeans="sleep 600")
    done = reproduce(tmp_path, programs, "--timeout", "1")
    assert done.returncode == 1
    assert "whole/kmeans/tiny/cold/baseline/0: it took longer than its limit" in done.stdout


def test_nothing_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    programs = fake_programs(tmp_path / "bin")
    done = reproduce(tmp_path, programs, "--budget-seconds", "0", "--json")
    assert done.returncode == 0
    assert (json.loads(done.stdout)["out_of_time"], keys_of(tmp_path)) == (True, [])
    assert reproduce(tmp_path, programs, "--budget-seconds", "soon").returncode == 2


def test_programs_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    done = reproduce(tmp_path, tmp_path)
    assert (done.returncode, (tmp_path / "out").exists()) == (1, False)
    with pytest.raises(InvalidArgument, match="--programs or HIPPOGRIFF_PROGRAMS"):
        find_programs(tmp_path)
    assert find_programs(fake_programs(tmp_path / "build" / "bin").parent).name == "bin"


_FACTS: dict[str, Any] = {
    "machine": {"processor": "A", "device": "H200", "cores": 16},
    "build": {"version": "0.1.0", "commit": "abc"},
    "files": {"filesystem": "ext4", "drive": "fast"},
    "settings": {},
    "effort": "full",
    "started": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    "other",
    [
        {"machine": {"processor": "A", "device": "H100", "cores": 16}},
        {"build": {"version": "0.1.0", "commit": "def"}},
        {"build": {"version": "0.2.0", "commit": "abc"}},
        {"files": {"filesystem": "ext4", "drive": "slow"}},
        {"files": {"filesystem": "xfs", "drive": "fast"}},
        {"settings": {"HIPPOGRIFF_HOST_LINK": "2GB"}},
        {"effort": "quick"},
    ],
)
def test_what_was_measured_elsewhere_is_measured_anew(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    first = Journal(tmp_path)
    first.begin_run(_FACTS)
    first.add({"key": "a", "seconds": 1})
    journal = Journal(tmp_path)
    journal.begin_run({**_FACTS, **other, "started": "2026-01-02T00:00:00Z"})
    assert not journal.has("a")
    journal.add({"key": "a", "seconds": 2})
    runs, records, left_out = load(tmp_path)
    assert ([record["seconds"] for record in records], len(runs), left_out) == ([2], 1, 1)
    # The same as the first on another day.
    journal.begin_run({**_FACTS, "started": "2026-01-03T00:00:00Z"})
    assert journal.get("a") == {**first.records[0]}
    assert [record["seconds"] for record in load(tmp_path).records] == [1]
    assert len(load(tmp_path).runs) == 2


def test_two_do_not_measure_into_one_folder(tmp_path: Path) -> None:
    Journal(tmp_path).lock()
    with pytest.raises(InvalidArgument, match="another process measures"):
        Journal(tmp_path).lock()


def test_build_is_told_by_its_commit_or_by_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = fake_programs(tmp_path)
    monkeypatch.setenv("COMMIT", "abc")
    assert machine.build(programs)["commit"] == "abc"
    assert "checksum" not in machine.build(programs)
    monkeypatch.delenv("COMMIT")
    monkeypatch.setattr(machine, "_git", lambda *_: None)
    before = machine.build(programs)
    (programs / "nn").write_text("another")
    assert before["checksum"] != machine.build(programs)["checksum"]


def test_experiments_are_named_or_all() -> None:
    assert chosen("e3, E1") == ("E3", "E1")
    assert chosen("all") == tuple(EXPERIMENTS)
    with pytest.raises(InvalidArgument, match="E9"):
        chosen("E1,E9")


@pytest.mark.parametrize("effort", [QUICK, FULL])
def test_every_measurement_has_one_key(tmp_path: Path, effort: Any) -> None:
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    experiments = Experiments(bench, effort, Journal(tmp_path / "journal"))
    units = experiments.units(tuple(EXPERIMENTS))
    assert len({unit.key for unit in units}) == len(units)
    wanted = {name for unit in units for name in unit.experiments}
    assert wanted == set(EXPERIMENTS)
    only = experiments.units(("E1",))
    assert {unit.key for unit in only} <= {unit.key for unit in units}
    assert all(unit.guess_seconds > 0 for unit in units)


def test_children_of_a_group_are_ended_with_it(tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = f"touch {started}; sleep 600"
    outcome = children.run(["sh", "-c", script], Surroundings(dict(os.environ), (), 1))
    assert outcome.timed_out
    assert "longer than its limit" in outcome.failure
    good, bad = children.run_together(
        [["sh", "-c", "echo $TOLD"], ["sh", "-c", "echo no >&2; exit 3"]],
        Surroundings({**os.environ, "TOLD": "yes"}, (), 60),
    )
    assert (good.output, good.failure) == ("yes\n", "")
    assert (bad.status, bad.failure) == (3, "exit status 3: no")


def test_programs_are_kept_to_the_cores_they_are_given() -> None:
    core = min(os.sched_getaffinity(0))
    ask = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
    before = os.sched_getaffinity(0)
    outcome = children.run(ask, Surroundings(dict(os.environ), (core,), 60))
    assert outcome.output.split() == [str(core)]
    assert os.sched_getaffinity(0) == before


def test_settings_of_the_user_do_not_reach_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPPOGRIFF_ROUTE", "parked")
    monkeypatch.setenv("HIPPOGRIFF_HOST_LINK", "2GB")
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    environment = bench.environment({"HIPPOGRIFF_CHANNELS": "1"})
    assert "HIPPOGRIFF_ROUTE" not in environment
    assert environment["HIPPOGRIFF_HOST_LINK"] == "2GB"
    assert environment["HIPPOGRIFF_CHANNELS"] == "1"
    assert environment["HIPPOGRIFF_CALIBRATION"] == str(tmp_path / "calibration.json")


def test_nonsense_is_no_result() -> None:
    result = answer("run")
    assert moved_seconds(result_of(json.dumps(result))) == 2.0
    for broken in ("", "[]", "{}", json.dumps(answer("run", seconds={"send": -1})), "1"):
        with pytest.raises(MeasurementError):
            result_of(broken)


def test_calibration_is_wrong_in_links_and_drives_alone() -> None:
    calibration = {
        "host": {"cached_read_per_channel": {"bytes_per_second": 6.0}},
        "links": {"cuda:0": {"to_device": {"bytes_per_second": 50.0, "cpu_seconds_per_byte": 1}}},
    }
    assert scaled(calibration, 2) == {
        "host": calibration["host"],
        "links": {"cuda:0": {"to_device": {"bytes_per_second": 100.0, "cpu_seconds_per_byte": 1}}},
    }


def test_estimate_learns_from_the_like_and_from_all() -> None:
    slow = Unit("a", ("E1",), "slow", 1.0, dict)
    other = Unit("b", ("E1",), "other", 2.0, dict)
    estimate = Estimate()
    assert estimate.seconds([slow, other]) == 3.0
    estimate.note(slow, 3.0)
    assert estimate.seconds([slow, other]) == 9.0


def test_measurements_that_fail_do_not_end_the_run(tmp_path: Path) -> None:
    def fail() -> dict[str, Any]:
        raise MeasurementError("no")

    units = [Unit("a", ("E1",), "g", 1.0, fail), Unit("b", ("E1",), "g", 1.0, lambda: {"x": 1})]
    journal = Journal(tmp_path)
    summary = measure(units, journal, 60, quiet=True)
    assert (summary.done, summary.failed, summary.complete) == (1, {"a": "no"}, False)
    assert (journal.has("a"), journal.has("b")) == (False, True)


def test_kernel_tells_what_is_in_the_page_cache(tmp_path: Path) -> None:
    file = tmp_path / "file"
    pages = 300
    file.write_bytes(os.urandom(pages * mmap.PAGESIZE - 1))
    assert residency(file) == Residency(1.0, "mincore")
    with file.open("rb") as opened:
        size_bytes = file.stat().st_size
        try:
            by_cachestat = page_cache._by_cachestat(opened.fileno(), size_bytes, file)
        except OSError:
            by_cachestat = 0  # an older kernel
        assert by_cachestat in (0, pages)  # 0 on overlayfs, too
    make_cold(file)
    if residency(file).share == 1:
        pytest.skip("files here stay in memory")
    assert residency(file).share == 0
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    assert bench.prepare(file, CACHED) == 1
    assert bench.prepare(file, COLD) == 0
    with pytest.raises(FileNotFoundError):
        residency(tmp_path / "nowhere")


def test_what_mincore_does_not_tell_is_asked_of_cachestat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(19, "no such device")

    monkeypatch.setattr(page_cache, "_by_mincore", refuse)
    monkeypatch.setattr(page_cache, "_by_cachestat", lambda *_: 3)
    file = tmp_path / "file"
    file.write_bytes(b"x" * 4 * mmap.PAGESIZE)
    assert residency(file) == Residency(0.75, "cachestat")
    monkeypatch.setattr(page_cache, "_by_cachestat", refuse)
    with pytest.raises(OSError, match="no such device"):
        residency(file)


@pytest.mark.parametrize(("state", "share"), [(COLD, 0.5), (CACHED, 0.5)])
def test_state_that_a_file_does_not_come_into_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, share: float
) -> None:
    monkeypatch.setattr(bench_module, "residency", lambda _: Residency(share, "told"))
    file = tmp_path / "file"
    file.write_bytes(b"x")
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    with pytest.raises(AbsentError, match=f"50% .* no {state} state"):
        bench.prepare(file, state)


def test_each_of_eight_of_a_kind_reads_its_own_cold_file(tmp_path: Path) -> None:
    programs = fake_programs(tmp_path / "bin", nn='cat "$2" >/dev/null')
    bench = Bench(Places(tmp_path, tmp_path, programs), "host", 60)
    together = Together(bench, "tiny", {"nn": Need(4096, zlib.crc32(b"\n"))})
    try:
        for configuration in CONFIGURATIONS[:2]:
            record = together.measure("nn", configuration)
            assert [run["cached_before"] for run in record["runs"]] == [0.0] * 8
            assert record["failures"] == 0, record
            if not configuration.at_once:
                assert record["seconds"] == sum(run["seconds"] for run in record["runs"])
    except AbsentError as error:
        pytest.skip(str(error))
    wrong = Together(bench, "tiny", {"nn": Need(4096, 1)}).measure("nn", CONFIGURATIONS[0])
    assert wrong["failures"] == 8
    assert "not that of the conventional program" in wrong["runs"][0]["why"]


def test_room_is_made_of_nothing_that_is_about_to_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(Places(tmp_path, tmp_path, fake_programs(tmp_path / "bin")), "host", 60)
    programs = programs_of(MIXED)
    old = bench.input(BY_NAME["dwt2d"], "tiny")
    # A drive that has too little room until all that may go has gone.
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: usage._replace(free=0 if old.exists() else 1 << 40)
    )
    sources = bench.own_inputs(programs, "tiny")
    assert all(source.exists() for source in sources)
    assert not old.exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
    with pytest.raises(MeasurementError, match=f"are free in {tmp_path}"):
        bench.own_inputs(programs, "tiny")
    assert all(source.exists() for source in sources)
    copies = programs_of("nn")
    monkeypatch.undo()
    assert len(set(bench.own_inputs(copies, "tiny"))) == 8


def test_conventional_transfers_are_timed_in_memory_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20))
    timed: dict[str, list[bytearray | None]] = {"read": [], "write": []}

    def sample(kind: str) -> Any:
        def act(_path: Path, array: Any, staging: bytearray | None = None) -> Sample:
            timed[kind].append(staging)
            return Sample(kind, array.nbytes, 1.0, 1.0)

        return act

    monkeypatch.setattr(_transfer, "time_naive_read", sample("read"))
    monkeypatch.setattr(_transfer, "time_naive_write", sample("write"))
    for direction, kind in (("send", "read"), ("recv", "write")):
        said = _transfer.measure([str(file), direction, CACHED, "baseline", "2"])
        assert said["seconds"] == [1.0, 1.0]
        first = timed[kind][0]
        assert first is not None
        assert first == b"\1" * (1 << 20), "its pages were not touched"
        assert all(staging is first for staging in timed[kind])


def test_eight_share_a_third_of_what_they_want(tmp_path: Path) -> None:
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    needs = dict.fromkeys(BY_NAME, Need(90 << 20, 0))
    together = Together(bench, "tiny", needs)
    programs = programs_of("nn")
    wanted = 8 * together.need_bytes(programs[0])
    assert (len(programs), together.memory_bytes(programs)) == (8, wanted // 3)
    mixed = programs_of(MIXED)
    assert len({program.name for program in mixed}) == 8
    needs["nn"] = Need(10 << 30, 0)  # The largest must fit.
    assert together.memory_bytes(mixed) == together.need_bytes(BY_NAME["nn"])
    assert [each.name for each in CONFIGURATIONS if each.way == "run"] == [
        *("direct_most", "no_parking", "one_channel", "everything")
    ]


@pytest.mark.parametrize(("device", "context_bytes"), [("host", 0), ("cuda:0", 640 << 20)])
def test_reservation_of_each_of_the_eight_covers_its_context(
    tmp_path: Path, device: str, context_bytes: int
) -> None:
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), device, 60)
    together = Together(bench, "tiny", dict.fromkeys(BY_NAME, Need(90 << 20, 0)))
    program = BY_NAME["nn"]
    ours, beside = (
        together._command(each, program, tmp_path, tmp_path)
        for each in (CONFIGURATIONS[-1], CONFIGURATIONS[0])
    )
    reserved = int(ours[ours.index("--memory") + 1])
    assert reserved == together.need_bytes(program) + context_bytes
    assert "--memory" not in beside


def test_slices_of_several_invocations_make_one_report(tmp_path: Path) -> None:
    programs = fake_programs(tmp_path / "bin")
    slices = (
        ["--only", "nn,lud"],
        ["--only", "lud,cfd", "--repetitions", "1", "--sizes", "tiny"],
        ["--budget-seconds", "0"],
        ["--repetitions", "1"],
    )
    for words in slices:
        assert reproduce(tmp_path, programs, *words).returncode == 0
    assert len(keys_of(tmp_path)) == 2 * 2 + 1 + 6
    rest = reproduce(tmp_path, programs, "--json")
    assert there(rest) == 2 * len(PROGRAMS)
    keys = keys_of(tmp_path)
    assert len(keys) == len(set(keys)) == 2 * len(PROGRAMS), "something was measured twice"
    # Machines that were lent on two days: their folders' lines together are one folder's.
    assert reproduce(tmp_path / "again", programs, "--experiments", "E3").returncode == 0
    one, two = tmp_path / "out", tmp_path / "again" / "out"
    both = tmp_path / "both"
    both.mkdir()
    (both / "measurements.jsonl").write_text(
        (one / "measurements.jsonl").read_text() + (two / "measurements.jsonl").read_text()
    )
    together = sorted(record["key"] for record in load(both).records)
    assert together == sorted(record["key"] for record in merged([one, two]).records)
    by_hand = 2 * (2 + len(QUICK.shapes) + 2) * len(QUICK.setting_programs)
    assert len(together) == 2 * 2 * 3 * len(PROGRAMS) + by_hand
    page = write_page([both], tmp_path / "report", plots=False).read_text()
    assert "E1: where time goes</td><td>18</td><td>0</td><td>0</td><td>18</td>" in page


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_can_be_the_first_slice(tmp_path: Path, name: str) -> None:
    bench = Bench(Places(tmp_path, tmp_path, fake_programs(tmp_path / "bin")), "host", 60)
    first = Experiments(bench, QUICK, Journal(tmp_path / "journal")).units((name,))[0]
    record = first.measure()
    bench.clean(keep_inputs=False)  # and what it has in /dev/shm
    assert "failure" not in record


def test_slice_is_a_part_of_the_same_measurements(tmp_path: Path) -> None:
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    journal = Journal(tmp_path / "journal")
    every = {unit.key for unit in Experiments(bench, FULL, journal).units(tuple(EXPERIMENTS))}
    part = cut(FULL, slice_of("nn,mixed", "large", 2))
    keys = {unit.key for unit in Experiments(bench, part, journal).units(tuple(EXPERIMENTS))}
    cores = {key for key in keys if key.startswith("cores/")}  # in full of medium inputs
    assert keys - cores < every
    assert {key.split("/")[1] for key in keys if key.startswith("whole/")} == {"nn"}
    assert max(int(key.split("/")[-1]) for key in keys if key.startswith("whole/")) == 1
    few = cut(FULL, slice_of("mixed", None, 1, "everything, drive"))
    keys = {unit.key for unit in Experiments(bench, few, journal).units(("E7",))}
    assert {key.split("/")[-2] for key in keys if key.startswith("together/")} == {
        *("drive", "everything")
    }
    with pytest.raises(InvalidArgument, match="fastest: configurations are drive, in_turns"):
        slice_of(None, None, 0, "fastest")
    with pytest.raises(InvalidArgument, match="huge"):
        slice_of(None, "huge", 0)


def test_real_programs_are_measured_and_checked(tmp_path: Path) -> None:
    try:
        programs = find_programs()
    except InvalidArgument as error:
        pytest.skip(str(error))
    done = reproduce(tmp_path, programs, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert there(done) == json.loads(done.stdout)["wanted"] == 2 * len(PROGRAMS)
    for line in lines_of(tmp_path):
        if "result" in line and line["key"].endswith("/0"):
            assert line["oracle"].startswith("correct")
