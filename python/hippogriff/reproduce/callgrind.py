"""CPU instructions of programs by phase, as callgrind counts them where the processor does not.

They are the process's own, not the kernel's, of a program that runs some fifty times as slowly, on
device host, whose copies are the processor's: of small inputs, and relative to each other.
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hippogriff.reproduce import children
from hippogriff.reproduce.bench import AbsentError, MeasurementError, result_of
from hippogriff.reproduce.children import Surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


# What the papers' programs call at the end of a phase (workloads/sharing/program.cpp).
_PHASE_END = "Phases::end*"
# callgrind counts each byte of a repeated move instruction, which a processor does in one go:
# with this all copies are by vectors, as large ones are anyway.
_TUNABLES = "glibc.cpu.x86_rep_movsb_threshold=4294967296"
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def version(valgrind: str) -> str:
    """Return what valgrind calls itself."""
    return children.run([valgrind, "--version"], Surroundings()).output.strip()


def count(
    valgrind: str, command: Sequence[str], files: Path, around: Surroundings
) -> dict[str, Any]:
    """Return the instructions of each phase of one of the papers' programs, and what it said.

    Raises
    ------
    MeasurementError
        When the program fails, or does not let its phases be counted.
    AbsentError
        When it has instructions that this valgrind does not know.
    """
    out = files / "result.callgrind"
    for old in files.glob(f"{out.name}*"):
        old.unlink()
    words = [valgrind, "--quiet", "--tool=callgrind", f"--dump-after={_PHASE_END}"]
    around = replace(around, environment={**around.environment, "GLIBC_TUNABLES": _TUNABLES})
    done = children.run([*words, f"--callgrind-out-file={out}", *command], around)
    try:
        if done.status == -signal.SIGILL:
            raise AbsentError("valgrind does not know an instruction that the programs use here")
        if done.failure:
            raise MeasurementError(done.failure)
        result = result_of(done.output)
        phases = list(result["seconds"])
        # FILE.1, FILE.2, … end with a phase each; FILE is what came after the last.
        parts = sorted(files.glob(f"{out.name}.*"), key=lambda path: int(path.suffix[1:]))
        if len(parts) != len(phases):
            raise MeasurementError(
                f"callgrind saw the ends of {len(parts)} phases instead of {len(phases)}: "
                "programs without symbols cannot be counted"
            )
        counts = {phase: _total(part) for phase, part in zip(phases, parts, strict=True)}
        return {"result": result, "instructions": {**counts, "end": _total(out)}}
    finally:
        for part in files.glob(f"{out.name}*"):
            part.unlink()


def _total(path: Path) -> int:
    found = _TOTALS.findall(path.read_text(errors="replace"))
    if not found:
        raise MeasurementError(f"callgrind's {path.name} has no total")
    return int(found[-1])


def moved_instructions(record: Mapping[str, Any]) -> float:
    """Return the instructions of moving data: without start, kernels and end."""
    counts: dict[str, int] = record["instructions"]
    return float(sum(n for name, n in counts.items() if name not in ("start", "kernels", "end")))
