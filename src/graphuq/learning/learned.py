"""A spectrum and labels in; hyper-parameters learned from the labels, and a posterior averaged over them, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import called, expect
from graphuq._threads import blas_threads
from graphuq._warn import warn
from graphuq.learning.averaging import Peak, alone, around, axes_of, bound, climb, with_all_labels
from graphuq.learning.evidence import Array, Point, Problem, constant_first, problems
from graphuq.learning.hyperprior import BOUNDS, Hyperparameters, Hyperprior
from graphuq.models.base import Model, ask, expect_model, offer
from graphuq.posterior.mixture import Mixture
from graphuq.prior import ZERO_EIGENVALUE, GaussianPrior
from graphuq.spectrum.result import Spectrum

# Modes are enough where the last tenth of them has less than this share of the variance of an average one: on twelve
# data sets the log-loss was then at most 0.0001 above that of 300 modes, and usually 75 were enough.
CARRIED = 4e-3
# Labels that vary faster than any mode look like noise, which needs few modes: of what a guess by the shares of the classes
# leaves open, the log evidence must leave less than this.
EXPLAINED = 0.5
# Of more labels some, drawn at random, decide the hyper-parameters: they leave nothing open that an average would tell.
# At most this many; of many classes twice as many over the classes but one, and at least so many of a class.
MOST_CLIMBED, LEAST_CLIMBED = 1000, 4
# A point of less weight is left out.
LEAST_WEIGHT = 1e-2


class Weighed(NamedTuple):
    """A point of the average."""

    problem: Problem
    point: Point
    log_weight: float
    width: Array  # deviations of the logarithms of its hyper-parameters around the peak it belongs to, shape (8,)


@dataclass(frozen=True, eq=False)
class Learned:
    """What `learn` found: a peak, and the posterior averaged over points around it.

    Attributes:
        spectrum: the eigenpairs; on a disconnected graph turned so that q_0 comes first.
        hyperparameters: those at the peak of the structure that weighs most.
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
        return self.posterior.diagnostics().converged


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

    is maximized along its exact gradient, for each structure: the graph alone, the features alone, linear or bent, and
    both. The posterior is then an average over points around each peak, so that the uncertainty of the hyper-parameters is included. With
    more than a thousand labels (fewer with many classes) a subset is used for the maximization; each peak is then moved
    by a step that uses all labels, and only the peaks are averaged.

    Args:
        spectrum: the eigenpairs; more of them cost time, but hardly change the result.
        model: one with sites, such as `Probit`, and the labels; its noise is not used.
        features: columns in which u may be linear, scaled so that the mean squared norm of a row is 1, shape (n_nodes,
            n_features); without them the prior is that of the graph alone.
        n_bent: how many of them, the first, are no features but bend with them, see `FeaturePiece`. They, and the others,
            are scaled each for themselves. The function of the features is linear, or it bends: the evidence decides.
        hyperprior: the prior of the hyper-parameters, by default that of the model. A factor of 1 fixes a number.
        average: whether to average, or to use only the peak of the structure that weighs most.
        more: a function from eigenpairs to more of them, or to None if there are none. It is called, and everything is
            learned again, as long as the last modes carry weight or the labels are not explained.
    """
    expect(spectrum, Spectrum, "spectrum", "a Spectrum, as spectrum.dense(laplacian) makes")
    expect_model(model)
    expect(average, bool, "average", "True or False")
    if more is not None and not callable(more):
        raise TypeError(f"more must be a function from a spectrum to a longer one, or None, got {called(more)}.")
    longer: Spectrum | None = spectrum
    while longer is not None:
        spectrum = constant_first(longer)
        found, weights = _weighed(problems(spectrum, model, features, hyperprior, n_bent), average)
        longer = None if more is None or _enough_modes(found, weights) else more(spectrum)
    best_problem, best, *_ = _peak(found, weights)
    learned = Learned(
        spectrum=spectrum,
        hyperparameters=best.hyperparameters,
        log_deviations=_deviations(found, weights),
        prior=best_problem.prior(best),
        model=best.model,
        posterior=Mixture(tuple(each.problem.posterior(each.point) for each in found), weights).tempered(),
        log_evidence=best.fit.log_evidence,
    )
    _warn(best_problem, best, spectrum, learned.converged)
    return learned


def _weighed(structures: list[Problem], average: bool) -> tuple[list[Weighed], Array]:
    """Points around the peak of each structure, heaviest first, and their weights; those of next to none left out."""
    n_labeled, n_columns = structures[-1].rows.shape
    found: list[Weighed] = []
    total = -np.inf
    with blas_threads(n_labeled * min(n_labeled, n_columns) ** 2 * offer(structures[0].model, "n_fields")):
        for problem, peak in _climbed(structures):
            if bound(*peak) < total + np.log(LEAST_WEIGHT):
                break
            points, mass = _points(problem, peak, average, found[-1].point if found else None)
            found, total = found + points, np.logaddexp(total, mass)
    found.sort(key=lambda each: -each.log_weight)
    weights = np.exp(np.array([each.log_weight for each in found]) - found[0].log_weight)
    kept = weights >= LEAST_WEIGHT * weights.sum() if average else np.arange(len(weights)) == 0
    found = [found[i] for i in np.flatnonzero(kept)]
    return found, weights[kept] / weights[kept].sum()


def _climbed(structures: list[Problem]) -> list[tuple[Problem, Peak]]:
    """Each structure with its peak, given some of the labels if there are many; those that may weigh most first."""
    n_classes = offer(structures[0].model, "n_classes")
    most = max(min(MOST_CLIMBED, 2 * MOST_CLIMBED // (n_classes - 1)), LEAST_CLIMBED * n_classes)
    peaks: list[Peak] = []
    for problem in structures:
        few = problem.with_few_labels(most)
        simpler = [each for each in peaks if not (each[0].family.free & ~few.family.free).any()]
        below = max(simpler, key=lambda each: each[1].log_posterior, default=None)
        peaks.append((few, climb(few, below)))
    return sorted(zip(structures, peaks, strict=True), key=lambda each: -bound(*each[1]))


def _points(problem: Problem, peak: Peak, average: bool, other: Point | None) -> tuple[list[Weighed], float]:
    """The points around a peak, given all labels, and the log of the integral of evidence and hyperprior there, given few.

    Expectation propagation of many labels starts from that at a point of another structure, if there is one.
    """
    few, top = peak
    axes = axes_of(few, top)
    points, log_weights = around(few, top, axes) if average and few is problem else alone(top, axes)
    mass = float(np.logaddexp.reduce(log_weights))
    if few is not problem:  # the peak alone, as wide as it is for few labels
        points = [with_all_labels(problem, few, top, axes, None if other is None else other.fit)]
        log_weights = np.array([mass + points[0].log_posterior - top.log_posterior])
    width = np.linalg.norm(few.family.log_changes(top.theta, axes), axis=1)
    return [Weighed(problem, *each, width) for each in zip(points, log_weights.tolist(), strict=True)], mass


def _peak(found: list[Weighed], weights: Array) -> Weighed:
    """The highest point of the structure that weighs most; heights of structures with more or fewer numbers do not compare."""

    def height(each: Weighed) -> tuple[float, float]:
        of_structure = [other.problem is each.problem for other in found]
        return float(weights[of_structure].sum()), each.point.log_posterior

    return max(found, key=height)


def _enough_modes(found: list[Weighed], weights: Array) -> bool:
    """Whether the modes explain the labels, and the last tenth of them weighs next to nothing against the average mode."""
    counts = np.bincount(np.asarray(ask(found[0].problem.model, "y")))
    chance = float(np.sum(counts * np.log(np.maximum(counts, 1) / counts.sum())))
    if max(each.point.fit.log_evidence for each in found) < EXPLAINED * chance:
        return False
    total = 0.0
    for each, weight in zip(found, weights, strict=True):
        shares = np.exp(each.problem.family.log_shares(each.point.theta))
        if shares.size:
            total += weight * float(shares[-max(1, shares.size // 10) :].mean() / shares.mean())
    return total <= CARRIED


def _deviations(found: list[Weighed], weights: Array) -> Hyperparameters:
    """Standard deviation of the logarithm of each hyper-parameter, over the points that have it; 0 where none has.

    A point that is alone at its peak stands for all around it, and counts as wide as the peak is.
    """
    values = np.array([each.point.hyperparameters for each in found])
    alone = [sum(other.problem is each.problem for other in found) == 1 for each in found]
    widths = np.where(np.array(alone)[:, None], [each.width for each in found], 0.0)
    has = values > 0
    has[:, :2] &= has[:, 2:3]  # tau and alpha are numbers of the graph piece
    shares = np.where(has, weights[:, None], 0.0)
    shares /= np.maximum(shares.sum(axis=0), np.finfo(float).tiny)
    logs = np.log(np.where(has, values, 1.0))
    squares = (logs - (shares * logs).sum(axis=0)) ** 2 + widths**2
    return Hyperparameters(*np.sqrt((shares * squares).sum(axis=0)).tolist())


def _warn(problem: Problem, best: Point, spectrum: Spectrum, converged: bool) -> None:
    """Say in plain words what the labels cannot decide."""
    if not converged:
        warn(
            "Expectation propagation did not converge for some hyper-parameters, which makes their weights rough. "
            "The labels contradict each other: look at the suspicious labels, or use probit.",
        )
    family = problem.family
    at_bound = family.free & ((best.theta <= family.lower) | (best.theta >= family.upper))
    for name, value in zip(np.array(list(BOUNDS))[at_bound], np.exp(best.theta[at_bound]), strict=True):
        warn(f"The labels drive the hyper-parameter {name} to its bound {value:.3g}: they do not decide it.")
    if best.hyperparameters.graph and not best.hyperparameters.linear:
        warn_of_unlabeled_components(spectrum, problem.model.nodes)


def warn_of_unlabeled_components(spectrum: Spectrum, nodes: NDArray[np.int64]) -> None:
    """Say how many nodes no label reaches."""
    n_zero = np.count_nonzero(spectrum.values <= ZERO_EIGENVALUE)
    if n_zero < 2:
        return
    zero = np.asarray(spectrum.vectors[:, :n_zero])
    seen = zero[nodes]
    # Rows of the null space are parallel within a component and orthogonal between components.
    reached = np.einsum("ij,ij->i", zero @ (seen.T @ seen), zero)
    n_unreached = np.count_nonzero(reached <= 1e-10 * np.square(zero).sum(axis=1) * np.square(seen).sum())
    if n_unreached:
        warn(
            f"{n_unreached} nodes lie in components of the graph that have no label: the labels say nothing of "
            "them. Label a node of each component, or connect the graph with more neighbors.",
        )
