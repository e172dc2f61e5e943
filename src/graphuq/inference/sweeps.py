"""The sweeps of expectation propagation: initial sites in; sites that reproduce their tilted moments out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from graphuq.inference.sites import Match
from graphuq.inference.span import Matrix, Vector

# Sweeps are accelerated once the residual of every moment is below this many posterior deviations: farther out the
# sweeps are not linear enough for the step likelihood of level-set, and acceleration diverged.
CLOSE = 0.1
# Length of the history used for acceleration; a residual this many times larger than an earlier one discards it.
# Near labels that look mislabeled the fixed point can repel plain sweeps; extrapolation from many still finds it.
ACCELERATION_MEMORY, ASTRAY = 16, 3.0
# In every sweep the shifts are first settled for the current precisions, with a few products and no factorization: this
# halves the number of sweeps. They must settle to this fraction of the residual, in at most this many steps.
SHIFTS_SETTLED, MOST_SHIFTS = 0.03, 30
# The step is halved when the residual grows by more than this factor.
WORSE = 1.05


class Start(NamedTuple):
    """Natural parameters of the sites for a warm start, one row for each label."""

    precision: NDArray[Any]
    shift: NDArray[Any]


class Moments(NamedTuple):
    """Marginal and cavity moments of every value that has a site."""

    mean: Vector
    variance: Vector
    cavity_mean: Vector
    cavity_variance: Vector


class OfSites(NamedTuple):
    """The Gaussian approximation defined by given sites: the prior N(0, I) times all sites."""

    parts: Any  # its factorization, left on the device that computed it
    log_det: float  # of its precision
    moments: Moments  # of the values that have sites
    mean_of: Callable[[Vector], Vector] | None  # their means given other shifts; None if not quick


class Settled(NamedTuple):
    """The outcome of the sweeps."""

    site: Vector  # all precisions, then all shifts
    posterior: OfSites
    n_sweeps: int
    converged: bool


@np.errstate(over="ignore", invalid="ignore")  # sites that overflow end an attempt
def settle(
    posterior_of: Callable[[Vector], OfSites | None],
    match: Callable[[Vector, Vector], Match],
    start: Vector,
    tolerance: float,
    max_sweeps: int,
    n_sweeps: int = 0,
) -> Settled:
    """Update all sites in parallel until every site reproduces its tilted moments.

    Shifts are settled before precisions, which need a new factorization. Far from the fixed point the updates are
    damped. Close to it, where a sweep acts on the error as a linear map, they are extrapolated by Anderson
    acceleration (Anderson 1965).

    Args:
        posterior_of: maps sites to the Gaussian they define, or to None if it is improper.
        match: maps cavity means and variances to the sites that match the tilted moments.
        start: initial sites, all precisions followed by all shifts.
        tolerance: largest residual of a moment, in posterior deviations.
        max_sweeps: number of sweeps after which to give up.
        n_sweeps: sweeps already made, which are added to the count returned.
    """
    site, posterior = start, posterior_of(start)
    if posterior is None:  # a warm start from a different problem: fall back to the prior
        site = np.zeros_like(start)
        posterior = posterior_of(site)
    assert posterior is not None  # the prior is proper
    step, last_residual = 1.0, np.inf
    history: list[tuple[Vector, Vector, float]] = []
    for sweep in range(n_sweeps + 1, n_sweeps + max_sweeps + 1):
        target = match(posterior.moments.cavity_mean, posterior.moments.cavity_variance)
        update = np.concatenate([target.precision, target.shift]) - site
        residual = np.abs(_in_deviations(update, posterior.moments)).max()
        if residual < tolerance:
            return Settled(site, posterior, sweep, True)
        if not np.isfinite(residual):  # sites grew beyond bounds: labels without noise contradict each other
            return Settled(site, posterior, sweep, False)
        if posterior.mean_of is not None and sweep - n_sweeps <= max_sweeps // 2:  # later sweeps try without
            target = _with_shifts_settled(posterior, posterior.mean_of, match, target, site, residual)
            update = np.concatenate([target.precision, target.shift]) - site
        accelerate = residual < min([CLOSE, *(ASTRAY * earlier for _, _, earlier in history)])
        history = [*history[-ACCELERATION_MEMORY:], (site, update, residual)] if accelerate else []
        step = max(step / 2, 0.02) if residual > WORSE * last_residual else min(1.0, 1.2 * step)
        last_residual = residual
        new_site = site + (
            _anderson_step(history, partial(_in_deviations, moments=posterior.moments))
            if len(history) > 1
            else step * update
        )
        new_posterior = posterior_of(new_site)
        while new_posterior is None:  # sites of negative precision can make the Gaussian improper: backtrack
            step /= 4
            if step < 1e-3:
                return Settled(site, posterior, sweep, False)
            new_site = site + step * update
            new_posterior = posterior_of(new_site)
        site, posterior = new_site, new_posterior
    return Settled(site, posterior, n_sweeps + max_sweeps, False)


def inverse_root(matrix: Matrix) -> Matrix:
    """R with ``R R^T = (I + matrix)^-1``, NaN if I + matrix is not positive definite.

    The upper triangle of `matrix` is overwritten.
    """
    matrix.flat[:: len(matrix) + 1] += 1
    cholesky, failed = dpotrf(matrix.T, lower=1, overwrite_a=1)
    if failed or not np.isfinite(cholesky[-1, -1]):
        return np.full_like(matrix, np.nan)
    # Products with R are faster than triangular solves.
    return np.asarray(dtrtri(cholesky, lower=1, overwrite_c=1)[0].T)


def with_cavities(mean: Vector, variance: Vector, site: Vector) -> Moments | None:
    """Add the cavity moments to marginal ones; None if a cavity is improper or a moment is NaN."""
    precision, shift = site.reshape(2, -1)
    ratio = 1 - precision * variance  # of the cavity's precision to the marginal one
    if not (ratio > 1e-12).all():
        return None
    return Moments(mean, variance, (mean - variance * shift) / ratio, variance / ratio)


def heights(log_z: Vector, mean: Vector, variance: Vector, precision: Vector, shift: Vector) -> Vector:
    """Log heights of the sites, such that the cavity N(mean, variance) times the site integrates to exp(log_z)."""
    scale = 1 + variance * precision
    exponent = 2 * mean * shift + variance * shift**2 - mean**2 * precision
    return np.asarray(log_z + np.log(scale) / 2 - exponent / (2 * scale))


def _in_deviations(update: Matrix, moments: Moments) -> Matrix:
    """Express updates of precisions and shifts, stacked, as changes of moments in posterior deviations."""
    half = update.shape[-1] // 2
    d_precision, d_shift = update[..., :half], update[..., half:]
    d_mean = (d_shift - d_precision * moments.mean) * np.sqrt(moments.variance)
    return np.concatenate([d_precision * moments.variance, d_mean], axis=-1)


def _with_shifts_settled(
    posterior: OfSites,
    mean_of: Callable[[Vector], Vector],
    match: Callable[[Vector, Vector], Match],
    target: Match,
    site: Vector,
    residual: float,
) -> Match:
    """The sites that match after the shifts agree with the precisions of `site`; `target` if they do not settle.

    With a fixed covariance a shift reproduces the tilted mean t if it is ``precision t + (t - m) / v``, where
    m and v are the moments of its cavity; ``(t - m) / v`` is written without the division, since v may be 0.
    """
    precision, shift = site.reshape(2, -1)
    _, variance, m, v = posterior.moments
    deviation, history, unsettled = np.sqrt(variance), [], target
    for _ in range(MOST_SHIFTS):
        t = (m + v * target.shift) / (1 + v * target.precision)
        update = precision * t + (target.shift - target.precision * m) / (1 + v * target.precision) - shift
        off = np.abs(update * deviation).max()
        if off < SHIFTS_SETTLED * residual:
            return target
        if not np.isfinite(off):
            return unsettled
        history.append((shift, update))
        shift = shift + (_anderson_step(history, deviation.__mul__) if len(history) > 1 else update)
        m = (mean_of(shift) - variance * shift) / (1 - precision * variance)
        target = match(m, v)
    return unsettled


def _anderson_step(history: Sequence[tuple[Any, ...]], in_deviations: Callable[[Any], Any]) -> Vector:
    """The step to the zero of a linear model of the update, fitted by least squares to the last sweeps."""
    sites, updates = (np.array(column) for column in list(zip(*history, strict=True))[:2])
    d_sites, d_updates = np.diff(sites, axis=0), np.diff(updates, axis=0)
    last = updates[-1]
    weights = np.linalg.lstsq(in_deviations(d_updates).T, in_deviations(last), rcond=1e-8)[0]
    return np.asarray(last - weights @ (d_sites + d_updates))
