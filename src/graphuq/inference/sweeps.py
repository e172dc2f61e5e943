"""Sites to start from in; sites that agree with the moments they stand for out: the sweeps of expectation propagation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from graphuq.inference.sites import Match
from graphuq.inference.span import Matrix, Vector

# Sweeps are accelerated once no moment is off by more posterior deviations than this: farther out the step
# likelihood of level-set is not linear enough, and leaps led astray.
CLOSE = 0.1
# From so many sweeps back, unless one is off by so many times what another was. A label that looks like a mistake makes
# a fixed point from which single sweeps lead away; many sweeps together still point at it.
ACCELERATION_MEMORY, ASTRAY = 16, 3.0
# A step that leaves more to change than this times what there was is followed by one half as long.
WORSE = 1.05


class Start(NamedTuple):
    """Sites to start from: their natural parameters, one row for each label."""

    precision: NDArray[Any]
    shift: NDArray[Any]


class Moments(NamedTuple):
    """What the Gaussian of given sites says of every value that a site sees, with that site and without it."""

    mean: Vector
    variance: Vector
    cavity_mean: Vector
    cavity_variance: Vector


class OfSites(NamedTuple):
    """The Gaussian that given sites stand for."""

    parts: Any  # what it is made of, left where it was made
    log_det: float  # of its precision, that of the prior being I
    moments: Moments  # of the values that the sites see


class Settled(NamedTuple):
    """Where the sweeps ended."""

    site: Vector  # all precisions, then all shifts
    posterior: OfSites
    n_sweeps: int
    converged: bool


def settle(
    posterior_of: Callable[[Vector], OfSites | None],
    match: Callable[[Vector, Vector], Match],
    start: Vector,
    tolerance: float,
    max_sweeps: int,
    n_sweeps: int = 0,
) -> Settled:
    """Sweep all sites at once until every site reproduces its tilted moments.

    Far from the fixed point steps are damped. Close to it, where sweeps shrink and turn the error by the same
    linear map, the last few of them tell where it vanishes (Anderson 1965).

    Args:
        posterior_of: the Gaussian of given sites, or None where they do not make a proper one.
        match: the sites that cavities of this mean and variance ask for.
        start: sites to start from.
        tolerance: of the moments, in posterior deviations.
        max_sweeps: sweeps after which to give up.
        n_sweeps: sweeps made before, which count.
    """
    site, posterior = start, posterior_of(start)
    if posterior is None:  # sites of another problem: begin with none
        site = np.zeros_like(start)
        posterior = posterior_of(site)
    assert posterior is not None  # the prior is proper
    step, last = 1.0, np.inf
    history: list[tuple[Vector, Vector, float]] = []
    for sweep in range(n_sweeps + 1, n_sweeps + max_sweeps + 1):
        target = match(posterior.moments.cavity_mean, posterior.moments.cavity_variance)
        change = np.concatenate([target.precision, target.shift]) - site
        size = np.abs(_in_deviations(change, posterior.moments)).max()
        if size < tolerance:
            return Settled(site, posterior, sweep, True)
        leaping = size < min([CLOSE, *(ASTRAY * earlier for _, _, earlier in history)])
        history = [*history[-ACCELERATION_MEMORY:], (site, change, size)] if leaping else []
        step = max(step / 2, 0.02) if size > WORSE * last else min(1.0, 1.2 * step)
        last = size
        new = site + (_leap(history, posterior.moments) if len(history) > 1 else step * change)
        moved = posterior_of(new)
        while moved is None:  # sites that widen can leave no proper Gaussian: go less far
            step /= 4
            if step < 1e-3:
                return Settled(site, posterior, sweep, False)
            new = site + step * change
            moved = posterior_of(new)
        site, posterior = new, moved
    return Settled(site, posterior, n_sweeps + max_sweeps, False)


def inverse_root(matrix: Matrix) -> Matrix:
    """R with ``R R^T`` the inverse of I + matrix, whose upper triangle is overwritten; not a number if not positive."""
    matrix.flat[:: len(matrix) + 1] += 1
    cholesky, failed = dpotrf(matrix.T, lower=1, overwrite_a=1)
    if failed or not np.isfinite(cholesky[-1, -1]):
        return np.full_like(matrix, np.nan)
    return np.asarray(dtrtri(cholesky, lower=1, overwrite_c=1)[0].T)  # a product with it is faster than a solve


def with_cavities(mean: Vector, variance: Vector, site: Vector) -> Moments | None:
    """With what is left without each value's own site; None where that is nothing, or moments are not numbers."""
    precision, shift = np.split(site, 2)
    left = 1 - precision * variance  # share of the precision that is not the site's own
    if not (left > 1e-12).all():
        return None
    return Moments(mean, variance, (mean - variance * shift) / left, variance / left)


def heights(log_z: Vector, mean: Vector, variance: Vector, precision: Vector, shift: Vector) -> Vector:
    """Logarithms of the heights of sites: a cavity N(mean, variance) times such a site integrates to log_z."""
    grown = 1 + variance * precision
    lost = 2 * mean * shift + variance * shift**2 - mean**2 * precision
    return np.asarray(log_z + np.log(grown) / 2 - lost / (2 * grown))


def _in_deviations(change: Matrix, now: Moments) -> Matrix:
    """Changes of precisions and shifts, stacked, as changes of moments in units of posterior deviations."""
    to_precision, to_shift = np.split(change, 2, axis=-1)
    to_mean = (to_shift - to_precision * now.mean) * np.sqrt(now.variance)
    return np.concatenate([to_precision * now.variance, to_mean], axis=-1)


def _leap(history: list[tuple[Vector, Vector, float]], at: Moments) -> Vector:
    """The step to where a linear model of the last sweeps, least squares in their changes, has no change left."""
    sites, changes, _ = (np.array(each) for each in zip(*history, strict=True))
    moves, turns = np.diff(sites, axis=0), np.diff(changes, axis=0)
    now = changes[-1]
    weights = np.linalg.lstsq(_in_deviations(turns, at).T, _in_deviations(now, at), rcond=1e-8)[0]
    return np.asarray(now - weights @ (moves + turns))
