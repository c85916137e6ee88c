"""Checks of the environment variables."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hippogriff._sizes import format_size, parse_size
from hippogriff.doctor._finding import Finding, note, ok, problem
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from hippogriff.doctor._machine import Machine

_PREFIX = "HIPPOGRIFF_"
_SIZES = (
    *("PINBUFFER", "PARKING", "MAPPED_AFTER", "HOST_MEMORY", "HOST_LINK"),
    *("PIECE", "MEMORY", "CONTEXT_BYTES"),
)
# The least and the most that the library takes; of a longer wait it takes the longest that it has.
_NUMBERS = {
    "THREADS": (0, 2**32 - 1),
    "CPUS": (0, 2**32 - 1),
    "CHANNELS": (1, 2**32 - 1),
    "MEMORY_TIMEOUT_MS": (-(2**63), 2**63 - 1),
    "WAIT_MS": (0, None),
}
_CLIENTS = 256
_TERM_MAX = 2**32 - 1
_DIGITS_MAX = 20  # of any number that the library takes, and few enough for int()
_OTHERS = (
    *("DEVICE", "CALIBRATION", "TRACE", "IO", "CUDA_DRIVER", "CUFILE", "GDS_ROOT", "LIBRARY"),
    *("NODE", "RESERVATION", "NVML", "SHIM_DRIVER", "GROW", "ROUTE", "PROGRAMS"),
    # Of the build and the demo.
    *("CUDA", "VENV", "DEMO_BYTES", "DEMO_ORDER"),
)
_NAMES = (*_SIZES, *_NUMBERS, *_OTHERS)
KNOWN = tuple(_PREFIX + name for name in _NAMES)
_PINBUFFER_BYTES_MIN = 64 << 20
_FEW = 4
_DOCUMENTED = "docs/routes.md lists the variables"


def unknown_variables(machine: Machine) -> list[Finding]:
    """Whether a variable is misspelled."""
    findings = []
    for name in sorted(machine.environ):
        if not name.upper().startswith("HIPPOGRIFF") or name in KNOWN:
            continue
        rest = name.upper().removeprefix("HIPPOGRIFF").lstrip("_")
        near = difflib.get_close_matches(rest, _NAMES, 1)
        advice = f"did you mean {_PREFIX}{near[0]}?" if near else _DOCUMENTED
        findings.append(
            problem(f"{name} is no variable of hippogriff's", "it does nothing", advice)
        )
    return findings


def wrong_values(machine: Machine) -> list[Finding]:
    """Whether a value can be understood."""
    findings = []
    for name in KNOWN:
        value = machine.environ.get(name, "")
        wrong = _what_is_wrong(name.removeprefix(_PREFIX), value) if value else ""
        if wrong:
            meaning = "the library refuses to start"
            findings.append(problem(f"{name} is {value!r:.80}", meaning, wrong))
    return findings


def _what_is_wrong(name: str, value: str) -> str:
    if name in _SIZES and (name, value) != ("PARKING", "off"):
        try:
            parse_size(value)
        except InvalidArgument:
            return "write a size like 256MiB"
    elif name in _NUMBERS:
        return _wrong_number(value, *_NUMBERS[name])
    elif name == "GROW" and value not in ("0", "1", "off"):
        return "write 1 or off"
    elif name == "RESERVATION" and not _names_reservation(value):
        return "`hippogriff run` sets it: unset it"
    elif name == "IO" and value not in ("uring", "uring-plain", "threads"):
        return "write uring, uring-plain or threads, or unset it"
    return ""


def _wrong_number(value: str, least: int, most: int | None) -> str:
    number = _whole_number(value.removeprefix("-" if least < 0 else ""))
    if number is None:
        return "write a whole number"
    number = -number if value.startswith("-") else number
    if number < least:
        return f"at least {least}"
    return f"at most {most}" if most is not None and number > most else ""


def _whole_number(text: str) -> int | None:
    """Return what ASCII digits say, one too large for any number of ours where they are many."""
    if not re.fullmatch("[0-9]+", text):
        return None
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX


def _names_reservation(words: str) -> bool:
    if re.fullmatch("[0-9a-f]{32}", words):
        return True
    client, term = (_whole_number(word) for word in [*words.split(":"), "", ""][:2])
    return (
        words.count(":") == 1
        and client is not None
        and client < _CLIENTS
        and term is not None
        and term <= _TERM_MAX
    )


def unusual_values(machine: Machine) -> list[Finding]:
    """Whether a variable makes transfers slow, or is meant for tests."""
    words = (
        ("HOST_LINK", "device host has a simulated link", "for tests: unset it"),
        ("TRACE", "every piece of a transfer is written down", "unset it when done"),
        ("ROUTE", "the router does not choose", "for experiments: unset it"),
        ("CHANNELS", "no more channels than that are used", "for experiments: unset it"),
        ("GDS_ROOT", "GPUDirect Storage is looked for in another place", "for tests: unset it"),
    )
    findings = [
        note(f"{_PREFIX}{name} is set", meaning, advice)
        for name, meaning, advice in words
        if machine.environ.get(_PREFIX + name)
    ]
    for name in ("THREADS", "CPUS"):
        count = _whole_number(machine.environ.get(_PREFIX + name, ""))
        if count is not None and 0 < count < _FEW:
            found = f"{_PREFIX}{name} is {count}"
            findings.append(note(found, "so few do not fill a GPU's link", "unset it, or raise it"))
    size_bytes = _size_of(machine.environ.get("HIPPOGRIFF_PINBUFFER", ""))
    if size_bytes is not None and size_bytes < _PINBUFFER_BYTES_MIN:
        findings.append(
            note(
                f"HIPPOGRIFF_PINBUFFER is {format_size(size_bytes)}",
                "no device gets less than 64 MiB",
                "HIPPOGRIFF_PINBUFFER=64MiB says what happens",
            )
        )
    return findings


def trace_variable(machine: Machine) -> Finding | None:
    """Whether there can be a file where HIPPOGRIFF_TRACE wants one."""
    name = machine.environ.get("HIPPOGRIFF_TRACE", "")
    # pathlib raises where a folder cannot be searched or a name is too long.
    target = name if os.access(name, os.F_OK) else Path(name).parent
    if not name or (os.access(target, os.W_OK) and not os.path.isdir(name)):  # noqa: PTH112
        return None
    return problem(
        f"HIPPOGRIFF_TRACE is {name!r:.80}",
        "no file can be written there: the library refuses to start",
        "name a file in a folder of yours, or unset it",
    )


def device_variable(machine: Machine) -> Finding | None:
    """Whether HIPPOGRIFF_DEVICE names a device that is there."""
    name = machine.environ.get("HIPPOGRIFF_DEVICE", "")
    if not name or name in ("host", "cpu"):
        return None
    index = _whole_number(name.removeprefix("cuda").removeprefix(":") or "0")
    count = len(machine.driver.get("devices") or [])
    if name.startswith("cuda") and index is not None and index < count:
        return ok(f"HIPPOGRIFF_DEVICE is {name}")
    devices = ", ".join(["host", *(f"cuda:{number}" for number in range(count))])
    return problem(
        f"HIPPOGRIFF_DEVICE is {name!r:.80}",
        "there is no such device here: what names no device fails",
        f"one of {devices}; or unset it",
    )


def _size_of(text: str) -> int | None:
    try:
        return parse_size(text)
    except InvalidArgument:
        return None


CHECKS = (unknown_variables, wrong_values, unusual_values, trace_variable, device_variable)
