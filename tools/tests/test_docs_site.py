"""What code hosts show becomes what mkdocs shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_site import header_reference, linked_files, python_markdown_lists, resolve, site_links

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = {"README.md", "docs/a.md", "docs/guide/b.md", "src/x/README.md", "include/x.h"}


def exists(path: str) -> bool:
    return path in FILES


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("README.md", "[a](docs/a.md#top)", "[a](a.md#top)"),
        (
            "README.md",
            "[x](include/x.h), [b](docs/guide/b.md)",
            "[x](include/x.h), [b](guide/b.md)",
        ),
        ("docs/a.md", "[x](../src/x/README.md)", "[x](src/x/README.md)"),
        ("docs/guide/b.md", "[x](../../include/x.h)", "[x](../include/x.h)"),
        ("docs/guide/b.md", "[x](../../README.md)", "[x](../README.md)"),
        ("src/x/README.md", "[a](../../docs/a.md)", "[a](../../a.md)"),
        ("docs/a.md", "[x](https://x.org/a.md) [y](#y)", "[x](https://x.org/a.md) [y](#y)"),
        ("docs/a.md", "[x](gone.md) [y](/a.md)", "[x](gone.md) [y](/a.md)"),
        ("docs/a.md", "```\n[x](../README.md)\n```", "```\n[x](../README.md)\n```"),
    ],
)
def test_links_lead_to_the_same_file_on_the_site(path: str, text: str, expected: str) -> None:
    assert site_links(path, text, exists) == expected


def test_links_out_of_the_repository_lead_nowhere() -> None:
    assert resolve("docs/a.md", "../../secret.md") is None
    assert resolve("README.md", "mailto:somebody") is None


def test_links_in_code_are_no_links() -> None:
    text = "[a](docs/a.md)\n```c\n[x](include/x.h)\n```\n[none](none.md)"
    assert linked_files("README.md", text, exists) == {"docs/a.md"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Words:\n- one\n- two", "Words:\n\n- one\n- two"),
        ("1. one\n   more\n2. two", "1. one\n    more\n2. two"),
        ("1. one\n\n   more\n\nend", "1. one\n\n    more\n\nend"),
        ("- a\n  - b\n    c\n- d", "- a\n    - b\n        c\n- d"),
        ("10. a\n    - b\n\n    c", "10. a\n    - b\n\n    c"),
        (
            "- a\n\n  ```c\n  - x\n    y\n  ```\n\nend",
            "- a\n\n    ```c\n    - x\n      y\n    ```\n\nend",
        ),
        ("```\nwords\n- no list\n```", "```\nwords\n- no list\n```"),
        ("| a |\n|---|\n| - b |", "| a |\n|---|\n| - b |"),
    ],
)
def test_lists_are_as_python_markdown_wants_them(text: str, expected: str) -> None:
    assert python_markdown_lists(text) == expected


def test_a_header_becomes_sections() -> None:
    text = """
extern "C" {
#endif

#define HIPPOGRIFF_API

/** A size
 *  in bytes. */
#define HIPPOGRIFF_SIZE 4

/* --- Calls ------ */

/** Both move `size` bytes. */
HIPPOGRIFF_API int hippogriff_a(size_t size,
                                void* context);
HIPPOGRIFF_API int hippogriff_b(size_t size);

#ifdef __cplusplus
}
#endif
"""
    assert header_reference(text).split("\n\n") == [
        "## Types and constants",
        "### `HIPPOGRIFF_API`",
        "```c\n#define HIPPOGRIFF_API\n```",
        "### `HIPPOGRIFF_SIZE`",
        "```c\n#define HIPPOGRIFF_SIZE 4\n```",
        "A size\nin bytes.",
        "## Calls",
        "### `hippogriff_a`, `hippogriff_b`",
        "```c\nint hippogriff_a(size_t size,\n                 void* context);\n"
        "int hippogriff_b(size_t size);\n```",
        "Both move `size` bytes.",
    ]


def test_every_function_of_the_header_is_in_the_reference() -> None:
    header = (REPOSITORY / "include/hippogriff/hippogriff.h").read_text(encoding="utf-8")
    reference = header_reference(header)
    exported = [line for line in header.splitlines() if line.startswith("HIPPOGRIFF_API ")]
    assert len(exported) > 30
    for line in exported:
        assert line.removeprefix("HIPPOGRIFF_API ").partition("(")[0] + "(" in reference
    assert "### `hippogriff_send`" in reference
    assert "### `hippogriff_options`" in reference
    assert "HIPPOGRIFF_BUILD" not in reference
