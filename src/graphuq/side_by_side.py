"""Matrices of very many rows in; one that has their columns side by side, made when it is asked for, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.tall import Array, Index, Mapped, Stored, Tall, delayed


def beside(left: Any, right: Any) -> Tall:
    """Two matrices side by side; those that are made of the same rows are made together."""
    a, b = (each if isinstance(each, Tall) else Tall(Stored(each)) for each in (left, right))
    whole = a.columns == b.columns == slice(None)
    if (
        whole
        and isinstance(a.source, Mapped)
        and isinstance(b.source, Mapped)
        and a.source.given is b.source.given
    ):
        functions = Joined((a.source.function, b.source.function))
        return a.source.given.mapped(functions, a.source.n_columns + b.source.n_columns)
    return Tall(Beside((a, b)))


def first_one(X: Any) -> Tall:
    """The same matrix with 1 throughout its first column."""
    X = X if isinstance(X, Tall) else Tall(Stored(X))
    if X.columns == slice(None) and isinstance(X.source, Mapped):
        return X.source.given.mapped(FirstOne(X.source.function), X.shape[1])
    return X.mapped(FirstOne(), X.shape[1])


@dataclass(frozen=True, eq=False)
class Beside:
    """Rows of several matrices, side by side; blocks are those of the first."""

    parts: tuple[Tall, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.parts[0].shape[0], sum(part.shape[1] for part in self.parts)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Those of the first."""
        return self.parts[0].bounds

    @property
    def in_memory(self) -> bool:
        """Whether one of them is."""
        return any(part.in_memory for part in self.parts)

    def rows(self, index: Index) -> Array:
        """Some of the rows."""
        return np.hstack([part.rows(index) for part in self.parts])

    def lazy(self, rows: slice) -> Any:
        """The same, for Dask."""
        return delayed(np.hstack)([part.lazy(rows) for part in self.parts])


@dataclass(frozen=True, eq=False)
class Joined:
    """Columns that several functions make of the same rows, side by side."""

    functions: tuple[Callable[[Array], Array], ...]

    def __call__(self, X: Array) -> Array:
        """The rows."""
        return np.hstack([function(X) for function in self.functions])


@dataclass(frozen=True)
class FirstOne:
    """Rows with a 1 in the place of their first number."""

    function: Callable[[Array], Array] | None = None

    def __call__(self, X: Array) -> Array:
        """The rows."""
        found = X.copy() if self.function is None else self.function(X)
        found[:, 0] = 1.0
        return found
