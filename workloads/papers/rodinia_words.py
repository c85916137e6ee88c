"""Numbers in texts, a block at a time: what is no number is refused with its file and line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np

from workloads.papers.paper_files import AT_ONCE, FileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

BLOCK_BYTES = 1 << 22
WORD_BYTES_MAX = 64
_OF_NUMBERS = b"0123456789+-.eEinfatyINFATY"
_WORD = re.compile(rb"\S+")


def parse(words: Sequence[bytes], dtype: str) -> Any:
    """Return the numbers that words are; None where one of them is none, or does not fit."""
    if not words:
        return np.empty(0, dtype=dtype)
    if max(map(len, words)) > WORD_BYTES_MAX or b"".join(words).translate(None, _OF_NUMBERS):
        return None
    kind = np.int64 if np.dtype(dtype).kind in "iu" else np.float64
    try:
        values = np.array(words).astype(kind)
    except (ValueError, OverflowError):
        return None
    if kind is np.int64:
        limits = np.iinfo(dtype)
        fits = (values >= limits.min) & (values <= limits.max)
        return values.astype(dtype) if fits.all() else None
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype)
    return None if (np.isinf(narrow) & np.isfinite(values)).any() else narrow


class Words:
    """The words of a text, from the file's place on, each to be taken once."""

    def __init__(
        self, file: BinaryIO, path: Path, line: int = 1, *, one_a_line: bool = False
    ) -> None:
        self._file = file
        self._one_a_line = one_a_line
        self._path = path
        self._line = line  # where the text begins
        self._text = b""
        self._rest = b""
        self._words: list[bytes] = []
        self._next = 0

    def fail(self, message: str, word: int | None = None) -> NoReturn:
        """Refuse the file because of a word of the text, by default the one taken last."""
        word = max(0, self._next - 1) if word is None else word
        found = None
        for index, found in enumerate(_WORD.finditer(self._text)):  # noqa: B007 (the last counts)
            if index == word:
                break
        line = self._line + self._text.count(b"\n", 0, found.start() if found else None)
        raise FileError(f"{self._path}, line {line}: {message}")

    def _fill(self) -> bool:
        while self._next == len(self._words):
            read = self._file.read(BLOCK_BYTES)
            self._line += self._text.count(b"\n")
            text = self._rest + read
            end = len(text)
            if read:
                separators = (b"\n",) if self._one_a_line else (b"\n", b" ", b"\t")
                end = max(text.rfind(each) for each in separators) + 1
            self._text, self._rest = text[:end], text[end:]
            self._words, self._next = self._text.split(), 0
            if len(self._rest) > BLOCK_BYTES:
                self.fail("a word longer than any number")
            if self._one_a_line:
                self._refuse_other_lines()
            if not read and not self._words:
                return False
        return True

    def _refuse_other_lines(self) -> None:
        lines = self._text.split(b"\n")
        lines = lines[:-1] if lines[-1] == b"" else lines
        if len(lines) == len(self._words) and all(map(bytes.strip, lines)):
            return
        for place, line in enumerate(lines):
            if len(line.split()) != 1:
                message = f"a line has one number, not {len(line.split())}"
                raise FileError(f"{self._path}, line {self._line + place}: {message}")

    def _some(self, count: int, dtype: str, what: str) -> Any:
        words = self._words[self._next : self._next + count]
        values = parse(words, dtype)
        if values is None:
            for place, word in enumerate(words):
                if parse([word], dtype) is None:
                    shown = word[:40].decode(errors="backslashreplace")
                    self.fail(f"{shown!r} is no {what}", self._next + place)
        self._next += len(words)
        return values

    def take(self, count: int, dtype: str, what: str) -> Any:
        """Return the next numbers, exactly so many; `what` each is, for messages."""
        pieces = []
        missing = count
        while missing:
            if not self._fill():
                self.fail(f"the text ends after {count - missing} of {count}: {what}")
            pieces.append(self._some(min(missing, AT_ONCE), dtype, what))
            missing -= len(pieces[-1])
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=dtype)

    def take_one(self, least: int, most: int, what: str) -> int:
        """Return the next whole number, which lies between bounds."""
        number = int(self.take(1, "<i8", what)[0])
        if not least <= number <= most:
            self.fail(f"{number} is no {what}: from {least} to {most}")
        return number

    def in_pieces(self, count: int, dtype: str, what: str, multiple: int = 1) -> Iterator[Any]:
        """Take so many numbers, some at a time: a multiple."""
        step = max(1, AT_ONCE // multiple) * multiple
        for first in range(0, count, step):
            yield self.take(min(step, count - first), dtype, what)

    def to_the_end(self, dtype: str, what: str) -> Iterator[Any]:
        """Take all that there are."""
        while self._fill():
            yield self._some(AT_ONCE, dtype, what)

    def expect_end(self) -> None:
        """Refuse a text that goes on."""
        if self._fill():
            self._next += 1
            self.fail("there is more than what is expected")
