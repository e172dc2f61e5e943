"""Expectation propagation: the whitening map and the labels in, a Gaussian and the evidence out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import log_expit, ndtr

from graphuq import _accelerator
from graphuq._threads import blas_threads
from graphuq.inference.marginals import labeled_probability, predict
from graphuq.inference.sites import Sites
from graphuq.inference.span import Matrix, Vector, span
from graphuq.inference.sweeps import OfSites, Settled, Start, heights, inverse_root, settle, with_cavities

# A direction whose variance the labels change by less than this share keeps its prior variance.
UNTOUCHED = 1e-6


@dataclass(frozen=True, eq=False)
class Gaussian:
    """``N(mean, factor factor^T)`` on whitened coordinates z, shapes (n_latent,), (n_latent, n_latent).

    Compared and hashed by identity, so that a sampler holding one can be a static setting of JAX.
    """

    mean: Vector
    factor: Matrix

    @classmethod
    def on(cls, mean: Vector, basis: Matrix, root: Matrix) -> Gaussian:
        """With covariance ``root root^T`` in the span of `basis`, orthonormal columns, and I outside."""
        factor = basis @ (root - np.eye(len(root))) @ basis.T
        factor.flat[:: len(factor) + 1] += 1
        return cls(mean, factor)


class EvidenceGradient(NamedTuple):
    """Derivatives of the log evidence at the fixed point."""

    log_variances: Vector  # by log v_j, where column j of B is sqrt(v_j) q_j; shape (n_latent,)
    tail: float  # by the variance of the tail
    gamma: float
    log_flip: float  # by the log of the probability of a mistake, where gamma does not set it


@dataclass(frozen=True, eq=False)
class EP:
    """The Gaussian that expectation propagation puts in place of the posterior.

    Given z, u at the labeled nodes is ``f = B z`` (plus the sites' tail); the posterior of z is
    N(z_mean, S) with ``S = I - basis (I - root root^T) basis^T``: labels say nothing about z
    outside the span of `basis`.

    Attributes:
        sites: the likelihood of the labels.
        precision, shift: natural parameters of the sites, shape (n_labeled,); a later call starts
            from them.
        mean, variance: of u at the labeled nodes, shape (n_labeled,).
        cavity_mean, cavity_variance: of u_j given all labels but its own, shape (n_labeled,).
        log_predictive: ``log P(y_j | all other labels)``, shape (n_labeled,): leave-one-out.
        z_mean: shape (n_latent,).
        basis: orthonormal columns, shape (n_latent, k), see `span.span`.
        labeled: B in that basis, shape (n_labeled, k).
        root: shape (k, k).
        cut: what each coordinate of z adds to the sites' tail, shape (n_latent,).
        log_evidence: log P(y), approximately; exact for one label.
        n_sweeps: sweeps over all sites, those of failed attempts included.
        converged: whether the moments of every site agree with the Gaussian's.
    """

    sites: Sites
    precision: Vector
    shift: Vector
    mean: Vector
    variance: Vector
    cavity_mean: Vector
    cavity_variance: Vector
    log_predictive: Vector
    z_mean: Vector
    basis: Matrix
    labeled: Matrix
    root: Matrix
    cut: Vector
    log_evidence: float
    n_sweeps: int
    converged: bool

    @cached_property
    def touched(self) -> tuple[Matrix, Vector]:
        """Orthonormal directions of z that the labels touch, (n_latent, r), and the variances left there, (r,).

        A smooth prior has far fewer of them than there are labels.
        """
        with blas_threads(self.root.shape[0] ** 3):
            spread, turn = eigh(self.root @ self.root.T, check_finite=False)
        touched = np.abs(1 - spread) > UNTOUCHED
        return self.basis @ turn[:, touched], spread[touched]

    def gradient(self) -> EvidenceGradient:
        """Exact derivatives of the evidence: at the fixed point the sites do not count.

        With ``C = sum_j v_j q_j q_j^T + tail I`` and G such that ``d log Z = tr(G dC)``,

            d log Z / d log v_j = v_j q_j^T G q_j = (E z_j^2 - 1) / 2,

        the posterior's second moment against the prior's. Noise and tail follow the heat equation.
        """
        width = self.cavity_variance
        slope = (self.mean - self.cavity_mean) / width
        curvature = (self.variance - width) / width**2
        heat = float(np.sum(slope**2 + curvature)) / 2
        basis, root, sites = self.basis, self.root, self.sites
        with blas_threads(basis.size * root.shape[0]):
            lost = np.eye(root.shape[0]) - root @ root.T
            z_variance = 1 - np.einsum("ij,ij->i", basis @ lost, basis)
        flips = sites.flip_gradient(self.cavity_mean, width - sites.tail)
        return EvidenceGradient(
            log_variances=(self.z_mean**2 + z_variance - 1) / 2 + heat * self.cut,
            tail=heat,
            gamma=sites.noise_slope * heat + sites.flip_slope * flips,
            log_flip=flips,
        )

    def gaussian(self) -> Gaussian:
        """The posterior of z as one mean and one square factor; O(n_latent^2 k)."""
        return Gaussian.on(self.z_mean, self.basis, self.root)

    def draw(self, n_draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draws of z, shape (n_draws, 1, n_latent)."""
        xi = rng.standard_normal((n_draws, len(self.z_mean)))
        change = xi @ self.basis @ (self.root - np.eye(len(self.root))).T
        return np.asarray(self.z_mean + xi + change @ self.basis.T)[:, None]

    def field_moments(self, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Mean and variance of u, shape (n, 1) each."""
        found = predict(self, conditional, deviation)
        return found.mean[:, None], found.variance[:, None]

    def classes(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """P(u + noise < 0) and P(u + noise >= 0), shape (n, 2)."""
        return two_classes(predict(self, conditional, np.hypot(deviation, noise)).probability)

    def first_sites(self, sites: Sites, conditional: Matrix, deviation: Vector) -> tuple[Vector, Vector]:
        """Sites of new labels, each alone beside those that are there: precision and shift, shape (n,) each."""
        mean, variance = (each[:, 0] for each in self.field_moments(conditional, deviation))
        found = sites.match(mean, variance)
        return found.precision, found.shift

    def independent_variances(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """The variance of u with noise, shape (n, 1)."""
        return self.field_moments(conditional, np.hypot(deviation, noise))[1]

    def independent_classes(self, mean: Matrix, variance: Matrix) -> Matrix:
        """P(u < 0) and P(u >= 0) of Gaussian u."""
        return two_classes(ndtr(mean / np.sqrt(variance))[:, 0])

    def labeled_classes(self) -> Matrix:
        """At the labeled nodes, without noise: from the tilted distribution, which is cut where the label cuts it."""
        return two_classes(labeled_probability(self))

    def left_out_classes(self, noise: float) -> Matrix:
        """At each labeled node given all labels but its own."""
        return two_classes(ndtr(self.cavity_mean / np.sqrt(self.cavity_variance + noise**2)))


def two_classes(probability: Vector) -> Matrix:
    """A column for each class, from the probability of the second."""
    return np.column_stack([1 - probability, probability])


def propagate(
    factor: Matrix,
    sites: Sites,
    *,
    start: EP | Start | None = None,
    tolerance: float = 1e-8,
    max_sweeps: int = 200,
    negligible: float = 0.0,
) -> EP:
    """Fit a Gaussian to the posterior of z ~ N(0, I) given labels that see ``u = B z``; nothing is checked.

    One sweep costs O(n_labeled k^2), k = min(n_labeled, n_latent) or, see `span.span`, less.

    Args:
        factor: B, shape (n_labeled, n_latent).
        sites: the likelihood of the labels; that of row j of B is the j-th.
        start: an earlier result with the same labels, or sites, for a warm start.
        tolerance: sweeps end when no moment is off by more than this many posterior deviations.
        max_sweeps: sweeps after which an attempt is given up: `converged` then is False.
        negligible: what has so many times the noise's variance counts as noise.
    """
    n_labeled, n_latent = factor.shape
    with blas_threads(n_labeled * min(n_labeled, n_latent) ** 2):
        basis, reduced, cut = span(factor, negligible * sites.noise)
        sites = replace(sites, tail=sites.tail + cut.sum())
        nothing = np.zeros(2 * n_labeled)
        first = nothing if start is None else np.concatenate([start.precision, start.shift])
        posterior_of = partial(_posterior, _gaussian_of(reduced))
        fit = settle(posterior_of, sites.match, first, tolerance, max_sweeps)
        if not fit.converged and start is not None:
            fit = settle(posterior_of, sites.match, nothing, tolerance, max_sweeps, fit.n_sweeps)
        if not fit.converged and sites.log_flip > -np.inf:
            fit = _soften(posterior_of, sites, tolerance, max_sweeps, fit.n_sweeps)
        return _result(reduced, basis, cut, sites, fit)


def _posterior(gaussian: Callable[[Vector, Vector], Any], site: Vector) -> OfSites | None:
    """The Gaussian of the sites at f = B z, a root of the inverse of I + B^T T B; None where it is not a proper one."""
    root, log_det, mean, variance = gaussian(*np.split(site, 2))
    moments = with_cavities(np.asarray(mean), np.asarray(variance), site)
    return None if moments is None else OfSites(root, float(log_det), moments)


def _gaussian_of(reduced: Matrix) -> Callable[[Vector, Vector], Any]:
    """Sites to the Gaussian of z and the moments of f, here or on an accelerator."""
    if not _accelerator.takes_sweeps(reduced.size * reduced.shape[1]):
        return partial(_gaussian, np, inverse_root, reduced)
    return _accelerator.sent(_gaussian_there, _accelerator.widened(reduced, 1, width=_accelerator.SWEEP_WIDTH))


def _gaussian(xp: Any, inverse_root: Callable[[Any], Any], reduced: Any, precision: Any, shift: Any) -> Any:
    """The root of the covariance of z, the log of its determinant, and means and variances of f."""
    root = inverse_root(reduced.T @ (precision[:, None] * reduced))
    half = reduced @ root
    return root, -2 * xp.log(root.diagonal()).sum(), half @ (shift @ half), xp.einsum("ij,ij->i", half, half)


_gaussian_there = _accelerator.compiled(partial(_gaussian, jnp, _accelerator.inverse_root))


def _soften(
    posterior_of: Callable[[Vector], OfSites | None],
    sites: Sites,
    tolerance: float,
    max_sweeps: int,
    n_sweeps: int,
) -> Settled:
    """Harden a step likelihood little by little, each fit starting at the last.

    The step is not log-concave: from nothing the sweeps can run away, where the fixed points of
    softer steps lead to it. Where the way ends early, the last fixed point is returned.
    """
    odds = sites.log_flip - float(np.log(-np.expm1(sites.log_flip)))  # log(flip / (1 - flip))
    start = np.zeros(2 * sites.y.size)
    posterior = posterior_of(start)
    assert posterior is not None
    fit = Settled(start, posterior, n_sweeps, False)
    softened = max(odds, -0.25)
    while True:
        hard = softened == odds
        stage = replace(sites, log_flip=float(log_expit(softened)))
        enough = tolerance if hard else 1e-2
        trial = settle(posterior_of, stage.match, start, enough, max_sweeps, fit.n_sweeps)
        if not trial.converged:
            return fit._replace(n_sweeps=trial.n_sweeps, converged=False)
        if hard:
            return trial
        fit, start = trial, trial.site
        softened = max(odds, 1.3 * softened)


def _result(reduced: Matrix, basis: Matrix, cut: Vector, sites: Sites, fit: Settled) -> EP:
    """All that a fixed point says, with the evidence

        log Z = sum_j log s_j - log det(I + B^T T B) / 2 + shift . mean / 2,

    s_j the height of site j, which makes its belief times the site integrate to log_z_j.
    """
    precision, shift = np.split(fit.site, 2)
    now, (mean, variance) = fit.posterior.moments, fit.posterior.moments[2:]
    log_z = sites.match(mean, variance).log_z
    log_heights = heights(log_z, mean, variance, precision, shift)
    log_evidence = log_heights.sum() + (shift @ now.mean - fit.posterior.log_det) / 2
    # First and second derivative of log_z_j by the mean of its belief, at the fixed point.
    slope = shift - precision * now.mean
    curvature = -precision * (1 - precision * now.variance)
    tail = sites.tail
    return EP(
        sites=sites,
        precision=precision,
        shift=shift,
        mean=now.mean + tail * slope,
        variance=now.variance + tail + tail * (2 * variance + tail) * curvature,
        cavity_mean=mean,
        cavity_variance=variance + tail,
        log_predictive=log_z,
        z_mean=basis @ (reduced.T @ slope),  # S B^T shift = B^T (shift - T mean)
        basis=basis,
        labeled=reduced,
        root=np.asarray(fit.posterior.parts)[: basis.shape[1], : basis.shape[1]],
        cut=cut,
        log_evidence=float(log_evidence),
        n_sweeps=fit.n_sweeps,
        converged=fit.converged,
    )
