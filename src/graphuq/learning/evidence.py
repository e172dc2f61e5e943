"""A spectrum, features and labels in; the evidence of a choice of hyper-parameters, and its gradient, out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect, expect_in_graph, expect_numbers
from graphuq.inference.star_ep import Fit
from graphuq.inference.whiten import OnModes
from graphuq.large.side_by_side import beside, first_one
from graphuq.learning.hyperprior import GAMMA, MISTAKES, Family, Hyperparameters, Hyperprior
from graphuq.models.base import LEARNED_FIELDS, Model, ask, expect_fields, offer, offers, remade
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.prior import ZERO_EIGENVALUE, GaussianPrior
from graphuq.spectrum.result import Spectrum
from graphuq.tall import Tall

Array = NDArray[np.float64]

# The evidence is stationary in the sites: sites right to 1e-3 give it to 1e-5, in half the sweeps.
CLIMBING_TOLERANCE = 1e-3
# Where labels contradict each other sweeps may go on for ever: such a point counts for nothing.
MOST_SWEEPS = 60
# Modes beyond the last that has this share of the variance are left out of the computation: what they add to
# u is far below what expectation propagation can tell, and a smooth field needs a third of 300 modes.
NEGLIGIBLE = 1e-7
# Directions that together have this share of the noise's variance at the labels count as noise: a third of them remain.
AS_NOISE = 1e-2
# Nats by which the evidence of sweeps that did not converge is lowered.
UNTRUSTED = 1e3


class Point(NamedTuple):
    """One choice of hyper-parameters, and the posterior given it."""

    theta: Array  # logarithms, see `hyperprior`
    hyperparameters: Hyperparameters
    variances: Array  # of the leading columns of the basis, as many as matter
    model: Model
    fit: Fit
    log_posterior: float  # log evidence plus log hyperprior


@dataclass(frozen=True, eq=False)
class Problem:
    """Labels on a graph, and a family of priors of one structure to choose from.

    Attributes:
        basis: the columns of the structure, shape (n_nodes, n_columns).
        first: where they begin in the basis of all structures.
        rows: the same at the labeled nodes.
        model: the likelihood; its noise is not used.
        family: variances of the columns, and the hyperprior.
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
        """The posterior given theta, by expectation propagation that starts from that of a close theta."""
        variances = np.exp(self.family.log_variances(theta))
        n_kept = int(np.flatnonzero(variances >= NEGLIGIBLE * variances.sum())[-1]) + 1
        variances = variances[: max(n_kept, self.family.n_features + 1)]
        found = self.family.hyperparameters(theta)
        model = with_noise(self.model, found)
        factor = self.rows[:, : variances.size] * np.sqrt(variances)
        sites = ask(model, "sites")
        fit = sites.fit(factor, start=start, tolerance=tolerance, max_sweeps=max_sweeps, negligible=AS_NOISE)
        log_posterior = fit.log_evidence + self.family.log_prior(theta)
        if not fit.converged:  # no number to be trusted: a point to stay away from
            log_posterior -= UNTRUSTED
        return Point(theta, found, variances, model, fit, log_posterior)

    def with_few_labels(self, most: int) -> Problem:
        """The same with so many of the labels, drawn at random, each class among them; itself if it has no more."""
        y = np.asarray(ask(self.model, "y"))
        if y.size <= most:
            return self
        order = np.random.default_rng(0).permutation(y.size)
        kept = np.union1d(order[:most], order[np.unique(y[order], return_index=True)[1]])
        few = remade(self.model, nodes=self.model.nodes[kept], y=y[kept])
        return replace(self, rows=self.rows[kept], model=few)

    def gradient(self, point: Point) -> Array:
        """Derivative of the log posterior by theta, exact at the fixed point."""
        evidence = point.fit.gradient()
        gradient = self.family.jacobian(point.theta)[:, : point.variances.size] @ evidence.log_variances
        gradient[GAMMA] += np.exp(point.theta[GAMMA]) * evidence.gamma
        gradient[MISTAKES] += (1 - point.hyperparameters.mistakes) * evidence.log_flip
        return np.where(self.family.free, gradient, 0.0) + self.family.log_prior_gradient(point.theta)

    def prior(self, point: Point) -> GaussianPrior:
        """The prior at a point, on the columns that matter there."""
        found = point.hyperparameters
        pieces = [f"constant({found.constant:.4g})"]
        pieces += [f"{name}({value:.4g})" for name in ("linear", "bent") if (value := getattr(found, name))]
        if found.graph:
            pieces.append(f"{found.graph:.4g} matern(tau={found.tau:.4g}, alpha={found.alpha:.4g})")
        columns = self.basis[:, : point.variances.size]
        return GaussianPrior(columns, point.variances, 0.0, " + ".join(pieces), self.first)

    def posterior(self, point: Point) -> GaussianPosterior:
        """The posterior at a point."""
        whitening = OnModes(self.prior(point), point.model.nodes)
        return GaussianPosterior(whitening, point.model, point.fit, negligible=AS_NOISE)


def problems(
    spectrum: Spectrum, model: Model, features: Any, hyperprior: Hyperprior | None, n_bent: int = 0
) -> list[Problem]:
    """Doubt the input; the problem of each structure, on one basis: features, then 1, then all modes but q_0.

    The first `n_bent` columns of the features are bent ones.
    """
    ask(model, "sites")
    expect_fields(model, *LEARNED_FIELDS)
    believed: Hyperprior = ask(model, "hyperprior") if hyperprior is None else hyperprior
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
    of_features = {"n_linear": n_features - n_bent, "n_bent": n_bent}
    basis = learned_basis(features, spectrum.vectors)
    found = []
    for each in believed.structures(**of_features):
        family = Family.of(spectrum, each, **of_features, n_classes=offer(model, "n_classes"))
        first = n_features - family.n_features
        columns = slice(first, first + family.n_features + 1 + family.values.size)
        found.append(Problem(basis[:, columns], first, basis[model.nodes, columns], model, family))
    return found


def learned_basis(features: Any, vectors: Any) -> Any:
    """Features, if any, then 1 in the place of q_0, which is the square root of the degrees, then the other modes."""
    if isinstance(vectors, Tall) or isinstance(features, Tall):
        return first_one(vectors) if features is None else beside(features, first_one(vectors))
    basis = np.hstack([np.empty((len(vectors), 0)) if features is None else features, vectors])
    basis[:, basis.shape[1] - vectors.shape[1]] = 1.0
    return basis


def with_noise(model: Any, found: Hyperparameters) -> Model:
    """The same labels with the noise, and the share of mistakes, that was found."""
    made: Model = remade(model, gamma=found.gamma, **({"delta": found.mistakes} if offers(model, "delta") else {}))
    return made


def constant_first(spectrum: Spectrum) -> Spectrum:
    """The spectrum with its null space turned so that the first mode is q_0.

    A graph of several components has as many modes of eigenvalue zero. One combination of them, D^{1/2} 1,
    says how large the classes are; the others tell components apart and are modes like any other.
    """
    n_zero = max(1, int(np.count_nonzero(spectrum.values <= ZERO_EIGENVALUE)))
    if n_zero == 1 or isinstance(spectrum.vectors, Tall):  # of low-rank weights q_0 comes first
        return spectrum
    q0 = np.sqrt(spectrum.degrees) if spectrum.normalized else np.ones(spectrum.n_nodes)
    first = spectrum.vectors[:, :n_zero].T @ q0
    first /= np.linalg.norm(first)
    mirror = first - np.eye(n_zero)[0]
    if np.linalg.norm(mirror) < 1e-8:
        return spectrum
    turn = np.eye(n_zero) - 2 * np.outer(mirror, mirror) / (mirror @ mirror)  # takes e_1 to `first`
    null, others = spectrum.vectors[:, :n_zero], spectrum.vectors[:, n_zero:]
    return replace(spectrum, vectors=np.hstack([null @ turn, others]))
