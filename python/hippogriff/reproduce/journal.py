"""What has been measured, on disk at once: a line of JSON for each measurement."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "hippogriff-reproduce/1"
Record = dict[str, Any]


class Journal:
    """The measurements of a folder, by their keys; of those with one key the last counts.

    A line is written and synced as a whole. What an interruption left of one is dropped when the
    journal is opened again.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "measurements.jsonl"
        self._records: dict[str, Record] = {}
        self.runs: list[Record] = []
        self._read()

    def _read(self) -> None:
        if not self.path.exists():
            return
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) != len(text):
            os.truncate(self.path, len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                record = json.loads(line)
                if record["schema"] != SCHEMA:
                    raise ValueError(f"schema {record['schema']}")
                self._take(record)
            except (ValueError, LookupError, TypeError) as error:
                raise InvalidArgument(f"{self.path}, line {number}: {error}") from None

    def _take(self, record: Record) -> None:
        if "run" in record and "key" not in record:
            self.runs.append(record["run"])
        else:
            self._records[str(record["key"])] = record

    def _append(self, record: Record) -> None:
        line = json.dumps({"schema": SCHEMA, **record}, allow_nan=False) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if os.write(descriptor, line.encode()) != len(line.encode()):
                raise OSError(errno.ENOSPC, "a line was cut short", str(self.path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._take({"schema": SCHEMA, **record})

    def begin_run(self, facts: Record) -> None:
        """Note who measures now.

        Raises
        ------
        InvalidArgument
            When what is there was measured on another machine.
        """
        names = ("processor", "device", "cores")
        for run in self.runs:
            other = [run["machine"].get(name) for name in names]
            mine = [facts["machine"].get(name) for name in names]
            if other != mine:
                raise InvalidArgument(
                    f"{self.path} has results of another machine ({other} instead of {mine}): "
                    "name another folder by --out"
                )
        self._append({"run": facts})

    def add(self, record: Record) -> None:
        """Keep a measurement; it has its "key"."""
        self._append({**record, "run_number": len(self.runs) - 1})

    def get(self, key: str) -> Record | None:
        """Return a measurement."""
        return self._records.get(key)

    def has(self, key: str) -> bool:
        """Whether there is nothing more to do: what failed is tried again."""
        record = self._records.get(key)
        return record is not None and not record.get("failure")

    @property
    def records(self) -> list[Record]:
        """All measurements."""
        return list(self._records.values())

    def write_results(self) -> Path:
        """Write one JSON document of all there is; it appears as a whole."""
        path = self.path.with_name("results.json")
        document = {"schema": SCHEMA, "runs": self.runs, "measurements": self.records}
        temporary = path.with_suffix(".writing")
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        temporary.replace(path)
        return path


def load(path: Path) -> tuple[list[Record], list[Record]]:
    """Return runs and measurements of a folder, or of a results.json.

    Raises
    ------
    InvalidArgument
        When it is neither.
    """
    if path.is_dir():
        journal = Journal(path)
        if journal.records or journal.runs:
            return journal.runs, journal.records
        path = path / "results.json"
    try:
        document = json.loads(path.read_text())
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']}")
        return list(document["runs"]), list(document["measurements"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidArgument(f"{path} has no results of hippogriff reproduce: {error}") from None
