"""The Gaussian of expectation propagation and some nodes in; means, variances and P(u >= 0) there out."""

from __future__ import annotations

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
# Points of Gauss and Legendre on either side of zero, and how many deviations out they reach.
QUADRATURE = np.polynomial.legendre.leggauss(8)
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

    the expectations under the Gaussian, one label at a time. It is exact for one label, and where all labels
    see multiples of u. What the Gaussian got wrong about labels jointly stays.

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
    # f_j and the belief without its site are linear in t = a - mean, all sites together a quadratic.
    mean_at, mean_by = (f_mean - shift * given) / left, slope / left
    site_at = (precision * f_mean**2 - 2 * shift * f_mean + shift**2 * given) / (2 * left)
    site = [
        each.sum(axis=1)
        for each in (site_at, (precision * f_mean - shift) * mean_by, precision * slope * mean_by / 2)
    ]
    reach = REACH * np.sqrt(variance)
    x, weights = QUADRATURE
    log_mass = []
    for low, high in ((np.minimum(mean - reach, 0), 0 * mean), (0 * mean, np.maximum(mean + reach, 0))):
        for point, weight in zip(x, weights, strict=True):
            t = (low + high + (high - low) * point) / 2 - mean
            label = sites.log_predictive(mean_at + mean_by * t[:, None], cavity).sum(axis=1)
            with np.errstate(divide="ignore"):  # a side out of reach has no mass
                log_size = np.log(weight * (high - low))
            log_mass.append(log_size - t**2 / (2 * variance) + label + site[0] + t * (site[1] + t * site[2]))
    mass = np.exp(np.array(log_mass) - np.max(log_mass, axis=0))
    return np.asarray(mass[x.size :].sum(axis=0) / mass.sum(axis=0))


def labeled_probability(result: EP) -> Vector:
    """P(u_j >= 0 | all labels) at the labeled nodes, shape (n_labeled,).

    It is taken from the tilted distribution, which knows that a label cuts u_j at zero, not from
    the Gaussian that has its moments. Where it contradicts y_j, the label is likely wrong.
    """
    agrees = result.sites.agreement(result.cavity_mean, result.cavity_variance - result.sites.tail)
    return np.where(result.sites.y > 0, agrees, 1 - agrees)
