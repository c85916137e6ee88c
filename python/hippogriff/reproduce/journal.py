"""What has been measured, on disk at once: a line of JSON for each measurement."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff.errors import InvalidArgument, io_error
from hippogriff.reproduce.outcome import expect_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = "hippogriff-reproduce/2"
Record = dict[str, Any]
_BEGINNING = json.dumps({"schema": SCHEMA})[:-1].encode()
_DIGITS_MAX = 300  # of what a float can have
_RUN_FACTS = {"machine": ("device", "processor", "cores"), "build": ()}


# What runs must have in common for their measurements to stand beside each other.
_CONTEXT = ("machine", "build", "files", "effort", "settings")


def context_of(facts: Record) -> str:
    """Return what stands for all that a measurement depends on beside its key."""
    known = {name: facts.get(name) for name in _CONTEXT}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]


def differences(one: Record, other: Record, but: str = "") -> str:
    """Tell in what two runs' contexts differ, apart from one thing that may."""
    return "; ".join(
        f"{name}: {one.get(name)} and {other.get(name)}"
        for name in _CONTEXT
        if one.get(name) != other.get(name) and name != but
    )


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Name the file that could not be written: what is said of a full drive does not."""
    try:
        yield
    except OSError as error:
        raise io_error("write", str(path), error) from None


def _bytes_of(path: Path) -> bytes:
    """Read a file. A pipe must not keep us waiting for its other end, nor a device for its end.

    Raises
    ------
    InvalidArgument
        When it is no regular file.
    IoError
        When it cannot be read; also FileNotFoundError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return file.read()
    except OSError as error:
        raise io_error("read", str(path), error) from None
    raise InvalidArgument(f"{path} is no regular file", object=str(path))


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


def _document_of(text: bytes) -> Record:
    """Return a JSON object of this version's.

    Raises
    ------
    ValueError
        When it is none; says why.
    """
    try:
        document = json.loads(text, parse_int=_integer)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(document, dict) or "schema" not in document:
        raise ValueError("no measurement of hippogriff reproduce")
    if document["schema"] != SCHEMA:
        raise ValueError(f"{document['schema']!r:.100} is another version's: name another folder")
    return document


def _record_of(line: bytes) -> Record:
    """Return what a line says.

    Raises
    ------
    ValueError
        When it is no line of a journal of this version; says why.
    """
    record = _document_of(line)
    if "key" in record:
        _expect_measurement(record)
    else:
        _expect_run(record.get("run"))
    return record


def _expect_measurement(record: Any) -> None:
    if not isinstance(record, dict) or not all(
        isinstance(record.get(name), str) for name in ("key", "context")
    ):
        raise ValueError("neither a measurement nor a run")
    runs = record.get("runs", [])
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise ValueError(f"the runs of {record['key']!r:.100} are none")
    if record.get("failure") or record["key"].startswith("transfer/"):
        return  # What failed may have left anything; a transfer has a result of its own kind.
    for result in [each["result"] for each in (record, *runs) if "result" in each]:
        try:
            expect_result(result)
        except ValueError as error:
            raise ValueError(f"a result of {record['key']!r:.100}: {error}") from None


def _expect_run(run: Any) -> None:
    if not isinstance(run, dict) or not isinstance(run.get("context"), str):
        raise ValueError("neither a measurement nor a run")
    for name, facts in _RUN_FACTS.items():
        said = run.get(name, {})
        if not isinstance(said, dict) or (said and not all(fact in said for fact in facts)):
            raise ValueError(f"the {name} of a run does not say what it should")


def _records_of(line: bytes) -> list[Record]:
    """Return what a line says, also where its begin is of a file that was cut off, or its end.

    Raises
    ------
    ValueError
        When it says nothing.
    """
    try:
        return [_record_of(line)]
    except ValueError:
        begin = line.rfind(_BEGINNING, 1)
        if begin <= 0 or not line.startswith(_BEGINNING[:begin]):
            raise
    records = []
    with contextlib.suppress(ValueError):
        records.append(_record_of(line[:begin]))  # it lacks no more than the end of the line
    return [*records, _record_of(line[begin:])]


def lock_folder(folder: Path, words: str) -> int:
    """Lock a folder as long as the descriptor that is returned is open.

    Raises
    ------
    InvalidArgument
        When another process has it; `words` say so.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InvalidArgument(words) from None
    return descriptor


class Journal:
    """The measurements of a folder, by context and key; of those with both the last counts.

    A line is written and synced as a whole. What an interruption left of one is dropped by the
    next that writes. Before `begin_run` it has no context.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "measurements.jsonl"
        self.context = ""
        self.runs: list[Record] = []
        self._records: dict[tuple[str, str], Record] = {}
        self._whole_bytes: int | None = None  # where a torn line begins
        self._lock: int | None = None
        self._read()

    def _read(self) -> None:
        if not self.path.exists():
            return
        text = _bytes_of(self.path)
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) != len(text):
            self._whole_bytes = len(whole)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                for record in _records_of(line):
                    self._take(record)
            except ValueError as error:
                words = f"{self.path}, line {number}: {error}; without that line it can be used"
                raise InvalidArgument(words) from None

    def _take(self, record: Record) -> None:
        if "key" in record:
            self._records[record["context"], record["key"]] = record
        else:
            self.runs.append(record["run"])

    def _append(self, record: Record) -> None:
        line = json.dumps({"schema": SCHEMA, **record}, allow_nan=False) + "\n"
        with _writing(self.path):
            self._append_line(line.encode())
        self._take({"schema": SCHEMA, **record})

    def _append_line(self, line: bytes) -> None:
        if self._whole_bytes is not None:
            os.truncate(self.path, self._whole_bytes)
            self._whole_bytes = None
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, "a line was cut short")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self) -> None:
        """Keep others from measuring into this folder as long as this process lives.

        Raises
        ------
        InvalidArgument
            When another does.
        """
        folder = self.path.parent
        words = f"another process measures into {folder}: name another folder by --out"
        self._lock = lock_folder(folder, words)

    def begin_run(self, facts: Record) -> None:
        """Note who measures now: only what was measured in the same context counts as done."""
        self.context = context_of(facts)
        self._append({"run": {**facts, "context": self.context}})

    def add(self, record: Record) -> None:
        """Keep a measurement; it has its "key"."""
        started = self.runs[-1].get("started") if self.runs else None
        self._append({**record, "context": self.context, "run_started": started})

    def get(self, key: str) -> Record | None:
        """Return a measurement of this context."""
        return self._records.get((self.context, key))

    def has(self, key: str) -> bool:
        """Whether there is nothing more to do: what failed is tried again."""
        record = self.get(key)
        return record is not None and not record.get("failure")

    def forget(self, key: str) -> None:
        """Have a measurement made again."""
        self._records.pop((self.context, key), None)

    @property
    def records(self) -> list[Record]:
        """All measurements, of whatever context."""
        return list(self._records.values())

    def write_results(self) -> Path:
        """Write one JSON document of all there is; it appears as a whole."""
        path = self.path.with_name("results.json")
        document = {"schema": SCHEMA, "runs": self.runs, "measurements": self.records}
        temporary = path.with_suffix(".writing")
        with _writing(temporary):
            temporary.write_text(json.dumps(document, indent=1) + "\n")
            temporary.replace(path)
        return path


class Results(NamedTuple):
    """Runs and measurements of one context, and how many of others stand beside them."""

    runs: list[Record]
    records: list[Record]
    left_out: int = 0


def _last_context(runs: list[Record], records: list[Record]) -> Results:
    last = max(runs, key=lambda run: str(run.get("started", "")), default={"context": ""})
    context = last["context"]
    mine = [record for record in records if record["context"] == context]
    runs = [run for run in runs if run["context"] == context]
    return Results(runs, mine, len(records) - len(mine))


def load(path: Path) -> Results:
    """Return what a folder, or a results.json, has of the context of its last run.

    Raises
    ------
    InvalidArgument
        When it is neither.
    IoError
        When it cannot be read; also FileNotFoundError.
    """
    if path.is_dir():
        journal = Journal(path)
        if journal.records or journal.runs:
            return _last_context(journal.runs, journal.records)
        path = path / "results.json"
    text = _bytes_of(path)
    try:
        document = _document_of(text)
        runs, records = document.get("runs"), document.get("measurements")
        if not isinstance(runs, list) or not isinstance(records, list):
            raise ValueError("it has no lists of runs and measurements")
        for run in runs:
            _expect_run(run)
        for record in records:
            _expect_measurement(record)
        return _last_context(runs, records)
    except ValueError as error:
        raise InvalidArgument(f"{path} has no results of hippogriff reproduce: {error}") from None
