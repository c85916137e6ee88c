"""The commands of `hippogriff` about sharing GPUs."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 (typer reads it)
from typing import Annotated

import typer

from hippogriff._console import print_json
from hippogriff._interrupts import Ended, ending_as_interrupt
from hippogriff._usage import about, naming_option, refuse_idle, size_of
from hippogriff.errors import HippogriffError, InvalidArgument, TimedOut

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

# As env(1), nohup(1) and timeout(1) say it.
_TIMED_OUT = 124
_REFUSED = 125
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_SIGNALLED = 128  # and the signal


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…")],
    memory: Annotated[str, typer.Option("--memory", help="Of each GPU, such as 6GiB.")],
    gpus: Annotated[int, typer.Option("--gpus", min=1, max=16)] = 1,
    device: Annotated[
        str | None,
        typer.Option("--device", help="A GPU's UUID, cuda:N or host; chosen if not given."),
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            min=-(2**31), max=2**31 - 1, help="Larger is served sooner, by a priority policy."
        ),
    ] = 0,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait at most; 0: not at all.")
    ] = None,
    placement: Annotated[
        str, typer.Option(help="pack: where least is left over; spread: where most is.")
    ] = "pack",
    grow: Annotated[
        bool, typer.Option("--grow", help="Let it have more, waiting until that is free.")
    ] = False,
    wait: Annotated[
        str, typer.Option(help="start: wait before it starts; first-use: when it first needs it.")
    ] = "start",
) -> None:
    """Wait until the memory is free, run COMMAND in it, and give it back however COMMAND ends.

    The command is not changed. It uses no more than its memory and sees only its GPUs. With
    --wait first-use it starts at once, and waits in its first allocation; --timeout is for that
    wait, after which the allocation fails.

    Exit code: the command's; 124: the memory was not free in time; 125: refused at once; 126, 127:
    the command cannot be started.
    """
    from hippogriff.sharing.run import Wish
    from hippogriff.sharing.run import run as run_command

    try:
        run_command(
            command,
            Wish(
                size_of("--memory", memory, least=1),
                gpus,
                device,
                priority,
                timeout,
                placement,
                grow,
                wait,
            ),
        )
    except HippogriffError as error:
        print(f"hippogriff run: {naming_option(error, str(error))}", file=sys.stderr)
        raise typer.Exit(_TIMED_OUT if isinstance(error, TimedOut) else _REFUSED) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print(f"hippogriff run: {command[0]}: {reason}", file=sys.stderr)
        missing = isinstance(error, FileNotFoundError)
        raise typer.Exit(_NOT_FOUND if missing else _NOT_EXECUTABLE) from None


def ps(json: Json = False) -> None:
    """Show who has device memory promised, and who waits for some."""
    from hippogriff._node import node_status
    from hippogriff.sharing.show import show_status, with_commands, with_traffic

    if json:
        print_json(with_traffic(with_commands(node_status())))
    else:
        show_status()


def top(
    seconds: Annotated[float, typer.Option("--interval", min=0.1, help="Between two looks.")] = 1.0,
) -> None:
    """Show the same as ps, live, until Ctrl-C."""
    from hippogriff.sharing.show import follow_status

    try:
        with ending_as_interrupt():  # The terminal becomes again what it was.
            follow_status(seconds)
    except Ended as ended:
        raise typer.Exit(_SIGNALLED + ended.signal) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def policy(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="fifo, mmu, priority-fifo, priority-mmu or aging-mmu."),
    ] = None,
    overtakes: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="aging-mmu: at most so many.")
    ] = 16,
    seconds: Annotated[float, typer.Option(min=0, help="aging-mmu: at most so long.")] = 30.0,
    json: Json = False,
) -> None:
    """Show, or choose, who is served next, for all programs of this machine."""
    from hippogriff._node import TIMEOUT_SECONDS_MAX, node_status, set_policy

    if name != "aging-mmu":
        refuse_idle(context, ("overtakes", "seconds"), "goes with aging-mmu")
    if seconds > TIMEOUT_SECONDS_MAX:
        why = f"{seconds:g} s is too long: {TIMEOUT_SECONDS_MAX:.0f} is the most"
        raise InvalidArgument(why, operation="policy", object="--seconds")
    if name is not None:
        with about("name"):
            set_policy(name, overtakes=overtakes, seconds=seconds)
    status = node_status()
    if json:
        keys = ("policy", "overtakes_max", "overtake_seconds_max")
        print_json({key: status[key] for key in keys})
    else:
        print(status["policy"])


def noded(
    socket: Annotated[
        Path | None,
        typer.Option("--socket", help="Its path; in the user's run folder if not given."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="A group (name or number) whose members may use it too."),
    ] = None,
) -> None:
    """Serve the node on a Unix socket, for containers that cannot share memory, until SIGTERM.

    There HIPPOGRIFF_NODE=unix:/path names the socket, or unix:group:NAME and
    unix:group:NAME:/path one of a group. Programs that share memory need no server.
    """
    from hippogriff.sharing.noded import serve as serve_node

    serve_node(socket, group)


def metrics(
    listen: Annotated[
        str | None, typer.Option(metavar="[ADDRESS:]PORT", help="Serve them until Ctrl-C.")
    ] = None,
) -> None:
    """Print what ps shows for Prometheus, or serve it."""
    from hippogriff.sharing.metrics import serve, text

    if listen is None:
        print(text(), end="")
    else:
        serve(listen)
