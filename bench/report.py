"""Makes docs/performance.md and its plots from the results in bench/results.

Run it from the repository: `python3 -m bench.report`. It needs matplotlib for the plots.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import (
    array_page,
    arrays_workloads_page,
    drawing,
    loaders_page,
    plan_page,
    sharing_costs_page,
    sharing_page,
)
from bench.cases import FIRST, GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "hippogriff-bench/1"
OURS = "hippogriff"
# What each contender is called in tables; the order is that of the rows.
LABELS = {
    "link_limit": "limit: copies of pinned memory alone",
    "drive_limit": "limit: the drive alone, O_DIRECT",
    "hippogriff": "**hippogriff**, defaults",
    "hippogriff_mapped": "hippogriff, route mapped",
    "hippogriff_pipelined": "hippogriff, route pipelined",
    "hippogriff_python": "hippogriff from Python, defaults",
    "kvikio": "KvikIO, defaults",
    "kvikio_swept": "KvikIO, best setting",
    "cufile": "cuFile",
    "ring_buffered": "hand-written ring of threads, buffered",
    "ring_direct": "hand-written ring of threads, O_DIRECT",
    "mapping_copied": "hand-written copies into a mapping",
    "mapping_registered": "hand-written, registered mapping",
    "naive": "naive read + copy",
}
LIMITS = {"link_limit", "drive_limit"}
STATE_WORDS = {
    "cached": "cached",
    FIRST: "cached, first transfer of a process",
    "cold": "cold",
    "half_cached": "first half cached",
    "striped": "every other 64 MiB cached",
    "empty_file": "into an empty file",
}


def size_text(size: int) -> str:
    """Write a size with its largest whole unit."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


@dataclass(frozen=True, order=True)
class Setting:
    """What is measured: a direction, a file system, a cache state."""

    direction: str
    filesystem: str
    state: str

    def title(self) -> str:
        """Return a heading."""
        way = "file to device" if self.direction == "send" else "device to file"
        return f"{self.filesystem}, {way}, {STATE_WORDS[self.state]}"

    def limit(self) -> str:
        """Return the contender that is the limit here."""
        if self.state == "cached" or self.filesystem == "tmpfs":
            return "link_limit"
        return "drive_limit"


def gpu_of(document: dict[str, Any]) -> str:
    """Return the device that a document is about."""
    device = document["machine"]["device"]
    return str(device.get("model", device["name"]))


class Results:
    """All measurements, from one or several documents, those of a case from one kind of device."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self.documents = documents
        self.entries = last_of_each(documents)
        self.latencies = [
            {**entry, "gpu": gpu_of(document)}
            for document in documents
            for entry in document["latencies"]
            if "seconds" in entry
        ]
        self._gpus = {place_of(entry): entry["gpu"] for entry in self.entries}
        self._have_several_gpus = len(set(self._gpus.values())) > 1

    def gpu(self, setting: Setting, size: int) -> str:
        """Return where a size was measured, or nothing where all of them were on one device."""
        place = (setting.direction, setting.filesystem, setting.state, size)
        return self._gpus[place] if self._have_several_gpus else ""

    def settings(self) -> list[Setting]:
        """Return what was measured, sends first."""
        found = {
            Setting(entry["direction"], entry["filesystem"], entry["state"])
            for entry in self.entries
            if "summary" in entry
        }
        order = list(STATE_WORDS)
        return sorted(
            found, key=lambda s: (s.direction != "send", s.filesystem, order.index(s.state))
        )

    def sizes(self, setting: Setting) -> list[int]:
        """Return the sizes measured in a setting."""
        return sorted(
            {
                entry["size_bytes"]
                for entry in self.entries
                if "summary" in entry and matches(entry, setting)
            }
        )

    def best(self, setting: Setting, size: int, contender: str) -> dict[str, Any] | None:
        """Return the entry with the highest median, over the parameters of a contender."""
        found = [
            entry
            for entry in self.entries
            if matches(entry, setting)
            and entry["size_bytes"] == size
            and entry["contender"] == contender
            and "summary" in entry
        ]
        return max(found, key=rate, default=None)


def place_of(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Return the case that an entry is about, without the contender."""
    return tuple(entry[key] for key in ("direction", "filesystem", "state", "size_bytes"))


def last_of_each(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all measurements, of a contender in a case those of the last document that has any.

    In a case count only documents about the device on which hippogriff was measured last.
    """
    gpus = {
        place_of(entry): gpu_of(document)
        for document in documents
        for entry in document["results"]
        if "summary" in entry and entry["contender"] == "hippogriff"
    }
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for document in documents:
        gpu = gpu_of(document)
        own: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for entry in document["results"]:
            if gpus.get(place_of(entry), gpu) == gpu:
                case = (*place_of(entry), entry["contender"])
                own.setdefault(case, []).append(entry | {"gpu": gpu})
        for case, entries in own.items():
            if case not in found or any("summary" in entry for entry in entries):
                found[case] = entries
    return [entry for entries in found.values() for entry in entries]


def matches(entry: dict[str, Any], setting: Setting) -> bool:
    """Whether an entry belongs to a setting."""
    named = (entry["direction"], entry["filesystem"], entry["state"])
    return named == (setting.direction, setting.filesystem, setting.state)


def rate(entry: dict[str, Any]) -> float:
    """Return the median in GB/s."""
    return float(entry["summary"]["gb_per_second_median"])


def cpu(entry: dict[str, Any]) -> float:
    """Return the median of CPU seconds per GB."""
    return float(entry["summary"]["cpu_seconds_per_gb_median"])


def growth_mib(entry: dict[str, Any]) -> float:
    """Return the largest growth of memory of the process's own, less what is kept, in MiB."""

    def growth(repetition: dict[str, Any]) -> int:
        own = repetition.get("anonymous_growth_bytes", repetition["resident_growth_bytes"])
        return int(own - repetition.get("kept_growth_bytes", 0))

    return max(growth(repetition) for repetition in entry["repetitions"]) / MIB


def route(entry: dict[str, Any]) -> str:
    """Return the route that hippogriff reported for the last repetition."""
    detail = entry["repetitions"][-1].get("detail") or {}
    return str(detail.get("route", ""))


def parameters(entry: dict[str, Any]) -> str:
    """Write a contender's parameters for a table."""
    words = []
    for name, value in entry["parameters"].items():
        is_size = name.endswith("_bytes") or name in {"task_size", "bounce_buffer_size"}
        if name not in {"slots_per_thread", "bounce_buffer_size"}:
            label = name.removesuffix("_bytes").replace("_", " ")
            words.append(f"{label} {size_text(value) if is_size else value}")
    return ", ".join(words)


def rate_table(results: Results, setting: Setting) -> list[str]:
    """Return a table of all contenders at the largest size of a setting."""
    size = results.sizes(setting)[-1]
    limit = results.best(setting, size, setting.limit())
    lines = [
        ", ".join(
            filter(None, [f"### {setting.title()}, {size_text(size)}", results.gpu(setting, size)])
        ),
        "",
        "| | GB/s, median | least to most | of the limit | CPU s/GB | memory grown by | runs |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for contender, label in LABELS.items():
        entry = results.best(setting, size, contender)
        if entry is None:
            continue
        notes = [text for text in (route(entry), parameters(entry)) if text]
        name = f"{label} ({'; '.join(notes)})" if notes else label
        share = f"{rate(entry) / rate(limit):.2f}" if limit else ""
        summary = entry["summary"]
        lines.append(
            f"| {name} | {rate(entry):.2f} "
            f"| {summary['gb_per_second_min']:.2f} to {summary['gb_per_second_max']:.2f} "
            f"| {share} | {cpu(entry):.3f} | {growth_mib(entry):.0f} MiB "
            f"| {len(entry['repetitions'])} |"
        )
    return [*lines, ""]


def latency_table(results: Results) -> list[str]:
    """Return a table of the single operations, of a contender with parameters the best."""
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for entry in results.latencies:
        names = ("filesystem", "direction", "state", "size_bytes", "contender")
        key = tuple(entry[name] for name in names)
        if key not in best or entry["seconds"]["p50"] < best[key]["seconds"]["p50"]:
            best[key] = entry
    rows = sorted(
        best.values(),
        key=lambda e: (e["direction"] != "send", e["filesystem"], e["state"], e["size_bytes"]),
    )
    if not rows:
        return []
    lines = [
        "## Single operations",
        "",
        f"{', '.join(sorted({entry['gpu'] for entry in rows}))}. Synchronous, at random offsets, "
        "the next begins when the last has ended. Python's open the file each time.",
        "",
        "| | size | contender | p50, µs | mean, µs | p99, µs | operations |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    for entry in rows:
        seconds = entry["seconds"]
        name = " ".join(filter(None, [entry["contender"], parameters({"parameters": {}} | entry)]))
        lines.append(
            f"| {entry['filesystem']} {entry['direction']} {entry['state']} "
            f"| {size_text(entry['size_bytes'])} | {name} | {seconds['p50'] * 1e6:.1f} "
            f"| {seconds['mean'] * 1e6:.1f} | {seconds['p99'] * 1e6:.1f} | {entry['operations']} |"
        )
    return [*lines, ""]


@dataclass
class Goal:
    """A figure that was set as a goal before measuring."""

    text: str
    setting: Setting
    sizes: tuple[int, int]
    value: Callable[[Results, Setting, int], float | None]
    bound: float
    at_least: bool = True


def ratio_to(
    contender: str, others: Callable[[Setting], list[str]]
) -> Callable[[Results, Setting, int], float | None]:
    """Return the ratio of a contender's rate to the best of others."""

    def value(results: Results, setting: Setting, size: int) -> float | None:
        mine = results.best(setting, size, contender)
        found = [results.best(setting, size, name) for name in others(setting)]
        theirs = [rate(entry) for entry in found if entry]
        return rate(mine) / max(theirs) if mine and theirs else None

    return value


def own(
    contender: str, figure: Callable[[dict[str, Any]], float]
) -> Callable[[Results, Setting, int], float | None]:
    """Return a figure of a contender itself."""

    def value(results: Results, setting: Setting, size: int) -> float | None:
        entry = results.best(setting, size, contender)
        return figure(entry) if entry else None

    return value


def hand_written(_: Setting) -> list[str]:
    """Name what a good programmer writes."""
    return ["ring_buffered", "ring_direct", "mapping_copied", "mapping_registered", "naive"]


def goals(filesystem: str) -> list[Goal]:
    """Return the goals for a file system with a drive."""
    cached = Setting("send", filesystem, "cached")
    cold = Setting("send", filesystem, "cold")
    half = Setting("send", filesystem, "half_cached")
    back = Setting("recv", filesystem, "empty_file")
    memory = Setting("send", "tmpfs", "cached")
    tmpfs = Setting("recv", "tmpfs", "empty_file")
    large = (GIB, 1 << 62)

    def limit(setting: Setting) -> list[str]:
        return [setting.limit()]

    def peers(setting: Setting) -> list[str]:
        return [*hand_written(setting), "kvikio", "kvikio_swept", "cufile"]

    def drive(_: Setting) -> list[str]:
        return ["drive_limit"]

    to_limit = ratio_to(OURS, limit)
    cpu_ours = own(OURS, cpu)
    return [
        Goal("cached: share of the copy limit", cached, large, to_limit, 0.92),
        Goal("cached: ratio to the best peer", cached, large, ratio_to(OURS, peers), 1.0),
        Goal("cached: CPU s/GB", cached, large, cpu_ours, 0.15, at_least=False),
        Goal("from tmpfs: share of the copy limit", memory, large, to_limit, 0.92),
        Goal("from tmpfs: ratio to the best peer", memory, large, ratio_to(OURS, peers), 1.0),
        Goal("from tmpfs: CPU s/GB", memory, large, cpu_ours, 0.15, at_least=False),
        Goal("mapped alone: GB/s", cached, large, own("hippogriff_mapped", rate), 22.0),
        Goal("mapped: CPU s/GB", cached, large, own("hippogriff_mapped", cpu), 0.045, False),
        Goal("cold: share of the drive's limit", cold, large, to_limit, 0.97),
        Goal("cold: CPU s/GB", cold, large, cpu_ours, 0.06, at_least=False),
        Goal("half cached: ratio to the cold half", half, large, ratio_to(OURS, drive), 1.0),
        Goal("back to disk: share of its limit", back, large, ratio_to(OURS, drive), 0.95),
        Goal("back to disk: CPU s/GB", back, large, cpu_ours, 0.06, at_least=False),
        Goal(
            "back to tmpfs: ratio to hand-written", tmpfs, large, ratio_to(OURS, hand_written), 0.9
        ),
        Goal("memory grown, cached, MiB", cached, large, own(OURS, growth_mib), 64, False),
        Goal("memory grown, cold, MiB", cold, large, own(OURS, growth_mib), 64, False),
    ]


def size_words(results: Results, setting: Setting, size: int) -> str:
    """Write a size, with the device's short name where there are several."""
    gpu = results.gpu(setting, size).removeprefix("NVIDIA ").split(" ")[0]
    return f"{size_text(size)}, {gpu}" if gpu else size_text(size)


def goal_rows(results: Results, goal: Goal) -> list[str]:
    """Return a row for each size at which a goal can be judged."""
    rows = []
    for size in results.sizes(goal.setting):
        value = goal.value(results, goal.setting, size)
        if value is None or not goal.sizes[0] <= size <= goal.sizes[1]:
            continue
        met = value >= goal.bound if goal.at_least else value <= goal.bound
        sign = "≥" if goal.at_least else "≤"
        rows.append(
            f"| {goal.text} | {size_words(results, goal.setting, size)} "
            f"| {sign} {goal.bound:g} | {value:.3g} | {'met' if met else 'not met'} |"
        )
    return rows


def latency_goal_rows(results: Results, filesystem: str) -> list[str]:
    """Return the rows that compare small sends with the hand-written ones."""
    rows = []
    for size in (4 * KIB, 64 * KIB):
        found = {
            entry["contender"]: entry["seconds"]["p50"]
            for entry in results.latencies
            if (entry["direction"], entry["filesystem"], entry["state"], entry["size_bytes"])
            == ("send", filesystem, "cached", size)
        }
        if OURS in found and "hand_written" in found:
            value = found[OURS] / found["hand_written"]
            verdict = "met" if value <= 1.15 else "not met"
            rows.append(
                f"| single cached reads: p50 to hand-written | {size_text(size)} | ≤ 1.15 "
                f"| {value:.3g} | {verdict} |"
            )
    return rows


def goal_table(results: Results) -> list[str]:
    """Return the goals and what was reached."""
    drives = sorted({e["filesystem"] for e in results.entries if e["filesystem"] != "tmpfs"})
    lines = [
        "## Goals",
        "",
        "| goal | size | bound | measured | |",
        "|---|--:|--:|--:|---|",
    ]
    for filesystem in drives[:1]:
        for goal in goals(filesystem):
            lines += goal_rows(results, goal)
        lines += latency_goal_rows(results, filesystem)
    return [*lines, ""]


def machine_lines(results: Results) -> list[str]:
    """Return what is known of the machines and the runs on each."""
    runs: dict[str, list[str]] = {}
    for document in results.documents:
        machine = document["machine"]
        device = machine["device"]
        where = (
            f"{gpu_of(document)}, CUDA driver "
            f"{device.get('cuda_driver_version', 'none')}, link "
            f"{device.get('current_link_speed', 'unknown')} "
            f"x{device.get('current_link_width', '?')}; "
            f"{machine['processor']}, {machine['cores']} cores, {machine.get('memory', '')}; "
            f"{machine['kernel']}."
        )
        # Without where the build and the files lay.
        command = re.sub(r"/(root|home/[^/ ,]+)/", "~/", " ".join(document["command_line"]))
        versions = ", ".join(f"{name} {value}" for name, value in document["versions"].items())
        runs.setdefault(gpu_of(document), [where, ""]).append(
            f"- {document['started']}, commit {document['commit']}, {versions}: "
            f"`{command}`; {len(document['dropped'])} measurements cut short for want of time."
        )
    lines = ["## Machine and runs", ""]
    for own in runs.values():
        lines += [*own, ""]
    return lines


def gpu_lines(results: Results, setting: Setting) -> list[str]:
    """Say which sizes of a plot are of which device, where there are several."""
    sizes: dict[str, list[str]] = {}
    for size in results.sizes(setting):
        sizes.setdefault(results.gpu(setting, size), []).append(size_text(size))
    if len(sizes) <= 1:
        return []
    return ["; ".join(f"{', '.join(own)}: {gpu}" for gpu, own in sizes.items()) + ".", ""]


def plot(results: Results, setting: Setting, folder: Path) -> Path:
    """Draw the rates over the sizes of a setting."""
    plt = drawing.pyplot()
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for contender, label in LABELS.items():
        points = [(s, results.best(setting, s, contender)) for s in results.sizes(setting)]
        known = [(size, entry) for size, entry in points if entry]
        if known:
            style = "--" if contender in LIMITS else "-"
            axes.errorbar(
                [size for size, _ in known],
                [rate(entry) for _, entry in known],
                yerr=[
                    [rate(e) - e["summary"]["gb_per_second_min"] for _, e in known],
                    [e["summary"]["gb_per_second_max"] - rate(e) for _, e in known],
                ],
                label=label.replace("*", ""),
                linestyle=style,
                linewidth=3 if contender == OURS else 1.2,
                marker="o",
                markersize=3,
                capsize=2,
            )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes := results.sizes(setting), [size_text(size) for size in sizes])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("GB/s, median; bars least to most")
    axes.set_title(setting.title())
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    name = f"{setting.direction}_{setting.filesystem}_{setting.state}.svg"
    return drawing.save(plt, figure, folder / name)


def load(paths: list[Path]) -> Results:
    """Read result files; those of other programs or formats are refused."""
    documents = []
    for path in paths:
        document = json.loads(path.read_text())
        if document.get("schema") != SCHEMA:
            raise ValueError(f"{path} is no {SCHEMA} document")
        documents.append(document)
    documents.sort(key=lambda d: (d["program"] != "transfer_bench", d["started"]))
    machines = {(d["machine"]["processor"], d["machine"]["device"]["name"]) for d in documents}
    if len(machines) > 1:
        raise ValueError(f"the results are of several machines: {sorted(machines)}")
    return Results(documents)


def transfer_lines(results: Results, output: Path, *, plots: bool) -> list[str]:
    """Return the part on transfers; nothing where none was measured."""
    if not results.documents:
        return []
    lines = [*machine_lines(results), *goal_table(results), "## Rates", ""]
    folder = output.parent / "performance"
    for setting in results.settings():
        lines += rate_table(results, setting)
        if plots and len(results.sizes(setting)) > 1:
            folder.mkdir(parents=True, exist_ok=True)
            path = plot(results, setting, folder)
            lines += [f"![{setting.title()}]({path.relative_to(output.parent)})", ""]
        lines += gpu_lines(results, setting)
    return lines + latency_table(results)


def write_page(paths: list[Path], output: Path, title: str, *, plots: bool) -> None:
    """Write the page, and the plots into a folder beside it."""
    benches = [path for path in paths if array_page.is_array_bench(path)]
    paths = [path for path in paths if path not in benches]
    loaders = [path for path in paths if loaders_page.is_loaders(path)]
    sharing = [path for path in paths if sharing_page.is_sharing(path)]
    costs = [path for path in paths if sharing_costs_page.is_costs(path)]
    plans = [path for path in paths if plan_page.is_plan(path)]
    arrays = [path for path in paths if arrays_workloads_page.is_arrays_workloads(path)]
    others = {*loaders, *sharing, *costs, *plans, *arrays}
    results = load([path for path in paths if path not in others])
    lines = [
        f"# {title}",
        "",
        "Made by `python3 -m bench.report` from the files in bench/results; bench/README.md says "
        "how they come about. GB are 10^9 bytes. A limit is what the hardware gives to a program "
        "that does nothing else. Of a contender with parameters the best setting is shown. Memory "
        "is anonymous memory beyond what the process had before.",
        "",
        *transfer_lines(results, output, plots=plots),
    ]
    lines += loaders_page.page_lines(loaders, output, plots=plots)
    lines += plan_page.page_lines(plans)
    lines += array_page.page_lines(benches, output, plots=plots)
    lines += arrays_workloads_page.page_lines(arrays, output, plots=plots)
    lines += sharing_page.page_lines(sharing, output, plots=plots)
    lines += sharing_costs_page.page_lines(costs)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(lines).rstrip() + "\n")


def main() -> int:
    """Run and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="*", type=Path, help="default: those in bench/results")
    parser.add_argument("--output", type=Path, default=Path("docs/performance.md"))
    parser.add_argument("--title", default="Performance")
    parser.add_argument("--no-plots", action="store_true")
    options = parser.parse_args()
    paths = options.results or sorted(Path("bench/results").glob("*.json*"))
    if not paths:
        print("no results in bench/results", file=sys.stderr)
        return 1
    write_page(paths, options.output, options.title, plots=not options.no_plots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
