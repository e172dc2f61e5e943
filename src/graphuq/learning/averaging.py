"""A problem in; the peak of the posterior of its hyper-parameters, points around it, and their weights out."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import Bounds, minimize

from graphuq.inference.star_ep import Fit
from graphuq.learning.evidence import Array, Point, Problem
from graphuq.learning.hyperprior import BOUNDS

Peak: TypeAlias = tuple[Problem, Point]

FINAL_TOLERANCE = 1e-5
# L-BFGS-B stops when the relative gain of a step or the gradient falls below these, or after MOST_STEPS: the
# average is insensitive to a hundredth of a nat.
ENOUGH, LEVEL, MOST_STEPS = 1e-4, 3e-2, 40
# Maximum number of sweeps with all labels after a subset determined the hyper-parameters.
PATIENCE = 200
# Step of the central differences of gradients that give the Hessian at a peak, in log units.
CURVATURE_STEP = 0.15
# The points of the average lie at this times sqrt(m) deviations from a peak in m dimensions (Rue et al. 2009).
RADIUS = 1.1
# A peak is at most as wide as the hyperprior, and at most this many times narrower.
NARROWEST = 10.0


def climb(problem: Problem, below: Peak | None = None) -> Point:
    """Maximize the log posterior from the best start, or from `below`, the peak of a simpler structure."""
    free, family = problem.family.free, problem.family
    best = here = _start(problem, below)
    if not free.any():
        return problem.at(here.theta, here.fit, FINAL_TOLERANCE)
    # The first L-BFGS step is as long as the gradient: scaled by its norm, values change by at most a factor of e.
    unit = max(1.0, float(np.linalg.norm(problem.gradient(here)[free])))

    def downhill(x: Array) -> tuple[float, Array]:
        nonlocal here, best
        if not np.array_equal(x, here.theta[free]):
            theta = here.theta.copy()
            theta[free] = x
            here = problem.at(theta, here.fit)
        if here.log_posterior > best.log_posterior:
            best = here
        return -here.log_posterior / unit, -problem.gradient(here)[free] / unit

    bounds = Bounds(family.lower[free], family.upper[free])
    options: Any = {"ftol": ENOUGH, "gtol": LEVEL / unit, "maxiter": MOST_STEPS}
    minimize(downhill, here.theta[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return problem.at(best.theta, best.fit, FINAL_TOLERANCE)


def _start(problem: Problem, below: Peak | None) -> Point:
    """The best starting point, or the first one with values from the peak of a simpler structure."""
    first, *others = problem.family.starts
    if below is None:
        start = problem.at(first)
        points = [start, *(problem.at(other, start.fit) for other in others)]
        return max(points, key=lambda each: each.log_posterior)
    simpler, peak = below
    return problem.at(np.where(problem.family.free & simpler.family.free, peak.theta, first), peak.fit)


def bound(problem: Problem, peak: Point) -> float:
    """Upper bound on the log integral of evidence times hyperprior: that of a peak as wide as the hyperprior."""
    deviation = problem.family.deviation[problem.family.free]
    return peak.log_posterior + float(np.log(np.sqrt(2 * np.pi) * deviation).sum())


def axes_of(problem: Problem, peak: Point) -> Array:
    """A with ``A A^T`` the inverse of the negative Hessian at a peak, shape (n_theta, n_free).

    The hyperprior's deviations are used where the posterior is flatter than it.
    """
    free = np.flatnonzero(problem.family.free)
    deviation = problem.family.deviation[free]
    steps = CURVATURE_STEP * np.eye(len(BOUNDS))[free]
    sides = problem.at_each([*(peak.theta - steps), *(peak.theta + steps)], peak.fit)
    before, after = np.array([problem.gradient(side)[free] for side in sides]).reshape(2, free.size, free.size)
    curvature = (before - after) / (2 * CURVATURE_STEP) * np.outer(deviation, deviation)
    values, rotation = np.linalg.eigh((curvature + curvature.T) / 2)
    axes = np.zeros((len(BOUNDS), free.size))
    axes[free] = deviation[:, None] * rotation / np.sqrt(np.clip(values, 1.0, NARROWEST**2))
    return axes


def around(problem: Problem, peak: Point, axes: Array) -> tuple[list[Point], Array]:
    """Quadrature points around a peak and the logs of their terms in the integral of evidence times hyperprior."""
    x, weights = axial(axes.shape[1])
    thetas = np.clip(peak.theta + x @ axes.T, problem.family.lower - 1, problem.family.upper + 1)
    thetas = np.where(problem.family.free, thetas, peak.theta)
    points = [peak, *problem.at_each(thetas[1:], peak.fit, FINAL_TOLERANCE)]
    heights = np.array([point.log_posterior for point in points]) + np.square(x).sum(axis=1) / 2
    return points, np.log(weights) + _log_volume(axes) + heights


def alone(peak: Point, axes: Array) -> tuple[list[Point], Array]:
    """The peak as the only point, and the Laplace approximation of the log integral."""
    return [peak], np.array([peak.log_posterior + _log_volume(axes)])


def _log_volume(axes: Array) -> float:
    """Log of the integral of ``exp(-x^T x / 2)`` over theta = A x."""
    return float(np.log(np.linalg.svd(axes, compute_uv=False)).sum() + axes.shape[1] * np.log(2 * np.pi) / 2)


def with_all_labels(problem: Problem, few: Problem, peak: Point, axes: Array, start: Fit | None = None) -> Point:
    """A Newton step from the peak given few labels towards that given all; `start` is a warm start for the latter.

    In units of the hyperprior's deviations, the hyperprior contributes 1 to the curvature along an axis. The rest
    comes from the labels and is scaled with their number.
    """
    free, family = problem.family.free, problem.family
    curvature = 1 / np.square(axes[free] / family.deviation[free, None]).sum(axis=0)
    curvature_of_all = 1 + (curvature - 1) * len(problem.rows) / len(few.rows)
    before = problem.at(peak.theta, start, FINAL_TOLERANCE, PATIENCE)
    theta = before.theta + (axes * curvature / curvature_of_all) @ (problem.gradient(before) @ axes)
    after = problem.at(np.clip(theta, family.lower, family.upper), before.fit, FINAL_TOLERANCE, PATIENCE)
    return max(before, after, key=lambda each: each.log_posterior)


def axial(m: int) -> tuple[Array, Array]:
    """Quadrature of degree 3 for N(0, I): the origin and 2 m points on the axes, and their weights."""
    radius = RADIUS * np.sqrt(m)
    points = np.concatenate([np.zeros((1, m)), radius * np.eye(m), -radius * np.eye(m)])
    share = 1 / RADIUS**2 if m else 0.0
    return points, np.concatenate([[1 - share], np.full(2 * m, share / max(2 * m, 1))])
