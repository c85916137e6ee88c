"""Loading `.npy` and `.npz` files: headers, then all arrays by as few transfers as serve them."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from hippogriff._array_file import ArrayFile
from hippogriff._file import File, expect_bytes, small_bytes
from hippogriff._flights import Flights
from hippogriff._frameworks import make_framework
from hippogriff._host_memory import host_memory_bytes, share_out
from hippogriff._report import Watch
from hippogriff._scatter import start_scatter
from hippogriff._slices import Extent
from hippogriff._transfer import Request
from hippogriff.arrays._archive import Archive
from hippogriff.arrays._header import (
    PREFIX_BYTES,
    ArrayHeader,
    header_end,
    make_array_of,
    naming,
    parse_header,
)
from hippogriff.arrays._inflate import load_compressed
from hippogriff.arrays._verify import find_checksums
from hippogriff.errors import InvalidArgument, io_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hippogriff._frameworks import Framework
    from hippogriff._report import LoadReport
    from hippogriff._runtime import PathLike
    from hippogriff._scatter import Part
    from hippogriff.arrays._verify import Comparison, Verify

# A hole larger than this between arrays is not read.
_GAP_BYTES = 1 << 20
_IN_FLIGHT = 2


class _Stored(NamedTuple):
    """An array of a file that is there as it is. `offset`: where its first element is."""

    offset: int
    header: ArrayHeader
    array: Any


def load_npy(
    path: PathLike,
    device: object = "cpu",
    *,
    framework: str = "np",
    verify: Verify = False,
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> Any:
    """Load the array of an `.npy` file.

    Parameters
    ----------
    path : path-like
        The file. Object arrays are refused: nothing is ever unpickled.
    device : str, int or torch.device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``1``.
    framework : {"np", "pt", "cupy"}
        Whose array. NumPy's can have any element type, the others' those that they have.
    verify : bool or path-like
        Compare all bytes, where they are loaded, with what `hippogriff checksum` made: beside the
        file, or in this file or folder.
    host_memory : int or str, optional
        The most pinned host memory that it uses at one time, as in
        `hippogriff.safetensors.load_file`. On the CPU none is needed.
    explain : bool or callable
        True prints the route, GB/s, where the bytes came from and the time spent waiting; a
        callable is given the `hippogriff.safetensors.LoadReport`.
    progress : bool, optional
        Whether to show a bar on stderr; without it on a terminal, when it takes a while.

    Returns
    -------
    array
        Owns its memory; in Fortran order where the file is. Ordered after the work on torch's or
        CuPy's current stream.

    Raises
    ------
    ArrayFormatError
        When it is no `.npy` file.
    Unsupported
        When the framework is not installed or has no such element type; to `verify`, when the file
        has more bytes than the array.
    InvalidArgument
        When the path is a pipe's or a character device's.
    ChecksumMismatch, SidecarError
        When the checksums are not of what was loaded (names its bytes), or are damaged.
    FileNotFoundError
        When there is no file, or there are no checksums to `verify` it by.
    IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
        When loading fails; nothing is under way then.
    """
    budget = host_memory_bytes(host_memory)
    maker = make_framework(framework, device)
    with Watch(explain, progress, budget) as watch, File(path) as file:
        with naming(file.path):
            header = _header_of(file)
        checksums = find_checksums(file, header, verify)
        with naming(file.path):
            array = make_array_of(maker, header)
        watch.expect(header.size_bytes)
        watch.open(file.path)
        comparison = checksums and checksums.begin(maker.address(array), maker.region)
        stored = _Stored(header.data_offset, header, array)
        _load(file, [stored], maker, watch, budget, comparison)
        if comparison is not None:
            comparison.finish()
    return array


def open_npy(
    path: PathLike,
    mode: str = "r",
    *,
    device: object = "cpu",
    framework: str = "np",
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> ArrayFile:
    """Open an `.npy` file, to load, or write, parts of its array by index.

    Parameters
    ----------
    path : path-like
        The file.
    mode : {"r", "r+"}
        To read; to read and write in place.
    device, framework, host_memory, explain, progress
        As in `load_npy`; the last three for each part that is loaded or written.

    Returns
    -------
    ArrayFile
        A context manager; ``file[2:5]`` loads only that.

    Raises
    ------
    ArrayFormatError, IoError, Unsupported
        As in `load_npy`.
    InvalidArgument
        When there is no such mode.
    """
    if mode not in {"r", "r+"}:
        raise InvalidArgument(f"mode {mode!r} is none of 'r', 'r+': save_npy makes new files")
    budget = host_memory_bytes(host_memory)
    maker = make_framework(framework, device)
    file = File(path, mode)
    try:
        with naming(file.path):
            header = _header_of(file)
    except BaseException:
        file.close()
        raise
    shape = header.shape[::-1] if header.fortran_order else header.shape
    extent = Extent(header.data_offset, shape, *header.element)
    return ArrayFile(
        file,
        extent,
        maker,
        fortran_order=header.fortran_order,
        host_memory=budget,
        explain=explain,
        progress=progress,
    )


def load_npz(
    path: PathLike,
    device: object = "cpu",
    *,
    framework: str = "np",
    names: Iterable[str] | None = None,
    verify: bool = False,
    host_memory: int | str | None = None,
    explain: bool | Callable[[LoadReport], object] = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Load the arrays of an `.npz` file, all of them or some.

    Parameters
    ----------
    path : path-like
        The file. What `numpy.savez` stored is loaded as fast as `.npy`; what
        `numpy.savez_compressed` made is decompressed by one thread of the host.
    device, framework
        As in `load_npy`.
    names : iterable of str, optional
        Which arrays; all if not given.
    verify : bool
        Check the CRC-32 of stored arrays, too: reads the file once more, on the host, at
        1 GB/s or less. That of compressed ones is always checked.
    host_memory, explain, progress
        As in `load_npy`.

    Returns
    -------
    dict of str to array
        In the order of the archive's directory, or of `names`. Each array owns its memory.

    Raises
    ------
    ArrayFormatError
        When it is no `.npz` file, has no such name, or two arrays of one name.
    Unsupported
        As in `load_npy`; when an array is encrypted, or compressed otherwise than by deflate.
    IoError, ShortFile, OutOfDeviceMemory, OutOfHostMemory, DeviceError
        When loading fails; nothing is under way then.
    """
    _check_choices(names, verify)
    budget = host_memory_bytes(host_memory)
    maker = make_framework(framework, device)
    arrays: dict[str, Any] = {}
    with Watch(explain, progress, budget) as watch, File(path) as file, Archive(file) as archive:
        members = archive.find(names)
        again = sum(each.size_bytes for each in members if verify and not each.compressed)
        watch.expect(sum(each.size_bytes for each in members) + again)
        watch.open(file.path)
        stored = []
        for member in members:
            if member.compressed:
                arrays[member.name] = load_compressed(archive, member, maker, watch, budget)
                continue
            with naming(archive.where(member.name)):
                header = _read_header(file, member.offset, member.size_bytes)
                arrays[member.name] = array = make_array_of(maker, header)
            stored.append(_Stored(member.offset + header.data_offset, header, array))
        _load(file, stored, maker, watch, budget)
        if verify:
            for member in members:
                archive.verify(member, watch.add)
    return arrays


def _check_choices(names: object, verify: object) -> None:
    if isinstance(names, str):
        raise InvalidArgument("names is one string; give a list of names")
    if not isinstance(verify, bool):
        raise InvalidArgument(
            f"verify={verify!r}: an archive's CRC-32 are in it; give True or False"
        )


def _header_of(file: File) -> ArrayHeader:
    with file.borrowed() as descriptor:
        size_bytes = os.fstat(descriptor).st_size
    if not size_bytes:
        expect_bytes(file)
    return _read_header(file, 0, size_bytes)


def _read_header(file: File, offset: int, size_bytes: int) -> ArrayHeader:
    """Read and check the header of an array that has so many bytes of a file, header included."""
    try:
        with file.borrowed() as descriptor:
            # Most headers are as short as this.
            begin = os.pread(descriptor, min(size_bytes, 512), offset)
            end = min(header_end(begin[:PREFIX_BYTES]), size_bytes)
            data = begin[:end]
            while len(data) < end:
                piece = os.pread(descriptor, end - len(data), offset + len(data))
                if not piece:
                    break
                data += piece
        return parse_header(data, size_bytes)
    except OSError as error:
        raise io_error("read", file.path, error) from None


def _load(
    file: File,
    arrays: list[_Stored],
    framework: Framework,
    watch: Watch,
    host_memory: int,
    comparison: Comparison | None = None,
) -> None:
    """Load arrays by as few transfers as serve them, or an only one in pieces that are compared."""
    in_flight, each = share_out(host_memory, _IN_FLIGHT)
    batches = _batches(arrays, framework) if comparison is None else comparison.pieces()
    watch.start(len(arrays), sum(stored.header.size_bytes for stored in arrays))
    if comparison is None and _load_small(file, arrays, framework, watch):
        return
    with Flights(in_flight, watch.wait) as flights:
        for parts in batches:
            flights.make_room()
            request = Request("auto", region=framework.region, host_memory=each)
            landed, found = None, None
            if comparison is not None:
                found = comparison.room(request, parts[0])
                landed = functools.partial(comparison.take, found)
            transfer = start_scatter(file, parts, request, (arrays, found), loading=True)
            flights.add(transfer, landed)


def _load_small(file: File, arrays: list[_Stored], framework: Framework, watch: Watch) -> bool:
    """Load an only array of few bytes on this thread; False: failed, and a transfer says why."""
    size = arrays[0].header.size_bytes if len(arrays) == 1 else 0
    if not 0 < size <= small_bytes(framework.region):
        return False
    region = framework.region.at(framework.address(arrays[0].array), size)
    read = functools.partial(file.read_small, region, arrays[0].offset)
    return watch.read(size, read, expected=True)


def _batches(arrays: list[_Stored], framework: Framework) -> Iterator[list[Part]]:
    """Put arrays into the order of the file, cut where a hole is."""
    batch: list[Part] = []
    end = 0
    for stored in sorted(arrays, key=lambda stored: stored.offset):
        size = stored.header.size_bytes
        if not size:
            continue
        if batch and stored.offset - end > _GAP_BYTES:
            yield batch
            batch = []
        batch.append((stored.offset, size, framework.address(stored.array)))
        end = stored.offset + size
    if batch:
        yield batch
