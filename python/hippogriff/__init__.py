"""hippogriff: move data between files and GPU memory by the best route there is at that moment.

Examples
--------
>>> import hippogriff
>>> weights = hippogriff.read("weights.bin", dtype="float32")  # on the GPU, if there is one
>>> hippogriff.write("copy.bin", weights)

The runtime starts at the first use and ends with the process. Every function may be called from any
thread, and gives the interpreter lock back while it waits.
"""

from hippogriff._array import Array, empty
from hippogriff._array_file import ArrayFile
from hippogriff._file import File
from hippogriff._handle import Progress
from hippogriff._include import get_compile_options, get_include
from hippogriff._library import lib
from hippogriff._node import Reservation, node_status, reserve, set_policy
from hippogriff._open import open_file as open  # noqa: A004 (the module's own open)
from hippogriff._path import prefetch, read, read_async, write, write_async
from hippogriff._runtime import (
    calibrate,
    default_device,
    deinit,
    devices,
    explain,
    info,
    init,
    stats,
)
from hippogriff._storage_array import StorageArray
from hippogriff._transfer import Transfer
from hippogriff.errors import (
    Busy,
    Cancelled,
    ChecksumMismatch,
    DeviceError,
    Forked,
    HippogriffError,
    InternalError,
    InvalidArgument,
    IoError,
    NotInitialized,
    OutOfDeviceMemory,
    OutOfHostMemory,
    ShortFile,
    TimedOut,
    Unsupported,
)

#: The library's version, for example ``"0.1.0"``.
version: str = lib.hippogriff_version().decode()
__version__ = version

__all__ = [
    "Array",
    "ArrayFile",
    "Busy",
    "Cancelled",
    "ChecksumMismatch",
    "DeviceError",
    "File",
    "Forked",
    "HippogriffError",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "NotInitialized",
    "OutOfDeviceMemory",
    "OutOfHostMemory",
    "Progress",
    "Reservation",
    "ShortFile",
    "StorageArray",
    "TimedOut",
    "Transfer",
    "Unsupported",
    "__version__",
    "calibrate",
    "default_device",
    "deinit",
    "devices",
    "empty",
    "explain",
    "get_compile_options",
    "get_include",
    "info",
    "init",
    "node_status",
    "open",
    "prefetch",
    "read",
    "read_async",
    "reserve",
    "set_policy",
    "stats",
    "version",
    "write",
    "write_async",
]
