"""`hippogriff.open`: files for transfers of their parts, and files that are an array."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, overload

from hippogriff._array_file import ArrayFile
from hippogriff._dtypes import as_lengths, fit_shape, known_size_bytes
from hippogriff._elements import find_element
from hippogriff._file import File, expect_bytes
from hippogriff._frameworks import make_framework
from hippogriff._host_memory import host_memory_bytes
from hippogriff._runtime import check_extent
from hippogriff._slices import Extent
from hippogriff.errors import InvalidArgument, io_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hippogriff._elements import Element
    from hippogriff._report import LoadReport
    from hippogriff._runtime import PathLike


@overload
def open_file(path: PathLike, mode: str = "r") -> File: ...


@overload
def open_file(
    path: PathLike,
    mode: str = "r",
    *,
    dtype: Any,
    shape: int | Sequence[int] | None = None,
    offset: int = 0,
    device: object = "cpu",
    framework: str = "np",
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> ArrayFile: ...


def open_file(
    path: PathLike,
    mode: str = "r",
    *,
    dtype: Any = None,
    shape: int | Sequence[int] | None = None,
    offset: int = 0,
    device: object = "cpu",
    framework: str = "np",
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> File | ArrayFile:
    """Open a file for transfers of its parts; with an element type, as an array of numbers.

    Parameters
    ----------
    path : path-like
        The file.
    mode : {"r", "r+", "w"}
        To read; to read and write in place; to create or empty it, then both.
    dtype : dtype-like, optional
        The element type: a name, or a NumPy or torch dtype.
    shape : int or sequence of int, optional
        With `dtype`: the lengths in elements, one of which may be -1; else all of the file in one
        dimension. Mode ``"w"`` needs it, and gives the file that size.
    offset : int
        With `dtype`: where the first element is, in bytes.
    device, framework, host_memory, explain, progress
        With `dtype`: as in `hippogriff.arrays.load_npy`, for each part that is loaded or written.

    Returns
    -------
    File or ArrayFile
        A context manager: without an element type a `File`, with one an `ArrayFile`.

    Raises
    ------
    IoError
        When it cannot be opened; also FileNotFoundError and the like.
    InvalidArgument
        When there is no such mode or element type, the file does not hold the shape or is none (a
        pipe, a folder), or the arguments of an array come without an element type.
    Unsupported
        When the framework is not installed.

    Examples
    --------
    >>> import hippogriff
    >>> with hippogriff.open("weights.bin", dtype="float32", shape=(-1, 4)) as weights:
    ...     batch = weights[10:20]
    """
    if dtype is None:
        _expect_usual(shape, offset, device, framework, [host_memory, explain or None, progress])
        return File(path, mode)
    element = find_element(dtype)
    size_bytes = known_size_bytes(shape, element.itemsize_bytes)
    check_extent(offset, size_bytes)
    if mode == "w" and size_bytes is None:
        raise InvalidArgument(f"a new file needs a whole shape, not {shape}")
    budget = host_memory_bytes(host_memory)
    maker = make_framework(framework, device)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(File(path, mode))
        if mode == "w" and size_bytes is not None:
            _lengthen(file, offset + size_bytes)
        lengths = _fitting(file, shape, element, offset)
        stack.pop_all()
    extent = Extent(offset, lengths, element.dtype, element.itemsize_bytes)
    return ArrayFile(file, extent, maker, host_memory=budget, explain=explain, progress=progress)


def _expect_usual(
    shape: object, offset: int, device: object, framework: str, others: list[object]
) -> None:
    """Refuse what says something of an array, where there is none."""
    plain = offset == 0 and device == "cpu" and framework == "np"
    if not plain or any(each is not None for each in (shape, *others)):
        raise InvalidArgument("the other arguments are those of an array: give its dtype, too")


def _lengthen(file: File, size_bytes: int) -> None:
    try:
        os.ftruncate(file.fileno(), size_bytes)
    except OSError as error:
        raise io_error("lengthen", file.path, error) from None


def _fitting(
    file: File, shape: int | Sequence[int] | None, element: Element, offset: int
) -> tuple[int, ...]:
    """Return the shape, which the file must hold; without an open length it may hold more."""
    expect_bytes(file)
    size_bytes = file.size - offset
    if size_bytes < 0:
        raise InvalidArgument(f"{file.path} ends before offset {offset}", object=file.path)
    needed = known_size_bytes(shape, element.itemsize_bytes)
    if shape is not None and needed is not None and needed <= size_bytes:
        return as_lengths(shape)
    try:
        return fit_shape(shape, element.itemsize_bytes, size_bytes)
    except InvalidArgument as error:
        words = f"{file.path}, after offset {offset}: {error}"
        raise InvalidArgument(words, object=file.path) from None
