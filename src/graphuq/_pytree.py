"""Dataclass fields in; a frozen dataclass that is a JAX pytree node out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import jax
from jax.tree_util import Partial

T = TypeVar("T")


def static(**settings: Any) -> Any:
    """A field that is static metadata of the pytree: not traced, and recompiled for each value."""
    return field(metadata={"static": True}, **settings)


@dataclass_transform(frozen_default=True, field_specifiers=(field, static))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass whose fields, except `static` ones, are traced by JAX.

    Values are validated in ``__post_init__`` when user code creates an object, but not when JAX rebuilds it around
    tracers, which bypasses ``__init__``. Objects compare by identity, since some fields are arrays.
    """
    frozen: Any = dataclass(frozen=True, eq=False)(cls)
    static_names = [attribute.name for attribute in fields(frozen) if attribute.metadata.get("static")]
    names = [attribute.name for attribute in fields(frozen) if attribute.name not in static_names]

    def flatten(node: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in names]
        return children, tuple(getattr(node, name) for name in static_names)

    def unflatten(static_values: tuple[Any, ...], leaves: Any) -> Any:
        node = object.__new__(frozen)
        for name, value in zip([*static_names, *names], [*static_values, *leaves], strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(frozen, flatten, unflatten)
    return frozen


def traced(owner: Any, name: str) -> Partial:
    """A bound method for JAX; an owner that is a pytree is traced, so that new values need no recompilation."""
    is_leaf = jax.tree_util.all_leaves([owner])
    return Partial(getattr(owner, name)) if is_leaf else Partial(getattr(type(owner), name), owner)
