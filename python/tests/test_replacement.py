"""Files that are replaced as a whole: their modes, and what is left where that ends early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippogriff._replacement import Replacement

if TYPE_CHECKING:
    from pathlib import Path


def test_the_mode_is_that_of_the_file_that_was_there_as_the_new_one_began(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o644)
    replacement = Replacement(path)
    replacement.create(0o666)
    path.unlink()
    replacement.commit()
    assert path.stat().st_mode & 0o777 == 0o644
