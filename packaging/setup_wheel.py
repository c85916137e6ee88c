"""The wheel's setup.py: tools/make_wheel.py puts it beside pyproject.toml and builds there."""

from __future__ import annotations

from pathlib import Path

import setuptools
from setuptools.command.bdist_wheel import bdist_wheel


class Distribution(setuptools.Distribution):  # type: ignore[misc]  # setuptools has no types.
    """A package for one platform."""

    def has_ext_modules(self) -> bool:
        """Say that it holds what was compiled."""
        return True


class Wheel(bdist_wheel):  # type: ignore[misc]
    """A wheel for every CPython: ctypes loads the library, nothing is linked to the interpreter."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of interpreter, ABI and platform."""
        return "py3", "none", Path("platform_tag").read_text(encoding="utf-8")


setuptools.setup(distclass=Distribution, cmdclass={"bdist_wheel": Wheel})
