"""What the README shows, run as it stands there."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from hippogriff import _library

README = Path(__file__).parents[2] / "README.md"
CONTENT = random.Random(9).randbytes(4 * 123_457)


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in one language."""
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def with_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the file that the README reads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.bin").write_bytes(CONTENT)
    return tmp_path


def test_python_block_copies_the_file(with_input: Path) -> None:
    block, _ = blocks("python")
    names: dict[str, object] = {}
    exec(compile(block, str(README), "exec"), names)
    assert (with_input / "out.bin").read_bytes() == CONTENT
    assert names["data"].shape == (123_457,)  # type: ignore[attr-defined]


def test_model_weights_block_loads_and_saves(with_input: Path) -> None:
    _, block = blocks("python")
    weight = np.arange(24, dtype=np.float16).reshape(6, 4)
    safetensors.numpy.save_file({"weight": weight}, with_input / "model.safetensors")
    exec(compile(block, str(README), "exec"), {})
    saved = safetensors.numpy.load_file(with_input / "half.safetensors")
    assert (saved["half"] == weight[:3]).all()


def test_every_command_of_the_command_line_block_works(with_input: Path) -> None:
    (block,) = [block for block in blocks("sh") if block.startswith("hippogriff ")]
    environment = {**os.environ, "HIPPOGRIFF_LIBRARY": _library.lib._name}
    commands = [line.split("#")[0].split() for line in block.splitlines()]
    assert len(commands) == 6
    for _, *arguments in commands:
        if arguments == ["bench"]:
            arguments += ["--size", "1MiB"]  # as large as the file in the README would take long
        subprocess.run(
            [sys.executable, "-m", "hippogriff", *arguments],
            env=environment,
            check=True,
            timeout=120,
            capture_output=True,
        )
    assert (with_input / "out.bin").read_bytes() == CONTENT


def test_python_program_copies_the_file(with_input: Path) -> None:
    program = README.parent / "workloads" / "examples" / "quickstart.py"
    environment = {**os.environ, "HIPPOGRIFF_LIBRARY": _library.lib._name}
    command = [sys.executable, str(program), "in.bin", "out.bin"]
    result = subprocess.run(
        command, env=environment, check=True, timeout=60, capture_output=True, text=True
    )
    assert result.stdout.splitlines()[-1].startswith(f"{len(CONTENT)} bytes back by the route ")
    assert (with_input / "out.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("language", "program"), [("c", "quickstart.c"), ("cpp", "quickstart.cpp")]
)
def test_compiled_blocks_are_part_of_the_programs_that_are_tested(
    language: str, program: str
) -> None:
    source = (README.parent / "workloads" / "examples" / program).read_text(encoding="utf-8")
    (block,) = blocks(language)
    for line in block.splitlines():
        assert line in source.splitlines(), line
