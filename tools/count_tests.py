"""Adds up JUnit files and prints ``N passed, N failed, N skipped`` on a line of its own, the last.

Before it the end of what each failed test printed: the end of a long log says what is wrong.
Fails when a test failed, when none passed, or when a file is missing: a run that tested nothing is
no success.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

STORY_LINES_MAX = 30


def verdict(case: ElementTree.Element) -> str:
    """Say how a test case ended."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    # ctest marks what it did not run by its status alone.
    is_off = case.get("status") in {"disabled", "notrun"}
    return "skipped" if is_off or case.find("skipped") is not None else "passed"


def story(path: Path, case: ElementTree.Element) -> str:
    """Tell what a failed test printed: its last lines."""
    texts = [part.text or part.get("message") or "" for part in case if part.tag != "properties"]
    lines = "\n".join(texts).strip().splitlines()[-STORY_LINES_MAX:]
    name = f"{case.get('classname', '')} {case.get('name', '')}"
    return "\n".join([f"FAILED {path}: {name}", *(f"  {line}" for line in lines)])


def count(paths: list[Path]) -> Counter[str]:
    """Count the test cases of all files by how they ended, and tell of those that failed.

    A missing file is one failure.
    """
    counts: Counter[str] = Counter()
    for path in paths:
        try:
            root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        except (OSError, ElementTree.ParseError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            counts["failed"] += 1
            continue
        for case in root.iter("testcase"):
            counts[verdict(case)] += 1
            if verdict(case) == "failed":
                print(story(path, case))
    return counts


def main(arguments: list[str]) -> int:
    """Print the sum for the files named."""
    counts = count([Path(argument) for argument in arguments])
    for case in ("passed", "failed", "skipped"):
        counts.setdefault(case, 0)
    print(", ".join(f"{counts[case]} {case}" for case in ("passed", "failed", "skipped")))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
