"""Programs that are shell scripts, and what they say: for the tests of `hippogriff reproduce`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hippogriff.reproduce.programs import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path

_USAGE = {
    "user_seconds": 0.5,
    "system_seconds": 0.25,
    "minor_faults": 1000,
    "major_faults": 1,
    "voluntary_switches": 10,
    "involuntary_switches": 5,
    "peak_resident_bytes": 1 << 20,
}
SECONDS = {
    "baseline": {"start": 1.0, "read": 2.0, "copy_in": 1.0, "kernels": 1.0, "write": 1.0},
    "run": {"start": 1.0, "send": 1.0, "kernels": 1.0, "recv": 1.0},
    "pipelined": {"start": 1.0, "send": 1.5, "kernels": 1.0, "recv": 1.0},
}


def answer(way: str, **changes: Any) -> dict[str, Any]:
    """What a program says of a run."""
    seconds = SECONDS[way]
    total = {"seconds": seconds, "total_seconds": sum(seconds.values())}
    return {"usage": _USAGE, "device_bytes": 4096, **total, **changes}


def fake_programs(folder: Path, **scripts: str) -> Path:
    """Programs that are shell scripts; `scripts` are run before a program of that name answers."""
    folder.mkdir(parents=True, exist_ok=True)
    answers = "\n".join(
        f"  {way}) echo > \"$3\"; echo '{json.dumps(answer(way))}' ;;" for way in SECONDS
    )
    for program in PROGRAMS:
        path = folder / program.name
        path.write_text(
            "#!/bin/sh\n"
            f"case $1 in run|baseline|pipelined) {scripts.get(program.name, ':')} ;; esac\n"
            f'case $1 in\n  generate) echo > "$2" ;;\n  check) echo correct ;;\n{answers}\nesac\n'
        )
        path.chmod(0o755)
    return folder


def whole(program: str, way: str, number: int) -> dict[str, Any]:
    return {
        "key": f"whole/{program}/large/cold/{way}/{number}",
        "program": program,
        "scale": "large",
        "state": "cold",
        "way": way,
        "seconds": 9.0,
        "result": answer(way),
    }
