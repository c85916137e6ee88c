"""Prolog, task prolog and epilog by themselves: whose they are, and that no job fails by them."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent
HOOKS = ("prolog", "task_prolog", "epilog")
NOBODY = 65534


def call(hook: str, folder: Path, command: str, uid: int) -> subprocess.CompletedProcess[str]:
    """Run a hook as Slurm does, with next to no environment."""
    defaults = folder / "defaults"
    if not defaults.exists():
        lines = (
            f"HIPPOGRIFF_COMMAND='{command}'",
            f"HIPPOGRIFF_FOLDER='{folder}/nodes'",
            f"HIPPOGRIFF_LOG='{folder}/log'",
        )
        defaults.write_text("\n".join(lines) + "\n", encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "HIPPOGRIFF_DEFAULTS": str(defaults),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_UID": str(uid),
    }
    return subprocess.run(
        [HERE / hook], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def stand_in(folder: Path, script: str) -> str:
    """Write what stands in for the command hippogriff."""
    path = folder / "command"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("hook", HOOKS)
def test_no_job_fails_by_defaults_that_are_no_shell_script(hook: str, tmp_path: Path) -> None:
    (tmp_path / "defaults").write_text("if then (\n", encoding="utf-8")
    assert call(hook, tmp_path, "", os.getuid()).returncode == 0


@pytest.mark.parametrize("hook", HOOKS)
def test_no_job_fails_by_a_command_that_fails(hook: str, tmp_path: Path) -> None:
    command = stand_in(tmp_path, "echo the segment is of version 9 >&2; exit 1")
    assert call(hook, tmp_path, command, os.getuid()).returncode == 0
    if hook != "task_prolog":
        assert "the segment is of version 9" in (tmp_path / "log").read_text(encoding="utf-8")


def test_task_prolog_names_the_segment_that_the_prolog_made(tmp_path: Path) -> None:
    segment = tmp_path / "nodes" / str(os.getuid()) / "node"
    command = stand_in(tmp_path, 'echo made >"$HIPPOGRIFF_NODE"')
    assert call("task_prolog", tmp_path, command, os.getuid()).stdout == ""
    call("prolog", tmp_path, command, os.getuid())
    assert segment.read_text(encoding="utf-8") == "made\n"
    said = call("task_prolog", tmp_path, command, os.getuid()).stdout
    assert said == f"export HIPPOGRIFF_NODE={segment}\n"


def test_epilog_logs_a_line_for_each_device(tmp_path: Path) -> None:
    metrics = "\n".join(
        f'hippogriff_{name}{{device="{device}"}} {value}'
        for device in ("GPU-1", "GPU-2")
        for name, value in (
            ("device_promised_bytes", "8.4e+10"), ("reservations", "3.0"), ("waiting", "2.0"),
            ("waiting_bytes", "9.0"),
        )
    )  # fmt: skip
    command = stand_in(tmp_path, f"cat <<'END'\n{metrics}\nEND")
    call("epilog", tmp_path, command, os.getuid())
    log = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    told = "job 7: epilog: GPU-{}: 78.23 GiB promised to 3, 2 wait"
    assert sorted(line.partition(" ")[2] for line in log) == [told.format(1), told.format(2)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for another user")
def test_prolog_acts_as_the_jobs_user_in_a_folder_of_that_user(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    command = stand_in(tmp_path, 'id -u >"$HIPPOGRIFF_NODE"; env >>"$HIPPOGRIFF_NODE"')
    call("prolog", tmp_path, command, NOBODY)
    folder = tmp_path / "nodes" / str(NOBODY)
    facts = folder.stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (NOBODY, 0o700)
    first, *environment = (folder / "node").read_text(encoding="utf-8").splitlines()
    assert first == str(NOBODY)
    assert not [line for line in environment if line.startswith("SLURM_")]
