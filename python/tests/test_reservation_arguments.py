"""What reservations and policies are asked for with, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hippogriff
from hippogriff.errors import InvalidArgument


@pytest.mark.parametrize("device", ["host\0", "host\0cuda:0", "\0", "\ud800", "ho\0st"])
def test_a_name_that_c_would_read_otherwise_is_no_device(device: str) -> None:
    with pytest.raises(InvalidArgument, match="no device's name"):
        hippogriff.reserve("1MiB", device=device)
    with pytest.raises(InvalidArgument, match="no device's name"):
        hippogriff.empty(1, "uint8", device=device)


@pytest.mark.parametrize("timeout", ["1", "", [1], (), {}, 1j, np.ones(2), float("nan"), -1, -0.5])
def test_what_is_no_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        hippogriff.reserve("1MiB", device="host", timeout=timeout)
    with (
        hippogriff.reserve("1MiB", device="host", timeout=60) as reservation,
        pytest.raises(InvalidArgument, match="timeout"),
    ):
        reservation.resize("2MiB", timeout=timeout)


@pytest.mark.parametrize("priority", [1.5, 1.0, "1", None, [1], True, 2**31, -(2**31) - 1])
def test_what_is_no_priority_is_refused(priority: Any) -> None:
    with pytest.raises(InvalidArgument, match="priority"):
        hippogriff.reserve("1MiB", device="host", priority=priority)


def test_numbers_of_other_types_are_numbers() -> None:
    one: Any = np.int64(1)
    timeout: Any = np.float32(60)
    with hippogriff.reserve("1MiB", device="host", priority=one, timeout=timeout) as reservation:
        assert reservation.size_bytes == 1 << 20
    with hippogriff.reserve("1MiB", device="host", timeout=float("inf")):
        pass


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("fifo\0", {}),
        (None, {}),
        (1, {}),
        ("b\udcffst", {}),
        ("best", {}),
        ("fifo", {"overtakes": 1.5}),
        ("fifo", {"overtakes": "1"}),
        ("fifo", {"overtakes": -1}),
        ("fifo", {"seconds": "1"}),
        ("fifo", {"seconds": float("nan")}),
        ("fifo", {"seconds": -1}),
        ("fifo", {"seconds": 1e9}),
    ],
)
def test_what_is_no_policy_is_refused(policy: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        hippogriff.set_policy(policy, **options)
