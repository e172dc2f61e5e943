"""A function of data and settings in; the same, which called without the data keeps the settings for later, out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def recipe(build: F) -> F:
    """``knn(X, n_neighbors=20)`` makes a graph, ``knn(n_neighbors=20)`` a function of X that does."""
    known = signature(build)
    first = next(iter(known.parameters))

    @wraps(build)
    def made(*data: Any, **settings: Any) -> Any:
        if data or first in settings:
            return build(*data, **settings)
        known.bind_partial(**settings)  # a setting that does not exist is refused now, not when data come
        return partial(build, **settings)

    return cast(F, made)
