"""Every example of the README, the pages of docs/ and the docstrings, run as it stands there."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

import hippogriff
import hippogriff.arrays
import hippogriff.integrity
import hippogriff.safetensors
from doc_examples import Example, find_examples, run_before
from hippogriff import _library

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
CONTENT = random.Random(9).randbytes(4 * 123_456)
EXAMPLES = {
    str(page.relative_to(REPOSITORY)): find_examples(
        str(page.relative_to(REPOSITORY)), page.read_text(encoding="utf-8")
    )
    for page in PAGES
}
COMPILERS = {"c": ("cc", "-std=c11"), "cpp": ("c++", "-std=c++20")}
# A benchmark's own file would take long here, and the doctor may find something to complain of.
COMMAND = """#!/bin/sh
if [ "$*" = bench ]; then set -- bench --size 1MiB; fi
if [ "$1" != doctor ]; then exec "{python}" -m hippogriff "$@"; fi
"{python}" -m hippogriff "$@"
status=$?
if [ $status = 1 ]; then exit 0; fi
exit $status
"""


def examples(*languages: str) -> pytest.MarkDecorator:
    """Parametrize a test by the examples in some languages."""
    found = [e for page in EXAMPLES.values() for e in page if e.language in languages]
    return pytest.mark.parametrize("example", [parameter(example) for example in found])


def parameter(example: Example) -> Any:
    """Make a parameter of an example, marked where it needs torch and nothing else."""
    chain = [*run_before(EXAMPLES[example.page], example), example]
    needs = {need.partition(">=")[0] for part in chain for need in part.needs}
    marks = [pytest.mark.torch] if needs == {"torch"} else []
    return pytest.param(example, marks=marks, id=str(example))


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the examples in the docstrings of what is public, by name."""
    for module in (hippogriff, hippogriff.arrays, hippogriff.integrity, hippogriff.safetensors):
        public = {name: getattr(module, name) for name in module.__all__}
        things = {"": module} | {name: it for name, it in public.items() if callable(it)}
        for name, thing in things.items():
            methods = vars(thing).items() if inspect.isclass(thing) else ()
            for inner, it in [("", thing), *methods]:
                parts = doctest.DocTestParser().get_examples(getattr(it, "__doc__", None) or "")
                if parts and (inner == "" or not inner.startswith("_")):
                    label = ".".join(part for part in (module.__name__, name, inner) if part)
                    yield label, "".join(part.source for part in parts)


def require(needs: list[str]) -> None:
    """Skip the test where something that an example needs is missing."""
    for need in needs:
        if need in {"cuda", "two-gpus"}:
            names = [device["name"] for device in hippogriff.devices()]
            count = sum(name.startswith("cuda:") for name in names)
            if count < 1 + (need == "two-gpus"):
                pytest.skip(f"{count} GPUs here")
        else:
            name, _, version = need.partition(">=")
            pytest.importorskip(name, minversion=version or None)
            if name == "numba.cuda":
                try:
                    importlib.import_module("numba.cuda.np.arrayobj")
                except AttributeError as error:  # As its first kernel would find out.
                    pytest.skip(f"numba-cuda does not know this NumPy: {error}")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that examples read."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(1)
    weights = {
        "embed.weight": values.standard_normal((32, 8), np.float32),
        "head.weight": values.standard_normal((16, 2048), np.float32),
    }
    Path("in.bin").write_bytes(CONTENT)
    Path("weights.bin").write_bytes(CONTENT)
    safetensors.numpy.save_file(weights, "model.safetensors", {"format": "pt"})
    shards = {name: f"model-{number}-of-2.safetensors" for number, name in enumerate(weights, 1)}
    for name, shard in shards.items():
        safetensors.numpy.save_file({name: weights[name]}, shard)
    index = {"metadata": {}, "weight_map": shards}
    Path("model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    adapter = {"embed.weight": weights["embed.weight"], "extra": np.zeros(3, np.float32)}
    safetensors.numpy.save_file(adapter, "adapter.safetensors")
    return tmp_path


def evaluate_checks(example: Example, names: dict[str, Any]) -> None:
    """See that what must hold after an example does."""
    for check in example.checks:
        assert eval(check, {"Path": Path, "np": np, **names}), f"{example}: {check}"


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("workplace")
@examples("python")
def test_python(example: Example) -> None:
    chain = [*run_before(EXAMPLES[example.page], example), example]
    for part in chain:
        if part.not_run:
            pytest.skip(part.not_run)
        require(part.needs)
    names: dict[str, Any] = {"__name__": "example"}
    for part in chain:
        exec(compile(part.setup, f"{part}: setup", "exec"), names)
        # As many lines down as on the page, for tracebacks.
        exec(compile("\n" * part.line + part.code, part.page, "exec"), names)
    evaluate_checks(example, names)


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in docstrings()])
def test_docstring(code: str) -> None:
    require(["torch", "cuda"] if "cuda:" in code else [])
    require(["two-gpus"] if "cuda:1" in code else [])
    exec(compile(code, "docstring", "exec"), {"__name__": "example"})


@examples("sh")
def test_commands(example: Example, workplace: Path) -> None:
    if example.not_run:
        pytest.skip(example.not_run)
    require(example.needs)
    programs = workplace / "programs"
    programs.mkdir()
    command = programs / "hippogriff"
    command.write_text(COMMAND.format(python=sys.executable), encoding="utf-8")
    command.chmod(0o755)
    environment = {
        **os.environ,
        "HIPPOGRIFF_LIBRARY": _library.lib._name,
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    exec(compile(example.setup, f"{example}: setup", "exec"), {"__name__": "example"})
    subprocess.run(["sh", "-eux", "-c", example.code], env=environment, check=True, timeout=120)
    evaluate_checks(example, {})


@examples("c", "cpp")
def test_compiled(example: Example, workplace: Path) -> None:
    if example.not_run:
        pytest.skip(example.not_run)
    if example.part_of:
        lines = (REPOSITORY / example.part_of).read_text(encoding="utf-8").splitlines()
        assert [line for line in example.code.splitlines() if line not in lines] == []
        return
    require(example.needs)
    compiler, standard = COMPILERS[example.language]
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    source = workplace / f"example.{example.language}"
    source.write_text(example.code, encoding="utf-8")
    library = Path(_library.lib._name).resolve()
    command = [compiler, standard, "-Wall", "-Wextra", "-Werror", f"-I{REPOSITORY / 'include'}"]
    command += [str(source), str(library), f"-Wl,-rpath,{library.parent}", "-o", "example"]
    subprocess.run(command, check=True, timeout=120)
    subprocess.run(["./example", *example.arguments], check=True, timeout=60)
    evaluate_checks(example, {})


def test_python_program_of_the_readme_copies_the_file(workplace: Path) -> None:
    program = REPOSITORY / "workloads" / "examples" / "quickstart.py"
    environment = {**os.environ, "HIPPOGRIFF_LIBRARY": _library.lib._name}
    command = [sys.executable, str(program), "in.bin", "out.bin"]
    result = subprocess.run(
        command, env=environment, check=True, timeout=60, capture_output=True, text=True
    )
    assert result.stdout.splitlines()[-1].startswith(f"{len(CONTENT)} bytes back by the route ")
    assert (workplace / "out.bin").read_bytes() == CONTENT
