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
from node_programs import FAKE_NVML, HIPPOGRIFF, until

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


def as_user(machine: dict[str, str], group: int, node: str, code: str, user: int = USER) -> str:
    """Return what a program prints that goes on as that user, a member of that group only.

    It has loaded what it needs before: the interpreter may be where only root can read.
    """
    begin = f"""
    import hippogriff, hippogriff._node, os
    os.setgroups([{group}]); os.setgid({user}); os.setuid({user})
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


@pytest.mark.skipif(not FAKE_NVML.is_file(), reason="the stand-in for NVML is not built")
def test_members_leave_room_for_the_gpus_that_nvml_knows(
    machine: dict[str, str], socket: Path, tmp_path: Path
) -> None:
    gpus, made_up = tmp_path / "gpus", tmp_path / "made-up"
    real = "".join(f"gpu GPU-real{number} {100 << 20} 0 0\n" for number in range(3))
    gpus.write_text(real)
    made_up.write_text("".join(f"gpu GPU-{number} {100 << 20} 0 0\n" for number in range(100)))
    there = {**machine, "HIPPOGRIFF_NVML": str(FAKE_NVML), "FAKE_NVML_FILE": str(gpus)}
    names = """
    count = 0
    try:
        while True:
            hippogriff.reserve("1MiB", device=f"GPU-{USER % 10 * 10 + count}", timeout=0)
            count += 1
    except hippogriff.Busy:
        print(count)
    """
    address = f"unix:group:{GROUP}:{socket}"
    words = [*HIPPOGRIFF, "noded", "--group", str(GROUP), "--socket", str(socket)]
    with subprocess.Popen(words, env=there) as server:
        until(lambda: socket.exists() and stat.S_IMODE(socket.stat().st_mode) == 0o660)
        counts = [
            int(
                as_user(
                    {**there, "FAKE_NVML_FILE": str(made_up)},
                    GROUP,
                    address,
                    names.replace("USER", str(user)),
                    user,
                )
            )
            for user in range(USER, USER + 5)
        ]
        assert counts == [7, 3, 2, 1, 0], "of sixteen, without the three that are here"
        reserve = RESERVE.replace('"host"', '"GPU-real2"')
        assert as_user(there, GROUP, address, reserve) == "reserved\n"
        server.send_signal(signal.SIGTERM)


def test_a_group_that_does_not_exist_is_named(machine: dict[str, str]) -> None:
    words = [sys.executable, "-m", "hippogriff", "noded", "--group", "no such group"]
    done = subprocess.run(
        words, env=machine, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode != 0
    assert "there is no group 'no such group'" in done.stderr
