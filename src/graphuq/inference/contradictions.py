"""Near rows whose labels contradict each other in; where chains may be stuck, and whether they are, out.

Between two such rows only a slab of the prior has both labels right. It may be a millionth wide and still hold most
of the posterior, if wrong labels cost enough: chains that have not found it agree with each other, and are wrong.
Others that are in it do not leave. What chains show of themselves, R-hat, cannot tell; one more move across the
slab, made of the draws they left, can.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from graphuq.inference.diagnostics import standard_error
from graphuq.inference.fields import agreement, at_each_draw, drawn_fields
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model, ask, offer, offers
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

NEAR = 0.99  # the correlation of rows from which on their labels may contradict each other
MOST_PAIRS = 10
BLOCK = 1024  # labels whose correlations with all others are held at once

# Single precision carries errors of 1e-7 through hundreds of bounces: it does not tell a slab under the first number
# of prior deviations from none, and noise under the second drowns in it (both measured against quadrature).
THINNEST_SLAB = 5e-3
LEAST_NOISE = 1e-2

N_DRAWS = 256  # of each chain, from which a move across is tried
N_TRIES = 16  # places that a move from each of them chooses between
MOST_NUMBERS = 2**22  # of u at the labeled nodes in all of the tries
N_ERRORS = 4  # so many Monte-Carlo errors are no surprise


class Contradictions(NamedTuple):
    """Labels that contradict each other, the closest rows first: places in `model.nodes`.

    Attributes:
        one, other: the two labels of a pair, shape (n_pairs,).
        width: how thin the slab between them is, in deviations of the prior (and the noise), shape (n_pairs,).
    """

    one: Nodes
    other: Nodes
    width: Array


def contradictions(prior: GaussianPrior, model: Model) -> Contradictions:
    """For each label the nearest row of another class, where that is near; of many such pairs some, the closest too."""
    none = np.empty(0, dtype=np.int64)
    if not offers(model, "y") or offer(model, "sees_all_nodes"):
        return Contradictions(none, none, np.empty(0))
    nodes, y = np.asarray(model.nodes), np.asarray(model.y)  # type: ignore[attr-defined]
    deviation = np.sqrt(prior.marginal_variance(nodes) + float(offer(model, "noise")) ** 2)
    nearest, correlation = np.zeros(len(nodes), dtype=np.int64), np.full(len(nodes), -np.inf)
    rows = prior.rows(nodes) / np.maximum(deviation, 1e-150)[:, None]
    scaled = rows * (prior.variances - prior.tail_variance)
    for label in np.unique(y):
        mine, others = np.flatnonzero(y == label), np.flatnonzero(y != label)
        for first in range(0, len(mine) if others.size else 0, BLOCK):
            some = mine[first : first + BLOCK]
            found = scaled[some] @ rows[others].T
            place = found.argmax(axis=1)
            nearest[some], correlation[some] = others[place], found[np.arange(len(some)), place]
    near = np.flatnonzero(correlation > NEAR)
    near = near[np.argsort(-correlation[near], kind="stable")]
    one = near[np.linspace(0, len(near) - 1, min(MOST_PAIRS, len(near))).astype(int)]
    other = nearest[one]
    width = _width(prior, nodes[one], nodes[other], deviation[one], deviation[other], model)
    return Contradictions(one, other, width)


def _width(prior: GaussianPrior, i: Nodes, j: Nodes, s_i: Array, s_j: Array, model: Model) -> Array:
    """The deviation of ``g_i / s_i - g_j / s_j``, from differences of rows: one less the correlation is rounding."""
    apart = prior.rows(i) / s_i[:, None] - prior.rows(j) / s_j[:, None]
    own = prior.tail_variance + float(offer(model, "noise")) ** 2
    squared = np.square(apart) @ (prior.variances - prior.tail_variance) + own * (s_i**-2 + s_j**-2)
    return np.sqrt(np.maximum(squared, 0))


def needs_double_precision(prior: GaussianPrior, model: Model) -> bool:
    """Whether single precision could blur what the labels cut out: thin slabs, or noise far below the prior."""
    if offer(model, "sees_all_nodes"):
        return False
    noise, deviation = float(offer(model, "noise")), np.sqrt(prior.marginal_variance(model.nodes).max())
    if 0 < noise < LEAST_NOISE * deviation:
        return True
    return bool(np.any(contradictions(prior, model).width < THINNEST_SLAB))


def missed(whitening: Whitening, model: Model, z: NDArray[Any]) -> tuple[float, int]:
    """How far one more move would change the probability of a class, and the node; (0, -1) where nothing is missed.

    For each pair of contradicting labels, u moves along the direction of one of them: with t_0 its standard normal
    coordinate there, t_1 to t_m are drawn from a mixture q of N(0, 1) and a normal as thin as the slab, and one of all
    of them is taken,

        P(t_i) ~ pi(t_i) / q(t_i),    pi(t) ~ exp(-t^2 / 2 - Phi(u)),

    which leaves the posterior as it is (Tjelmeland 2004; Andrieu, Lee and Vihola 2018). Draws of the posterior
    therefore have the same class probabilities after it, up to Monte-Carlo errors; those of chains that miss a slab,
    or are stuck in one, have not.

    Args:
        whitening: what z says about u.
        model: the likelihood; without walls of finite height nothing is looked for.
        z: draws, shape (n_chains, n_draws, n_fields * n_latent).
    """
    if not offers(model, "walls") or np.isinf(ask(model, "walls").height) or z.shape[1] < 8:
        return 0.0, -1
    prior, nodes, n_fields = whitening.prior, np.asarray(model.nodes), int(offer(model, "n_fields"))
    pairs, y = contradictions(prior, model), np.asarray(ask(model, "y"))
    n_points = 64 if n_fields > 1 and offer(model, "noise") else 1  # Phi is an integral there
    size = len(nodes) * n_fields * n_points
    n_draws = min(N_DRAWS, z.shape[1], max(8, MOST_NUMBERS // (size * N_TRIES * z.shape[0])))
    some = z[:, np.linspace(0, z.shape[1] - 1, n_draws).astype(int)].astype(float)
    u = drawn_fields(whitening, some, nodes, n_fields)[:, :, None]
    phi, rng = at_each_draw(model, "phi", u), np.random.default_rng(0)
    worst, place = 0.0, -1
    for one, other, width in zip(*pairs, strict=True):
        fields = np.ones(1)
        if n_fields > 1:
            fields = np.sqrt(0.5) * (np.eye(n_fields)[y[one]] - np.eye(n_fields)[y[other]])
        along = prior.covariance(nodes, nodes[[one]])[:, 0]
        thin = min(max(float(width), 1e-12), 1.0)
        moved, taken = _moves(model, u, phi, _Line(int(one), along, fields, thin), rng)
        # That both labels are right is known best: moves from one side of the slab to the other leave it.
        before, after = (_sides(model, at, [one, other], y) for at in (u, moved))
        change = (taken[..., None] * (after - before)).sum(axis=2)
        shift = np.abs(change.mean(axis=(0, 1)))
        shift[shift <= N_ERRORS * standard_error(change)] = 0
        if shift.max() > worst:
            worst, place = float(shift.max()), int(nodes[other if shift.argmax() == 1 else one])
    return worst, place


class _Line(NamedTuple):
    """A direction that u moves along, that of one label: ``u + (t_i - t_0) along fields^T / deviation``."""

    one: int  # its place in the nodes
    along: Array  # covariance of u at all labeled nodes with that at this one, shape (n_labeled,)
    fields: Array  # of unit length, shape (n_fields,)
    thin: float  # deviation of the thin part of q


def _moves(model: Model, u: Array, phi: Array, line: _Line, rng: np.random.Generator) -> tuple[Array, Array]:
    """Where u may move from each draw, and with what probability it does.

    Args:
        model: the likelihood.
        u: at the labeled nodes, shape (n_chains, n_draws, 1, n_labeled, n_fields).
        phi: Phi of these, shape (n_chains, n_draws, 1).
        line: the direction.
        rng: draws t_1 to t_m.

    Returns shapes (n_chains, n_draws, N_TRIES, n_labeled, n_fields) and (n_chains, n_draws, N_TRIES); what is left of the
    probability is that u stays.
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
    """How far u speaks for the labels of a pair: for each, and for both; shape (..., 3)."""
    side = agreement(model, u[..., pair, :], y[pair])
    return np.concatenate([side, side.prod(axis=-1, keepdims=True)], axis=-1)
