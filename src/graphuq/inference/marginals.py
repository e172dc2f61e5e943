"""The result of expectation propagation and some nodes in; means, variances and P(u >= 0) there out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from graphuq.inference.span import Matrix, Vector

if TYPE_CHECKING:
    from graphuq.inference.ep import EP

# Up to this many labels the marginals are corrected: they can be far from Gaussian, one label alone truncates a
# Gaussian in half. With more, Gaussian marginals are accurate to 0.01 and correcting them would dominate the cost.
FEW_LABELS = 20
# Gauss-Legendre points on either side of zero, and their range in posterior deviations. Measured for one label
# with any noise and correlation: accurate to 2e-4.
QUADRATURE = np.polynomial.legendre.leggauss(16)
REACH = 7.0
# Rows whose marginals are corrected together: their arrays stay in the cache.
ROWS_AT_ONCE = 1000


def moments(result: EP, conditional: ArrayLike, deviation: ArrayLike = 0.0) -> tuple[Vector, Vector]:
    """Posterior means and variances at nodes where u depends on the labels through z alone.

    There ``u | z ~ N(M z, deviation^2)``, with the rows M `conditional` of shape (n_nodes, n_latent).
    """
    return _gaussian(result, conditional, deviation)[:2]


def sign_probability(result: EP, conditional: ArrayLike, deviation: ArrayLike = 0.0) -> Vector:
    """P(u >= 0) at nodes, given as for `moments`; with few labels from corrected marginals."""
    mean, variance, along = _gaussian(result, conditional, deviation)
    with np.errstate(divide="ignore", invalid="ignore"):
        certain = np.where(mean >= 0, 1.0, 0.0)
        probability = np.where(variance > 0, ndtr(mean / np.sqrt(variance)), certain)
    if result.precision.size <= FEW_LABELS:
        directions, z_variances = result.touched
        with_f = z_variances[:, None] * ((result.labeled @ result.basis.T) @ directions).T
        uncertain = np.flatnonzero(variance > 0)
        for first in range(0, uncertain.size, ROWS_AT_ONCE):
            rows = uncertain[first : first + ROWS_AT_ONCE]
            probability[rows] = _corrected(result, mean[rows], variance[rows], along[rows] @ with_f)
    return probability


def _gaussian(result: EP, conditional: ArrayLike, deviation: ArrayLike) -> tuple[Vector, Vector, Matrix]:
    """Posterior means and variances at nodes, and the rows of M along the directions that labels changed."""
    matrix = np.asarray(conditional, float)
    directions, z_variances = result.touched
    products = matrix @ np.column_stack([directions, result.z_mean])
    along, mean = products[:, :-1], products[:, -1]
    variance = np.square(along) @ z_variances + np.square(np.asarray(deviation, float))
    if z_variances.size < matrix.shape[1]:  # all other directions keep their prior variance
        outside = np.square(matrix).sum(axis=1) - np.square(along).sum(axis=1)
        variance = variance + np.maximum(outside, 0)
    return mean, variance, along


def _corrected(result: EP, mean: Vector, variance: Vector, covariance: Matrix) -> Vector:
    """P(u >= 0) from marginals corrected by one factor per label (Cseke and Heskes 2011),

        p(a) ~ N(a; mean, variance) prod_j E[ P(y_j | f_j) / site_j(f_j) | u = a ],

    with expectations under the Gaussian approximation. Apart from the quadrature this is exact for one label, and
    if every f_j is a multiple of u. Errors of the joint distribution of the f_j remain. `covariance` is that of u
    with f at the labels, shape (n_nodes, n_labeled); all variances are positive.
    """
    sites, precision, shift = result.sites, result.precision, result.shift
    f_mean = result.labeled @ (result.basis.T @ result.z_mean)
    f_variance = np.square(result.labeled @ result.root).sum(axis=1)
    slope = covariance / variance[:, None]
    # Variance of f_j given u, kept positive where u is f_j itself.
    conditional = np.maximum(f_variance - slope * covariance, 1e-12 * f_variance + 1e-300)
    ratio = 1 - precision * conditional
    cavity_variance = conditional / ratio
    # The cavity mean of f_j given u is linear in t = a - mean, and the log of the product of all sites is
    # quadratic.
    cavity_mean, cavity_slope = (f_mean - shift * conditional) / ratio, slope / ratio
    constant = ((precision * f_mean**2 - 2 * shift * f_mean + shift**2 * conditional) / (2 * ratio)).sum(axis=1)
    linear = ((precision * f_mean - shift) * cavity_slope).sum(axis=1)
    quadratic = (precision * slope * cavity_slope / 2).sum(axis=1) - 1 / (2 * variance)
    side = sites.y / np.sqrt(cavity_variance + sites.noise + sites.tail)
    side_mean, side_slope, work = side * cavity_mean, side * cavity_slope, np.empty_like(slope)

    def log_density(a: Vector) -> Vector:
        t = a - mean
        np.multiply(side_slope, t[:, None], out=work)
        np.add(work, side_mean, out=work)
        return sites.log_probability(work) + constant + t * (linear + t * quadratic)

    reach = REACH * np.sqrt(variance)
    return _share_above(log_density, np.minimum(mean - reach, 0), np.maximum(mean + reach, 0))


def _share_above(log_density: Callable[[Vector], Vector], low: Vector, high: Vector) -> Vector:
    """Integral of a density over [0, high] divided by that over [low, high], ``low <= 0 <= high``.

    The substitution ``a = end s^2``, s from 0 to 1, on either side makes the points densest at zero, where the
    density has a step if u almost coincides with a labeled f.
    """
    x, weights = QUADRATURE
    s = (1 + x) / 2
    log_mass = []
    for end in (low, high):
        with np.errstate(divide="ignore"):  # an empty interval has log length -inf
            log_size = np.log(np.abs(end))
        log_mass += [
            log_size + log_weight + log_density(end * point)
            for point, log_weight in zip(s**2, np.log(weights * s), strict=True)
        ]
    mass = np.exp(np.array(log_mass) - np.max(log_mass, axis=0))
    return np.asarray(mass[s.size :].sum(axis=0) / mass.sum(axis=0))


def labeled_probability(result: EP) -> Vector:
    """P(u_j >= 0 | all labels) at the labeled nodes, shape (n_labeled,).

    Computed from the tilted distribution, which is truncated at zero by the label, not from the Gaussian with the
    same moments. Where it contradicts y_j, the label is likely wrong.
    """
    agreement = result.sites.agreement(result.cavity_mean, result.cavity_variance - result.sites.tail)
    return np.where(result.sites.y > 0, agreement, 1 - agreement)
