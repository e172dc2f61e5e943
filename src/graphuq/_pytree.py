"""Frozen dataclasses that JAX can look into: fields in, a pytree node out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass whose fields are traced by JAX.

    Values are checked in ``__post_init__`` when a person makes an object, and not again when
    JAX rebuilds it around tracers: rebuilding bypasses ``__init__``.
    """
    frozen: Any = dataclass(frozen=True)(cls)
    names = [field.name for field in fields(frozen)]

    def flatten(node: Any) -> tuple[tuple[Any, ...], None]:
        return tuple(getattr(node, name) for name in names), None

    def flatten_with_keys(node: Any) -> tuple[tuple[Any, ...], None]:
        return tuple((jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in names), None

    def unflatten(_: None, leaves: Any) -> Any:
        node = object.__new__(frozen)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(node, name, leaf)
        return node

    jax.tree_util.register_pytree_with_keys(frozen, flatten_with_keys, unflatten, flatten)
    return frozen


def is_pytree(value: object) -> bool:
    """Whether JAX looks into `value` rather than treating it as one leaf."""
    return not jax.tree_util.all_leaves([value])
