"""Python literals as `.npy` headers have them, parsed without Python's own parser.

Strings, integers, True and False in tuples, lists and one dictionary: nothing else, and nothing
that nests deep, so that a hostile header costs no more than its length.
"""

from __future__ import annotations

import ast
import re
from typing import Any

_DEPTH_MAX = 32
_SPACE = r"[ \t\r\n\f]*"
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})"
_TOKEN = re.compile(
    rf"""{_SPACE}(?:
    (?P<string>'(?:[^'\\\r\n\0]|{_ESCAPE})*'|"(?:[^"\\\r\n\0]|{_ESCAPE})*")
    |(?P<integer>(?:0|[1-9]\d{{0,19}})L?)(?![\w.])
    |(?P<word>True|False)(?!\w)
    |(?P<mark>[{{}}()\[\],:])
    |(?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
# Around the dictionary less is allowed: a line that is indented is none for Python.
_BEFORE = re.compile(r"[ \t]*\{")
_AFTER = re.compile(r"[ \t\f]*[\r\n]*\Z")
_CLOSING = {"(": ")", "[": "]"}


class LiteralError(ValueError):
    """What is no literal; the message says where."""


class Literals:
    """A text to be parsed. `long_integers`: Python 2's ``3L`` is an integer."""

    def __init__(self, text: str, *, long_integers: bool) -> None:
        self._text = text
        self._long_integers = long_integers
        self._next = 0
        self._kind, self._token = "", ""
        self._advance()

    def parse_dictionary(self) -> dict[str, Any]:
        """Parse the whole text: one dictionary with strings as keys, none of them twice.

        Raises
        ------
        LiteralError
            When it is anything else.
        """
        if _BEFORE.match(self._text) is None:
            raise LiteralError(f"it begins with {self._text[:50]!r}, not with '{{'")
        fields: dict[str, Any] = {}
        self._expect("{")
        while self._token != "}":
            if self._kind != "string":
                raise self._error("a key")
            key = self._take_string()
            if key in fields:
                raise LiteralError(f"it has {key!r:.100} twice")
            self._expect(":")
            fields[key] = self._parse(0)
            if self._token != "}":
                self._expect(",")
        after = self._next
        self._expect("}")  # which also finds what is no literal
        if _AFTER.match(self._text, after) is None:
            raise LiteralError(f"it has {self._text[after:]!r:.50} where its end should be")
        return fields

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._next)
        if match is None or match.lastgroup is None:
            raise LiteralError(f"it has no literal at character {self._next}")
        self._kind, self._token = match.lastgroup, match[match.lastgroup]
        self._next = match.end()

    def _error(self, expected: str) -> LiteralError:
        return LiteralError(f"it has {self._token!r:.50} where {expected} should be")

    def _expect(self, mark: str) -> None:
        if self._kind != "mark" or self._token != mark:
            raise self._error(repr(mark))
        self._advance()

    def _take_string(self) -> str:
        value: str = ast.literal_eval(self._token)
        self._advance()
        return value

    def _parse(self, depth: int) -> Any:
        if self._kind == "string":
            return self._take_string()
        if self._kind == "mark" and self._token in _CLOSING:
            if depth == _DEPTH_MAX:
                raise LiteralError("it nests too deep")
            return self._parse_sequence(depth + 1)
        if self._kind == "word":
            value: Any = self._token == "True"
        elif self._kind == "integer" and (self._long_integers or self._token[-1] != "L"):
            value = int(self._token.removesuffix("L"))
        else:
            raise self._error("a value")
        self._advance()
        return value

    def _parse_sequence(self, depth: int) -> Any:
        opening, closing = self._token, _CLOSING[self._token]
        self._advance()
        values: list[Any] = []
        comma = True
        while self._token != closing or self._kind != "mark":
            if not comma:
                raise self._error("','")
            values.append(self._parse(depth))
            comma = self._kind == "mark" and self._token == ","
            if comma:
                self._advance()
        self._advance()
        if opening == "[":
            return values
        # Parentheses alone make no tuple.
        return values[0] if len(values) == 1 and not comma else tuple(values)
