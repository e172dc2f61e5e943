"""Draws of z in; fields u at nodes, their agreement with labels, and model functions evaluated at them out."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial
from numpy.typing import NDArray
from scipy.special import ndtr

from graphuq._pytree import traced
from graphuq._threads import blas_threads
from graphuq.inference.whiten import Where, Whitening
from graphuq.models.base import Model
from graphuq.new_rows import NewRows

N_AT_ONCE = 16  # draws per batch of model evaluations: Phi of several fields is an integral, which takes memory


def drawn_fields(whitening: Whitening, z: NDArray[Any], where: Where, n_fields: int) -> NDArray[Any]:
    """Conditional mean of u given z at rows, shape (n_chains, n_draws, n_rows, n_fields)."""
    with blas_threads(z.size * len(where)):
        flat = whitening.mean(z.reshape(-1, whitening.n_latent), where)
    return np.moveaxis(flat.reshape(*z.shape[:2], n_fields, len(where)), 2, 3)


def left_open(whitening: Whitening, where: Where, normal: NDArray[Any]) -> NDArray[Any]:
    """Draw ``u - E[u | z]`` jointly over rows, from standard normals of shape (..., n_rows, n_fields)."""
    matrix, deviation = whitening.conditional(where)
    if not deviation.any():
        return np.zeros_like(normal)
    covariance = whitening.prior.covariance(where, where) - matrix @ matrix.T
    if isinstance(where, NewRows):  # their variance includes an independent part
        np.fill_diagonal(covariance, np.square(deviation))
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0))).astype(normal.dtype)
    # `root @ normal` would be one small product per draw; this is a single large one.
    by_field = np.swapaxes(normal, -1, -2)
    return np.swapaxes((by_field.reshape(-1, len(root)) @ root.T).reshape(by_field.shape), -1, -2)


def agreement(model: Model, u: NDArray[Any], y: NDArray[np.int64]) -> NDArray[Any]:
    """Agreement of u, shape (..., n_nodes, n_fields), with classes y, from 0 to 1, shape (..., n_nodes)."""
    margin, noise = lead(u, y), float(model.noise)
    return ndtr(margin / noise) if noise > 0 else (margin >= 0).astype(float)


def lead(u: NDArray[Any], y: NDArray[np.int64]) -> NDArray[Any]:
    """Margin of class y: its field minus the largest of the others, or u or -u for one field; (..., n_nodes)."""
    if u.shape[-1] == 1:
        return np.where(y > 0, u[..., 0], -u[..., 0])
    own = np.arange(u.shape[-1]) == y[:, None]
    return np.asarray(np.where(own, u, 0).sum(axis=-1) - np.where(own, -np.inf, u).max(axis=-1))


def at_each_draw(model: Model, name: str, u: NDArray[Any]) -> NDArray[Any]:
    """Evaluate `phi` or another method of a model at each u, shape (..., n_seen, n_fields), in its precision."""
    flat = u.reshape(-1, *u.shape[-2:])
    with jax.enable_x64(u.dtype == np.float64):
        values = np.asarray(_map(traced(model, name), flat[..., 0] if u.shape[-1] == 1 else flat))
    return values.reshape(*u.shape[:-2], *values.shape[1:])


@jax.jit
def _map(function: Partial, u: jax.Array) -> jax.Array:
    return jax.lax.map(function, u, batch_size=N_AT_ONCE)
