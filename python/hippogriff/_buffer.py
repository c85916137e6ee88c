"""Host memory of other objects, by the buffer protocol."""

from __future__ import annotations

import ctypes
from typing import Any

_PYBUF_SIMPLE, _PYBUF_WRITABLE = 0, 1


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


class Buffer:
    """C-contiguous host memory by the buffer protocol, held until this object is gone."""

    __slots__ = ("_held", "_view", "address", "size_bytes")

    def __init__(self, source: object, *, writable: bool) -> None:
        self._view = _PyBuffer()
        self._held = False
        _get_buffer(source, self._view, _PYBUF_WRITABLE if writable else _PYBUF_SIMPLE)
        self._held = True
        self.address: int = self._view.buf or 0
        self.size_bytes: int = self._view.len

    def __del__(self, _release: Any = _release_buffer) -> None:
        if getattr(self, "_held", False):
            _release(self._view)
