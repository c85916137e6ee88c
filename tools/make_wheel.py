"""Makes the wheel: the Python package with libhippogriff.so inside, for every CPython from 3.11 on.

``python tools/make_wheel.py --library build/libhippogriff.so --output dist``. The wheel's platform
tag is what the library needs (PEP 600): manylinux_2_35 where the newest symbol it takes from glibc
is of 2.35. A library that needs others beside glibc's is refused: it would not load elsewhere.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = Path("python") / "hippogriff"
# Stands in for the CUDA driver in `hippogriff run`; there where the library was built with CUDA.
SHIM = Path("lib") / "hippogriff" / "shim" / "libcuda.so.1"
# What every machine with glibc has, by its name without the version at the end.
GLIBC_PARTS = {
    "libc",
    "libm",
    "libdl",
    "librt",
    "libpthread",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
}
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
# There is no older manylinux for both machines.
OLDEST_GLIBC = (2, 17)


class WheelError(Exception):
    """There can be no wheel with this library; the message says why."""


def platform_tag(facts: str) -> str:
    """Return a library's platform tag from what readelf prints of it.

    Raises
    ------
    WheelError
        When the library needs others than glibc's, or is for no machine that has wheels.
    """
    others = sorted(set(re.findall(r"\(NEEDED\).*\[(.*?)\.so", facts)) - GLIBC_PARTS)
    if others:
        raise WheelError(f"it needs {', '.join(others)}, and may need glibc alone")
    machine = re.search(r"^ *Machine: *(.*?) *$", facts, re.MULTILINE)
    if machine is None or machine[1] not in MACHINES:
        raise WheelError(
            f"no wheels are made for {machine[1] if machine else 'an unknown machine'}"
        )
    found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", facts)
    major, minor = max([OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in found)])
    return f"manylinux_{major}_{minor}_{MACHINES[machine[1]]}"


def read_facts(library: Path) -> str:
    """Return what readelf prints of a library: its machine, what it needs, of which versions."""
    command = ["readelf", "--wide", "--file-header", "--dynamic", "--version-info", str(library)]
    plain = {**os.environ, "LC_ALL": "C"}
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=plain)
    if result.returncode != 0 or result.stderr:
        raise WheelError(result.stderr.strip())
    return result.stdout


def stage(library: Path, tag: str, folder: Path) -> None:
    """Put what the wheel is made of, and nothing else, into a folder."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(REPOSITORY / name, folder / name)
    shutil.copy2(REPOSITORY / "packaging" / "setup_wheel.py", folder / "setup.py")
    (folder / "platform_tag").write_text(tag, encoding="utf-8")
    without = shutil.ignore_patterns("__pycache__", "libhippogriff.so*")
    shutil.copytree(REPOSITORY / PACKAGE, folder / PACKAGE, ignore=without)
    shutil.copytree(REPOSITORY / "include", folder / PACKAGE / "include")
    # Without what debuggers read, which is most of it.
    strip(library, folder / PACKAGE / "libhippogriff.so")
    shim = library.resolve().parent / SHIM
    if shim.is_file():
        strip(shim, folder / PACKAGE / SHIM)
        # Wheels hold no links: a library that brings it goes by its other name.
        named = shim.parents[1] / "shim_name" / "libcuda.so"
        strip(named, folder / PACKAGE / SHIM.with_name(named.name))


def strip(library: Path, packed: Path) -> None:
    """Copy a library without what its users do not need."""
    packed.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "--strip-unneeded", "-o", str(packed), str(library)], check=True)


def make_wheel(library: Path, output: Path) -> Path:
    """Make the wheel with a library in it, in a folder, and return its path.

    Raises
    ------
    WheelError
        When there can be none with this library, or building it failed.
    """
    tag = platform_tag(read_facts(library))
    with tempfile.TemporaryDirectory(prefix="hippogriff-wheel-") as name:
        folder = Path(name)
        stage(library, tag, folder)
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
        command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", "dist", "."]
        result = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
        if result.returncode != 0:
            raise WheelError(f"pip could not build it:\n{result.stdout}{result.stderr}")
        (made,) = (folder / "dist").glob("*.whl")
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(made, output / made.name))


def main() -> int:
    """Make the wheel that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--library", dest="built", type=Path, required=True, help="a libhippogriff.so"
    )
    parser.add_argument("--output", type=Path, default=Path("dist"), help="the wheel's folder")
    options = parser.parse_args()
    try:
        path = make_wheel(options.built, options.output)
    except WheelError as error:
        print(f"no wheel of {options.built}: {error}", file=sys.stderr)
        return 1
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
