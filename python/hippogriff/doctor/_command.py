"""What `hippogriff doctor` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from hippogriff import version
from hippogriff._console import print_json, printable, stdout
from hippogriff.doctor import Machine, Status, diagnose

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from hippogriff.doctor._finding import Finding

_STYLES = {Status.OK: "green", Status.NOTE: "yellow", Status.PROBLEM: "bold red"}


def run(path: str | os.PathLike[str], *, json: bool) -> bool:
    """Print what was found; True when nothing is a problem."""
    machine = Machine(path)
    findings = diagnose(machine=machine)
    problems = sum(finding.status == Status.PROBLEM for finding in findings)
    if json:
        print_json(
            {
                "version": version,
                "path": machine.path,
                "problems": problems,
                "findings": [finding.as_dict() for finding in findings],
            }
        )
    else:
        _show(machine.path, findings)
    return problems == 0


def _show(path: str, findings: Sequence[Finding]) -> None:
    console = stdout()
    console.print(f"hippogriff {version}, for files at {printable(path)}", markup=False)
    for finding in findings:
        line = Text(f"{finding.status.value:8}", _STYLES[finding.status])
        line.append(printable(f"{finding.check}: {finding.found}"), "default")
        console.print(line, soft_wrap=True)
        for sign, text in (("  ", finding.meaning), ("->", finding.advice)):
            if text:
                console.print(f"        {sign} {printable(text)}", markup=False, soft_wrap=True)
    counts = [sum(finding.status == status for finding in findings) for status in Status]
    words = "{} ok, {} to note, {} problem".format(*counts)
    console.print(words if counts[-1] == 1 else f"{words}s", markup=False)
