"""What the READMEs of the papers' programs show as the difference of two functions is that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"
_PROGRAMS = ("bfs", "cfd", "dwt2d", "gaussian", "hotspot", "hybridsort", "kmeans", "lud", "nn")
_DECLARED = re.compile(r"^(const )?[\w:]+\*? (?=\w+ = )")


def statements(text: str, function: str) -> list[str]:
    """The lines of a function, without the ends of phases, which both functions have."""
    found = re.search(
        rf"^void {function}\(Job& job\) \{{\n(.*?)^\}}", text, re.DOTALL | re.MULTILINE
    )
    assert found is not None
    lines = [line.strip() for line in found[1].splitlines()]
    return [line for line in lines if not line.startswith("job.phases.end(")]


def in_both(line: str, other: list[str]) -> bool:
    """Whether the other function has it, but for the type of what is declared."""
    return _DECLARED.sub("", line) in {_DECLARED.sub("", each) for each in other}


def shown(readme: str, sign: str) -> list[str]:
    """The lines of the diff with a sign, without what is said of them."""
    block = re.search(r"^```diff\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    assert block is not None, "no diff is shown"
    lines = [line for line in block[1].splitlines() if line.startswith(sign)]
    return [line[1:].partition("  //")[0].strip() for line in lines]


@pytest.mark.parametrize("name", _PROGRAMS)
def test_difference_that_a_readme_shows_is_that_of_the_code(name: str) -> None:
    code = (_WORKLOADS / name / f"{name}.cpp").read_text()
    readme = (_WORKLOADS / name / "README.md").read_text()
    conventional, ours = statements(code, "baseline"), statements(code, "run")
    assert shown(readme, "-") == [line for line in conventional if not in_both(line, ours)]
    assert shown(readme, "+") == [line for line in ours if not in_both(line, conventional)]
    for line in shown(readme, " "):
        assert in_both(line.removeprefix("... "), conventional), line
        assert in_both(line.removeprefix("... "), ours), line


@pytest.mark.parametrize("name", _PROGRAMS)
def test_readme_compares_kernels_with_their_limit(name: str) -> None:
    readme = (_WORKLOADS / name / "README.md").read_text()
    (limit,) = re.findall(r"^\*\*Limit\*\*: .*?(?=\n\n)", readme, re.DOTALL | re.MULTILINE)
    assert re.search(r"On an\s+H100", limit), "what share of it is reached"
    assert re.search(r"\d %", limit)
