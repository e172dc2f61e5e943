"""Small graphs and exact answers that tests compare with."""

import numpy as np
from scipy.stats import multivariate_normal

from graphuq import prior as priors
from graphuq.models import Probit
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


def exact_label_mean(covariance, nodes, y, node, *, probit_gamma=None, level_set_gamma=None):
    """``E[sign(u_node) | y]`` as a ratio of orthant probabilities, exact for both label models.

    Probit: y_j = sign(g_j), g = u + eta. Level-set: a sum over the sides the labeled values lie on.
    """
    where = [*nodes, node]
    block = covariance[np.ix_(where, where)].copy()
    if probit_gamma is not None:
        for i in range(len(nodes)):
            block[i, i] += probit_gamma**2
        up = signed_cdf([*y, 1.0], block)
        down = signed_cdf([*y, -1.0], block)
        return (up - down) / (up + down)
    wrong = np.exp(-2 / level_set_gamma**2)
    up = down = 0.0
    for sides in np.ndindex(*(2,) * len(nodes)):
        signs = [yj if side == 0 else -yj for yj, side in zip(y, sides, strict=True)]
        weight = wrong ** sum(sides)
        if node in nodes:
            probability = signed_cdf(signs, block[:-1, :-1])
            if signs[list(nodes).index(node)] > 0:
                up += weight * probability
            else:
                down += weight * probability
        else:
            up += weight * signed_cdf([*signs, 1.0], block)
            down += weight * signed_cdf([*signs, -1.0], block)
    return (up - down) / (up + down)


def exact_label_means(prior, model, nodes):
    """`exact_label_mean` of a probit or level-set model at several nodes."""
    gamma = {"probit_gamma" if isinstance(model, Probit) else "level_set_gamma": model.gamma}
    covariance = dense_covariance(prior)
    return np.array([exact_label_mean(covariance, model.nodes, model.y, node, **gamma) for node in nodes])
