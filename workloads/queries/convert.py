#!/usr/bin/env python3
"""Makes columns for `queries` of the TLC's trip records, CSV or (with pyarrow) Parquet files.

usage: convert.py FOLDER FILE...

The rows of all files, one after the other. Values that are missing become 0, as do columns that
older years do not have; a distance and a total there must be. Columns that were there are replaced
when all files have been read: until then, and where one cannot be, they stay as they are.
"""

from __future__ import annotations

import csv
import sys
from array import array
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What the columns have been called, in small letters.
NAMES = {
    "trip_distance": ("trip_distance",),
    "total_amount": ("total_amount", "total_amt"),
    "extra": ("extra", "surcharge"),
    "improvement_surcharge": ("improvement_surcharge",),
    "tolls_amount": ("tolls_amount", "tolls_amt"),
    "mta_tax": ("mta_tax",),
}
REQUIRED = ("trip_distance", "total_amount")
ROWS_AT_ONCE = 1 << 16


class ConversionError(Exception):
    """A file that cannot be converted."""


def places(path: Path, header: Sequence[str]) -> list[int | None]:
    """Return where each column stands in the file; None for one that is not there."""
    there = {name.strip().lower(): place for place, name in enumerate(header)}
    found = [
        next((there[name] for name in names if name in there), None) for names in NAMES.values()
    ]
    for column, place in zip(NAMES, found, strict=True):
        if place is None and column in REQUIRED:
            message = f"{path} has no column {column}"
            raise ConversionError(message)
    return found


def number(words: Sequence[str], place: int | None) -> float:
    """Return a value of a row; 0 where there is none."""
    if place is None or place >= len(words):
        return 0.0
    word = words[place].strip()
    return float(word) if word else 0.0


def csv_batches(path: Path) -> Iterator[list[Sequence[float]]]:
    """Read a CSV file some rows at a time."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        columns = places(path, next(reader, []))
        batch: list[array[float]] = [array("d") for _ in columns]
        for words in reader:
            if not words:  # The TLC's older files have an empty line after the header.
                continue
            try:
                values = [number(words, place) for place in columns]
            except ValueError as error:
                message = f"{path}, line {reader.line_num}: {error}"
                raise ConversionError(message) from error
            for column, value in zip(batch, values, strict=True):
                column.append(value)
            if len(batch[0]) == ROWS_AT_ONCE:
                yield list(batch)
                batch = [array("d") for _ in columns]
        yield list(batch)


def parquet_batches(path: Path) -> Iterator[list[Sequence[float]]]:
    """Read a Parquet file some rows at a time."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        message = f"{path}: Parquet files need pyarrow"
        raise ConversionError(message) from error
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            columns = [None if place is None else names[place] for place in places(path, names)]
            wanted = [name for name in columns if name is not None]
            for rows in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=wanted):
                zeros = [0.0] * rows.num_rows
                yield [zeros if name is None else doubles(rows.column(name)) for name in columns]
    except pyarrow.ArrowException as error:
        message = f"{path}: {error}"
        raise ConversionError(message) from error


def doubles(column: Any) -> list[float]:
    """Return Arrow's numbers; 0 where there is none."""
    numbers: list[float] = column.cast("float64", safe=False).fill_null(0.0).to_pylist()
    return numbers


def append(files: Sequence[BinaryIO], batch: list[Sequence[float]]) -> None:
    """Write a batch to the ends of the columns, as little-endian float64."""
    for file, values in zip(files, batch, strict=True):
        column = array("d", values)
        if sys.byteorder == "big":
            column.byteswap()
        file.write(column.tobytes())


def convert(folder: Path, paths: Sequence[Path]) -> int:
    """Make the folder's columns of the files, all or none; return the number of rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = 0
    with TemporaryDirectory(prefix=".convert-", dir=folder) as name_of_new:
        new = [Path(name_of_new) / f"{name}.f64" for name in NAMES]
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in new]
            for path in paths:
                read = parquet_batches if path.suffix == ".parquet" else csv_batches
                for batch in read(path):
                    append(files, batch)
                    rows += len(batch[0])
        # Closed: what they still had to write has been written, or has failed.
        for path in new:
            path.replace(folder / path.name)
    return rows


def main(words: Sequence[str]) -> int:
    """Convert what the command line names."""
    if len(words) < 2:
        print("usage: convert.py FOLDER FILE...", file=sys.stderr)
        return 2
    try:
        rows = convert(Path(words[0]), [Path(word) for word in words[1:]])
    except (ConversionError, OSError, csv.Error, UnicodeDecodeError) as error:
        print(f"convert.py: {error}", file=sys.stderr)
        return 1
    print(f"{rows} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
