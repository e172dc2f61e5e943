"""Means and covariances of K Gaussian fields in; the probability that each field is the largest out.

    P(g_k largest) = int phi(y; m_k, s_k^2) prod_{l != k} Phi((y - m_l) / s_l) dy,    g_k ~ N(m_k, s_k^2) independent,

for all k from one set of points y: with P(y) = prod_l Phi((y - m_l) / s_l) the integrand is P(y) times the ratio of
phi to Phi of class k. There are two rules: `largest_probability` is exact, of fields of one s, and
`independent_probability` is quick, of any.

Of fields that are not independent only differences matter: `largest_probability_correlated`. Three have a closed form.
More are stood for by independent ones, `largest_probability_matched`: fields of variances d_k have differences of
variance d_k + d_l, and those d that come closest to the variances D_kl of the differences, counted by how probable both
classes are,

    sum_{k<l} w_k w_l (d_k + d_l - D_kl)^2 -> min,    w_k = P(g_k largest) + LEAST_WEIGHT / K,

turn K correlated fields into independent ones. It is exact where fields are independent, or equally correlated, and for
three fields unless one of the d would be negative.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from numpy.polynomial.chebyshev import cheb2poly, chebfit, chebpts1
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, owens_t
from scipy.special import ndtr as normal_cdf

from graphuq import _accelerator

Array = NDArray[Any]

# No field is the largest with a probability below this.
LEAST_PROBABILITY = 1e-12
# The points y, in deviations from the largest mean. A field exceeds HIGH with probability 1e-9, and what is below LOW
# matters only to probabilities of less than 1e-10.
LOW, HIGH = -7.0, 6.0
# Spacing of the points times sqrt(log K): the density of the largest of K fields narrows like 1 / sqrt(log K).
# Measured for K = 3 to 100: wrong by less than 1e-7, and by less than 4e-5 of a probability above 1e-10.
SPACING = 0.7
# Fields at a time: 2 MB an array in single precision, which is when the processor's caches still serve.
BLOCK = 2**19
# Blocks have a power of two of rows, this many at least: a new shape costs a quarter of a second to compile.
LEAST_ROWS = 2**10
# The closed form of three fields divides: by no number smaller than TINY. A mean of 0 is taken as SMALL deviations, and
# more than FAR deviations are as many.
TINY, SMALL, FAR = float(np.finfo(float).tiny), 1e-100, 40.0
# Differences between classes that are both improbable count a little too.
LEAST_WEIGHT = 0.2
# Deviations lie between these multiples of that of a probable class: wider and narrower ones are those of classes that
# hardly ever win, and change nothing but where points are needed.
NARROWEST, WIDEST = 0.25, 3.0
# The points of the integral reach so many deviations out.
REACH = 6.0
# Of the first pass, which only finds the weights, and of the second; so many times more where the probabilities do not
# add up to 1 within the last number: a narrow field among wide ones lies between the points.
N_FIRST, N_POINTS, FINER, ASTRAY = 8, 32, 3, 1e-4
# Rows at a time, always as many: another number would be compiled anew, which takes longer than a million rows. With
# many classes fewer, so that one array has no more than the last number of fields. An accelerator has no small cache to
# stay in, and wants few calls.
MOST_ROWS, FEWEST_ROWS, MOST_FIELDS = 2**10, 2**6, 2**14
MOST_ROWS_THERE, MOST_FIELDS_THERE = 2**13, 2**17
# Fewer rows stay here.
LEAST_ROWS_THERE = 2**8
# A weight of exactly half the sum leaves one variance undetermined.
UNDETERMINED = 1e-4


def largest_probability(mean: ArrayLike, deviation: ArrayLike) -> Array:
    """P(g_k is the largest), where ``g_k ~ N(mean_k, deviation^2)`` independently, shape (..., n_classes).

    Two classes have a closed form, ``Psi((m_1 - m_0) / (sqrt(2) s))``; more are integrated to 1e-7. Rows add up to 1.
    No probability is 0 or 1 (1 - 6e-8 is the most in single precision) but where the deviation is 0: there the
    largest mean has it all, or several that are equal share it.

    Args:
        mean: shape (..., n_classes); single precision is computed in and returned as such, all else double.
        deviation: shape (...), or one that broadcasts to it.
    """
    m = np.asarray(mean)
    m = m.astype(np.float32 if m.dtype in (np.float32, np.float16) else np.float64, copy=False)
    shape, n_classes = m.shape, m.shape[-1]
    s = np.broadcast_to(np.asarray(deviation).astype(m.dtype), shape[:-1]).reshape(-1)
    m = m.reshape(-1, n_classes)
    found = np.empty_like(m)
    most = 2 ** int(math.log2(max(BLOCK // n_classes, 1)))
    with jax.enable_x64(m.dtype == np.float64):
        for first in range(0, len(m), most):
            rows = slice(first, min(first + most, len(m)))
            n_rows = rows.stop - first
            size = min(most, max(LEAST_ROWS, 2 ** math.ceil(math.log2(n_rows))))
            padding = (0, size - n_rows)
            found[rows] = _independent(np.pad(m[rows], (padding, (0, 0))), np.pad(s[rows], padding))[:n_rows]
    return found.reshape(shape)


def largest_probability_correlated(mean: Array, variance: Array, cross: Array) -> Array:
    """P(g_k is the largest), where ``g ~ N(mean, variance I + cross)`` at each node, shape (n_nodes, n_classes).

    Two and three classes have a closed form; for more, see `largest_probability_matched`.

    Args:
        mean: shape (n_nodes, n_classes).
        variance: common to the fields, shape (n_nodes,); only ``variance I + cross`` matters, not how it is split.
        cross: shape (n_nodes, n_classes, n_classes), symmetric and positive semi-definite, perhaps singular.
    """
    n_classes = mean.shape[1]
    if n_classes == 2:  # the variance of the difference, half for each
        pair = variance + (cross[:, 0, 0] + cross[:, 1, 1]) / 2 - cross[:, 0, 1]
        return largest_probability(mean, np.sqrt(np.maximum(pair, 0)))
    return (_of_three if n_classes == 3 else largest_probability_matched)(mean, variance, cross)


def largest_probability_matched(mean: Array, variance: Array, cross: Array) -> Array:
    """P(g_k is the largest), where ``g ~ N(mean, variance I + cross)`` at each node, shape (n_nodes, n_classes).

    Of three classes or more. On posteriors of expectation propagation with ten classes the root mean square error was
    0.002, less than that of an average over 64 points, at a thirtieth of the cost.
    """
    return independent_probability(mean, matched_variances(mean, variance, cross))


def matched_variances(mean: Array, variance: Array, cross: Array) -> Array:
    """The variances d of independent fields that stand for correlated ones, shape (n_nodes, n_classes)."""
    function = _matched_variances_there if go_there(len(mean)) else _matched_variances
    return _in_blocks(function, mean, variance, cross)


def independent_probability(
    mean: Array, variance: Array, *, n_points: int = N_POINTS, block_rows: int | None = None
) -> Array:
    """P(g_k is the largest) of independent fields ``g_k ~ N(mean_k, variance_k)``, shape (n_nodes, n_classes).

    Integrated in single precision. On ten random fields whose deviations differ by factors of up to 4, 8 and 12 it was wrong
    by 4e-5, 6e-4 and 2e-3 at most; on posteriors of ten digits by 1e-6.
    """
    found = _integrated(mean, variance, n_points, block_rows)
    coarse = np.abs(found.sum(axis=1) - 1) > ASTRAY
    if coarse.any():
        found[coarse] = _integrated(mean[coarse], variance[coarse], FINER * n_points, block_rows)
    found = np.asarray(_proper(found))
    sure = variance.max(axis=1, initial=0) == 0
    if sure.any():
        found[sure] = largest_probability(mean[sure], 0.0)
    return found


def _integrated(mean: Array, variance: Array, n_points: int, block_rows: int | None) -> Array:
    integrals = _integrals_there if go_there(len(mean)) else _integrals
    return _in_blocks(lambda m, v: integrals(m, v, n_points), mean, variance, block_rows=block_rows)


def go_there(n_rows: int) -> bool:
    """Whether so many rows go to an accelerator."""
    return n_rows >= LEAST_ROWS_THERE and _accelerator.is_there()


def rows_at_once(n_classes: int, *, n_rows: int = MOST_ROWS_THERE) -> int:
    """How many rows make a block, a power of two."""
    rows, fields = (MOST_ROWS_THERE, MOST_FIELDS_THERE) if go_there(n_rows) else (MOST_ROWS, MOST_FIELDS)
    return min(rows, max(FEWEST_ROWS, 2 ** int(np.log2(fields / n_classes))))


def _tail_coefficients() -> tuple[float, float, list[float]]:
    """Of ``R(x) = (1 - Phi(x)) exp(x^2 / 2)``, a polynomial in ``a - b / (x + 4)``, the last power first.

    It is wrong by 1.2e-9 of itself for x from 0 to 8, and finite beyond, where exp(-x^2 / 2) is below 1e-14.
    """
    near, far = 1 / 4, 1 / (4 + 8)
    a, b = (near + far) / (near - far), 2 / (near - far)
    argument = chebpts1(10)
    x = b / (a - argument) - 4
    return a, b, cheb2poly(chebfit(argument, erfcx(x / np.sqrt(2)) / 2, 9))[::-1].tolist()


_A, _B, _RATIO = _tail_coefficients()


@jax.jit
def _independent(mean: jax.Array, deviation: jax.Array) -> jax.Array:
    """The probabilities of a block of rows, shape (n_rows, n_classes)."""
    sure = (deviation == 0)[:, None]
    s = jnp.where(sure, 1, deviation[:, None])
    top = mean.max(axis=1, keepdims=True)
    if mean.shape[1] == 2:
        p = ndtr((mean - mean[:, ::-1]) / (math.sqrt(2) * s))
    else:
        p = _proper(_integral(((mean - top) / s).T).T)
    p = jnp.clip(p, LEAST_PROBABILITY, 1 - max(LEAST_PROBABILITY, float(jnp.finfo(p.dtype).epsneg)))
    largest = mean == top
    return jnp.where(sure, largest / largest.sum(axis=1, keepdims=True), p)


def normal(t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``exp(-t^2 / 2)`` and Phi(t), in single precision."""
    density = jnp.exp(-t * t / 2)
    argument = _A - _B / (jnp.abs(t) + 4)
    ratio = jnp.full_like(t, _RATIO[0])
    for coefficient in _RATIO[1:]:
        ratio = ratio * argument + coefficient
    tail = density * ratio
    return density, jnp.where(t > 0, 1 - tail, tail)


def _integral(below: jax.Array) -> jax.Array:
    """The integrals, up to one factor, from ``(m_k - max m) / s``, shape (n_classes, n_rows).

    No argument of Phi is less than LOW, so that Phi and its ratio to phi are never 0; where their product over the
    classes is too small to be represented, so is what it adds.
    """
    spacing = SPACING / math.sqrt(math.log(len(below)))
    points = np.linspace(LOW, HIGH, math.ceil((HIGH - LOW) / spacing) + 1)

    def add(total: jax.Array, y: jax.Array) -> tuple[jax.Array, None]:
        t = y - below
        density, phi = normal(t)
        return total + phi.prod(axis=0) * (density / phi), None

    return jax.lax.scan(add, jnp.zeros_like(below), jnp.asarray(points, below.dtype))[0]


def _of_three(mean: Array, variance: Array, cross: Array) -> Array:
    """A field is the largest where its differences to the two others are positive, shape (n_nodes, 3)."""
    differences = np.eye(3)[:, None] - np.eye(3)[[[1, 2], [0, 2], [0, 1]]]
    covariance = (cross + variance[:, None, None] * np.eye(3))[:, None]
    covariance = differences @ covariance @ differences.swapaxes(1, 2)
    found = _proper(_both_positive((differences @ mean[:, None, :, None])[..., 0], covariance))
    sure = ~covariance.any(axis=(1, 2, 3))
    found[sure] = largest_probability(mean[sure], 0.0)
    return np.asarray(found)


def _both_positive(mean: Array, covariance: Array) -> Array:
    """P(x > 0, y > 0) of two Gaussian numbers, shapes (..., 2) and (..., 2, 2); with h, k their means in deviations

        (Phi(h) + Phi(k)) / 2 - T(h, a) - T(k, b) - [h k < 0] / 2,    a = (k - rho h) / (h sqrt(1 - rho^2)),

    and b the other way round (Owen 1956).
    """
    s = np.sqrt(np.maximum(np.einsum("...ii->...i", covariance), TINY))
    h = np.clip(mean / s, -FAR, FAR)
    h = np.where(h == 0, SMALL, h)
    rho = np.clip(covariance[..., :1, 1] / s.prod(axis=-1, keepdims=True), -1, 1)
    slope = (h[..., ::-1] - rho * h) / (h * np.sqrt(np.maximum(1 - rho**2, TINY)))
    return np.asarray((normal_cdf(h) / 2 - owens_t(h, slope)).sum(axis=-1) - (h.prod(axis=-1) < 0) / 2)


def _in_blocks(function: Any, mean: Array, *more: Array, block_rows: int | None = None) -> Array:
    """What a function in single precision makes of some rows at a time, shape and precision as of `mean`."""
    n_rows, found = len(mean), np.empty(mean.shape, mean.dtype)
    block_rows = block_rows or rows_at_once(mean.shape[1], n_rows=n_rows)
    device = _accelerator.processor() if _accelerator.is_there() and not go_there(n_rows) else None
    for first in range(0, n_rows, block_rows):
        rows = slice(first, first + block_rows)
        block = [
            _accelerator.whole_block(each[rows].astype(np.float32, copy=False), block_rows)
            for each in (mean, *more)
        ]
        found[rows] = np.asarray(function(*jax.device_put(block, device)))[: n_rows - first]
    return found


def _matched_variances(
    mean: NDArray[np.float32], variance: NDArray[np.float32], cross: NDArray[np.float32]
) -> jax.Array:
    """The variances d, from weights all alike, then from those that these bring."""
    first = _matched(variance, cross, np.full(mean.shape, 1 / mean.shape[1], np.float32))
    weights = _proper(_integrals(mean, first, N_FIRST)) + np.float32(LEAST_WEIGHT / mean.shape[1])
    return _matched(variance, cross, weights)


@jax.jit
def _matched(variance: jax.Array, cross: jax.Array, weights: jax.Array) -> jax.Array:
    """The variances d, shape (n_rows, n_classes) as the weights; the equations are a diagonal and one of rank one."""
    w = weights.T
    own = cross.reshape(len(cross), -1)[:, :: len(w) + 1].T + variance
    total = w.sum(axis=0)
    pulled = variance * w + jnp.einsum("nkl,nl->nk", cross, weights).T
    right = total * own + (w * own).sum(axis=0) - 2 * pulled
    diagonal = total - 2 * w
    diagonal = jnp.where(jnp.abs(diagonal) < UNDETERMINED, UNDETERMINED, diagonal)
    share = w / diagonal
    d = (right - (share * right).sum(axis=0) / (1 + share.sum(axis=0))) / diagonal
    usual = (w * jnp.maximum(d, 0)).sum(axis=0) / total
    return jnp.clip(d, NARROWEST**2 * usual, WIDEST**2 * usual).T


def _proper(p: Any) -> Any:
    """Probabilities that add up to 1, none of them 0."""
    p = (p / p.sum(axis=1, keepdims=True)).clip(LEAST_PROBABILITY)
    return p / p.sum(axis=1, keepdims=True)


@jax.jit
def _integrals(mean: jax.Array, variance: jax.Array, n_points: int) -> jax.Array:
    """``int phi((y - m_k) / s_k) / s_k prod_{l != k} Phi((y - m_l) / s_l) dy``, shape (n_rows, n_classes).

    A row adds up to 1, as far as the points tell.
    """
    m, s = mean.T, jnp.sqrt(jnp.where(variance.max(axis=1, keepdims=True) > 0, variance, 1)).T
    m = (m - m.max(axis=0)) / s.max(axis=0)
    s = s / s.max(axis=0)
    low, high = (m - REACH * s).max(axis=0), (m + REACH * s).max(axis=0)

    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        t = (low + i / (n_points - 1) * (high - low) - m) / s
        density, phi = normal(t)
        return total + phi.prod(axis=0) * (density / (phi * s))

    # A number of points that is not known beforehand: one program serves all.
    total = jax.lax.fori_loop(0, n_points, add, jnp.zeros_like(m))
    return (total * ((high - low) / (n_points - 1) / np.sqrt(2 * np.pi))).T


# On an accelerator a loop whose length is not known beforehand asks this processor at every turn whether to go on.
_matched_variances_there = _accelerator.compiled(_matched_variances)
_integrals_there = _accelerator.compiled(_integrals, static=(2,))
