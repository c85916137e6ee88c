"""Programs in mount and pid namespaces of their own, as containers have, that share but the node.

Each gets an empty /dev/shm and a /proc of its own, and one folder from outside: with the segment in
it, or with the socket of a server.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hippogriff import _library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The machine may be busy with other things.
SECONDS_MAX = 60
PACKAGE = Path(__file__).parents[1]
# Root needs no user namespace, and may not be allowed to make one.
PRIVILEGES: tuple[list[str], ...] = ([], ["--user", "--map-root-user"])
NAMESPACES = ["--mount", "--pid", "--fork", "--kill-child"]

# Inside, as pid 1: the folder from outside goes to a place that no host has.
ENTER = """
set -eu
outside=$1; shift
mount --make-rprivate /
mount -t tmpfs none "$outside/../inside"
mkdir "$outside/../inside/node"
mount --bind "$outside" "$outside/../inside/node"
mount --rbind "$outside/../inside" /dev/shm
mount -t proc proc /proc
exec "$@"
"""

# Reserves, says so, and keeps it until its input ends.
PROGRAM = """
import os, sys, hippogriff
print("starts", os.getpid(), *sorted(os.listdir("/dev/shm")), flush=True)
with hippogriff.reserve(sys.argv[1], device="host", timeout=60):
    print("has", flush=True)
    sys.stdin.read()
"""


def namespaces(folder: Path) -> list[str]:
    """Return the beginning of a command that runs in a container, or skip."""
    for privileges in PRIVILEGES:
        command = ["unshare", *privileges, *NAMESPACES, "sh", "-c", ENTER, "sh", str(folder)]
        try:
            tried = subprocess.run(
                [*command, "true"], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
            )
        except FileNotFoundError:
            pytest.skip("no unshare here")
        if tried.returncode == 0:
            return command
    pytest.skip(f"no namespaces here: {tried.stderr.strip()}")


class Container:
    """A program in namespaces of its own."""

    def __init__(self, begin: list[str], environment: dict[str, str], size: str) -> None:
        command = [*begin, sys.executable, "-c", PROGRAM, size]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.said = b""

    def says(self, words: str, seconds: float = SECONDS_MAX) -> bool:
        """Whether it says that within so long."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while words.encode() not in self.said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return False
            part = os.read(self.process.stdout.fileno(), 4096)
            assert part, f"it ended, and had said {self.said!r}"
            self.said += part
        return True

    def end(self) -> int:
        """Let it go on to its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(SECONDS_MAX)

    def kill(self) -> None:
        """Kill it as `kill -9` does: `unshare` takes what is inside with it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS_MAX)


class Host:
    """What the containers have in common."""

    def __init__(self, folder: Path) -> None:
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.segment = self.shared / "segment"
        (folder / "inside").mkdir()
        self.begin = namespaces(self.shared)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(PACKAGE),
            "HIPPOGRIFF_LIBRARY": str(Path(_library.lib._name).resolve()),
            "HIPPOGRIFF_HOST_MEMORY": "96MiB",
            "HIPPOGRIFF_NODE": "/dev/shm/node/segment",
        }
        self.started: list[Container] = []

    def container(self, size: str) -> Container:
        """Start a program in a container that reserves so much."""
        self.started.append(Container(self.begin, self.environment, size))
        return self.started[-1]

    def reservations(self) -> list[dict[str, Any]]:
        """Return what a program outside sees."""
        environment = {**self.environment, "HIPPOGRIFF_NODE": str(self.segment)}
        result = subprocess.run(
            [sys.executable, "-m", "hippogriff", "ps", "--json"],
            env=environment,
            check=True,
            capture_output=True,
            timeout=SECONDS_MAX,
        )
        found: list[dict[str, Any]] = json.loads(result.stdout)["reservations"]
        return found

    def wait_until(self, is_so: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        """Wait until something holds of the reservations."""
        deadline = time.monotonic() + SECONDS_MAX
        while not is_so(found := self.reservations()):
            assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}; {found}"


@pytest.fixture
def host() -> Iterator[Host]:
    """A folder in memory that containers get."""
    with tempfile.TemporaryDirectory(prefix="hippogriff-test-", dir="/dev/shm") as name:
        made = Host(Path(name))
        try:
            yield made
        finally:
            for container in made.started:
                container.kill()
                for stream in (container.process.stdin, container.process.stdout):
                    if stream is not None:
                        stream.close()


def check_that_one_waits_for_the_other(host: Host, how_it_ends: Callable[[Container], Any]) -> None:
    first = host.container("64MiB")
    assert first.says("has")
    second = host.container("48MiB")
    # Each is pid 1 of its own, and sees nothing of the host's /dev/shm.
    assert first.says("starts 1 node\n")
    assert second.says("starts 1 node\n")
    host.wait_until(lambda found: [each["waits"] for each in found] == [False, True], "a wait")
    assert not second.says("has", 0)
    how_it_ends(first)
    assert second.says("has")
    assert second.end() == 0
    host.wait_until(lambda found: found == [], "empty books")


def test_containers_that_share_the_segments_folder_wait_for_each_other(host: Host) -> None:
    check_that_one_waits_for_the_other(host, Container.end)


def test_memory_of_a_container_that_is_killed_is_given_to_the_next(host: Host) -> None:
    check_that_one_waits_for_the_other(host, Container.kill)


def test_a_container_waits_for_a_program_of_the_host(host: Host) -> None:
    outside = {**host.environment, "HIPPOGRIFF_NODE": str(host.segment)}
    first = Container([], outside, "64MiB")
    host.started.append(first)
    assert first.says("has")
    second = host.container("48MiB")
    host.wait_until(lambda found: any(each["waits"] for each in found), "a wait")
    first.kill()
    assert second.says("has")
    assert second.end() == 0


@pytest.fixture
def served(host: Host) -> Iterator[Host]:
    """A host whose containers get a server's socket, and a segment that they cannot see."""
    host.segment = host.shared.parent / "segment"
    path = host.shared / "socket"
    server = subprocess.Popen(
        [sys.executable, "-m", "hippogriff", "noded", "--socket", str(path)],
        env={**host.environment, "HIPPOGRIFF_NODE": str(host.segment)},
    )
    try:
        wait_for_answer(path)
        host.environment["HIPPOGRIFF_NODE"] = "unix:/dev/shm/node/socket"
        yield host
    finally:
        server.terminate()
        assert server.wait(SECONDS_MAX) == 0


def wait_for_answer(path: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(str(path)) == 0:
                return
        assert time.monotonic() < deadline, f"no server at {path}"
        time.sleep(0.01)


def test_containers_that_share_a_servers_socket_wait_for_each_other(served: Host) -> None:
    check_that_one_waits_for_the_other(served, Container.end)


def test_a_server_gives_on_what_a_killed_container_had(served: Host) -> None:
    check_that_one_waits_for_the_other(served, Container.kill)
