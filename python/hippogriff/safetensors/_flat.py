"""What a header may hold: looked at before it is parsed, which makes objects of all that it has.

A parsed header takes some ten times its size in memory where it has tensors, and forty times where
it has empty objects and lists. So nothing is parsed that has an object or a list where the format
has none, or more beside what the format names than anybody writes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Strings of metadata, and keys that the format does not name in each of three places of a tensor's
# entry: before, between and behind its shape and its data_offsets.
METADATA_MAX = 1 << 20
OTHER_KEYS_MAX = 16

# A string as JSON has it. Nothing here tracks back: where a part has matched it has matched, and
# time grows with the text.
STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# A thousand numbers and more: no framework has arrays of more than some tens of dimensions.
_LIST = r'"(?:shape|data_offsets)"\s*+:\s*+\[[^"\[\]{}]{0,20480}+\]'
_OTHER = rf'{STRING}\s*+:\s*+(?:{STRING}|[^"\[\]{{}},\s]++)'
_BETWEEN = r"[\s,]*+"
_OTHERS = rf"{_BETWEEN}(?:{_OTHER}{_BETWEEN}){{0,{OTHER_KEYS_MAX + 1}}}+"
_TENSOR = rf"{STRING}\s*+:\s*+\{{{_OTHERS}{_LIST}{_OTHERS}{_LIST}{_OTHERS}\}}"
_METADATA = (
    r'"__metadata__"\s*+:\s*+(?:null|'
    rf"\{{{_BETWEEN}(?:{STRING}\s*+:\s*+{STRING}{_BETWEEN}){{0,{METADATA_MAX}}}+\}})"
)
_TENSORS = rf"(?:{_BETWEEN}{_TENSOR})*+"
_FLAT = re.compile(rf"\s*+\{{{_TENSORS}(?:{_BETWEEN}{_METADATA})?+{_TENSORS}{_BETWEEN}", re.DOTALL)
_BEGIN = re.compile(rf"({STRING})\s*+:\s*+(?=\S)", re.DOTALL)
# Up to what has no place in a tensor's entry: a string then is the key of an object or a list.
_REST = re.compile(
    rf'\{{(?:[^"\[\]{{}}]++|{_LIST}|{STRING}(?!\s*+:\s*+[\[{{]))*+(?P<key>{STRING})?+', re.DOTALL
)
# A whole entry that is longer is not shown to the parser either.
_SHORT_CHARACTERS = 1 << 16


class Excess(NamedTuple):
    """An entry of a header that is not to be parsed.

    `name` and `key` are strings as JSON has them. `key` is that of an object or a list; where it is
    empty, `value` is the entry's value if that is a short object, else its first character.
    """

    name: str
    key: str
    value: str
    whole: bool


def find_excess(text: str) -> Excess | None:
    """Find the first entry that has more than the format; None: all of `text` may be parsed.

    What is not JSON is not looked at: no parser gets beyond it.
    """
    found = _FLAT.match(text)
    begin = _BEGIN.match(text, found.end()) if found else None
    if begin is None:
        return None
    rest = _REST.match(text, begin.end())
    if rest is None:
        return Excess(begin[1], "", text[begin.end()], whole=False)
    if rest["key"]:
        return Excess(begin[1], rest["key"], "", whole=False)
    if not text.startswith("}", rest.end()):
        return None
    whole = rest.end() - begin.end() < _SHORT_CHARACTERS
    end = rest.end() + 1 if whole else begin.end() + 1
    return Excess(begin[1], "", text[begin.end() : end], whole)
