"""Columns of a matrix that several objects hold in; what pickle and joblib store of them, the matrix once, out."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np


class Shared:
    """A matrix as one object: pickle and joblib know objects again, but not arrays."""

    known: ClassVar[WeakValueDictionary[int, Shared]] = WeakValueDictionary()

    def __init__(self, array: Any) -> None:
        self.array = array

    @classmethod
    def of(cls, array: Any) -> Shared:
        """One object as long as someone holds it."""
        found = cls.known.get(id(array))
        if found is None or found.array is not array:
            found = cls.known[id(array)] = cls(array)
        return found


def packed(vectors: Any) -> Any:
    """The matrix that these are columns of, and which; themselves where they are not some of its columns."""
    base = getattr(vectors, "base", None)
    if not isinstance(base, np.ndarray) or base.ndim != 2 or base.strides != vectors.strides:
        return vectors
    first = (vectors.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize
    last = first + vectors.shape[1]
    same = len(base) == len(vectors) and base.flags.c_contiguous and last <= base.shape[1]
    return (Shared.of(base), first, last) if same else vectors


def unpacked(stored: Any) -> Any:
    """The columns again."""
    if not isinstance(stored, tuple):
        return stored
    shared, first, last = stored
    return shared.array[:, first:last]
