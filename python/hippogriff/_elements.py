"""Element types of arrays in files: the common ones by name, the rest by NumPy's dtype."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from hippogriff._dtypes import find_dtype
from hippogriff.errors import InvalidArgument


class Element(NamedTuple):
    """An element type. `dtype` is what `Framework.empty` takes: a name, or a dtype of NumPy's."""

    dtype: Any
    itemsize_bytes: int


def find_element(dtype: object) -> Element:
    """Find the element type that a name, a class, a torch or a NumPy dtype means.

    Raises
    ------
    InvalidArgument
        When there is none, or its elements are Python objects or have no bytes.
    """
    try:
        found = find_dtype(dtype)
    except InvalidArgument:
        return _find_in_numpy(dtype)
    return Element(found.name, found.itemsize_bytes)


def _find_in_numpy(dtype: object) -> Element:
    try:
        theirs = importlib.import_module("numpy").dtype(dtype)
    except ImportError:
        raise InvalidArgument(f"dtype {dtype!r:.100} is unknown; without NumPy") from None
    except (TypeError, ValueError, SyntaxError) as error:
        raise InvalidArgument(f"dtype {dtype!r:.100} is unknown: {error}") from None
    return element_of(theirs)


def element_of(dtype: Any) -> Element:
    """Return the element type that a dtype of NumPy's is.

    Raises
    ------
    InvalidArgument
        As `find_element`.
    """
    if dtype.hasobject:
        raise InvalidArgument(f"elements of {dtype!r:.200} are Python objects, which are not data")
    if dtype.subdtype is not None or dtype.itemsize == 0:
        raise InvalidArgument(f"{dtype!r:.200} is no element type: use its base, and a shape")
    if dtype.names is None and dtype.kind in "biufcV":
        try:
            found = find_dtype(dtype)
        except InvalidArgument:
            pass
        else:
            return Element(found.name, found.itemsize_bytes)
    return Element(dtype, int(dtype.itemsize))
