"""A function of data and settings in; one that can be called with settings alone, for data to come later, out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

Data = TypeVar("Data", contravariant=True)
Settings = ParamSpec("Settings")
Built = TypeVar("Built", covariant=True)


class Recipe(Protocol[Data, Settings, Built]):
    """A function of data and settings that may also be called without the data."""

    @overload
    def __call__(self, data: Data, /, *args: Settings.args, **settings: Settings.kwargs) -> Built: ...
    @overload
    def __call__(self, *args: Settings.args, **settings: Settings.kwargs) -> Callable[[Data], Built]: ...


def recipe(build: Callable[Concatenate[Data, Settings], Built]) -> Recipe[Data, Settings, Built]:
    """Make the data optional: ``knn(X, n_neighbors=20)`` is a graph, ``knn(n_neighbors=20)`` a function of X."""
    declared = signature(build)
    first = next(iter(declared.parameters))

    @wraps(build)
    def build_or_bind(*data: Any, **settings: Any) -> Any:
        if data or first in settings:
            return build(*data, **settings)
        declared.bind_partial(**settings)  # an unknown setting fails now, not when called with data
        return partial(build_or_bind, **settings)  # unlike `build`, found by its name when unpickled

    return cast(Any, build_or_bind)
