"""Frozen dataclasses that JAX can look into: fields in, a pytree node out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import jax
from jax.tree_util import Partial

T = TypeVar("T")


def static(**settings: Any) -> Any:
    """A field that is part of a node's shape: not traced, and compiled anew for each value."""
    return field(metadata={"static": True}, **settings)


@dataclass_transform(frozen_default=True, field_specifiers=(field, static))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass whose fields, but for `static` ones, are traced by JAX.

    Values are checked in ``__post_init__`` when a person makes an object, and not again when
    JAX rebuilds it around tracers: rebuilding bypasses ``__init__``. An object equals only itself, since arrays are
    among its fields.
    """
    frozen: Any = dataclass(frozen=True, eq=False)(cls)
    fixed = [each.name for each in fields(frozen) if each.metadata.get("static")]
    names = [each.name for each in fields(frozen) if each.name not in fixed]

    def shape(node: Any) -> tuple[Any, ...]:
        return tuple(getattr(node, name) for name in fixed)

    def flatten(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(node, name) for name in names), shape(node)

    def flatten_with_keys(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple((jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in names), shape(node)

    def unflatten(fixed_values: tuple[Any, ...], leaves: Any) -> Any:
        node = object.__new__(frozen)
        for name, value in zip([*fixed, *names], [*fixed_values, *leaves], strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(frozen, flatten_with_keys, unflatten, flatten)
    return frozen


def traced(owner: Any, name: str) -> Partial:
    """A method as JAX takes it: traced through a pytree, so that other values need no new compilation, else a constant."""
    is_leaf = jax.tree_util.all_leaves([owner])
    return Partial(getattr(owner, name)) if is_leaf else Partial(getattr(type(owner), name), owner)
