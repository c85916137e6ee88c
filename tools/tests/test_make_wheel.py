"""The wheel is installed and used as on a machine that has neither checkout nor compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
import rich
import safetensors.numpy

from make_wheel import WheelError, make_wheel, platform_tag, read_facts

REPOSITORY = Path(__file__).resolve().parents[2]
LOAD = """
import hippogriff, sys
from hippogriff.safetensors import load_file
assert hippogriff.__file__.startswith(sys.prefix), hippogriff.__file__
assert hippogriff.get_include().startswith(sys.prefix), hippogriff.get_include()
print(load_file("model.safetensors", device="cpu", framework="np")["weight"].sum())
"""
SHIM = "lib/hippogriff/shim"
NAMES = ("libcuda.so", "libcuda.so.1")  # by which programs open the driver
OPEN = """
import ctypes
driver = ctypes.CDLL("{name}")
mapped = open("/proc/self/maps").read().split()
print(*{{part for part in mapped if part.endswith("/libcuda.so.1")}}, hasattr(driver, "cuInit"))
"""
FACTS = """
  Machine:                           Advanced Micro Devices X86-64
 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [ld-linux-x86-64.so.2]
  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 22
  0x0030:   Name: GLIBC_2.28  Flags: none  Version: 16
  0x0050:   Name: GLIBC_2.2.5  Flags: none  Version: 23
"""


@pytest.fixture(scope="module")
def library() -> Path:
    named = os.environ.get("HIPPOGRIFF_LIBRARY", str(REPOSITORY / "build" / "libhippogriff.so"))
    if not Path(named).is_file():
        pytest.skip("the library is not built")
    return Path(named)


def has_shim(library: Path) -> bool:
    """Say whether the build has it: it wants CUDA's headers."""
    return (library.resolve().parent / SHIM / "libcuda.so.1").is_file()


@pytest.fixture(scope="module")
def wheel(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(library, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of a new environment with the wheel in it."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "install", *options, str(wheel)], check=True)
    # What it depends on is taken from here: its .pth files, the checkout's too, are not read there.
    (packages,) = environment.glob("lib/python3*/site-packages")
    dependencies = Path(rich.__file__).parents[1]
    (packages / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    return environment / "bin"


def run(installed: Path, folder: Path, program: str, *arguments: str) -> str:
    """Run a program of the environment: it finds no other programs, and no library by its name."""
    variables = {"PATH": str(installed), "HOME": str(folder), "HIPPOGRIFF_DEVICE": "host"}
    result = subprocess.run(
        [str(installed / program), *arguments],
        check=True,
        cwd=folder,
        env=variables,
        timeout=60,
        capture_output=True,
        text=True,
    )
    return result.stdout


def test_the_wheel_holds_the_package_its_types_and_the_libraries(
    wheel: Path, library: Path
) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = REPOSITORY / "python" / "hippogriff"
    sources = {str(path.relative_to(package.parent)) for path in package.rglob("*.py")}
    assert sources | {"hippogriff/py.typed", "hippogriff/libhippogriff.so"} <= names
    others = {name for name in names - sources if ".dist-info/" not in name}
    built = {f"hippogriff/{SHIM}/{name}" for name in NAMES} if has_shim(library) else set()
    include = REPOSITORY / "include"
    headers = {
        f"hippogriff/{path.relative_to(REPOSITORY)}"
        for path in include.rglob("*")
        if path.is_file()
    }
    assert "hippogriff/include/hippogriff/array.cuh" in headers
    assert others == {"hippogriff/py.typed", "hippogriff/libhippogriff.so"} | built | headers


@pytest.mark.parametrize("name", NAMES)
def test_whoever_opens_the_driver_by_a_name_gets_the_installed_shim(
    installed: Path, library: Path, tmp_path: Path, name: str
) -> None:
    if not has_shim(library):
        pytest.skip("the shim is not built")
    (shim,) = installed.parent.glob(f"lib/python3*/site-packages/hippogriff/{SHIM}")
    # As the driver's own, which programs find where no other comes before.
    elsewhere = tmp_path / "driver"
    elsewhere.mkdir()
    for each in NAMES:
        shutil.copy(library, elsewhere / each)
    script = OPEN.format(name=name)
    path = f"LD_LIBRARY_PATH={shim}:{elsewhere}"
    opened = run(installed, tmp_path, "/usr/bin/env", path, f"{installed}/python", "-c", script)
    assert opened.split() == [str(shim / "libcuda.so.1"), "True"]


def test_the_wheels_name_says_which_glibc_the_library_needs(wheel: Path, library: Path) -> None:
    interpreter, abi, platform = wheel.stem.split("-")[2:]
    assert (interpreter, abi) == ("py3", "none")
    assert platform == platform_tag(read_facts(library))


def test_the_installed_wheel_loads_a_model(installed: Path, tmp_path: Path) -> None:
    weight = np.arange(1000, dtype=np.int64)
    safetensors.numpy.save_file({"weight": weight}, tmp_path / "model.safetensors")
    assert run(installed, tmp_path, "python", "-c", LOAD) == "499500\n"


def test_the_installed_command_works(installed: Path, tmp_path: Path) -> None:
    version = run(installed, tmp_path, "hippogriff", "--version").strip()
    assert (
        json.loads(run(installed, tmp_path, "hippogriff", "info", "--json"))["version"] == version
    )


def test_the_tag_follows_the_newest_symbol() -> None:
    assert platform_tag(FACTS) == "manylinux_2_28_x86_64"
    assert platform_tag(FACTS.replace("2.28", "2.4")) == "manylinux_2_17_x86_64"


def test_a_library_that_needs_others_is_refused() -> None:
    with pytest.raises(WheelError, match="it needs liburing, and may need glibc alone"):
        platform_tag(FACTS.replace("libm.so.6", "liburing.so.2"))


def test_a_machine_without_wheels_is_refused() -> None:
    with pytest.raises(WheelError, match="no wheels are made for RISC-V"):
        platform_tag(FACTS.replace("Advanced Micro Devices X86-64", "RISC-V"))


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="ELF"):
        read_facts(Path(__file__))
    with pytest.raises(WheelError, match="absent"):
        read_facts(tmp_path / "absent")
