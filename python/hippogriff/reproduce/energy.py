"""Energy: a GPU's by NVML's counter, CPUs' by RAPL where the machine lets it be read."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from pathlib import Path
from typing import Any

#: The model of CPU energy: so many watts for each core while it is busy, none while it is idle.
CORE_WATTS = 10.0
#: NVML's counter is refreshed every 100 ms: shorter measurements tell little.
SECONDS_MIN = 2.0
_RAPL = Path("/sys/class/powercap")
# A GPU keeps its clocks, and half as much power again, for seconds after its last context is gone.
_REST_SECONDS_MAX = 20.0
_LOOK_SECONDS = 2.0  # many refreshes of the counter
_SPREAD = 0.1
_SM_CLOCK = 1  # NVML_CLOCK_SM


def _nvml() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ.get("HIPPOGRIFF_NVML") or "libnvidia-ml.so.1")


def driver_version() -> str:
    """Return the version of NVIDIA's driver; "" where there is none."""
    text = ctypes.create_string_buffer(81)
    with contextlib.suppress(OSError, AttributeError):
        nvml = _nvml()
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, 81) == 0:
            return text.value.decode(errors="replace")
    return ""


class GpuEnergy:
    """Joules that a GPU's board has taken since its driver was loaded."""

    def __init__(self, device: str) -> None:
        self.why_not = ""
        self._handle = ctypes.c_void_p()
        if not device.startswith("cuda:"):
            self.why_not = f"device {device} is no GPU"
            return
        try:
            self._nvml = _nvml()
        except OSError as error:
            self.why_not = f"NVML: {error}"
            return
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        number = int(device.removeprefix("cuda:"))
        if number < len(visible) and visible[number].strip():
            if not visible[number].strip().isdigit():
                self.why_not = "CUDA_VISIBLE_DEVICES names GPUs by UUID"
                return
            number = int(visible[number])
        status = self._nvml.nvmlInit_v2()
        status = status or self._nvml.nvmlDeviceGetHandleByIndex_v2(
            ctypes.c_uint(number), ctypes.byref(self._handle)
        )
        if status:
            self.why_not = f"NVML's status {status}"
            return
        self.joules()

    def joules(self) -> float | None:
        """Return the counter, or None where there is none."""
        if self.why_not:
            return None
        millijoules = ctypes.c_ulonglong()
        status = self._nvml.nvmlDeviceGetTotalEnergyConsumption(
            self._handle, ctypes.byref(millijoules)
        )
        if status:
            self.why_not = f"nvmlDeviceGetTotalEnergyConsumption: status {status}"
            return None
        return millijoules.value / 1000

    def clocks_are_low(self) -> bool:
        """Whether it runs at less than half of its clock, or does not say: no context holds it."""
        now, most = ctypes.c_uint(), ctypes.c_uint()
        with contextlib.suppress(AttributeError):
            status = self._nvml.nvmlDeviceGetClockInfo(self._handle, _SM_CLOCK, ctypes.byref(now))
            status = status or self._nvml.nvmlDeviceGetMaxClockInfo(
                self._handle, _SM_CLOCK, ctypes.byref(most)
            )
            if status == 0:
                return 2 * now.value < most.value
        return True


class CpuEnergy:
    """Joules of the processors' packages, by RAPL."""

    def __init__(self) -> None:
        self.why_not = ""
        self._domains = [
            path for path in sorted(_RAPL.glob("intel-rapl:*")) if path.name.count(":") == 1
        ]
        if not self._domains:
            self.why_not = f"no RAPL in {_RAPL}"
        with contextlib.suppress(OSError):
            self.joules()

    def joules(self) -> float | None:
        """Return the sum of the counters, or None where they cannot be read."""
        if self.why_not:
            return None
        try:
            return sum(int((path / "energy_uj").read_text()) for path in self._domains) / 1e6
        except (OSError, ValueError) as error:
            self.why_not = f"RAPL: {error}"
            return None


class Meter:
    """Energy between `begin` and `end`."""

    def __init__(self, device: str) -> None:
        self.gpu = GpuEnergy(device)
        self.cpu = CpuEnergy()
        self._begin: tuple[float | None, float | None, float] = (None, None, 0.0)

    @property
    def measures(self) -> bool:
        """Whether there is a counter at all."""
        return not (self.gpu.why_not and self.cpu.why_not)

    def rest(self) -> bool | None:
        """Wait until the GPU's clocks are low and it takes the same power; whether it came to that.

        None where there is no counter, or none any more: nothing is known then.
        """
        end = time.monotonic() + _REST_SECONDS_MAX
        last = 0.0
        before, then = self.gpu.joules(), time.monotonic()
        while before is not None and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
            joules, now = self.gpu.joules(), time.monotonic()
            if joules is None:
                return None
            watts = (joules - before) / (now - then)
            if self.gpu.clocks_are_low() and abs(watts - last) <= _SPREAD * last:
                return True
            last, before, then = watts, joules, now
        return None if before is None else False

    def begin(self) -> None:
        """Begin."""
        self._begin = (self.gpu.joules(), self.cpu.joules(), time.monotonic())

    def end(self) -> dict[str, Any]:
        """Return joules and seconds; what was not measured says why."""
        now = (self.gpu.joules(), self.cpu.joules())
        measured: dict[str, float] = {}
        why_absent: dict[str, str] = {}
        for name, before, after, source in (
            ("gpu", self._begin[0], now[0], self.gpu),
            ("cpu", self._begin[1], now[1], self.cpu),
        ):
            if before is None or after is None or after < before:  # RAPL's counter wraps.
                why_absent[name] = source.why_not or "its counter began anew"
            else:
                measured[f"{name}_joules"] = after - before
        seconds = time.monotonic() - self._begin[2]
        return {"seconds": seconds, "measured": measured, "why_absent": why_absent}


def modelled(cpu_seconds: float) -> dict[str, float]:
    """Return what the model says of so many seconds of a core. It is never added in results."""
    return {"cpu_joules": CORE_WATTS * cpu_seconds, "watts_for_a_busy_core": CORE_WATTS}
