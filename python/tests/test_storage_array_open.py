"""What arrays in storage are opened with: modes, files that are open, and what makes no sense."""

from __future__ import annotations

import io
import os
import signal
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

import hippogriff
from hippogriff import _host_rows, _slices
from hippogriff._library import lib

if TYPE_CHECKING:
    from pathlib import Path

np = pytest.importorskip("numpy")


@pytest.fixture
def numbers(tmp_path: Path) -> tuple[Path, Any]:
    """Return a file of 50 rows of 7 numbers, and what is in it."""
    expected = np.random.default_rng(11).random((50, 7), dtype="float32")
    path = tmp_path / "numbers"
    path.write_bytes(expected.tobytes())
    return path, expected


@pytest.mark.parametrize("mode", ["readonly", "r", "copyonwrite", "c", "readwrite", "r+"])
def test_modes_are_named_as_numpys_are(numbers: tuple[Path, Any], mode: str) -> None:
    path, expected = numbers
    mapped = np.memmap(path, "float32", mode, shape=(50, 7))
    with hippogriff.StorageArray(path, "float32", (50, 7), mode=mode) as array:
        assert array.mode == mapped.mode
        np.testing.assert_array_equal(array[...], expected)
        if mapped.mode == "r":
            with pytest.raises(hippogriff.InvalidArgument, match="for reading"):
                array[0] = 1
            return
        array[0] = 1
        assert (array[0] == 1).all()
    assert (path.read_bytes() == expected.tobytes()) == (array.mode == "c")


def test_the_mode_that_writes_makes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with hippogriff.StorageArray(path, "float32", 10, mode="write") as array:
        assert array.mode == "w+"
        array[3] = 4
    assert np.fromfile(path, "float32").tolist() == [0, 0, 0, 4, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("mode", ["", "w", "a", "R", "read", None, 1, b"r", ["r"]])
def test_what_is_no_mode_is_refused(numbers: tuple[Path, Any], mode: Any) -> None:
    with pytest.raises(hippogriff.InvalidArgument, match=r"mode is .* not one of r, c, r\+, w\+"):
        hippogriff.StorageArray(numbers[0], "float32", mode=mode)


def test_a_file_is_not_made_longer(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with pytest.raises(hippogriff.InvalidArgument, match=r"os\.truncate\(path, 1428\)") as told:
        hippogriff.StorageArray(path, "float32", (50, 7), mode="r+", offset=28)
    assert told.value.object == str(path)
    assert path.read_bytes() == expected.tobytes()
    os.truncate(path, 1428)
    with hippogriff.StorageArray(path, "float32", (50, 7), mode="r+", offset=28) as array:
        np.testing.assert_array_equal(array[:49], expected[1:])
        assert not array[49].any()


def test_an_open_file_stands_for_its_path(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    opened: list[Any] = [
        path.open("rb"),
        path.open("rb", buffering=0),
        path.open("r+b"),
        path.open(),
        open(os.fsencode(path), "rb"),  # noqa: PTH123, SIM115 (by bytes)
        hippogriff.open(path),
    ]
    for file in opened:
        with file, hippogriff.StorageArray(file, "float32", (50, 7)) as array:
            assert array.path == str(path)
            np.testing.assert_array_equal(array[...], expected)


def test_what_was_written_to_an_open_file_is_in_the_array(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
        file.write(np.arange(10, dtype="int32").tobytes())
        with hippogriff.StorageArray(file, "int32") as array:
            assert array[...].tolist() == list(range(10))


def test_several_open_files_are_one_array(numbers: tuple[Path, Any], tmp_path: Path) -> None:
    path, expected = numbers
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    with (
        path.open("rb") as one,
        hippogriff.StorageArray([one, copy], "float32", layout="replicated") as array,
    ):
        assert array.paths == (str(path), str(copy))
        np.testing.assert_array_equal(array[...], expected.reshape(-1))


def test_an_open_file_without_a_path_is_refused(numbers: tuple[Path, Any]) -> None:
    path, _ = numbers
    closed = path.open("rb")
    closed.close()
    with tempfile.TemporaryFile() as nameless, path.open("rb") as moved:
        path.rename(path.with_name("moved"))
        path.write_bytes(b"another file")
        for file in (nameless, io.BytesIO(bytes(40)), closed, moved):
            with pytest.raises(hippogriff.InvalidArgument, match="give the path"):
                hippogriff.StorageArray(file, "float32", 10)


@pytest.mark.parametrize("path", [5, None, 1.5, [5], object()])
def test_what_is_no_path_is_told(path: Any) -> None:
    with pytest.raises(TypeError, match=r"os\.PathLike"):
        hippogriff.StorageArray(path, "float32")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"io": None}, "io is None"),
        ({"io": b"cached"}, "io is b'cached'"),
        ({"io": "direct\0"}, "io is"),
        ({"layout": 1}, "layout is 1"),
        ({"layout": "R\u00e9"}, "layout is"),
        ({"stripe": 5000}, "stripe=5000 is not a multiple of the line, 4096 bytes"),
        ({"stripe": "64KiB", "line": "128KiB"}, "not a multiple of the line, 131072"),
        ({"layout": "dealt"}, "striped"),
        ({"cache": 0}, "cache=0 is too small"),
        ({"cache": -1}, "cache=-1 is too small"),
        ({"cache": 2**63}, "too large"),
        ({"line": 0}, "line=0 is too small"),
        ({"line": 2**32}, "too large"),
        ({"offset": -1}, "offset=-1 is too small"),
        ({"device": ""}, "names none"),
        ({"overlay": "/nope"}, 'overlay is for mode "c"'),
        ({"overlay": "/nope", "mode": "readwrite"}, 'the mode is "r\\+"'),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_file_is_opened(
    numbers: tuple[Path, Any], options: dict[str, Any], words: str
) -> None:
    path, expected = numbers
    given = {"layout": "striped", **options}
    with pytest.raises(hippogriff.InvalidArgument, match=words):
        hippogriff.StorageArray([path, path.with_name("other")], "float32", **given)
    assert path.read_bytes() == expected.tobytes()


@pytest.mark.parametrize("options", [{"stripe": 4096}, {"layout": "striped"}, {"layout": ""}])
def test_one_file_has_no_layout_unless_it_is_a_list(
    numbers: tuple[Path, Any], options: dict[str, Any]
) -> None:
    path, expected = numbers
    with pytest.raises(hippogriff.InvalidArgument, match="for several files"):
        hippogriff.StorageArray(path, "float32", **options)
    if options.get("layout") != "":
        with hippogriff.StorageArray([path], "float32", (50, 7), **options) as array:
            np.testing.assert_array_equal(array[...], expected)


def test_what_means_the_default_is_that(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(
        path, "float32", (50, 7), device="host", layout=None, stripe=0, overlay=None
    ) as array:
        np.testing.assert_array_equal(array[...], expected)


def test_a_closed_array_is_not_entered(numbers: tuple[Path, Any]) -> None:
    array = hippogriff.StorageArray(numbers[0], "float32")
    array.close()
    with pytest.raises(hippogriff.InvalidArgument, match="is closed"):
        array.__enter__()


class _Interrupted:
    """A function of the library during whose first call the process is interrupted."""

    def __init__(self, call: Any) -> None:
        self.real = call
        self.calls = 0
        self.given: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        self.given = arguments
        if self.calls == 1:
            signal.raise_signal(signal.SIGINT)
        return self.real(*arguments)


@pytest.fixture
def short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls move 1 MiB, or 1000 rows, at most."""
    for module in (_slices, _host_rows):
        monkeypatch.setattr(module, "CALL_BYTES", 1 << 20)
    monkeypatch.setattr(_host_rows, "_CALL_ROWS", 1000)


@pytest.mark.usefixtures("short_calls")
@pytest.mark.parametrize("way", ["read", "write", "gather", "scatter"])
def test_an_interrupt_is_seen_before_all_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(4 << 20))
    rows = np.arange(4096)
    with hippogriff.StorageArray(path, "u1", (4096, 1024), mode="r+", device="host") as array:
        given = array[...] + 1
        call = _Interrupted(getattr(lib, f"hippogriff_array_{way}"))
        monkeypatch.setattr(lib, f"hippogriff_array_{way}", call)
        move: Any = {
            "read": lambda: array[...],
            "gather": lambda: array.take(rows),
            "write": lambda: array.__setitem__(..., given),
            "scatter": lambda: array.put(rows, given),
        }[way]
        with pytest.raises(KeyboardInterrupt):
            move()
        assert call.calls == 1
        _, _, rows_asked, bytes_asked = call.given[:4]  # of rows; of ranges
        assert rows_asked == 1000 if way in ("gather", "scatter") else bytes_asked == 1 << 20
        monkeypatch.setattr(lib, f"hippogriff_array_{way}", call.real)
        assert array[4095, 0] == 0, "the end was not to be moved any more"


@pytest.mark.usefixtures("short_calls")
@pytest.mark.parametrize("begin", [0, 1, 777, (1 << 20) - 1, 1 << 20])
def test_what_takes_several_calls_is_what_the_file_holds(tmp_path: Path, begin: int) -> None:
    before = np.random.default_rng(3).integers(0, 255, 5 << 20, "u1")
    path = tmp_path / "large"
    path.write_bytes(before.tobytes())
    with hippogriff.StorageArray(path, "u1", mode="r+", device="host") as array:
        np.testing.assert_array_equal(array[begin:], before[begin:])
        array[begin:] = turned = before[begin:][::-1]
        rows = np.arange(begin, begin + 2500)
        np.testing.assert_array_equal(array.take(rows), turned[:2500])
        array.put(rows, before[begin : begin + 2500])
    after = np.concatenate((before[: begin + 2500], turned[2500:]))
    np.testing.assert_array_equal(np.fromfile(path, "u1"), after)
