"""Matrices of very many rows in; one that has their columns side by side, made when it is asked for, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphuq.tall import Array, Beside, Mapped, Tall, tall


def beside(left: Any, right: Any) -> Tall:
    """Two matrices side by side, in the blocks of the first; those that are made of the same rows are made together."""
    a, b = tall(left), tall(right)
    n_columns = a.shape[1] + b.shape[1]
    if isinstance(a.source, Mapped) and isinstance(b.source, Mapped) and a.source.given is b.source.given:
        return a.source.given.mapped(Joined((a.source.function, b.source.function)), n_columns)
    shape, in_memory = (len(a), n_columns), a.in_memory or b.in_memory
    return Tall(Beside((a.source, b.source)), shape, a.bounds, in_memory)


def first_one(X: Any) -> Tall:
    """The same matrix with 1 throughout its first column."""
    X = tall(X)
    if isinstance(X.source, Mapped):
        return X.source.given.mapped(FirstOne(X.source.function), X.shape[1])
    return X.mapped(FirstOne(), X.shape[1])


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
