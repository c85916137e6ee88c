"""How a stream of tensors is cut into transfers."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from hippogriff.safetensors import _load
from hippogriff.safetensors._load import _batches
from hippogriff.safetensors._tensor import Columns, TensorInfo

# Small ones: first bytes, growth, first tensors, tensors, most tensors, gap.
_LIMITS: dict[str, Any] = {
    "_FIRST_BYTES": 10,
    "_BATCH_GROWTH": 3,
    "_FIRST_TENSORS": 2,
    "_BATCH_TENSORS": 5,
    "_BATCH_TENSORS_MAX": 9,
    "_GAP_BYTES": 4,
}


def _cut_one_by_one(tensors: list[TensorInfo], bytes_max: int) -> list[list[str]]:
    """Do what `_batches` does, tensor by tensor."""
    batches: list[list[str]] = []
    batch: list[str] = []
    size_bytes, end = 0, 0
    most_bytes, many = _LIMITS["_FIRST_BYTES"], _LIMITS["_FIRST_TENSORS"]
    for tensor in tensors:
        large = (
            size_bytes >= most_bytes
            or (size_bytes >= _LIMITS["_FIRST_BYTES"] and len(batch) >= many)
            or len(batch) == _LIMITS["_BATCH_TENSORS_MAX"]
        )
        if batch and (large or tensor.offset - end > _LIMITS["_GAP_BYTES"]):
            batches.append(batch)
            batch, size_bytes = [], 0
            most_bytes = min(most_bytes * _LIMITS["_BATCH_GROWTH"], bytes_max)
            many = min(2 * many, _LIMITS["_BATCH_TENSORS"])
        batch.append(tensor.name)
        size_bytes += tensor.size_bytes
        end = tensor.offset + tensor.size_bytes
    return [*batches, batch] if batch else batches


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), max_size=60),
    st.lists(st.integers(0, 12), max_size=12),
    st.integers(11, 200),
)
def test_batches_are_those_of_a_stream_of_single_tensors(
    rows: list[tuple[int, int]], pieces: list[int], bytes_max: int
) -> None:
    tensors, offset = [], 100
    for number, (hole, size) in enumerate(rows):
        offset += hole
        tensors.append(TensorInfo(f"{number}", "U8", (size,), offset, size))
        offset += size
    cuts = [0, *itertools.accumulate(pieces), len(tensors)]
    stream = [Columns.of(tensors[begin:end]) for begin, end in itertools.pairwise(cuts)]
    with mock.patch.multiple(_load, **_LIMITS):
        batches = list(_batches(stream, bytes_max))
    assert [list(batch.names) for batch in batches] == _cut_one_by_one(tensors, bytes_max)
    assert [tensor for batch in batches for tensor in batch.tensors()] == tensors
