"""What the table of kernels says, and that its page is of its results."""

from __future__ import annotations

import json

import pytest

from bench import kernel_resources

PTXAS = """
ptxas info    : Compiling entry function 'quick' for 'sm_90'
ptxas info    : Function properties for quick
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers, 8 bytes cumulative stack size
ptxas info    : Compiling entry function '_ZN3one4wideEi' for 'sm_80'
ptxas info    : Function properties for _ZN3one4wideEi
    64 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 128 registers, used 0 barriers
ptxas info    : Function properties for beneath
    16 bytes stack frame, 20 bytes spill stores, 40 bytes spill loads
"""


def test_spills_of_functions_are_those_of_their_kernel() -> None:
    quick, wide = kernel_resources.parse(PTXAS)
    assert (quick["kernel"], quick["registers"], quick["stack_bytes"]) == ("quick", 28, 8)
    assert quick["spill_bytes"] == 0
    assert (wide["architecture"], wide["registers"], wide["stack_bytes"]) == ("sm_80", 128, 64)
    assert wide["spill_bytes"] == 72
    assert kernel_resources.name_of(wide["kernel"]) == "wide"


@pytest.mark.parametrize(
    ("registers", "threads", "share"),
    [
        (128, 256, 0.25),
        (64, 256, 0.5),
        (96, 256, 0.25),
        (28, 256, 1),
        (33, 32, 0.5),
        (255, 32, 0.125),
    ],
)
def test_occupancy_is_that_of_the_registers(registers: int, threads: int, share: float) -> None:
    assert kernel_resources.occupancy(registers, threads) == share


def test_the_page_is_of_the_results_and_no_kernel_of_the_library_spills() -> None:
    results = json.loads(kernel_resources.RESULTS.read_text())
    assert kernel_resources.PAGE.read_text() == kernel_resources.page(results)
    of_library = [each for each in results["kernels"] if each["source"].startswith("src/")]
    assert len(of_library) == 10
    assert all(each["spill_bytes"] == 0 for each in of_library)
