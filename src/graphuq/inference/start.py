"""Where chains start: a word or a function on the nodes in, points z of every chain out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg
from numpy.typing import NDArray

from graphuq.inference.target import Target
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model, sees_all_nodes

# The fit to labels or to a given u leaves misfits of this size, against a prior of unit variance: small
# enough to start on the right side everywhere, large enough for conjugate gradients to end quickly.
MISFIT = 0.1


def starting_points(
    start: str | NDArray[Any],
    key: jax.Array,
    target: Target,
    model: Model,
    whitening: Whitening,
    n_chains: int,
) -> jax.Array:
    """First points z, shape (n_chains, n_latent)."""
    dtype = jax.tree.leaves(target.field)[0].dtype
    if isinstance(start, str):
        if start == "prior":
            return jax.random.normal(key, (n_chains, target.n_latent), dtype)
        if start == "labels":
            y = getattr(model, "y", None)
            if y is None:
                raise TypeError(f"{type(model).__name__} has no labels y to start from: use start='prior'.")
            seen = np.searchsorted(whitening.nodes, model.nodes) if sees_all_nodes(model) else slice(None)
            z = _fit(target, jnp.asarray(y, dtype), seen)
            return jnp.broadcast_to(z, (n_chains, target.n_latent))
        raise ValueError(f"start must be 'prior', 'labels' or u at all nodes, got {start!r}.")
    u = np.atleast_2d(np.asarray(start, dtype=float))
    n_nodes = whitening.prior.n_nodes
    if u.shape not in ((1, n_nodes), (n_chains, n_nodes)) or not np.isfinite(u).all():
        raise ValueError(
            f"start must be finite with shape ({n_nodes},) or ({n_chains}, {n_nodes}), got {np.shape(start)}."
        )
    u = np.broadcast_to(u[:, whitening.nodes], (n_chains, len(whitening.nodes)))
    return jax.vmap(lambda values: _fit(target, values, slice(None)))(jnp.asarray(u, dtype))


def _fit(target: Target, values: jax.Array, seen: Any) -> jax.Array:
    """The smallest z whose field is near `values`: ``z = B^T (B B^T + MISFIT^2 I)^-1 values``."""
    zero = jnp.zeros(target.n_latent, values.dtype)
    field, transpose = jax.vjp(lambda z: target.field(z)[seen], zero)
    del field

    def normal(alpha: jax.Array) -> jax.Array:
        return target.field(transpose(alpha)[0])[seen] + MISFIT**2 * alpha

    alpha, _ = cg(normal, values, tol=1e-3, maxiter=200)
    return transpose(alpha)[0]
