"""The command `hippogriff`. What only one of its commands needs is imported there."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from hippogriff import _runtime, version
from hippogriff._advice import what_next
from hippogriff._bench import ROUTES, Bench, make_file
from hippogriff._console import Follower, prepare_streams, print_json, printable
from hippogriff._copy import CopyOptions, copy_file
from hippogriff._file import File
from hippogriff._host_memory import STEP_BYTES
from hippogriff._interrupts import Ended, ending_as_interrupt
from hippogriff._measurement import backed
from hippogriff._show import (
    show_array_rows,
    show_facts,
    show_info,
    show_outlook,
    show_rows,
)
from hippogriff._sizes import format_size
from hippogriff._transfer import find_route
from hippogriff._usage import (
    ReportingGroup,
    about,
    as_unsupported,
    device_of,
    naming_option,
    path_of,
    print_error,
    refuse_idle,
    size_of,
)
from hippogriff.errors import (
    HippogriffError,
    InvalidArgument,
)
from hippogriff.reproduce.commands import reproduce
from hippogriff.sharing import commands as sharing_commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from hippogriff._array import Array

Command = TypeVar("Command", bound="Callable[..., None]")

app = typer.Typer(
    cls=ReportingGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Move data between files and GPU memory by the best route there is.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[
    str | None, typer.Option("--device", help="cuda:0, host, …; the current GPU if not given.")
]
Size = Annotated[str, typer.Option(help="In bytes, or like 64KiB.")]
Route = Annotated[str, typer.Option("--route", help="auto, direct, mapped, pipelined or parked.")]

_INTERRUPTED = 130
_CALIBRATION_STEPS = 1000
_DIRECTIONS = ("send", "recv")
_LINE_BYTES = (512, 1 << 20)  # of arrays that are measured
_BENCH_ROWS = 64  # at least so many lines


def _print_version(asked: bool) -> None:
    if asked:
        print(version)
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def _failed(error: BaseException, text: str, *, json: bool) -> typer.Exit:
    """Tell a failure on stderr, and on stdout as JSON where that was asked for."""
    print(f"hippogriff: {printable(text)}", file=sys.stderr)
    if json:
        # Of an error that is not ours. It may be a descriptor.
        path = getattr(error, "filename", None)
        name = os.fsdecode(path) if isinstance(path, str | bytes) else ""
        print_error(
            type(error).__name__,
            str(error) or type(error).__name__,
            operation=getattr(error, "operation", ""),
            about=getattr(error, "object", name),
            offset=getattr(error, "offset", None),
            errno=getattr(error, "errno", None),
        )
    return typer.Exit(1)


def _reporting(command: Command, *, own_signals: bool = False) -> Command:
    """Turn a failure into one line on stderr and exit code 1, and what ends it into an interrupt.

    With --json the failure is JSON on stdout, too.
    A command with `own_signals` says itself what signals mean.
    """

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        json = options.get("json") is True
        try:
            with contextlib.nullcontext() if own_signals else ending_as_interrupt():
                command(*arguments, **options)
        except (HippogriffError, OSError, MemoryError, EOFError) as error:
            following = what_next(error)
            text = " ".join(str(error).split()) or type(error).__name__
            text = naming_option(error, text)
            text += following and f" ({following})"
            raise _failed(error, text, json=json) from None
        except ImportError as error:  # of what only some commands, or devices, need
            missing = as_unsupported(error)
            raise _failed(missing, str(missing), json=json) from None
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":  # torch's, which may not be here
                raise
            text = f"{error} (free device memory, or try --device host)"
            raise _failed(error, text, json=json) from None
        except Ended as end:
            print(f"hippogriff: ended by {end}; nothing was left behind", file=sys.stderr)
            raise typer.Exit(128 + end.signal) from None
        except KeyboardInterrupt:
            print("hippogriff: interrupted; nothing was left behind", file=sys.stderr)
            raise typer.Exit(_INTERRUPTED) from None

    return run  # type: ignore[return-value]


@app.command()
@_reporting
def info(
    path: Annotated[str, typer.Argument(help="A file or folder.")] = ".", json: Json = False
) -> None:
    """Show devices and drives, and what each route can do for files below PATH, and why not."""
    facts = _runtime.info(path_of(path, "PATH"))
    if json:
        print_json(facts)
    else:
        show_info(facts)


@app.command()
@_reporting
def doctor(
    path: Annotated[str, typer.Argument(help="A file or folder.")] = ".", json: Json = False
) -> None:
    """Say what makes loading files below PATH slow or impossible here, and what to change.

    Exit code 1 when something is a problem.
    """
    from hippogriff.doctor._command import run as run_doctor

    if not run_doctor(path_of(path, "PATH"), json=json):
        raise typer.Exit(1)


@app.command()
@_reporting
def calibrate(
    directory: Annotated[str, typer.Argument(help="A folder on the drive.")] = ".",
    device: Device = None,
    json: Json = False,
) -> None:
    """Measure the device's link and the drive below DIRECTORY, and keep the result (10 s)."""
    with Follower("calibrate", _CALIBRATION_STEPS, in_bytes=False) as follower:
        result = _runtime.calibrate(
            path_of(directory, "DIRECTORY"),
            device=device,
            progress=lambda step, fraction: follower.tell(int(fraction * _CALIBRATION_STEPS), step),
        )
    if json:
        print_json(result)
    else:
        show_facts(result)


@app.command()
@_reporting
def copy(
    given_source: Annotated[str, typer.Argument(metavar="SRC")],
    given_destination: Annotated[str, typer.Argument(metavar="DST")],
    device: Device = None,
    route: Route = "auto",
    verify: Annotated[bool, typer.Option("--verify", help="Compare the two files.")] = False,
    json: Json = False,
) -> None:
    """Copy SRC through a device to DST, which appears as a whole or not at all."""
    source, target = path_of(given_source, "SRC"), path_of(given_destination, "DST")
    for given, path in ((given_source, source), (given_destination, target)):
        # What the path does not say any more.
        names_folder = given.endswith(("/", "/."))
        if names_folder and not path.is_dir() and (path is target or path.exists()):
            raise NotADirectoryError(f"there is no folder {given:.300}")
    with about("--route"):
        find_route(route)
    size_bytes = source.stat().st_size if source.exists() else 0
    with Follower(f"copy {source.name}", 2 * size_bytes) as follower:
        options = CopyOptions(device, route, verify)
        result = copy_file(source, target, options, follower.tell)
    if json:
        print_json(result.as_dict())
        return
    for way, sample in (("file to device", result.send), ("device to file", result.recv)):
        print(
            f"{way}: {format_size(sample.size_bytes)} by {sample.route}, "
            f"{sample.gb_per_second:.2f} GB/s, {sample.cpu_seconds_per_gb:.3f} CPU s/GB"
        )
    if result.verified:
        print("verified: the two files are equal")


@app.command()
@_reporting
def explain(
    context: typer.Context,
    given_file: Annotated[str, typer.Argument(metavar="FILE")],
    device: Device = None,
    offset: Size = "0",
    size: Annotated[str | None, typer.Option("--size", help="Else the rest of the file.")] = None,
    direction: Annotated[str, typer.Option(help="send or recv.")] = "send",
    run: Annotated[
        bool, typer.Option("--run", help="Move it, and compare: recv to a new file beside it.")
    ] = False,
    as_array: Annotated[
        bool, typer.Option("--array", help="As a StorageArray with --cache, --line and --io.")
    ] = False,
    cache: Size = "64MiB",
    line: Size = "4096",
    io: Annotated[str, typer.Option(help="auto, cached or direct.")] = "auto",
    json: Json = False,
) -> None:
    """Show every route's predicted seconds for FILE, or why not, and the choice."""
    file = path_of(given_file, "FILE")
    if as_array:
        from hippogriff._explain import explain_array

        refuse_idle(context, ("offset", "size", "direction", "run"), "is of transfers: not --array")
        explain_array(file, device or "host", cache=cache, line=line, io=io, json=json)
        return
    refuse_idle(context, ("cache", "line", "io"), "is of arrays: it goes with --array")
    begin = size_of("--offset", offset)
    length = None if size is None else size_of("--size", size)
    if direction not in _DIRECTIONS:
        why = f"direction is {direction!r:.100}; it must be 'send' or 'recv'"
        raise InvalidArgument(why, operation="explain", object="--direction")
    outlook = _runtime.explain(file, offset=begin, size=length, direction=direction, device=device)
    if run:
        with backed(outlook["bytes"], outlook["device"]) as array:
            way = _run_send if direction == "send" else _run_recv
            outlook["run"] = way(file, array, begin)
    if json:
        print_json(outlook)
    else:
        show_outlook(outlook)


def _run_send(file: Path, array: Array, offset: int) -> dict[str, Any]:
    with File(file) as source:
        transfer = source.read_into_async(array, offset)
        transfer.complete(None, None)
        return transfer.report()


def _run_recv(file: Path, array: Array, offset: int) -> dict[str, Any]:
    """Write as many bytes to a file beside it: its own stay as they are."""
    file = file.resolve()
    if file.is_block_device():
        why = f"{file} is a drive, and there is no place beside it to write to"
        raise InvalidArgument(why, operation="explain", object=str(file))
    made = file.parent / f".hippogriff-explain-{secrets.token_hex(8)}"
    with File(made, "w") as target:
        made.unlink()  # so that nothing stays, whatever ends this
        transfer = target.write_from_async(array, offset)
        transfer.complete(None, None)
        return transfer.report()


@app.command()
@_reporting
def checksum(
    files: Annotated[list[str], typer.Argument(metavar="FILE…")],
    check: Annotated[bool, typer.Option("--check", help="Compare with those there are.")] = False,
    given_folder: Annotated[
        str | None, typer.Option("--dir", help="Where the checksums are, if not beside.")
    ] = None,
    json: Json = False,
) -> None:
    """Write the checksums of each FILE to FILE.xxh3, or compare it with them (--check).

    An index of shards (model.safetensors.index.json) stands for its files. Exit code 1 when a file
    is not what its checksums are of.
    """
    from hippogriff._checksum_files import checksum_files
    from hippogriff.safetensors._files import files_of

    folder = None if given_folder is None else path_of(given_folder, "--dir")
    paths = files_of([path_of(file, "FILE") for file in files])
    total = sum(Path(path).stat().st_size for path in paths if Path(path).exists())
    with Follower("checksum", total) as follower:
        results = checksum_files(paths, folder, check=check, tell=follower.tell)
    if json:
        print_json([result.as_dict() for result in results])
    else:
        for result in results:
            print("\n".join(map(printable, result.lines())))
    if not all(result.ok for result in results):
        raise typer.Exit(1)


class _DefaultGroup(TyperGroup):
    """Commands of which one is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["routes", *args]
        return super().parse_args(ctx, args)


bench_app = typer.Typer(cls=_DefaultGroup, help="Measure routes, or loaders of models.")
app.add_typer(bench_app, name="bench")


@bench_app.command(name="routes")
@_reporting
def bench_routes(
    given_file: Annotated[str | None, typer.Argument(metavar="[FILE]")] = None,
    size: Annotated[str, typer.Option("--size", help="Of a file made for it.")] = "1GiB",
    given_folder: Annotated[str, typer.Option("--dir", help="Where to write.")] = ".",
    device: Device = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=1000)] = 3,
    json: Json = False,
) -> None:
    """Measure every route side by side with the naive read and copy (meant where none is named)."""
    file = None if given_file is None else path_of(given_file, "FILE")
    folder = path_of(given_folder, "--dir")
    name = _runtime.device_name(device) or _runtime.default_device()
    made = folder / f".hippogriff-bench-{secrets.token_hex(8)}" if file is None else None
    try:
        if made is not None:
            wanted = size_of("--size", size, least=1)
            with Follower("write the file", wanted) as follower:
                make_file(made, wanted, follower.tell)
        path = made or file or folder
        size_bytes = path.stat().st_size
        with Follower("bench", 3 * (len(ROUTES) + 1) * repeat * size_bytes) as follower:
            rows = Bench(path, name, repeat, follower.tell).run(folder)
    finally:
        if made is not None:
            with contextlib.suppress(OSError):
                made.unlink()
    if json:
        print_json({"device": name, "bytes": size_bytes, "rows": [row.as_dict() for row in rows]})
    else:
        show_rows(f"{format_size(size_bytes)} on {name}, medians of {repeat}", rows)


@bench_app.command(name="loaders")
@_reporting
def bench_loaders(
    given_folders: Annotated[
        list[str] | None, typer.Option("--dir", help="Where to write models; may be repeated.")
    ] = None,
    size: Annotated[str, typer.Option("--size", help="Of a model made for it.")] = "1GiB",
    tensors: Annotated[
        list[int] | None, typer.Option("--tensors", min=1, help="Of a model; may be repeated.")
    ] = None,
    device: Device = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=1000)] = 5,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=1000, help="Processes of each.")
    ] = 3,
    settings: Annotated[
        bool, typer.Option("--settings", help="Try other loaders with other settings, too.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="WORD", help="Loaders with it in their name; repeatable."),
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", min=1, help="Seconds after which nothing more is begun.")
    ] = math.inf,
    cached: Annotated[bool, typer.Option(help="Load from the page cache.")] = True,
    cold: Annotated[bool, typer.Option(help="Load from the drive.")] = True,
    save: Annotated[bool, typer.Option(help="Save.")] = True,
    json: Json = False,
) -> None:
    """Measure loading models, beside whichever other loaders can be imported here."""
    from hippogriff._loaders.bench import LoadersBench, Plan
    from hippogriff._loaders.dry_run import torch_device
    from hippogriff._loaders.facts import document
    from hippogriff._loaders.show import show_loaders

    folders = [path_of(folder, "--dir") for folder in given_folders or ["."]]
    for folder in folders:
        if not folder.is_dir():
            raise InvalidArgument(f"bench loaders: {folder} is no folder", object="--dir")
    plan = Plan(
        folders=tuple(folders),
        device=torch_device(device_of(device)),
        tensors=tuple(tensors or [70]),
        size_bytes=size_of("--size", size, least=1),
        repeat=repeat,
        rounds=rounds,
        cached=cached,
        cold=cold,
        save=save,
        settings=settings,
        only=tuple(only or ()),
        budget_seconds=budget,
    )
    started = time.time()
    loaders = LoadersBench(plan, lambda done, note: follower.tell(done, note))
    with Follower("bench loaders", loaders.steps, in_bytes=False) as follower:
        rows = loaders.run()
    if json:
        print_json(document(plan, rows, started))
    else:
        show_loaders(plan, rows)


@bench_app.command(name="array")
@_reporting
def bench_array(
    given_folder: Annotated[str, typer.Option("--dir", help="Where to write the file.")] = ".",
    size: Annotated[str, typer.Option("--size", help="Of the file.")] = "1GiB",
    lines: Annotated[
        list[str] | None,
        typer.Option("--line", help="A power of two, 512 bytes to 1MiB; repeatable."),
    ] = None,
    device: Device = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=1000)] = 3,
    json: Json = False,
) -> None:
    """Move rows of a file through a StorageArray, beside other ways to move them there."""
    from hippogriff._bench_array import ArrayBench, Plan
    from hippogriff._host_rows import numpy_module

    name = _runtime.device_name(device) or _runtime.default_device()
    backed(1, name).free()  # a device that is not there is told before the file is written
    path = path_of(given_folder, "--dir") / f".hippogriff-bench-{secrets.token_hex(8)}"
    numpy_module()  # nor is it written where what measures it is not installed
    least, most = _LINE_BYTES
    lengths = tuple(size_of("--line", line, least, most) for line in lines or ["512", "4KiB"])
    for length in lengths:
        if length & (length - 1):
            raise InvalidArgument(f"--line: {length} is no power of two", object="--line")
    size_bytes = size_of("--size", size, least=_BENCH_ROWS * max(lengths))
    cores = len(os.sched_getaffinity(0))
    try:
        with Follower("write the file", size_bytes) as follower:
            make_file(path, size_bytes, follower.tell)
        plan = Plan(path, lengths, repeat, cores, name)
        bench = ArrayBench(plan, lambda *step: follower.tell(*step))
        with Follower("bench array", bench.steps, in_bytes=False) as follower:
            rows = bench.run()
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    if json:
        facts = {"device": name, "bytes": size_bytes, "threads": cores}
        print_json({**facts, "rows": [row.as_dict() for row in rows]})
    else:
        show_array_rows(f"{size} on {name}, {cores} threads, medians of {repeat}", rows)


@app.command()
@_reporting
def load(
    files: Annotated[list[str], typer.Argument(metavar="FILE...")],
    device: Device = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare with the checksums.")] = False,
    host_memory: Annotated[
        str | None,
        typer.Option("--host-memory", metavar="SIZE", help="Pinned at most, such as 64MiB."),
    ] = None,
    json: Json = False,
) -> None:
    """Load FILEs, tell how it went, and let go of them.

    They are safetensors files, indices of shards, .npy and .npz files.
    """
    from hippogriff._loaders.dry_run import dry_run

    if host_memory is not None:
        size_of("--host-memory", host_memory, least=STEP_BYTES)
    paths = [path_of(file, "FILE") for file in files]
    result = dry_run(paths, device, verify=verify, host_memory=host_memory)
    if json:
        print_json(result.as_dict())
    else:
        print(result)


# What comes after COMMAND is the command's own.
app.command(context_settings={"allow_interspersed_args": False})(
    _reporting(sharing_commands.run, own_signals=True)
)
for _command in (
    reproduce,
    sharing_commands.ps,
    sharing_commands.top,
    sharing_commands.policy,
    sharing_commands.metrics,
    sharing_commands.noded,
):
    app.command()(_reporting(_command, own_signals=True))


@app.command(name="version")
@_reporting
def show_version(json: Json = False) -> None:
    """Show the version."""
    if json:
        print_json({"version": version})
    else:
        print(version)


def main() -> None:
    """Run the command."""
    prepare_streams()
    try:
        app(prog_name="hippogriff")
    except OSError as error:  # of help and versions, which no command of ours prints
        with contextlib.suppress(OSError):
            print(f"hippogriff: {error}", file=sys.stderr)
        os._exit(1)  # Python would try to write again
