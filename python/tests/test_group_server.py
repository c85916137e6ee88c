"""`hippogriff noded --group`: a server that the members of a group use, and nobody else."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 60
# Numbers that no account of the machine needs to have.
GROUP = 54_321
OTHER_GROUP = 54_322
USER = 54_323

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """A place that other users can reach."""
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_mode & 0o005 == 0:
            folder.chmod(folder.stat().st_mode | 0o005)
        if folder.name.startswith("pytest-of-"):
            break
    return tmp_path / "node.sock"


@pytest.fixture
def server(machine: dict[str, str], socket: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "hippogriff", "noded", "--group", str(GROUP)]
    with subprocess.Popen(
        [*words, "--socket", str(socket)], env=machine, stderr=subprocess.PIPE, text=True
    ) as running:
        end = time.monotonic() + PATIENCE
        while not (socket.exists() and stat.S_IMODE(socket.stat().st_mode) == 0o660):
            assert running.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        yield running
        running.send_signal(signal.SIGTERM)


def as_user(machine: dict[str, str], group: int, node: str, code: str) -> str:
    """Return what a program prints that goes on as USER, a member of that group only.

    It has loaded what it needs before: the interpreter may be where only root can read.
    """
    begin = f"""
    import hippogriff, hippogriff._node, os
    os.setgroups([{group}]); os.setgid({USER}); os.setuid({USER})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(begin) + textwrap.dedent(code)],
        env={**machine, "HIPPOGRIFF_NODE": node},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout


RESERVE = """
try:
    with hippogriff.reserve("60MiB", device="host", timeout=0):
        print("reserved")
except hippogriff.HippogriffError as error:
    print(error)
"""


@pytest.mark.usefixtures("server")
def test_members_of_the_group_are_served_and_others_are_not(
    machine: dict[str, str], socket: Path
) -> None:
    assert socket.stat().st_gid == GROUP
    address = f"unix:group:{GROUP}:{socket}"
    assert as_user(machine, GROUP, address, RESERVE) == "reserved\n"
    assert as_user(machine, GROUP, f"unix:{socket}", RESERVE) == "reserved\n"
    assert "Permission denied" in as_user(machine, OTHER_GROUP, address, RESERVE)
    socket.chmod(0o666)
    refused = as_user(machine, OTHER_GROUP, address, RESERVE)
    assert f"group {GROUP}, not user {USER}" in refused


@pytest.mark.usefixtures("server")
def test_members_wait_for_what_the_server_has_promised(
    machine: dict[str, str], socket: Path
) -> None:
    address = f"unix:group:{GROUP}:{socket}"
    beside = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "run", "--memory", "50MiB", "--", "sleep", "60"],
        env=machine,
    )
    try:
        end = time.monotonic() + PATIENCE
        while "not free now" not in as_user(machine, GROUP, address, RESERVE):
            assert time.monotonic() < end
    finally:
        beside.kill()
        beside.wait()
    assert as_user(machine, GROUP, address, RESERVE) == "reserved\n"


@pytest.mark.usefixtures("server")
def test_members_do_not_choose_the_policy(machine: dict[str, str], socket: Path) -> None:
    said = as_user(
        machine,
        GROUP,
        f"unix:{socket}",
        """
        try:
            hippogriff._node.set_policy("mmu")
        except hippogriff.Unsupported as error:
            print(error)
        """,
    )
    assert "root choose it" in said


def test_a_group_that_does_not_exist_is_named(machine: dict[str, str]) -> None:
    words = [sys.executable, "-m", "hippogriff", "noded", "--group", "no such group"]
    done = subprocess.run(
        words, env=machine, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode != 0
    assert "there is no group 'no such group'" in done.stderr
