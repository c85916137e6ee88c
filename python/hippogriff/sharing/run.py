"""``hippogriff run``: reserve memory of a device, then go on as the command."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff import _library
from hippogriff._node import (
    TIMEOUT_SECONDS_MAX,
    Reservation,
    defer,
    hand_over,
    node_status,
    reserve,
)
from hippogriff._sizes import format_size
from hippogriff.errors import Busy, InvalidArgument, OutOfDeviceMemory, Unsupported
from hippogriff.sharing.placement import PLACEMENTS, Candidate, candidates, order, visible
from hippogriff.sharing.several import reserve_several

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: A wait is told of when it has taken so many seconds.
QUIET_SECONDS = 1.0
#: When a command's memory is reserved: before it starts, or when it first needs it.
WAITS = ("start", "first-use")
_PR_SET_PDEATHSIG = 1
# Linux's sockaddr_un has 108 bytes, the last of which is zero.
_SOCKET_PATH_BYTES_MAX = 107
#: What others send to `hippogriff run` and mean for the command.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: The same, but that a terminal sends them to the command as well.
_TYPED = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True)
class Wish:
    """What a command wants; `memory_bytes` of each of its devices."""

    memory_bytes: int
    gpus: int = 1
    device: str | None = None
    priority: int = 0
    timeout: float | None = None
    placement: str = "pack"
    grow: bool = False
    wait: str = "start"

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise InvalidArgument(f"--placement {self.placement}: it is pack or spread")
        if self.wait not in WAITS:
            raise InvalidArgument(f"--wait {self.wait}: it is start or first-use")
        if self.wait == "first-use" and self.gpus != 1:
            # Two commands that have one GPU each would wait for the other's.
            raise InvalidArgument("--wait first-use takes one GPU")


def reserve_devices(wish: Wish) -> list[Reservation]:
    """Reserve the memory of as many devices as wished, waiting where it is not free.

    With ``--wait first-use`` the device is chosen, and nothing reserved.

    Raises
    ------
    OutOfDeviceMemory
        At once, when there are no such devices.
    TimedOut
        When it was not free in time.
    """
    status = node_status()
    if wish.device is not None:
        if wish.gpus != 1:
            raise InvalidArgument("--gpus and --device do not go together")
        return [_reserve_one(wish, _uuid(wish.device, status), wish.timeout)]
    best = _best(wish, status)
    if wish.wait == "first-use":
        return [_reserve_one(wish, best[0].uuid, wish.timeout)]
    if wish.gpus == 1:
        return [_first_that_fits(wish, best)]
    return reserve_several(
        wish.gpus,
        wish.memory_bytes,
        lambda: _best(wish, node_status()),
        lambda device, timeout: _reserve_one(wish, device, timeout),
        wish.timeout,
    )


def _best(wish: Wish, status: Mapping[str, Any]) -> list[Candidate]:
    """Return the devices that are large enough, best first.

    Raises
    ------
    OutOfDeviceMemory
        When they are too few.
    """
    best = order(candidates(status, status["host_memory_bytes"]), wish.memory_bytes, wish.placement)
    if len(best) < wish.gpus:
        raise OutOfDeviceMemory(
            f"{wish.gpus} GPUs of {format_size(wish.memory_bytes)} asked, {len(best)} are here"
        )
    return best


def _uuid(device: str, status: Mapping[str, Any]) -> str:
    """Return the UUID of ``cuda:N``, the GPU that this process sees as N."""
    number = device.removeprefix("cuda:")
    if number == device or not number.isdecimal():
        return device
    gpus = visible(status["gpus"], os.environ)
    if int(number) >= len(gpus):
        raise InvalidArgument(f"--device {device}: there are {len(gpus)} GPUs here")
    return str(gpus[int(number)]["uuid"])


def _first_that_fits(wish: Wish, best: Sequence[Candidate]) -> Reservation:
    for device in best:
        try:
            return _reserve_one(wish, device.uuid, 0)
        except Busy:
            continue
    if wish.timeout == 0:
        raise Busy(f"{format_size(wish.memory_bytes)} are free on no device now")
    return _reserve_one(wish, best[0].uuid, wish.timeout)


def _reserve_one(wish: Wish, device: str, timeout: float | None) -> Reservation:
    if wish.wait == "first-use":
        return _leave(wish, device)

    def tell() -> None:
        print(
            f"hippogriff: waiting for {format_size(wish.memory_bytes)} of {device} "
            "(hippogriff ps shows who has it)",
            file=sys.stderr,
        )

    notice = threading.Timer(QUIET_SECONDS, tell)
    notice.daemon = True
    if timeout != 0:
        notice.start()
    try:
        return reserve(wish.memory_bytes, device=device, timeout=timeout, priority=wish.priority)
    finally:
        notice.cancel()


def _leave(wish: Wish, device: str) -> Reservation:
    """Leave the reservation for its first use, where something will notice that.

    Raises
    ------
    Unsupported
        When nothing stands between the command and the device.
    """
    if device.startswith("GPU-") and shim_folder() is None:
        raise Unsupported(
            "--wait first-use: lib/hippogriff/shim/libcuda.so.1, which notices a command's first "
            "allocation, is not installed"
        )
    return defer(wish.memory_bytes, device=device, priority=wish.priority)


def environment(reservations: Sequence[Reservation], leader: str) -> dict[str, str]:
    """Return what the command's environment needs beside what is there."""
    devices = [reservation.device for reservation in reservations]
    added = {"HIPPOGRIFF_RESERVATION": leader} if leader else {}
    if devices == ["host"]:
        return {**added, "HIPPOGRIFF_DEVICE": "host", "CUDA_VISIBLE_DEVICES": ""}
    if os.environ.get("HIPPOGRIFF_DEVICE"):
        added["HIPPOGRIFF_DEVICE"] = "cuda:0"  # the first it sees
    if all(device.startswith("GPU-") for device in devices):
        added["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    shim = shim_folder()
    if shim is not None:
        before = os.environ.get("LD_LIBRARY_PATH")
        added["LD_LIBRARY_PATH"] = f"{shim}:{before}" if before else str(shim)
        # Numba's own bindings look for this; the others open a name, which is in that folder.
        added["NUMBA_CUDA_DRIVER"] = os.environ.get("NUMBA_CUDA_DRIVER", str(shim / "libcuda.so.1"))
        driver = os.environ.get("HIPPOGRIFF_CUDA_DRIVER")
        if (
            driver and "HIPPOGRIFF_SHIM_DRIVER" not in os.environ
        ):  # what the shim is to load, and the command's own hippogriff not
            added["HIPPOGRIFF_SHIM_DRIVER"] = driver
            added["HIPPOGRIFF_CUDA_DRIVER"] = str(shim / "libcuda.so.1")
    return added


def shim_folder() -> Path | None:
    """Return the folder of the library that stands in for the driver, where it is installed."""
    library = Path(_library.lib._name).resolve().parent
    for folder in (library / "lib" / "hippogriff" / "shim", library / "hippogriff" / "shim"):
        if (folder / "libcuda.so.1").is_file():
            return folder
    return None


def go_on_as(command: Sequence[str], added: Mapping[str, str]) -> None:
    """Become the command. Returns only by OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], list(command), _inherited() | dict(added))


def _inherited() -> dict[str, str]:
    """Return this process's environment without what was said to it alone: how long it may wait."""
    return {name: text for name, text in os.environ.items() if name != "HIPPOGRIFF_WAIT_MS"}


def run(command: Sequence[str], wish: Wish) -> None:
    """Wait for memory, then become the command, which keeps it until its processes have ended.

    With ``--wait first-use`` it becomes the command at once, and that waits.

    Where the node is asked over a socket this process stays beside it, since the server lets go of
    what it reserved when it has ended and no process of the command uses it; it exits as the
    command does.
    """
    node = from_anywhere(os.environ.get("HIPPOGRIFF_NODE", ""))
    reservations = reserve_devices(wish)
    # A limit for each process, where something else than the node counts.
    limit = {"HIPPOGRIFF_MEMORY": str(wish.memory_bytes)}
    if wish.grow:
        limit["HIPPOGRIFF_GROW"] = "1"
    if wish.wait == "first-use":
        limit["HIPPOGRIFF_WAIT_MS"] = "" if wish.timeout is None else str(_whole_ms(wish.timeout))
    added = limit | environment(reservations, hand_over())
    if node:
        added["HIPPOGRIFF_NODE"] = node
    if not node.startswith("unix:"):
        go_on_as(command, added)
    sys.exit(stay_beside(command, added))


def from_anywhere(node: str) -> str:
    """Return a node's address with its path absolute: the command may go to another folder.

    Raises
    ------
    InvalidArgument
        When a socket's path is too long then.
    """
    scheme, path = ("unix:", node[5:]) if node.startswith("unix:") else ("", node)
    if path.startswith("group:"):
        _, name, path = (*path.split(":", 2), "")[:3]
        scheme += f"group:{name}:" if path else f"group:{name}"
    absolute = str(Path(path).absolute()) if path else ""
    size_bytes = len(os.fsencode(absolute))
    if scheme.startswith("unix:") and size_bytes > _SOCKET_PATH_BYTES_MAX:
        raise InvalidArgument(
            f"HIPPOGRIFF_NODE={node}: the server's socket is {absolute} for the command, which has "
            f"{size_bytes} bytes, and {_SOCKET_PATH_BYTES_MAX} are the most",
            object=absolute,
        )
    return f"{scheme}{absolute}"


def _whole_ms(seconds: float) -> int:
    """Return a time of which nothing is lost: 0 means not to wait at all."""
    return math.ceil(min(seconds, TIMEOUT_SECONDS_MAX) * 1000)


def stay_beside(command: Sequence[str], added: Mapping[str, str]) -> int:
    """Run the command, pass signals on to it, and return what it ends with, as a shell says it.

    A signal that this process ignores, as nohup has it, the command ignores as well.
    """
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: object) -> None:
        for child in children:
            child.send_signal(number)
        if not children:
            sys.exit(128 + number)

    def pass_on_unless_typed(number: int, frame: object) -> None:
        if not _in_foreground():
            pass_on(number, frame)

    handlers = dict.fromkeys(_PASSED_ON, pass_on) | dict.fromkeys(_TYPED, pass_on_unless_typed)
    for number, handler in handlers.items():
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    child = subprocess.Popen(
        list(command),
        env=_inherited() | dict(added),
        preexec_fn=_ending_with(os.getpid()),  # no threads here
    )
    children.append(child)
    status = child.wait()
    return 128 - status if status < 0 else status


def _in_foreground() -> bool:
    """Say whether a terminal sends what is typed there to this process, and so to the command."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _ending_with(parent: int) -> Callable[[], None]:
    """Return what has the kernel kill a child when its parent, which holds the memory, dies."""
    prctl = ctypes.CDLL(None).prctl

    def end_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it died before that
            os.kill(os.getpid(), signal.SIGKILL)

    return end_with_parent
