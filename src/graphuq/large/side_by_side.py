"""Matrices of very many rows in; one that has their columns side by side, made when it is asked for, out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphuq.tall import Array, Beside, Mapped, Tall, tall


def beside(left: Any, right: Any) -> Tall:
    """Two matrices side by side, in the blocks of the first; those that are made of the same rows are made together."""
    a, b = tall(left), tall(right)
    n_columns = a.shape[1] + b.shape[1]
    if isinstance(a.source, Mapped) and isinstance(b.source, Mapped) and a.source.given is b.source.given:
        return a.source.given.mapped(partial(_joined, a.source.function, b.source.function), n_columns)
    shape, in_memory = (len(a), n_columns), a.in_memory or b.in_memory
    return Tall(Beside((a.source, b.source)), shape, a.bounds, in_memory)


def first_one(X: Any) -> Tall:
    """The same matrix with 1 throughout its first column."""
    X = tall(X)
    if isinstance(X.source, Mapped):
        return X.source.given.mapped(partial(_first_one, X.source.function), X.shape[1])
    return X.mapped(partial(_first_one, np.asarray), X.shape[1])


def _joined(left: Callable[[Array], Array], right: Callable[[Array], Array], X: Array) -> Array:
    """What two functions make of the same rows, side by side."""
    return np.hstack([left(X), right(X)])


def _first_one(function: Callable[[Array], Array], X: Array) -> Array:
    """What a function makes of rows, with a 1 in the place of their first number."""
    return np.hstack([np.ones((len(X), 1)), function(X)[:, 1:]])
