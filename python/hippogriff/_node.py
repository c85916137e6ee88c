"""Sharing devices with the other programs of this machine: reservations of device memory."""

from __future__ import annotations

import ctypes
import operator
import os
from typing import TYPE_CHECKING, Any

from hippogriff import _abi
from hippogriff._interrupts import interruptible, let_interrupt
from hippogriff._library import lib
from hippogriff._runtime import device_name, encode_device, take_json
from hippogriff._sizes import as_bytes
from hippogriff.errors import InvalidArgument, check

if TYPE_CHECKING:
    from types import TracebackType

_MS = 1000.0
TIMEOUT_SECONDS_MAX = 10.0**8
_AT_FIRST_USE = "HIPPOGRIFF_WAIT_MS" in os.environ
_claimed: set[str | None] = set()


class Reservation:
    """An amount of a device's memory promised to this process, and to nobody else.

    It allocates nothing: allocate by whatever means once it is there. It ends with `release`, at
    the end of a ``with`` block, and with the process, however that ends. Thread-safe. A forked
    child cannot use its parent's.
    """

    def __init__(self, handle: ctypes.c_void_p, device: str) -> None:
        self._handle: ctypes.c_void_p | None = handle
        self._device = device

    def __reduce__(self) -> Any:
        raise TypeError("cannot copy or pickle a reservation: make another one")

    @property
    def device(self) -> str:
        """The device's name, for example ``"cuda:0"``."""
        return self._device

    @property
    def size_bytes(self) -> int:
        """How much it is; 0 once released."""
        if self._handle is None:
            return 0
        size = ctypes.c_size_t()
        check(lib.hippogriff_reservation_get(self._handle, ctypes.byref(size), None))
        return size.value

    def resize(self, size: int | str, *, timeout: float | None = 0) -> None:
        """Grow or shrink it to `size`.

        Parameters
        ----------
        size : int or str
            In bytes, or like ``"6GiB"``.
        timeout : float, optional
            How many seconds to wait for memory; None: as long as it takes. Growing comes before
            everybody who holds nothing. Ctrl-C ends the wait.

        Raises
        ------
        Busy, TimedOut
            When the memory is not free. What was reserved stays so.
        OutOfDeviceMemory
            When the device is smaller than that, or when all who hold its memory wait for more.
        InvalidArgument
            When it has been released.
        """
        if self._handle is None:
            raise InvalidArgument("resize a reservation: it has been released")
        with interruptible() as raised:
            options = _options(raised, timeout)
            status = lib.hippogriff_reservation_resize(
                self._handle, _size_bytes(size), ctypes.byref(options)
            )
        if raised:
            raise raised[0]
        check(status)

    def release(self) -> None:
        """Give it back. Doing so again does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            check(lib.hippogriff_reservation_release(handle))

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Reservation of {self.size_bytes} bytes on {self._device}>"


def reserve(
    size: int | str,
    *,
    device: object = None,
    timeout: float | None = None,
    priority: int = 0,
) -> Reservation:
    """Wait until so much of a device's memory is free, and have it promised to this process.

    Every program that reserves what it uses, by this or by ``hippogriff run``, gets what it was
    promised. In a command started by ``hippogriff run`` it comes out of that command's memory. No
    CUDA context is made. Thread-safe; Ctrl-C ends the wait.

    Parameters
    ----------
    size : int or str
        In bytes, or like ``"6GiB"``.
    device : str, int or torch.device, optional
        The default device if not given; also a GPU's UUID.
    timeout : float, optional
        How many seconds to wait: 0: not at all; None: as long as it takes.
    priority : int
        Larger is served sooner, under the priority policies.

    Returns
    -------
    Reservation
        To be used in a ``with`` statement, or released.

    Raises
    ------
    Busy
        When the memory is not free and `timeout` is 0.
    TimedOut
        When it was not free in time.
    OutOfDeviceMemory
        At once, when the device is smaller than that; while it waits, when contexts of those that
        wait leave each other too little and this one asks most.

    Examples
    --------
    >>> import hippogriff
    >>> with hippogriff.reserve("64MiB", timeout=60) as reservation:
    ...     print(reservation.size_bytes >> 20)
    64
    """
    return _reserve(size, device, timeout, priority)


def defer(size: int | str, *, device: object = None, priority: int = 0) -> Reservation:
    """Leave a reservation for its first use, by the program that this one hands over to.

    Nothing is promised and waited for until that program, or one that it starts, first needs memory
    of the device; `hand_over` says how they find it. Its size here is 0.

    Raises
    ------
    OutOfDeviceMemory
        When the device is smaller than that.
    """
    flags = _abi.ReserveFlags.RESERVE_AT_FIRST_USE
    return _reserve(size, device, 0, priority, flags)


def _reserve(
    size: int | str, device: object, timeout: float | None, priority: int, flags: int = 0
) -> Reservation:
    number = _whole("priority", priority, -(2**31), 2**31 - 1)
    handle = ctypes.c_void_p()
    with interruptible() as raised:
        options = _options(raised, timeout, device=encode_device(device_name(device)))
        options.priority = number
        options.flags = flags
        status = lib.hippogriff_reserve(
            _size_bytes(size), ctypes.byref(options), ctypes.byref(handle)
        )
    if raised:
        if status == 0:
            lib.hippogriff_reservation_release(handle)
        raise raised[0]
    check(status)
    name = ctypes.c_char_p()
    check(lib.hippogriff_reservation_get(handle, None, ctypes.byref(name)))
    return Reservation(handle, (name.value or b"").decode())


def claim(device: object = None) -> None:
    """Wait for what ``hippogriff run --wait first-use`` left for this command, if it did.

    Whatever allocates on the device waits by itself; this wait ends with Ctrl-C. Thread-safe.

    Raises
    ------
    OutOfDeviceMemory
        When it was not free in time.
    """
    if not _AT_FIRST_USE:
        return
    name = device_name(device)
    if name in _claimed:
        return
    with interruptible() as raised:
        options = _options(raised, None, device=encode_device(name))
        status = lib.hippogriff_claim(ctypes.byref(options))
    if raised:
        raise raised[0]
    check(status)
    _claimed.add(name)


def _options(
    raised: list[BaseException], timeout: float | None, **members: Any
) -> _abi.ReserveOptions:
    """Return options of a wait that ends once something was raised."""
    options = _abi.ReserveOptions(
        struct_size=ctypes.sizeof(_abi.ReserveOptions), timeout_ms=_timeout_ms(timeout), **members
    )
    let_interrupt(options, raised)
    return options


def node_status() -> dict[str, Any]:
    """Tell what all programs of this machine have reserved, use and wait for.

    Returns
    -------
    dict
        ``devices`` (sizes in bytes: ``memory_bytes``, ``promised_bytes``, ``outside_bytes`` used by
        programs that take no part or kept for contexts of those that wait, ``free_bytes`` to be
        promised, ``used_bytes`` really), ``gpus`` as NVML sees them, ``reservations``, ``clients``,
        ``policy``, ``transfers`` in flight, and ``arrays`` in storage that are open: counts of
        lines and bytes, which came about within ``seconds``; where ``hits_counted`` is false
        kernels use one on a GPU that do not count, so that ``hits`` are 0.
    """
    text = ctypes.c_void_p()
    check(lib.hippogriff_node_status(ctypes.byref(text)))
    status: dict[str, Any] = take_json(text)
    return status


def set_policy(policy: str, *, overtakes: int = 16, seconds: float = 30.0) -> None:
    """Choose who is served next, for all programs of this machine.

    Parameters
    ----------
    policy : str
        ``fifo``, ``mmu`` (whoever fits), ``priority-fifo``, ``priority-mmu`` or ``aging-mmu``.
    overtakes, seconds
        aging-mmu: how many others may be served before a request that came first, and how long.
    """
    count = _whole("overtakes", overtakes, 0, 2**32 - 1)
    milliseconds = _milliseconds("seconds", seconds)
    check(lib.hippogriff_node_set_policy(_policy_name(policy), count, milliseconds))


def hand_over() -> str:
    """Keep this process's reservations when it goes on as another program (exec).

    Behind a server it has to stay, and start that program instead.

    Returns
    -------
    str
        What ``HIPPOGRIFF_RESERVATION`` has to be for that program, so that it uses them.
    """
    text = ctypes.c_void_p()
    check(lib.hippogriff_node_hand_over(ctypes.byref(text)))
    try:
        return ctypes.string_at(text.value or 0).decode()
    finally:
        lib.hippogriff_free_string(text)


def _size_bytes(size: int | str) -> int:
    size_bytes = as_bytes("the size to reserve", size)
    if size_bytes <= 0:
        raise InvalidArgument(f"the size to reserve is {size!r:.100}; 1 byte is the least")
    if size_bytes >= 2**63:
        raise InvalidArgument(
            f"the size to reserve is {size!r:.100}, which is more than any device has"
        )
    return size_bytes


def _whole(name: str, value: int, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is {value!r:.100}, which is no whole number") from None
    if isinstance(value, bool) or not least <= number <= most:
        raise InvalidArgument(f"{name} is {value!r:.100}, and may be {least} to {most}")
    return number


def _milliseconds(name: str, seconds: float) -> int:
    try:
        possible = bool(0 <= seconds <= TIMEOUT_SECONDS_MAX)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} is {seconds!r:.100}, which is no number") from None
    if not possible:
        raise InvalidArgument(
            f"{name} is {seconds!r:.100}, and may be 0 to {TIMEOUT_SECONDS_MAX:.0f}"
        )
    return int(seconds * _MS)


def _policy_name(policy: str) -> bytes:
    if not isinstance(policy, str) or not policy.isascii() or "\0" in policy:
        raise InvalidArgument(f"{policy!r:.100} is no policy")
    return policy.encode()


def _timeout_ms(timeout: float | None) -> int:
    if timeout is None:
        return -1
    try:
        possible = bool(timeout >= 0)
    except (TypeError, ValueError):  # a string, an array
        possible = False
    if not possible:
        raise InvalidArgument(f"reserve: a timeout of {timeout!r:.100} s makes no sense")
    return int(min(timeout, TIMEOUT_SECONDS_MAX) * _MS)
