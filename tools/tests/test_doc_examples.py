"""Examples are found with what the comments beside them say."""

from __future__ import annotations

import pytest

from doc_examples import find_examples, run_before

PAGE = """# Title

<!-- example: needs torch cuda -->
<!-- setup:
x = 1
y = 2 -->
```python
print(x)
```
<!-- check: x == 1 -->
<!-- check: y == 2 -->

```text
1
```

```
2
```

- in a list
  <!-- example: arguments a b -->
  ```c
  int main(void) {
    return 0;
  }
  ```

<!-- example: continues -->
```python
print(y)
```

<!-- example: not run: it takes hours -->
```sh
sleep 10000
```

<!-- example: part of a/b.cpp -->
```cpp
int x;
```
"""


def test_blocks_are_found_with_their_comments() -> None:
    first, program, second, command, part = find_examples("a.md", PAGE)
    assert (str(first), first.language, first.code) == ("a.md:7", "python", "print(x)\n")
    assert (first.needs, first.setup) == (["torch", "cuda"], "x = 1\ny = 2\n")
    assert first.checks == ["x == 1", "y == 2"]
    assert (program.code, program.arguments) == ("int main(void) {\n  return 0;\n}\n", ["a", "b"])
    assert (second.continues, second.needs) == (True, [])
    assert command.not_run == "it takes hours"
    assert (part.part_of, part.language) == ("a/b.cpp", "cpp")


def test_an_example_continues_those_of_its_language() -> None:
    examples = find_examples("a.md", PAGE)
    assert run_before(examples, examples[2]) == [examples[0]]
    assert run_before(examples, examples[0]) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- example: wants torch -->\n```sh\n```", "a.md:1: not understood: wants torch"),
        ("<!-- example: needs -->\n```sh\n```", "not understood: needs"),
        ("\n<!-- example: continues -->\n", "a.md:2: no example follows"),
        ("<!-- check: True -->", "a.md:1: a check before the first example"),
        ("```fortran\n```", "a.md:1: the language 'fortran' is not known"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_examples("a.md", text)
