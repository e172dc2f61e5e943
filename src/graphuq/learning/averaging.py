"""A problem in; the peaks of the posterior of its hyper-parameters, points around them, and their weights out."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import Bounds, minimize

from graphuq.learning.evidence import Array, Point, Problem
from graphuq.learning.hyperprior import BOUNDS

FINAL_TOLERANCE = 1e-6
# Where the climbs start, in deviations of the hyperprior from its median, along (diffusion, alpha, gamma,
# offset, mistakes, linear): in the middle; at a rough field with much noise; at a smooth one with little.
STARTS = ((0, 0, 0, 0, 0, 0), (-1, 0, 1, 0, 0, 0), (1, 0, -1, 0, 0, 0))
# A hundredth of a nat is more than the average over points can tell.
CLIMB: Any = {"ftol": 1e-6, "gtol": 1e-2, "maxiter": 100}
# Half the distance between the points whose gradients give the curvature at a peak.
CURVATURE_STEP = 0.1
# The points of the average lie at this times sqrt(m) deviations from a peak in m dimensions (Rue et al. 2009).
RADIUS = 1.1
# In more dimensions than this there are too many corners to visit.
MOST_CORNERED = 4


def peaks_of(problem: Problem) -> list[tuple[Point, Array]]:
    """The peaks of the posterior of theta, highest first, each with the axes of its ellipsoid as columns."""
    family = problem.family
    starts = dict.fromkeys(tuple(family.mean + family.deviation * start) for start in STARTS)
    found = sorted((_climb(problem, np.array(start)) for start in starts), key=lambda point: -point.log_posterior)
    peaks: list[tuple[Point, Array]] = []
    for point in found:
        steps = [np.linalg.lstsq(axes, point.theta - peak.theta)[0] for peak, axes in peaks]
        if all(step @ step > 1 for step in steps):  # else it is a peak we know
            peaks.append((point, _axes(problem, point)))
    return peaks


def _climb(problem: Problem, theta: Array) -> Point:
    """The top of the hill that theta is on."""
    free = problem.family.free
    here = problem.at(theta)

    def downhill(x: Array) -> tuple[float, Array]:
        nonlocal here
        here = problem.at(_moved(theta, free, x), here.fit)
        return -here.log_posterior, -problem.gradient(here)[free]

    lower, upper = problem.family.lower[free], problem.family.upper[free]
    x = np.clip(theta[free], lower, upper)
    if free.any():
        bounds = Bounds(lower, upper)
        x = minimize(downhill, x, jac=True, method="L-BFGS-B", bounds=bounds, options=CLIMB).x
    return problem.at(_moved(theta, free, x), here.fit, FINAL_TOLERANCE)


def _axes(problem: Problem, peak: Point) -> Array:
    """A with ``A A^T`` the inverse of minus the Hessian at a peak, shape (n_theta, n_free).

    Where the posterior is flatter than the hyperprior, or the peak lies on a bound, the hyperprior's
    largest deviation counts.
    """
    free = np.flatnonzero(problem.family.free)
    columns = []
    for step in CURVATURE_STEP * np.eye(len(BOUNDS))[free]:
        sides = [problem.at(peak.theta + s, peak.fit, FINAL_TOLERANCE) for s in (-step, step)]
        columns.append((problem.gradient(sides[0]) - problem.gradient(sides[1]))[free] / (2 * CURVATURE_STEP))
    curvature = np.array(columns).reshape(free.size, free.size)
    values, rotation = eigh((curvature + curvature.T) / 2)
    axes = np.zeros((len(BOUNDS), free.size))
    widest = problem.family.deviation.max()
    axes[free] = rotation * np.minimum(1 / np.sqrt(np.maximum(values, 1e-12)), widest)
    return axes


def around(problem: Problem, peaks: list[tuple[Point, Array]]) -> tuple[list[Point], Array]:
    """Points around every peak and the logarithms of their weights."""
    points: list[Point] = []
    log_weights: list[float] = []
    for peak, axes in peaks:
        volume = np.log(np.linalg.svd(axes, compute_uv=False)).sum()
        for x, weight in zip(*_composite(axes.shape[1]), strict=True):
            point = peak if not x.any() else problem.at(peak.theta + axes @ x, peak.fit, FINAL_TOLERANCE)
            points.append(point)
            log_weights.append(np.log(weight) + volume + point.log_posterior + x @ x / 2)
    return points, np.array(log_weights)


def _composite(m: int) -> tuple[Array, Array]:
    """The central composite rule: its center, 2 m points on the axes and, in few dimensions, 2^m corners, all as far out.

    With the weights returned it integrates polynomials of degree 3 against N(0, I) exactly.
    """
    corners = np.array(list(product((-1.0, 1.0), repeat=min(m, MOST_CORNERED))))
    axial = np.sqrt(m) * np.concatenate([np.eye(m), -np.eye(m)])
    outer = RADIUS * (np.concatenate([axial, corners]) if 1 < m <= MOST_CORNERED else axial)
    share = 1 / RADIUS**2
    weights = np.concatenate([[1 - share], np.full(len(outer), share / len(outer))])
    return np.concatenate([np.zeros((1, m)), outer]), weights


def _moved(theta: Array, free: NDArray[np.bool_], x: Array) -> Array:
    """theta with its free coordinates replaced."""
    result = theta.copy()
    result[free] = x
    return result
