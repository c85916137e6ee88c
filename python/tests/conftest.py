"""What the tests share: files to read, on disk and in memory, and a device to read them to."""

from __future__ import annotations

import atexit
import json
import os
import random
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Before the package is imported: tests must not touch the user's calibration.
_scratch = tempfile.TemporaryDirectory(prefix="hippogriff-tests-")
atexit.register(_scratch.cleanup)
os.environ["HIPPOGRIFF_CALIBRATION"] = str(Path(_scratch.name) / "calibration.json")
os.environ.setdefault("HIPPOGRIFF_DEVICE", "host")
# Tests run beside each other: every process of pytest has a node of its own.
_segment = Path("/dev/shm") / f"hippogriff-tests-{os.getpid()}"
atexit.register(_segment.unlink, missing_ok=True)
os.environ["HIPPOGRIFF_NODE"] = str(_segment) if _segment.parent.is_dir() else "off"

# Who starts the tests in the background may have interrupts ignored, which programs inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("hippogriff", deadline=None)
hypothesis.settings.load_profile("hippogriff")

from hippogriff import doctor  # noqa: E402
from hippogriff.doctor import Finding, Machine, Status  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of what `make torch` runs."""
    config.addinivalue_line("markers", "torch: needs torch, and neither a GPU nor anything else")


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system with a drive, and one in memory."""
    if request.param == "disk":
        yield tmp_path
        return
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(prefix="hippogriff-tests-", dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with a node of its own and 100 MiB of device `host`."""
    segment = Path("/dev/shm") / f"hippogriff-test-{os.getpid()}-{tmp_path.name}"
    yield {
        **os.environ,
        "HIPPOGRIFF_NODE": str(segment),
        "HIPPOGRIFF_DEVICE": "host",
        "HIPPOGRIFF_HOST_MEMORY": "100MiB",
        "HIPPOGRIFF_CUDA_DRIVER": "",
        "HIPPOGRIFF_NVML": "",
    }
    segment.unlink(missing_ok=True)


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    """A file of 48 MiB and a few bytes."""
    path = tmp_path / "big"
    path.write_bytes(random.Random(1).randbytes((48 << 20) + 13))
    return path


@pytest.fixture(scope="session")
def draw_index() -> Callable[[st.DataObject, tuple[int, ...]], tuple[Any, ...]]:
    """Return what draws an index of integers, slices and ellipses, in bounds or not."""
    bound = st.none() | st.integers(-12, 12)
    step = st.none() | st.integers(1, 4)
    number = st.integers(-9, 8)
    parts = st.builds(slice, bound, bound, step) | number | number.map(np.int64)

    def draw(data: st.DataObject, shape: tuple[int, ...]) -> tuple[Any, ...]:
        index: list[Any] = data.draw(st.lists(parts, max_size=len(shape)))
        if data.draw(st.booleans()):
            index.insert(data.draw(st.integers(0, len(index))), Ellipsis)
        return tuple(index)

    return draw


@pytest.fixture
def torch() -> Any:
    """Return torch where it sees a GPU."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return module


@pytest.fixture
def cupy() -> Any:
    """Return CuPy where it sees a GPU."""
    module = pytest.importorskip("cupy")
    try:
        count = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError:
        count = 0
    if not count:
        pytest.skip("CuPy sees no GPU")
    return module


_GIB = 1 << 30
_GPU = {"name": "H100", "uuid": "GPU-1", "bus_id": "0000:1b:00.0", "compute_mode": 0}
_LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             {processes}                96365                processes
Max open files            {files}                20000                files
Max locked memory         {locked}              unlimited              bytes
Max address space         {space}            unlimited            bytes
"""
_PLACE = {"path": "/models", "mount_point": "/", "filesystem": "ext4", "drive": {"name": "nvme0n1"}}
_LIBRARY = {
    "version": "0.1.0",
    "io_queue": "io_uring",
    "path": _PLACE,
    "drive": {"name": "nvme0n1"},
}
_FILE = {"why_not": "", "block_bytes": 4096, "direct_io": "", "nowait": "", "cachestat": ""}


class Made:
    """A made-up machine: files below a folder, and what the probes answer."""

    bus_id = _GPU["bus_id"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = Machine("/models", root=folder, environ={})
        # Cached properties: what is stored here is not asked.
        self.runtime: dict[str, Any] = json.loads(json.dumps(_LIBRARY))
        self.driver: dict[str, Any] = {"devices": [], "why_not": "libcuda.so.1: no such file"}
        self.file: dict[str, Any] = dict(_FILE)
        self.write("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
        self.write("/proc/meminfo", f"MemTotal:       {512 * _GIB // 1024} kB\nMemFree: 1 kB\n")
        self.write("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-15\n")
        self.write("/proc/self/cgroup", "0::/\n")
        self.limits()

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def limits(
        self,
        processes: str = "unlimited",
        files: str = "1048576",
        locked: str = "unlimited",
        space: str = "unlimited",
    ) -> None:
        text = _LIMITS.format(processes=processes, files=files, locked=locked, space=space)
        self.write("/proc/self/limits", text)

    def gpus(self, count: int = 1, **facts: Any) -> None:
        self.driver = {"devices": [{**_GPU, **facts}] * count, "version": 13000, "why_not": ""}

    def ask(self, name: str) -> list[Finding]:
        vars(self.machine).update(runtime=self.runtime, driver=self.driver, file=self.file)
        checks = [check for check in doctor.CHECKS if check.__name__ == name]
        assert len(checks) == 1
        return doctor.diagnose(machine=self.machine, checks=checks)

    def one(self, name: str) -> Finding:
        (finding,) = self.ask(name)
        assert finding.check == name.replace("_", " ")
        assert (finding.meaning == "") == (finding.status == Status.OK)
        return finding

    def expect(self, name: str, status: Status, *words: str) -> None:
        """Of the one finding of a check: its status, and words in it."""
        finding = self.one(name)
        assert finding.status == status, finding
        for word in words:
            assert word in f"{finding.found}\n{finding.meaning}\n{finding.advice}"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A made-up machine on which all is well."""
    return Made(tmp_path)
