"""Arrays that live in storage: parts come through a cache when they are touched."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from typing import TYPE_CHECKING, Any

from hippogriff import _device_rows, _storage_abi
from hippogriff._dtypes import fit_shape
from hippogriff._elements import find_element
from hippogriff._fields import Fields, has_gaps, names_fields
from hippogriff._frameworks import numpy_dtype
from hippogriff._host_rows import broadcast, expect_rows, find_rows, move_rows, numpy_module
from hippogriff._indexing import Rows, as_box, find_part
from hippogriff._library import lib
from hippogriff._node import claim
from hippogriff._runtime import ensure, explain, take_json
from hippogriff._slices import Extent, find_pieces, resolve
from hippogriff._storage_options import (
    Wishes,
    find_device,
    find_mode,
    find_paths,
    make_options,
    open_array,
    refuse_longer,
    size_of,
)
from hippogriff._uses import Uses
from hippogriff.errors import InvalidArgument, Unsupported, check

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from hippogriff._runtime import PathLike
    from hippogriff._storage_options import Place

_storage_abi.declare(lib)


class StorageArray:
    """An array in a file that is larger than memory, read and written through a cache.

    On device ``"host"`` CPU threads use it. On a GPU kernels do: those behind `take` and `put`, and
    your own, which take `view`. Thread-safe, but who writes and reads the same elements at the same
    time must agree among themselves. Lines are written as a whole: of two arrays or processes that
    write elements of the same line of a file, one undoes what the other has flushed.

    Parameters
    ----------
    path : path or sequence of paths
        The file, or up to 64 files as one array: see `layout`. An open file stands for its path.
    dtype : dtype
        Element type: a name, a NumPy or torch dtype.
    shape : int or sequence of int, optional
        One length may be -1. Not given: one dimension, the rest of the file.
    device : str
        ``"host"``, ``"cuda:0"``; None: the default one.
    mode : str
        As `numpy.memmap` has it, also in words: ``"r"``, ``"r+"`` (but files are as long as the
        array, or longer), ``"w+"`` (makes the file; needs the shape), ``"c"``: assignments are seen
        in this array and go into no file.
    cache : int or str
        Bytes of the cache in the device's memory, or ``"8GiB"``; no more than all of the array is
        taken.
    line : int or str
        Bytes that are read and written at once: a power of two, 512 to 1 MiB.
    offset : int or str
        Where the array begins in the file (in each of several), in bytes.
    layout : str, optional
        Of several files: ``"striped"`` (stripes in turn, as where `stripe` is given), or
        ``"replicated"``: each is a copy; reads are spread over them and go on with another where
        one fails, writes go to all. Copies that differ are served as they are.
    stripe : int or str
        Bytes of a stripe, a multiple of the line; 0: 1 MiB where files are striped.
    overlay : path, optional
        Of mode ``"c"``: the folder for what was written and left the cache, in a file without a
        name, at most as long as the array. Not given: ``TMPDIR``, else beside the file, else
        ``/var/tmp``, else ``/tmp``.
    io : str
        ``"cached"`` (through the page cache), ``"direct"`` (past it, where lines and offset are
        aligned; else cached), or ``"auto"``: direct when what is not in the page cache now is more
        than memory has room for.
    load : str
        What of it is in the cache when it is open: ``"all"`` (in large pieces, ended by Ctrl-C;
        refused where it does not fit), ``"none"`` (lines come when touched), or ``"auto"``: all
        where it fits and is predicted to take 0.1 s at most: what others write later is not seen.

    Raises
    ------
    InvalidArgument
        When the file is shorter than the array, and for what cannot be.
    IoError
        When the file cannot be opened.
    Unsupported
        Without NumPy.
    OutOfDeviceMemory
        When the device has no room for the cache.
    """

    def __init__(
        self,
        path: Place | Sequence[Place],
        dtype: object,
        shape: int | Sequence[int] | None = None,
        *,
        device: object = "host",
        mode: str = "r",
        cache: int | str = 64 << 20,
        line: int | str = 4096,
        offset: int | str = 0,
        layout: str | None = None,
        stripe: int | str = 0,
        overlay: PathLike | None = None,
        io: str = "auto",
        load: str = "auto",
    ) -> None:
        self._handle = ctypes.c_void_p()
        self._uses = Uses()
        self._numpy = numpy_module()
        element = find_element(dtype)
        self._mode = find_mode(mode)
        self._device = find_device(device)
        wishes = Wishes(self._mode, cache, line, offset, layout, stripe, overlay, io, load)
        paths = find_paths(path, wishes)
        self._paths = tuple(os.fsdecode(each) for each in paths)
        options = make_options(paths, wishes, self._device)
        self._line_bytes = int(options.line_size)
        self._lines = int(options.cache_size) // self._line_bytes
        self._offset = int(options.offset)
        options.size = size_of(shape, element.itemsize_bytes)
        if self._mode == "r+" and len(paths) == 1:
            refuse_longer(paths[0], options)
        if not self._on_gpu and isinstance(element.dtype, str):
            numpy_dtype(element.dtype)  # NumPy must have it: rows go nowhere else
        ensure()
        if self._on_gpu:
            claim(self._device)
        try:
            open_array(options, self._handle)
            check(lib.hippogriff_array_size(self._handle, size := ctypes.c_uint64()))
            lengths = fit_shape(shape, element.itemsize_bytes, size.value)
        except BaseException:
            self.close()
            raise
        self._extent = Extent(0, lengths, element.dtype, element.itemsize_bytes)

    @property
    def path(self) -> str:
        """The path it was opened by; of several files the first one's."""
        return self._paths[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files."""
        return self._paths

    @property
    def mode(self) -> str:
        """The mode it was opened with, in short."""
        return self._mode

    @property
    def device(self) -> str:
        """Whose threads use it: ``"host"``, ``"cuda:0"``."""
        return self._device

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths, in elements."""
        return self._extent.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._extent.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._extent.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self._extent.size_bytes

    @property
    def dtype(self) -> Any:
        """The element type, as NumPy has it."""
        name = self._extent.dtype
        return numpy_dtype(name) if isinstance(name, str) else name

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._handle

    @property
    def view(self) -> Any:
        """What kernels take by value, on a GPU: the bytes of a ``hippogriff::array_view<T>``.

        A NumPy array of one element, as CuPy's raw kernels want it; `get_compile_options` has what
        they are compiled with. ``T`` has the size of the array's elements. Good until `close`.
        """
        self._require_gpu("view")
        itemsize = self._extent.itemsize_bytes
        size, layout = ctypes.c_size_t(), ctypes.c_uint32()
        check(lib.hippogriff_array_element_view(None, itemsize, None, size, layout))
        view = self._numpy.zeros(1, f"V{size.value}")
        address = view.ctypes.data
        self._call(lib.hippogriff_array_element_view, itemsize, address, size, layout)
        return view

    @property
    def view_address(self) -> int:
        """Where the GPU's memory has a `view`, for kernels that take a pointer, as Numba's do."""
        self._require_gpu("view_address")
        address = ctypes.c_uint64()
        itemsize = self._extent.itemsize_bytes
        self._call(lib.hippogriff_array_view_address, itemsize, address)
        return address.value

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array that is in a file cannot become NumPy's without a copy")
        return self._numpy.asarray(self[...], dtype)

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle or copy an open array: open {self.path} once more")

    def __repr__(self) -> str:
        what = f"shape={self.shape}, dtype={str(self._extent.dtype)!r}"
        return f"<hippogriff.StorageArray {self.path!r}, {what}, mode={self.mode!r}>"

    def __getitem__(self, index: Any) -> Any:
        """Read a part, for small ones: what NumPy's index names is read, and little more.

        A NumPy array as NumPy would give it, with memory of its own; a number where integers name
        one element. Integers and slices: each run of adjacent elements is a call, on a GPU a
        kernel, after the work on the current stream. Arrays of integers and masks: gathered as
        `take` does. The name of a field, or a list of names: all of the array is read.

        Raises
        ------
        IndexError
            When the index is out of the array, or is none of these.
        """
        if names_fields(index):
            return self._read_fields(index)
        part = find_part(self._numpy, index, self.shape)
        if isinstance(part, Rows):
            out = self._numpy.empty(part.shape, self.dtype)
            self._gather(part.numbers, part.elements * self._extent.itemsize_bytes, out)
            return out
        return self._read(part.selection)[part.shown]

    def __setitem__(self, index: Any, values: Any) -> None:
        """Write a part, which is named as for reading, and to which the values are broadcast.

        Of an element that is named several times the last value counts. Fields are written without
        those beside them, and what is between fields stays: where there is something, the elements
        are read first.
        """
        if names_fields(index):
            self._write_fields(index, values)
            return
        part = find_part(self._numpy, index, self.shape)
        if isinstance(part, Rows):
            whole = broadcast(self._numpy, values, self.dtype, part.shape)
            self._store(part.numbers, part.elements * self._extent.itemsize_bytes, whole)
            return
        there = self._read(part.selection) if has_gaps(self.dtype) else None
        array = as_box(self._numpy, values, self.dtype, part, there)
        with self._uses.one():
            handle = self._followed_handle()
            pieces = find_pieces(self._extent, part.selection, array.ctypes.data)
            for offset, address, size in pieces:
                check(lib.hippogriff_array_write(handle, offset, address, size))

    def take(self, indices: Any, out: Any = None) -> Any:
        """Gather rows: ``array[indices]`` along the first dimension, by several threads.

        Indices on the array's GPU (torch's, CuPy's, or with ``__cuda_array_interface__``) give
        rows there. torch and CuPy get their own arrays, on their current stream and without
        waiting; others a `hippogriff.Array` that is filled. An index on a GPU that is out of range
        gives a row of zeros, and `check` raises.

        Parameters
        ----------
        indices : array of int
            Of any shape; negative ones count from the end. On a GPU of 32 or 64 bits, contiguous.
        out : array, optional
            Filled instead of a new array: its shape is that of the indices and of a row, its
            elements are the array's, C-contiguous. NumPy's, or where the indices are.

        Raises
        ------
        IndexError
            When an index in host memory is out of the first dimension.
        InvalidArgument
            When indices or `out` are not as above.
        """
        if self._on_gpu and _device_rows.is_on_gpu(indices):
            numbers, shape = self._numbers(indices)
            if out is None:
                out = _device_rows.new_rows(numbers, self._extent.dtype, shape)
            self._queue(lib.hippogriff_array_gather_async, numbers, out, shape, writable=True)
            return out
        rows = self._rows(indices)
        shape = (*rows.shape, *self.shape[1:])
        is_number = out is None and not shape
        if out is None:
            out = self._numpy.empty(shape, self.dtype)
        else:
            expect_rows(out, shape, self.dtype)
        self._gather(rows, self._row_bytes, out)
        return out[()] if is_number else out

    def put(self, indices: Any, values: Any) -> None:
        """Scatter rows: ``array[indices] = values``; of equal indices the last one counts.

        With indices on the array's GPU the values are there too, of the array's element type and
        the shape that `take` would give. As with `take` torch and CuPy need not wait, and an index
        that is out of range is told by `check`. Of equal indices parts of several rows may stay.
        """
        if self._on_gpu and _device_rows.is_on_gpu(indices):
            numbers, shape = self._numbers(indices)
            self._queue(lib.hippogriff_array_scatter_async, numbers, values, shape, writable=False)
            return
        rows = self._rows(indices)
        shape = (*rows.shape, *self.shape[1:])
        self._store(rows, self._row_bytes, broadcast(self._numpy, values, self.dtype, shape))

    def prefetch(self, rows: Any) -> None:
        """Have rows on their way into the cache, and wait for none of them: a hint.

        A later `take` of these finds them, or what is left to do. As many lines are asked for, in
        their order, as half of the cache and the queues have room for, without waiting for a clean
        place; what is more is left out. A read that fails is told to who accesses the row.

        Parameters
        ----------
        rows : int, slice or array of int
            Along the first dimension, as NumPy has it; steps are positive. Indices may be where
            those of `take` may be; on a GPU this too happens on the current stream, and of one that
            is out of range `check` tells. All else waits for nothing that is queued there.

        Raises
        ------
        IndexError
            When an index in host memory is out of the first dimension.
        InvalidArgument
            When rows are named by anything else.
        """
        if self._on_gpu and _device_rows.is_on_gpu(rows):
            numbers, shape = self._numbers(rows)
            wanted = _device_rows.numbered(numbers, self._row_bytes)
            self._start(lib.hippogriff_array_prefetch_async, numbers, wanted, shape)
            return
        run = self._run_of(rows)
        if isinstance(run, range):
            offset, size = run.start * self._row_bytes, len(run) * self._row_bytes
            self._call(lib.hippogriff_array_prefetch, offset, size)
        else:
            count, row_bytes = run.size if self._row_bytes else 0, self._row_bytes or 1
            self._call(lib.hippogriff_array_prefetch_rows, run.ctypes.data, count, row_bytes)

    def check(self) -> None:
        """Raise the first failure of any access since the array was opened or cleared.

        What kernels met is told here and by `flush`, when they have ended: it waits for nothing.
        """
        self._call(lib.hippogriff_array_check)

    def clear(self) -> None:
        """Forget the failure that `check` raises.

        What has ended the array, as a wait past its limit does, stays and is raised: open it again.
        So does a `flush` that failed in ``fdatasync``.
        """
        self._call(lib.hippogriff_array_clear)

    def flush(self) -> None:
        """Write what is dirty and have the file keep it (fdatasync).

        On a GPU after the work on the current stream. Raises what `check` would. Once ``fdatasync``
        has failed each later flush raises that: open the array again, and write what was written
        since the last good flush again.
        """
        with self._uses.one():
            check(lib.hippogriff_array_flush(self._followed_handle()))

    def statistics(self) -> dict[str, int]:
        """Lines and commands since it was opened, as `hippogriff_array_statistics` counts them."""
        found = _storage_abi.ArrayStatistics(
            struct_size=ctypes.sizeof(_storage_abi.ArrayStatistics)
        )
        self._call(lib.hippogriff_array_get_statistics, found)
        names = [field[0] for field in found._fields_]
        return {name: int(getattr(found, name)) for name in names if name != "struct_size"}

    def explain(self) -> dict[str, Any]:
        """Tell what it stands on and why, and whether to load or map all of it would be better.

        ``better`` is ``"load"``, ``"map"`` or ``"array"``, with ``why``. Of one file ``load`` has
        what the router predicts for loading all of it: the route, its seconds, and whether they
        come from a calibration.
        """
        text = ctypes.c_void_p()
        self._call(lib.hippogriff_array_explain, text)
        told: dict[str, Any] = take_json(text)
        if len(self._paths) == 1:
            with contextlib.suppress(OSError):  # Its file may have no name any more.
                told["load"] = self._predicted_load()
        return told

    def close(self) -> None:
        """Close it; what was written since the last flush is lost. Closing again does nothing.

        Calls of other threads that are under way are waited for, and later ones refused.
        """
        self._uses.end(self._close)

    def _close(self) -> None:
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            check(lib.hippogriff_array_close(handle))

    def __enter__(self) -> StorageArray:
        self._open_handle()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.mode != "r" and not self.closed:
                self.flush()
        finally:
            self.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            lib.hippogriff_array_close(handle)

    @property
    def _on_gpu(self) -> bool:
        return self._device != "host"

    def _require_gpu(self, what: str) -> None:
        if not self._on_gpu:
            raise Unsupported(f"{what} is for kernels: the array is on device host")

    def _call(self, function: Any, *arguments: Any) -> None:
        with self._uses.one():
            check(function(self._open_handle(), *arguments))

    def _open_handle(self) -> ctypes.c_void_p:
        """Return the handle, which stays as long as the use in which this is called."""
        if self._uses.over:
            raise InvalidArgument(f"{self.path} is closed", object=self.path)
        return self._handle

    def _followed_handle(self) -> ctypes.c_void_p:
        """Do so, on a GPU after the work that frameworks have queued here."""
        handle = self._open_handle()
        if self._on_gpu:
            for stream in _device_rows.current_streams(self._device):
                check(lib.hippogriff_array_after(handle, stream))
        return handle

    def _numbers(self, indices: Any) -> tuple[_device_rows.Tensor, tuple[int, ...]]:
        """Return indices on the GPU, and the shape that their rows have together."""
        if not self.shape:
            raise InvalidArgument("an array without dimensions has no rows")
        numbers = _device_rows.find_numbers(indices, self._device)
        return numbers, (*numbers.shape, *self.shape[1:])

    def _queue(
        self,
        call: Any,
        numbers: _device_rows.Tensor,
        rows: Any,
        shape: tuple[int, ...],
        *,
        writable: bool,
    ) -> None:
        wanted = _device_rows.rows_for(numbers, rows, self._extent.dtype, shape, writable=writable)
        self._start(call, numbers, wanted, shape)

    def _start(
        self, call: Any, numbers: _device_rows.Tensor, wanted: Any, shape: tuple[int, ...]
    ) -> None:
        with self._uses.one():
            handle = self._open_handle()
            if math.prod(shape):
                check(call(handle, wanted))
                if not numbers.in_order:
                    check(lib.hippogriff_array_wait(handle))

    @property
    def _row_bytes(self) -> int:
        return self._extent.strides[0]

    def _predicted_load(self) -> dict[str, Any]:
        outlook = explain(
            self.path, offset=self._offset, size=self.nbytes or None, device=self.device
        )
        chosen = next(each for each in outlook["routes"] if each["route"] == outlook["chosen"])
        return {
            "route": chosen["route"],
            "seconds": chosen["seconds"],
            "calibrated": outlook["calibrated"],
        }

    def _gather(self, rows: Any, row_bytes: int, out: Any) -> None:
        self._move(lib.hippogriff_array_gather, rows, row_bytes, out)

    def _scatter(self, rows: Any, row_bytes: int, array: Any) -> None:
        self._move(lib.hippogriff_array_scatter, rows, row_bytes, array)

    def _move(self, move: Any, rows: Any, row_bytes: int, array: Any) -> None:
        if rows.size and array.size:
            with self._uses.one():
                move_rows(move, self._followed_handle(), rows, row_bytes, array)

    def _read_fields(self, names: str | list[str]) -> Any:
        """Read whole elements, a block of them at a time, and copy the fields out of them."""
        fields = Fields(self._numpy, self.dtype, self.shape, names)
        out = fields.empty()
        for begin, block in fields.blocks():
            offset = begin * self._extent.itemsize_bytes
            with self._uses.one():
                handle = self._followed_handle()
                check(lib.hippogriff_array_read(handle, offset, block.ctypes.data, block.nbytes))
            fields.copy(block, out, begin)
        return out

    def _write_fields(self, names: str | list[str], values: Any) -> None:
        fields = Fields(self._numpy, self.dtype, self.shape, names)
        for rows, row_bytes, array in fields.pieces(values):
            self._store(rows, row_bytes, array)

    def _store(self, rows: Any, row_bytes: int, values: Any) -> None:
        """Scatter values without what is between their fields."""
        array = values
        if has_gaps(values.dtype):
            array = self._numpy.empty(values.shape, values.dtype)
            self._gather(rows, row_bytes, array)
            array[...] = values
        self._scatter(rows, row_bytes, self._numpy.ascontiguousarray(array))

    def _read(self, selection: Any) -> Any:
        array = self._numpy.empty(selection.counts, self.dtype)
        with self._uses.one():
            handle = self._followed_handle()
            for offset, address, size in find_pieces(self._extent, selection, array.ctypes.data):
                check(lib.hippogriff_array_read(handle, offset, address, size))
        return array

    def _take_in_place(self, indices: Any, out: Any) -> None:
        """Do what `take` does on a GPU, past the cache: what `bench array` compares with."""
        numbers, shape = self._numbers(indices)
        self._queue(lib.hippogriff_array_zero_copy_async, numbers, out, shape, writable=True)

    def _run_of(self, rows: Any) -> Any:
        """Return rows that lie beside each other as a range, others as C wants them."""
        if isinstance(rows, tuple):
            raise InvalidArgument("rows are an integer, a slice or an array of integers")
        if not isinstance(rows, slice):
            return self._rows(rows)
        if not self.shape:
            raise InvalidArgument("an array without dimensions has no rows")
        selection = resolve(rows, self.shape[:1])
        (start,), (count,), (step,) = selection[:3]
        if step == 1:
            return range(start, start + count)
        # Each is in another line, or in the one of the row before.
        count = min(count, self._lines * max(1, self._line_bytes // max(1, self._row_bytes)))
        return self._numpy.arange(start, start + count * step, step, "uint64")

    def _rows(self, indices: Any) -> Any:
        """Return indices as C wants them, none negative."""
        if not self.shape:
            raise InvalidArgument("an array without dimensions has no rows")
        return find_rows(self._numpy, indices, self.shape[0])
