"""Mistakes in how the command was called, and which argument each is about."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

from hippogriff import _runtime
from hippogriff._console import print_json
from hippogriff._sizes import format_size, parse_size
from hippogriff.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import typer

_HERE = Path(__file__).resolve().parent
# Packages on PyPI that are not called as what is imported from them.
_PACKAGES = {
    "cupy": "cupy-cuda13x",
    "ml_dtypes": "ml-dtypes",
    "prometheus_client": "prometheus-client",
}


@contextlib.contextmanager
def about(argument: str) -> Iterator[None]:
    """Say of refused arguments whose failure names no object that it is about this one."""
    try:
        yield
    except InvalidArgument as error:
        error.object = error.object or argument
        raise


def path_of(text: str, argument: str) -> Path:
    """Return the path that was given as an argument.

    Raises
    ------
    InvalidArgument
        When it is empty, which would mean the working directory.
    """
    if not text:
        raise InvalidArgument(f"{argument}: the path is empty", object=argument)
    return Path(text)


def device_of(named: str | None) -> str:
    """Return the device to measure on.

    Raises
    ------
    InvalidArgument
        When there is none of that name.
    """
    device = _runtime.default_device() if named is None else str(_runtime.device_name(named))
    there = [str(each["name"]) for each in _runtime.devices()]
    if device not in there:
        words = f"there is no device {device!r:.100} here, but {', '.join(there)}"
        raise InvalidArgument(words, object="--device")
    return device


def size_of(option: str, text: str, least: int = 0, most: int = 2**63) -> int:
    """Read the size that was given with an option, in bytes."""
    with about(option):
        size_bytes = parse_size(text)
        if size_bytes < least:
            raise InvalidArgument(f"{text!r:.100} is too small: {_bytes(least)} is the least")
        if size_bytes > most:
            raise InvalidArgument(f"{text!r:.100} is too large: {_bytes(most)} is the most")
    return size_bytes


def _bytes(count: int) -> str:
    return format_size(count) if count >= 1 << 10 else f"{count} byte{'s' * (count != 1)}"


def naming_option(error: BaseException, text: str) -> str:
    """Return what is said of a failure, with the option that it is about before it."""
    option = str(getattr(error, "object", ""))
    return f"{option}: {text}" if option.startswith("--") and option not in text else text


def print_error(
    kind: str,
    message: str,
    *,
    operation: str = "",
    about: str = "",
    offset: int | None = None,
    errno: int | None = None,
) -> None:
    """Print a failure as JSON on stdout, unless that is what fails."""
    facts = {
        "type": kind,
        "message": message,
        "operation": operation,
        "object": about,
        "offset": offset,
        "errno": errno,
    }
    with contextlib.suppress(OSError):
        print_json({"error": facts})


def as_unsupported(error: ImportError) -> Unsupported:
    """Return the failure of a package that is not installed, or broken: what to install.

    Raises
    ------
    ImportError
        The same, when what is missing is a part of this package: a bug.
    """
    module = (error.name or "").partition(".")[0]
    if module == "hippogriff" or (not module and _is_ours(error)):
        raise error
    if not module:  # its own words, of a package that is broken
        return Unsupported(str(error) or "an import failed", operation="import")
    package = _PACKAGES.get(module, module)
    why = f"{module} is not here ({error}): pip install {package}"
    return Unsupported(why, operation="import", object=module)


def _is_ours(error: ImportError) -> bool:
    """Whether it was raised by a line of this package, and of none that that imports."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or Path(trace.tb_frame.f_code.co_filename).is_relative_to(_HERE)


def refuse_idle(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Refuse options that were given and would do nothing.

    Raises
    ------
    InvalidArgument
        Names the first.
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            option = f"--{name}"
            operation = str(context.info_name)
            raise InvalidArgument(f"{option} {why}", operation=operation, object=option)


class ReportingGroup(TyperGroup):
    """Commands of which those that take ``--json`` tell mistakes in their arguments so, too.

    Typer still says it on stderr, and ends with 2.
    """

    _json = False

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Read what stands before the name of the command."""
        ours = args[: args.index("--")] if "--" in args else args
        self._json = "--json" in ours
        with self._told():
            return super().make_context(info_name, args, *rest, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Read the rest, and run the command."""
        with self._told():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # Typer's own class or click's, by its version.
            if self._json and hasattr(error, "format_message") and _takes_json(error):
                print_error(
                    "UsageError",
                    error.format_message(),
                    operation="read arguments",
                    about=_argument_of(error),
                )
            raise


def _takes_json(error: Any) -> bool:
    """Whether --json is the command's: after `run` it would be that of what is run."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    if command is None or hasattr(command, "commands"):
        return True
    return any("--json" in parameter.opts for parameter in command.params)


def _argument_of(error: Any) -> str:
    """Name the option, argument or command that a mistake is about; "" where it is about none."""
    named = getattr(error, "option_name", None)
    parameter = getattr(error, "param", None)
    if parameter is not None:
        named = max(parameter.opts, key=len, default="")
        if parameter.param_type_name == "argument":
            named = (parameter.metavar or parameter.name or "").strip("[]. …")
    if not named:  # "No such command 'x'.", "Got unexpected extra argument(s) (x y)"
        found = re.search(r"'(.*)'|\(([^()]*)\)$", error.format_message())
        named = (found[1] or found[2] or "") if found else ""
    return str(named)
