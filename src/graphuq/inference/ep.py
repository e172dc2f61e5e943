"""Expectation propagation for one field: the whitening map and the labels in; a Gaussian and its evidence out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import log_expit

from graphuq import _accelerator
from graphuq._threads import blas_threads, eigen_threads
from graphuq.inference.marginals import (
    FEW_LABELS,
    labeled_probability,
    moments,
    positive,
    sign_probability,
    two_classes,
)
from graphuq.inference.sites import Sites
from graphuq.inference.span import Matrix, Vector, span
from graphuq.inference.sweeps import OfSites, Settled, Start, heights, inverse_root, settle, with_cavities

# Directions whose prior variance the labels change by less than this fraction count as unchanged.
UNTOUCHED = 1e-6
# Shifts are settled before precisions if the matrix has at most this many entries, so that products with it are quick.
IN_CACHE = 2**19


@dataclass(frozen=True, eq=False)
class Gaussian:
    """``N(mean, factor factor^T)`` on whitened coordinates z, shapes (n_latent,), (n_latent, n_latent).

    For independent fields with equal covariances the factor may be that of one field.

    Compared and hashed by identity, so that a sampler that holds one can be a static argument of `jax.jit`.
    """

    mean: Vector = field(repr=False)
    factor: Matrix = field(repr=False)

    @classmethod
    def on(cls, mean: Vector, basis: Matrix, root: Matrix) -> Gaussian:
        """Covariance ``root root^T`` in the span of the orthonormal columns of `basis`, and I outside it."""
        factor = basis @ (root - np.eye(len(root))) @ basis.T
        factor.flat[:: len(factor) + 1] += 1
        return cls(mean, factor)


class EvidenceGradient(NamedTuple):
    """Derivatives of the log evidence at the fixed point with respect to these parameters."""

    log_variances: Vector  # log v_j, where column j of B is sqrt(v_j) q_j; shape (n_latent,)
    gamma: float
    log_flip: float  # the log probability of a mistake, if gamma does not determine it


@dataclass(frozen=True, eq=False)
class EP:
    """The Gaussian approximation of the posterior by expectation propagation.

    Given z, u at the labeled nodes is ``f = B z`` (plus the sites' tail); the posterior of z is
    N(z_mean, S) with ``S = I - basis (I - root root^T) basis^T``: outside the span of `basis` the
    labels carry no information on z.

    Attributes:
        sites: the likelihood of the labels.
        precision, shift: natural parameters of the sites, shape (n_labeled,), for a warm start.
        mean, variance: posterior moments of u at the labeled nodes, shape (n_labeled,).
        cavity_mean, cavity_variance: moments of u_j given all labels but its own, shape (n_labeled,).
        log_predictive: leave-one-out ``log P(y_j | all other labels)``, shape (n_labeled,).
        z_mean: posterior mean of z, shape (n_latent,).
        basis: orthonormal columns, shape (n_latent, k), see `span.span`.
        labeled: B in that basis, shape (n_labeled, k).
        root: root of the posterior covariance of z in that basis, shape (k, k).
        cut: contribution of each coordinate of z to the sites' tail, shape (n_latent,).
        log_evidence: approximate log P(y), the log marginal likelihood; exact for one label.
        n_sweeps: sweeps over all sites, including those of failed attempts.
        converged: whether every site reproduces its tilted moments.
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

    @property
    def is_corrected(self) -> bool:
        """Whether `classes` corrects the marginals for not being Gaussian."""
        return self.sites.y.size <= FEW_LABELS

    @cached_property
    def touched(self) -> tuple[Matrix, Vector]:
        """Orthonormal directions of z that the labels inform, (n_latent, r), and their posterior variances, (r,).

        For a smooth prior r is far smaller than the number of labels.
        """
        with eigen_threads(self.root.shape[0]):
            variances, vectors = eigh(self.root @ self.root.T, check_finite=False)
        touched = np.abs(1 - variances) > UNTOUCHED
        return self.basis @ vectors[:, touched], variances[touched]

    def gradient(self) -> EvidenceGradient:
        """Derivatives of the log evidence, which is stationary in the sites at the fixed point.

        They are exact, except that the directions which `span` treats as noise also turn with v: ignoring this costs a
        few percent where they have a hundredth of the noise. With ``C = sum_j v_j q_j q_j^T + tail I`` and G such that
        ``d log Z = tr(G dC)``,

            d log Z / d log v_j = v_j q_j^T G q_j = (E z_j^2 - 1) / 2,

        which compares the posterior second moment of z_j with its prior one. The derivatives with respect to noise and
        tail follow from the heat equation.
        """
        width = self.cavity_variance
        slope = (self.mean - self.cavity_mean) / width
        curvature = (self.variance - width) / width**2
        heat = float(np.sum(slope**2 + curvature)) / 2
        basis, root, sites = self.basis, self.root, self.sites
        with blas_threads(basis.size * root.shape[0]):
            reduction = np.eye(root.shape[0]) - root @ root.T
            z_variance = 1 - np.einsum("ij,ij->i", basis @ reduction, basis)
        flips = sites.flip_gradient(self.cavity_mean, width - sites.tail)
        return EvidenceGradient(
            log_variances=(self.z_mean**2 + z_variance - 1) / 2 + heat * self.cut,
            gamma=sites.noise_slope * heat + sites.flip_slope * flips,
            log_flip=flips,
        )

    def gaussian(self) -> Gaussian:
        """The posterior of z as a mean and a dense square factor; O(n_latent^2 k)."""
        return Gaussian.on(self.z_mean, self.basis, self.root)

    def draw(self, n_draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw z from the posterior, shape (n_draws, 1, n_latent)."""
        xi = rng.standard_normal((n_draws, len(self.z_mean)))
        change = xi @ self.basis @ (self.root - np.eye(len(self.root))).T
        return np.asarray(self.z_mean + xi + change @ self.basis.T)[:, None]

    def field_moments(self, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Posterior mean and variance of u, shape (n, 1) each."""
        mean, variance = moments(self, conditional, deviation)
        return mean[:, None], variance[:, None]

    def classes(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """P(u + noise < 0) and P(u + noise >= 0), shape (n, 2)."""
        return two_classes(sign_probability(self, conditional, np.hypot(deviation, noise)))

    def first_sites(self, sites: Sites, conditional: Matrix, deviation: Vector) -> tuple[Vector, Vector]:
        """Initial sites of new labels, each added alone to this fit: precision and shift, shape (n,) each."""
        mean, variance = (moment[:, 0] for moment in self.field_moments(conditional, deviation))
        match = sites.match(mean, variance)
        return match.precision, match.shift

    def independent_variances(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """Posterior variance of u plus noise, shape (n, 1)."""
        return self.field_moments(conditional, np.hypot(deviation, noise))[1]

    def labeled_classes(self, noise: float = 0.0) -> Matrix | None:
        """Class probabilities at the labeled nodes, from the tilted distributions; None if all are corrected."""
        if self.is_corrected:
            return None
        scale = 1.0 if self.sites.scale is None else self.sites.scale
        return two_classes(labeled_probability(self, (noise * scale) ** 2))

    def left_out_classes(self, noise: float) -> Matrix:
        """Leave-one-out class probabilities: at each labeled node given all labels but its own."""
        return two_classes(positive(self.cavity_mean, self.cavity_variance + noise**2))


def propagate(
    factor: Matrix,
    sites: Sites,
    *,
    start: EP | Start | None = None,
    tolerance: float = 1e-8,
    max_sweeps: int = 200,
    negligible: float = 0.0,
) -> EP:
    """Approximate the posterior of z ~ N(0, I), given labels of ``u = B z``, by a Gaussian. Inputs are unchecked.

    One sweep costs O(n_labeled k^2), with k = min(n_labeled, n_latent) or less, see `span.span`.

    Args:
        factor: B, shape (n_labeled, n_latent).
        sites: the likelihood of the labels, in the order of the rows of B.
        start: an earlier result with the same labels, or sites, for a warm start.
        tolerance: sweeps end when every moment is matched to within this many posterior deviations.
        max_sweeps: sweeps after which an attempt is given up and `converged` is False.
        negligible: directions of z whose combined variance is below this multiple of the noise variance are
            treated as noise.
    """
    n_labeled, n_latent = factor.shape
    with blas_threads(n_labeled * min(n_labeled, n_latent) ** 2):
        basis, reduced, cut = span(factor, negligible * sites.noise)
        sites = replace(sites, tail=sites.tail + cut.sum())
        no_sites = np.zeros(2 * n_labeled)
        first = no_sites if start is None else np.concatenate([start.precision, start.shift])
        posterior_of = partial(_posterior, _gaussian_of(reduced))
        fit = settle(posterior_of, sites.match, first, tolerance, max_sweeps)
        if not fit.converged and start is not None:
            fit = settle(posterior_of, sites.match, no_sites, tolerance, max_sweeps, fit.n_sweeps)
        if not fit.converged and sites.log_flip > -np.inf:
            fit = _anneal(posterior_of, sites, tolerance, max_sweeps, fit.n_sweeps)
        return _result(reduced, basis, cut, sites, fit)


def _posterior(gaussian: Callable[[Vector, Vector], Any], site: Vector) -> OfSites | None:
    """The Gaussian that the sites of f = B z define, with its cavities; None if it is improper."""
    root, log_det, mean, variance, f_root = gaussian(*site.reshape(2, -1))
    moments = with_cavities(np.asarray(mean), np.asarray(variance), site)
    if moments is None:
        return None
    in_cache = isinstance(f_root, np.ndarray) and f_root.size <= IN_CACHE
    mean_of = (lambda shift: f_root @ (shift @ f_root)) if in_cache else None
    return OfSites(root, float(log_det), moments, mean_of)


def _gaussian_of(reduced: Matrix) -> Callable[[Vector, Vector], Any]:
    """Return `_gaussian` for this B, on the CPU or on an accelerator."""
    if not _accelerator.takes_sweeps(reduced.size * reduced.shape[1]):
        return partial(_gaussian, np, inverse_root, reduced)
    return _accelerator.sent(_gaussian_on_gpu, _accelerator.widened(reduced, 1, width=_accelerator.SWEEP_WIDTH))


def _gaussian(xp: Any, inverse_root: Callable[[Any], Any], reduced: Any, precision: Any, shift: Any) -> Any:
    """A root of the covariance ``(I + B^T T B)^-1`` of z, the log determinant of its inverse, moments and root of f."""
    root = inverse_root(reduced.T @ (precision[:, None] * reduced))
    f_root = reduced @ root
    variance = xp.einsum("ij,ij->i", f_root, f_root)
    return root, -2 * xp.log(root.diagonal()).sum(), f_root @ (shift @ f_root), variance, f_root


_gaussian_on_gpu = _accelerator.compiled(partial(_gaussian, jnp, _accelerator.inverse_root))


def _anneal(
    posterior_of: Callable[[Vector], OfSites | None],
    sites: Sites,
    tolerance: float,
    max_sweeps: int,
    n_sweeps: int,
) -> Settled:
    """Lower the flip probability of a step likelihood gradually, with a warm start at every stage.

    The step is not log-concave, and sweeps from zero sites can diverge. If a stage does not converge, the fixed
    point of the one before is returned.
    """
    odds = sites.log_flip - float(np.log(-np.expm1(sites.log_flip)))  # log odds, log(flip / (1 - flip))
    start = np.zeros(2 * sites.y.size)
    posterior = posterior_of(start)
    assert posterior is not None
    fit = Settled(start, posterior, n_sweeps, False)
    stage_odds = max(odds, -0.25)
    while True:
        last = stage_odds == odds
        stage = replace(sites, log_flip=float(log_expit(stage_odds)))
        trial = settle(posterior_of, stage.match, start, tolerance if last else 1e-2, max_sweeps, fit.n_sweeps)
        if not trial.converged:
            return fit._replace(n_sweeps=trial.n_sweeps, converged=False)
        if last:
            return trial
        fit, start = trial, trial.site
        stage_odds = max(odds, 1.3 * stage_odds)


def _result(reduced: Matrix, basis: Matrix, cut: Vector, sites: Sites, fit: Settled) -> EP:
    """Collect the results at a fixed point, including the log evidence

        log Z = sum_j log s_j - log det(I + B^T T B) / 2 + shift . mean / 2,

    where s_j is the height of site j: its cavity times s_j times the site integrates to exp(log_z_j).
    """
    precision, shift = fit.site.reshape(2, -1)
    mean, variance, cavity_mean, cavity_variance = fit.posterior.moments
    log_z = sites.match(cavity_mean, cavity_variance).log_z
    log_heights = heights(log_z, cavity_mean, cavity_variance, precision, shift)
    log_evidence = log_heights.sum() + (shift @ mean - fit.posterior.log_det) / 2
    # First and second derivative of log_z_j with respect to its cavity mean, at the fixed point.
    slope = shift - precision * mean
    curvature = -precision * (1 - precision * variance)
    tail = sites.tail
    return EP(
        sites=sites,
        precision=precision,
        shift=shift,
        mean=mean + tail * slope,
        variance=variance + tail + tail * (2 * cavity_variance + tail) * curvature,
        cavity_mean=cavity_mean,
        cavity_variance=cavity_variance + tail,
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
