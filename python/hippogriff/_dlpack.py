"""DLPack both ways, by ctypes: capsules out of our memory, and the tensor inside a capsule."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from hippogriff._dtypes import DType

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_FLAG_READ_ONLY = 1
_VERSION = (1, 0)
_NAME = b"dltensor"
_NAME_VERSIONED = b"dltensor_versioned"


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_python = ctypes.pythonapi
_capsule_new = _python.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)


class _Export:
    """What must live until the consumer of a capsule calls its deleter."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self.capsule: object = None


_exports: dict[int, _Export] = {}  # by the address of the managed tensor


# Consumers may call it while the interpreter ends: it must outlive this module. And it is no Python
# function, into which a signal could raise.
_deleter = _Deleter(_exports.__delitem__)
_python.Py_IncRef(ctypes.py_object(_deleter))

# For its count of references: that of a capsule which only its export holds.
_lonely = _Export(())
_lonely.capsule = object()


def sweep() -> None:
    """Let go of the memory of capsules that were dropped without a consumer.

    No capsule of ours has a destructor: Python code must not run where a capsule is dropped while
    an exception is on its way, which it would destroy.
    """
    alone = sys.getrefcount(_lonely.capsule)
    for address, export in list(_exports.items()):
        named = (_is_valid(export.capsule, name) for name in (_NAME, _NAME_VERSIONED))
        if sys.getrefcount(export.capsule) <= alone and any(named):
            _exports.pop(address, None)


class Exported(NamedTuple):
    """What a capsule describes. `owner` keeps the memory alive."""

    address: int
    device: tuple[int, int]
    dtype: DType
    shape: tuple[int, ...]
    owner: object


def make_capsule(exported: Exported, *, versioned: bool) -> object:
    """Make a capsule over memory that stays until the capsule or its consumer is done with it."""
    managed = _ManagedVersioned() if versioned else _Managed()
    ndim = len(exported.shape)
    shape = (ctypes.c_int64 * ndim)(*exported.shape)
    strides = (ctypes.c_int64 * ndim)()
    stride = 1
    for axis in reversed(range(ndim)):
        strides[axis] = stride
        stride *= exported.shape[axis]
    tensor = managed.tensor
    tensor.data = exported.address or None
    tensor.device = _Device(*exported.device)
    tensor.ndim = ndim
    tensor.dtype = _DataType(exported.dtype.dlpack_code, exported.dtype.itemsize_bytes * 8, 1)
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _deleter
    if isinstance(managed, _ManagedVersioned):
        managed.major, managed.minor = _VERSION
    sweep()
    address = ctypes.addressof(managed)
    export = _Export((managed, shape, strides, exported.owner))
    export.capsule = _capsule_new(address, _NAME_VERSIONED if versioned else _NAME, None)
    _exports[address] = export
    return export.capsule


def export_count() -> int:
    """Return how many capsules and tensors made from them are alive."""
    sweep()
    return len(_exports)


class Imported(NamedTuple):
    """The tensor in somebody's capsule. `strides` are in elements, None when contiguous."""

    address: int
    device: tuple[int, int]
    itemsize_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    read_only: bool
    capsule: object


def open_capsule(capsule: object) -> Imported:
    """Read a capsule without taking it: the memory stays while the capsule does.

    Raises
    ------
    BufferError
        When it is no DLPack capsule, was taken by another consumer, or is of a future version.
    """
    read_only = False
    if _is_valid(capsule, _NAME_VERSIONED):
        versioned = _ManagedVersioned.from_address(_get_pointer(capsule, _NAME_VERSIONED))
        if versioned.major != _VERSION[0]:
            raise BufferError(f"DLPack version {versioned.major} is not supported")
        read_only = bool(versioned.flags & _FLAG_READ_ONLY)
        tensor = versioned.tensor
    elif _is_valid(capsule, _NAME):
        tensor = _Managed.from_address(_get_pointer(capsule, _NAME)).tensor
    else:
        raise BufferError("not a DLPack capsule, or one that was already consumed")
    ndim = tensor.ndim
    return Imported(
        address=(tensor.data or 0) + tensor.byte_offset,
        device=(tensor.device.device_type, tensor.device.device_id),
        itemsize_bytes=(tensor.dtype.bits * tensor.dtype.lanes + 7) // 8,
        shape=tuple(tensor.shape[:ndim]) if ndim else (),
        strides=tuple(tensor.strides[:ndim]) if ndim and tensor.strides else None,
        read_only=read_only,
        capsule=capsule,
    )
