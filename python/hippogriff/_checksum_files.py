"""What `hippogriff checksum` does: many files, each with what became of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._compare import find_sidecar, target_sidecar
from hippogriff._sidecar import is_sidecar
from hippogriff._sizes import format_size
from hippogriff.errors import ChecksumMismatch, HippogriffError, InvalidArgument, io_error
from hippogriff.integrity import verify_checksums, write_checksums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LINES_MAX = 20


class FileResult(NamedTuple):
    """What became of one file. `error` is None where all is well."""

    path: str
    sidecar: str
    size_bytes: int
    checked: bool
    error: HippogriffError | None

    @property
    def ok(self) -> bool:
        """Whether its checksums are written, or are its own."""
        return self.error is None

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON; checksums as hexadecimal text."""
        mismatches = self.error.mismatches if isinstance(self.error, ChecksumMismatch) else ()
        return {
            "file": self.path,
            "checksums": self.sidecar,
            "bytes": self.size_bytes,
            "ok": self.ok,
            "error": None if self.error is None else str(self.error),
            "mismatches": [
                {
                    **each._asdict(),
                    "expected": f"{each.expected:016x}",
                    "found": f"{each.found:016x}",
                }
                for each in mismatches
            ],
        }

    def lines(self) -> list[str]:
        """Return it for people."""
        if self.error is None:
            size = format_size(self.size_bytes)
            done = "verified" if self.checked else f"checksums are in {self.sidecar}"
            return [f"{self.path}: {size}, {done}"]
        if isinstance(self.error, ChecksumMismatch) and self.error.mismatches:
            differing = self.error.mismatches
            lines = [f"{self.path}: DIFFERS in {len(differing)} blocks"]
            lines += [f"  {each}" for each in differing[:_LINES_MAX]]
            if len(differing) > _LINES_MAX:
                lines.append(f"  and {len(differing) - _LINES_MAX} blocks more")
            return lines
        return [f"{self.path}: FAILED: {self.error}"]


def checksum_files(
    paths: Iterable[str],
    folder: Path | None,
    *,
    check: bool,
    tell: Callable[[int, str], object],
) -> list[FileResult]:
    """Write or compare the checksums of files; one that fails does not keep the others from it.

    Files of checksums among others, as a pattern names them the second time, are left out.
    `tell` is called with the bytes of all that are done, and the name of the file at work.

    Raises
    ------
    InvalidArgument
        When two files would have their checksums in one. No checksums are written then.
    IoError
        When the folder cannot be made.
    """
    paths = list(paths)
    paths = [path for path in paths if not is_sidecar(path)] or paths
    if folder is not None and not check:
        _make_folder(folder)
        _expect_different(paths, folder)
    results = []
    before = 0
    for path in paths:
        error, size_bytes = None, 0

        def progress(done: int, _total: int, path: str = path, before: int = before) -> None:
            tell(before + done, path)

        try:
            size_bytes = Path(path).stat().st_size if Path(path).is_file() else 0
            if check:
                verify_checksums(path, folder, progress=progress)
            else:
                write_checksums(path, folder, progress=progress)
        except HippogriffError as failure:
            error = failure
        sidecar = (find_sidecar if check else target_sidecar)(path, folder)
        results.append(FileResult(path, sidecar, size_bytes, check, error))
        before += size_bytes
    return results


def _expect_different(paths: Iterable[str], folder: Path) -> None:
    """Refuse files of one name, whose checksums would replace each other's in the folder."""
    files: dict[str, str] = {}
    for path in paths:
        sidecar = target_sidecar(path, folder)
        other = files.setdefault(sidecar, path)
        if os.path.realpath(other) != os.path.realpath(path):
            raise InvalidArgument(
                f"{other} and {path} would both have their checksums in {sidecar}: give files of "
                "one name folders of their own",
                object=sidecar,
            )


def _make_folder(folder: Path) -> None:
    """Make the folder for checksums: they would all be written to a file of that name, else."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise io_error("make the folder", str(folder), error) from None
