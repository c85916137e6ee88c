"""Finds and loads libhippogriff.so, the one library behind this package."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from hippogriff import _abi

LIBRARY_NAME = "libhippogriff.so"
SONAME = "libhippogriff.so.0"

_HOW_TO_GET_IT = (
    "Install the wheel (pip install hippogriff-gpu), or build a source checkout by running `make` "
    "in it, or name the library in HIPPOGRIFF_LIBRARY."
)


def candidates(package_folder: Path) -> list[Path]:
    """Files that may be the library, best first; existing ones only."""
    checkout = package_folder.parent.parent
    builds = [checkout / "build"]
    if (checkout / "include" / "hippogriff").is_dir():
        builds += sorted(checkout.glob("build-*"))
    folders = [package_folder, *builds]
    return [folder / name for folder in folders for name in (LIBRARY_NAME, SONAME)]


def load() -> ctypes.CDLL:
    """Load the library and declare its functions.

    Raises
    ------
    ImportError
        When there is no library, or when it is of another version than this package.
    """
    named = os.environ.get("HIPPOGRIFF_LIBRARY")
    if named:
        # A name without a slash is looked for where libraries are, not in the working directory.
        file = f"./{named}" if "/" not in named and Path(named).is_file() else named
        return _open(file, f"HIPPOGRIFF_LIBRARY={named}")
    for path in candidates(Path(__file__).resolve().parent):
        if path.is_file():
            return _open(str(path), str(path))
    from ctypes.util import find_library  # An eighth of the time we take to import; rarely needed.

    found = find_library("hippogriff")
    if found is not None:
        return _open(found, found)
    raise ImportError(f"hippogriff: {LIBRARY_NAME} was not found. {_HOW_TO_GET_IT}")


def _open(file: str, shown: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(file)
        _abi.declare(library)
    except (OSError, AttributeError) as error:
        raise ImportError(f"hippogriff: cannot use {shown}: {error}. {_HOW_TO_GET_IT}") from error
    version = library.hippogriff_version().decode()
    if version.split(".")[:2] != list(_abi.VERSION[:2]):
        wanted = ".".join(_abi.VERSION)
        raise ImportError(
            f"hippogriff: {shown} is version {version}, this package needs {wanted}. "
            f"{_HOW_TO_GET_IT}"
        )
    return library


def _load() -> ctypes.CDLL:
    """Load it for this program; the command ends without it, and shows no traceback."""
    try:
        return load()
    except ImportError as error:
        program = (getattr(sys, "argv", None) or [""])[0]
        if program == "-m" or Path(program).name == "hippogriff":  # "-m": this is its module
            raise SystemExit(str(error)) from None
        raise


lib: ctypes.CDLL = _load()
