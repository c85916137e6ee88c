"""tools/bootstrap torch fails where continuous integration must have torch, and skips elsewhere.

It runs as a copy among stand-ins for what it calls: nothing is installed, and no time is slept.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent
LEVELS = ("run", "test", "model", "graphs", "torch")

# What each program does; all note their calls.
STAND_INS = {
    "g++": "cat >/dev/null",
    "cmake": "",
    "ninja": "",
    "pkg-config": "",
    "sleep": "",
    "find": "echo found",
    "id": 'echo "$USER_ID"',
    "sudo": "exit 1",
    "apt-get": '[ "$(grep -c "^apt-get" "$CALLS")" -gt "$APT_FAILURES" ]',
    "apt-cache": 'echo "  Candidate: $PYTHON_VERSION.2-1"',
    "python": """case "$*" in
      *%d.%d*) echo "$PYTHON_VERSION" ;;
      *requirements-torch.txt) [ "$FAILS" != pip ] && mkdir -p "$HIPPOGRIFF_VENV/torch/numpy" ;;
      "-W ignore -") [ "$FAILS" != import ] && [ -n "$PYTHONPATH" ] && [ -d "$PYTHONPATH/numpy" ] ;;
    esac""",
}


class Machine:
    """A copy of bootstrap, what it calls, and the machine that these tell of."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls = root / "calls"
        self.variables = {
            "PATH": f"{root}/bin:{os.environ['PATH']}",
            "PYTHON": str(root / "bin/python"),
            "HIPPOGRIFF_CUDA": "OFF",
            "HIPPOGRIFF_VENV": str(root / "venv"),
            "CALLS": str(self.calls),
            "CI": "true",
            "USER_ID": "0",
            "PYTHON_VERSION": "3.11",
            "APT_FAILURES": "0",
            "FAILS": "",
        }
        for folder in ("bin", "tools", "venv"):
            (root / folder).mkdir()
        for name, body in STAND_INS.items():
            program = root / "bin" / name
            program.write_text(f'#!/bin/bash\necho "{name} $*" >>"$CALLS"\n{body}\n')
            program.chmod(0o755)
        (root / "venv/bin").symlink_to(root / "bin")
        for level in LEVELS:
            (root / f"tools/requirements-{level}.txt").touch()
        text = (TOOLS / "bootstrap").read_text(encoding="utf-8")
        for path in ("/etc/os-release", "/usr/lib/python3/dist-packages/torch"):
            assert text.count(path) == 1
            text = text.replace(path, f"{root}{path}")
        (root / "tools/bootstrap").write_text(text, encoding="utf-8")
        (root / "etc").mkdir()
        self.is_debian("12")

    def is_debian(self, version: str, name: str = "debian") -> None:
        text = f'NAME=x\nVERSION_ID="{version}"\nID={name}\n'
        (self.root / "etc/os-release").write_text(text, encoding="utf-8")

    def bootstrap(self, **variables: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("", encoding="utf-8")
        command = ["bash", str(self.root / "tools/bootstrap"), "torch"]
        environment = {**self.variables, **variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def called(self, what: str) -> int:
        return self.calls.read_text(encoding="utf-8").count(what)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


FAILURES = [
    ({"APT_FAILURES": "9"}, "apt-get update failed"),
    ({"FAILS": "pip"}, "tools/requirements-torch.txt cannot be installed"),
    ({"FAILS": "import"}, "cannot import"),
]


@pytest.mark.parametrize(("failure", "told"), FAILURES)
def test_torch_that_is_due_and_cannot_be_had_is_an_error(
    machine: Machine, failure: dict[str, str], told: str
) -> None:
    done = machine.bootstrap(**failure)
    assert done.returncode == 1
    assert "bootstrap: no torch, which CI needs" in done.stderr
    assert told in done.stderr
    assert not (machine.root / "venv/torch").exists()


@pytest.mark.parametrize(("failure", "told"), FAILURES)
@pytest.mark.parametrize(
    ("distribution", "variables"),
    [
        (("12", "debian"), {"CI": ""}),
        (("13", "debian"), {}),
        (("12", "other"), {}),
        (("12", "debian"), {"PYTHON_VERSION": "3.12"}),
    ],
)
def test_elsewhere_its_tests_are_skipped(
    machine: Machine,
    distribution: tuple[str, str],
    variables: dict[str, str],
    failure: dict[str, str],
    told: str,
) -> None:
    machine.is_debian(*distribution)
    done = machine.bootstrap(**variables, **failure)
    assert done.returncode == 0, done.stderr
    assert "bootstrap: tests with torch are skipped" in done.stdout
    assert told in done.stdout
    assert not (machine.root / "venv/torch").exists()


def test_without_root_its_tests_are_skipped(machine: Machine) -> None:
    done = machine.bootstrap(USER_ID="1000")
    assert done.returncode == 0, done.stderr
    assert "installing needs root" in done.stdout


def test_apt_is_tried_once_more_after_ten_seconds(machine: Machine) -> None:
    done = machine.bootstrap(APT_FAILURES="1")
    assert done.returncode == 0, done.stderr
    assert "skipped" not in done.stdout
    assert machine.called("sleep 10") == 1
    assert machine.called("apt-get") == 3  # update twice, install


def test_changed_requirements_are_installed_and_unchanged_ones_are_not(machine: Machine) -> None:
    assert machine.bootstrap().returncode == 0
    assert machine.called("requirements-torch.txt") == 1
    (machine.root / "usr/lib/python3/dist-packages/torch").mkdir(parents=True)
    assert machine.bootstrap().returncode == 0
    assert machine.called("requirements-torch.txt") == 0
    (machine.root / "tools/requirements-torch.txt").write_text("numpy==1.26.3\n", encoding="utf-8")
    assert machine.bootstrap().returncode == 0
    assert machine.called("requirements-torch.txt") == 1
