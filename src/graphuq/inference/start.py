"""Starting points of chains: "prior", "labels" or u at all nodes in; z of every chain out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg
from numpy.typing import NDArray

from graphuq._expect import expect_numbers
from graphuq.inference.target import Target
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model, signs

# Noise deviation of the fit to labels or to a given u, for a prior of unit variance: small enough to start on the
# right side of every label, large enough for conjugate gradients to converge quickly.
MISFIT = 0.1


def starting_points(
    start: str | NDArray[Any],
    rng: np.random.Generator,
    target: Target,
    model: Model,
    whitening: Whitening,
    n_chains: int,
) -> jax.Array:
    """Starting points z, shape (n_chains, n_latent)."""
    dtype = jax.tree.leaves(target.field)[0].dtype
    if isinstance(start, str):
        if start == "prior":
            return jnp.asarray(rng.standard_normal((n_chains, target.n_latent)), dtype)
        if start == "labels":
            if not model.offers("y"):
                raise TypeError(f"{type(model).__name__} has no labels y to start from: use start='prior'.")
            y, n_fields = np.asarray(model.y), model.n_fields
            seen = np.searchsorted(whitening.nodes, model.nodes) if model.sees_all_nodes else slice(None)
            values = signs(y) if n_fields == 1 else np.eye(n_fields)[y] - 1 / n_fields
            z = _fit(target, jnp.asarray(values, dtype), seen)
            return jnp.broadcast_to(z, (n_chains, target.n_latent))
        raise ValueError(f"start must be 'prior', 'labels' or u at all nodes, got {start!r}.")
    u, n_fields = expect_numbers(start, "start"), model.n_fields
    shape = (whitening.prior.n_nodes,) if n_fields == 1 else (whitening.prior.n_nodes, n_fields)
    if u.shape not in (shape, (n_chains, *shape)) or not np.isfinite(u).all():
        raise ValueError(f"start must be finite with shape {shape} or {(n_chains, *shape)}, got {u.shape}.")
    u = np.broadcast_to(u, (n_chains, *shape))[:, whitening.nodes]
    return jax.vmap(lambda values: _fit(target, values, slice(None)))(jnp.asarray(u, dtype))


def _fit(target: Target, values: jax.Array, seen: Any) -> jax.Array:
    """Fit the field to `values` by ridge regression: ``z = B^T (B B^T + MISFIT^2 I)^-1 values``."""
    zero = jnp.zeros(target.n_latent, values.dtype)
    _, transpose = jax.vjp(lambda z: target.field(z)[seen], zero)

    def normal(alpha: jax.Array) -> jax.Array:
        return target.field(transpose(alpha)[0])[seen] + MISFIT**2 * alpha

    alpha, _ = cg(normal, values, tol=1e-3, maxiter=200)  # (n_seen,) or (n_seen, n_fields)
    return transpose(alpha)[0]
