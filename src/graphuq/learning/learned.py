"""A spectrum and labels in; hyper-parameters learned from the labels and a posterior averaged over them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import called, expect, expect_flag
from graphuq._threads import blas_threads
from graphuq._warn import warn
from graphuq.learning.averaging import Peak, alone, around, axes_of, bound, climb, with_all_labels
from graphuq.learning.evidence import Array, Point, Problem, constant_first, problems
from graphuq.learning.hyperprior import BOUNDS, Hyperparameters, Hyperprior
from graphuq.models.base import Model, expect_model, labels_of
from graphuq.posterior.mixture import Mixture
from graphuq.prior import GaussianPrior
from graphuq.spectrum.result import Spectrum

# There are enough modes if the last tenth of them have on average less than this fraction of the mean variance of
# all: on twelve data sets the log-loss was then at most 0.0001 above that of 300, and usually 75 were enough.
CARRIED = 4e-3
# Labels that vary faster than all modes look like noise, which needs few modes. More modes are therefore added
# unless the negative log evidence is below this fraction of that of a prediction from class frequencies.
EXPLAINED = 0.5
# With more labels than this, a random subset determines the hyper-parameters, which it does so well that averaging
# over them is unnecessary. The limit for K classes is 2 / (K - 1) times as large, if that is smaller, but allows
# at least LEAST_CLIMBED labels per class.
MOST_CLIMBED, LEAST_CLIMBED = 1000, 4
# Points with a smaller weight are dropped from the average.
LEAST_WEIGHT = 1e-2


class Weighed(NamedTuple):
    """A choice of hyper-parameters in the average, with its weight."""

    problem: Problem
    point: Point
    log_weight: float
    width: Array  # posterior deviations of the log hyper-parameters around the peak it belongs to, shape (8,)


@dataclass(frozen=True, eq=False)
class Learned:
    """The result of `learn`: hyper-parameters at the peak, and the posterior averaged over points around it.

    Attributes:
        spectrum: the eigenpairs; on a disconnected graph the null space is rotated so that q_0 comes first.
        hyperparameters: the hyper-parameters at the peak of the structure with the largest weight.
        log_deviations: posterior standard deviations of their logarithms, in the same order; 0 if fixed.
        prior: the prior at the peak.
        model: the likelihood with its noise at the peak; pass prior and model to `sample` for exact draws.
        posterior: the average over hyper-parameters.
        log_evidence: log P(y) at the peak.
    """

    spectrum: Spectrum = field(repr=False)
    hyperparameters: Hyperparameters
    log_deviations: Hyperparameters
    prior: GaussianPrior
    model: Model = field(repr=False)
    posterior: Mixture
    log_evidence: float

    @property
    def converged(self) -> bool:
        """Whether expectation propagation converged at every point."""
        components: Any = self.posterior.components
        return all(each.fit.converged for each in components)


def learn(
    spectrum: Spectrum,
    model: Model,
    *,
    features: Array | None = None,
    n_bent: int = 0,
    hyperprior: Hyperprior | None = None,
    average: bool = True,
    more: Callable[[Spectrum], Spectrum | None] | None = None,
) -> Learned:
    """Learn the scale and smoothness of the prior, and the noise of the labels, from the labels.

    The evidence of expectation propagation times the hyperprior,

        log P(y | theta) + log p(theta),

    is maximized with its gradient for each structure of the prior: the graph alone, the features alone
    (linear or bent), both, and a constant alone. The posterior is then averaged over points around each peak, which
    accounts for the uncertainty of the hyper-parameters. With more than a thousand labels (fewer with many classes) a subset is
    used for the maximization; each peak is then moved by a Newton step that uses all labels, and only the peaks
    are averaged.

    Args:
        spectrum: the eigenpairs; more of them cost time, but hardly change the result.
        model: a model with sites, such as `Probit`, and labels; its noise is not used.
        features: columns in which u may be linear, scaled so that the mean squared norm of a row is 1, shape
            (n_nodes, n_features); without them the prior is that of the graph alone.
        n_bent: the number of leading columns that are nonlinear (bent) functions of the features, see
            `FeaturePiece`. Bent and linear columns are each scaled as above. The evidence decides between linear
            and bent functions.
        hyperprior: the prior of the hyper-parameters, by default that of the model. A factor of 1 fixes a value.
        average: whether to average over points, or to use only the peak of the structure with the largest weight.
        more: a function that returns a spectrum with more modes, or None if there are none. While the last modes
            carry weight or the labels are not explained, it is called and learning is repeated.
    """
    expect(spectrum, Spectrum, "spectrum", "a Spectrum, as spectrum.dense(laplacian) makes")
    expect_model(model)
    average = expect_flag(average, "average")
    if more is not None and not callable(more):
        raise TypeError(f"more must be a function from a spectrum to a longer one, or None, got {called(more)}.")
    longer: Spectrum | None = spectrum
    while longer is not None:
        spectrum = constant_first(longer)
        points, weights = _weighted_points(problems(spectrum, model, features, hyperprior, n_bent), average)
        longer = None if more is None or _enough_modes(points, weights) else more(spectrum)
    best_problem, best, *_ = _peak(points, weights)
    learned = Learned(
        spectrum=spectrum,
        hyperparameters=best.hyperparameters,
        log_deviations=_deviations(points, weights),
        prior=best_problem.prior(best),
        model=best.model,
        posterior=Mixture(tuple(each.problem.posterior(each.point) for each in points), weights).tempered(),
        log_evidence=best.fit.log_evidence,
    )
    _warn(best_problem, best, spectrum, learned.converged)
    pieces = np.array([each.problem.family.n_features + each.problem.family.values.size for each in points])
    if weights[pieces == 0].sum() > 0.5:
        warn(
            "Neither the graph nor the features say more about the labels than chance would: the answers are close to how "
            "frequent the classes are among the labels. Give more labels, or other columns.",
        )
    elif not any(each.point.hyperparameters.graph for each in points):
        warn(
            "The graph has no weight in the learned prior: the answers are a function of the features alone. If similar "
            "rows should share a class, look at what makes rows similar: the columns, their units, the kind of graph.",
        )
    return learned


def _weighted_points(structures: list[Problem], average: bool) -> tuple[list[Weighed], Array]:
    """Points around the peaks of all structures by decreasing weight, and their weights, light ones dropped."""
    n_labeled, n_columns = max((each.rows.shape for each in structures), key=lambda shape: shape[1])
    points: list[Weighed] = []
    total = -np.inf
    with blas_threads(n_labeled * min(n_labeled, n_columns) ** 2 * structures[0].model.n_fields):
        for problem, peak in _climbed(structures):
            if bound(*peak) < total + np.log(LEAST_WEIGHT):
                break
            new, mass = _points(problem, peak, average, points[-1].point if points else None)
            points, total = points + new, np.logaddexp(total, mass)
    points.sort(key=lambda each: -each.log_weight)
    weights = np.exp(np.array([each.log_weight for each in points]) - points[0].log_weight)
    kept = weights >= LEAST_WEIGHT * weights.sum() if average else np.arange(len(weights)) == 0
    points = [points[i] for i in np.flatnonzero(kept)]
    return points, weights[kept] / weights[kept].sum()


def _climbed(structures: list[Problem]) -> list[tuple[Problem, Peak]]:
    """The peak of each structure, given a subset if there are many labels, by decreasing bound on the weight."""
    n_classes = structures[0].model.n_classes
    most = max(min(MOST_CLIMBED, 2 * MOST_CLIMBED // (n_classes - 1)), LEAST_CLIMBED * n_classes)
    peaks: list[Peak] = []
    for problem in structures:
        few = problem.with_few_labels(most)
        simpler = [each for each in peaks if not (each[0].family.free & ~few.family.free).any()]
        below = max(simpler, key=lambda each: each[1].log_posterior, default=None)
        peaks.append((few, climb(few, below)))
    return sorted(zip(structures, peaks, strict=True), key=lambda each: -bound(*each[1]))


def _points(problem: Problem, peak: Peak, average: bool, other: Point | None) -> tuple[list[Weighed], float]:
    """Points around a peak given all labels, and the log integral of evidence times hyperprior given the subset.

    With all labels, expectation propagation is warm-started from `other`, a point of another structure, if given.
    """
    few, top = peak
    axes = axes_of(few, top)
    points, log_weights = around(few, top, axes) if average and few is problem else alone(top, axes)
    mass = float(np.logaddexp.reduce(log_weights))
    if few is not problem:  # only the peak, with the width that it has given the subset
        points = [with_all_labels(problem, few, top, axes, None if other is None else other.fit)]
        log_weights = np.array([mass + points[0].log_posterior - top.log_posterior])
    width = np.linalg.norm(few.family.log_changes(top.theta, axes), axis=1)
    return [Weighed(problem, *each, width) for each in zip(points, log_weights.tolist(), strict=True)], mass


def _peak(points: list[Weighed], weights: Array) -> Weighed:
    """The highest point of the structure with the largest weight.

    Densities of structures that differ in the number of hyper-parameters are not comparable.
    """

    def height(each: Weighed) -> tuple[float, float]:
        of_structure = [other.problem is each.problem for other in points]
        return float(weights[of_structure].sum()), each.point.log_posterior

    return max(points, key=height)


def _enough_modes(points: list[Weighed], weights: Array) -> bool:
    """Whether the modes explain the labels, and the last tenth of them has negligible variance, see `CARRIED`."""
    counts = np.bincount(labels_of(points[0].problem.model))
    chance = float(np.sum(counts * np.log(np.maximum(counts, 1) / counts.sum())))
    if max(each.point.fit.log_evidence for each in points) < EXPLAINED * chance:
        return False
    total = 0.0
    for each, weight in zip(points, weights, strict=True):
        shares = np.exp(each.problem.family.log_shares(each.point.theta))
        if shares.size:
            total += weight * float(shares[-max(1, shares.size // 10) :].mean() / shares.mean())
    return total <= CARRIED


def _deviations(points: list[Weighed], weights: Array) -> Hyperparameters:
    """Standard deviation of the log of each hyper-parameter over the points that have it; 0 if none has.

    The only point of a peak stands for its surroundings and contributes the width of the peak.
    """
    values = np.array([each.point.hyperparameters for each in points])
    alone = [sum(other.problem is each.problem for other in points) == 1 for each in points]
    widths = np.where(np.array(alone)[:, None], [each.width for each in points], 0.0)
    has = values > 0
    has[:, :2] &= has[:, 2:3]  # tau and alpha belong to the graph piece
    shares = np.where(has, weights[:, None], 0.0)
    shares /= np.maximum(shares.sum(axis=0), np.finfo(float).tiny)
    logs = np.log(np.where(has, values, 1.0))
    squares = (logs - (shares * logs).sum(axis=0)) ** 2 + widths**2
    return Hyperparameters(*np.sqrt((shares * squares).sum(axis=0)).tolist())


def _warn(problem: Problem, best: Point, spectrum: Spectrum, converged: bool) -> None:
    """Warn about a lack of convergence, hyper-parameters at their bounds, and components without labels."""
    if not converged:
        warn(
            "Expectation propagation did not converge for some hyper-parameters, which makes their weights rough. "
            "The labels contradict each other: look at the suspicious labels, or use probit.",
        )
    family = problem.family
    at_bound = family.free & ((best.theta <= family.lower) | (best.theta >= family.upper))
    for name, value in zip(np.array(list(BOUNDS))[at_bound], np.exp(best.theta[at_bound]), strict=True):
        warn(f"The labels drive the hyper-parameter {name} to its bound {value:.3g}: they do not decide it.")
    if not best.hyperparameters.linear:
        warn_of_unlabeled_components(spectrum, problem.model.nodes)


def warn_of_unlabeled_components(spectrum: Spectrum, nodes: NDArray[np.int64]) -> None:
    """Warn about nodes in components of the graph without a label."""
    n_zero = spectrum.n_zero
    if n_zero < max(2, spectrum.n_components):  # one component, or not all of them are among the modes
        return
    zero = np.asarray(spectrum.vectors[:, :n_zero])
    seen = zero[nodes]
    # Rows of the null space are parallel within a component and orthogonal between components.
    reached = np.einsum("ij,ij->i", zero @ (seen.T @ seen), zero)
    n_unreached = np.count_nonzero(reached <= 1e-10 * np.square(zero).sum(axis=1) * np.square(seen).sum())
    if n_unreached:
        warn(
            f"{n_unreached} rows lie in parts of the graph that have no label: the labels say nothing about them. Label a row of "
            "each part, or connect the parts with more neighbors.",
        )
