"""A function of data and settings in; one that can be called with settings alone, for data to come later, out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def recipe(build: F) -> F:
    """Make the data optional: ``knn(X, n_neighbors=20)`` is a graph, ``knn(n_neighbors=20)`` a function of X."""
    declared = signature(build)
    first = next(iter(declared.parameters))

    @wraps(build)
    def build_or_bind(*data: Any, **settings: Any) -> Any:
        if data or first in settings:
            return build(*data, **settings)
        declared.bind_partial(**settings)  # an unknown setting fails now, not when called with data
        return partial(build, **settings)

    return cast(F, build_or_bind)
