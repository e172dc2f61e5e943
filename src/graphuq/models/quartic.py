"""The map v = B z in; Ginzburg-Landau's Phi as a polynomial of z, at a cost independent of the nodes, out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq._progress import progress_bar
from graphuq._pytree import pytree

# Building the polynomial costs about n_latent^3 / 8 evaluations of Phi at all nodes, which runs of usual length
# amortize if an evaluation of the polynomial is at least LEAST_GAIN times cheaper.
MOST_LATENT = 64
LEAST_GAIN = 4
_BLOCK = 4096  # nodes whose products are held in memory at once


@pytree
class Quartic:
    """``sum_i (v_i^2 - 1)^2 / (4 epsilon) + sum_j (y_j - v_j)^2 / (2 gamma^2) = |R p|^2 + |Q w|^2``, v = B z.

    At every node, ``v_i^2 - 1`` is linear in p = (1, all z_a z_b with a <= b) and ``y_j - v_j`` is linear in w =
    (1, z). The sums over nodes are reduced to the square matrices R and Q.
    """

    wells: jax.Array  # R
    misfit: jax.Array  # Q

    def __call__(self, z: jax.Array) -> jax.Array:
        """Phi(B z), a scalar."""
        one = jnp.ones(1, z.dtype)
        a, b = np.triu_indices(z.size)
        return _squared(self.wells, jnp.concatenate([one, z[a] * z[b]])) + _squared(
            self.misfit, jnp.concatenate([one, z])
        )


def pays(n_nodes: int, n_latent: int) -> bool:
    """Whether the polynomial, construction included, is faster than evaluating Phi at every node."""
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
    """The polynomial for wells at every row of B and real labels y, computed in the precision of B."""
    n_latent = B.shape[1]
    a, b = np.triu_indices(n_latent)
    gram, starts = np.zeros((len(a) + 1, len(a) + 1)), range(0, len(B), _BLOCK)
    with progress_bar(len(starts), shown=progress, unit="block", desc="polynomial of the wells") as bar:
        for first in starts:
            rows = np.ascontiguousarray(B[first : first + _BLOCK].T)
            linear = np.full((len(gram), rows.shape[1]), -1, B.dtype)
            for k in range(n_latent):  # products with z_k, in the order of (a, b)
                after = 1 + np.searchsorted(a, k)
                np.multiply(rows[k], rows[k:], out=linear[after : after + n_latent - k])
            gram += linear @ linear.T
            bar.update()
    twice = np.concatenate([[1], np.where(a < b, 2, 1)])
    gram *= twice[:, None] * twice / (4 * epsilon)
    misfit = np.column_stack([-y, B[nodes]]).astype(float)
    return Quartic(_root(gram), _root(misfit.T @ misfit / (2 * gamma**2)))


def _root(gram: NDArray[np.float64]) -> jax.Array:
    """R with ``R^T R = gram`` for a possibly singular gram matrix."""
    values, vectors = np.linalg.eigh(gram)
    return jnp.asarray(np.sqrt(np.maximum(values, 0))[:, None] * vectors.T)


def _squared(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """``|matrix x|^2``, batched over chains as one matrix product; "highest" gives a GPU full single precision."""
    return jnp.square(jnp.matmul(x, matrix.T, precision="highest")).sum()
