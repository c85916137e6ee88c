"""The benchmark of programs that share a device: modes, failures, the end of its time, its page."""

from __future__ import annotations

import itertools
import json
import os
import select
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bench import sharing
from bench.gpu_samples import GpuSamples, parse_sample
from bench.sharing_page import is_sharing, page_lines, thinned
from bench.sharing_runs import (
    MEMORY_SHARE,
    MODES,
    POLICIES,
    Setup,
    UnavailableError,
    command_in_mode,
    instances_of,
    run_mode,
    waves,
)

MIB = 1 << 20
ANSWER = '{"checksum": "%s", "seconds": {"read": 1.0, "wait": 5.0, "device": 0.5}}'


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def setup_in(folder: Path, **programs: str) -> Setup:
    """Programs that are shell scripts; a `hippogriff` that notes its words and runs the rest."""
    for name in MEMORY_SHARE:
        write_program(folder / "bin" / name, programs.get(name, f"echo '{ANSWER % name}'"))
    script = f'echo "$*" >> {folder}/calls; [ "$1" = policy ] && exit; '
    script += 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    write_program(folder / "hippogriff", script)
    return Setup(folder / "bin", (str(folder / "hippogriff"),), "host", 100 * MIB, 60)


def soon() -> float:
    """Return a deadline that no working test comes near."""
    return time.monotonic() + 60


def test_packing_by_hand_leaves_no_group_larger_than_the_device(tmp_path: Path) -> None:
    setup = setup_in(tmp_path)
    groups = waves(setup, ["risk"] * 12)
    assert [len(group) for group in groups] == [6, 6]
    assert [len(group) for group in waves(setup, ["proteins"] * 5)] == [2, 2, 1]
    mixed = waves(setup, instances_of("mixed", 12))
    assert sorted(itertools.chain.from_iterable(mixed)) == sorted(instances_of("mixed", 12))
    assert all(sum(map(setup.memory_bytes, group)) <= 100 * MIB for group in mixed)


def test_mixed_workload_takes_turns() -> None:
    assert instances_of("mixed", 4) == ["risk", "align", "proteins", "risk"]
    assert instances_of("align", 2) == ["align", "align"]


@pytest.mark.parametrize("mode", ["sequential", "packed", "all", "run-mmu", "late-mmu"])
def test_every_instance_answers_in_every_mode(tmp_path: Path, mode: str) -> None:
    case = run_mode(setup_in(tmp_path), mode, instances_of("mixed", 6), soon())
    assert (case["failures"], case["cut"], len(case["runs"])) == (0, False, 6)
    assert {run["checksum"] for run in case["runs"]} == set(MEMORY_SHARE)
    assert all(run["run_seconds"] == 1.5 for run in case["runs"])  # without its wait


def test_policy_is_set_before_the_instances_reserve_what_they_take(tmp_path: Path) -> None:
    setup = setup_in(tmp_path)
    run_mode(setup, "run-priority-mmu", ["align", "proteins"], soon())
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "policy priority-mmu"
    align = f"run --memory {14 * MIB} --timeout 60 --device host --priority 1 -- {setup.programs}"
    assert sum(call.startswith(f"{align}/align --json") for call in calls[1:]) == 1
    late = " ".join(command_in_mode(setup, "align", "late-mmu"))
    assert f" {align.replace(' -- ', ' --wait first-use -- ')}/align --json" in late
    assert f"--device host --memory {14 * MIB}" in " ".join(command_in_mode(setup, "align", "all"))
    shared = command_in_mode(setup, "risk", "share-fifo")
    assert shared[-5:] == ["--share", "--timeout", "60", "--priority", "1"]


def test_failures_are_counted_with_their_words(tmp_path: Path) -> None:
    setup = setup_in(
        tmp_path,
        risk="echo nothing left >&2; exit 3",
        align="echo no JSON",
        proteins="kill -9 $$",
    )
    case = run_mode(setup, "all", list(MEMORY_SHARE), soon())
    assert case["failures"] == 3
    risk, align, proteins = case["runs"]
    assert (risk["exit_status"], risk["why"]) == (3, "no device memory: nothing left")
    assert align["why"].startswith("its output is no result")
    assert (proteins["exit_status"], proteins["why"]) == (-9, "exit status -9")


def test_end_of_the_time_ends_instances_and_what_they_started(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # As long as one of the processes lives, it holds the writing end.
    setup = setup_in(tmp_path, risk=f"exec 9>{fifo}; touch {tmp_path}/started; sleep 600 & wait")
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        case = run_mode(setup, "sequential", ["risk", "risk"], time.monotonic() + 3)
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        events = poll.poll(30_000)
    finally:
        os.close(reading)
    assert case["cut"]
    assert case["failures"] == len(case["runs"]) == 1
    assert not (tmp_path / "started").exists() or events == [(reading, select.POLLHUP)]


def test_mode_that_does_not_exist_here_says_why(tmp_path: Path) -> None:
    setup = setup_in(tmp_path)
    with pytest.raises(UnavailableError, match="no GPU"):
        run_mode(setup, "mps", ["risk"], soon())
    write_program(tmp_path / "hippogriff", "echo 'no such command' >&2; exit 2")
    with pytest.raises(UnavailableError, match="policy fifo: no such command"):
        run_mode(setup, "run-fifo", ["risk"], soon())


def test_samples_are_read_and_other_words_are_not() -> None:
    sample = parse_sample("2026/11/22 19:11:16.250, 97, 1024, 4096\n")
    assert sample == (datetime(2026, 11, 22, 19, 11, 16, 250_000), 97.0, 1 << 30, 4 << 30)
    for line in ("2026/11/22 19:11:16.250, [N/A], 1, 2", "", "1, 2", "now, 1, 2, 3", "an error"):
        assert parse_sample(line) is None
    with GpuSamples(None, 100) as samples:
        pass
    assert "why_absent" in samples.summary()


def test_use_of_the_gpu_is_what_nvidia_smi_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "for i in 20 40; do date '+%Y/%m/%d %H:%M:%S.%3N, '$i', 1024, 4096'; done"
    write_program(tmp_path / "nvidia-smi", f"echo a warning; {script}; exec sleep 600")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    end = time.monotonic() + 30
    with GpuSamples(0, 100) as samples:
        while len(samples.summary().get("samples", [])) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    summary = samples.summary()
    assert (summary["average_busy_percent"], summary["average_memory_percent"]) == (30.0, 25.0)
    assert [sample[1:] for sample in summary["samples"]] == [(20.0, 1 << 30), (40.0, 1 << 30)]
    assert all(-0.01 < sample[0] < 60 for sample in summary["samples"])


@pytest.mark.parametrize(
    "words",
    [
        ["--modes", "sequential,dance"],
        ["--workloads", "lud"],
        ["--instances", "13"],
        ["--instances", "0"],
    ],
)
def test_words_that_mean_nothing_are_refused(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        sharing.parse_arguments(["--json", str(tmp_path / "a.json"), *words])


def test_programs_run_on_device_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPOGRIFF_NODE", str(tmp_path / "node"))  # Memory of this test's own.
    library = Path(os.environ.get("HIPPOGRIFF_LIBRARY", "build/libhippogriff.so"))
    if not all((library.parent / "bin" / program).exists() for program in MEMORY_SHARE):
        pytest.skip("the workloads are not built")
    path = tmp_path / "results.json"
    words = ["--json", str(path), "--build", str(library.parent), "--device", "host"]
    words += ["--device-memory", "16MiB", "--instances", "3", "--modes", "sequential,packed"]
    words += ["--risk", "--trials 100 --per-trial 10", "--align", "--reference 2000 --reads 20"]
    words += ["--proteins", "--sequences 20 --queries 1 --query 50"]
    sharing.Bench(sharing.parse_arguments(words)).run()
    results = json.loads(path.read_text())
    assert len(results["cases"]) == 8
    for case in results["cases"]:
        assert (case["failures"], case["wrong"], case["cut"]) == (0, 0, False), case
        assert len(case["runs"]) == 3
    assert is_sharing(path)
    page = "\n".join(page_lines([path], tmp_path / "page.md", plots=False))
    assert "| 3 | packed |" in page


def case_of(workload: str, mode: str, seconds: float | None, **more: Any) -> dict[str, Any]:
    case: dict[str, Any] = {"workload": workload, "instances": 12, "mode": mode}
    if seconds is None:
        return case | {"why_absent": "not here"} | more
    run = {"wait_seconds": 1.0, "run_seconds": 2.0}
    gpu = {"average_busy_percent": 50.0, "average_memory_percent": 40.0}
    done = {"seconds": seconds, "cut": False, "failures": 0, "wrong": 0, "runs": [run], "gpu": gpu}
    return case | done | more


def write_document(path: Path, cases: list[dict[str, Any]], model: str = "a GPU") -> Path:
    machine = {"device": {"model": model}, "processor": "p", "cores": 16, "kernel": "k"}
    document = {
        "schema": "hippogriff-sharing/1",
        "started": path.name,
        "command_line": "python3 -m bench.sharing",
        "device_bytes": 1 << 30,
        "machine": machine,
        "cases": cases,
    }
    path.write_text(json.dumps(document))
    return path


def test_gains_are_over_the_same_instances_one_after_the_other(tmp_path: Path) -> None:
    cases = [
        case_of("risk", "sequential", 100.0),
        case_of("risk", "all", 5.0, failures=6),
        case_of("risk", "run-mmu", 8.0),
        case_of("risk", "share-fifo", 20.0),
        case_of("risk", "share-mmu", 1.0, wrong=1),
        case_of("risk", "mps", None),
        case_of("proteins", "sequential", 12.0),
        case_of("proteins", "run-fifo", 10.0),
        case_of("proteins", "run-mmu", 4.0, cut=True),
    ]
    path = write_document(tmp_path / "a.json", cases)
    page = "\n".join(page_lines([path], tmp_path / "page.md", plots=False))
    assert "| risk: gain over sequential | 12 | ≥ 10 | 12.5 | run-mmu | met |" in page
    assert "| proteins: gain over sequential | 12 | ≥ 1.5 | 1.2 | run-fifo | not met |" in page
    assert "| 12 | **run-mmu** | 8.00 | 12.50 | 0 | 1.00 | 2.00 | 50.0 | 40.0 |" in page
    assert "| 12 | all | 5.00 |  | 6 |" in page  # no gain where some failed
    assert "Not measured, or not everywhere: mps (not here)." in page
    assert "run-mmu (cut short)" in page
    assert page_lines([], tmp_path / "page.md", plots=True) == []


def test_later_runs_replace_earlier_ones_unless_they_came_to_nothing(tmp_path: Path) -> None:
    first = [
        case_of("align", "sequential", 30.0),
        case_of("align", "run-mmu", 10.0),
        case_of("align", "run-fifo", 12.0),
        case_of("align", "mps", 5.0, cut=True),
    ]
    second = [
        case_of("align", "sequential", 20.0),
        case_of("align", "run-mmu", None),
        case_of("align", "run-fifo", 1.0, cut=True),
        case_of("align", "mps", 16.0),
    ]
    paths = [
        write_document(tmp_path / "a.json", first),
        write_document(tmp_path / "b.json", second),
    ]
    page = "\n".join(page_lines(paths, tmp_path / "page.md", plots=False))
    assert "| 12 | sequential | 20.00 | 1.00 |" in page
    assert "| 12 | **run-mmu** | 10.00 | 3.00 |" in page  # over what ran beside it
    assert "| 12 | **run-fifo** | 12.00 | 2.50 |" in page
    assert "| 12 | mps | 16.00 | 1.25 |" in page
    assert "Not measured" not in page


def test_results_of_several_machines_are_not_mixed(tmp_path: Path) -> None:
    paths = [
        write_document(tmp_path / "a.json", [], "one"),
        write_document(tmp_path / "b.json", [], "another"),
    ]
    with pytest.raises(ValueError, match="several machines"):
        page_lines(paths, tmp_path / "page.md", plots=False)


def test_lines_over_time_are_means_of_neighbours() -> None:
    assert thinned([]) == []
    assert thinned([[0.0, 1.0, 2.0]] * 200) == [[0.0, 1.0, 2.0]] * 200
    means = thinned([[float(number), 50.0, 1.0] for number in range(401)])
    assert means[0] == [1.0, 50.0, 1.0]
    assert (len(means), means[-1]) == (134, [399.5, 50.0, 1.0])


def test_every_policy_has_all_modes() -> None:
    for prefix in ("run-", "late-", "share-"):
        policies = {mode.removeprefix(prefix) for mode in MODES if mode.startswith(prefix)}
        assert policies == set(POLICIES)
