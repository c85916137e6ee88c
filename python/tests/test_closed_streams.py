"""The command, and loads, of programs whose standard streams are closed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from node_programs import HIPPOGRIFF, PATIENCE, serving

from hippogriff.safetensors import save_file

if TYPE_CHECKING:
    from pathlib import Path

CLOSED = (">&-", "2>&-", "<&-", "<&- >&- 2>&-")


def with_closed(
    closed: str, machine: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a program without some of its standard streams."""
    return subprocess.run(
        ["sh", "-c", f"exec {shlex.join(words)} {closed}"],
        env=machine,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize("closed", CLOSED)
def test_run_runs_its_command(machine: dict[str, str], tmp_path: Path, closed: str) -> None:
    made = tmp_path / "made"
    wish = ("run", "--memory", "3MiB", "--", "touch", str(made))
    done = with_closed(closed, machine, *HIPPOGRIFF, *wish)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert made.exists()


@pytest.mark.parametrize("closed", CLOSED)
def test_run_beside_its_command_runs_it(
    machine: dict[str, str], tmp_path: Path, closed: str
) -> None:
    made, socket = tmp_path / "made", tmp_path / "node.sock"
    inside = {**machine, "HIPPOGRIFF_NODE": f"unix:{socket}"}
    wish = ("run", "--memory", "3MiB", "--", "touch", str(made))
    with serving(machine, socket):
        done = with_closed(closed, inside, *HIPPOGRIFF, *wish)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert made.exists()


def test_a_command_of_run_has_the_same_streams_closed(
    machine: dict[str, str], tmp_path: Path
) -> None:
    told = tmp_path / "told"
    program = (
        "import sys; from pathlib import Path; "
        f"Path({str(told)!r}).write_text(f'{{sys.stdin}} {{sys.stdout}} {{sys.stderr is None}}')"
    )
    wish = ("run", "--memory", "3MiB", "--", sys.executable, "-c", program)
    assert with_closed("<&- >&-", machine, *HIPPOGRIFF, *wish).returncode == 0
    assert told.read_text() == "None None False"


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize(
    "words", [("ps",), ("ps", "--json"), ("metrics",), ("policy",), ("info",), ("version",)]
)
def test_commands_that_show_something_end_well(
    machine: dict[str, str], closed: str, words: tuple[str, ...]
) -> None:
    done = with_closed(closed, machine, *HIPPOGRIFF, *words)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_goes_wrong_is_not_told_on_stdout(machine: dict[str, str]) -> None:
    wish = ("run", "--memory", "101MiB", "--", "true")
    done = with_closed("2>&-", machine, *HIPPOGRIFF, *wish)
    assert (done.returncode, done.stdout) == (125, "")


@pytest.mark.parametrize("progress", ["None", "True"])
def test_a_load_needs_no_stderr(tmp_path: Path, progress: str) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones(1000, np.float32)}, path)
    program = (
        "from hippogriff.safetensors import load_file; "
        f"loaded = load_file({str(path)!r}, framework='np', progress={progress}); "
        "print(loaded['a'].sum())"
    )
    done = with_closed("2>&-", dict(os.environ), sys.executable, "-c", program)
    assert (done.returncode, done.stdout) == (0, "1000.0\n")
