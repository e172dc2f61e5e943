"""Whitened coordinates of a graph and eigenvectors at new points in; what the coordinates say there too out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq.inference.target import Linear, LinearWithTail
from graphuq.inference.whiten import Whitening
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]


@dataclass(frozen=True)
class Extended:
    """The nodes of a graph, then new ones, under one set of coordinates z.

    The prior goes on to a new node x by the values ``q_j(x)`` of its eigenvectors there. To the old nodes i

        Cov(u_x, u_i) = sum_j (v_j - v_tail) q_j(x) q_j(i),

    as between any two old ones. What its neighbors do not determine of u_x is its own, independent of
    z: a share v_tail of the tail, the variance that modes without a value at x have at an average node, and,
    if a least variance is asked for, what the sum lacks to it,

        Var(u_x) = max(least, sum_j (v_j - v_tail) q_j(x)^2) + v_tail + sum_{j without value} (v_j - v_tail) / N.

    A node far from all others has small ``q_j(x)``: of the least variance next to nothing is determined.
    """

    inner: Whitening  # of the old and new nodes, own variance left out
    n_old: int
    own_variance: Array  # (n_new,)

    @property
    def prior(self) -> GaussianPrior:
        """The prior, with rows for the new nodes."""
        return self.inner.prior

    @property
    def nodes(self) -> Nodes:
        """The nodes the model sees."""
        return self.inner.nodes

    @property
    def n_latent(self) -> int:
        """Length of z."""
        return self.inner.n_latent

    def field(self, dtype: str) -> Linear | LinearWithTail:
        """The map from z to u at the seen nodes."""
        return self.inner.field(dtype)

    def mean(self, z: NDArray[Any], nodes: Nodes) -> NDArray[Any]:
        """``E[u_j | z]``."""
        return self.inner.mean(z, nodes)

    def std(self, nodes: Nodes) -> Array:
        """The standard deviation of ``u_j`` given z."""
        own = np.concatenate([np.zeros(1), self.own_variance])[np.maximum(nodes - self.n_old + 1, 0)]
        return np.sqrt(np.square(self.inner.std(nodes)) + own)


def extend_whitening(
    whitening: Whitening,
    vectors: ArrayLike,
    has_value: NDArray[np.bool_],
    least_quantile: float | None = None,
) -> Extended:
    """Add nodes N, N + 1, ... where the eigenvectors have these values.

    Args:
        whitening: of the graph.
        vectors: ``q_j(x)``, shape (n_new, n_modes).
        has_value: the modes to believe, shape (n_modes,); the others count as without value.
        least_quantile: the share of old nodes of less variance than any new one has; None for no least variance.
    """
    prior, shape = whitening.prior, np.shape(vectors)
    if len(shape) != 2 or shape[1] != prior.n_modes:
        raise ValueError(f"vectors must have {prior.n_modes} columns, one for each mode, got the shape {shape}.")
    rows = np.where(has_value, np.asarray(vectors, dtype=float), 0.0)
    longer = replace(prior, vectors=np.concatenate([prior.vectors, rows]))
    excess = np.maximum(prior.variances - prior.tail_variance, 0.0)
    determined = np.square(longer.vectors) @ np.where(has_value, excess, 0.0)
    least = 0.0 if least_quantile is None else np.quantile(determined[: prior.n_nodes], least_quantile)
    own = np.maximum(least - determined[prior.n_nodes :], 0.0) + excess[~has_value].sum() / prior.n_nodes
    return Extended(replace(cast(Any, whitening), prior=longer), prior.n_nodes, own)
