"""The examples in Markdown pages, with what comments beside them say about running them.

A code block is an example when its language can be run. HTML comments before it, which readers do
not see, say what it needs, and those after it what must hold then:

    <!-- example: needs torch cuda -->            skipped where one of these is missing (two-gpus)
    <!-- example: needs torch>=2.1 -->            skipped where it is missing or older
    <!-- example: continues -->                   the examples before it on the page are run first
    <!-- example: arguments in.bin out.bin -->    what a C or C++ program is called with
    <!-- example: part of FILE -->                each line stands in this file, which has tests
    <!-- example: not run: REASON -->             skipped, with the reason
    <!-- setup: CODE -->                          Python, run before it; may have several lines
    <!-- check: EXPRESSION -->                    Python, after the block; must be true
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LANGUAGES = {"python", "sh", "c", "cpp"}
# Shown, not run: output, configuration.
OTHERS = {"", "text", "json", "toml", "yaml"}
PIECE = re.compile(
    r"^ *<!-- (?P<kind>example|setup|check):(?P<words>.*?)-->"
    r"|^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Example:
    """A block of code and how to run it. `line` is where the block begins, from 1."""

    page: str
    line: int
    language: str
    code: str
    needs: list[str] = field(default_factory=list)
    continues: bool = False
    arguments: list[str] = field(default_factory=list)
    part_of: str = ""
    not_run: str = ""
    setup: str = ""
    checks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self.page}:{self.line}"


def find_examples(page: str, text: str) -> list[Example]:
    """Return the examples of a page in their order.

    Raises
    ------
    ValueError
        When a comment is not understood or belongs to no example, or a language is not known; the
        message begins with page and line.
    """
    found: list[Example] = []
    waiting: list[tuple[str, str, str]] = []
    for where, kind, words, block in pieces(page, text):
        if kind == "check":
            if not found:
                raise ValueError(f"{where}: a check before the first example")
            found[-1].checks.append(words)
        elif kind:
            waiting.append((where, kind, words))
        elif block["language"] in LANGUAGES:
            line = int(where.rpartition(":")[2])
            example = Example(page, line, block["language"], unindented(block))
            for comment in waiting:
                apply(example, *comment)
            waiting.clear()
            found.append(example)
        elif block["language"] not in OTHERS:
            raise ValueError(f"{where}: the language {block['language']!r} is not known")
    if waiting:
        raise ValueError(f"{waiting[0][0]}: no example follows")
    return found


def pieces(page: str, text: str) -> Iterator[tuple[str, str, str, dict[str, str]]]:
    """Yield where each comment or block is, and what it is."""
    for match in PIECE.finditer(text):
        where = f"{page}:{text.count(chr(10), 0, match.start()) + 1}"
        words = "" if match["words"] is None else match["words"].strip()
        yield where, match["kind"] or "", words, match.groupdict("")


def unindented(block: dict[str, str]) -> str:
    """Return a block's code without the indentation that its fence has."""
    return re.sub(f"^{block['indent']}", "", block["code"], flags=re.MULTILINE)


def apply(example: Example, where: str, kind: str, words: str) -> None:
    """Do to an example what a comment before it says."""
    first, _, rest = words.partition(" ")
    if kind == "setup":
        example.setup += f"{words}\n"
    elif words.startswith("not run: "):
        example.not_run = words.removeprefix("not run: ")
    elif words.startswith("part of "):
        example.part_of = words.removeprefix("part of ")
    elif words == "continues":
        example.continues = True
    elif first == "needs" and rest:
        example.needs += rest.split()
    elif first == "arguments" and rest:
        example.arguments += rest.split()
    else:
        raise ValueError(f"{where}: not understood: {words}")


def run_before(examples: list[Example], example: Example) -> list[Example]:
    """Return the examples of the same language that one continues, in their order."""
    before: list[Example] = []
    same = [other for other in examples if other.language == example.language]
    position = same.index(example)
    while same[position].continues and position > 0:
        position -= 1
        before.insert(0, same[position])
    return before
