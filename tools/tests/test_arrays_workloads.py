"""The benchmark of programs over arrays: modes in turns, failures, its end, its page."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import arrays_workloads, arrays_workloads_page, gather_device, gather_runs

RUN = '{"seconds": {"compute": 1}, "total_seconds": 2, "amplification": %s, "mode": "%s"}'
# A program that makes its data, or notes its words and answers.
PROGRAM = """#!/bin/sh
if [ "$1" = generate ]; then mkdir -p "$2"; echo ab >"$2/a"; echo ab >"$2/b"; exit; fi
echo "$@" >>{calls}
[ -e "$2/c" ] && echo "$2/c is there already" >&2 && exit 2
echo sums >"$2/c"
mode=; device=
while [ $# -gt 0 ]; do
  [ "$1" = --mode ] && mode=$2
  shift
done
case $mode in
  array) echo '{{"runs": [{array}]}}' ;;
  tiled) echo 'vectoradd: WRONG: number 3' >&2; exit 1 ;;
  *) echo '{{"runs": [{other}]}}' ;;
esac
"""


def run(folder: Path, *words: str, name: str = "vectoradd") -> dict[str, Any]:
    (folder / "bin").mkdir()
    program = folder / "bin" / name
    script = PROGRAM.format(
        calls=folder / "calls", array=RUN % (1.5, "array"), other=RUN % ("null", "resident")
    )
    program.write_text(script)
    program.chmod(0o755)
    path = folder / "results.json"
    options = arrays_workloads.parse_arguments(
        [
            *("--json", str(path), "--build", str(folder), "--folder", str(folder)),
            *("--device", "host", "--programs", name, "--cache", "4KiB", "--rounds", "2"),
            *words,
        ]
    )
    arrays_workloads.Bench(options).run()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_modes_take_turns_and_the_first_round_is_checked(tmp_path: Path) -> None:
    results = run(tmp_path, "--states", "cached,cold")
    calls = (tmp_path / "calls").read_text().splitlines()
    modes = [call.split("--mode ")[1].split()[0] for call in calls]
    # One that gave something wrong is not asked again.
    assert modes[:5] == ["array", "tiled", "resident", "array", "resident"]
    # What is checked has read the files before, so cold ones are measured without.
    assert modes[5:] == ["array", "array", "tiled", "resident", "resident", "array", "resident"]
    checked = [call.endswith("--check") for call in calls]
    assert (
        checked == [True, True, True, False, False] + [True, False, True, True, False] + [False] * 2
    )
    assert all("--device host --cache 4096 --line 4096 --json" in call for call in calls)
    array, tiled, resident, *cold = results["cases"]
    assert array["summary"]["seconds_median"] == 2
    assert array["summary"]["amplification_median"] == 1.5
    assert resident["summary"]["amplification_median"] is None
    assert tiled["wrong"]
    assert "number 3" in tiled["why_absent"]
    assert [case["state"] for case in cold] == ["cold"] * 3
    assert len(cold[0]["repetitions"]) == 2
    assert not list(tmp_path.glob("vectoradd-*"))  # the data are gone


def test_what_the_time_does_not_suffice_for_says_so(tmp_path: Path) -> None:
    results = run(tmp_path, "--budget", "0")
    assert [case["why_absent"] for case in results["cases"]] == ["the time was over"] * 3


def test_page_has_a_line_for_each_case(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "results.json"
    assert arrays_workloads_page.is_arrays_workloads(path)
    output = tmp_path / "page.md"
    page = "\n".join(arrays_workloads_page.page_lines([path], output, plots=False))
    assert "| vectoradd, cached | 6e-09, 4.1e-06 | 2 | 2 |  | absent: exit status 1: " in page
    assert page.count("| 1.00 |  |  | 1.50 |") == 1
    assert arrays_workloads_page.page_lines([], output, plots=False) == []


def test_tiles_are_compared_with_and_are_an_aim_of_vectoradd_alone(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "results.json"
    results = json.loads(path.read_text())
    array = next(each for each in results["cases"] if each["mode"] == "array")
    tiled = {**array, "mode": "tiled", "summary": {**array["summary"], "seconds_median": 5.0}}
    names = ("bfs kronecker 3", "Q1", "vectoradd")
    results["cases"] = [{**each, "case": name} for name in names for each in (array, tiled)]
    path.write_text(json.dumps(results))
    page = "\n".join(arrays_workloads_page.page_lines([path], tmp_path / "p", plots=False))
    assert "| tiled | ratio | to zero-copy | to tiled | read |" in page
    for name in names:
        assert f"| {name}, cached | 6e-09, 4.1e-06 | 2 |  |  | 5 |  |  | 2.50 | 1.50 |" in page
    assert [line for line in page.splitlines() if "met |" in line] == [
        "| vectoradd | cached | tiled by hand | ≥ 1 | 2.500 | met |"
    ]
    results["cases"] = [each for each in results["cases"] if each["mode"] == "array"]
    path.write_text(json.dumps(results))
    page = "\n".join(arrays_workloads_page.page_lines([path], tmp_path / "p", plots=False))
    assert "| tiled | ratio | to zero-copy | read |" in page


def test_given_graphs_are_cases_beside_generated_ones(tmp_path: Path) -> None:
    given = [tmp_path / "roads", tmp_path / "rails"]
    for path in given:
        path.write_text("a graph")
    words = ("--scale", "3", "--sources", "2", "--graphs", *map(str, given))
    # The program's answer is the same whatever it is asked.
    results = run(tmp_path, *words, "--kinds", "none", "--rounds", "1", name="graph")
    names = [each["case"] for each in results["cases"] if each["mode"] == "array"]
    expected = ["bfs", "bfs --top-down", "cc", "pagerank"]
    assert names == [f"{each} {path.name}" for path in given for each in expected]
    assert all(each["data_bytes"] == 7 for each in results["cases"])
    assert [each["mode"] for each in results["cases"]][:4] == [
        "array",
        "resident",
        "zero-copy",
        "tiled",
    ]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0].startswith(f"run {given[0]} --algorithm bfs --sources 2 --mode array")
    assert all(path.exists() for path in given)  # they are not the benchmark's to remove
    found = arrays_workloads.graph_cases(
        tmp_path / "bin",
        tmp_path,
        arrays_workloads.Sizes("host", 3, ("uniform",), 2, 1, 1, tuple(given)),
    )
    assert [each.name for each in found] == [
        f"{each} {name}" for name in ("uniform 3", "roads", "rails") for each in expected
    ]


def test_given_graphs_must_be_there_and_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").mkdir()
    for path in (tmp_path / "a", tmp_path / "one" / "a"):
        path.touch()
    for graphs, why in [(["a", "one/a"], "two of the same name"), (["b"], "b is no file")]:
        words = ["--json", "x", "--graphs", *(str(tmp_path / each) for each in graphs)]
        with pytest.raises(SystemExit):
            arrays_workloads.parse_arguments(words)
        assert why in capsys.readouterr().err


def test_unknown_programs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arrays_workloads.parse_arguments(["--json", str(tmp_path), "--programs", "sort"])
    assert "sort: not among graph, queries, vectoradd, gather" in capsys.readouterr().err


def test_gather_is_for_every_device_where_there_is_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--json", str(tmp_path)]
    assert "gather" in arrays_workloads.parse_arguments(words).programs
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert "gather" not in arrays_workloads.parse_arguments(words).programs


# As on a GPU, whose memory a host's stands for.
def gather_as_on_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Any, dict[str, Any]]:
    library = Path(os.environ.get("HIPPOGRIFF_LIBRARY", "build/libhippogriff.so"))
    monkeypatch.setattr(arrays_workloads, "on_host", lambda _options: False)
    cases = gather(folder, library.parent, "--row-bytes", "512", "--cache", "256KiB")
    return {(each["mode"], each["state"]): each for each in cases}


def test_gather_for_a_gpu_has_its_baselines_in_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = gather_as_on_a_gpu(tmp_path, monkeypatch)
    assert not any(each.get("wrong") for each in cases.values())
    for state in ("cold", "cached"):
        for mode in ("array", "resident", "zero-copy", "numpy"):
            assert len(cases[mode, state]["repetitions"]) == 2, (mode, state)
    parts = cases["resident", "cold"]["repetitions"][0]["seconds"]
    assert set(parts) == {"load", "compute"}
    direct = cases["past page cache", "cold"]
    assert "why_absent" in direct or direct["repetitions"][0]["reads"] > 0
    assert set(cases["loaded before", "cached"]["repetitions"][0]["seconds"]) == {"compute"}
    torch = cases["torch", "cached"]
    assert torch.get("why_absent", "torch is not installed") == "torch is not installed"
    limit = cases["io_uring", "cold"]  # absent where there is no program, io_uring or O_DIRECT
    assert ("why_absent" in limit) != ("summary" in limit)
    page = arrays_workloads_page.page_lines(
        [tmp_path / "results.json"], tmp_path / "p.md", plots=False
    )
    assert any(
        "| numpy | torch | loaded before | past page cache | io_uring |" in each for each in page
    )


def test_a_gather_for_a_gpu_tells_rows_that_are_wrong_and_the_end_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather_device, "_MULTIPLIER", np.uint64(3))
    make = gather_device.make_file

    def make_other(path: Path, size_bytes: int) -> None:
        make(path, size_bytes)
        path.write_bytes(bytes(size_bytes))

    monkeypatch.setattr(gather_device, "make_file", make_other)
    cases = gather_as_on_a_gpu(tmp_path, monkeypatch)
    assert cases["array", "cached"]["wrong"]
    assert cases["array", "cached"]["why_absent"] == "WRONG: rows by array"
    assert "summary" not in cases["numpy", "cold"]


def test_cold_misses_are_held_against_the_drive(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "results.json"
    results = json.loads(path.read_text())

    def entry(mode: str, seconds: float) -> dict[str, Any]:
        told = arrays_workloads.new_entry("gather", mode, "cold", 1, 1)
        taken = {"seconds": {"compute": seconds}, "total_seconds": 9, "amplification": None}
        taken["reads"] = 300 if mode == "io_uring" else 600
        told["repetitions"] = [taken] * 2
        return {**told, "summary": arrays_workloads.summary([taken])}

    for seconds, words in (
        (4.0, "past it 0.15 thousand lines a second, 1.00, met"),
        (4.4, "past it 0.136 thousand lines a second, 0.91, not met"),
    ):
        results["cases"] = [
            entry("array", 2.0),
            entry("past page cache", seconds),
            entry("io_uring", 2.0),
        ]
        path.write_text(json.dumps(results))
        page = "\n".join(arrays_workloads_page.page_lines([path], tmp_path / "p", plots=False))
        assert words in page
        assert "by default, through the page cache, 0.3 thousand lines a second, 2.00, met" in page


def gather(folder: Path, build: Path, *words: str) -> list[dict[str, Any]]:
    path = folder / "results.json"
    options = ["--json", str(path), "--build", str(build), "--folder", str(folder)]
    options += ["--device", "host", "--programs", "gather", "--states", "cold,cached"]
    options += ["--gather-bytes", "2MiB", "--gather-rows", "300", "--rounds", "2", *words]
    arrays_workloads.Bench(arrays_workloads.parse_arguments(options)).run()
    assert not list(folder.glob("gather-*"))  # the file is gone
    cases: list[dict[str, Any]] = json.loads(path.read_text())["cases"]
    return cases


def test_gather_is_measured_beside_numpy(tmp_path: Path) -> None:
    library = Path(os.environ.get("HIPPOGRIFF_LIBRARY", "build/libhippogriff.so"))
    if not (library.parent / "bin" / "gather").exists():
        pytest.skip("the workloads are not built")
    cases = gather(tmp_path, library.parent, "--row-bytes", "520")
    modes = ["array", "resident", "zero-copy", "numpy"]
    assert [each["mode"] for each in cases] == 2 * modes
    assert [each["state"] for each in cases] == ["cold"] * 4 + ["cached"] * 4
    assert all(len(each["repetitions"]) == 2 for each in cases)
    assert all("why_absent" not in each and "wrong" not in each for each in cases)
    assert cases[0]["data_bytes"] == (2 << 20) // 520 * 520
    page = "\n".join(
        arrays_workloads_page.page_lines(
            [tmp_path / "results.json"], tmp_path / "p.md", plots=False
        )
    )
    assert "| tiled | numpy | ratio |" in page
    assert page.count("| gather, c") == 2


@pytest.mark.parametrize(
    ("script", "why", "wrong"),
    [
        ("echo 'gather: row 3 is wrong' >&2; exit 1", "exit status 1: gather: row 3", True),
        ("echo nonsense", "gather printed something else: 'nonsense", False),
    ],
)
def test_gather_that_fails_says_so(tmp_path: Path, script: str, why: str, wrong: bool) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "gather"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    for each in gather(tmp_path, tmp_path):
        assert each["why_absent"].startswith(why)
        assert each.get("wrong", False) == wrong


def test_words_that_numpy_gathers_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    words = (np.arange(1, 65, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    path.write_bytes(words.tobytes())
    rows = np.array([3, 0, 3, 7])
    assert gather_runs.gather_with_numpy(path, rows, 64) >= 0
    words[31] += np.uint64(1)
    path.write_bytes(words.tobytes())
    with pytest.raises(ValueError, match="WRONG"):
        gather_runs.gather_with_numpy(path, rows, 64)


# Programs that note their words; `blocks` finds blocks of 512 bytes wrong when it reads.
BLOCKS = """#!/bin/sh
echo "$@" >>{calls}
if [ "$1" = generate ]; then echo made >"$2"; exit; fi
case "$*" in *"read"*"--block 512"*) echo "blocks: WRONG: 3 words" >&2; exit 1 ;; esac
echo '{{"runs": [{{"seconds": {{"compute": 1, "flush": 1}}, "total_seconds": 2, "amplification": 1,
"blocks_per_second": 80, "source": "{source}"}}]}}'
"""
RANDOM_BLOCKS = """#!/bin/sh
echo "$@" >>{calls}
shift 4
for depth; do echo "{{\\"depth\\": $depth, \\"seconds\\": 0.$depth}}"; done
"""


def blocks(folder: Path, build: Path, *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    path = folder / "results.json"
    options = ["--json", str(path), "--build", str(build), "--folder", str(folder)]
    options += ["--device", "host", "--programs", "blocks", "--rounds", "2", *words]
    options += ["--blocks-bytes", "2MiB", "--blocks-count", "300"]
    arrays_workloads.Bench(arrays_workloads.parse_arguments(options)).run()
    assert not list(folder.glob("blocks-*"))  # the file is gone
    cases = json.loads(path.read_text())["cases"]
    return {(each["case"], each["mode"]): each for each in cases}


def made_up_blocks(folder: Path, source: str) -> dict[tuple[str, str], dict[str, Any]]:
    (folder / "bin").mkdir()
    for name, script in (("blocks", BLOCKS), ("random_blocks", RANDOM_BLOCKS)):
        program = folder / "bin" / name
        program.write_text(script.format(calls=folder / "calls", source=source))
        program.chmod(0o755)
    return blocks(folder, folder)


def test_blocks_are_compared_with_a_file_that_is_as_it_was_made(tmp_path: Path) -> None:
    cases = made_up_blocks(tmp_path, "files past the page cache (O_DIRECT)")
    wrong = cases["blocks read 512", "past page cache"]
    assert wrong["wrong"]
    assert "summary" not in wrong
    calls = [call.split() for call in (tmp_path / "calls").read_text().splitlines()]
    verbs = [call[0] if call[0] != "run" else call[3] for call in calls]
    # Wrong once, not asked again; each other case in two rounds of both.
    reads, writes = ["read"] * 3 + ["read"] * 4, ["write"] * 4
    assert verbs == ["generate", *reads, *writes, "generate", *writes]
    limits = [call[4:] for call in calls if call[0] in ("read", "write")]
    assert limits == [["64", "128", "256", "512"], ["128"]] * 4  # all depths, then the best
    written = [" ".join(call) for call in calls if "write" in call and "run" in call]
    assert [("--check" in call, "--new-seed 2" in call) for call in written] == [
        (True, True),
        (False, False),
    ] * 2
    limit = cases["blocks write 4096", "io_uring"]
    assert limit["repetitions"][1]["blocks_per_second"] == pytest.approx(300 / 0.128)
    assert limit["data_bytes"] == 300 * 4096


def test_blocks_through_the_page_cache_are_not_held_against_the_drive(tmp_path: Path) -> None:
    case = made_up_blocks(tmp_path, "files through the page cache")
    entry = case["blocks read 4096", "past page cache"]
    assert entry["why_absent"] == "the array reads files through the page cache"


def test_blocks_have_a_table_and_a_bound_for_reads(tmp_path: Path) -> None:
    made_up_blocks(tmp_path, "files past the page cache (O_DIRECT)")
    path = tmp_path / "results.json"
    results = json.loads(path.read_text())
    for rate, words in (
        (950, "| ≥ 0.95 | 0.950 | met |"),
        (940, "| ≥ 0.95 | 0.940 | not met |"),
    ):
        for entry in results["cases"]:
            for each in entry["repetitions"]:
                each["blocks_per_second"] = rate if entry["mode"] == "past page cache" else 1000
        path.write_text(json.dumps(results))
        page = "\n".join(arrays_workloads_page.page_lines([path], tmp_path / "p", plots=False))
        assert f"| read 300 of 4096 B | 0.00123, 0.00105 | {rate / 1e3:g} | 1 | 128 {words}" in page
        assert f"| write 300 of 512 B | 0.000154, 0.00105 | {rate / 1e3:g} | 1 | 128 |  |" in page
        assert "| absent: exit status 1: blocks: WRONG: 3 words | 1 | 128 | ≥ 0.95 |  |  |" in page
        assert "zero-copy | tiled" not in page  # no other table


def test_blocks_are_measured_beside_the_drive(tmp_path: Path) -> None:
    library = Path(os.environ.get("HIPPOGRIFF_LIBRARY", "build/libhippogriff.so"))
    programs = library.parent / "bin"
    if not (programs / "blocks").exists() or not (programs / "random_blocks").exists():
        pytest.skip("the programs are not built")
    cases = blocks(tmp_path, library.parent)
    assert len(cases) == 8
    for entry in cases.values():  # absent where there is no io_uring or O_DIRECT
        assert not entry.get("wrong")
        assert "why_absent" in entry or len(entry["repetitions"]) == 2
