"""What kvikio_bench measures side by side: each moves a file into an array and back."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bench.cases import MIB

if TYPE_CHECKING:
    from pathlib import Path


class Contender(Protocol):
    """One way of moving a file into an array and back."""

    name: str
    parameters: dict[str, Any]

    def send(self, path: Path, array: Any, offset: int) -> None:
        """Fill the array from the file at the offset."""

    def recv(self, path: Path, array: Any, offset: int) -> None:
        """Write the array into the file at the offset."""


class KvikIO:
    """KvikIO's CuFile with some of its settings."""

    def __init__(self, module: Any, settings: dict[str, Any]) -> None:
        self._module = module
        self._defaults = importlib.import_module("kvikio.defaults")
        self.name = "kvikio" if not settings else "kvikio_swept"
        self.parameters = settings

    def send(self, path: Path, array: Any, offset: int) -> None:
        """Read in parallel, as CuFile.read does."""
        with self._settings(), self._module.CuFile(path, "r") as file:
            self._check(file.read(array, file_offset=offset), array)

    def recv(self, path: Path, array: Any, offset: int) -> None:
        """Write in parallel, as CuFile.write does."""
        with self._settings(), self._module.CuFile(path, "r+") as file:
            self._check(file.write(array, file_offset=offset), array)

    def _settings(self) -> contextlib.AbstractContextManager[None]:
        if not self.parameters:
            return contextlib.nullcontext()
        manager: contextlib.AbstractContextManager[None] = self._defaults.set(self.parameters)
        return manager

    @staticmethod
    def _check(moved: int, array: Any) -> None:
        if moved != array.nbytes:
            raise OSError(f"KvikIO moved {moved} of {array.nbytes} bytes")


class Hippogriff:
    """hippogriff's Python package with its defaults."""

    name = "hippogriff_python"

    def __init__(self, module: Any) -> None:
        self._module = module
        self.parameters: dict[str, Any] = {}

    def send(self, path: Path, array: Any, offset: int) -> None:
        """Read into the array."""
        with self._module.open(path) as file:
            file.read_into(array, offset=offset)

    def recv(self, path: Path, array: Any, offset: int) -> None:
        """Write from the array."""
        with self._module.open(path, "r+") as file:
            file.write_from(array, offset=offset)


class Naive:
    """The program everybody writes first: ordinary memory, one read, one copy."""

    name = "naive"

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}

    def send(self, path: Path, array: Any, offset: int) -> None:
        """Read, then copy."""
        memory = np.fromfile(path, np.uint8, array.nbytes, offset=offset)
        if isinstance(array, np.ndarray):
            array[:] = memory
        else:
            array.set(memory)

    def recv(self, path: Path, array: Any, offset: int) -> None:
        """Copy, then write."""
        memory = array if isinstance(array, np.ndarray) else array.get()
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(memory.data)


def make_contenders(*, sweep: bool, naive: bool) -> tuple[list[Contender], dict[str, str]]:
    """Return what is installed here, and why the rest is not there."""
    contenders: list[Contender] = [Naive()] if naive else []
    absent: dict[str, str] = {}
    try:
        module = importlib.import_module("hippogriff")
        contenders.append(Hippogriff(module))
    except (ImportError, OSError) as error:
        absent["hippogriff_python"] = str(error)
    try:
        module = importlib.import_module("kvikio")
        contenders.append(KvikIO(module, {}))
        threads = (1, 4, 8, 16, 32) if sweep else (16,)
        sizes = (MIB, 4 * MIB, 16 * MIB) if sweep else (4 * MIB,)
        for count in threads:
            for size in sizes:
                settings = {"num_threads": count, "task_size": size, "bounce_buffer_size": size}
                contenders.append(KvikIO(module, settings))
        direct = {"num_threads": 8, "task_size": 4 * MIB, "bounce_buffer_size": 4 * MIB}
        contenders.append(
            KvikIO(module, {**direct, "auto_direct_io_read": True, "auto_direct_io_write": True})
        )
    except (ImportError, OSError, RuntimeError) as error:
        absent["kvikio"] = str(error)
    return contenders, absent
