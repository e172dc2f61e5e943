"""A spectrum, features and labels in; the evidence of given hyper-parameters, and its gradient, out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect, expect_in_graph, expect_numbers
from graphuq._threads import MANY_MULTIPLICATIONS, in_threads
from graphuq.inference.star_ep import Fit
from graphuq.inference.whiten import OnModes
from graphuq.large.side_by_side import beside, first_one
from graphuq.learning.hyperprior import GAMMA, MISTAKES, Family, Hyperparameters, Hyperprior
from graphuq.models.base import LEARNED_FIELDS, Model, expect_fields, labels_of, relabeled, remade
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.prior import GaussianPrior
from graphuq.spectrum.result import Spectrum
from graphuq.tall import Tall

Array = NDArray[np.float64]

# The evidence is stationary in the sites: sites accurate to 1e-3 give it to 1e-5, in half the sweeps.
CLIMBING_TOLERANCE = 1e-3
# Sweeps may not converge if labels contradict each other; such points are penalized by UNTRUSTED.
MOST_SWEEPS = 60
# Trailing modes are dropped after the last one with this fraction of the total variance: their effect on u is far
# below the error of expectation propagation, and a smooth field needs a third of 300 modes.
NEGLIGIBLE = 1e-7
# Directions of z that together have this fraction of the noise variance at the labels are treated as noise, which
# leaves a third of them.
AS_NOISE = 1e-2
# Points run in threads if a sweep has more multiplications than this, and fewer than where BLAS itself has threads.
THREADED = 1e6
# Penalty on the log evidence, in nats, if expectation propagation did not converge.
UNTRUSTED = 1e3


class Point(NamedTuple):
    """One choice of hyper-parameters, and the posterior given it."""

    theta: Array  # log hyper-parameters, see `hyperprior`
    hyperparameters: Hyperparameters
    variances: Array  # of the leading columns of the basis that are not negligible
    model: Model
    fit: Fit
    log_posterior: float  # log evidence plus log hyperprior


@dataclass(frozen=True, eq=False)
class Problem:
    """Labels on a graph, and the family of priors of one structure.

    Attributes:
        basis: the columns of the structure, shape (n_nodes, n_columns).
        first: index of the first of them in the basis that all structures share.
        rows: the rows of `basis` at the labeled nodes.
        model: the likelihood; its noise is not used.
        family: variances of the columns as functions of theta, and the hyperprior.
    """

    basis: Array
    first: int
    rows: Array
    model: Model
    family: Family

    def at(
        self,
        theta: Array,
        start: Fit | None = None,
        tolerance: float = CLIMBING_TOLERANCE,
        max_sweeps: int = MOST_SWEEPS,
    ) -> Point:
        """The posterior given theta by expectation propagation, warm-started from the fit at a nearby theta."""
        variances = np.exp(self.family.log_variances(theta))
        n_kept = int(np.flatnonzero(variances >= NEGLIGIBLE * variances.sum())[-1]) + 1
        variances = variances[: max(n_kept, self.family.n_features + 1)]
        hyperparameters = self.family.hyperparameters(theta)
        model = with_noise(self.model, hyperparameters)
        factor = self.rows[:, : variances.size] * np.sqrt(variances)
        sites = model.sites()
        fit = sites.fit(factor, start=start, tolerance=tolerance, max_sweeps=max_sweeps, negligible=AS_NOISE)
        log_posterior = fit.log_evidence + self.family.log_prior(theta)
        if not fit.converged:  # the value is not an evidence then, and may even exceed 0: keep the search away
            log_posterior = min(fit.log_evidence, 0.0) + self.family.log_prior(theta) - UNTRUSTED
        return Point(theta, hyperparameters, variances, model, fit, log_posterior)

    def at_each(self, thetas: Iterable[Array], start: Fit, tolerance: float = CLIMBING_TOLERANCE) -> list[Point]:
        """The posteriors given several theta, in threads if they take long enough, but not much memory each."""
        at = partial(self.at, start=start, tolerance=tolerance)
        n_labeled, n_columns = self.rows.shape
        work = n_labeled * min(n_labeled, n_columns) ** 2 * self.model.n_fields
        return list((in_threads if THREADED < work <= MANY_MULTIPLICATIONS else map)(at, thetas))

    def with_few_labels(self, most: int) -> Problem:
        """The problem with `most` random labels, plus one of each class; unchanged if it has no more labels."""
        y = labels_of(self.model)
        if y.size <= most:
            return self
        order = np.random.default_rng(0).permutation(y.size)
        kept = np.union1d(order[:most], order[np.unique(y[order], return_index=True)[1]])
        few = relabeled(self.model, self.model.nodes[kept], y[kept])
        return replace(self, rows=self.rows[kept], model=few)

    def gradient(self, point: Point) -> Array:
        """The gradient of the log posterior in theta at the fixed point of expectation propagation, see `EP.gradient`."""
        evidence = point.fit.gradient()
        gradient = self.family.jacobian(point.theta)[:, : point.variances.size] @ evidence.log_variances
        gradient[GAMMA] += np.exp(point.theta[GAMMA]) * evidence.gamma
        gradient[MISTAKES] += (1 - point.hyperparameters.mistakes) * evidence.log_flip
        return np.where(self.family.free, gradient, 0.0) + self.family.log_prior_gradient(point.theta)

    def prior(self, point: Point) -> GaussianPrior:
        """The prior at a point, restricted to columns of non-negligible variance."""
        numbers = point.hyperparameters
        pieces = [f"constant({numbers.constant:.4g})"]
        pieces += [f"{name}({value:.4g})" for name in ("linear", "bent") if (value := getattr(numbers, name))]
        if numbers.graph:
            pieces.append(f"{numbers.graph:.4g} matern(tau={numbers.tau:.4g}, alpha={numbers.alpha:.4g})")
        columns = self.basis[:, : point.variances.size]
        return GaussianPrior(columns, point.variances, 0.0, " + ".join(pieces), self.first)

    def posterior(self, point: Point) -> GaussianPosterior:
        """The posterior at a point."""
        whitening = OnModes(self.prior(point), point.model.nodes)
        return GaussianPosterior(whitening, point.model, point.fit, negligible=AS_NOISE)


def problems(
    spectrum: Spectrum, model: Model, features: Any, hyperprior: Hyperprior | None, n_bent: int = 0
) -> list[Problem]:
    """Validate the input and return the problem of each structure.

    All share one basis: features, of which the first `n_bent` columns are bent, then 1, then all modes but q_0.
    """
    model.sites()
    expect_fields(model, *LEARNED_FIELDS)
    resolved: Hyperprior = model.hyperprior() if hyperprior is None else hyperprior
    if spectrum.n_modes < 2:
        raise ValueError("The spectrum has one mode only: at least two are needed to tell classes apart.")
    expect_in_graph(model.nodes, spectrum.n_nodes)
    if hyperprior is not None:
        expect(hyperprior, Hyperprior, "hyperprior", "a Hyperprior")
    if features is not None:
        lazy = isinstance(features, Tall)
        features = features if lazy else expect_numbers(features, "features")
        shaped = len(features.shape) == 2 and len(features) == spectrum.n_nodes
        if not shaped or not (lazy or np.isfinite(features).all()):
            raise ValueError(f"features must be finite, of shape ({spectrum.n_nodes}, n), got {features.shape}.")
        if not lazy and np.abs(features).max(initial=0) > 1e100:
            raise ValueError("features have numbers too large to square: scale each column by its deviation.")
    n_features = 0 if features is None else features.shape[1]
    if not 0 <= n_bent <= n_features:
        raise ValueError(f"n_bent must be between 0 and {n_features}, the columns of features, got {n_bent}.")
    of_features = {"n_linear": n_features - n_bent, "n_bent": 0 if resolved.bent is None else n_bent}
    basis = learned_basis(features, spectrum.vectors)
    by_structure = []
    for structure in resolved.structures(**of_features):
        family = Family.of(spectrum, structure, **of_features, n_classes=model.n_classes)
        first = n_features - family.n_features
        columns = slice(first, first + family.n_features + 1 + family.values.size)
        by_structure.append(Problem(basis[:, columns], first, basis[model.nodes, columns], model, family))
    return by_structure


def learned_basis(features: Any, vectors: Any) -> Any:
    """Columns: features, if any; then 1, in place of q_0, the square root of the degrees; then the other modes."""
    if isinstance(vectors, Tall) or isinstance(features, Tall):
        return first_one(vectors) if features is None else beside(features, first_one(vectors))
    basis = np.hstack([np.empty((len(vectors), 0)) if features is None else features, vectors])
    basis[:, basis.shape[1] - vectors.shape[1]] = 1.0
    return basis


def with_noise(model: Any, hyperparameters: Hyperparameters) -> Model:
    """The model with gamma, and delta if it has one, from the hyper-parameters."""
    mistakes = {"delta": hyperparameters.mistakes} if model.offers("delta") else {}
    return remade(model, gamma=hyperparameters.gamma, **mistakes)


def constant_first(spectrum: Spectrum) -> Spectrum:
    """The spectrum with its null space rotated so that the first mode is q_0.

    A graph with several components has as many modes with eigenvalue zero. One combination of them, D^{1/2} 1,
    models the sizes of the classes; the others distinguish components and are treated like any other mode.
    """
    n_zero = spectrum.n_zero
    if n_zero == 1 or isinstance(spectrum.vectors, Tall):  # spectra of low-rank weights have q_0 first already
        return spectrum
    q0 = np.sqrt(spectrum.degrees) if spectrum.normalized else np.ones(spectrum.n_nodes)
    first = spectrum.vectors[:, :n_zero].T @ q0
    first /= np.linalg.norm(first)
    mirror = first - np.eye(n_zero)[0]
    if np.linalg.norm(mirror) < 1e-8:
        return spectrum
    # The Householder reflection that maps e_1 to `first`.
    reflection = np.eye(n_zero) - 2 * np.outer(mirror, mirror) / (mirror @ mirror)
    null, others = spectrum.vectors[:, :n_zero], spectrum.vectors[:, n_zero:]
    return replace(spectrum, vectors=np.hstack([null @ reflection, others]))
