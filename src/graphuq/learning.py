"""A spectrum and labels in; hyper-parameters learned from the labels, and predictions averaged over them, out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.optimize import Bounds, minimize
from scipy.special import ndtr

from graphuq.hyperprior import BOUNDS, Family, Hyperparameters, Hyperprior
from graphuq.inference.ep import EP, blas_threads, evidence_gradient, propagate
from graphuq.inference.marginals import Marginals, labeled_probability, predict
from graphuq.inference.sites import Sites
from graphuq.models import LevelSet, Probit
from graphuq.models.base import Model, check_in_graph
from graphuq.prior import ZERO_EIGENVALUE, GaussianPrior
from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]

# The evidence is stationary in the sites: sites right to 1e-4 give it to 1e-7, in half the sweeps.
CLIMBING_TOLERANCE = 1e-4
FINAL_TOLERANCE = 1e-6
# Where the climbs start, in deviations of the hyperprior from its median, along (diffusion, alpha, gamma,
# offset): in the middle; at a rough field with much noise; at a smooth one with little.
STARTS = ((0, 0, 0, 0), (-1, 0, 1, 0), (1, 0, -1, 0))
# A hundredth of a nat is more than the average over points can tell.
CLIMB: Any = {"ftol": 1e-6, "gtol": 1e-2, "maxiter": 100}
# Half the distance between the points whose gradients give the curvature at a peak.
CURVATURE_STEP = 0.1
# The points of the average lie at this times sqrt(m) deviations from a peak in m dimensions (Rue et al. 2009).
RADIUS = 1.1
# Modes beyond the last that has this share of the variance are left out of the computation: what they add to
# u is far below what expectation propagation can tell, and a smooth field needs a third of 300 modes.
NEGLIGIBLE = 1e-7
# A point of less weight is left out.
LEAST_WEIGHT = 1e-4
# Numbers held at once while nodes are predicted: 64 MB.
BLOCK_NUMBERS = 2**23


class Point(NamedTuple):
    """One choice of hyper-parameters, and the posterior given it."""

    theta: Array  # log (diffusion, alpha, gamma, offset), see `Hyperprior`
    hyperparameters: Hyperparameters
    variances: Array  # of the leading modes, as many as matter
    fit: EP
    log_posterior: float  # log evidence plus log hyperprior


@dataclass(frozen=True)
class Learned:
    """What `learn` found: a peak, points around it, and their weights.

    Attributes:
        spectrum: the eigenpairs; on a disconnected graph turned so that q_0 comes first.
        hyperparameters: tau, alpha, gamma and constant at the highest peak.
        log_deviations: posterior standard deviations of their logarithms, in the same order.
        prior: the matern prior at the peak.
        model: the likelihood with gamma at the peak; hand both to `sample` for exact draws.
        points: what predictions average over.
        weights: their posterior weights, shape (n_points,), adding up to one.
        log_evidence: log P(y) at the peak.
        converged: whether expectation propagation converged at every point.
    """

    spectrum: Spectrum = field(repr=False)
    hyperparameters: Hyperparameters
    log_deviations: Hyperparameters
    prior: GaussianPrior
    model: Probit | LevelSet = field(repr=False)
    points: tuple[Point, ...] = field(repr=False)
    weights: Array = field(repr=False)
    log_evidence: float
    converged: bool

    def predict(self, nodes: ArrayLike | None = None) -> Marginals:
        """Mean and variance of u, and P(u >= 0), at all nodes or at some, averaged over hyper-parameters.

        The probability is that of the sign of u. It leaves out the noise of the labels, gamma: with right
        labels the log-loss on public data is nearly the same either way, with a tenth of them wrong it is
        better without: experiments/calibration.py measures both.
        """
        chosen = np.arange(self.spectrum.n_nodes) if nodes is None else np.atleast_1d(np.asarray(nodes))
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.spectrum.n_nodes):
            raise ValueError(f"Nodes must lie between 0 and {self.spectrum.n_nodes - 1}.")
        found = self._mixed(self.spectrum.vectors, chosen)
        # At a labeled node the label itself counts, and cuts u at zero.
        order = np.argsort(self.model.nodes)
        place = np.minimum(np.searchsorted(self.model.nodes, chosen, sorter=order), order.size - 1)
        labeled = self.model.nodes[order[place]] == chosen
        found.probability[labeled] = self.labeled_probability()[order[place[labeled]]]
        return found

    def predict_rows(self, vectors: ArrayLike) -> Marginals:
        """The same at new nodes, of which the eigenvectors' values are given, shape (n_rows, n_modes).

        `spectrum.extend` makes such rows from `Learned.spectrum`.
        """
        rows = np.asarray(vectors, float)
        if rows.ndim != 2 or rows.shape[1] != self.spectrum.n_modes:
            raise ValueError(
                f"vectors must have {self.spectrum.n_modes} columns, one a mode, got shape {rows.shape}."
            )
        return self._mixed(rows, np.arange(len(rows)))

    def labeled_probability(self) -> Array:
        """P(u_j >= 0) at the labeled nodes given all labels, shape (n_labeled,)."""
        return self.weights @ np.array([labeled_probability(point.fit) for point in self.points])

    def leave_one_out(self) -> Array:
        """P(u_j >= 0) at the labeled nodes given all *other* labels, shape (n_labeled,).

        Hyper-parameters that made a label probable lose that advantage: their weights are divided by it.
        """
        fits = [point.fit for point in self.points]
        weights = self.weights[:, None] * np.exp(-np.array([fit.log_predictive for fit in fits]))
        agree = np.array([ndtr(fit.cavity_mean / np.sqrt(fit.cavity_variance)) for fit in fits])
        return np.asarray((weights * agree).sum(axis=0) / weights.sum(axis=0))

    def _mixed(self, vectors: Array, rows: NDArray[np.int64]) -> Marginals:
        """Moments of the mixture over points, a block of rows at a time."""
        result = Marginals(*(np.empty(rows.size) for _ in Marginals._fields))
        for block in _blocks(rows.size, vectors.shape[1]):
            some = vectors[rows[block]]
            parts = [predict(p.fit, some[:, : p.variances.size], scale=np.sqrt(p.variances)) for p in self.points]
            mean, variance, probability = (np.array(each) for each in zip(*parts, strict=True))
            result.mean[block] = self.weights @ mean
            result.variance[block] = self.weights @ (variance + (mean - result.mean[block]) ** 2)
            result.probability[block] = self.weights @ probability
        return result


def learn(
    spectrum: Spectrum, model: Model, *, hyperprior: Hyperprior | None = None, average: bool = True
) -> Learned:
    """Learn tau, alpha, gamma and the variance of the constant mode from the labels.

    The evidence of expectation propagation times the hyperprior,

        log P(y | tau, alpha, gamma, constant) + log p(tau, alpha, gamma, constant),

    is climbed from several starts along its exact gradient. Predictions then average over some 25 points
    around each peak: what few labels leave open about the hyper-parameters is part of the uncertainty.

    Args:
        spectrum: the eigenpairs; more of them cost time, but hardly change the result.
        model: `Probit` or `LevelSet` with the labels; its gamma is not used.
        hyperprior: the log-priors, by default those of the model. A factor of 1 fixes a number.
        average: whether to average, or to take the highest peak alone.
    """
    problem = _problem(spectrum, model, hyperprior)
    n_labeled, n_modes = problem.rows.shape
    with blas_threads(n_labeled * min(n_labeled, n_modes) ** 2):
        peaks = _peaks(problem)
        points, log_weights = [peaks[0][0]], np.zeros(1)
        if average and problem.family.free.any():
            points, log_weights = _around(problem, peaks)
    weights = np.exp(log_weights - log_weights.max())
    keep = weights >= LEAST_WEIGHT * weights.sum()
    weights = weights[keep] / weights[keep].sum()
    points = [point for point, kept in zip(points, keep, strict=True) if kept]
    best = peaks[0][0]
    learned = Learned(
        spectrum=problem.spectrum,
        hyperparameters=best.hyperparameters,
        log_deviations=Hyperparameters(*_deviations(np.log([p.hyperparameters for p in points]), weights)),
        prior=GaussianPrior(
            problem.spectrum.vectors, np.exp(problem.family.log_variances(best.theta)), 0.0, _name(best, spectrum)
        ),
        model=_with_gamma(problem.model, best.hyperparameters.gamma),
        points=tuple(points),
        weights=weights,
        log_evidence=best.fit.log_evidence,
        converged=all(point.fit.converged for point in points),
    )
    _warn(problem, best, learned.converged)
    return learned


@dataclass(frozen=True)
class _Problem:
    """Labels on a graph, and the family of priors to choose from."""

    spectrum: Spectrum
    rows: Array  # the eigenvectors at the labeled nodes, (n_labeled, n_modes)
    model: Probit | LevelSet
    family: Family

    def at(self, theta: Array, start: EP | None = None, tolerance: float = CLIMBING_TOLERANCE) -> Point:
        """The posterior given theta, by expectation propagation that starts from that of a close theta."""
        variances = np.exp(self.family.log_variances(theta))
        n_kept = max(2, int(np.flatnonzero(variances >= NEGLIGIBLE * variances.sum())[-1]) + 1)
        variances = variances[:n_kept]
        make = Sites.probit if isinstance(self.model, Probit) else Sites.level_set
        sites = make(self.model.y, float(np.exp(theta[2])))
        fit = propagate(self.rows[:, :n_kept] * np.sqrt(variances), sites, start=start, tolerance=tolerance)
        log_posterior = fit.log_evidence + self.family.log_prior(theta)
        return Point(theta, self.family.hyperparameters(theta), variances, fit, log_posterior)

    def gradient(self, point: Point) -> Array:
        """Derivative of the log posterior by theta, exact at the fixed point, shape (4,)."""
        evidence = evidence_gradient(point.fit)
        gradient = self.family.jacobian(point.theta)[:, : point.variances.size] @ evidence.log_variances
        gradient[2] += np.exp(point.theta[2]) * evidence.gamma
        return np.where(self.family.free, gradient, 0.0) + self.family.log_prior_gradient(point.theta)


def spectrum_and_family(
    spectrum: Spectrum, model: Probit | LevelSet, hyperprior: Hyperprior | None
) -> tuple[Spectrum, Family]:
    """The spectrum with the constant first, and the matern priors on it under the hyperprior or the default one."""
    check_in_graph(model.nodes, spectrum.n_nodes)
    spectrum = constant_first(spectrum)
    return spectrum, Family.of(spectrum, Hyperprior.of(model) if hyperprior is None else hyperprior, model)


def _problem(spectrum: Spectrum, model: Model, hyperprior: Hyperprior | None) -> _Problem:
    """Doubt the input, and gather what the climbs need."""
    if not isinstance(model, Probit | LevelSet):
        raise TypeError(
            f"Hyper-parameters are learned for Probit and LevelSet, not for {type(model).__name__}: they come "
            "from the evidence of expectation propagation, which needs a likelihood of single labeled values."
        )
    if spectrum.n_modes < 2:
        raise ValueError("The spectrum has one mode only: at least two are needed to tell classes apart.")
    spectrum, family = spectrum_and_family(spectrum, model, hyperprior)
    return _Problem(spectrum, spectrum.vectors[model.nodes], model, family)


def _peaks(problem: _Problem) -> list[tuple[Point, Array]]:
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


def _climb(problem: _Problem, theta: Array) -> Point:
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


def _axes(problem: _Problem, peak: Point) -> Array:
    """A with ``A A^T`` the inverse of minus the Hessian at a peak, shape (4, n_free).

    Where the posterior is flatter than the hyperprior, or the peak lies on a bound, the hyperprior's
    largest deviation counts.
    """
    free = np.flatnonzero(problem.family.free)
    columns = []
    for step in CURVATURE_STEP * np.eye(4)[free]:
        sides = [problem.at(peak.theta + s, peak.fit, FINAL_TOLERANCE) for s in (-step, step)]
        columns.append((problem.gradient(sides[0]) - problem.gradient(sides[1]))[free] / (2 * CURVATURE_STEP))
    curvature = np.array(columns).reshape(free.size, free.size)
    values, rotation = eigh((curvature + curvature.T) / 2)
    axes = np.zeros((4, free.size))
    widest = problem.family.deviation.max()
    axes[free] = rotation * np.minimum(1 / np.sqrt(np.maximum(values, 1e-12)), widest)
    return axes


def _around(problem: _Problem, peaks: list[tuple[Point, Array]]) -> tuple[list[Point], Array]:
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
    """The central composite rule: its center, 2 m points on the axes and 2^m corners, all as far out.

    With the weights returned it integrates polynomials of degree 3 against N(0, I) exactly.
    """
    corners = np.array(list(product((-1.0, 1.0), repeat=m)))
    axial = np.sqrt(m) * np.concatenate([np.eye(m), -np.eye(m)])
    outer = RADIUS * (axial if m == 1 else np.concatenate([axial, corners]))
    share = 1 / RADIUS**2
    weights = np.concatenate([[1 - share], np.full(len(outer), share / len(outer))])
    return np.concatenate([np.zeros((1, m)), outer]), weights


def constant_first(spectrum: Spectrum) -> Spectrum:
    """The spectrum with its null space turned so that the first mode is q_0.

    A graph of several components has as many modes of eigenvalue zero. One combination of them, D^{1/2} 1,
    says how large the classes are; the others tell components apart and are modes like any other.
    """
    n_zero = max(1, int(np.count_nonzero(spectrum.values <= ZERO_EIGENVALUE)))
    q0 = np.sqrt(spectrum.degrees) if spectrum.normalized else np.ones(spectrum.n_nodes)
    first = spectrum.vectors[:, :n_zero].T @ q0
    first /= np.linalg.norm(first)
    mirror = first - np.eye(n_zero)[0]
    if n_zero == 1 or np.linalg.norm(mirror) < 1e-8:
        return spectrum
    turn = np.eye(n_zero) - 2 * np.outer(mirror, mirror) / (mirror @ mirror)  # takes e_1 to `first`
    return replace(
        spectrum, vectors=np.hstack([spectrum.vectors[:, :n_zero] @ turn, spectrum.vectors[:, n_zero:]])
    )


def _moved(theta: Array, free: NDArray[np.bool_], x: Array) -> Array:
    """theta with its free coordinates replaced."""
    result = theta.copy()
    result[free] = x
    return result


def _deviations(values: Array, weights: Array) -> list[float]:
    """Standard deviation of each column."""
    return [float(each) for each in np.sqrt(weights @ (values - weights @ values) ** 2)]


def _name(point: Point, spectrum: Spectrum) -> str:
    tau, alpha, _, constant = point.hyperparameters
    return f"matern(tau={tau:.6g}, alpha={alpha:.6g}, constant={constant:.6g}, n_modes={spectrum.n_modes})"


def _with_gamma(model: Probit | LevelSet, gamma: float) -> Probit | LevelSet:
    """The same labels with another noise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its labels were doubted, and warned of, when it was made
        return replace(model, gamma=gamma)


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    size = max(1, BLOCK_NUMBERS // n_columns)
    return (slice(first, first + size) for first in range(0, n_rows, size))


def _warn(problem: _Problem, best: Point, converged: bool) -> None:
    """Say in plain words what the labels cannot decide."""
    if not converged:
        warnings.warn(
            "Expectation propagation did not converge for some hyper-parameters, which makes their weights rough. "
            "The labels contradict each other: look at suspicious_labels, or use Probit.",
            stacklevel=3,
        )
    family = problem.family
    at_bound = family.free & ((best.theta <= family.lower) | (best.theta >= family.upper))
    for name, value in zip(np.array(list(BOUNDS))[at_bound], np.exp(best.theta[at_bound]), strict=True):
        warnings.warn(
            f"The labels drive the hyper-parameter {name} to its bound {value:.3g}: they do not decide it.",
            stacklevel=3,
        )
    warn_of_unlabeled_components(problem.spectrum, problem.model.nodes, stacklevel=4)


def warn_of_unlabeled_components(spectrum: Spectrum, nodes: NDArray[np.int64], *, stacklevel: int) -> None:
    """Say how many nodes no label reaches."""
    zero = spectrum.vectors[:, spectrum.values <= ZERO_EIGENVALUE]
    seen = zero[nodes]
    # Rows of the null space are parallel within a component and orthogonal between components.
    reached = np.einsum("ij,ij->i", zero @ (seen.T @ seen), zero)
    n_unreached = np.count_nonzero(reached <= 1e-10 * np.square(zero).sum(axis=1) * np.square(seen).sum())
    if n_unreached:
        warnings.warn(
            f"{n_unreached} nodes lie in components of the graph that have no label: the labels say nothing of "
            "them. Label a node of each component, or connect the graph with more neighbors.",
            stacklevel=stacklevel,
        )
