"""The result of expectation propagation and some nodes in; means, variances and P(u >= 0) there out.

A label truncates u, which a Gaussian cannot represent. With few labels of one field the marginals are therefore
corrected at every row (`EP.is_corrected`). Otherwise they are Gaussian, except at labeled rows where the fit offers
tilted distributions (`labeled_classes`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from graphuq import _accelerator
from graphuq._threads import in_threads
from graphuq.inference.largest import independent_probability
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
# Flips with a log probability below this have no effect in single precision.
NO_FLIPS = -80.0
# Rows whose marginals are corrected together, if there are few or many: only two sizes, as each is compiled anew.
FEW_ROWS, MANY_ROWS = 64, 2048
# Largest number in single precision.
LARGEST = np.finfo(np.float32).max


def moments(result: EP, conditional: ArrayLike, deviation: ArrayLike = 0.0) -> tuple[Vector, Vector]:
    """Posterior means and variances at nodes where u depends on the labels through z alone.

    There ``u | z ~ N(M z, deviation^2)``, with the rows M `conditional` of shape (n_nodes, n_latent).
    """
    return _gaussian(result, conditional, deviation)[:2]


def positive(mean: Vector, variance: Vector) -> Vector:
    """P(u >= 0) for Gaussian u; 1/2 where u is 0 for certain, as where the prior variance is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(variance > 0, ndtr(mean / np.sqrt(variance)), np.heaviside(mean, 0.5))


def two_classes(probability: Vector) -> Matrix:
    """Class probabilities, one column per class, from the probability of the second class."""
    return np.column_stack([1 - probability, probability])


def gaussian_classes(mean: Matrix, variance: Matrix) -> Matrix:
    """Class probabilities from means and variances, noise included, of Gaussian fields treated as independent."""
    one = mean.shape[1] == 1
    return two_classes(positive(mean, variance)[:, 0]) if one else independent_probability(mean, variance)


def sign_probability(result: EP, conditional: ArrayLike, deviation: ArrayLike = 0.0) -> Vector:
    """P(u >= 0) at nodes, given as for `moments`; with few labels from corrected marginals."""
    mean, variance, along = _gaussian(result, conditional, deviation)
    probability = positive(mean, variance)
    if result.is_corrected:
        directions, z_variances = result.touched
        with_f = (result.labeled @ result.basis.T) @ directions * z_variances
        uncertain = np.flatnonzero(variance > 0)

        def corrected(rows: NDArray[np.intp]) -> Vector:
            return _corrected(result, mean[rows], variance[rows], with_f @ along[rows].T)

        parts = [uncertain[first : first + MANY_ROWS] for first in range(0, uncertain.size, MANY_ROWS)]
        for rows, part in zip(parts, (in_threads if len(parts) > 1 else map)(corrected, parts), strict=True):
            probability[rows] = np.where(np.isfinite(part), part, probability[rows])
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


@np.errstate(over="ignore", invalid="ignore")
def _corrected(result: EP, mean: Vector, variance: Vector, covariance: Matrix) -> Vector:
    """P(u >= 0) from marginals corrected by one factor per label (Cseke and Heskes 2011),

        p(a) ~ N(a; mean, variance) prod_j E[ P(y_j | f_j) / site_j(f_j) | u = a ],

    with expectations under the Gaussian approximation. Apart from the quadrature this is exact for one label, and
    if every f_j is a multiple of u. Errors of the joint distribution of the f_j remain. `covariance` is that of f
    at the labels with u, shape (n_labeled, n_nodes); all variances are positive.
    """
    sites, precision, shift = result.sites, result.precision[:, None], result.shift[:, None]
    f_mean = (result.labeled @ (result.basis.T @ result.z_mean))[:, None]
    f_variance = np.square(result.labeled @ result.root).sum(axis=1)[:, None]
    slope = covariance / variance
    # Variance of f_j given u, kept positive where u is f_j itself.
    conditional = np.maximum(f_variance - slope * covariance, 1e-12 * f_variance + 1e-300)
    ratio = 1 - precision * conditional
    cavity_variance = conditional / ratio
    # The cavity mean of f_j given u is linear in t = a - mean, and the log of the product of all sites is
    # quadratic.
    cavity_mean, cavity_slope = (f_mean - shift * conditional) / ratio, slope / ratio
    constant = ((precision * f_mean**2 - 2 * shift * f_mean + shift**2 * conditional) / (2 * ratio)).sum(axis=0)
    linear = ((precision * f_mean - shift) * cavity_slope).sum(axis=0)
    quadratic = (precision * slope * cavity_slope / 2).sum(axis=0) - 1 / (2 * variance)
    side = sites.y[:, None] / np.sqrt(cavity_variance + sites.noise + sites.tail)

    # On either side of zero the substitution ``a = end s^2``, s from 0 to 1, makes the points densest at zero, where
    # the density has a step if u almost coincides with a labeled f.
    x, weights = QUADRATURE
    s, reach = (1 + x) / 2, REACH * np.sqrt(variance)
    ends = np.stack([np.minimum(mean - reach, 0), np.maximum(mean + reach, 0)])[:, None]
    t = ends * np.square(s)[:, None] - mean
    log_mass = _log_probability(side * cavity_mean, side * cavity_slope, t.reshape(-1, mean.size), sites.log_flip)
    with np.errstate(divide="ignore"):  # an empty interval has log length -inf
        log_size = np.log(np.abs(ends)) + np.log(weights * s)[:, None]
    log_mass = log_mass.reshape(t.shape) + log_size + constant + t * (linear + t * quadratic)
    mass = np.exp(log_mass - log_mass.max(axis=(0, 1))).sum(axis=1)
    # Not finite where contradictory labels leave u hardly any variance.
    return np.asarray(mass[1] / mass.sum(axis=0))


def _log_probability(mean: Matrix, slope: Matrix, t: Matrix, log_flip: float) -> Matrix:
    """``sum_j log P(y_j)``, up to a constant, if the side of label j is ``N(mean_j + slope_j t, 1)``.

    `mean` and `slope` have the shape (n_labeled, n_nodes); t and the result have (n_points, n_nodes). Single precision
    is enough: where sides are too large for it, labels are all but certain, or points have no mass.
    """
    n_rows = FEW_ROWS if t.shape[1] <= FEW_ROWS else MANY_ROWS
    sides, ts = (FEW_LABELS, n_rows), (len(t), n_rows)
    padded = [_padded(mean, sides, 50), _padded(slope, sides), _padded(t, ts), np.float32(np.exp(log_flip))]
    sent = jax.device_put(padded, _accelerator.processor())  # the labels added as padding are all certain
    return np.asarray(_sum_of_logs(*sent, flipped=log_flip > NO_FLIPS), float)[:, : t.shape[1]]


def _padded(x: Matrix, shape: tuple[int, int], by: float = 0.0) -> NDArray[np.float32]:
    result = np.full(shape, by, np.float32)
    result[: x.shape[0], : x.shape[1]] = np.clip(x, -LARGEST, LARGEST)
    return result


@partial(jax.jit, static_argnames="flipped")
def _sum_of_logs(mean: jax.Array, slope: jax.Array, t: jax.Array, flip: jax.Array, *, flipped: bool) -> jax.Array:
    side = mean + slope * t[:, None]
    if not flipped:
        return jax.scipy.special.log_ndtr(side).sum(axis=1)
    return jnp.log(flip + (1 - 2 * flip) * jax.scipy.special.ndtr(side)).sum(axis=1)


def labeled_probability(result: EP, noise: float | Vector = 0.0) -> Vector:
    """P(u_j + N(0, noise) >= 0 | all labels) at the labeled nodes, shape (n_labeled,).

    Computed from the tilted distribution, which is truncated at zero by the label, not from the Gaussian with the
    same moments. Where it contradicts y_j, the label is likely wrong.
    """
    agreement = result.sites.agreement(result.cavity_mean, result.cavity_variance - result.sites.tail, noise)
    return np.where(result.sites.y > 0, agreement, 1 - agreement)
