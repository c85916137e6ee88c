"""The headers for C, C++ and CUDA that belong to this package, and how kernels are compiled."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from hippogriff._library import lib
from hippogriff.errors import Unsupported, check


def get_include() -> str:
    """Return the folder of the headers: ``#include <hippogriff/array.cuh>`` wants it searched.

    Raises
    ------
    Unsupported
        Where the package was installed without them.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "include", package.parent.parent / "include"):
        if (folder / "hippogriff" / "array.cuh").is_file():
            return str(folder)
    raise Unsupported(f"the headers are not beside {package}: install the wheel, which has them")


@functools.cache
def get_compile_options(*, count_hits: bool = False) -> tuple[str, ...]:
    """Return options for NVRTC and nvcc, with which kernels take ``StorageArray.view``.

    The language, the headers' folder, and two macros: one lets the headers refuse views of another
    library, the other changes when they do, because CuPy keeps compiled kernels by source and
    options alone. Kernels also need ``<cuda/atomic>`` of CCCL, which CuPy brings along.

    Parameters
    ----------
    count_hits
        Also a macro with which kernels count how many lines they ask for, one access in 64, so that
        statistics and ``hippogriff top`` have hits. Such kernels take up to 8 registers more.

    Raises
    ------
    Unsupported
        Where the package was installed without headers.
    """
    import hashlib  # Nobody else here needs it: a twentieth of the time we take to import.

    include = get_include()
    content = hashlib.sha256()
    for path in sorted(Path(include).rglob("*")):
        if path.is_file():
            content.update(path.read_bytes())
    size, layout = ctypes.c_size_t(), ctypes.c_uint32()
    check(lib.hippogriff_array_element_view(None, 0, None, size, layout))
    return (
        "--std=c++17",
        f"-I{include}",
        f"-DHIPPOGRIFF_VIEW_LAYOUT={layout.value}",
        f"-DHIPPOGRIFF_HEADERS=0x{content.hexdigest()[:16]}",
        *(("-DHIPPOGRIFF_COUNT_ACCESSES",) if count_hits else ()),
    )
