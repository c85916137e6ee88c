"""Files that hold one array: its parts are loaded, and written, by index."""

from __future__ import annotations

import importlib
import itertools
import math
from typing import TYPE_CHECKING, Any

from hippogriff._elements import find_element
from hippogriff._flights import Flights
from hippogriff._frameworks import framework_of, make_array, make_framework, transposed
from hippogriff._host_memory import share_out
from hippogriff._regions import describe, note_changes
from hippogriff._report import Watch
from hippogriff._slices import Target, fill, find_runs, resolve, target_of
from hippogriff.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from hippogriff._file import File
    from hippogriff._frameworks import Framework
    from hippogriff._regions import Region
    from hippogriff._report import Explain
    from hippogriff._slices import Extent, Runs, Selection

_IN_FLIGHT = 8
# More pieces than this are not written one by one.
_PIECES_MAX = 65536


class ArrayFile:
    """An open file that is an array: ``file[2:5, ..., 7]`` loads only that. Thread-safe.

    Made by `open` with an element type, and by `hippogriff.arrays.open_npy`. An index has integers,
    slices with positive steps, and at most one ellipsis. What it names comes as an array of its
    own, of the framework and on the device that the file was opened for; the file may be larger
    than memory. With mode ``"r+"`` or ``"w"``, ``file[2:5] = array`` writes in place.
    """

    def __init__(
        self,
        file: File,
        extent: Extent,
        framework: Framework,
        *,
        fortran_order: bool = False,
        host_memory: int = 0,
        explain: Explain = False,
        progress: bool | None = None,
    ) -> None:
        # In Fortran order the file is the transposed array in C order.
        self._file = file
        self._extent = extent
        self._framework = framework
        self._fortran_order = fortran_order
        self._host_memory = host_memory
        self._explain = explain
        self._progress = progress

    @property
    def path(self) -> str:
        """The path it was opened by."""
        return self._file.path

    @property
    def mode(self) -> str:
        """The mode it was opened with."""
        return self._file.mode

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths, in elements."""
        return self._extent.shape[::-1] if self._fortran_order else self._extent.shape

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
        """The element type: its name, as ``"float32"``, or a dtype that NumPy alone has."""
        return self._extent.dtype

    @property
    def offset(self) -> int:
        """Where the first element is in the file, in bytes."""
        return self._extent.offset

    @property
    def fortran_order(self) -> bool:
        """Whether the first index varies fastest in the file."""
        return self._fortran_order

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._file.closed

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        what = f"shape={self.shape}, dtype={str(self.dtype)!r}"
        return f"<hippogriff.ArrayFile {self.path!r}, {what}, mode={self.mode!r}>"

    def __len__(self) -> int:
        if not self._extent.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array that is in a file cannot become NumPy's without a copy")
        return importlib.import_module("numpy").asarray(self[...], dtype)

    def __getitem__(self, index: Any) -> Any:
        """Load a part.

        Parameters
        ----------
        index : int, slice, ellipsis or tuple of them
            As NumPy's basic indices; steps are positive, and there is one ellipsis at most.

        Returns
        -------
        array
            Of the part's shape, which lacks the dimensions that have an integer; in memory of its
            own, of the framework and on the device that the file was opened for.

        Raises
        ------
        InvalidArgument
            When there can be no such part, or the file is closed.
        IndexError
            When an integer is out of its dimension.
        Unsupported
            When the framework has no such element type.
        IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
            When loading fails.
        """
        selection = self._resolve(index)
        array = make_array(self._framework, self.dtype, selection.shape)
        self._fill(selection, target_of(self._framework, array))
        return self._flip(array)

    def read_into(self, array: Any, index: Any = ...) -> None:
        """Load a part into an array that is there already.

        Parameters
        ----------
        array : array
            Of the part's shape and element type, C-contiguous (Fortran-contiguous where the file
            is), writable; on any device.
        index : index
            As in ``file[index]``; everything if not given.

        Raises
        ------
        InvalidArgument
            When the array does not agree, or there is no such part.
        IoError, ShortFile, DeviceError
            When loading fails; the array may be filled in part then.
        """
        selection = self._resolve(index)
        array = self._agreeing(array, selection)
        region = describe(array, writable=True)
        self._check_size(region.size_bytes, selection)
        note_changes([array])
        # Nothing can be assigned to parts of buffers, and of our own arrays.
        parted = hasattr(array, "__setitem__") and hasattr(array, "reshape")
        framework = make_framework(*framework_of(array)) if parted else None
        self._fill(selection, Target(array, region.address, region, framework))

    def _fill(self, selection: Selection, target: Target) -> None:
        size_bytes = math.prod(selection.counts) * self._extent.itemsize_bytes
        with self._watch("load", size_bytes) as watch:
            fill(self._file, self._extent, selection, target, watch, self._host_memory)

    def _watch(self, operation: str, size_bytes: int) -> Watch:
        """Return what follows the transfers of one part."""
        watch = Watch(self._explain, self._progress, self._host_memory, operation)
        watch.open(self.path)
        watch.start(1, size_bytes)
        return watch

    def __setitem__(self, index: Any, array: Any) -> None:
        """Write a part in place.

        What a failure leaves in it is undefined; it is on the disk when the system has written it.

        Parameters
        ----------
        index : int, slice, ellipsis or tuple of them
            As for loading.
        array : array
            Of the part's shape and element type, C-contiguous (Fortran-contiguous where the file
            is), on any device: nothing is broadcast or converted.

        Raises
        ------
        InvalidArgument
            When the file was opened for reading or is closed, the array does not agree, or there
            can be no such part.
        IndexError
            When an integer is out of its dimension.
        Unsupported
            When the part lies in more than 65536 pieces of the file.
        TypeError
            When `array` is none.
        IoError, DeviceError
            When writing fails.
        """
        if self.mode == "r":
            raise InvalidArgument(f'{self.path} is open for reading: open it with mode "r+"')
        selection = self._resolve(index)
        array = self._agreeing(array, selection)
        region = describe(array, writable=False)
        self._check_size(region.size_bytes, selection)
        with self._watch("write", region.size_bytes) as watch:
            if region.size_bytes == 0:
                return
            runs = find_runs(self._extent, selection)
            watch.expect(region.size_bytes)
            # Of few bytes from a GPU, which this writes at once, nothing would be told.
            if runs.number == 1 and not self._host_memory and not self._explain:
                offset = self._extent.offset + next(runs.offsets())
                self._file.write_from(array, offset, progress=watch.tell)
            else:
                self._write(array, region, runs, selection, watch)

    def _write(
        self, array: Any, region: Region, runs: Runs, selection: Selection, watch: Watch
    ) -> None:
        """Write an array's runs, each by a transfer, within the budget."""
        if runs.number > 1 and (runs.number > _PIECES_MAX or not hasattr(array, "reshape")):
            raise Unsupported(
                f"the part lies in {runs.number} pieces of {self.path}, too many to write one by "
                "one: write whole rows"
            )
        in_flight, each = share_out(self._host_memory, _IN_FLIGHT)
        with Flights(in_flight, watch.wait) as flights:
            pieces = self._pieces(array, region, runs, selection)
            for piece, offset in zip(pieces, runs.offsets(), strict=True):
                flights.make_room()
                start = self._extent.offset + offset
                flights.add(self._file.write_region_async(piece, start, each))

    @staticmethod
    def _pieces(array: Any, region: Region, runs: Runs, selection: Selection) -> Iterator[Region]:
        """Yield the memory of each run."""
        if runs.number == 1:
            yield region
            return
        whole = array.reshape(selection.counts)
        for place in itertools.product(*map(range, selection.counts[: runs.outer])):
            # An ellipsis: an array also where an element is meant.
            yield describe(whole[(*place, ...)], writable=False)

    def _resolve(self, index: Any) -> Selection:
        """Find what is meant of the array as it lies in the file."""
        selection = resolve(index, self.shape)
        if self._fortran_order:
            for each in selection:
                each.reverse()
        return selection

    def _flip(self, array: Any) -> Any:
        """Turn an array as it lies in the file into what is meant, or back."""
        return transposed(array) if self._fortran_order and len(array.shape) > 1 else array

    def _agreeing(self, array: Any, selection: Selection) -> Any:
        """Check an array that a part goes to or comes from; return it as the file has it."""
        shape = getattr(array, "shape", None)
        expected = selection.shape[::-1] if self._fortran_order else selection.shape
        if shape is not None and tuple(shape) != expected:
            raise InvalidArgument(f"the array has the shape {tuple(shape)}, the part {expected}")
        dtype = getattr(array, "dtype", None)
        if dtype is not None and find_element(dtype).dtype != self.dtype:
            raise InvalidArgument(f"the array's elements are {dtype}, the file's {self.dtype}")
        return array if shape is None else self._flip(array)

    def _check_size(self, size_bytes: int, selection: Selection) -> None:
        expected = math.prod(selection.counts) * self._extent.itemsize_bytes
        if size_bytes != expected:
            raise InvalidArgument(f"the array has {size_bytes} bytes, the part {expected}")
