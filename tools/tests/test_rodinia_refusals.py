"""What is no file of Rodinia's, or none of ours, is refused with its file and line or offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from workloads.papers import paper_files, rodinia

if TYPE_CHECKING:
    from pathlib import Path

_RECORD = f"{'1950  1  1  0  1 ALBERTO':27}{30.0:5.1f} {90.0:5.1f} {0:4d} {0:4d}\n"
_ELEMENT = "0.5 2 1 0 0 0 0 1 0 -1 0 0 1 0 1 1 1\n"


def called(*words: Any) -> int:
    return rodinia.main([str(each) for each in words])


def refused(folder: Path, capsys: Any, *words: Any) -> str:
    before = sorted(folder.iterdir())
    assert called(*words) == 2
    assert sorted(folder.iterdir()) == before  # nothing is left of what was begun
    said = capsys.readouterr().err
    assert isinstance(said, str)
    assert said.startswith("rodinia.py: ")
    return said


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("bfs", "2\n0 1\n1 x\n", "line 3: 'x' is no beginning or length"),
        ("bfs", "2\n0 1\n1 1\n0\n2\n1 1\n2 1\n", "an edge to node 2, of 2"),
        ("bfs", "2\n0 1\n1 1\n0\n2\n1 1\n-1 1\n", "an edge to node -1"),
        ("bfs", "2\n0 1\n1 2\n0\n2\n1 1\n1 1\n", "line 5: node 1 has 2 edges from 1 on, of 2"),
        ("bfs", "2\n0 1\n-1 1\n0\n2\n1 1\n1 1\n", "node 1 has 1 edges from -1 on"),
        ("bfs", "2\n0 1\n1 -1\n0\n2\n1 1\n1 1\n", "node 1 has -1 edges"),
        ("bfs", "2\n0 1\n1 1\n2\n2\n1 1\n1 1\n", "line 4: 2 is no source: from 0 to 1"),
        ("bfs", "2\n0 1\n1 1\n0\n2\n1 1\n1 1 9\n", "line 7: there is more"),
        ("bfs", "2\n0 1\n1 1\n0\n2\n1 1\n1\n", "the text ends after 3 of 4"),
        ("bfs", "2\n0 0\n0 0\n0\n2\n1 1\n1 1\n", "no node has an edge"),
        ("bfs", "2147483647\n0 1\n", "the text ends after 2 of"),
        ("bfs", "0\n", "line 1: 0 is no number of nodes"),
        ("bfs", "99999999999999999999\n", "line 1: '99999999999999999999' is no number of nodes"),
        ("bfs", "", "line 1: the text ends after 0 of 1"),
        ("cfd", f"2\n{_ELEMENT}{_ELEMENT[:9]}\n", "the text ends after"),
        ("cfd", f"1\n{_ELEMENT}", "element 0 has no such neighbour"),
        ("cfd", f"2\n{_ELEMENT}{_ELEMENT.replace('2', '1.5')}", "element 1 has no such neighbour"),
        ("cfd", f"2\n{_ELEMENT}{_ELEMENT.replace('0.5', 'nan')}", "element 1 has no such"),
        ("cfd", f"2\n{_ELEMENT}{_ELEMENT}3\n", "line 4: there is more"),
        ("cfd", "999999999\n", "is no number of elements"),
        ("gaussian", "2\n\n1 2\n3 four\n\n5 6\n", "line 4: 'four' is no number"),
        ("gaussian", "2\n\n1 2\n3 4\n\n5\n", "the text ends after 1 of 2"),
        ("gaussian", "2\n\n1 2\n3 1e39\n\n5 6\n", "line 4: '1e39' is no number"),
        ("gaussian", "70000\n", "70000 is no number of rows"),
        ("gaussian", "2\n\n1 2\n3 4\n\n5 6\n\nx\n", "line 8: 'x' is no number of a known solution"),
        ("hybridsort", "1 2\n3 0x4\n", "line 2: '0x4' is no number"),
        ("hybridsort", "1 2\n3 1_0\n", "line 2: '1_0' is no number"),
        ("hybridsort", " \n", "has no numbers"),
        ("hybridsort", "1 " + "2" * 70, "line 1: '2222"),
        ("kmeans", "1 2 3\n2 4\n", "line 2: 1 numbers after the first word"),
        ("kmeans", "1 2 3\n\n2 4 x\n", "line 3: not all words"),
        ("kmeans", "1\n2\n", "line 1: 0 numbers"),
        ("kmeans", "1 " + "2 " * 600 + "\n", "line 1: Rodinia reads 1023 bytes of a line"),
        ("kmeans", "1 2\n2 " + "3" * (1 << 22), "line 2: Rodinia reads 1023 bytes of a line"),
        ("kmeans", "1 " + "2 " * 65 + "\n", "features is from 1 to 64, not 65"),
        ("kmeans", "\n\n", "has no points"),
        ("lud", "2\n1 2\n3 4\n5\n", "line 4: there is more"),
        ("lud", "2\n1 2\n3\n", "line 4: the text ends after 3 of 4"),
        ("lud", "-1\n", "line 1: -1 is no number of rows"),
        ("nn", _RECORD * 2 + _RECORD[:-1], "146 bytes are no records of 49"),
        ("nn", _RECORD + _RECORD.replace("30.0", "3o.0"), "record at byte 49: no latitude"),
        ("nn", _RECORD + _RECORD.replace(" 90.0", "     "), "record at byte 49"),
        ("nn", _RECORD + _RECORD[:-1] + " ", "record at byte 49"),
        ("nn", "", "0 bytes are no records"),
    ],
)
def test_what_rodinia_could_not_mean_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, why: str
) -> None:
    (tmp_path / "theirs").write_text(text)
    said = refused(tmp_path, capsys, "from-rodinia", name, tmp_path / "theirs", tmp_path / "in")
    assert str(tmp_path / "theirs") in said
    assert why in said


@pytest.mark.parametrize(
    ("temperatures", "powers", "why"),
    [
        ("1\n2\n3\n4\n", "1\n2\n3\n", "power has 3 numbers: no square"),
        ("1\n2\n3\n4\n", "1\n", "temp has 4 numbers, "),
        ("1\n2\n3 5\n4\n", "1\n", "temp, line 3: a line has one number, not 2"),
        ("1\n\n3\n4\n5\n", "1\n", "temp, line 2: a line has one number, not 0"),
        ("1\n2\nthree\n4\n", "1\n", "temp, line 3: 'three' is no number"),
        ("", "1\n", "temp has 0 numbers"),
    ],
)
def test_chips_that_are_none_are_refused(
    tmp_path: Path, capsys: Any, temperatures: str, powers: str, why: str
) -> None:
    files = tmp_path / "temp", tmp_path / "power"
    for path, text in zip(files, (temperatures, powers), strict=True):
        path.write_text(text)
    assert why in refused(tmp_path, capsys, "from-rodinia", "hotspot", *files, tmp_path / "in")
    assert "two files" in refused(
        tmp_path, capsys, "from-rodinia", "hotspot", files[0], tmp_path / "in"
    )


def test_images_are_as_large_as_is_said(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "image").write_bytes(b"123456789")
    words = ["from-rodinia", "dwt2d", tmp_path / "image", tmp_path / "in"]
    assert "width is from 1 to 65536, not 0" in refused(tmp_path, capsys, *words)
    said = refused(tmp_path, capsys, *words, "--width", 2, "--height", 2)
    assert "ends after 9 of 12 bytes" in said
    assert "levels is from 1 to 5" in refused(tmp_path, capsys, *words, "--width", 1, "--levels", 6)
    assert "takes no --steps here" in refused(tmp_path, capsys, *words, "--steps", 1)
    # What is more than the image, as a header behind it, does not count; nor does it in Rodinia.
    assert called(*words, "--width", 2, "--height", 1) == 0


def test_lists_of_edges_in_any_order_are_put_in_ours(tmp_path: Path) -> None:
    (tmp_path / "graph").write_text("3\n2 2\n0 1\n1 2\n1\n4\n0 1\n1 1\n2 1\n1 1\n")
    assert called("from-rodinia", "bfs", tmp_path / "graph", tmp_path / "in") == 0
    with (tmp_path / "in").open("rb") as file:
        given = paper_files.Input(file, tmp_path / "in", paper_files.FORMATS["bfs"])
        assert given.elements(0, 0, 4).tolist() == [0, 2, 3, 5]
        assert given.elements(1, 0, 5).tolist() == [2, 1, 0, 1, 2]


def test_points_in_text_and_binary_are_the_same(tmp_path: Path) -> None:
    points = np.array([[1.5, -2, 3e-7], [4, 5, 6]], dtype="<f4")
    (tmp_path / "text").write_text("a 1.5,-2 3e-7\n\nb\t4 5\t6\n")
    (tmp_path / "binary").write_bytes(np.array([2, 3], dtype="<i4").tobytes() + points.tobytes())
    for name in ("text", "binary"):
        words = ("kmeans", tmp_path / name, tmp_path / f"{name}.in", "--clusters", 2)
        assert called("from-rodinia", *words) == 0
    content = (tmp_path / "text.in").read_bytes()
    assert content == (tmp_path / "binary.in").read_bytes()
    assert content[4096:] == points.tobytes()


def header(program: str, *numbers: int) -> bytes:
    words = b"".join(number.to_bytes(8, "little") for number in numbers)
    return (b"hippoin1" + program.encode().ljust(16, b"\0") + words).ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("hotspot", b"", "is no input of hotspot"),
        ("hotspot", header("kmeans", 1, 1), "is no input of hotspot"),
        ("hotspot", header("hotspot", 0, 1), "rows is from 1 to 65536, not 0"),
        ("hotspot", header("hotspot", 65536, 60), "its header says 34359742464"),
        ("hotspot", header("hotspot", 1, 1) + bytes(4096) + bytes(5), "is damaged: it has 8197"),
        ("hotspot", header("hotspot", 2**64 - 1, 1), "rows is from 1"),
        ("lud", bytes(12), "no square matrix of float32 has 12 bytes"),
        ("lud", b"", "no square matrix"),
        ("bfs", header("bfs", 1, 1, 0, 1) + bytes(4096 + 4), "is damaged at byte 4096: a list"),
        ("hybridsort", header("hybridsort", 1) + b"\0\0\xc0\x7f", "key 0 is not finite"),
        (
            "nn",
            header("nn", 1, 1, 1, 1) + np.array([1.25, 2], dtype=np.float32).tobytes(),
            "record 0: Rodinia's",
        ),
        (
            "cfd",
            header("cfd", 1, 1, 1) + b"\x00" * 4096 + b"\x07" * 4096 + bytes(48),
            "no such nei",
        ),
    ],
)
def test_what_is_no_input_of_ours_is_refused(
    tmp_path: Path, capsys: Any, name: str, content: bytes, why: str
) -> None:
    if name == "bfs":
        content = content[:4096] + b"\xff" * 4096 + content[-4:]
    if name == "cfd":
        content = content[: 2 * 4096 + 16] + bytes(4096 - 16) + bytes(48)
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "theirs").mkdir()
    said = refused(tmp_path, capsys, "to-rodinia", name, tmp_path / "in", tmp_path / "theirs")
    assert str(tmp_path / "in") in said
    assert why in said
    assert not list((tmp_path / "theirs").iterdir())


def test_nothing_is_written_over_what_is_read(tmp_path: Path, capsys: Any) -> None:
    matrix = tmp_path / "matrix.dat"
    np.eye(2, dtype="<f4").tofile(matrix)
    assert "name another folder" in refused(tmp_path, capsys, "to-rodinia", "lud", matrix, tmp_path)
    assert matrix.stat().st_size == 16
    matrix.write_text("1\n2\n")
    assert "is to be read" in refused(tmp_path, capsys, "from-rodinia", "lud", matrix, matrix)
    assert matrix.read_text() == "1\n2\n"
    said = refused(tmp_path, capsys, "from-rodinia", "lud", matrix, tmp_path)
    assert "and no file" in said


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "why"),
    [
        ("hotspot", 8, "0\t1\n2\t1\n", "line 2: cell 1 is not where it should be"),
        ("hotspot", 8, "0\t1\n1\tone\n", "line 2: 'one' is no cell"),
        ("hotspot", 8, "0\t1\n1\t1\n2\t1\n", "line 3: there is more"),
        ("hotspot", 7, "0\t1\n", "7 bytes are no result"),
        ("hotspot", 0, "", "0 bytes are no result"),
        ("bfs", 8, "0) cost:0\n1) cost:x\n", "line 2: no '1) cost:DISTANCE'"),
        ("bfs", 8, "0) cost:0\n1) cost:1\n2) cost:1\n", "line 3: there are 2 nodes only"),
        ("bfs", 8, "0) cost:0\n", "line 2: no '1) cost"),
        ("gaussian", 8, "1 2\n", "has no line 'The final solution is:'"),
        ("gaussian", 8, "x\nThe final solution is: \n1.00\n", "line 4: the text ends after 1 of 2"),
        ("kmeans", 64, "0: 1.00 2.00\n", "no result with 2 values"),
        ("kmeans", 64, "1: 1.00\n", "line 1: no centre 0"),
        ("kmeans", 64, "0: 1.00\n1: 1.00 2.00\n", "line 2: no centre 1"),
        ("kmeans", 64, "0: 1.00 one\n", "line 1: "),
        ("kmeans", 64, "no centres\n", "prints them with -o"),
        ("lud", 12, "1 2 3", "no square matrix"),
        ("lud", 16, "After LUD\n1 2\n3\n>>>Verify<<<<\n", "line 4: '>>>Verify<<<<' is no number"),
        ("nn", 16, "a --> Distance=1.0\n", "has 1 lines"),
        ("nn", 8, "a --> Distance=one\n", "line 1: "),
        ("hybridsort", 8, "2 1 ", "is not in order"),
        ("dwt2d", 8, "", "width is from 1"),
    ],
)
def test_results_that_are_none_are_refused(
    tmp_path: Path, capsys: Any, name: str, ours: int, theirs: str, why: str
) -> None:
    (tmp_path / "out").write_bytes(bytes(ours))
    (tmp_path / "theirs").write_text(theirs)
    if name == "kmeans" and "2 values" in why:
        (tmp_path / "out").write_bytes(bytes(15))
    assert why in refused(tmp_path, capsys, "compare", name, tmp_path / "out", tmp_path / "theirs")


def test_what_there_is_not_is_an_error(tmp_path: Path, capsys: Any) -> None:
    for name in paper_files.FORMATS:
        told = ("--width", 1) if name == "dwt2d" else ()
        files = [tmp_path / "absent"] * (2 if name == "hotspot" else 1)
        assert "absent" in refused(
            tmp_path, capsys, "from-rodinia", name, *files, tmp_path / "in", *told
        )
        assert "absent" in refused(tmp_path, capsys, "to-rodinia", name, *files[:1], tmp_path)
        assert "absent" in refused(
            tmp_path, capsys, "compare", name, tmp_path / "absent", tmp_path / "absent", *told
        )
    with pytest.raises(SystemExit) as stopped:
        called("compare", "heartwall", "a", "b")
    assert stopped.value.code == 2
