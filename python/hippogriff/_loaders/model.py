"""Models made for measuring: so many tensors, so many bytes, sums to check what was loaded."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from hippogriff._replacement import expect_room
from hippogriff.errors import InvalidArgument, io_error
from hippogriff.safetensors._header import format_header
from hippogriff.safetensors._tensor import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK_BYTES = 16 << 20
_ROTATION_BYTES = 1_000_448  # A multiple of 64, so that tensors stay aligned in the block.
_COLUMNS = 256
_ITEM_BYTES = 2
_ROW_BYTES = _COLUMNS * _ITEM_BYTES


def make_model(
    path: Path, tensors: int, size_bytes: int, tell: Callable[[int], None] | None = None
) -> None:
    """Write a file of equally large float16 tensors, durably, and their sums beside it.

    Raises
    ------
    InvalidArgument
        When the tensors would be empty.
    IoError
        When there is no room, or it cannot be written.
    """
    numpy = _numpy()
    rows = size_bytes // tensors // _ROW_BYTES
    if rows == 0:
        raise InvalidArgument(
            f"{size_bytes} bytes are too few for {tensors} tensors: {_ROW_BYTES} each is the least",
            object="--tensors",
        )
    each = rows * _ROW_BYTES
    names = [f"model.layers.{number // 10}.part{number % 10}.weight" for number in range(tensors)]
    infos = [
        TensorInfo(name, "F16", (rows, _COLUMNS), number * each, each)
        for number, name in enumerate(names)
    ]
    block = numpy.random.default_rng(each).integers(0, 2**32, _BLOCK_BYTES // 4, numpy.uint32)
    doubled = numpy.concatenate([block, block]).view(numpy.uint8)
    sums = {}
    try:
        with path.open("xb", buffering=0) as file:
            header = format_header(infos, {"format": "pt"})
            file_bytes = len(header) + tensors * each
            expect_room(file.fileno(), file_bytes)
            os.posix_fallocate(file.fileno(), 0, file_bytes)  # or not at all
            _write_all(file.fileno(), header)
            for number, name in enumerate(names):
                total = done = 0
                while done < each:
                    # Every piece starts elsewhere, so that a misplaced one is seen.
                    start = (number * 7 + done // _BLOCK_BYTES) * _ROTATION_BYTES % _BLOCK_BYTES
                    piece = doubled[start : start + min(_BLOCK_BYTES, each - done)]
                    _write_all(file.fileno(), memoryview(piece))
                    total += int(piece.view(numpy.int32).sum(dtype=numpy.int64))
                    done += len(piece)
                sums[name] = total
                if tell is not None:
                    tell((number + 1) * each)
            os.fdatasync(file.fileno())
        sums_path(path).write_text(json.dumps(sums))
    except OSError as error:
        raise io_error("write", str(path), error) from None


def sums_path(path: Path) -> Path:
    """Where the sums of a model are."""
    return path.with_name(path.name + ".sums.json")


def wrong_tensors(path: Path, loaded: dict[str, Any]) -> list[str]:
    """Return the names of tensors that are missing, additional, or hold other bytes."""
    sums = json.loads(sums_path(path).read_text())
    wrong = set(sums) ^ set(loaded)
    for name in sums.keys() & loaded.keys():
        if _sum_of(loaded[name]) != sums[name]:
            wrong.add(name)
    return sorted(wrong)


def _sum_of(array: Any) -> int:
    """Return the sum of an array's bytes as 32-bit integers."""
    if hasattr(array, "data_ptr"):
        import torch

        flat = array.contiguous().view(torch.uint8).reshape(-1)
        return int(flat.view(torch.int32).sum(dtype=torch.int64).item())
    numpy = _numpy()
    return int(numpy.frombuffer(array.tobytes(), numpy.int32).sum(dtype=numpy.int64))


def _write_all(descriptor: int, block: bytes | memoryview) -> None:
    done = 0
    while done < len(block):
        done += os.write(descriptor, block[done:])


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise InvalidArgument(f"making a model needs NumPy: pip install numpy ({error})") from None
    return numpy
