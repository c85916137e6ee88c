"""What the command says when it is called wrongly, and when a package is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from hippogriff import _library
from hippogriff._loaders.model import make_model
from hippogriff._usage import as_unsupported
from hippogriff.cli import app
from hippogriff.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

_MAIN = "from hippogriff.cli import main; main()"


@dataclass
class _Done:
    returncode: int
    stdout: str
    stderr: str


def _call(*arguments: str) -> _Done:
    """Call the command in this process, which is sooner done than in one of its own."""
    done = CliRunner().invoke(app, arguments, prog_name="hippogriff")
    return _Done(done.exit_code, done.stdout, done.stderr)


def _run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{_MAIN}", *arguments],
        env={**os.environ, "HIPPOGRIFF_LIBRARY": _library.lib._name, "HIPPOGRIFF_NODE": "off"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _without(*modules: str) -> str:
    return "".join(f"sys.modules[{module!r}] = None\n" for module in modules)


@pytest.mark.parametrize(
    ("command", "about"),
    [
        ("info --nope", "--nope"),
        ("--nope", "--nope"),
        ("explain", "FILE"),
        ("explain x --device", "--device"),
        ("copy a", "DST"),
        ("checksum", "FILE"),
        ("bench --repeat 0", "--repeat"),
        ("bench array --repeat many", "--repeat"),
        ("run --memory 1MiB --timout 1 -- true", "--timout"),
        ("ps extra", "extra"),
        ("frob", "frob"),
    ],
)
def test_calls_that_are_wrong_are_json_that_names_the_argument(command: str, about: str) -> None:
    plain = _call(*command.split())
    assert (plain.returncode, plain.stdout) == (2, "")
    if command.startswith("run"):  # which gives no JSON
        assert about in plain.stderr
        return
    first, *rest = command.split()
    done = _call(first, "--json", *rest)
    assert done.returncode == 2
    assert "Error" in done.stderr
    error = json.loads(done.stdout)["error"]
    assert set(error) == {"type", "message", "operation", "object", "offset", "errno"}
    assert error["type"] == "UsageError"
    assert about in error["message"]
    assert error["object"] == about


@pytest.mark.parametrize(
    "command", ["metrics --json", "run true --json", "run --gpus 0 --memory 1 -- true --json"]
)
def test_commands_without_json_print_none(command: str) -> None:
    done = _call(*command.split())
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("command", "about"),
    [
        ("info EMPTY", "PATH"),
        ("doctor EMPTY", "PATH"),
        ("calibrate EMPTY", "DIRECTORY"),
        ("copy EMPTY x", "SRC"),
        ("copy x EMPTY", "DST"),
        ("explain EMPTY", "FILE"),
        ("checksum x EMPTY", "FILE"),
        ("checksum x --dir EMPTY", "--dir"),
        ("load EMPTY", "FILE"),
        ("bench EMPTY", "FILE"),
        ("bench --dir EMPTY", "--dir"),
        ("bench array --dir EMPTY", "--dir"),
        ("bench loaders --dir EMPTY", "--dir"),
        ("reproduce --report EMPTY", "--report"),
        ("reproduce --report x --out EMPTY", "--out"),
        ("reproduce --quick --out EMPTY", "--out"),
        ("reproduce --quick --dir EMPTY", "--dir"),
        ("reproduce --quick --programs EMPTY", "--programs"),
    ],
)
def test_paths_that_are_empty_are_refused(command: str, about: str) -> None:
    words = ["" if word == "EMPTY" else word for word in command.split()]
    done = _call(*words, "--json")
    error = json.loads(done.stdout)["error"]
    told = done.returncode, error["type"], error["message"], error["object"]
    assert told == (1, "InvalidArgument", f"{about}: the path is empty", about)


@pytest.mark.parametrize(
    ("command", "about"),
    [
        ("explain FILE --size 3x", "--size"),
        ("explain FILE --offset -1", "--offset"),
        ("explain FILE --array --cache 1e9", "--cache"),
        ("explain FILE --array --line x", "--line"),
        ("explain FILE --array --line 7", "FILE"),
        ("explain FILE --direction up", "--direction"),
        ("bench --size 99999999999TiB --dir FOLDER", "--size"),
        ("bench array --line 3q --dir FOLDER", "--line"),
        ("bench array --size 3q --dir FOLDER", "--size"),
        ("bench loaders --size 1x", "--size"),
        ("load FILE --host-memory lots", "--host-memory"),
        ("copy FILE FOLDER/out --route round", "--route"),
        ("policy nonsense", "name"),
        ("policy --seconds 1e30 fifo", "--seconds"),
        ("explain FILE --array --cache 0", "--cache"),
        ("explain FILE --array --line 0", "--line"),
        ("explain FILE --array --io 0", "--io"),
        ("bench --size 0 --dir FOLDER", "--size"),
        ("bench array --line 0 --dir FOLDER", "--line"),
        ("bench array --line 1048577 --dir FOLDER", "--line"),
        ("bench array --size 262143 --dir FOLDER", "--size"),
        ("bench loaders --size 0", "--size"),
        ("bench loaders --only nobody", "--only"),
        ("load FILE --host-memory 1", "--host-memory"),
    ],
)
def test_values_that_are_wrong_name_their_option(tmp_path: Path, command: str, about: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4096))
    names = {"FILE": str(file), "FOLDER": str(tmp_path), "FOLDER/out": str(tmp_path / "out")}
    device = [] if command.startswith("policy") else ["--device", "host"]
    arguments = [names.get(word, word) for word in command.split()]
    done = _call(*arguments, *device, "--json")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    error = json.loads(done.stdout)["error"]
    assert (error["type"], error["object"]) == ("InvalidArgument", names.get(about, about))
    assert about == "name" or names.get(about, about) in done.stderr
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("options", "about"),
    [
        (("--memory", "lots"), "--memory"),
        (("--memory", "0"), "--memory"),
        (("--memory", "1", "--priority", "2147483648"), "--priority"),
        (("--memory", "1", "--timeout", "nan"), "--timeout"),
    ],
)
def test_a_command_is_not_run_with_values_that_are_wrong(
    options: tuple[str, ...], about: str
) -> None:
    done = _call("run", "--device", "host", *options, "--", "no-such-command")
    assert done.returncode in (2, 125)
    assert about in done.stderr


def test_a_model_has_room_for_its_tensors(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="too few for 9 tensors") as refused:
        make_model(tmp_path / "model", 9, 512)
    assert refused.value.object == "--tensors"


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("load FILE", "numpy"),
        ("explain FILE --array", "numpy"),
        ("bench array --dir FOLDER --size 64MiB", "numpy"),
        ("bench loaders --dir FOLDER --size 1MiB", "numpy"),
    ],
)
def test_packages_that_are_missing_are_named(tmp_path: Path, command: str, package: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4096))
    names = {"FILE": str(file), "FOLDER": str(tmp_path)}
    arguments = [names.get(word, word) for word in command.split()]
    done = _run(*arguments, "--device", "host", "--json", code=_without("numpy", "torch"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"pip install {package}" in json.loads(done.stdout)["error"]["message"]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_packages_that_are_missing_late_are_named_too(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """As torch is by `bench loaders` on a GPU, which measures its link by it."""
    code = (
        "from hippogriff._loaders import bench\n"
        "bench.LoadersBench.run = lambda self: [bench.link_limit('cuda:0')]\n"
    )
    arguments = ("bench", "loaders", "--dir", str(tmp_path), "--device", "host")
    done = _run(*arguments, *options, code=_without("torch") + code)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("hippogriff: torch is not here (")
    assert "pip install torch" in done.stderr
    if options:
        error = json.loads(done.stdout)["error"]
        assert (error["type"], error["object"]) == ("Unsupported", "torch")
        assert "pip install torch" in error["message"]
    else:
        assert done.stdout == ""


def test_a_package_that_is_broken_is_told_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('built for another processor')")
    code = f"sys.path.insert(0, {str(tmp_path)!r})"
    done = _run("load", str(tmp_path / "numpy.py"), "--device", "host", "--json", code=code)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["type"]) == (1, "Unsupported")
    assert "built for another processor" in error["message"]


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ("--quick --experiments E99", "--experiments"),
        ("--quick --only zzz", "--only"),
        ("--quick --sizes huge", "--sizes"),
        ("--quick --device cuda:99", "--device"),
        ("--quick --budget-seconds nan", "--budget-seconds"),
        ("--quick --experiments E1 --only mixed", "--experiments"),
        ("", "--quick"),
    ],
)
def test_experiments_say_which_option_is_wrong(tmp_path: Path, options: str, about: str) -> None:
    out = tmp_path / "out"
    done = _call("reproduce", *options.split(), "--out", str(out), "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["object"]) == (1, about)


@pytest.mark.parametrize("device", ["foo", "cuda:99"])
def test_loaders_are_not_measured_on_a_device_that_is_not_there(
    tmp_path: Path, device: str
) -> None:
    wish = ("bench", "loaders", "--dir", str(tmp_path), "--size", "0", "--device", device)
    error = json.loads(_call(*wish, "--json").stdout)["error"]
    assert (error["type"], error["object"]) == ("InvalidArgument", "--device")
    assert f"no device '{device}' here" in error["message"]


def test_missing_packages_have_the_name_that_pip_knows() -> None:
    told = as_unsupported(ImportError("No module named 'cupy.cuda'", name="cupy.cuda"))
    assert "pip install cupy-cuda13x" in str(told)
    assert told.object == "cupy"


def test_missing_parts_of_the_package_itself_are_a_bug() -> None:
    for error in (ImportError("no", name="hippogriff._nothing"), ImportError("no")):
        with pytest.raises(ImportError) as caught:
            as_unsupported(error)
        assert caught.value is error


def test_a_line_that_no_array_has_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    done = _call("bench", "array", "--line", "513", "--dir", str(tmp_path), "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["object"]) == (1, "--line")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["info", "--help"]])
def test_help_that_cannot_be_written_is_a_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "hippogriff", *arguments],
            env={**os.environ, "HIPPOGRIFF_LIBRARY": _library.lib._name},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
