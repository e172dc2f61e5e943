"""Tall matrices in; a tall matrix with their columns side by side, computed on request, out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphuq.tall import Array, Beside, Mapped, Tall, tall


def beside(left: Any, right: Any) -> Tall:
    """Two matrices side by side, in blocks within those of the first; if mapped from the same rows, computed together."""
    a, b = tall(left), tall(right)
    n_columns = a.shape[1] + b.shape[1]
    if isinstance(a.source, Mapped) and isinstance(b.source, Mapped) and a.source.given is b.source.given:
        return a.source.given.mapped(partial(_joined, a.source.function, b.source.function), n_columns)
    shape, in_memory = (len(a), n_columns), a.in_memory or b.in_memory
    return Tall(Beside((a.source, b.source)), shape, a.bounds_of(n_columns), in_memory)


def first_one(X: Any) -> Tall:
    """The same matrix with its first column replaced by ones."""
    X = tall(X)
    if isinstance(X.source, Mapped):
        return X.source.given.mapped(partial(_first_one, X.source.function), X.shape[1])
    return X.mapped(partial(_first_one, np.asarray), X.shape[1])


def _joined(left: Callable[[Array], Array], right: Callable[[Array], Array], X: Array) -> Array:
    """Results of two functions on the same rows, side by side."""
    return np.hstack([left(X), right(X)])


def _first_one(function: Callable[[Array], Array], X: Array) -> Array:
    """Result of a function on rows, with its first column replaced by ones."""
    return np.hstack([np.ones((len(X), 1)), function(X)[:, 1:]])
