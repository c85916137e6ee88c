"""`hippogriff reproduce`: what it starts ends with it, and what that prints may be anything."""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from reproduce_programs import fake_programs

from hippogriff.errors import InvalidArgument
from hippogriff.reproduce import children
from hippogriff.reproduce.bench import (
    CACHED,
    COLD,
    AbsentError,
    Bench,
    MeasurementError,
    Places,
    json_of,
    transfers_of,
)
from hippogriff.reproduce.children import Surroundings
from hippogriff.reproduce.together import mps

_LONG_SECONDS = 60.0
_GOOD = '{"seconds": [1, 2], "cpu_seconds": [1, 2], "cached_before": [0, 0]}'


def fake_mps(folder: Path, *, obeys: bool) -> tuple[Path, int]:
    """A daemon's control program, and a pipe that its processes have open as long as they live."""
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    control = folder / "control"
    quits = 'kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")"' if obeys else "exit 1"
    control.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -f ]; then exec 9>{fifo}; trap "exit 0" TERM; sleep 600 &\n'
        '  echo $$ >"$CUDA_MPS_PIPE_DIRECTORY/pid"; wait; exit; fi\n'
        f"read words; case $words in quit) {quits} ;; esac\n"
        '[ -e "$CUDA_MPS_PIPE_DIRECTORY/pid" ]\n'
    )
    control.chmod(0o755)
    return control, os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)


def closed(reading: int) -> bool:
    """Whether all that had the pipe open end in time."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    return poll.poll(int(_LONG_SECONDS * 1000)) == [(reading, select.POLLHUP)]


def test_an_interrupt_while_a_program_starts_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)  # Before anyone else knows of the process.

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        children.run(["sleep", "600"], Surroundings({}, (), _LONG_SECONDS))
    assert [process.returncode for process in started] == [-signal.SIGTERM]


@pytest.mark.parametrize("second", ["INT", "TERM", "HUP"])
def test_second_signal_while_inputs_are_removed_leaves_none(tmp_path: Path, second: str) -> None:
    programs = fake_programs(tmp_path / "bin", hotspot="kill -HUP $PPID; exec sleep 600")
    script = (
        "import os, shutil, signal, sys; remove = shutil.rmtree\n"
        "def interrupted(path, **options):\n"
        f"    os.kill(os.getpid(), signal.SIG{second}); remove(path, **options)\n"
        "shutil.rmtree = interrupted\n"
        "from hippogriff.cli import main; main()\n"
    )
    words = ["reproduce", "--quick", "--experiments", "E1", "--device", "host", "--no-report"]
    places = ["--out", str(tmp_path / "out"), "--programs", str(programs)]
    done = subprocess.run(
        [sys.executable, "-c", script, *words, *places],
        capture_output=True,
        text=True,
        timeout=_LONG_SECONDS,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.endswith("interrupted; nothing was left behind\n")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"measurements.jsonl", "results.json"} <= names
    assert not [name for name in names if name.startswith("hippogriff-reproduce-")]


def test_child_that_does_not_end_kindly_is_ended_also_after_a_second_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert children.first_line(process, _LONG_SECONDS) == "ready"
    monkeypatch.setattr(children, "_GRACE_SECONDS", 1.0)
    wait = process.wait

    def interrupted(timeout: float | None = None) -> int:
        signal.raise_signal(signal.SIGINT)
        return wait(timeout)

    child = children._Child(process, io.BytesIO(), io.BytesIO(), 0.0)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(process, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                children.end_all([child])
        assert process.poll() == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("obeys", [True, False])
def test_mps_ends_with_the_measurement(tmp_path: Path, obeys: bool) -> None:
    control, reading = fake_mps(tmp_path, obeys=obeys)
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    with mps(bench, str(control)) as variables:
        folder = variables["CUDA_MPS_PIPE_DIRECTORY"]
        assert os.path.exists(f"{folder}/pid")  # noqa: PTH110
    assert closed(reading)
    assert not os.path.exists(folder)  # noqa: PTH110
    os.close(reading)


def test_mps_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    control, reading = fake_mps(tmp_path, obeys=False)
    script = (
        "import sys, time; from pathlib import Path\n"
        "from hippogriff.reproduce.bench import Bench, Places\n"
        "from hippogriff.reproduce.together import mps\n"
        "folder = Path(sys.argv[1])\n"
        "with mps(Bench(Places(folder, folder, folder), 'host', 60), sys.argv[2]):\n"
        "    print('ready', flush=True); time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), str(control)], stdout=subprocess.PIPE
    )
    try:
        assert children.first_line(process, _LONG_SECONDS) == "ready"
        process.send_signal(signal.SIGKILL)
        assert closed(reading), "the daemon was left behind"
    finally:
        process.kill()
        process.communicate()
        os.close(reading)


def test_folder_of_files_is_one_runs_and_the_next_removes_what_a_killed_one_left(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from hippogriff.reproduce.bench import Bench, Places\n"
        "folder = Path(sys.argv[1]); bench = Bench(Places(folder, folder, folder), 'host', 60)\n"
        "bench.begin(); print(bench.environment()['HIPPOGRIFF_NODE'], flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE
    )
    bench = Bench(Places(tmp_path / "other", tmp_path, tmp_path), "host", 60)
    try:
        node = children.first_line(process, _LONG_SECONDS)
        assert node == bench.environment()["HIPPOGRIFF_NODE"]
        with pytest.raises(InvalidArgument, match=r"another process measures .* by --dir"):
            bench.begin()
        names = ("result.out", "nn-tiny", "nw-tiny.writing")
        books = [bench.files / name for name in names]
        books += [] if node == "off" else [Path(node)]
        for path in books:
            path.write_bytes(b"x")
    finally:
        process.kill()
        process.communicate()
    bench.begin()
    assert [path.exists() for path in books] == [False, True, False, False][: len(books)]
    books[2].write_bytes(b"x")
    bench.clean(keep_inputs=True)
    assert [path.exists() for path in books[1:3]] == [True, False]
    bench.clean(keep_inputs=False)


def test_mps_that_does_not_start_is_told(tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.write_text('#!/bin/sh\n[ "$1" != -f ] || echo another daemon runs\nexit 1\n')
    control.chmod(0o755)
    bench = Bench(Places(tmp_path, tmp_path, tmp_path), "host", 60)
    with pytest.raises(AbsentError, match="another daemon runs"), mps(bench, str(control)):
        pass


def test_process_whose_group_may_not_be_signalled_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_group: int, _number: int) -> None:
        raise PermissionError(1, "not yours")

    monkeypatch.setattr(os, "killpg", refuse)
    outcome = children.run(["sleep", "600"], Surroundings(dict(os.environ), (), 0.1))
    assert outcome.timed_out
    assert outcome.status == -signal.SIGTERM


def test_line_that_does_not_come_is_not_waited_for() -> None:
    process = subprocess.Popen(["sh", "-c", "printf half; exec sleep 600"], stdout=subprocess.PIPE)
    begin = time.monotonic()
    try:
        assert children.first_line(process, 0.5) in ("half", "it said nothing")
        assert time.monotonic() - begin < _LONG_SECONDS
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "garbage", ["", "Segmentation fault", '{"a": NaN}', "[1e999]", "[" * 100_000, "\ufffd\0"]
)
def test_garbage_is_a_failed_measurement_that_shows_it(garbage: str) -> None:
    with pytest.raises(MeasurementError) as caught:
        json_of(garbage)
    assert repr(garbage[:20])[:-1] in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "said", ["1", "{}", _GOOD.replace("2]", "-2]"), _GOOD.replace(", 2]", "]"), '{"seconds": 3}']
)
def test_transfers_that_are_none_are_failures(said: str) -> None:
    with pytest.raises(MeasurementError, match="no result"):
        transfers_of(said, COLD, 2)


def test_transfers_of_files_in_another_state_are_failures() -> None:
    assert transfers_of(_GOOD, COLD, 2)["seconds"] == [1, 2]
    with pytest.raises(MeasurementError, match="0% of the file were cached, not cached"):
        transfers_of(_GOOD, CACHED, 2)
