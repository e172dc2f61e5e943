"""Small graphs and exact answers that tests compare with."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.linalg import helmert
from scipy.special import ndtri
from scipy.stats import multivariate_normal
from scipy.stats.qmc import Sobol

from graphuq import prior as priors
from graphuq.inference.largest import largest_probability
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.spectrum.result import Spectrum


def random_spectrum(n_nodes=30, *, seed=0, scale=1.0):
    """All modes of the normalized Laplacian of a Gaussian graph on random points, by numpy."""
    points = np.random.default_rng(seed).normal(size=(n_nodes, 2))
    squared = np.square(points[:, None] - points[None]).sum(-1)
    weights = np.exp(-squared / (2 * scale**2))
    np.fill_diagonal(weights, 0)
    degrees = weights.sum(axis=1)
    values, vectors = np.linalg.eigh(np.eye(n_nodes) - weights / np.sqrt(np.outer(degrees, degrees)))
    values[0] = 0.0
    return Spectrum(values, vectors, np.zeros(n_nodes), degrees, 1, True, "numpy")


def four_priors(spectrum, n_modes=8):
    """One of each kind of prior, and the matern prior with a tail."""
    return {
        "full": priors.full(spectrum),
        "project": priors.project(spectrum, n_modes=n_modes),
        "approximate": priors.approximate(spectrum, n_modes=n_modes),
        "matern": priors.matern(spectrum, tau=0.4, alpha=2.0, n_modes=n_modes),
        "matern_tail": priors.matern(spectrum, tau=0.4, alpha=1.5, n_modes=n_modes, tail=True),
    }


def dense_covariance(prior):
    """C as a matrix, from its definition."""
    projector = prior.vectors @ prior.vectors.T
    kept = (prior.vectors * prior.variances) @ prior.vectors.T
    return kept + prior.tail_variance * (np.eye(prior.n_nodes) - projector)


def sites_of(model, y, gamma, *, tail=0.0):
    """The sites of a model of labels -1 and +1, also where all are of one class, beside a tail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return replace(model(np.arange(len(y)), y, gamma).sites(), tail=tail)


SITES = {"probit": partial(sites_of, Probit), "level_set": partial(sites_of, LevelSet)}
probit_sites = SITES["probit"]


def signed_cdf(signs, covariance):
    """``P(signs * x >= 0)`` for x ~ N(0, covariance): Sheppard's formulas up to three dimensions, else integrated."""
    signs = np.asarray(signs, dtype=float)
    flipped = covariance * np.outer(signs, signs)
    scale = np.sqrt(np.diag(flipped))
    angles = np.arcsin(np.clip(flipped / np.outer(scale, scale), -1, 1))[np.triu_indices(len(signs), 1)]
    if len(signs) <= 3:
        return 0.5 ** len(signs) + angles.sum() / (2 * np.pi) * (0.5 if len(signs) == 3 else 1.0)
    zero = np.zeros(len(signs))
    return float(multivariate_normal.cdf(zero, zero, flipped, maxpts=1_000_000, abseps=1e-8, releps=1e-8))


def exact_label_mean(
    covariance, nodes, y, node, *, probit_gamma=None, level_set_gamma=None, delta=0.0, predictive=False
):
    """``E[sign(u_node) | y]`` as a ratio of orthant probabilities, exact for both label models; y is -1 or +1.

    A label is the sign of g = u + gamma eta with probability 1 - delta, else the other one: a sum over the sides
    that g takes at the labels. Probit is delta = 0, level-set gamma = 0 with odds ``exp(-2 / gamma^2)`` of a mistake.
    With `predictive` the sign is that of g at the node, its noise drawn anew.
    """
    gamma, odds = (
        (probit_gamma, delta / (1 - delta)) if level_set_gamma is None else (0, np.exp(-2 / level_set_gamma**2))
    )
    given, shared = list(nodes), gamma == 0 and node in nodes
    where = given if shared else [*given, node]
    block = covariance[np.ix_(where, where)].copy()
    block[np.diag_indices(len(given))] += gamma**2
    if predictive:
        block[-1, -1] += gamma**2
    up = down = 0.0
    for sides in np.ndindex(*(2,) * len(given)):
        weight = odds ** sum(sides)
        if weight == 0:
            continue
        signs = [yj if side == 0 else -yj for yj, side in zip(y, sides, strict=True)]
        if shared:
            probability = weight * signed_cdf(signs, block)
            up, down = (up + probability, down) if signs[given.index(node)] > 0 else (up, down + probability)
        else:
            up += weight * signed_cdf([*signs, 1.0], block)
            down += weight * signed_cdf([*signs, -1.0], block)
    return (up - down) / (up + down)


def exact_label_means(prior, model, nodes, **settings):
    """`exact_label_mean` of a probit or level-set model of two classes at several nodes."""
    if isinstance(model, LevelSet):
        gamma = {"level_set_gamma": model.gamma}
    else:
        gamma = {"probit_gamma": model.gamma, "delta": model.delta}
    covariance, y = dense_covariance(prior), 2 * model.y - 1
    return np.array([exact_label_mean(covariance, model.nodes, y, node, **gamma, **settings) for node in nodes])


def simplex_corners(n_classes):
    """The corners ``e_k - 1/K``, as rows."""
    return np.eye(n_classes) - 1 / n_classes


def likelihood_weights(model, u, rng):
    """Weights of draws of u at the nodes a model sees, shape (n_draws, n_seen, n_fields), whose mean is P(y | u).

    From the definitions, in plain NumPy. The noise of probit is drawn too, once for each draw.
    """
    y = model.y
    if isinstance(model, GinzburgLandau):
        if model.n_fields == 1:
            v = u[..., 0]
            wells = np.square(v**2 - 1).sum(axis=1) / (4 * model.epsilon)
            misfit = np.square(2 * y - 1 - v[:, model.nodes]).sum(axis=1) / (2 * model.gamma**2)
        else:
            w = u - u.mean(axis=2, keepdims=True)
            squared = np.square(w[:, :, None] - simplex_corners(model.n_classes)).sum(axis=3)
            wells = 4 / model.epsilon * np.prod(squared / 2, axis=2).sum(axis=1)
            misfit = squared[:, model.nodes, y].sum(axis=1) / model.gamma**2
        return np.exp(-wells - misfit)
    noise = model.gamma if isinstance(model, Probit) else 0.0
    g = u + noise * rng.standard_normal(u.shape)
    if model.n_fields == 1:
        rank = ((g[..., 0] >= 0) != y).astype(int)
    else:
        rank = (g > np.take_along_axis(g, y[None, :, None], axis=2)).sum(axis=2)
    if isinstance(model, LevelSet):
        height = (2 if model.n_fields == 1 else 1) / model.gamma**2
        return np.exp(-height * (rank > 0).sum(axis=1))
    ratio = model.delta / (1 - model.delta)
    return np.prod(ratio**rank / np.sum(ratio ** np.arange(model.n_classes)), axis=1)


def simulated_classes(prior, model, nodes, *, n_draws=200_000, seed=0):
    """P(class) at nodes given the labels, by weighing draws from the prior: without noise and with it.

    Each is a pair of arrays, the probabilities and their errors, both (n_nodes, n_classes).
    """
    rng = np.random.default_rng(seed)
    seen = np.arange(prior.n_nodes) if isinstance(model, GinzburgLandau) else model.nodes
    where = np.concatenate([seen, np.setdiff1d(nodes, seen)])
    values, vectors = np.linalg.eigh(dense_covariance(prior)[np.ix_(where, where)])
    factor = vectors * np.sqrt(np.maximum(values, 0))
    u = np.moveaxis(rng.standard_normal((n_draws, model.n_fields, len(where))) @ factor.T, 1, 2)
    weights = likelihood_weights(model, u[:, : len(seen)], rng)
    g = u[:, [list(where).index(node) for node in nodes]]
    found = []
    for noise in (0.0, model.gamma if isinstance(model, Probit) else 0.0):
        g = g + noise * rng.standard_normal(g.shape) if noise else g
        chosen = (g[..., 0] >= 0).astype(int) if model.n_fields == 1 else g.argmax(axis=2)
        p, square = (
            np.stack([(each[:, None] * (chosen == k)).sum(axis=0) for k in range(model.n_classes)], axis=1)
            for each in (weights / weights.sum(), np.square(weights / weights.sum()))
        )
        total = np.square(weights / weights.sum()).sum()
        # sum w^2 (1 - p)^2 where it is the class, sum w^2 p^2 where not
        found.append((p, np.sqrt(square * (1 - 2 * p) + total * p**2)))
    return found


def largest_by_points(mean, variance, cross, *, n_points, seed=0):
    """P(g_k is the largest) for ``g ~ N(mean, variance I + cross)``, averaged over points of Sobol.

    In the directions orthogonal to all ones the covariance has its least eigenvalue at least. That part is common to the
    fields; in the other directions the mean is moved, by points with their negatives that have the right covariance.
    """
    directions = helmert(mean.shape[1]).T
    values, vectors = np.linalg.eigh(directions.T @ cross @ directions)
    factor = directions @ vectors * np.sqrt(np.maximum(values - values[:, :1], 0))[:, None]
    factor *= np.where(mean[:, None] @ factor < 0, -1, 1)
    n_pairs, n_dims = n_points // 2, factor.shape[2] - 1
    even = Sobol(n_dims, scramble=False).random(n_pairs)
    half = ndtri((even + np.random.default_rng(seed).uniform(size=n_dims)) % 1)
    spread, turn = np.linalg.eigh(half.T @ half / n_pairs)
    half = half @ (turn / np.sqrt(spread)) @ turn.T
    moved = np.concatenate([half, -half]) @ factor[:, :, :0:-1].swapaxes(1, 2)
    deviation = np.sqrt(variance + np.maximum(values[:, 0], 0))
    return largest_probability(mean[:, None] + moved, deviation[:, None]).mean(axis=1)
