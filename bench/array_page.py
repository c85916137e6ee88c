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
    "hits of cursors, lanes side by side": "hits of cursors, lanes side by side",
    "hits of view[i]": "hits of `view[i]`, neighbours",
    "hits of view[i], 64 registers": "the same, kernels held to 64 registers",
    "writes of lines": "whole lines overwritten",
}
# Line bytes, what the better of the two misses shall have, in million reads a second.
_READ_GOALS = {512: 30.0, 4096: 10.0}
_SHARE_GOAL = 0.8
_CURSORS_GOAL, _VIEW_GOAL = 1000.0, 430.0  # GB/s

Cases = dict[tuple[str, int], dict[str, Any]]


def is_array_bench(path: Path) -> bool:
    """Whether a file holds lines of `array_bench`."""
    return path.suffix == ".jsonl" and '"host_pointers"' in path.read_text().partition("\n")[0]


def _size(line_bytes: int) -> str:
    return f"{line_bytes} B" if line_bytes < 1024 else f"{line_bytes >> 10} KiB"


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
    for name, bound in (("hits of cursors", _CURSORS_GOAL), ("hits of view[i]", _VIEW_GOAL)):
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


def page_lines(paths: list[Path], output: Path, *, plots: bool) -> list[str]:
    """Return the part of the page: of the last of several runs, by their names."""
    if not paths:
        return []
    path = max(paths)
    about, *entries = [json.loads(line) for line in path.read_text().splitlines()]
    cases = {(entry["case"], entry["line_bytes"]): entry for entry in entries if "case" in entry}
    names = [*_READS, *_RATES]  # a size that was cut off lacks some
    sizes = sorted({size for _, size in cases if all((name, size) in cases for name in names)})
    lines = [
        "## Arrays in storage",
        "",
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
