"""Means and covariances of K Gaussian fields in; the probability that each field is the largest out, without draws.

Only differences of fields matter. Independent fields of variances d_k have differences of variance d_k + d_l: those d that
come closest to the variances D_kl of the differences, counted by how probable both classes are,

    sum_{k<l} w_k w_l (d_k + d_l - D_kl)^2 -> min,    w_k = P(g_k largest) + LEAST_WEIGHT / K,

turn K correlated fields into independent ones, whose probabilities are integrals of one variable. It is exact where
fields are independent, or equally correlated, and for three fields unless one of the d would be negative.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq.inference.largest import LEAST_PROBABILITY, largest_probability, normal

Array = NDArray[np.float64]

# Differences between classes that are both improbable count a little too.
LEAST_WEIGHT = 0.2
# Deviations lie between these multiples of that of a probable class: wider and narrower ones are those of classes that
# hardly ever win, and change nothing but where points are needed.
NARROWEST, WIDEST = 0.25, 3.0
# The points of the integral reach so many deviations out.
REACH = 6.0
# Of the first pass, which only finds the weights, and of the second.
N_FIRST, N_POINTS = 16, 32
# Rows at a time, always as many: another number would be compiled anew, which takes longer than a million rows.
BLOCK_ROWS = 2**10
# A weight of exactly half the sum leaves one variance undetermined.
UNDETERMINED = 1e-4


def largest_probability_matched(mean: Array, variance: Array, cross: Array) -> Array:
    """P(g_k is the largest), where ``g ~ N(mean, variance I + cross)`` at each node, shape (n_nodes, n_classes).

    On posteriors of expectation propagation with ten classes the root mean square error was 0.002, less than that of
    64 points of `largest_probability_correlated`, at a thirtieth of the cost.

    Args:
        mean: shape (n_nodes, n_classes), three classes or more.
        variance: common to the fields, shape (n_nodes,).
        cross: shape (n_nodes, n_classes, n_classes), symmetric and positive semi-definite.
    """
    return independent_probability(mean, matched_variances(mean, variance, cross))


def matched_variances(mean: Array, variance: Array, cross: Array) -> Array:
    """The variances d of independent fields that stand for correlated ones, shape (n_nodes, n_classes)."""
    own = np.einsum("nkk->nk", cross) + variance[:, None]
    first = _matched(own, variance, cross, np.full_like(own, 1 / own.shape[1]))
    weights = independent_probability(mean, first, n_points=N_FIRST) + LEAST_WEIGHT / own.shape[1]
    return _matched(own, variance, cross, weights)


def _matched(own: Array, variance: Array, cross: Array, w: Array) -> Array:
    """The variances d; the equations are a diagonal matrix and one of rank one."""
    total = w.sum(axis=1, keepdims=True)
    pulled = variance[:, None] * w + (cross @ w[:, :, None])[:, :, 0]
    right = total * own + np.sum(w * own, axis=1, keepdims=True) - 2 * pulled
    diagonal = total - 2 * w
    diagonal = np.where(np.abs(diagonal) < UNDETERMINED, UNDETERMINED, diagonal)
    share = w / diagonal
    common = np.sum(share * right, axis=1, keepdims=True) / (1 + share.sum(axis=1, keepdims=True))
    d = (right - common) / diagonal
    usual = np.sum(w * np.maximum(d, 0), axis=1, keepdims=True) / total
    return np.clip(d, NARROWEST**2 * usual, WIDEST**2 * usual)


def independent_probability(
    mean: Array, variance: Array, *, n_points: int = N_POINTS, block_rows: int = BLOCK_ROWS
) -> Array:
    """P(g_k is the largest) of independent fields ``g_k ~ N(mean_k, variance_k)``, shape (n_nodes, n_classes).

    Integrated in single precision, to 3e-4 where no deviation is twelve times another.
    """
    deviation, found = np.sqrt(variance), np.empty(mean.shape, mean.dtype)
    for first in range(0, len(mean), block_rows):
        rows = slice(first, min(first + block_rows, len(mean)))
        padding = ((0, first + block_rows - rows.stop), (0, 0))
        block = (np.pad(each[rows].astype(np.float32), padding) for each in (mean, deviation))
        found[rows] = np.asarray(_block(*block, n_points=n_points))[: rows.stop - first]
    sure = deviation.max(axis=1, initial=0) == 0
    if sure.any():
        found[sure] = largest_probability(mean[sure], 0.0)
    return found


@partial(jax.jit, static_argnames="n_points")
def _block(mean: jax.Array, deviation: jax.Array, *, n_points: int) -> jax.Array:
    """``int phi((y - m_k) / s_k) / s_k prod_{l != k} Phi((y - m_l) / s_l) dy``, shape (n_rows, n_classes)."""
    m, s = mean.T, jnp.where(deviation.max(axis=1, keepdims=True) > 0, deviation, 1).T
    m = (m - m.max(axis=0)) / s.max(axis=0)
    s = s / s.max(axis=0)
    low, high = (m - REACH * s).max(axis=0), (m + REACH * s).max(axis=0)

    def add(total: jax.Array, share: jax.Array) -> tuple[jax.Array, None]:
        t = (low + share * (high - low) - m) / s
        density, phi = normal(t)
        return total + phi.prod(axis=0) * (density / (phi * s)), None

    p = jax.lax.scan(add, jnp.zeros_like(m), jnp.linspace(0, 1, n_points, dtype=m.dtype))[0].T
    p = jnp.maximum(p / p.sum(axis=1, keepdims=True), LEAST_PROBABILITY)
    return p / p.sum(axis=1, keepdims=True)
