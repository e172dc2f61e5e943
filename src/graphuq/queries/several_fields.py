"""A Gaussian posterior of K fields and two lists of rows in; how the class of each row depends on each answer out.

The answer a at row c is a star of sites on the K fields there (`lone_stars`), which turns N(m_c, V_c) into N(m_ca, V_ca).
Every other row follows, with ``G = Cov(u_j, u_c)``, a K x K matrix,

    m_j + G V_c^-1 (m_ca - m_c),    Sigma_jj - G V_c^-1 (V_c - V_ca) V_c^-1 G^T,

and its probabilities are those of independent fields that have the variances of `matched`, less that diagonal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._threads import blas_threads
from graphuq.calibration import apply_temperature
from graphuq.inference.matched import independent_probability, largest_probability_matched
from graphuq.inference.star_ep import StarEP
from graphuq.inference.stars import lone_stars
from graphuq.models.base import ask, offer
from graphuq.posterior.gaussian import GaussianPosterior

Array = NDArray[Any]
Nodes = NDArray[np.int64]

# Answers that are looked at: the most probable ones. The others are taken to say nothing.
N_ANSWERS = 4
# Directions of the fields in which an answer takes off most variance.
N_DIRECTIONS = 3
# A variance keeps at least this share of itself.
LEAST_LEFT = 0.05
# Points of the integral, which the differences of two such integrals do not need to be exact, and rows at a time.
N_POINTS, BLOCK_ROWS = 16, 2**14


class Moved(NamedTuple):
    """What the answers at some rows do, each of `n` of them: to the fields there, and by those to all others."""

    probability: Array  # (n_asked, n_classes)
    answer: NDArray[np.int64]  # which class, (n_asked, n)
    push: Array  # V_c^-1 (m_ca - m_c), (n_asked, n, n_classes)
    root: (
        Array  # of V_c^-1 (V_c - V_ca) V_c^-1, one answer after the other, (n_asked, n_classes, n * N_DIRECTIONS)
    )


def of_several_fields(
    posterior: GaussianPosterior, rows: Nodes, asked: Nodes, temperature: float = 1.0
) -> tuple[Array, Array, Array]:
    """P(y_j = k), P(answer a at c), and P of both less their product; shapes as in `Joint`.

    All are at the temperature of the answers: doubts that it removes are not worth a question.
    """
    fit: Any = posterior.fit
    whitening, noise = posterior.whitening, float(offer(posterior.model, "noise"))
    at, deviation = whitening.matrix(rows), whitening.std(rows)
    mean, variance = at @ fit.z_mean.T, fit.independent_variances(at, deviation, noise)
    n_rows, n_classes = mean.shape
    before = _tempered(mean, variance, temperature)
    moved = _answers(posterior, asked, noise, temperature)
    with blas_threads(n_rows * len(asked) * n_classes**2 * fit.shared.shape[2]):
        cross = cross_covariance(posterior, rows, asked)
    n = moved.answer.shape[1]
    means = np.empty((n_rows, len(asked), n, n_classes), np.float32)
    variances = np.empty_like(means)
    push, root = moved.push.astype(np.float32), moved.root.astype(np.float32)
    for c in range(len(asked)):
        G = np.ascontiguousarray(cross[:, :, c]).reshape(-1, n_classes)
        shift = (G @ push[c].T).reshape(n_rows, n_classes, n)
        means[:, c] = mean[:, None] + shift.swapaxes(1, 2)
        taken = np.square(G @ root[c]).reshape(n_rows, n_classes, n, -1).sum(axis=3)
        variances[:, c] = np.maximum(variance[:, None] - taken.swapaxes(1, 2), LEAST_LEFT * variance[:, None])
    flat = [each.reshape(-1, n_classes) for each in (means, variances)]
    after = _tempered(flat[0], flat[1], temperature).reshape(means.shape)
    chance = np.take_along_axis(moved.probability, moved.answer, 1)
    change = chance[:, :, None] * (after - before[:, None, None])
    # Gaussian matching does not quite keep the mean over answers: what it is off by is shared between them.
    change -= change.sum(axis=2, keepdims=True) * (chance / chance.sum(axis=1, keepdims=True))[:, :, None]
    covariance = np.zeros((len(asked), n_classes, n_rows, n_classes), np.float32)
    covariance[np.arange(len(asked))[:, None], moved.answer] = change.transpose(1, 2, 0, 3)
    covariance = covariance.transpose(2, 3, 0, 1)
    return before, moved.probability, covariance


def _tempered(mean: Array, variance: Array, temperature: float) -> Array:
    p = independent_probability(mean, variance, n_points=N_POINTS, block_rows=BLOCK_ROWS)
    return p if temperature == 1 else apply_temperature(p, temperature).astype(p.dtype)


def _answers(posterior: GaussianPosterior, asked: Nodes, noise: float, temperature: float) -> Moved:
    """The most probable answers at each row."""
    fit: Any = posterior.fit
    mean, alone, cross = fit.fields_at(posterior.whitening.matrix(asked), posterior.whitening.std(asked))
    n_classes = mean.shape[1]
    probability = apply_temperature(largest_probability_matched(mean, alone + noise**2, cross), temperature)
    answer = np.argsort(-probability, axis=1, kind="stable")[:, :N_ANSWERS]
    n = answer.shape[1]
    V = np.repeat(cross + (alone + noise**2)[:, None, None] * np.eye(n_classes), n, axis=0)
    m = np.repeat(mean, n, axis=0)
    sites = replace(ask(posterior.model, "sites"), labels=answer.ravel())
    precision, shift = lone_stars(sites, m, V)
    arms = np.eye(n_classes)[answer.ravel()][:, None] - np.eye(n_classes)
    inverse = np.linalg.inv(V)
    left = np.linalg.inv(inverse + arms.swapaxes(1, 2) @ (precision[:, :, None] * arms))
    force = (shift[:, None] @ arms)[:, 0] - ((precision * (arms @ m[:, :, None])[..., 0])[:, None] @ arms)[:, 0]
    moved = (left @ force[:, :, None])[..., 0]  # m_ca - m_c
    push = (inverse @ moved[:, :, None])[..., 0]
    values, vectors = np.linalg.eigh(inverse - inverse @ left @ inverse)
    root = (vectors * np.sqrt(np.maximum(values, 0))[:, None])[:, :, -N_DIRECTIONS:]
    by_answer = root.reshape(len(asked), n, n_classes, -1).swapaxes(1, 2).reshape(len(asked), n_classes, -1)
    return Moved(probability, answer, push.reshape(len(asked), n, n_classes), by_answer)


def cross_covariance(posterior: GaussianPosterior, rows: Nodes, columns: Nodes) -> Array:
    """``Cov(u_jk, u_cl)``, shape (n_rows, n_classes, n_columns, n_classes)."""
    fit: StarEP = posterior.fit  # type: ignore[assignment]
    at = [posterior.whitening.matrix(each) @ fit.basis for each in (rows, columns)]
    left, right, shared, alone = (each.astype(np.float32) for each in (*at, fit.shared, fit.alone))
    halves = [(each @ shared).swapaxes(0, 1) for each in (left, right)]  # (n, n_classes, any)
    found = np.tensordot(halves[0], halves[1], (2, 2))
    own = posterior.prior.covariance(rows, columns) - left @ right.T
    for k in range(len(shared)):
        found[:, k, :, k] += own + (left @ alone[k]) @ (right @ alone[k]).T
    return np.asarray(found)
