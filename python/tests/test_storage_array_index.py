"""What an index reads and writes of an array in storage, beside NumPy with the same data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hippogriff

if TYPE_CHECKING:
    from pathlib import Path

np = pytest.importorskip("numpy")

_settings = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_RECORD = np.dtype(
    {
        "names": ["key", "place", "word"],
        "formats": ["i2", ("f4", (3,)), "S3"],
        "offsets": [1, 4, 17],
        "itemsize": 21,
    }
)
_PACKED = np.dtype([("key", "i2"), ("place", "f4", (3,)), ("word", "S3")])


@st.composite
def _slices(draw: st.DrawFn, length: int) -> slice:
    place = st.none() | st.integers(-length - 2, length + 2)
    return slice(draw(place), draw(place), draw(st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3])))


@st.composite
def _arrays(draw: st.DrawFn, length: int) -> Any:
    """Draw integers for a dimension, most of them inside, as an array or a list."""
    shape = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 1), (3, 2), (0,)]))
    place = st.integers(-length, length - 1)
    if draw(st.integers(0, 30)) == 0:
        place = st.integers(-length - 1, length)
    count = int(np.prod(shape))
    places = np.array(draw(st.lists(place, min_size=count, max_size=count)), int).reshape(shape)
    kind = draw(st.sampled_from(["int64", "int8", "list"]))
    return places.tolist() if kind == "list" else places.astype(kind)


@st.composite
def _masks(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    count = int(np.prod(shape))
    mask = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return np.array(mask, bool).reshape(shape)


@st.composite
def _indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    parts: list[Any] = []
    left = list(shape)
    while len(parts) < 8:
        kinds = ["end", "none", "ellipsis", "bool"] + 4 * (["int", "slice", "array", "mask"])
        kind = draw(st.sampled_from(kinds))
        if kind == "end":
            break
        if kind == "none":
            parts.append(None)
        elif kind == "ellipsis":
            parts.append(...)
            left = left[draw(st.sampled_from([0, 0, 1, 2])) :]
        elif kind == "bool":
            parts.append(draw(st.sampled_from([True, False, np.True_, np.array(True)])))
        elif not left:
            if draw(st.integers(0, 20)) == 0:
                parts.append(0)
            break
        elif kind == "int":
            length = left.pop(0)
            place = draw(st.integers(-length - draw(st.integers(0, 10)) // 10, length - 1))
            parts.append(draw(st.sampled_from([int, np.int32, np.array]))(place))
        elif kind == "slice":
            parts.append(draw(_slices(left.pop(0))))
        elif kind == "array":
            parts.append(draw(_arrays(left.pop(0))))
        else:
            number = draw(st.integers(1, len(left)))
            parts.append(draw(_masks(tuple(left[:number]))))
            left = left[number:]
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


_shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


def _result(call: Any) -> Any:
    """Return what a call gives, or the kind of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error)


@_settings
@given(data=st.data(), shape=_shapes, dtype=st.sampled_from(["float32", _PACKED, "S3"]))
def test_an_index_reads_what_numpys_does(
    tmp_path: Path, data: st.DataObject, shape: tuple[int, ...], dtype: Any
) -> None:
    count = int(np.prod(shape))
    path = tmp_path / "numbers"
    path.write_bytes(np.random.default_rng(3).bytes(count * np.dtype(dtype).itemsize))
    expected = np.fromfile(path, dtype).reshape(shape)
    index = data.draw(_indices(shape))
    with hippogriff.StorageArray(path, dtype, shape, cache=4096, line=512) as array:
        found, wanted = _result(lambda: array[index]), _result(lambda: expected[index])
        assert type(found) is type(wanted), (found, wanted)
        if isinstance(wanted, type):
            assert found is wanted
            return
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), 1, 2, ..., [0, 1]),  # An ellipsis for no dimensions parts arrays as well.
        (slice(None), [1], ..., [0, 1], 2),
        (slice(None), 1, [2, 0], ..., [0, 1]),
        ([0, 1], slice(None), slice(1, 3), slice(None), ...),
        (slice(None), [0, 1], None, [1, 0]),
        (True, 0, [0, 1]),
        (True, slice(None), [0, 1]),
        (0, 1, 2, 0, ...),
        (0, ..., 0, 0, 0),
        (0, 0, 0, 0),
    ],
)
def test_dimensions_are_where_numpy_has_them(tmp_path: Path, index: Any) -> None:
    expected = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    path = tmp_path / "numbers"
    path.write_bytes(expected.tobytes())
    with hippogriff.StorageArray(path, "int64", expected.shape, mode="r+") as array:
        assert type(array[index]) is type(expected[index])
        np.testing.assert_array_equal(array[index], expected[index])
        values = -expected[index]
        array[index] = expected[index] = values
        np.testing.assert_array_equal(array[...], expected)


@_settings
@given(data=st.data(), shape=_shapes)
def test_an_index_writes_what_numpys_does(
    tmp_path: Path, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    count = int(np.prod(shape))
    expected = np.arange(count, dtype="int32").reshape(shape)
    path = tmp_path / "numbers"
    path.write_bytes(expected.tobytes())
    index = data.draw(_indices(shape))
    there = _result(lambda: np.shape(expected[index]))
    shown = there if isinstance(there, tuple) else ()
    shown = tuple(length if data.draw(st.booleans()) else 1 for length in shown)
    values = 100 + np.arange(int(np.prod(shown))).reshape(shown)
    with hippogriff.StorageArray(path, "int32", shape, mode="r+", cache=4096, line=512) as array:
        found = _result(lambda: array.__setitem__(index, values))
        wanted = _result(lambda: expected.__setitem__(index, values))
        assert found is wanted
        np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(np.fromfile(path, "int32").reshape(shape), expected)


@pytest.fixture
def numbers(tmp_path: Path) -> tuple[Path, Any]:
    """Return a file of 5000 rows of 100 numbers, and what is in it."""
    expected = np.random.default_rng(11).random((5000, 100), dtype="float32")
    path = tmp_path / "numbers"
    path.write_bytes(expected.tobytes())
    return path, expected


@pytest.mark.parametrize(
    ("index", "misses_max"),
    [
        ([3, 4000, -1], 3 * 2),
        (np.arange(5000) % 1000 == 7, 5 * 2),
        (([1, 2000], [5, 99]), 2),
        (([1, 2000], slice(3, 5)), 2),
        ((slice(4000, None, -2000), [0, 1]), 3),
        ((None, -1, slice(None, None, -1)), 2),
        (True, 4000),
    ],
)
def test_no_more_is_read_than_the_lines_of_what_is_asked_for(
    numbers: tuple[Path, Any], index: Any, misses_max: int
) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (-1, 100), cache="4MiB", line=512) as array:
        np.testing.assert_array_equal(array[index], expected[index])
        assert array.statistics()["misses"] <= misses_max


@pytest.mark.parametrize(
    "index",
    [
        5000,
        (0, -101),
        [0, 5000],
        (0, 0, 0),
        (..., ...),
        1.5,
        "key",
        [1.5],
        (0, "key"),
        ["key"],
        np.ones(4999, bool),
        np.ones((5000, 99), bool),
        ([0, 1], [0, 1, 2]),
        object(),
        {1},
        np.array(["1"]),
    ],
)
def test_what_is_no_index_is_told_in_numpys_words(numbers: tuple[Path, Any], index: Any) -> None:
    path, expected = numbers
    with pytest.raises(IndexError) as wanted:
        expected[index]
    with hippogriff.StorageArray(path, "float32", (-1, 100), mode="r+") as array:
        for call in (lambda: array[index], lambda: array.__setitem__(index, 0)):
            with pytest.raises(IndexError) as told:
                call()
            assert str(told.value) == str(wanted.value)
        assert array.statistics()["misses"] == 0


def test_slices_that_are_none_are_told_as_numpy_does(numbers: tuple[Path, Any]) -> None:
    with hippogriff.StorageArray(numbers[0], "float32", (-1, 100)) as array:
        with pytest.raises(TypeError, match="slice indices must be integers"):
            array["a":]
        with pytest.raises(ValueError, match="step cannot be zero"):
            array[::0]
        with pytest.raises(ValueError, match="inhomogeneous"):
            array[[[1], [2, 3]]]


def test_iterating_gives_rows_and_ends(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with hippogriff.StorageArray(path, "float32", (50, 100)) as array:
        np.testing.assert_array_equal(np.stack([*iter(array)]), expected[:50])


@pytest.fixture
def records(tmp_path: Path) -> tuple[Path, Any]:
    """Return a file of structures with gaps, and what is in it."""
    path = tmp_path / "records"
    path.write_bytes(np.random.default_rng(5).bytes(6 * 7 * _RECORD.itemsize))
    return path, np.fromfile(path, _RECORD).reshape(6, 7)


@pytest.mark.parametrize("names", ["key", "place", "word", ["key"], ["word", "key"]])
def test_fields_are_read_and_written_by_name(records: tuple[Path, Any], names: Any) -> None:
    path, expected = records
    with hippogriff.StorageArray(path, _RECORD, (6, 7), mode="r+", line=512, cache=512) as array:
        found, wanted = array[names], expected[names]
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        every = [names] if isinstance(names, str) else names
        for name in every:
            view = found if isinstance(names, str) else found[name]
            # `tobytes`, for among random bytes are numbers that are not equal to themselves.
            assert view.tobytes() == expected[name].tobytes()
        values = np.zeros(wanted.shape, wanted.dtype)
        array[names] = values
        expected[names] = values
    assert path.read_bytes() == expected.tobytes()


def test_a_field_takes_what_is_broadcast_to_it(records: tuple[Path, Any]) -> None:
    path, expected = records
    with hippogriff.StorageArray(path, _RECORD, (6, 7), mode="r+") as array:
        for name, values in (("key", 7), ("place", [1, 2, 3]), ("key", np.arange(7))):
            array[name] = values
            expected[name] = values
        array[2] = (1, 2, b"x")
        expected[2] = (1, 2, b"x")
        assert array[3, 4]["key"] == expected[3, 4]["key"]
        with pytest.raises(ValueError, match="no field of name nothing"):
            array["nothing"]
        with pytest.raises(IndexError):
            array[0, "key"]
        with pytest.raises(ValueError, match="broadcast"):
            array["key"] = np.arange(5)
    left = np.fromfile(path, _RECORD).reshape(6, 7)
    for name in _RECORD.names:
        assert left[name].tobytes() == expected[name].tobytes()


def test_fields_of_more_elements_than_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hippogriff._fields._BLOCK_BYTES", 1000)
    path = tmp_path / "records"
    path.write_bytes(np.random.default_rng(5).bytes(1001 * _RECORD.itemsize))
    expected = np.fromfile(path, _RECORD)
    with hippogriff.StorageArray(path, _RECORD, mode="r+", line=512, cache=2048) as array:
        assert array["place"].tobytes() == expected["place"].tobytes()
        for name in ("place", "key"):
            array[name] = expected[name] = np.arange(expected[name].size).reshape(
                expected[name].shape
            )
    assert path.read_bytes() == expected.tobytes()


def test_only_the_field_is_written(records: tuple[Path, Any]) -> None:
    """Writing the whole element back would undo what another thread writes beside it."""
    path, expected = records
    with hippogriff.StorageArray(path, _RECORD, (6, 7), mode="r+") as array:
        moved = array._scatter
        written: list[int] = []

        def scatter(rows: Any, row_bytes: int, values: Any) -> None:
            written.append(rows.size * row_bytes)
            moved(rows, row_bytes, values)

        array._scatter = scatter  # type: ignore[method-assign,assignment]
        array["key"] = 1
    assert sum(written) == 42 * 2
    expected["key"] = 1
    assert path.read_bytes() == expected.tobytes()


def test_a_mask_in_a_mode_that_only_reads_is_refused(numbers: tuple[Path, Any]) -> None:
    path, expected = numbers
    with (
        hippogriff.StorageArray(path, "float32", (-1, 100)) as array,
        pytest.raises(hippogriff.InvalidArgument, match="for reading"),
    ):
        array[expected > 0.5] = 0


@st.composite
def _records(draw: st.DrawFn, depth: int = 2) -> Any:
    """Draw an element type of fields with gaps, some of which have fields themselves."""
    kinds = st.sampled_from(["u1", "<i2", ">f4", "S3", ("<u2", (3,))]).map(np.dtype)
    if depth:
        kinds |= _records(depth - 1)
        kinds |= _records(depth - 1).map(lambda kind: np.dtype((kind, (2,))))
    fields = draw(st.lists(kinds, min_size=0 if depth < 2 else 1, max_size=3))
    offsets, end = [], 0
    for kind in fields:
        offsets.append(end + draw(st.integers(0, 3)))
        end = offsets[-1] + kind.itemsize
    names = [f"f{number}" for number in range(len(fields))]
    itemsize = end + draw(st.integers(0 if end else 1, 3))
    return np.dtype({"names": names, "formats": fields, "offsets": offsets, "itemsize": itemsize})


def _in_fields(dtype: Any) -> Any:
    """Return which bytes of an element belong to a field."""
    if dtype.subdtype is not None:
        return np.tile(_in_fields(dtype.base), dtype.itemsize // dtype.base.itemsize)
    inside = np.full(dtype.itemsize, dtype.names is None)
    for name in dtype.names or ():
        kind, place = dtype.fields[name][:2]
        inside[place : place + kind.itemsize] = _in_fields(kind)
    return inside


def _act(array: Any, how: str, index: Any, values: Any) -> None:
    if how == "put" and isinstance(array, hippogriff.StorageArray):
        array.put(index, values)
    else:
        array[index] = values


@settings(_settings, max_examples=30)
@given(data=st.data(), dtype=_records(), shape=_shapes)
def test_what_is_between_fields_stays(
    tmp_path: Path, data: st.DataObject, dtype: Any, shape: tuple[int, ...]
) -> None:
    before = np.random.default_rng(7).bytes(int(np.prod(shape)) * dtype.itemsize)
    paths = [tmp_path / "ours", tmp_path / "numpys"]
    for path in paths:
        path.write_bytes(before)
    how = data.draw(st.sampled_from(["index", "fields", "put"] if shape else ["index", "fields"]))
    if how == "index":
        index = data.draw(_indices(shape))
    elif how == "put":
        index = data.draw(_arrays(shape[0]))
    else:
        names = list(dtype.names)
        index = data.draw(st.sampled_from([*names, names, names[::-1]]))
    expected = np.memmap(paths[1], dtype, "r+", shape=shape)
    there = _result(lambda: expected[index])
    if isinstance(there, type):
        return
    # Bytes of their own between the fields, every other element, so that a copy has to be made.
    values = np.random.default_rng(8).bytes(2 * there.size * there.dtype.itemsize)
    values = np.frombuffer(values, there.dtype)[::2].reshape(there.shape)
    expected[index] = values
    expected.flush()
    with hippogriff.StorageArray(paths[0], dtype, shape, mode="r+", line=512) as array:
        _act(array, how, index, values)
    # NumPy itself writes between the fields now and then, as with lists of integers.
    wanted = np.where(
        np.tile(_in_fields(dtype), int(np.prod(shape))),
        *(np.frombuffer(each, "u1") for each in (paths[1].read_bytes(), before)),
    )
    assert paths[0].read_bytes() == wanted.tobytes()
