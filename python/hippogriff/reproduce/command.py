"""`hippogriff reproduce`."""

from __future__ import annotations

import importlib.util
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hippogriff._console import print_json
from hippogriff._usage import device_of
from hippogriff.errors import HippogriffError, InvalidArgument, io_error
from hippogriff.reproduce import machine
from hippogriff.reproduce.bench import Bench, Places
from hippogriff.reproduce.children import uninterrupted
from hippogriff.reproduce.effort import EFFORTS, EXPERIMENTS, cut
from hippogriff.reproduce.experiments import Experiments
from hippogriff.reproduce.journal import Journal
from hippogriff.reproduce.programs import find_programs
from hippogriff.reproduce.run import Summary, measure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import FrameType

    from hippogriff.reproduce.effort import Slice

INTERRUPTED = 130
FAILED = 1


@dataclass(frozen=True)
class Options:
    """What the command is told."""

    effort: str
    experiments: str
    out: Path
    files: Path | None
    device: str | None
    programs: Path | None
    budget_seconds: float
    timeout_seconds: float
    part: Slice
    keep_inputs: bool
    report: bool
    json: bool


def chosen(text: str) -> tuple[str, ...]:
    """Return the experiments that are asked for: "E1,E3", or "all".

    Raises
    ------
    InvalidArgument
        For a name that is none.
    """
    if text == "all":
        return tuple(EXPERIMENTS)
    names = tuple(name.strip().upper() for name in text.split(","))
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        words = f"{', '.join(unknown)}: experiments are {', '.join(EXPERIMENTS)}"
        raise InvalidArgument(words, object="--experiments")
    return names


def run(options: Options) -> int:
    """Measure, write the results and the report; return the exit code."""
    names = chosen(options.experiments)
    if not options.budget_seconds >= 0:
        words = f"--budget-seconds {options.budget_seconds} is no time"
        raise InvalidArgument(words, object="--budget-seconds")
    effort = cut(EFFORTS[options.effort], options.part)
    device = device_of(options.device)
    programs = find_programs(options.programs)  # What is refused leaves no folder.
    journal = Journal(options.out)
    journal.lock()
    places = Places(options.out, options.files or options.out, programs)
    bench = Bench(places, device, options.timeout_seconds)
    bench.begin()
    whole = Experiments(bench, EFFORTS[options.effort], journal).units(tuple(EXPERIMENTS))
    wanted = {name: sum(name in unit.experiments for unit in whole) for name in EXPERIMENTS}
    units = Experiments(bench, effort, journal).units(names)
    if not any(unit.experiments for unit in units):
        words = f"{options.experiments}: nothing of it is of the part that is named"
        raise InvalidArgument(words, object="--experiments")
    journal.begin_run({**machine.facts(bench, effort.name), "wanted": wanted})
    bench.context = journal.context
    # What `timeout` sends, and a terminal that is closed, ends children and removes files, too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _interrupt)
    try:
        summary = measure(units, journal, options.budget_seconds, quiet=options.json)
    finally:
        with uninterrupted():  # A second signal, as service managers send, would leave inputs.
            bench.clean(keep_inputs=options.keep_inputs)
            results = journal.write_results()
    page = None
    try:
        if options.report:
            page = write_report([options.out], options.out / "report")
    except KeyboardInterrupt:  # The same command writes it.
        summary.interrupted = True
    if options.json:
        print_json(as_dict(summary, results, page))
    else:
        say(summary, results, page)
    if summary.interrupted:
        return INTERRUPTED
    return FAILED if summary.failed else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def write_report(results: Sequence[Path], folder: Path, *, builds_differ: bool = False) -> Path:
    """Write the report; return its page. Without matplotlib it has tables and no plots."""
    from hippogriff.reproduce.report import write_page

    plots = importlib.util.find_spec("matplotlib") is not None
    if not plots:
        print(
            "matplotlib is not installed: the report has no plots. `hippogriff reproduce --report` "
            "makes them from the results, also on another machine",
            file=sys.stderr,
        )
    try:
        return write_page(list(results), folder, plots=plots, builds_differ=builds_differ)
    except HippogriffError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        names = ", ".join(map(str, results))
        raise InvalidArgument(f"a measurement in {names} is damaged: {error!r}") from error
    except OSError as error:
        raise io_error("write", str(error.filename or folder), error) from None


def as_dict(summary: Summary, results: Path, page: Path | None) -> dict[str, Any]:
    """Return a summary for JSON."""
    return {
        "results": str(results),
        "report": None if page is None else str(page),
        "wanted": summary.wanted,
        "done": summary.done,
        "failed": summary.failed,
        "absent": summary.absent,
        "interrupted": summary.interrupted,
        "out_of_time": summary.out_of_time,
    }


def say(summary: Summary, results: Path, page: Path | None) -> None:
    """Say how it went."""
    for reason in sorted(set(summary.absent.values())):
        keys = [key for key, why in summary.absent.items() if why == reason]
        print(f"not measured: {reason} ({keys[0]}{f' and {len(keys) - 1} more' * (len(keys) > 1)})")
    for key, why in summary.failed.items():
        print(f"FAILED {key}: {why}")
    print(f"{summary.done} of {summary.wanted} measurements are in {results}")
    if page is not None:
        print(f"report: {page}")
    if summary.interrupted or summary.out_of_time:
        why = "interrupted" if summary.interrupted else "the time is over"
        print(f"{why}; the same command goes on where this one ended", file=sys.stderr)
