"""Draws of z in; the fields u at nodes, how far they speak for labels, and what a model says of them, out."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial
from numpy.typing import NDArray
from scipy.special import ndtr

from graphuq._pytree import traced
from graphuq.inference.whiten import Where, Whitening
from graphuq.models.base import Model, offer
from graphuq.prior import NewRows

N_AT_ONCE = 16  # draws for which a model is asked together: Phi of several fields is an integral, which takes room


def drawn_fields(whitening: Whitening, z: NDArray[Any], where: Where, n_fields: int) -> NDArray[Any]:
    """The mean of u given z at rows, shape (n_chains, n_draws, n_rows, n_fields)."""
    flat = whitening.mean(z.reshape(-1, whitening.n_latent), where)
    return np.moveaxis(flat.reshape(*z.shape[:2], n_fields, len(where)), 2, 3)


def left_open(whitening: Whitening, where: Where, normal: NDArray[Any]) -> NDArray[Any]:
    """What z leaves open of u, which rows have in common: from normal numbers of shape (..., n_rows, n_fields)."""
    prior, deviation = whitening.prior, whitening.std(where)
    if not deviation.any():
        return np.zeros_like(normal)
    at = whitening.matrix(where)
    covariance = prior.covariance(where, where) - at @ at.T
    if isinstance(where, NewRows):  # each has a part of its own, too
        np.fill_diagonal(covariance, np.square(deviation))
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))).astype(normal.dtype) @ normal)


def agreement(model: Model, u: NDArray[Any], y: NDArray[np.int64]) -> NDArray[Any]:
    """How far u, shape (..., n_nodes, n_fields), speaks for classes y, 0 no and 1 yes, shape (..., n_nodes)."""
    ahead, noise = lead(u, y), float(offer(model, "noise"))
    return ndtr(ahead / noise) if noise > 0 else (ahead >= 0).astype(float)


def lead(u: NDArray[Any], y: NDArray[np.int64]) -> NDArray[Any]:
    """The field of class y at each node less the largest of the others, shape (..., n_nodes); of one field u, or -u."""
    if u.shape[-1] == 1:
        return u[..., 0] * (2 * y - 1)
    own = np.arange(u.shape[-1]) == y[:, None]
    return np.asarray(np.where(own, u, 0).sum(axis=-1) - np.where(own, -np.inf, u).max(axis=-1))


def at_each_draw(model: Model, name: str, u: NDArray[Any]) -> NDArray[Any]:
    """`phi` or another function of a model, at each u of shape (..., n_seen, n_fields), in the precision of u."""
    each = u.reshape(-1, *u.shape[-2:])
    with jax.enable_x64(u.dtype == np.float64):
        found = np.asarray(_each(traced(model, name), each[..., 0] if u.shape[-1] == 1 else each))
    return found.reshape(*u.shape[:-2], *found.shape[1:])


@jax.jit
def _each(function: Partial, u: jax.Array) -> jax.Array:
    return jax.lax.map(function, u, batch_size=N_AT_ONCE)
