"""Why a route or a speed is not available on this machine, and what to change.

To add a check: write a function in the module of its subject that takes a `Machine` and returns
what it found, one `Finding`, a list of them or None, and name it there in ``CHECKS``. Its name,
with spaces, is the check's name. Tests give it a folder with made-up files.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hippogriff.doctor import _gpu, _kernel, _limits, _settings, _storage
from hippogriff.doctor._finding import Finding, Status
from hippogriff.doctor._machine import Machine

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    Check = Callable[[Machine], Finding | list[Finding] | None]

__all__ = ["CHECKS", "Finding", "Machine", "Status", "diagnose"]

#: All checks, in the order in which they are told.
CHECKS: tuple[Check, ...] = (
    *_kernel.CHECKS,
    *_storage.CHECKS,
    *_gpu.CHECKS,
    *_limits.CHECKS,
    *_settings.CHECKS,
)
# Longer than a probe has, so that a check that waits for one ends by itself.
_CHECK_SECONDS = 30.0


def diagnose(
    path: str | os.PathLike[str] = ".",
    *,
    machine: Machine | None = None,
    checks: Iterable[Check] = CHECKS,
    timeout: float = _CHECK_SECONDS,
) -> list[Finding]:
    """Look for what makes loading slow or impossible here.

    Nothing is changed, no GPU is needed, and no memory of one is taken. Drivers and file systems
    are asked in processes of their own. Thread-safe.

    Parameters
    ----------
    path : path-like
        A file or folder where files to load are. In a folder that can be written to, a file of
        4 KiB is made and removed.
    machine : Machine, optional
        Whom to ask; this machine if not given.
    checks : iterable of callable
        What to look at.
    timeout : float
        The seconds each check has.

    Returns
    -------
    list of Finding
        In the order of the checks. It never raises: a check that fails is a finding.
    """
    subject = Machine(path) if machine is None else machine
    return [finding for check in checks for finding in _run(check, subject, timeout)]


def _run(check: Check, machine: Machine, timeout: float) -> list[Finding]:
    found: list[Finding] = []

    def work() -> None:
        try:
            found.extend(_as_list(check(machine)))
        except Exception as error:
            words = f"the check failed: {type(error).__name__}: {error}"
            found.append(Finding(Status.NOTE, words, "nothing is known", "please report it"))

    thread = threading.Thread(target=work, name=f"hippogriff-{check.__name__}", daemon=True)
    try:
        thread.start()
        thread.join(timeout)
    except RuntimeError:  # There can be no more threads, which a check says.
        work()
    if thread.is_alive():
        words = f"the check did not end within {timeout:g} s"
        meaning = "a file system or a driver does not answer"
        told = [Finding(Status.PROBLEM, words, meaning, "dmesg may tell which")]
    else:
        told = found
    name = check.__name__.replace("_", " ")
    return [finding._replace(check=name) for finding in told]


def _as_list(found: Finding | Sequence[Finding] | None) -> list[Finding]:
    if found is None:
        return []
    return [found] if isinstance(found, Finding) else list(found)
