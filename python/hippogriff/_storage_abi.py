"""The C interface of array.h for ctypes. A test compares this file with the header."""

from __future__ import annotations

import ctypes
from typing import Any

from hippogriff._abi import Interrupted


class ArrayOptions(ctypes.Structure):
    """`hippogriff_array_options`; sizes in bytes, times in milliseconds."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("path", ctypes.c_char_p),
        ("memory", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("mode", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("cache_size", ctypes.c_uint64),
        ("line_size", ctypes.c_uint32),
        ("queue_count", ctypes.c_uint32),
        ("queue_depth", ctypes.c_uint32),
        ("wait_limit_ms", ctypes.c_int64),
        ("paths", ctypes.POINTER(ctypes.c_char_p)),
        ("path_count", ctypes.c_size_t),
        ("layout", ctypes.c_char_p),
        ("stripe_size", ctypes.c_uint64),
        ("overlay_folder", ctypes.c_char_p),
        ("io", ctypes.c_char_p),
        ("load", ctypes.c_char_p),
        ("interrupted", Interrupted),
        ("context", ctypes.c_void_p),
    )


class ArrayStatistics(ctypes.Structure):
    """`hippogriff_array_statistics`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("misses", ctypes.c_uint64),
        ("overwritten", ctypes.c_uint64),
        ("written_back", ctypes.c_uint64),
        ("reads", ctypes.c_uint64),
        ("read_bytes", ctypes.c_uint64),
        ("writes", ctypes.c_uint64),
        ("written_bytes", ctypes.c_uint64),
        ("failures", ctypes.c_uint64),
        ("metadata_bytes", ctypes.c_uint64),
        ("other_copies", ctypes.c_uint64),
        ("accesses", ctypes.c_uint64),
        ("hits", ctypes.c_uint64),
        ("in_flight", ctypes.c_uint64),
        ("loaded_bytes", ctypes.c_uint64),
        ("zero_copy_bytes", ctypes.c_uint64),
        ("hits_counted", ctypes.c_uint64),
    )


class DeviceRows(ctypes.Structure):
    """`hippogriff_device_rows`; addresses are a GPU's."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("numbers", ctypes.c_uint64),
        ("memory", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("row_size", ctypes.c_uint64),
        ("number_size", ctypes.c_uint32),
        ("number_signed", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
    )


def device_rows() -> DeviceRows:
    """Return one to be filled in."""
    return DeviceRows(struct_size=ctypes.sizeof(DeviceRows))


_handle = ctypes.c_void_p
_void_p = ctypes.c_void_p
_int = ctypes.c_int
_size = ctypes.c_size_t
_offset = ctypes.c_uint64

# Name: (result, arguments).
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "hippogriff_array_open": (_int, [ctypes.POINTER(ArrayOptions), ctypes.POINTER(_handle)]),
    "hippogriff_array_close": (_int, [_handle]),
    "hippogriff_array_size": (_int, [_handle, ctypes.POINTER(ctypes.c_uint64)]),
    "hippogriff_array_view": (_int, [_handle, _void_p, _size, ctypes.c_uint32]),
    "hippogriff_array_element_view": (
        _int,
        [_handle, _size, _void_p, ctypes.POINTER(_size), ctypes.POINTER(ctypes.c_uint32)],
    ),
    "hippogriff_array_view_address": (_int, [_handle, _size, ctypes.POINTER(ctypes.c_uint64)]),
    "hippogriff_array_read": (_int, [_handle, _offset, _void_p, _size]),
    "hippogriff_array_write": (_int, [_handle, _offset, _void_p, _size]),
    "hippogriff_array_gather": (_int, [_handle, _void_p, _size, _size, _void_p]),
    "hippogriff_array_scatter": (_int, [_handle, _void_p, _size, _size, _void_p]),
    "hippogriff_array_gather_async": (_int, [_handle, ctypes.POINTER(DeviceRows)]),
    "hippogriff_array_scatter_async": (_int, [_handle, ctypes.POINTER(DeviceRows)]),
    "hippogriff_array_prefetch": (_int, [_handle, _offset, _offset]),
    "hippogriff_array_prefetch_rows": (_int, [_handle, _void_p, _size, _size]),
    "hippogriff_array_prefetch_async": (_int, [_handle, ctypes.POINTER(DeviceRows)]),
    "hippogriff_array_zero_copy_async": (_int, [_handle, ctypes.POINTER(DeviceRows)]),
    "hippogriff_array_wait": (_int, [_handle]),
    "hippogriff_array_after": (_int, [_handle, _void_p]),
    "hippogriff_array_flush": (_int, [_handle]),
    "hippogriff_array_sync": (_int, [_handle]),
    "hippogriff_array_check": (_int, [_handle]),
    "hippogriff_array_clear": (_int, [_handle]),
    "hippogriff_array_explain": (_int, [_handle, ctypes.POINTER(_void_p)]),
    "hippogriff_array_get_statistics": (_int, [_handle, ctypes.POINTER(ArrayStatistics)]),
}


def declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of every function."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
