"""`hippogriff reproduce`: kernels beside what their device could do."""

from __future__ import annotations

from typing import Any

import pytest
from reproduce_programs import whole

from hippogriff.reproduce.all_figures import figures
from hippogriff.reproduce.figures import Measurements
from hippogriff.reproduce.papers import MOVEMENT_ENERGY_SHARE


def kernel(seconds: float, **cost: float) -> dict[str, Any]:
    record = whole("nn", "baseline", 0)
    phases = {**record["result"]["seconds"], "kernels": seconds}
    return {**record, "result": {**record["result"], "seconds": phases, **cost}}


def test_kernels_are_compared_with_what_the_device_could_do() -> None:
    runs = [{"machine": {"device": "NVIDIA H100 80GB HBM3"}}]
    records = [kernel(1.0, kernel_bytes=1.675e12, kernel_operations=6.7e12)]
    figure = next(f for f in figures(Measurements(runs, records)) if f.name == "kernels")
    (panel,) = figure.panels
    assert [v.median for v in panel.series["memory's bandwidth"] if v] == [0.5]
    assert [v.median for v in panel.series["float32 arithmetic"] if v] == [0.1]
    assert "NN 50%. The limits are the data sheet's, 3.35 TB/s and 67 Tflop/s" in figure.why
    short = [kernel(0.001, kernel_bytes=1e9, kernel_operations=0)]
    figure = next(f for f in figures(Measurements(runs, short)) if f.name == "kernels")
    assert any("NN 1.0 ms" in note for note in figure.notes)
    assert not any(figure.panels[0].series["float32 arithmetic"])
    unknown = [{"machine": {"device": "host memory"}}]
    figure = next(f for f in figures(Measurements(unknown, records)) if f.name == "kernels")
    assert figure.empty
    assert "No data sheet of device host" in figure.notes[0]


def test_energy_of_kernels_is_bounded_by_what_the_board_takes_at_most() -> None:
    def measured(joules: float, state: str) -> dict[str, Any]:
        energy = {"measured": {"gpu_joules": joules}, "seconds": 5.0, "why_absent": {}}
        fields = {"state": state, "energy": energy, "runs": [kernel(0.5)] * 2}
        return {
            **whole("nn", "baseline", 0),
            **fields,
            "key": f"energy/nn/large/{state}/baseline/0",
        }

    runs = [{"machine": {"device": "NVIDIA H100 80GB HBM3"}}]
    # Two runs with half a second of kernels each, at 700 W.
    records = [measured(1400.0, "cold"), measured(1000.0, "cached")]
    made = figures(Measurements(runs, records))
    figure = next(f for f in made if f.name == "kernel_energy")
    (panel,) = figure.panels
    shares = {state: [v.median for v in values if v] for state, values in panel.series.items()}
    assert shares == {"cold": [0.5, 0.5], "cached": pytest.approx([0.3, 0.3])}
    assert panel.said == MOVEMENT_ENERGY_SHARE["large"]
    assert "at least 50% cold" in figure.why
    other = [{"machine": {"device": "another"}}]
    made = figures(Measurements(other, records))
    assert next(f for f in made if f.name == "kernel_energy").empty
