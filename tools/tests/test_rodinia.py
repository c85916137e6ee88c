"""Inputs go to Rodinia's files and back, and results compare with what its programs would print."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rodinia_models as models

from workloads.papers import paper_files, rodinia, rodinia_inputs, rodinia_results, rodinia_words

_NAMES = sorted(paper_files.FORMATS)
#: What follows `generate FILE`, with the numbers that Rodinia's programs have.
_TINY = {
    "bfs": ("700", "--edges", "1500"),
    "cfd": ("2", "--iterations", "2000"),
    "dwt2d": ("75", "--height", "42", "--rodinia", "1"),
    "gaussian": ("45",),
    "hotspot": ("64", "--steps", "60", "--chip", "16", "--ambient", "80"),
    "hybridsort": ("3001",),
    "kmeans": ("400", "--features", "7", "--iterations", "501", "--first", "1"),
    "lud": ("48",),
    "nn": ("901",),
}
_FILES = {
    "bfs": ("graph.txt",),
    "cfd": ("mesh.domn",),
    "dwt2d": ("image.rgb",),
    "gaussian": ("matrix.txt",),
    "hotspot": ("temp", "power"),
    "hybridsort": ("floats.txt",),
    "kmeans": ("points.bin",),
    "lud": ("matrix.dat",),
    "nn": ("places.db",),
}
#: What from-rodinia is told, which the files do not hold.
_TOLD = {"dwt2d": ("--width", "75", "--height", "42")}


@pytest.fixture
def programs() -> Path:
    folder = Path(os.environ.get("HIPPOGRIFF_LIBRARY", "build/libhippogriff.so")).parent / "bin"
    if not all((folder / name).exists() for name in _NAMES):
        pytest.skip("the workloads are not built")
    return folder


def run(program: Path, *words: Any, status: int = 0) -> str:
    environment = {**os.environ, "HIPPOGRIFF_NODE": "off"}
    command = [str(each) for each in (program, *words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def called(*words: Any) -> int:
    return rodinia.main([str(each) for each in words])


def back(name: str, ours: Path, theirs: Path) -> None:
    files = [theirs / each for each in _FILES[name]]
    assert called("from-rodinia", name, *files, ours, *_TOLD.get(name, ())) == 0


def made(folder: Path, programs: Path, name: str, *words: Any) -> Path:
    """Make the folder of Rodinia's files, and of the same data `in` and its result `out`."""
    ours = folder / "in"
    run(programs / name, "generate", ours, *_TINY[name], *words)
    options = ["--round"] if name == "nn" else []
    theirs = folder / "theirs"
    assert called("to-rodinia", name, ours, theirs, *options) == 0
    if name == "nn":
        back(name, ours, theirs)
    run(programs / name, "run", ours, folder / "out", "--device", "host")
    run(programs / name, "check", ours, folder / "out")
    return theirs


def arrays(name: str, path: Path) -> list[Any]:
    with path.open("rb") as file:
        given = paper_files.Input(file, path, paper_files.FORMATS[name])
        return [given.elements(i, 0, each.count) for i, each in enumerate(given.arrays)]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything comes in several pieces, however small it is."""
    monkeypatch.setattr(rodinia_words, "BLOCK_BYTES", 97)
    for module in (paper_files, rodinia_inputs, rodinia_results, rodinia_words):
        monkeypatch.setattr(module, "AT_ONCE", 64)


@pytest.mark.parametrize("name", _NAMES)
def test_numbers_their_defaults_and_bounds_are_the_programs(name: str, programs: Path) -> None:
    said = run(programs / name, status=2)
    named = re.findall(r"^  (\w+) \((\d+)\): ", said, re.MULTILINE)
    numbers = paper_files.FORMATS[name].numbers
    assert [(each.name, str(each.default)) for each in numbers] == named
    for each in numbers:
        for beyond in {each.least - 1, each.most + 1} - {-1}:
            words = [beyond] if each == numbers[0] else ["3", f"--{each.name}", beyond]
            said = run(programs / name, "generate", "/dev/null", *words, status=2)
            assert f"{each.name} is from {each.least} to {each.most}, not" in said


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", _NAMES)
def test_inputs_come_back_as_they_went(name: str, programs: Path, tmp_path: Path) -> None:
    theirs = made(tmp_path, programs, name)
    again = tmp_path / "again"
    back(name, again, theirs)
    numbers = {"bfs": {"degree": 1}, "cfd": {"cubes": 1, "elements": 48}}.get(name, {})
    for ours, other in zip(arrays(name, tmp_path / "in"), arrays(name, again), strict=True):
        np.testing.assert_array_equal(ours, other)
    if not numbers:  # the header, too
        assert again.read_bytes() == (tmp_path / "in").read_bytes()
    run(programs / name, "run", again, tmp_path / "other", "--device", "host")
    run(programs / name, "check", again, tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == (tmp_path / "out").read_bytes()
    assert not list(tmp_path.glob(".hippogriff-*"))


def grids(theirs: Path) -> tuple[Any, Any]:
    texts = [(theirs / each).read_text().split() for each in _FILES["hotspot"]]
    temperature, power = (np.array(each, dtype=np.float32).reshape(64, 64) for each in texts)
    return temperature, power


def printed(name: str, folder: Path, theirs: Path) -> Path:
    """Compute as Rodinia's program does, from its files; the path of what it prints or writes."""
    path = folder / "printed"
    texts = {
        each: (theirs / each).read_text()
        for each in _FILES[name]
        if name not in ("kmeans", "dwt2d")
    }
    if name == "bfs":
        text = models.bfs(texts["graph.txt"])
    elif name == "hotspot":
        text = models.hotspot(*grids(theirs), 60)
    elif name == "nn":
        text = models.nn(texts["places.db"].encode(), 10, 30, 90)
    elif name == "kmeans":
        points = np.fromfile(theirs / "points.bin", dtype="<f4", offset=8).reshape(400, 7)
        text = models.kmeans(points, 5)
    elif name == "dwt2d":
        image = np.fromfile(theirs / "image.rgb", dtype="u1").reshape(42, 75, 3)
        models.dwt2d(image, 3, path)
        return path
    elif name == "hybridsort":
        numbers = np.sort(np.array(texts["floats.txt"].split(), dtype=np.float32))
        text = " ".join(f"{x:f}" for x in numbers.tolist()) + " "
    else:
        words = np.array(next(iter(texts.values())).split()[1:], dtype=np.float32)
        if name == "lud":
            text = models.lud(words.reshape(48, 48))
        else:
            text = models.gaussian(words[:2025].reshape(45, 45), words[2025:])
    path.write_text(text)
    return path


_COMPARED = [name for name in _NAMES if name != "cfd"]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", _COMPARED)
def test_results_are_those_that_rodinias_formula_has(
    name: str, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = printed(name, tmp_path, made(tmp_path, programs, name))
    capsys.readouterr()
    told = _TOLD.get(name, ())
    assert called("compare", name, tmp_path / "out", path, *told) == 0, capsys.readouterr()
    assert capsys.readouterr().out.startswith("equal: ")
    # Another value near the end of ours is found.
    dtype = {"bfs": "<i4", "dwt2d": "<i2"}.get(name, "<f4")
    values = np.fromfile(tmp_path / "out", dtype=dtype)
    values[-1] += max(1, abs(values[-1]) // 16)
    values.tofile(tmp_path / "out")
    assert called("compare", name, tmp_path / "out", path, *told) == 1
    assert re.match(r"differs: value \d+ is .*; 1 of \d+ values differ", capsys.readouterr().out)
    # What is half there is an error, ours or theirs.
    for half in (path, tmp_path / "out"):
        half = half.with_name("printed.b") if name == "dwt2d" and half == path else half
        whole = half.read_bytes()
        half.write_bytes(whole[: len(whole) // 2 - 1])
        assert called("compare", name, tmp_path / "out", path, *told) == 2
        assert capsys.readouterr().err.startswith("rodinia.py: ")
        half.write_bytes(whole)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hotspot", ("--chip", "0", "--ambient", "80")),
        ("hotspot", ("--ambient", "0")),
        ("hotspot", ("--divisor", "1000")),
        ("kmeans", ("--first", "0")),
        ("dwt2d", ("--rodinia", "0")),
        ("bfs", ("--source", "5")),
    ],
)
def test_what_the_programs_do_without_their_options_is_something_else(
    name: str, words: tuple[str, ...], programs: Path, tmp_path: Path, capsys: Any
) -> None:
    path = printed(name, tmp_path, made(tmp_path, programs, name, *words))
    assert "Rodinia's" in capsys.readouterr().err or name == "dwt2d"
    assert called("compare", name, tmp_path / "out", path, *_TOLD.get(name, ())) == 1


def test_hotspot_makes_the_short_steps_of_the_openmp_program(
    programs: Path, tmp_path: Path
) -> None:
    theirs = made(tmp_path, programs, "hotspot", "--divisor", "1000")
    (tmp_path / "printed").write_text(models.hotspot(*grids(theirs), 60, 1000))
    assert called("compare", "hotspot", tmp_path / "out", tmp_path / "printed") == 0


def test_arrays_compare_with_bare_arrays(programs: Path, tmp_path: Path) -> None:
    for name in rodinia_results.BINARY:
        (tmp_path / name).mkdir()
        made(tmp_path / name, programs, name)
        out = tmp_path / name / "out"
        (tmp_path / "theirs").write_bytes(out.read_bytes())
        assert called("compare", name, out, tmp_path / "theirs", "--binary") == 0
        (tmp_path / "theirs").write_bytes(out.read_bytes()[:-4] + b"\x7f\x7f\x7f\x7f")
        assert called("compare", name, out, tmp_path / "theirs", "--binary") == 1
        (tmp_path / "theirs").write_bytes(out.read_bytes()[:-4])
        assert called("compare", name, out, tmp_path / "theirs", "--binary") == 2
    assert called("compare", "nn", out, out, "--binary") == 2


def test_cfd_compares_with_the_three_files_of_rodinia(programs: Path, tmp_path: Path) -> None:
    made(tmp_path, programs, "cfd")
    gas = np.fromfile(tmp_path / "out", dtype="<f4").reshape(5, 48)

    def write(name: str, rows: Any) -> None:
        lines = "".join(" ".join(f"{x:g}" for x in row) + " \n" for row in rows.tolist())
        (tmp_path / name).write_text(f"48 192\n{lines}")

    write("density", gas[:1].T)
    write("momentum", gas[1:4].T)
    write("density_energy", gas[4:].T)
    assert called("compare", "cfd", tmp_path / "out", tmp_path) == 0
    write("momentum", gas[1:4].T + np.eye(48, 3))
    assert called("compare", "cfd", tmp_path / "out", tmp_path) == 1
    write("momentum", gas[:1].T)
    assert called("compare", "cfd", tmp_path / "out", tmp_path) == 2


def test_rounding_to_what_is_printed_is_no_difference(tmp_path: Path) -> None:
    ours = tmp_path / "out"
    np.array([[7, 0]], dtype="<u4").tofile(ours)
    np.array([323.4561, 1e6, 0], dtype="<f4").tofile(ours)
    theirs = tmp_path / "theirs"
    for third, status in (("0", 0), ("0.00001", 1), ("nan", 1), ("-inf", 1)):
        theirs.write_text(f"0\t323.456\n1\t1e+06\n2\t{third}\n")
        assert called("compare", "hotspot", ours, theirs) == status, third
    theirs.write_text("0\t323.456\n1\t1.00002e+06\n2\t0\n")
    assert called("compare", "hotspot", ours, theirs) == 1
    assert called("compare", "hotspot", ours, theirs, "--tolerance", "3e-5") == 0
    np.array([323.4561, 1e6, np.nan], dtype="<f4").tofile(ours)
    theirs.write_text("0\t323.456\n1\t1e+06\n2\tnan\n")
    assert called("compare", "hotspot", ours, theirs) == 0
