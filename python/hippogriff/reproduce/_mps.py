"""A process that runs MPS's daemon: `python3 -m hippogriff.reproduce._mps CONTROL PARENT`.

It prints "ready FOLDER" once the daemon answers there, and ends it when it is ended itself, or
when the process PARENT is gone, be it by kill -9: no daemon stays behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

START_SECONDS = 60.0
_ANSWER_SECONDS = 3.0
_LOOK_SECONDS = 0.1


def _tell(control: str, words: str, environment: Mapping[str, str]) -> bool:
    """Tell the daemon something; return whether it took it."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [control],
            input=f"{words}\n".encode(),
            env=environment,
            capture_output=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
        return done.returncode == 0
    return False


def _serve(control: str, parent: int, folder: Path) -> int:
    variables = dict.fromkeys(("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"), str(folder))
    environment = {**os.environ, **variables}
    log = folder / "said"
    # In the foreground and in this process's group: what ends the group ends it and its servers.
    with log.open("wb") as said:
        daemon = subprocess.Popen(
            [control, "-f"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _tell(control, "get_server_list", environment):
            if daemon.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors="replace").strip().splitlines()
                print(f"it does not answer: {words[-1] if words else 'nothing said'}", flush=True)
                return 1
            time.sleep(_LOOK_SECONDS)
        print(f"ready {folder}", flush=True)
        while os.getppid() == parent and daemon.poll() is None:
            time.sleep(_LOOK_SECONDS)
        return 0
    finally:
        _tell(control, "quit", environment)
        daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(_ANSWER_SECONDS)
        daemon.kill()


def _end(_number: int, _frame: object) -> None:
    sys.exit(0)


def main(control: str, parent: int) -> None:
    """Serve; at the end of it the whole group ends."""
    signal.signal(signal.SIGTERM, _end)
    folder = Path(tempfile.mkdtemp(prefix="hippogriff-mps-"))
    try:
        _serve(control, parent, folder)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
