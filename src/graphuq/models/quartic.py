"""Ginzburg-Landau's Phi as a polynomial of few coordinates: a step that costs the same for any number of nodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq._progress import progress_bar
from graphuq._pytree import pytree

# The polynomial takes as long to make as some n_latent^3 / 8 looks at all nodes, which runs of usual length make up for ...
MOST_LATENT = 64
LEAST_GAIN = 4  # ... where each look at it costs so many times less.
_BLOCK = 4096  # nodes whose products are held at once


@pytree
class Quartic:
    """``sum_i (v_i^2 - 1)^2 / (4 epsilon) + sum_j (y_j - v_j)^2 / (2 gamma^2) = |R p|^2 + |Q w|^2``, v = B z.

    At every node ``v_i^2 - 1`` is linear in p = (1, all z_a z_b with a <= b), and ``y_j - v_j`` in w = (1, z). The square
    matrices R and Q are all that is left of the nodes.
    """

    wells: jax.Array  # R
    misfit: jax.Array  # Q

    def __call__(self, z: jax.Array) -> jax.Array:
        """Phi(B z), a number."""
        one = jnp.ones(1, z.dtype)
        a, b = np.triu_indices(z.size)
        return _squared(self.wells, jnp.concatenate([one, z[a] * z[b]])) + _squared(
            self.misfit, jnp.concatenate([one, z])
        )


def pays(n_nodes: int, n_latent: int) -> bool:
    """Whether the polynomial takes less time than Phi at every node, its making included."""
    n_products = n_latent * (n_latent + 1) // 2 + 1
    return n_latent <= MOST_LATENT and LEAST_GAIN * n_products**2 <= n_nodes * n_latent


def quartic(
    B: NDArray[np.floating],
    nodes: NDArray[np.int64],
    y: NDArray[np.floating],
    gamma: float,
    epsilon: float,
    progress: bool | None = None,
) -> Quartic:
    """The polynomial of wells at every row of B and of labels y, real numbers; made in the precision of B."""
    n_latent = B.shape[1]
    a, b = np.triu_indices(n_latent)
    gram, starts = np.zeros((len(a) + 1, len(a) + 1)), range(0, len(B), _BLOCK)
    with progress_bar(len(starts), shown=progress, unit="block", desc="polynomial of the wells") as bar:
        for first in starts:
            rows = np.ascontiguousarray(B[first : first + _BLOCK].T)
            linear = np.full((len(gram), rows.shape[1]), -1, B.dtype)
            for k in range(n_latent):  # the products with z_k, in the order of (a, b)
                after = 1 + np.searchsorted(a, k)
                np.multiply(rows[k], rows[k:], out=linear[after : after + n_latent - k])
            gram += linear @ linear.T
            bar.update()
    twice = np.concatenate([[1], np.where(a < b, 2, 1)])
    gram *= twice[:, None] * twice / (4 * epsilon)
    misfit = np.column_stack([-y, B[nodes]]).astype(float)
    return Quartic(_root(gram), _root(misfit.T @ misfit / (2 * gamma**2)))


def _root(gram: NDArray[np.float64]) -> jax.Array:
    """R with ``R^T R = gram``, which may be singular."""
    values, vectors = np.linalg.eigh(gram)
    return jnp.asarray(np.sqrt(np.maximum(values, 0))[:, None] * vectors.T)


def _squared(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """``|matrix x|^2``, written so that many chains make one product; a GPU rounds it no more than a processor does."""
    return jnp.square(jnp.matmul(x, matrix.T, precision="highest")).sum()
