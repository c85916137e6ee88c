"""Bars: what loads and saves tell where somebody looks on, and that nothing is told elsewhere."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hippogriff
from hippogriff import _console, _progress
from hippogriff.arrays import load_npy, load_npz, open_npy, save_npy
from hippogriff.errors import InvalidArgument
from hippogriff.safetensors import load_file, load_into, load_plan, safe_open, save_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARRAY = np.arange(1 << 20, dtype=np.uint32).reshape(-1, 4096)  # 4 MiB
HALF = ARRAY.nbytes // 2
COLUMNS = ARRAY[:, 3:9]  # read one by one
SMALL = np.arange(6.0)


class Follower:
    """Stands for the bar: keeps what it is told."""

    made: list[Follower]

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total = title, total
        self.told: list[int] = []
        self.open = False
        Follower.made.append(self)

    def __enter__(self) -> None:
        self.open = True

    def __exit__(self, *_: object) -> None:
        self.open = False

    def tell(self, done: int) -> None:
        assert self.open
        self.told.append(done)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Follower]:
    """Return the bars that were shown."""
    Follower.made = []
    monkeypatch.setattr(_console, "Follower", Follower)
    return Follower.made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind, all of the same two arrays."""
    tmp_path = tmp_path_factory.mktemp("files")
    save_file({"a": ARRAY, "b": SMALL}, tmp_path / "x.st", progress=False)
    (tmp_path / "raw").write_bytes(ARRAY.tobytes())
    np.save(tmp_path / "x.npy", ARRAY)
    np.savez(tmp_path / "x.npz", a=ARRAY, b=SMALL)
    np.savez_compressed(tmp_path / "small.npz", a=ARRAY, b=SMALL)
    return tmp_path


def _get(folder: Path, name: str, progress: bool | None) -> Any:
    with safe_open(folder / "x.st", "np", progress=progress) as file:
        return file.get_tensor(name)


def _cut(folder: Path, index: Any, progress: bool | None) -> Any:
    with safe_open(folder / "x.st", "np", progress=progress) as file:
        return file.get_slice("a")[index]


def _read(folder: Path, index: Any, progress: bool | None) -> Any:
    with open_npy(folder / "x.npy", progress=progress) as file:
        return file[index]


def _write(folder: Path, index: Any, array: Any, progress: bool | None) -> None:
    shape = ARRAY.shape
    with hippogriff.open(folder / "y", "w", dtype="u4", shape=shape, progress=progress) as file:
        file[index] = array


def _into(folder: Path, kind: Any, progress: bool | None) -> None:
    state = {"a": np.zeros(ARRAY.shape, kind), "b": np.zeros_like(SMALL)}
    load_into(state, folder / "x.st", convert=True, progress=progress)
    assert (state["a"] == ARRAY).all()


ALL = ARRAY.nbytes + SMALL.nbytes


def _fill(folder: Path, progress: bool | None) -> None:
    array = np.zeros_like(ARRAY)
    with hippogriff.File(folder / "raw") as file:
        file.read_into(array, progress=progress)
    assert (array == ARRAY).all()


def _put(folder: Path, progress: bool | None) -> None:
    with hippogriff.File(folder / "y", "w") as file:
        file.write_from(ARRAY, progress=progress)


# Title, bytes at least, and what is done.
CALLS: dict[str, tuple[str, int, Callable[[Path, bool | None], object]]] = {
    "load_file": ("load", ALL, lambda f, p: load_file(f / "x.st", framework="np", progress=p)),
    "load_into": ("load", ALL, lambda f, p: _into(f, np.uint32, p)),
    "converted": ("load", ALL, lambda f, p: _into(f, np.int64, p)),
    "load_plan": (
        "load",
        ALL,
        lambda f, p: load_plan(f / "x.st", {"cpu": None}, framework="np", progress=p),
    ),
    "plan of a slice": (
        "load",
        HALF,
        lambda f, p: load_plan(
            f / "x.st", {"cpu": {"a": np.s_[: len(ARRAY) // 2]}}, framework="np", progress=p
        ),
    ),
    "safe_open": ("load", ARRAY.nbytes, lambda f, p: _get(f, "a", p)),
    "slice": ("load", HALF, lambda f, p: _cut(f, slice(0, len(ARRAY) // 2), p)),
    "columns": ("load", HALF, lambda f, p: _cut(f, np.s_[:, ::2], p)),
    "few columns": ("load", COLUMNS.nbytes, lambda f, p: _cut(f, np.s_[:, 3:9], p)),
    "plan of a row": (
        "load",
        ARRAY[5].nbytes + SMALL.nbytes,
        lambda f, p: load_plan(
            f / "x.st", {"cpu": {"a": 5, "b": None}}, framework="np", progress=p
        ),
    ),
    "load_npy": ("load", ARRAY.nbytes, lambda f, p: load_npy(f / "x.npy", progress=p)),
    "open_npy": ("load", ARRAY.nbytes, lambda f, p: _read(f, ..., p)),
    "load_npz": ("load", ALL, lambda f, p: load_npz(f / "x.npz", progress=p)),
    "verify": ("load", 2 * ALL, lambda f, p: load_npz(f / "x.npz", verify=True, progress=p)),
    "compressed": ("load", ALL, lambda f, p: load_npz(f / "small.npz", progress=p)),
    "save_file": (
        "save",
        ALL,
        lambda f, p: save_file({"a": ARRAY, "b": SMALL}, f / "y", progress=p),
    ),
    "save_npy": ("save", ARRAY.nbytes, lambda f, p: save_npy(f / "y", ARRAY, progress=p)),
    "read a file": (
        "read",
        ARRAY.nbytes,
        lambda f, p: hippogriff.read(f / "raw", device="host", progress=p),
    ),
    "read into": ("read", ARRAY.nbytes, _fill),
    "write a file": (
        "write",
        ARRAY.nbytes,
        lambda f, p: hippogriff.write(f / "y", ARRAY, progress=p),
    ),
    "write from": ("write", ARRAY.nbytes, _put),
    "write": ("write", ARRAY.nbytes, lambda f, p: _write(f, ..., ARRAY, p)),
    "write rows": ("write", HALF, lambda f, p: _write(f, np.s_[::2], ARRAY[::2].copy(), p)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bar_goes_to_its_end(files: Path, made: list[Follower], name: str) -> None:
    title, size_bytes, call = CALLS[name]
    call(files, True)
    (bar,) = made
    assert bar.title == title
    assert not bar.open
    assert size_bytes <= bar.total <= 1.01 * size_bytes + ARRAY.nbytes * (name == "columns")
    assert sorted(bar.told) == bar.told
    assert 0.99 * bar.total <= bar.told[-1] <= bar.total


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_callback_is_told_to_the_end_in_place_of_a_bar(
    tmp_path: Path, made: list[Follower], monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(_progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(_progress, "_QUIET_BYTES", 0)
    path = tmp_path / "z"
    told: list[Any] = []
    path.write_bytes(ARRAY.tobytes())
    if operation == "read":
        with hippogriff.read(path, device="host", progress=told.append) as found:
            assert np.asarray(found).tobytes() == ARRAY.tobytes()
    else:
        assert hippogriff.write(path, -ARRAY, progress=told.append) == ARRAY.nbytes
        assert path.read_bytes() == (-ARRAY).tobytes()
    done = [each.bytes_done for each in told]
    assert done == sorted(done)
    assert done[-1] == ARRAY.nbytes
    assert made == []


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_shown_where_nobody_looks_on(
    files: Path,
    made: list[Follower],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.setattr(_progress, "_QUIET_BYTES", 0)
    monkeypatch.setattr(_progress, "_QUIET_SECONDS", 0.0)
    call = CALLS[name][2]
    call(files, None)  # no terminal
    call(files, False)
    assert made == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", CALLS)
def test_a_terminal_shows_what_takes_a_while(
    files: Path, made: list[Follower], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(_progress, "_QUIET_BYTES", 0)
    call = CALLS[name][2]
    monkeypatch.setattr(_progress, "_QUIET_SECONDS", 1000.0)
    call(files, None)
    assert made == []
    monkeypatch.setattr(_progress, "_QUIET_SECONDS", 0.0)
    call(files, None)
    assert len(made) == 1


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_answer_is_refused(files: Path, made: list[Follower], name: str) -> None:
    wrong: Any = 3
    before = (files / "raw").read_bytes()
    with pytest.raises(InvalidArgument, match="progress=3 is neither"):
        CALLS[name][2](files, wrong)
    assert made == []
    refused = pytest.raises(InvalidArgument, match="progress=3 is neither")
    with hippogriff.File(files / "raw", "r+") as file, refused:
        file.write_from(-ARRAY, progress=wrong)
    assert (files / "raw").read_bytes() == before


@pytest.mark.parametrize("step", ["__init__", "__enter__", "tell", "__exit__"])
@pytest.mark.parametrize("name", ["read a file", "write a file", "load_file", "save_file"])
def test_a_bar_that_cannot_be_shown_fails_nothing(
    files: Path, made: list[Follower], monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "the terminal is gone")

    monkeypatch.setattr(Follower, step, fail)
    CALLS[name][2](files, True)
    assert len(made) <= 1


@pytest.mark.parametrize("stream", [None, object(), "closed"])
def test_a_stderr_that_is_none_shows_nothing(
    files: Path, made: list[Follower], monkeypatch: pytest.MonkeyPatch, stream: object
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed if stream == "closed" else stream)
    monkeypatch.setattr(_progress, "_QUIET_BYTES", 0)
    monkeypatch.setattr(_progress, "_QUIET_SECONDS", 0.0)
    for name in ("read a file", "write a file", "load_file"):
        CALLS[name][2](files, None)
    assert made == []


def test_a_bar_leaves_stdout_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real one
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    before = sys.stdout, sys.stderr
    with _console.Follower("a bar", 5) as follower:
        follower.tell(1)
        assert (sys.stdout, sys.stderr) == before


def test_small_parts_do_not_look_for_a_terminal(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> bool:
        raise AssertionError

    monkeypatch.setattr("sys.stderr.isatty", refuse)
    assert (_read(files, 5, None) == ARRAY[5]).all()
    assert (_cut(files, np.s_[2:4], None) == ARRAY[2:4]).all()
    save_npy(files / "y", SMALL)
