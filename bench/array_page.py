"""The part of docs/performance.md on arrays in storage, from what `array_bench` printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench import drawing

if TYPE_CHECKING:
    from pathlib import Path

_ZERO_COPY = "zero copy"
# What each case is called, in the order of the rows, and whether it is counted in reads.
_READS = {
    _ZERO_COPY: "zero-copy reads of the same blocks",
    "misses": "misses, a warp a line",
    "misses of view[i]": "misses of `view[i]`, a line for each lane",
}
_RATES = {
    "hits of lines": "hits of whole lines",
    "hits of cursors": "hits of cursors, a stretch for each thread",
    "hits of cursors, lanes side by side": "hits of cursors, lanes side by side (coalesced)",
    "hits of view[i]": "hits of `view[i]`, neighbours",
    "hits of view[i], 64 registers": "the same, kernels held to 64 registers",
    "writes of lines": "whole lines overwritten",
}
# Line bytes, what the better of the two misses shall have, in million reads a second.
_READ_GOALS = {512: 30.0, 4096: 10.0}
_SHARE_GOAL = 0.8
_RATE_GOALS = {  # GB/s
    "hits of cursors, lanes side by side": 1000.0,
    "hits of cursors": 1000.0,
    "hits of view[i]": 430.0,
}
# Rows gathered on a stream, three ways of which an array takes one of the last two by itself.
_GATHER = "gather"
_WAYS = ("automatic", "cache", "zero copy")
_ROWS = {"random": "random ones", "again": "few, again and again"}
_CHOICE_GOAL = 0.95

Cases = dict[tuple[str, int], dict[str, Any]]
# Of each way, by what rows there are, and the bytes of a line and of the cache.
Gathers = dict[tuple[str, int, int], dict[str, dict[str, Any]]]


def is_array_bench(path: Path) -> bool:
    """Whether a file holds lines of `array_bench`."""
    return path.suffix == ".jsonl" and '"host_pointers"' in path.read_text().partition("\n")[0]


def _size(size_bytes: int) -> str:
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes >= 1 << shift:
            return f"{size_bytes / (1 << shift):g} {unit}"
    return f"{size_bytes} B"


def _verdict(*, met: bool) -> str:
    return "met" if met else "not met"


def goal_lines(cases: Cases, sizes: list[int]) -> list[str]:
    """Return a table of the aims."""
    lines = ["| goal | line | bound | measured | |", "|---|--:|--:|--:|---|"]
    for size in sizes:
        limit = cases[_ZERO_COPY, size]["million_a_second"]
        for name in list(_READS)[1:]:
            found = cases[name, size]["million_a_second"]
            if size in _READ_GOALS:
                bound = _READ_GOALS[size]
                lines.append(
                    f"| {_READS[name]}, million a second | {_size(size)} | ≥ {bound:g} "
                    f"| {found:.3g} | {_verdict(met=found >= bound)} |"
                )
            lines.append(
                f"| {_READS[name]}, to zero-copy reads | {_size(size)} | ≥ {_SHARE_GOAL} "
                f"| {found / limit:.2f} | {_verdict(met=found / limit >= _SHARE_GOAL)} |"
            )
    for name, bound in _RATE_GOALS.items():
        for size in sizes:
            found = cases[name, size]["gb_a_second"]
            lines.append(
                f"| {_RATES[name]}, GB/s | {_size(size)} | ≥ {bound:g} | {found:.4g} "
                f"| {_verdict(met=found >= bound)} |"
            )
    return [*lines, ""]


def table_lines(cases: Cases, sizes: list[int]) -> list[str]:
    """Return what was measured, a row for each case."""
    lines = [
        f"| | {' | '.join(_size(size) for size in sizes)} |",
        f"|---|{'--:|' * len(sizes)}",
    ]
    for names, unit, key in (
        (_READS, "million a second", "million_a_second"),
        (_RATES, "GB/s", "gb_a_second"),
    ):
        for name, title in names.items():
            cells = [f"{cases[name, size][key]:.4g}" for size in sizes]
            lines.append(f"| {title}, {unit} | {' | '.join(cells)} |")
    return [*lines, ""]


def plot_reads(cases: Cases, sizes: list[int], folder: Path) -> Path:
    """Draw GB/s over the size of a line, misses beside zero-copy reads."""
    plt = drawing.pyplot()
    figure, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
    for name, title in _READS.items():
        style = "--" if name == _ZERO_COPY else "-"
        rates = [cases[name, size]["gb_a_second"] for size in sizes]
        axes.plot(sizes, rates, style, marker="o", markersize=3, label=title.replace("`", ""))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [_size(size) for size in sizes])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("line")
    axes.set_ylabel("GB/s")
    axes.set_title("Random reads of host memory by a GPU")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, framealpha=0)
    return drawing.save(plt, figure, folder / "array_reads.svg")


def gathers_of(entries: list[dict[str, Any]]) -> Gathers:
    """Return the gathers that were measured all ways, random rows first."""
    found: Gathers = {}
    for entry in entries:
        if entry.get("case") == _GATHER:
            key = entry["rows"], entry["line_bytes"], entry["cache_bytes"]
            found.setdefault(key, {})[entry["way"]] = entry
    names = list(_ROWS)
    return {
        key: found[key]
        for key in sorted(found, key=lambda key: (names.index(key[0]), *key[1:]))
        if set(_WAYS) == set(found[key])
    }


def _predicted(explained: dict[str, Any], seconds: str) -> str:
    """Return million rows a second of what was predicted for as many lines as the array has."""
    if seconds not in explained:
        return ""
    return f"{explained['bytes'] / explained['line_bytes'] / explained[seconds] / 1e6:.3g}"


def gather_lines(path: Path) -> list[str]:
    """Return the part on rows gathered on a stream, of a run that has them."""
    about, entries = _read(path)
    gathers = gathers_of(entries)
    measured = next(iter(gathers.values()))["automatic"]
    lines = [
        "### Rows gathered on a stream",
        "",
        f"{about['device']}, {about['cores']} cores; `array_bench` ({path.name}): "
        f"`hippogriff_array_gather_async` of {measured['row_count']:,} rows of a line each, out of "
        f"{_size(about['data_bytes'])} of host memory, everything checked, medians of "
        f"{measured['rounds']} rounds, in each of which all ways gather the same rows: as the "
        'array chooses by itself, through its cache (`load="none"`), and past it (zero-copy). '
        "Those asked for again are as many as a quarter of the cache holds. Each gather has ended "
        "before the next is queued, and some twenty are not counted, in which an array may see of "
        "what kind they are; where the prediction speaks for the cache it chooses nothing more.",
        "",
        "| goal | line | bound | measured | |",
        "|---|--:|--:|--:|---|",
    ]
    table = [
        "| rows | line | cache | chosen | automatic | cache | predicted | zero-copy | predicted |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for (rows, line, cache), ways in gathers.items():
        rates = [ways[way]["million_a_second"] for way in _WAYS]
        share = rates[0] / max(rates[1:])
        lines.append(
            f"| automatic to the better of both ways, rows: {_ROWS[rows]}, cache of {_size(cache)} "
            f"| {_size(line)} | ≥ {_CHOICE_GOAL} | {share:.2f} "
            f"| {_verdict(met=share >= _CHOICE_GOAL)} |"
        )
        explained = ways["automatic"]["explain"]
        table.append(
            f"| {_ROWS[rows]} | {_size(line)} | {_size(cache)} "
            f"| {'zero-copy' if explained['zero_copy'] else 'cache'} | {rates[0]:.4g} "
            f"| {rates[1]:.4g} | {_predicted(explained, 'cache_seconds')} "
            f"| {rates[2]:.4g} | {_predicted(explained, 'zero_copy_seconds')} |"
        )
    return [*lines, "", "Million rows a second:", "", *table, ""]


def accesses_of(entries: list[dict[str, Any]]) -> tuple[Cases, list[int]]:
    """Return the single accesses, and the sizes of lines that have all of them."""
    cases = {
        (entry["case"], entry["line_bytes"]): entry
        for entry in entries
        if "case" in entry and entry["case"] != _GATHER
    }
    names = [*_READS, *_RATES]  # a size that was cut off lacks some
    return cases, sorted(
        {size for _, size in cases if all((name, size) in cases for name in names)}
    )


def access_lines(path: Path, output: Path, *, plots: bool) -> list[str]:
    """Return the part on single accesses of a run that has them."""
    about, entries = _read(path)
    cases, sizes = accesses_of(entries)
    lines = [
        f"{about['device']}, {about['cores']} cores; `array_bench` ({path.name}): random reads of "
        f"{about['data_bytes'] / 2**30:g} GiB of host memory, everything checked, hits of elements "
        "of 8 bytes but for whole lines. Zero-copy reads by kernels that keep nothing are the "
        "limit, the same in each run; [more about it](storage_arrays.md).",
        "",
        *goal_lines(cases, sizes),
        *table_lines(cases, sizes),
    ]
    if plots:
        folder = output.parent / "performance"
        folder.mkdir(parents=True, exist_ok=True)
        made = plot_reads(cases, sizes, folder)
        lines += [f"![Random reads of host memory by a GPU]({made.relative_to(output.parent)})", ""]
    return lines


def _read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    about, *entries = [json.loads(line) for line in path.read_text().splitlines()]
    return about, entries


def page_lines(paths: list[Path], output: Path, *, plots: bool) -> list[str]:
    """Return both parts of the page, each of the last of the runs, by their names, that has it."""
    with_accesses = [path for path in paths if accesses_of(_read(path)[1])[1]]
    with_gathers = [path for path in paths if gathers_of(_read(path)[1])]
    lines: list[str] = []
    if with_accesses:
        lines += access_lines(max(with_accesses), output, plots=plots)
    if with_gathers:
        lines += gather_lines(max(with_gathers))
    return ["## Arrays in storage", "", *lines] if lines else []
