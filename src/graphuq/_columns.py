"""Views of columns of a shared matrix in; a form that pickle and joblib store with the matrix only once out."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np


class Shared:
    """A matrix wrapped in one object per array: pickle and joblib recognize repeated objects, but not arrays."""

    known: ClassVar[WeakValueDictionary[int, Shared]] = WeakValueDictionary()

    def __init__(self, array: Any) -> None:
        self.array = array

    @classmethod
    def of(cls, array: Any) -> Shared:
        """The wrapper of an array: the same one as long as anything refers to it."""
        shared = cls.known.get(id(array))
        if shared is None or shared.array is not array:
            shared = cls.known[id(array)] = cls(array)
        return shared


def packed(vectors: Any) -> Any:
    """Shared matrix and column range (first, last) of a view of columns; any other array unchanged."""
    base = getattr(vectors, "base", None)
    if not isinstance(base, np.ndarray) or base.ndim != 2 or base.strides != vectors.strides:
        return vectors
    first = (vectors.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize
    last = first + vectors.shape[1]
    is_view = len(base) == len(vectors) and base.flags.c_contiguous and last <= base.shape[1]
    return (Shared.of(base), first, last) if is_view else vectors


def unpacked(stored: Any) -> Any:
    """Inverse of `packed`."""
    if not isinstance(stored, tuple):
        return stored
    shared, first, last = stored
    return shared.array[:, first:last]
