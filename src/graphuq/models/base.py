"""What a model must offer, and the checks on the labels that every model makes."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray


class Model(Protocol):
    """A likelihood: Phi(u; y) as a function of u at the nodes it looks at.

    A model of your own is a small class with these two. Two more attributes may be added:
    ``sees_all_nodes = True`` where `phi` takes u at every node instead of u[nodes], as
    Ginzburg-Landau does; and ``labels_are_real = True`` where the label of a node is u itself and not
    its sign. `phi` is written with `jax.numpy`; its gradient is taken by JAX.
    """

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The labeled nodes."""
        ...

    def phi(self, u: jax.Array) -> jax.Array:
        """Minus the log likelihood, up to a constant."""
        ...


def sees_all_nodes(model: Model) -> bool:
    """Whether `phi` takes u at every node."""
    return bool(getattr(model, "sees_all_nodes", False))


def labels_are_real(model: Model) -> bool:
    """Whether the label of a node is u itself, not its sign."""
    return bool(getattr(model, "labels_are_real", False))


def check_label_model(model: Any) -> None:
    """Doubt the nodes, labels and gamma of a frozen model, and keep them as arrays and a number."""
    nodes, y = check_labels(model.nodes, model.y)
    for name, value in (("nodes", nodes), ("y", y), ("gamma", check_positive("gamma", model.gamma))):
        object.__setattr__(model, name, value)


def check_nodes(nodes: ArrayLike, n_nodes: int) -> NDArray[np.int64]:
    """Nodes asked for, as numbers: given as such, or as one yes or no for each node."""
    chosen = np.atleast_1d(np.asarray(nodes))
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iub"):
        raise ValueError(
            f"Nodes must be a list of node numbers, or one yes or no for each node; got {chosen.dtype} of the shape "
            f"{chosen.shape}."
        )
    if chosen.dtype.kind == "b":
        if chosen.size != n_nodes:
            raise ValueError(f"A mask needs one entry for each of {n_nodes} nodes, got {chosen.size}.")
        return np.flatnonzero(chosen)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= n_nodes):
        raise ValueError(f"Nodes must lie between 0 and {n_nodes - 1}, got {chosen.min()} to {chosen.max()}.")
    return chosen.astype(np.int64)


def check_in_graph(nodes: NDArray[np.int64], n_nodes: int) -> None:
    """Refuse nodes that a graph does not have."""
    if nodes.max() >= n_nodes:
        raise ValueError(f"Node {nodes.max()} is not in the graph, whose nodes are 0 to {n_nodes - 1}.")


def check_labels(nodes: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Labeled nodes and their labels, -1 or +1, each node once.

    A node given twice with one label counts once; with two different labels it is refused.
    """
    indices = np.atleast_1d(np.asarray(nodes))
    values = np.atleast_1d(np.asarray(y, dtype=float))
    if indices.ndim != 1 or indices.shape != values.shape:
        raise ValueError(
            f"nodes and y must be two lists of one length, got shapes {indices.shape} and {values.shape}."
        )
    if indices.size == 0:
        raise ValueError("No labels: at least one labeled node is needed.")
    if not np.issubdtype(indices.dtype, np.integer):
        raise TypeError(f"nodes must be integers (row numbers), got {indices.dtype}.")
    if indices.min() < 0:
        raise ValueError(f"nodes must be row numbers from 0, got {indices.min()}.")
    wrong = ~np.isin(values, (-1.0, 1.0))
    if wrong.any():
        raise ValueError(f"Labels must be -1 or +1, got {values[wrong][0]:g}; code the two classes so.")
    unique, first, inverse = np.unique(indices, return_index=True, return_inverse=True)
    conflict = values != values[first][inverse]
    if conflict.any():
        raise ValueError(f"Node {indices[conflict][0]} is given both labels, -1 and +1: remove one of them.")
    if unique.size < indices.size:
        keep = np.sort(first)
        indices, values = indices[keep], values[keep]
    if np.unique(values).size == 1:
        warnings.warn(
            f"Every label is {values[0]:+.0f}: with one class only, the data cannot say where the other one is.",
            stacklevel=5,
        )
    return indices.astype(np.int64), values


def check_positive(name: str, value: float) -> float:
    """A finite number above zero."""
    if not np.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a finite number above 0, got {value}.")
    return float(value)
