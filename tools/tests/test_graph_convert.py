"""Graphs of other formats become what a slow converter says, or are refused with their line."""

from __future__ import annotations

import gzip
import importlib.util
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from workloads.graph import convert, edge_files, edge_sort

if TYPE_CHECKING:
    from collections.abc import Iterable

Edges = list[tuple[int, int]]

_REPOSITORY = Path(__file__).resolve().parents[2]
_MODULES = {"world_railways": (274_974, 816_422), "world_highways": (560_282, 1_652_213)}


def slow_file(
    edges: Iterable[tuple[int, int]],
    vertices: int | None = None,
    *,
    symmetric: bool = False,
    unique: bool = False,
    without_loops: bool = False,
) -> bytes:
    """Return the graph file of some edges, the obvious way; without `vertices` made dense."""
    edges = list(edges)
    if vertices is None:
        dense = {
            old: new for new, old in enumerate(sorted({end for edge in edges for end in edge}))
        }
        edges = [(dense[begin], dense[end]) for begin, end in edges]
        vertices = len(dense)
    if without_loops:
        edges = [(begin, end) for begin, end in edges if begin != end]
    if symmetric:
        edges += [(end, begin) for begin, end in edges if begin != end]
    if unique:
        edges = list(set(edges))
    lists: list[list[int]] = [[] for _ in range(vertices)]
    for begin, end in edges:
        lists[begin].append(end)
    offsets = [0]
    for each in lists:
        offsets.append(offsets[-1] + len(each))
    header = struct.pack("<8s16sQQ", b"hippoin1", b"graph", vertices, len(edges)).ljust(4096, b"\0")
    words = struct.pack(f"<{vertices + 1}Q", *offsets)
    words += bytes(-len(words) % 4096)
    return header + words + b"".join(struct.pack(f"<{len(each)}I", *sorted(each)) for each in lists)


def converted(folder: Path, source: Path, *words: str) -> bytes:
    graph = folder / "graph"
    assert convert.main([str(graph), str(source), *words]) == 0
    names = {path.name for path in folder.iterdir()}
    assert not {name for name in names if name.startswith(".")}  # nothing in between is left
    return graph.read_bytes()


def refused(folder: Path, source: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    before = sorted(folder.iterdir())
    assert convert.main([str(folder / "graph"), str(source), *words]) == 1
    assert sorted(folder.iterdir()) == before
    said = capsys.readouterr().err
    assert said.startswith("convert.py: ")
    return said


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def some_edges(seed: int, count: int, numbers: list[int]) -> Edges:
    print(f"seed {seed}")
    chance = random.Random(seed)
    edges = [(chance.choice(numbers), chance.choice(numbers)) for _ in range(count)]
    return edges + [edges[0]] * 3 + [(numbers[0], numbers[0])]


def as_text(edges: Edges) -> str:
    return "".join(f"{begin}\t{end}\n" for begin, end in edges)


def as_emogi(folder: Path, offsets: list[int], ends: list[int]) -> Path:
    for name, numbers in (("col", offsets), ("dst", ends)):
        content = struct.pack(f"<{len(numbers) + 2}Q", len(numbers), 7, *numbers)
        written(folder, f"some.bel.{name}", content)
    return folder / "some.bel"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything comes in several pieces, however small it is."""
    monkeypatch.setattr(edge_files, "BLOCK_BYTES", 64)
    monkeypatch.setattr(edge_files, "EDGES_AT_ONCE", 8)
    monkeypatch.setattr(convert, "_AT_ONCE", 5)
    monkeypatch.setattr(edge_sort, "BYTES_OF_KEY", convert.MEMORY_MIN // 16)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "words",
    [(), ("--symmetric",), ("--symmetric", "--remove-duplicates", "--remove-loops")],
    ids=["as it is", "symmetric", "simple"],
)
@pytest.mark.usefixtures("small_pieces")
def test_text_becomes_what_the_slow_converter_says(
    tmp_path: Path, words: tuple[str, ...], seed: int
) -> None:
    far = [3, 10**18, 17, 2**33, 4, 10**19 - 1] if seed % 2 else list(range(2, 30, 3))
    edges = some_edges(seed, 100, far)
    expected = slow_file(
        edges,
        symmetric="--symmetric" in words,
        unique="--remove-duplicates" in words,
        without_loops="--remove-loops" in words,
    )
    memory = ("--memory", "1MiB")
    assert converted(tmp_path, written(tmp_path, "a", as_text(edges)), *words, *memory) == expected
    packed = written(tmp_path, "a.gz", gzip.compress(as_text(edges).encode()))
    assert converted(tmp_path, packed, *words, *memory) == expected


@pytest.mark.usefixtures("small_pieces")
def test_more_of_one_edge_than_fits_into_memory_is_kept(tmp_path: Path) -> None:
    edges = [(1, 2)] * 100 + [(0, 1)] * 40 + [(2, 0)]
    source = written(tmp_path, "a", as_text(edges))
    assert converted(tmp_path, source, "--memory", "1MiB") == slow_file(edges)
    once = converted(tmp_path, source, "--memory", "1MiB", "--remove-duplicates")
    assert once == slow_file(edges, unique=True)


def test_many_edges_in_little_memory(tmp_path: Path) -> None:
    numbers = np.random.default_rng(5).integers(0, 5000, (150_000, 2))
    edges = [(int(begin), int(end)) for begin, end in numbers]
    source = written(tmp_path, "a", as_text(edges))
    words = ("--symmetric", "--remove-duplicates", "--memory", "1MiB")
    assert converted(tmp_path, source, *words) == slow_file(edges, symmetric=True, unique=True)


def test_comments_blanks_weights_and_a_last_line_without_an_end(tmp_path: Path) -> None:
    text = "# 5 6\n\n  % 7 8\n 1 \t2 0.5\r\n#3 4\n\t2 9  -1\n \n9 1 x"
    assert converted(tmp_path, written(tmp_path, "a", text)) == slow_file([(1, 2), (2, 9), (9, 1)])


def test_numbers_are_kept_where_they_shall_be(tmp_path: Path) -> None:
    source = written(tmp_path, "a", "1 6\n3 3\n")
    assert converted(tmp_path, source, "--keep-numbers") == slow_file([(1, 6), (3, 3)], 7)
    assert converted(tmp_path, source, "--keep-numbers", "--remove-loops") == slow_file([(1, 6)], 7)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# a\n1 2\n\n3 x\n", "line 4: 'x' is no number of a vertex"),
        ("1 -2\n", "line 1: '-2' is no number"),
        ("1 2\n1.0 2\n", "line 2: '1.0' is no number"),
        ("1 2\n0x3 2\n", "line 2: '0x3'"),
        ("1 2\n1_0 2\n", "line 2: '1_0'"),
        ("1 ٣\n", "line 1: "),
        ("1 2\n3\n", "line 2: 1 words, where others have 2"),
        ("1 2\n3 4 5\n", "line 2: 3 words, where others have 2"),
        ("1,2\n", "line 1: 1 words are no edge"),
        ("1 2 3 4 5\n", "line 1: 5 words are no edge"),
        ("1 2 # no comment\n3 4\n", "line 1: 5 words"),
        ("1 10000000000000000000\n", "line 1: '10000000000000000000' is too large"),
        ("1 2\n3 \0\n", "line 2: '\\x00' is no number"),
        ("\ufeff1 2\n", "line 1: "),
        ("# nothing\n", "0 vertices: a graph has 1 to"),
        ("", "0 vertices"),
        (b"\x1f\x8b\x08\x00", "is damaged"),
        (gzip.compress(b"1 2\n" * 9, mtime=0)[:-9], "is damaged"),
    ],
)
def test_bad_text_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, why: str
) -> None:
    assert why in refused(tmp_path, written(tmp_path, "a", text), capsys)


@pytest.mark.usefixtures("small_pieces")
def test_lines_are_counted_over_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "# comment\n" * 10 + "1 2\n" * 100 + "1 two\n"
    assert "a, line 111: 'two'" in refused(tmp_path, written(tmp_path, "a", text), capsys)
    long = "1 2\n" * 20 + "1" * 200 + " 2\n"
    assert "line 21: longer than" in refused(tmp_path, written(tmp_path, "a", long), capsys)


def test_kept_numbers_have_a_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path, "a", f"1 2\n0 {2**31}\n")
    assert "line 2: '2147483648' is more" in refused(tmp_path, source, capsys, "--keep-numbers")


def test_matrices_become_graphs(tmp_path: Path) -> None:
    text = "%%MatrixMarket matrix coordinate pattern general\n% a\n\n5 5 3\n1 2\n5 5\n2 1\n"
    general = [(0, 1), (4, 4), (1, 0)]
    assert converted(tmp_path, written(tmp_path, "a.mtx", text)) == slow_file(general, 5)
    text = "%%matrixmarket MATRIX coordinate Real Symmetric\n4 4 3\n2 1 1e9\n3 3 0\n4 2 -.5\n"
    lower = [(1, 0), (2, 2), (3, 1)]
    source = written(tmp_path, "a.mtx", text.replace("matrixmarket", "MatrixMarket"))
    assert converted(tmp_path, source) == slow_file(lower, 4, symmetric=True)
    text = "%%MatrixMarket matrix coordinate integer general\n2 2 0\n"
    source = written(tmp_path, "a.mtx.gz", gzip.compress(text.encode()))
    assert converted(tmp_path, source) == slow_file([], 2)


_MATRIX = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_MATRIX + "2 1\n", "has 1 entries, and says 2"),
        (_MATRIX + "2 1\n3 1\n3 2\n", "has 3 entries, and says 2"),
        (_MATRIX + "2 1\n4 1\n", "line 4: '4' is no row or column: they go from 1 to 3"),
        (_MATRIX + "2 1\n0 1\n", "line 4: '0' is no row or column"),
        (_MATRIX + "2 1\n1 3\n", "entry 2 stands above the diagonal"),
        (_MATRIX + "2 1 1\n3 1 1\n", "line 3: 3 words, where others have 2"),
        (_MATRIX + "% late\n", "line 3: '%'"),
        (_MATRIX.replace("3 3", "3 4"), "line 2: a matrix of 3 x 4 is no graph"),
        (_MATRIX.replace("3 3 2", "3 3"), "line 2: no size of a matrix"),
        (_MATRIX.replace("3 3 2", "3 3 -2"), "line 2: no size of a matrix"),
        (_MATRIX.replace("3 3", "3000000000 3000000000"), "is no graph"),
        (_MATRIX.replace("pattern", "complex"), "line 1: a matrix of pattern, real or integer"),
        (_MATRIX.replace("symmetric", "hermitian"), "line 1: a general or symmetric matrix"),
        (_MATRIX.replace("coordinate", "array"), "line 1: no '%%MatrixMarket matrix coordinate"),
        (_MATRIX.split("\n")[0], "line 2: the matrix ends before its size"),
    ],
)
def test_bad_matrices_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    assert why in refused(tmp_path, written(tmp_path, "a.mtx", text), capsys)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("suffix", ["", ".col", ".dst"])
def test_emogis_files_become_graphs(tmp_path: Path, suffix: str) -> None:
    # A list over several pieces, and vertices without any before, between and behind.
    lists = [[], [], [5, 3, 3] * 7, [], [1], [0, 5], [], []]
    offsets = [sum(len(each) for each in lists[:count]) for count in range(len(lists) + 1)]
    source = as_emogi(tmp_path, offsets, [end for each in lists for end in each])
    edges = [(begin, end) for begin, each in enumerate(lists) for end in each]
    path = source.with_name(source.name + suffix)
    assert converted(tmp_path, path) == slow_file(edges, len(lists))
    assert converted(tmp_path, path, "--symmetric") == slow_file(edges, len(lists), symmetric=True)


@pytest.mark.parametrize(
    ("offsets", "ends", "why"),
    [
        ([0, 1, 3], [0, 1], "offsets do not go from 0 up to 2 edges"),
        ([1, 1, 2], [0, 1], "offsets do not go from 0"),
        ([0, 2, 1, 2], [0, 1], "offsets do not go from 0"),
        ([0, 1, 2], [0, 2], "neighbour 1 is 2, of 2 vertices"),
        ([0, 1, 2], [2**40, 1], "neighbour 0 is 1099511627776"),
        ([0], [], "has 1 offsets"),
    ],
)
def test_damaged_files_of_emogi_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    offsets: list[int],
    ends: list[int],
    why: str,
) -> None:
    assert why in refused(tmp_path, as_emogi(tmp_path, offsets, ends), capsys)


@pytest.mark.parametrize("name", ["some.bel.col", "some.bel.dst"])
def test_no_file_of_emogi_is_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    as_emogi(tmp_path, [0, 1, 2], [1, 0])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert convert.main([str(tmp_path / name), str(tmp_path / "some.bel.dst")]) == 1
    assert "is what is to be converted" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["some.bel.col", "some.bel.dst"])
def test_files_of_emogi_of_another_size_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    source = as_emogi(tmp_path, [0, 1, 2], [1, 0])
    content = (tmp_path / name).read_bytes()
    for wrong in (content[:-1], content + b"\0", content[16:], content[:9], b""):
        (tmp_path / name).write_bytes(wrong)
        assert f"{name} has {len(wrong)} bytes" in refused(tmp_path, source, capsys)
    (tmp_path / name).unlink()
    assert name in refused(tmp_path, source, capsys)


@pytest.mark.usefixtures("small_pieces")
def test_modules_of_scgraph_are_read_and_not_run(tmp_path: Path) -> None:
    lists = "[{1: 1.5, 2: 0.0}, {0: 1.5}, {0: 2, 2: 1e-3}, {}]"
    text = f"\nfrom nowhere import nothing\nexit(3)\ngraph={lists}\nnodes=[]\n"
    source = written(tmp_path, "roads.py", text)
    assert converted(tmp_path, source) == slow_file([(0, 1), (0, 2), (1, 0), (2, 0), (2, 2)], 4)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("graph=[{1: 1.0}, {2: 1.0}]", "line 2: b'2: 1.0' in the list of vertex 1 of 2"),
        ("graph=[{1: 1.0}, {-1: 1.0}]", "b'-1: 1.0' in the list"),
        ("graph=[{1: 1.0}, {exit(): 1}]", "b'exit(): 1'"),
        ("graph=[{1}, {0: 1}]", "b'1' in the list of vertex 0"),
        ("graph=[{1: 1.0}, {0: 1.0}", "line 2: no list of neighbours by vertex"),
        ("roads=[{1: 1.0}, {0: 1.0}]", "has no line 'graph=[{...}, ...]'"),
    ],
)
def test_other_modules_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, why: str
) -> None:
    assert why in refused(tmp_path, written(tmp_path, "roads.py", f"\n{line}\n"), capsys)


def test_lists_that_lead_one_way_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, words, one_way in [
        ("1 2\n2 3\n", (), True),
        ("1 2\n2 3\n", ("--symmetric",), False),
        ("1 2\n2 1\n3 3\n", (), False),
        ("1 2\n1 2\n2 1\n", (), True),
        ("1 2\n1 2\n2 1\n", ("--remove-duplicates",), False),
    ]:
        converted(tmp_path, written(tmp_path, "a", text), *words)
        assert ("one way only" in capsys.readouterr().err) == one_way, text


def test_what_was_there_stays_until_the_new_one_is_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = written(tmp_path, "graph", "before")
    refused(tmp_path, written(tmp_path, "a", "1 x\n"), capsys)
    assert graph.read_text() == "before"
    refused(tmp_path, tmp_path / "absent", capsys)
    source = written(tmp_path, "b", "1 2\n")
    assert convert.main([str(source), str(source)]) == 1
    assert source.read_text() == "1 2\n"
    assert convert.main([str(tmp_path), str(source)]) == 1
    assert "and no file" in capsys.readouterr().err
    link = tmp_path / "link"
    link.symlink_to(graph)
    assert convert.main([str(link), str(source)]) == 0
    assert link.is_symlink()
    assert graph.read_bytes() == slow_file([(1, 2)])


def test_what_there_is_no_room_for_leaves_nothing(tmp_path: Path) -> None:
    # Of the first the edges in between are too many, of the second the graph is too large.
    edges = written(tmp_path, "a", as_text([(place, 0) for place in range(9000)]))
    matrix = "%%MatrixMarket matrix coordinate pattern general\n90000 90000 1\n1 1\n"
    before = sorted([edges, written(tmp_path, "b", matrix)])
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))"
    code += "; import sys; from workloads.graph import convert; sys.exit(convert.main())"
    for source in before:
        command: list[Any] = [sys.executable, "-c", code, tmp_path / "graph", source]
        done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True)
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("convert.py: [Errno 27]")
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("words", [["--memory", "1TB"], ["--memory", "9"], ["--format", "metis"]])
def test_words_that_mean_nothing_are_refused(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit):
        convert.main([str(tmp_path / "graph"), str(tmp_path / "a"), *words])


def runs_checked(graph: Path, *words: str) -> None:
    library = Path(os.environ.get("HIPPOGRIFF_LIBRARY", "build/libhippogriff.so"))
    program = library.parent / "bin" / "graph"
    if not program.exists():
        pytest.skip("the workloads are not built")
    for algorithm in ("bfs", "bfs --top-down", "cc", "pagerank"):
        command: list[Any] = [program, "run", graph, "--algorithm", *algorithm.split(), *words]
        command += ["--device", "host", "--mode", "all", "--check", "--json", "--iterations", "3"]
        environment = {**os.environ, "HIPPOGRIFF_NODE": "off"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count('"checked": true') == 4


def test_graph_computes_over_what_was_converted(tmp_path: Path) -> None:
    chance = random.Random(11)
    edges = [(chance.randrange(900) * 5, chance.randrange(900) * 5) for _ in range(4000)]
    source = written(tmp_path, "a", as_text(edges))
    graph = tmp_path / "graph"
    command: list[Any] = [sys.executable, "-m", "workloads.graph.convert", graph, source]
    done = subprocess.run(
        [*command, "--symmetric"], cwd=_REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith(" edges\n")
    assert not done.stderr
    runs_checked(graph, "--cache", "32KiB", "--line", "512", "--sources", "3")


@pytest.mark.parametrize("name", sorted(_MODULES))
def test_real_networks_are_converted(tmp_path: Path, name: str) -> None:
    spec = importlib.util.find_spec("scgraph_data")
    if spec is None or spec.origin is None:
        pytest.skip("scgraph-data is not installed: see tools/requirements-graphs.txt")
    graph = tmp_path / "graph"
    module = Path(spec.origin).with_name(f"{name}.py")
    wish = convert.Wish()
    found = convert.convert(graph, module, None, wish, tmp_path)
    assert (found.vertices, found.edges) == _MODULES[name]
    assert found.symmetric
    if name == "world_railways":
        runs_checked(graph, "--source", "0")
