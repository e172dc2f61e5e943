"""Draws of chains and pairs of rows with contradictory labels in; whether the chains are stuck there out.

Labels contradict each other if they differ in nearly equal rows, or agree in nearly opposite ones, as two clusters
are under a prior without the constant. Both are right only in a thin slab of the prior. The slab may be a millionth
wide and still hold most of the posterior, if wrong labels cost enough: chains that have not found it agree with each
other and are wrong, and chains inside do not leave it. R-hat cannot detect this; one further move across the slab,
from the draws, can.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from graphuq.inference.diagnostics import standard_error
from graphuq.inference.fields import agreement, at_each_draw, drawn_fields
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model, labels_of
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

NEAR = 0.99  # least prior correlation, or minus that, of two rows at which their labels may contradict each other
MOST_PAIRS = 10
BLOCK = 1024  # labels whose correlations with all others are in memory at once

# Rounding errors of 1e-7 in single precision accumulate over hundreds of bounces: it cannot resolve slabs thinner,
# or noise smaller, than these multiples of the prior deviation (both measured against quadrature).
THINNEST_SLAB = 5e-3
LEAST_NOISE = 1e-2

N_DRAWS = 256  # draws of each chain from which the move is tried
N_TRIES = 16  # proposals of each move
MOST_NUMBERS = 2**22  # values of u at the labeled nodes over all proposals
N_ERRORS = 4  # changes up to this many Monte-Carlo standard errors are not significant


class Contradictions(NamedTuple):
    """Pairs of labels that contradict each other, the closest rows first.

    Attributes:
        one, other: indices in `model.nodes` of the two labels of each pair, shape (n_pairs,).
        width: width of the slab between them, in deviations of the prior (and the noise), shape (n_pairs,).
    """

    one: Nodes
    other: Nodes
    width: Array


def contradictions(prior: GaussianPrior, model: Model) -> Contradictions:
    """Pair each label with the one that contradicts it most, if any does; return at most MOST_PAIRS pairs.

    That is the most correlated row of another class, or the most anticorrelated one of its own. The pairs are
    spread evenly over the ranks of the correlation and include the closest pair.
    """
    none = np.empty(0, dtype=np.int64)
    if not model.offers("y") or model.sees_all_nodes:
        return Contradictions(none, none, np.empty(0))
    nodes, y = np.asarray(model.nodes), np.asarray(model.y)
    deviation = np.sqrt(prior.marginal_variance(nodes) + float(model.noise) ** 2)
    nearest, correlation = np.zeros(len(nodes), dtype=np.int64), np.full(len(nodes), -np.inf)
    rows = prior.rows(nodes) / np.maximum(deviation, 1e-150)[:, None]
    scaled = rows * (prior.variances - prior.tail_variance)
    order = np.argsort(y, kind="stable")
    rows, scaled = rows[order], scaled[order]
    for mine in np.split(np.arange(len(y)), np.flatnonzero(np.diff(y[order])) + 1):
        for first in range(mine[0], mine[-1] + 1, BLOCK):
            block = slice(first, min(first + BLOCK, mine[-1] + 1))
            opposed = scaled[block] @ rows.T
            same = opposed[:, mine[0] : mine[-1] + 1]
            np.negative(same, out=same)
            nearest[order[block]] = order[opposed.argmax(axis=1)]
            correlation[order[block]] = opposed.max(axis=1)
    near = np.flatnonzero(correlation > NEAR)
    near = near[np.argsort(-correlation[near], kind="stable")]
    one = near[np.linspace(0, len(near) - 1, min(MOST_PAIRS, len(near))).astype(int)]
    other = nearest[one]
    sign = np.where(y[one] == y[other], -1, 1)
    width = _width(prior, nodes[one], nodes[other], deviation[one], sign * deviation[other], model)
    return Contradictions(one, other, width)


def _width(prior: GaussianPrior, i: Nodes, j: Nodes, s_i: Array, s_j: Array, model: Model) -> Array:
    """Deviation of ``g_i / s_i - g_j / s_j``, from differences of rows, since 1 - correlation would cancel.

    s_j is negative for opposite rows.
    """
    difference = prior.rows(i) / s_i[:, None] - prior.rows(j) / s_j[:, None]
    own = prior.tail_variance + float(model.noise) ** 2
    squared = np.square(difference) @ (prior.variances - prior.tail_variance) + own * (s_i**-2 + s_j**-2)
    return np.sqrt(np.maximum(squared, 0))


def needs_double_precision(prior: GaussianPrior, model: Model) -> bool:
    """Whether single precision cannot resolve the posterior: thin slabs, or noise far below prior deviations."""
    if model.sees_all_nodes:
        return False
    noise, deviation = float(model.noise), np.sqrt(prior.marginal_variance(model.nodes).max())
    if model.weights is not None:
        noise /= np.sqrt(model.weights.max())
    if 0 < noise < LEAST_NOISE * deviation:
        return True
    return bool(np.any(contradictions(prior, model).width < THINNEST_SLAB))


def missed(whitening: Whitening, model: Model, z: NDArray[Any]) -> tuple[float, int]:
    """Largest significant change of a class probability by one further move, and its node; (0, -1) if none.

    For each pair of contradictory labels, u moves along the direction of one of them: with t_0 its current
    standard normal coordinate, t_1 to t_m are drawn from a mixture q of N(0, 1) and a normal as narrow as the
    slab, and one of t_0 to t_m is selected with

        P(t_i) ~ pi(t_i) / q(t_i),    pi(t) ~ exp(-t^2 / 2 - Phi(u)),

    which leaves the posterior invariant (Tjelmeland 2004; Andrieu, Lee and Vihola 2018). Draws from the posterior
    therefore keep their class probabilities up to Monte-Carlo errors; draws of chains that miss a slab, or are
    stuck in one, do not. z has the shape (n_chains, n_draws, n_fields * n_latent). Only models with walls of finite
    height are tested.
    """
    if not model.offers("walls") or np.isinf(model.walls().height) or z.shape[1] < 8:
        return 0.0, -1
    prior, nodes, n_fields = whitening.prior, np.asarray(model.nodes), model.n_fields
    pairs, y = contradictions(prior, model), labels_of(model)
    n_points = 64 if n_fields > 1 and model.noise else 1  # Phi is an integral there
    size = len(nodes) * n_fields * n_points
    n_draws = min(N_DRAWS, z.shape[1], max(8, MOST_NUMBERS // (size * N_TRIES * z.shape[0])))
    thinned = z[:, np.linspace(0, z.shape[1] - 1, n_draws).astype(int)].astype(float)
    u = drawn_fields(whitening, thinned, nodes, n_fields)[:, :, None]
    phi, rng = at_each_draw(model, "phi", u), np.random.default_rng(0)
    worst, worst_node = 0.0, -1
    for one, other, width in zip(*pairs, strict=True):
        fields = np.ones(1)
        if n_fields > 1:
            unit = np.eye(n_fields)
            fields = unit[y[one]] - (unit[y[other]] if y[one] != y[other] else 1 / n_fields)
            fields /= np.linalg.norm(fields)
        along = prior.covariance(nodes, nodes[[one]])[:, 0]
        thin = min(max(float(width), 1e-12), 1.0)
        moved, probability = _moves(model, u, phi, _Line(int(one), along, fields, thin), rng)
        # P(both labels right) is the most precise: moves from one side of the slab to the other do not change it.
        before, after = (_sides(model, at, [one, other], y) for at in (u, moved))
        change = (probability[..., None] * (after - before)).sum(axis=2)
        shift = np.abs(change.mean(axis=(0, 1)))
        shift[shift <= N_ERRORS * standard_error(change)] = 0
        if shift.max() > worst:
            worst, worst_node = float(shift.max()), int(nodes[other if shift.argmax() == 1 else one])
    return worst, worst_node


class _Line(NamedTuple):
    """The direction of one label, along which u moves: ``u + (t_i - t_0) along fields^T / deviation``."""

    one: int  # index of the label
    along: Array  # covariance of u at all labeled nodes with u at this one, shape (n_labeled,)
    fields: Array  # unit vector, shape (n_fields,)
    thin: float  # deviation of the narrow component of q


def _moves(model: Model, u: Array, phi: Array, line: _Line, rng: np.random.Generator) -> tuple[Array, Array]:
    """Propose moves of u along a line from each draw, with the probability of each; the rest up to 1 is that u stays.

    u at the labeled nodes has the shape (n_chains, n_draws, 1, n_labeled, n_fields), and Phi there (n_chains, n_draws,
    1); the results have N_TRIES proposals on the third axis.
    """
    deviation = np.sqrt(line.along[line.one])
    t = u[..., line.one, :] @ line.fields / deviation
    new = rng.standard_normal((*t.shape[:2], N_TRIES)) * np.where(np.arange(N_TRIES) % 2, line.thin, 1.0)
    moved = u + ((new - t) / deviation)[..., None, None] * line.along[:, None] * line.fields
    gain = _log_weight(new, line.thin) - at_each_draw(model, "phi", moved) - _log_weight(t, line.thin) + phi
    return moved, softmax(np.concatenate([np.zeros_like(t), gain], axis=2), axis=2)[..., 1:]


def _log_weight(t: Array, thin: float) -> Array:
    """``log N(t; 0, 1) / q(t)``."""
    return -(t**2) / 2 - np.logaddexp(-(t**2) / 2, -((t / thin) ** 2) / 2 - np.log(thin))


def _sides(model: Model, u: Array, pair: list[int], y: Nodes) -> Array:
    """Agreement of u with each label of a pair, and with both; shape (..., 3)."""
    side = agreement(model, u[..., pair, :], y[pair])
    return np.concatenate([side, side.prod(axis=-1, keepdims=True)], axis=-1)
