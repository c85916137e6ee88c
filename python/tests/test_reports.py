"""What loads and saves of all kinds tell when they shall explain themselves."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

import hippogriff
from hippogriff._frameworks import make_framework
from hippogriff._report import Watch
from hippogriff._slices import Extent, fill, resolve, target_of
from hippogriff._transfer import Request
from hippogriff.arrays import load_npy, load_npz, open_npy, save_npy
from hippogriff.safetensors import LoadReport, load_file, load_plan, safe_open, save_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARRAY = np.arange(1 << 20, dtype=np.uint32).reshape(-1, 4096)  # 4 MiB
SMALL = np.arange(6.0)
ALL = ARRAY.nbytes + SMALL.nbytes

Explain = Any


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind, all of the same two arrays."""
    tmp_path = tmp_path_factory.mktemp("files")
    save_file({"a": ARRAY, "b": SMALL}, tmp_path / "x.st")
    np.save(tmp_path / "x.npy", ARRAY)
    np.savez(tmp_path / "x.npz", a=ARRAY, b=SMALL)
    np.savez_compressed(tmp_path / "small.npz", a=ARRAY, b=SMALL)
    return tmp_path


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this route, also where earlier tests have taught the process that others are quicker."""
    plain = Request.__init__

    def begin(request: Request, _: str, **options: Any) -> None:
        plain(request, "direct", **options)

    monkeypatch.setattr(Request, "__init__", begin)


def _get(folder: Path, names: list[str], explain: Explain) -> None:
    with safe_open(folder / "x.st", "np", explain=explain) as file:
        file.get_tensors(names)


def _get_one(folder: Path, name: str, array: Any, explain: Explain) -> None:
    with safe_open(folder / "x.st", "np", explain=explain) as file:
        assert (file.get_tensor(name) == array).all()


def _cut(folder: Path, index: Any, explain: Explain) -> None:
    with safe_open(folder / "x.st", "np", explain=explain) as file:
        assert (file.get_slice("a")[index] == ARRAY[index]).all()


def _read(folder: Path, index: Any, explain: Explain) -> None:
    with open_npy(folder / "x.npy", explain=explain) as file:
        assert (file[index] == ARRAY[index]).all()


def _write(folder: Path, index: Any, array: Any, explain: Explain) -> None:
    shape = ARRAY.shape
    with hippogriff.open(folder / "y", "w", dtype="u4", shape=shape, explain=explain) as file:
        file[index] = array
    assert (np.fromfile(folder / "y", "u4").reshape(shape)[index] == array).all()


Call = tuple[str, str, int, int, str, "Callable[[Path, Explain], object]"]

# Operation, file, how many arrays, their bytes, how if not by any transfer, and what is done.
CALLS: dict[str, Call] = {
    "load_npy": (
        "load",
        "x.npy",
        1,
        ARRAY.nbytes,
        "",
        lambda f, e: load_npy(f / "x.npy", explain=e),
    ),
    "open_npy": ("load", "x.npy", 1, ARRAY.nbytes, "", lambda f, e: _read(f, ..., e)),
    "row": ("load", "x.npy", 1, 4 * 4096, "caller", lambda f, e: _read(f, 5, e)),
    "load_npz": ("load", "x.npz", 2, ALL, "", lambda f, e: load_npz(f / "x.npz", explain=e)),
    "compressed": (
        "load",
        "small.npz",
        2,
        ALL,
        "decompressed",
        lambda f, e: load_npz(f / "small.npz", explain=e),
    ),
    "get_tensors": ("load", "x.st", 2, ALL, "", lambda f, e: _get(f, ["a", "b"], e)),
    "get_tensor": (
        "load",
        "x.st",
        1,
        ARRAY.nbytes,
        "",
        lambda f, e: _get_one(f, "a", ARRAY, e),
    ),
    "small tensor": (
        "load",
        "x.st",
        1,
        SMALL.nbytes,
        "caller",
        lambda f, e: _get_one(f, "b", SMALL, e),
    ),
    "slice": ("load", "x.st", 1, 512 * 4096, "", lambda f, e: _cut(f, np.s_[:128], e)),
    "few columns": (
        "load",
        "x.st",
        1,
        ARRAY[:, 3:9].nbytes,
        "direct",
        lambda f, e: _cut(f, np.s_[:, 3:9], e),
    ),
    "few rows": ("load", "x.st", 1, 2 * 4 * 4096, "caller", lambda f, e: _cut(f, np.s_[:4:2], e)),
    "write": ("write", "y", 1, ARRAY.nbytes, "", lambda f, e: _write(f, ..., ARRAY, e)),
    "write rows": (
        "write",
        "y",
        1,
        ARRAY.nbytes // 2,
        "",
        lambda f, e: _write(f, np.s_[::2], ARRAY[::2].copy(), e),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_tells_how_it_went(files: Path, name: str, request: pytest.FixtureRequest) -> None:
    operation, path, count, size_bytes, route, call = CALLS[name]
    if route == "direct":
        request.getfixturevalue("direct")
    reports: list[LoadReport] = []
    call(files, reports.append)
    (report,) = reports
    assert report.operation == operation
    (file,) = report.files
    assert (file.path, file.tensors) == (str(files / path), count)
    assert report.bytes == file.bytes == size_bytes
    moved = sum(file.bytes_by_route.values())
    assert size_bytes <= moved <= 1.01 * size_bytes
    assert set(file.bytes_by_route) == {route} or not route
    from_somewhere = file.bytes_from_page_cache + file.bytes_from_disk
    by_transfer = operation == "load" and route in {"", "direct"}
    assert from_somewhere == (moved if by_transfer else 0)
    assert 0 < file.waiting_seconds <= file.seconds <= report.seconds
    assert report.gb_per_second > 0
    assert json.loads(json.dumps(report.as_dict()))["operation"] == operation


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_printed_unless_asked_for(
    files: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path, call = CALLS[name][1], CALLS[name][-1]
    call(files, False)
    assert capsys.readouterr() == ("", "")
    call(files, True)
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{files / path}: ")
    assert printed.out.count("\n") == 2
    assert "direct" not in printed.out
    assert printed.err == ""


def _save_npy(path: Path, explain: Explain) -> None:
    save_npy(path, ARRAY, explain=explain)


def _save_file(path: Path, explain: Explain) -> None:
    save_file({"a": ARRAY}, path, checksum=True, explain=explain)


@pytest.mark.parametrize("save", [_save_npy, _save_file])
def test_a_save_tells_how_the_whole_file_was_written(
    tmp_path: Path, save: Callable[[Path, Explain], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    reports: list[LoadReport] = []

    def take(report: LoadReport) -> None:
        assert path.stat().st_size == report.bytes  # It is there when this is told.
        reports.append(report)

    save(path, take)
    (report,) = reports
    (file,) = report.files
    assert (report.operation, file.path, file.tensors) == ("save", str(path), 1)
    assert file.bytes_by_route == {"caller": path.stat().st_size}
    assert 0 < file.waiting_seconds <= file.seconds <= report.seconds
    assert file.cpu_seconds > 0
    save(path, True)
    printed = capsys.readouterr().out
    assert "written by the calling thread" in printed
    assert "from the page cache" not in printed


def test_a_save_whose_report_is_not_taken_is_there(tmp_path: Path) -> None:
    def refuse(report: LoadReport) -> None:
        raise ValueError(report.operation)

    with pytest.raises(ValueError, match="save"):
        save_npy(tmp_path / "x.npy", ARRAY, explain=refuse)
    assert (np.load(tmp_path / "x.npy") == ARRAY).all()


def test_columns_tell_what_was_read_around_them(files: Path) -> None:
    reports: list[LoadReport] = []
    _read(files, np.s_[:, ::2], reports.append)
    (file,) = reports[0].files
    assert file.bytes == ARRAY.nbytes // 2
    assert file.bytes < sum(file.bytes_by_route.values()) <= ARRAY.nbytes


@pytest.mark.usefixtures("direct")
def test_a_row_beside_a_tensor_of_a_plan_tells_only_of_these(files: Path) -> None:
    reports: list[LoadReport] = []
    plan = {"cpu": {"a": 5, "b": None}}
    load_plan(files / "x.st", plan, framework="np", explain=reports.append)
    (file,) = reports[0].files
    assert file.bytes == ARRAY[5].nbytes + SMALL.nbytes
    assert file.bytes_by_route == {"direct": file.bytes}


@pytest.mark.parametrize(
    ("carried", "cold"),
    [
        ({"direct": 30}, 15),
        ({"pipelined": 100}, 50),
        ({"direct": 10, "pipelined": 70}, 40),
        ({"mapped": 25, "pipelined": 75}, 50),
    ],
)
def test_mixed_routes_tell_what_each_carried(carried: dict[str, int], cold: int) -> None:
    transfer: Any = mock.Mock(segments=array("Q", [0, 10, 7, 80, 20, 99]))
    transfer.report.return_value = {
        "route": "+".join(carried),
        "bytes": 100,
        "bytes_by_route": carried,
        "bytes_from_page_cache": 50,
        "bytes_from_disk": 50,
    }
    watch = Watch(lambda _: None)
    watch.open("x")
    watch.wait(transfer)
    watch.wait(transfer)
    (file,) = watch.report.files
    moved = sum(carried.values())
    assert file.bytes_by_route == {route: 2 * size for route, size in carried.items()}
    assert (file.bytes_from_page_cache, file.bytes_from_disk) == (2 * (moved - cold), 2 * cold)
    for route, size in file.bytes_by_route.items():
        assert f"{size} B {'read straight into place' if route == 'direct' else route}" in str(
            watch.report
        )


@pytest.mark.parametrize("small", [True, False])
def test_filling_tells_what_this_thread_reads(
    files: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(hippogriff.File, "read_small", lambda *_: False)  # as if it failed
    framework, extent = make_framework("np", "cpu"), Extent(128, ARRAY.shape, "U32", 4)
    array = framework.empty("U32", (3,))
    watch = Watch(lambda _: None)
    with watch, hippogriff.open(files / "x.npy") as file:
        watch.open("x")
        watch.start(1, array.nbytes)
        fill(file, extent, resolve((5, slice(3)), ARRAY.shape), target_of(framework, array), watch)
        assert (array == ARRAY[5, :3]).all()
        (told,) = watch.report.files
        assert list(told.bytes_by_route.values()) == [array.nbytes]
        assert ("caller" in told.bytes_by_route) == small


def test_a_small_tensor_that_a_transfer_must_load_is_told_once(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for read in ("read_small", "read_small_parts"):
        monkeypatch.setattr(hippogriff.File, read, lambda *_: False)  # as if it failed
    reports: list[LoadReport] = []
    _get_one(files, "b", SMALL, reports.append)
    (report,) = reports
    assert (report.files[0].tensors, report.bytes) == (1, SMALL.nbytes)
    assert "caller" not in report.files[0].bytes_by_route


def test_nothing_to_load_is_told_as_that(files: Path) -> None:
    reports: list[LoadReport] = []
    _read(files, slice(5, 5), reports.append)
    assert reports[0].bytes == 0
    assert "nothing to move" in str(reports[0])


def test_what_fails_tells_nothing(files: Path, tmp_path: Path) -> None:
    def refuse(report: LoadReport) -> None:
        raise AssertionError(report)

    (tmp_path / "x.npy").write_bytes((files / "x.npy").read_bytes()[:1000])
    with pytest.raises(hippogriff.InvalidArgument):
        load_npy(tmp_path / "x.npy", explain=refuse)
    with pytest.raises(hippogriff.IoError):
        save_npy(tmp_path / "nowhere" / "x.npy", ARRAY, explain=refuse)


def test_a_file_that_is_no_array_explains_nothing(files: Path) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match="dtype"):
        hippogriff.open(files / "x.npy", explain=True)  # type: ignore[call-overload]


@pytest.mark.usefixtures("direct")
def test_a_load_to_the_host_is_not_called_direct(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_file(files / "x.st", framework="np", explain=True)
    assert "read straight into place" in capsys.readouterr().out
