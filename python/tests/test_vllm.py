"""vLLM, where it is installed, has the same model by contrib/vllm as by its own loader."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from vllm_program import NO_DEVICE

from hippogriff import _library

REPOSITORY = Path(__file__).parents[2]
PLUGIN = REPOSITORY / "contrib" / "vllm"
PROGRAM = Path(__file__).with_name("vllm_program.py")

# Seconds: vLLM takes most of a minute to start on two cores.
SECONDS = 280
# Embeddings twice; in each of two layers attention (grouped by two), three matrices, norms; a norm.
PARAMETERS = 2 * 256 * 128 + 2 * (3 * 128 * 128 + 3 * 256 * 128 + 2 * 128) + 128


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the plugin is as if it were installed."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed: see docs/howto/engines.md")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = tmp_path_factory.mktemp("site")
    about = site / f"hippogriff_vllm-{project['version']}.dist-info"
    about.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(metadata, encoding="utf-8")
    lines = ""
    for group, entries in project["entry-points"].items():
        lines += f"[{group}]\n" + "".join(f"{name} = {what}\n" for name, what in entries.items())
    (about / "entry_points.txt").write_text(lines, encoding="utf-8")
    folders = [site, PLUGIN, PROGRAM.parent, REPOSITORY / "python"]
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; without it 92 % of the memory must be free.
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **os.environ,
        "HIPPOGRIFF_LIBRARY": str(Path(_library.lib._name).resolve()),
        "PYTHONPATH": os.pathsep.join(
            [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }


@pytest.fixture(scope="module")
def model_folder(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    call(environment, "make", str(folder))
    return folder


def call(environment: dict[str, str], *arguments: str) -> str:
    """Run the program; return what it printed."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode == NO_DEVICE:
        pytest.skip("this build of vllm finds no device here")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def run(environment: dict[str, str], folder: Path, load_format: str) -> dict[str, Any]:
    """Load the model by a format and return what came of it."""
    printed = call(environment, "run", str(folder), load_format)
    [result] = [line for line in printed.splitlines() if line.startswith("RESULT ")]
    found: dict[str, Any] = json.loads(result.removeprefix("RESULT "))
    return found


@pytest.mark.timeout(3 * SECONDS)
def test_vllm_loads_and_generates_the_same_as_by_its_own_loader(
    environment: dict[str, str], model_folder: Path
) -> None:
    theirs = run(environment, model_folder, "safetensors")
    ours = run(environment, model_folder, "hippogriff")
    assert ours == theirs
    assert ours["reloaded"] == ours["tokens"]
    # Of a model without its weights all tokens would be the same.
    assert len({token for tokens in ours["tokens"] for token in tokens}) > 5
    [[count, _]] = ours["from_files"]
    assert count == PARAMETERS
