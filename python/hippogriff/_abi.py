"""The C interface of hippogriff.h for ctypes: values, structures, functions.

ctypes gives the interpreter lock back during every call. A test compares this file with the header.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum, IntFlag
from typing import Any

VERSION = ("0", "1", "0")
NO_OFFSET = 2**64 - 1


class Status(IntEnum):
    """Why a call failed, as `hippogriff_status` counts it."""

    OK = 0
    INVALID_ARGUMENT = 1
    NOT_INITIALIZED = 2
    FORKED = 3
    BUSY = 4
    UNSUPPORTED = 5
    IO_ERROR = 6
    SHORT_FILE = 7
    DEVICE_ERROR = 8
    OUT_OF_DEVICE_MEMORY = 9
    OUT_OF_HOST_MEMORY = 10
    CANCELLED = 11
    TIMED_OUT = 12
    INTERNAL = 13


class Route(IntEnum):
    """Ways to carry out a transfer, as `hippogriff_route` counts them."""

    AUTO = 0
    DIRECT = 1
    MAPPED = 2
    PIPELINED = 3
    PARKED = 4


class Flags(IntFlag):
    """Bits of `hippogriff_options.flags`."""

    AFTER_STREAM = 1
    BEFORE_STREAM = 2
    HOST_MEMORY = 4
    DURABLE = 8
    FREE_SOURCE = 16
    REPLACE = 32


class ReserveFlags(IntFlag):
    """Bits of `hippogriff_reserve_options.flags`."""

    RESERVE_AT_FIRST_USE = 1


class Options(ctypes.Structure):
    """`hippogriff_options`; times in milliseconds."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("device", ctypes.c_char_p),
        ("route", ctypes.c_int),
        ("flags", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("memory_timeout_ms", ctypes.c_int64),
        ("host_memory", ctypes.c_uint64),
        ("checksums", ctypes.c_void_p),
        ("checksum_count", ctypes.c_uint64),
        ("checksum_block_bytes", ctypes.c_uint64),
    )


class Progress(ctypes.Structure):
    """`hippogriff_progress`."""

    _fields_ = (
        ("bytes_done", ctypes.c_uint64),
        ("bytes_total", ctypes.c_uint64),
        ("bytes_parked", ctypes.c_uint64),
        ("seconds", ctypes.c_double),
        ("finished", ctypes.c_int32),
        ("released", ctypes.c_int32),
    )


class Range(ctypes.Structure):
    """`hippogriff_range`, in bytes of the file."""

    _fields_ = (("offset", ctypes.c_uint64), ("size", ctypes.c_uint64))


class Segment(ctypes.Structure):
    """`hippogriff_segment`, in bytes."""

    _fields_ = (
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("memory", ctypes.c_void_p),
    )


class Memory(ctypes.Structure):
    """`hippogriff_memory`, in bytes."""

    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_uint64))


class TensorSearch(ctypes.Structure):
    """`hippogriff_tensor_search`, in bytes."""

    _fields_ = (
        ("text", ctypes.c_char_p),
        ("text_bytes", ctypes.c_uint64),
        ("position", ctypes.c_uint64),
        ("data_begin", ctypes.c_uint64),
    )


class TensorEntry(ctypes.Structure):
    """`hippogriff_tensor_entry`, in bytes."""

    _fields_ = (
        ("name_begin", ctypes.c_uint64),
        ("name_end", ctypes.c_uint64),
        ("kind_begin", ctypes.c_uint64),
        ("data_begin", ctypes.c_uint64),
        ("data_end", ctypes.c_uint64),
    )


class Error(ctypes.Structure):
    """`hippogriff_error`."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("message", ctypes.c_char_p),
        ("operation", ctypes.c_char_p),
        ("object", ctypes.c_char_p),
        ("offset", ctypes.c_uint64),
        ("errno_value", ctypes.c_int32),
        ("device_status", ctypes.c_int32),
    )


Interrupted = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class ReserveOptions(ctypes.Structure):
    """`hippogriff_reserve_options`; times in milliseconds."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("device", ctypes.c_char_p),
        ("timeout_ms", ctypes.c_int64),
        ("priority", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("interrupted", Interrupted),
        ("context", ctypes.c_void_p),
    )


CalibrateCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double
)
StreamFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_void_p = ctypes.c_void_p
_void_pp = ctypes.POINTER(ctypes.c_void_p)
_size = ctypes.c_size_t
_string = ctypes.c_char_p
_int = ctypes.c_int
_ms = ctypes.c_int64
_options_p = ctypes.POINTER(Options)
_error_p = ctypes.POINTER(Error)

# Name: (result, arguments). A `char** json` is declared as `void**`, because the string it points
# to is given back with hippogriff_free_string.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "hippogriff_init": (_int, []),
    "hippogriff_send": (_size, [_int, _void_pp, _size, _size]),
    "hippogriff_recv": (_size, [_int, _void_p, _size, _size]),
    "hippogriff_deinit": (_int, []),
    "gullfoss_init": (_int, []),
    "gullfoss_send": (_size, [_string, _void_pp, _size, _size]),
    "gullfoss_recv": (_size, [_string, _void_p, _size, _size]),
    "gullfoss_deinit": (_int, []),
    "hippogriff_send_async": (_int, [_int, _void_pp, _size, _size, _options_p, _void_pp]),
    "hippogriff_recv_async": (_int, [_int, _void_p, _size, _size, _options_p, _void_pp]),
    "hippogriff_sendv_async": (
        _int,
        [_int, ctypes.POINTER(Segment), _size, _options_p, _void_pp],
    ),
    "hippogriff_send_path_async": (_int, [_string, _void_pp, _size, _size, _options_p, _void_pp]),
    "hippogriff_recv_path_async": (_int, [_string, _void_p, _size, _size, _options_p, _void_pp]),
    "hippogriff_prefetch": (_int, [_int, _size, _size]),
    "hippogriff_prefetch_path": (_int, [_string, _size, _size]),
    "hippogriff_wait": (_int, [_void_p, _ms]),
    "hippogriff_wait_released": (_int, [_void_p, _ms]),
    "hippogriff_cancel": (_int, [_void_p]),
    "hippogriff_get_progress": (_int, [_void_p, ctypes.POINTER(Progress)]),
    "hippogriff_address": (_void_p, [_void_p]),
    "hippogriff_get_error": (_int, [_void_p, _error_p]),
    "hippogriff_get_missing": (
        _int,
        [_void_p, ctypes.POINTER(Range), _size, ctypes.POINTER(ctypes.c_size_t)],
    ),
    "hippogriff_get_report": (_int, [_void_p, _void_pp]),
    "hippogriff_get_route": (_int, [_void_p, _void_pp]),
    "hippogriff_get_fd": (_int, [_void_p, ctypes.POINTER(ctypes.c_int)]),
    "hippogriff_release": (None, [_void_p]),
    "hippogriff_malloc": (_int, [_string, _size, _void_pp]),
    "hippogriff_free": (_int, [_void_p]),
    "hippogriff_copy_to_device": (_int, [_void_p, _void_p, _size]),
    "hippogriff_copy_to_host": (_int, [_void_p, _void_p, _size]),
    "hippogriff_checksum": (
        _int,
        [
            ctypes.POINTER(Memory),
            _size,
            _size,
            _options_p,
            ctypes.POINTER(ctypes.c_uint64),
            _size,
        ],
    ),
    "hippogriff_find_tensors": (
        _int,
        [
            ctypes.POINTER(TensorSearch),
            ctypes.POINTER(TensorEntry),
            _size,
            ctypes.POINTER(ctypes.c_size_t),
        ],
    ),
    "hippogriff_stream_create": (_int, [_string, _void_pp]),
    "hippogriff_stream_launch": (_int, [_string, _void_p, StreamFunction, _void_p]),
    "hippogriff_stream_synchronize": (_int, [_string, _void_p, _ms]),
    "hippogriff_stream_destroy": (_int, [_string, _void_p]),
    "hippogriff_reserve": (_int, [_size, ctypes.POINTER(ReserveOptions), _void_pp]),
    "hippogriff_claim": (_int, [ctypes.POINTER(ReserveOptions)]),
    "hippogriff_reservation_resize": (
        _int,
        [_void_p, _size, ctypes.POINTER(ReserveOptions)],
    ),
    "hippogriff_reservation_get": (
        _int,
        [_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_char_p)],
    ),
    "hippogriff_reservation_release": (_int, [_void_p]),
    "hippogriff_node_status": (_int, [_void_pp]),
    "hippogriff_node_set_policy": (_int, [_string, ctypes.c_uint32, _ms]),
    "hippogriff_noded_run": (_int, [_string, _int]),
    "hippogriff_node_hand_over": (_int, [_void_pp]),
    "hippogriff_last_error": (None, [_error_p]),
    "hippogriff_status_name": (_string, [_int]),
    "hippogriff_route_name": (_string, [_int]),
    "hippogriff_version": (_string, []),
    "hippogriff_info": (_int, [_string, _void_pp]),
    "hippogriff_explain": (_int, [_string, _size, _size, _int, _string, _void_pp]),
    "hippogriff_stats": (_int, [_void_pp]),
    "hippogriff_notices": (_int, [_void_pp]),
    "hippogriff_calibrate": (_int, [_string, _string, CalibrateCallback, _void_p, _void_pp]),
    "hippogriff_free_string": (None, [_void_p]),
}


def declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of every function; AttributeError names one that is not there."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
