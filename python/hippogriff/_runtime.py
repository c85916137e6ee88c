"""The runtime's life in this process: started at first use, stopped at exit, started anew in forks.

Also what it knows: devices, information, predictions, statistics, calibration.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import os
import queue
import stat
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff import _abi
from hippogriff._library import lib
from hippogriff.errors import Busy, Forked, InvalidArgument, check, io_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    PathLike = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_DIRECTIONS = {"send": 0, "recv": 1}
_STOP_SECONDS = 30.0  # Between two steps of a calibration.
_CUDA_NOT_INITIALIZED = 3  # What cuInit says in a process forked after another cuInit.
_FORKED = (
    "find the default device: this process was forked after CUDA was used, where CUDA does not "
    "work: use multiprocessing's spawn start method, or device='host'"
)


class _Runtime:
    """Whether the library is initialised in this process. Thread-safe."""

    def __init__(self) -> None:
        self.running = False
        self.ended = False  # the interpreter is exiting, and has stopped it
        self.process_count = 0  # grows in every fork: older handles are the parent's
        self.generation = 0  # grows with every start: older memory is gone
        self.live_allocations: set[tuple[int, int]] = set()
        self.before_stop: list[Callable[[], None]] = []
        self.parent_used_cuda = False  # through us: then it does not work here
        self.warned = False  # that transfers are slower than they could be
        self._lock = threading.RLock()

    def start(self) -> None:
        with self._lock:
            if self.running:
                return
            check(lib.hippogriff_init())
            self.generation += 1
            self.running = True

    def stop(self) -> None:
        with self._lock:
            if not self.running:
                return
            self.running = False
            self.generation += 1
            self.live_allocations.clear()
            check(lib.hippogriff_deinit())

    def after_fork(self) -> None:
        self.running = False
        # Nothing is asked anew: only what the parent knew.
        if _driver.cache_info().currsize and _driver() is not None:
            self.parent_used_cuda = True
        self.process_count += 1
        self.generation += 1
        self.live_allocations = set()
        self._lock = threading.RLock()
        _driver.cache_clear()

    def warn_of_notices(self) -> None:
        """Warn, once in a process, of what makes its transfers slower than they could be."""
        if self.warned or not self.running:
            return
        text = ctypes.c_void_p()
        if lib.hippogriff_notices(ctypes.byref(text)) != 0 or not text.value:
            return
        try:
            sentences = ctypes.string_at(text.value).decode(errors="replace").splitlines()
        finally:
            lib.hippogriff_free_string(text)
        self.warned = True
        warnings.warn("hippogriff: " + "; ".join(sentences), RuntimeWarning, stacklevel=4)


runtime = _Runtime()
os.register_at_fork(after_in_child=runtime.after_fork)


def ensure() -> None:
    """Start the runtime unless it runs in this process."""
    if not runtime.running:
        runtime.start()


def init() -> None:
    """Start the runtime now rather than at the first use.

    Calling it again does nothing. A forked child starts its own at its first use; on a CUDA device
    that works only when the parent had not used CUDA before the fork. Thread-safe.

    Raises
    ------
    HippogriffError
        When the runtime cannot start.
    """
    ensure()


def deinit() -> None:
    """Stop the runtime: transfers in flight are cancelled and its threads end.

    The next use starts it again. Python calls it at exit. Thread-safe.

    Raises
    ------
    Busy
        While arrays (or views of them) hold device memory: free them first.
    """
    for hook in runtime.before_stop:
        hook()
    if runtime.live_allocations:
        raise Busy(
            f"deinit: {len(runtime.live_allocations)} arrays still hold device memory; "
            "free them and drop their views first",
            operation="deinit",
        )
    runtime.stop()


@atexit.register
def _stop_at_exit() -> None:
    try:
        runtime.stop()
    finally:
        runtime.ended = True


def _take_json(call: Callable[..., int], *arguments: object) -> Any:
    """Call a function whose last argument is `char** json` and return what it says."""
    ensure()
    text = ctypes.c_void_p()
    check(call(*arguments, ctypes.byref(text)))
    return take_json(text)


def take_json(text: ctypes.c_void_p) -> Any:
    """Parse a JSON string of the library's and give it back."""
    try:
        return json.loads(ctypes.string_at(text.value or 0))
    finally:
        lib.hippogriff_free_string(text)


def encode_path(path: PathLike) -> bytes:
    """Return the path as C wants it.

    Raises
    ------
    InvalidArgument
        When it contains a zero byte, which C would take for its end.
    """
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        words = f"path {path!r:.200} contains a zero byte"
        raise InvalidArgument(words, object=os.fsdecode(encoded))
    return encoded


def device_name(device: object) -> str | None:
    """Return the library's name for ``"cuda"``, ``1``, ``torch.device("cpu")`` and the like."""
    if device is None:
        return None
    if isinstance(device, int):
        return f"cuda:{device}"
    name = str(device)
    if name in {"cpu", "cpu:0"}:
        return "host"
    if name == "cuda":
        current = default_device()
        return current if current.startswith("cuda:") else "cuda:0"
    return name


def encode_device(device: str | None) -> bytes | None:
    """Return a device's name for C.

    Raises
    ------
    InvalidArgument
        When it is no name: C would read what is before a zero.
    """
    if device is None:
        return None
    try:
        name = device.encode()
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise InvalidArgument(f"{device!r:.100} is no device's name")
    return name


def default_device() -> str:
    """Return the device used when none is named.

    What HIPPOGRIFF_DEVICE says, else the GPU that is current on this thread, else the first one,
    else ``"host"``.

    Raises
    ------
    Forked
        In a process that was forked after CUDA was used, where it does not work.
    """
    named = os.environ.get("HIPPOGRIFF_DEVICE")
    if named:
        return device_name(named if named != "cuda" else 0) or "host"
    driver = _driver()
    if driver is None:
        return "host"
    index = ctypes.c_int()
    current = driver.cuCtxGetDevice(ctypes.byref(index)) == 0
    return f"cuda:{index.value if current else 0}"


@functools.cache
def _driver() -> ctypes.CDLL | None:
    """Load CUDA's driver; None unless it has devices. It makes no context, unlike `devices`."""
    if runtime.parent_used_cuda:
        raise Forked(_FORKED)
    count = ctypes.c_int()
    library = os.environ.get("HIPPOGRIFF_CUDA_DRIVER", "libcuda.so.1")
    if not library:
        return None
    try:
        driver = ctypes.CDLL(library)
    except (OSError, ValueError):  # of a name that is no UTF-8
        return None
    status = driver.cuInit(0)
    if status == _CUDA_NOT_INITIALIZED:
        raise Forked(_FORKED)  # Somebody else used CUDA in the parent.
    usable = status == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return driver if usable and count.value else None


def memory_free_bytes(device: str) -> int:
    """Tell how much memory a device that is in use has free."""
    for facts in stats()["devices"]:
        if facts["name"] == device:
            return int(facts["memory_free_bytes"])
    raise InvalidArgument(f"device {device} is not in use", object=device)


def info(path: PathLike = ".") -> dict[str, Any]:
    """Tell devices, drives, and what each route can do for files below `path`, and why not.

    Thread-safe. Makes no context on a GPU: ``needs_context`` of a device says what is unknown so.

    Parameters
    ----------
    path : path-like
        A file or folder.

    Returns
    -------
    dict
        As ``hippogriff info --json`` prints it; sizes in bytes. ``memory_free_bytes`` of a device
        is None where neither a context nor NVML tells.

    Raises
    ------
    IoError
        When `path` cannot be looked at.
    """
    result: dict[str, Any] = _take_json(lib.hippogriff_info, encode_path(path))
    return result


def devices() -> list[dict[str, Any]]:
    """List the devices there are, GPUs first; sizes in bytes. Thread-safe."""
    result: list[dict[str, Any]] = info()["devices"]
    return sorted(result, key=lambda device: not str(device["name"]).startswith("cuda:"))


def explain(
    path: PathLike,
    *,
    offset: int = 0,
    size: int | None = None,
    direction: str = "send",
    device: object = None,
) -> dict[str, Any]:
    """Every route's predicted seconds for an extent, or why it cannot, and the choice.

    Thread-safe; nothing is moved.

    Parameters
    ----------
    path : path-like
        The file.
    offset, size : int
        The extent in bytes; without a size the rest of the file.
    direction : {"send", "recv"}
        From the file to the device, or back.
    device : str, optional
        The device; the default one if not given.

    Raises
    ------
    InvalidArgument, IoError
        When there is no such file, extent or device.
    """
    if direction not in _DIRECTIONS:
        raise InvalidArgument(f"direction is {direction!r}; it must be 'send' or 'recv'")
    check_extent(offset, size)
    name = encode_device(device_name(device))
    result: dict[str, Any] = _take_json(
        lib.hippogriff_explain, encode_path(path), offset, size or 0, _DIRECTIONS[direction], name
    )
    return result


def check_extent(offset: int, size: int | None) -> None:
    """Refuse what C would take for a huge unsigned number, or not at all."""
    for name, number in (("offset", offset), ("size", size)):
        if type(number) is not int and number is not None and not hasattr(number, "__index__"):
            raise InvalidArgument(f"{name} is {number!r}; it must be a whole number")
    if offset < 0:
        raise InvalidArgument(f"offset is {offset}; it must not be negative")
    if size is not None and size < 0:
        raise InvalidArgument(f"size is {size}; it must not be negative")
    if offset + (size or 0) >= 2**63:
        raise InvalidArgument(f"offset {offset} and size {size} are beyond any file")


def stats() -> dict[str, Any]:
    """Return counters since the runtime started: transfers, bytes, seconds, memory. Thread-safe."""
    result: dict[str, Any] = _take_json(lib.hippogriff_stats)
    return result


def calibrate(
    directory: PathLike = ".",
    *,
    device: object = None,
    progress: Callable[[str, float], object] | None = None,
) -> dict[str, Any]:
    """Measure the device's link and the drive below `directory`, and keep the result.

    Takes about 10 s and up to 1 GiB of temporary file. Thread-safe.

    Parameters
    ----------
    directory : path-like
        A folder on the drive to measure.
    device : str, optional
        The device; the default one if not given.
    progress : callable, optional
        Called on this thread with the step's name and the fraction done, from 0 to 1.

    Raises
    ------
    IoError, DeviceError
        When something cannot be measured, or the result could not be kept, which is said at once.
        What `progress` raises stops the calibration and comes out, as does KeyboardInterrupt.
    InvalidArgument
        When there is something else in the place of the calibration file.
    """
    _expect_room_for_calibration(info("/")["calibration_file"])
    measuring = _Measuring(encode_path(directory), encode_device(device_name(device)))
    try:
        for step, fraction in measuring.steps():
            if progress is not None:
                progress(step, fraction)
    except BaseException:
        measuring.stop()
        raise
    return measuring.result()


def _expect_room_for_calibration(file: str) -> None:
    """Refuse what the library would refuse when all has been measured."""
    import tempfile

    if not file:
        return  # None is kept.
    place = Path(file)
    try:
        if place.exists() and not _is_own_file(place.stat()):
            raise InvalidArgument(
                f"save a calibration {file}: it is not a file of this user's; "
                "HIPPOGRIFF_CALIBRATION names another, or none at all when it is empty",
                operation="save a calibration",
                object=file,
            )
        folder = place.resolve().parent
        while not folder.exists():  # it is made
            folder = folder.parent
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise io_error("save a calibration", file, error) from None


def _is_own_file(facts: os.stat_result) -> bool:
    return stat.S_ISREG(facts.st_mode) and facts.st_uid in {0, os.geteuid()}


class _Measuring:
    """Calibrates on a thread of its own: C calls back there, where no signal handler can raise."""

    def __init__(self, directory: bytes, device: bytes | None) -> None:
        self._arguments = device, directory
        self._steps: queue.SimpleQueue[tuple[str, float] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._result: dict[str, Any] = {}
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="hippogriff-calibrate", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        def report(_context: int | None, step: bytes | None, fraction: float) -> int:
            self._steps.put(((step or b"").decode(errors="replace"), fraction))
            return int(self._stopping.is_set())

        callback = _abi.CalibrateCallback(report)
        try:
            self._result = _take_json(lib.hippogriff_calibrate, *self._arguments, callback, None)
        except Exception as error:
            self._error = error
        self._steps.put(None)

    def steps(self) -> Iterator[tuple[str, float]]:
        """Give each step and the fraction done, until it is over."""
        while (step := self._steps.get()) is not None:
            yield step

    def stop(self) -> None:
        """Cancel, and wait until nothing is left of it."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def result(self) -> dict[str, Any]:
        if self._error is not None:
            raise self._error
        return self._result
