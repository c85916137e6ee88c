"""What a check found."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Status(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"  #: Works, though something is slower or absent, and can perhaps be changed.
    PROBLEM = "problem"  #: Does not work, or much slower than this machine could; change it.


class Finding(NamedTuple):
    """One answer of `diagnose`.

    Attributes
    ----------
    status : Status
        How bad it is.
    found : str
        What is so.
    meaning : str
        What follows from it; empty where nothing does.
    advice : str
        What to do, commands included; empty where nothing is to be done.
    check : str
        The check's name.
    """

    status: Status
    found: str
    meaning: str = ""
    advice: str = ""
    check: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return {
            "check": self.check,
            "status": self.status.value,
            "found": self.found,
            "meaning": self.meaning,
            "advice": self.advice,
        }


def ok(found: str) -> Finding:
    """Nothing to do."""
    return Finding(Status.OK, found)


def note(found: str, meaning: str, advice: str = "") -> Finding:
    """Works, but slower, or is absent."""
    return Finding(Status.NOTE, found, meaning, advice)


def problem(found: str, meaning: str, advice: str) -> Finding:
    """Must be changed."""
    return Finding(Status.PROBLEM, found, meaning, advice)
