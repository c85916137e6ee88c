"""`hippogriff reproduce`: kernels beside what their device could do."""

from __future__ import annotations

from typing import Any

from reproduce_programs import whole

from hippogriff.reproduce.all_figures import figures
from hippogriff.reproduce.figures import Measurements


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
