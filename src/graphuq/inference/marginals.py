"""The Gaussian of expectation propagation and some nodes in; means, variances and P(u >= 0) there out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from graphuq.inference.span import Matrix, Vector

if TYPE_CHECKING:
    from graphuq.inference.ep import EP

# With so few labels a marginal can be far from Gaussian: one label alone leaves half of one. With more,
# Gaussians are right to a hundredth and correcting them costs more than all the rest.
FEW_LABELS = 20
# Points of Gauss and Legendre on either side of zero, and how many deviations out they reach. Measured for one label, of
# any noise and correlation: right to 2e-4.
QUADRATURE = np.polynomial.legendre.leggauss(16)
REACH = 7.0


class Marginals(NamedTuple):
    """The latent value at some nodes and how likely it is not to be negative."""

    mean: Vector
    variance: Vector
    probability: Vector  # P(u >= 0)


def predict(result: EP, conditional: ArrayLike, deviation: ArrayLike = 0.0) -> Marginals:
    """Means, variances and P(u >= 0) at nodes that depend on the labels through z alone.

    Args:
        result: of `propagate`.
        conditional: M, shape (n_nodes, n_latent): ``u | z ~ N(M z, deviation^2)``.
        deviation: one number or shape (n_nodes,).
    """
    matrix = np.asarray(conditional, float)
    directions, spread = result.touched
    products = matrix @ np.column_stack([directions, result.z_mean])
    along, mean = products[:, :-1], products[:, -1]
    variance = np.square(along) @ spread + np.square(np.asarray(deviation, float))
    if spread.size < matrix.shape[1]:  # what the labels do not touch keeps its prior variance
        outside = np.square(matrix).sum(axis=1) - np.square(along).sum(axis=1)
        variance = variance + np.maximum(outside, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        certain = np.where(mean >= 0, 1.0, 0.0)
        probability = np.where(variance > 0, ndtr(mean / np.sqrt(variance)), certain)
    if result.precision.size <= FEW_LABELS:
        open_ = variance > 0
        seen = (result.labeled @ result.basis.T) @ directions  # f in the same directions as u
        covariance = (along[open_] * spread) @ seen.T
        probability[open_] = _corrected(result, mean[open_], variance[open_], covariance)
    return Marginals(mean, variance, probability)


def _corrected(result: EP, mean: Vector, variance: Vector, covariance: Matrix) -> Vector:
    """P(u >= 0) where each label, given u = a, is asked again (Cseke and Heskes 2011).

        p(a) ~ N(a; mean, variance) prod_j E[ P(y_j | f_j) / site_j(f_j) | u = a ],

    the expectations under the Gaussian, one label at a time. It is exact, but for the quadrature, for one label, and
    where all labels see multiples of u. What the Gaussian got wrong about labels jointly stays.

    Args:
        result: of `propagate`.
        mean, variance: of u at the nodes, shape (n_nodes,), all variances positive.
        covariance: of u and the labeled f, shape (n_nodes, n_labeled).
    """
    sites, precision, shift = result.sites, result.precision, result.shift
    f_mean = result.labeled @ (result.basis.T @ result.z_mean)
    f_variance = np.square(result.labeled @ result.root).sum(axis=1)
    slope = covariance / variance[:, None]
    # Variance of f_j given u; where u is f_j itself, a step likelihood is asked at a point.
    given = np.maximum(f_variance - slope * covariance, 1e-12 * f_variance + 1e-300)
    left = 1 - precision * given
    cavity = given / left
    # In t = a - mean, the mean of f_j without its site is linear, and the logarithm of all sites together a quadratic.
    cavity_mean, cavity_slope = (f_mean - shift * given) / left, slope / left
    constant = ((precision * f_mean**2 - 2 * shift * f_mean + shift**2 * given) / (2 * left)).sum(axis=1)
    linear = ((precision * f_mean - shift) * cavity_slope).sum(axis=1)
    quadratic = (precision * slope * cavity_slope / 2).sum(axis=1)

    def log_density(a: Vector) -> Vector:
        t = a - mean
        labels = sites.log_predictive(cavity_mean + cavity_slope * t[:, None], cavity).sum(axis=1)
        return np.asarray(labels + constant + t * (linear + t * quadratic) - t**2 / (2 * variance))

    reach = REACH * np.sqrt(variance)
    return _share_above(log_density, np.minimum(mean - reach, 0), np.maximum(mean + reach, 0))


def _share_above(log_density: Callable[[Vector], Vector], low: Vector, high: Vector) -> Vector:
    """The share that a density has above zero of what it has from low to high, ``low <= 0 <= high``.

    On either side ``a = end s^2``, s from 0 to 1, so that points are densest at zero: where u all but coincides with a
    labeled f, the label is a step there.
    """
    x, weights = QUADRATURE
    s = (1 + x) / 2
    log_mass = []
    for end in (low, high):
        with np.errstate(divide="ignore"):  # a side out of reach has no mass
            log_size = np.log(np.abs(end))
        log_mass += [
            log_size + log_weight + log_density(end * point)
            for point, log_weight in zip(s**2, np.log(weights * s), strict=True)
        ]
    mass = np.exp(np.array(log_mass) - np.max(log_mass, axis=0))
    return np.asarray(mass[s.size :].sum(axis=0) / mass.sum(axis=0))


def labeled_probability(result: EP) -> Vector:
    """P(u_j >= 0 | all labels) at the labeled nodes, shape (n_labeled,).

    It is taken from the tilted distribution, which knows that a label cuts u_j at zero, not from
    the Gaussian that has its moments. Where it contradicts y_j, the label is likely wrong.
    """
    agrees = result.sites.agreement(result.cavity_mean, result.cavity_variance - result.sites.tail)
    return np.where(result.sites.y > 0, agrees, 1 - agrees)
