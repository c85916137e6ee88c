"""What to do about a failure, as the command says it."""

from __future__ import annotations

import os

from hippogriff.errors import (
    DeviceError,
    HippogriffError,
    InternalError,
    InvalidArgument,
    OutOfDeviceMemory,
    OutOfHostMemory,
    Unsupported,
)

_NEXT: dict[type[BaseException], str] = {
    OutOfDeviceMemory: "free device memory, or try --device host",
    DeviceError: "`hippogriff info` says which devices work here",
    InternalError: "this is a bug: please report it",
    InvalidArgument: "`hippogriff --help` lists what each command takes",
    FileNotFoundError: "check the path",
    PermissionError: "check the permissions of the file and its folder",
}
# By what the operation is called.
_NO_MEMORY = {
    "thread": "`hippogriff doctor` says how many threads there may be",
    "pin": "close other programs, or lower HIPPOGRIFF_PINBUFFER",
    "": "close other programs",
}


def _route_hint(operation: str) -> str:
    return "`hippogriff info` says which routes work here" if operation.endswith(" route") else ""


def what_next(error: BaseException) -> str:
    """Return what to do about a failure; "" where that is not known, or the failure says it."""
    if isinstance(error, OutOfDeviceMemory) and "HIPPOGRIFF_RESERVATION" in os.environ:
        return "have `hippogriff run` reserve more: --memory, or --grow"
    if isinstance(error, OutOfDeviceMemory) and error.object == "host":
        return "raise HIPPOGRIFF_HOST_MEMORY"
    operation = error.operation if isinstance(error, HippogriffError) else ""
    if isinstance(error, Unsupported):  # of devices and routes there may be others
        return _NEXT[DeviceError] if operation.startswith("open cuda") else _route_hint(operation)
    if isinstance(error, OutOfHostMemory):
        return next((text for word, text in _NO_MEMORY.items() if word in operation), "")
    if operation.startswith(("read HIPPOGRIFF_", "start storage")):
        return "`hippogriff doctor` checks the variables"
    if operation.startswith(("find the segment", "find the server")):
        return "HIPPOGRIFF_NODE names it"
    # Of a file, not of an argument; or it says by itself what to call.
    of_data = isinstance(error, InvalidArgument) and error.object[:1] not in {"", "-"}
    if of_data or "`hippogriff " in str(error):
        return ""
    return next((text for kind, text in _NEXT.items() if isinstance(error, kind)), "")
