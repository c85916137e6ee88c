"""What mkdocs does not know of this repository: a hook, named in mkdocs.yml.

- Files outside docs/ that pages link to (ARCHITECTURE.md, a header) become part of the site,
  without copies, and links between files work on the site as they do on a code host.
- Lists are written as CommonMark has them, and rewritten as Python-Markdown wants them.
- The C header becomes a reference page, from its own comments; the types in docstrings are mended.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = "docs/"
FENCE = re.compile(r"^ *(```+|~~~+)")
LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
ITEM = re.compile(r"^( *)([-*+]|\d+\.)( +)(?=\S)")
LIKE = re.compile(r"(?<=\w)(</\w+>)? - like(?=</code>)")
HEADER_MARKER = re.compile(r"<!-- c-header: (\S+) -->")
API_NAME = re.compile(r"\b((?:hippogriff|gullfoss)_\w+)\(")
TYPE_NAME = re.compile(r"(?:typedef (?:enum|struct)|#define) (\w+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to, and those that these link to."""
    from mkdocs.structure.files import File

    waiting = ["README.md", *(DOCS + file.src_uri for file in files.documentation_pages())]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        if files.get_file_from_path(site_path(path)) is None:
            absolute = str(REPOSITORY / path)
            files.append(File.generated(config, site_path(path), abs_src_path=absolute))
        if path.endswith(".md"):
            text = (REPOSITORY / path).read_text(encoding="utf-8")
            found = linked_files(path, text, is_file) - known
            known |= found
            waiting += sorted(found)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite a page from what a code host shows to what mkdocs shows."""
    del config, files
    path = page.file.src_uri if page.file.generated_by else DOCS + page.file.src_uri
    markdown = HEADER_MARKER.sub(
        lambda match: header_reference((REPOSITORY / match[1]).read_text(encoding="utf-8")),
        markdown,
    )
    return python_markdown_lists(site_links(path, markdown, is_file))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mend what mkdocstrings takes for a subtraction."""
    del page, config, files
    return LIKE.sub(r"\1-like", html)


def is_file(path: str) -> bool:
    """Say whether the repository has a file."""
    return (REPOSITORY / path).is_file()


def site_path(path: str) -> str:
    """Return where a file of the repository is on the site: docs/ is the site's root."""
    return path.removeprefix(DOCS)


def linked_files(path: str, text: str, exists: Callable[[str], bool]) -> set[str]:
    """Return the files of the repository that a page links to."""
    links = (LINK.findall(line) for line, is_code in marked_lines(text) if not is_code)
    targets = {resolve(path, link) for found in links for link in found}
    return {target for target in targets if target is not None and exists(target)}


def resolve(path: str, link: str) -> str | None:
    """Return the path that a link in a file of the repository names; None for other links."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), parts.path))
    return None if target.startswith("..") else target


def site_links(path: str, text: str, exists: Callable[[str], bool]) -> str:
    """Make the links of a page lead to the same files on the site; others stay as they are."""
    start = posixpath.dirname(site_path(path)) or "."

    def rewrite(match: re.Match[str]) -> str:
        target = resolve(path, match[1])
        if target is None or not exists(target):
            return match[1]
        fragment = urlsplit(match[1]).fragment
        link = posixpath.relpath(site_path(target), start)
        return f"{link}#{fragment}" if fragment else link

    lines = (line if is_code else LINK.sub(rewrite, line) for line, is_code in marked_lines(text))
    return "\n".join(lines)


def marked_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a page, and for each whether it belongs to a block of code."""
    fence = ""
    for line in text.split("\n"):
        match = FENCE.match(line)
        if fence:
            yield line, True
            if match and match[1].startswith(fence) and line.strip() == match[1]:
                fence = ""
        elif match:
            fence = match[1]
            yield line, True
        else:
            yield line, False


def python_markdown_lists(text: str) -> str:
    """Indent what belongs to list items by four a level, and begin lists after an empty line."""
    result: list[str] = []
    # For each item that is open: the column of its mark, and that of its text.
    items: list[tuple[int, int]] = []
    for line, is_code in marked_lines(text):
        bare = line.lstrip(" ")
        column = len(line) - len(bare)
        after_empty = not result or not result[-1].strip()
        match = None if is_code else ITEM.match(line)
        if match:
            while items and column < items[-1][1]:
                items.pop()
            if not items and not after_empty and not continues_list(result):
                result.append("")
            items.append((column, match.end()))
            result.append("    " * (len(items) - 1) + bare)
            continue
        if bare and (after_empty or is_code):
            while items and column < items[-1][1]:
                items.pop()
        if items and bare:
            deeper = max(0, column - items[-1][1])
            result.append("    " * len(items) + " " * deeper + bare)
        else:
            result.append(line)
    return "\n".join(result)


def continues_list(lines: list[str]) -> bool:
    """Say whether the paragraph at the end is part of a list: an item's, or one after its mark."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if ITEM.match(line):
            return True
    return False


def header_reference(text: str) -> str:
    """Return the reference of a C header: a section for each declaration and its comment."""
    body = text.partition('extern "C" {')[2].rpartition("#ifdef __cplusplus")[0]
    sections = ["## Types and constants"]
    for block in re.split(r"\n\s*\n", body):
        comment, code = comment_and_code(block)
        title = re.fullmatch(r"/\* -+ (.*?) -+ \*/", block.strip())
        if title:
            sections.append(f"## {title[1]}")
            continue
        is_type = code.startswith(("typedef", "#define"))
        names = (TYPE_NAME if is_type else API_NAME).findall(code)
        if names and not code.startswith(("#if", "#endif")):
            heading = ", ".join(f"`{name}`" for name in dict.fromkeys(names))
            sections += [f"### {heading}", f"```c\n{code}\n```", comment]
    return "\n\n".join(section for section in sections if section)


def comment_and_code(block: str) -> tuple[str, str]:
    """Take a declaration and the comment before it apart."""
    match = re.match(r"\s*/\*\* (.*?) ?\*/\n(.*)", block, re.DOTALL)
    comment, code = (match[1], match[2]) if match else ("", block)
    comment = re.sub(r"^ *\* *", "", comment, flags=re.MULTILINE)
    # The arguments stay below each other when the macro goes.
    code = re.sub(r"^(HIPPOGRIFF_API | {15})", "", code, flags=re.MULTILINE)
    return comment.strip(), code.strip()
