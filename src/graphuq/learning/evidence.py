"""A spectrum, features and labels in; the evidence of a choice of hyper-parameters, and its gradient, out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq.inference.ep import Fit
from graphuq.inference.whiten import OnModes
from graphuq.learning.hyperprior import GAMMA, MISTAKES, Family, Hyperparameters, Hyperprior
from graphuq.models.base import Model, ask, check_in_graph, offers
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.prior import ZERO_EIGENVALUE, GaussianPrior
from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]

# The evidence is stationary in the sites: sites right to 1e-4 give it to 1e-7, in half the sweeps.
CLIMBING_TOLERANCE = 1e-4
# Modes beyond the last that has this share of the variance are left out of the computation: what they add to
# u is far below what expectation propagation can tell, and a smooth field needs a third of 300 modes.
NEGLIGIBLE = 1e-7


class Point(NamedTuple):
    """One choice of hyper-parameters, and the posterior given it."""

    theta: Array  # logarithms, see `hyperprior`
    hyperparameters: Hyperparameters
    variances: Array  # of the leading columns of the basis, as many as matter
    model: Model
    fit: Fit
    log_posterior: float  # log evidence plus log hyperprior


@dataclass(frozen=True)
class Problem:
    """Labels on a graph, and the family of priors to choose from.

    Attributes:
        spectrum: the eigenpairs, q_0 first.
        basis: features, then eigenvectors, as columns, shape (n_nodes, n_linear + n_modes).
        rows: the same at the labeled nodes.
        model: the likelihood; its noise is not used.
        family: variances of the columns, and the hyperprior.
    """

    spectrum: Spectrum
    basis: Array
    rows: Array
    model: Model
    family: Family

    @classmethod
    def of(
        cls, spectrum: Spectrum, model: Model, features: Array | None, hyperprior: Hyperprior | None
    ) -> Problem:
        """Doubt the input, and gather what the climbs need."""
        ask(model, "sites")
        believed: Hyperprior = ask(model, "hyperprior") if hyperprior is None else hyperprior
        if spectrum.n_modes < 2:
            raise ValueError("The spectrum has one mode only: at least two are needed to tell classes apart.")
        check_in_graph(model.nodes, spectrum.n_nodes)
        spectrum = constant_first(spectrum)
        if believed.linear is None or features is None:
            features = np.empty((spectrum.n_nodes, 0))
        family = Family.of(spectrum, believed, features.shape[1])
        basis = np.hstack([features, spectrum.vectors]) if features.shape[1] else spectrum.vectors
        return cls(spectrum, basis, basis[model.nodes], model, family)

    def at(self, theta: Array, start: Fit | None = None, tolerance: float = CLIMBING_TOLERANCE) -> Point:
        """The posterior given theta, by expectation propagation that starts from that of a close theta."""
        variances = np.exp(self.family.log_variances(theta))
        share = variances[self.family.n_linear :] >= NEGLIGIBLE * variances.sum()
        n_kept = self.family.n_linear + max(2, int(np.flatnonzero(share)[-1]) + 1)
        variances = variances[:n_kept]
        found = self.family.hyperparameters(theta)
        model = with_noise(self.model, found)
        fit = ask(model, "sites").fit(self.rows[:, :n_kept] * np.sqrt(variances), start=start, tolerance=tolerance)
        log_posterior = fit.log_evidence + self.family.log_prior(theta)
        return Point(theta, found, variances, model, fit, log_posterior)

    def gradient(self, point: Point) -> Array:
        """Derivative of the log posterior by theta, exact at the fixed point."""
        evidence = point.fit.gradient()
        gradient = self.family.jacobian(point.theta)[:, : point.variances.size] @ evidence.log_variances
        gradient[GAMMA] += np.exp(point.theta[GAMMA]) * evidence.gamma
        gradient[MISTAKES] += (1 - point.hyperparameters.mistakes) * evidence.log_flip
        return np.where(self.family.free, gradient, 0.0) + self.family.log_prior_gradient(point.theta)

    def prior(self, point: Point) -> GaussianPrior:
        """The prior at a point, on the columns that matter there."""
        tau, alpha, _, constant, _, linear = point.hyperparameters
        name = (
            f"matern(tau={tau:.6g}, alpha={alpha:.6g}, constant={constant:.6g}, n_modes={self.spectrum.n_modes})"
        )
        if self.family.n_linear:
            name += f" + linear(variance={linear:.6g})"
        return GaussianPrior(self.basis[:, : point.variances.size], point.variances, 0.0, name)

    def posterior(self, point: Point, **settings: Any) -> GaussianPosterior:
        """The posterior at a point."""
        return GaussianPosterior(OnModes(self.prior(point), point.model.nodes), point.model, point.fit, **settings)


def with_noise(model: Any, found: Hyperparameters) -> Model:
    """The same labels with the noise, and the share of mistakes, that was found."""
    settings = {"gamma": found.gamma} | ({"delta": found.mistakes} if offers(model, "delta") else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its labels were doubted, and warned of, when it was made
        made: Model = replace(model, **settings)
    return made


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
