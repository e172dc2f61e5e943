"""Expectation propagation for K classes: the whitening map and class labels in; a Gaussian over K fields out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import block_diag, eigh
from scipy.special import ndtri

from graphuq import _accelerator
from graphuq._threads import blas_threads
from graphuq.inference.covariances import covariances_anywhere, covariances_at
from graphuq.inference.ep import EP, EvidenceGradient, Gaussian
from graphuq.inference.largest import largest_probability_correlated, matched_variances
from graphuq.inference.span import Matrix, Vector, span
from graphuq.inference.stars import (
    Gaps,
    Stack,
    StarProblem,
    Stars,
    StarSites,
    by_nodes_of,
    force_of,
    levels_of,
    lone_stars,
    posterior_of,
    terms_of,
)
from graphuq.inference.sweeps import Moments, Settled, Start, heights, settle

# Multiplications by modes run twice as fast as those by nodes; measured for 3 to 32 classes.
QUICKER_BY_MODES = 2
# Problems with more multiplications per sweep (some seconds) or more bytes than these are refused.
LARGEST_SWEEP, LARGEST_MEMORY = 3e10, 8 * 2**30
# Least speedup of sweeps by nodes on an accelerator, and the largest n_classes * n_labeled^2 that fits there.
QUICKER_ON_GPU, LARGEST_ON_GPU = 20, 2**27
# Points for the tilted distributions at labeled nodes: numbers in all, the most and the fewest points per node, and the
# least share of the points that must agree with the label.
POINT_NUMBERS, MOST_POINTS, FEWEST_POINTS, LEAST_KEPT = 2**21, 4096, 256, 1 / 16


class FieldMoments(NamedTuple):
    """Moments of the K fields at some nodes, with covariance ``variance I + cross``."""

    mean: Matrix  # (n_nodes, n_classes)
    variance: Vector  # (n_nodes,)
    cross: Stack  # (n_nodes, n_classes, n_classes), positive semi-definite


@dataclass(frozen=True, eq=False)
class StarEP:
    """The Gaussian approximation of the posterior of K fields by expectation propagation.

    Field k is ``u_k = B z_k`` at the labeled nodes. With Q = `basis`, z has means `z_mean` and covariances
    ``delta_kl (I - Q Q^T + Q alone_k alone_k^T Q^T) + Q shared_k shared_l^T Q^T``.

    Attributes:
        sites: the likelihood of the labels.
        precision, shift: natural parameters of the sites of d_nk = g_nc - g_nk, shape (n_labeled, n_classes), 0
            where k is the label, for a warm start.
        stars: the sites with the noise integrated out.
        log_heights: log heights of the sites of each node, added up, shape (n_labeled,).
        mean: posterior mean of u at the labeled nodes, shape (n_labeled, n_classes).
        z_mean: posterior mean of z, shape (n_classes, n_latent).
        basis: orthonormal columns, shape (n_latent, k), see `span.span`.
        labeled: B in that basis, shape (n_labeled, k).
        cut: contribution of each coordinate of z to the sites' noise, shape (n_latent,).
        alone, shared: roots of the covariance as above, shapes (n_classes, k, any).
        log_evidence: approximate log P(labels), the log marginal likelihood; exact for one label of two classes.
        flip_gradient: its derivative with respect to `log_flip`.
        n_sweeps: sweeps over all sites, including those of failed attempts.
        converged: whether every site reproduces its tilted moments.
    """

    sites: StarSites
    precision: Matrix
    shift: Matrix
    stars: Stars
    log_heights: Vector
    mean: Matrix
    z_mean: Matrix
    basis: Matrix
    labeled: Matrix
    cut: Vector
    alone: Stack
    shared: Stack
    log_evidence: float
    flip_gradient: float
    n_sweeps: int
    converged: bool

    is_corrected: ClassVar[bool] = False  # only marginals of one field may be, see `marginals`

    # Computed when first used: the search for hyper-parameters needs no leave-one-out moments.

    @cached_property
    def covariance(self) -> Stack:
        """Posterior covariance of u at the labeled nodes, shape (n_labeled, n_classes, n_classes)."""
        with blas_threads(self.labeled.size * self.labeled.shape[1]):
            return covariances_at(self.labeled, self.alone, self.shared)

    @cached_property
    def _cavities(self) -> tuple[FieldMoments, Vector]:
        with blas_threads(0):  # many small systems
            return _cavities_of(self.stars, self.shift.T, self.sites.noise, self.mean, self.covariance)

    @property
    def left_out(self) -> FieldMoments:
        """Moments of u at each labeled node given all labels but its own, `variance` as large as possible."""
        return self._cavities[0]

    @property
    def log_predictive(self) -> Vector:
        """Leave-one-out ``log P(label of n | all other labels)``, shape (n_labeled,)."""
        return self.log_heights + self._cavities[1] / 2

    def gradient(self) -> EvidenceGradient:
        """Derivatives of the log evidence, as exact as those for one field, see `EP.gradient`.

        With ``C = sum_j v_j q_j q_j^T + noise I`` the covariance of each field,

            d log Z / dC = sum_k (b_k b_k^T - R_kk) / 2,    d log Z / d log v_j = sum_k (E z_kj^2 - 1) / 2.

        At a node with the term exp(-u^T T u / 2 + f^T u) and u ~ N(m, V), b = f - T m and R = T - T V T.
        """
        sites, basis, T = self.sites, self.basis, terms_of(self.stars)
        b = force_of(self.stars, self.stars.shift)[0].T - _times(T, self.mean)
        with blas_threads(0):  # many small products
            reduction = np.sum((self.covariance @ T) * T)
        noise_gradient = float(np.sum(b * b) - np.einsum("nkk->", T) + reduction) / 2
        with blas_threads(basis.size * basis.shape[1]):
            change = sum(np.tensordot(x, x, ((0, 2), (0, 2))) for x in (self.alone, self.shared))
            change -= sites.n_classes * np.eye(basis.shape[1])
            twice = np.square(self.z_mean).sum(axis=0) + np.einsum("ij,ij->i", basis @ change, basis)
        return EvidenceGradient(
            log_variances=twice / 2 + noise_gradient * self.cut,
            gamma=sites.noise_slope * noise_gradient,
            log_flip=self.flip_gradient,
        )

    def gaussian(self) -> Gaussian:
        """The posterior of z, all fields concatenated, as a mean and a dense square factor; O((K n_latent)^3)."""
        n_classes, k = self.shared.shape[:2]
        shared = self.shared.reshape(n_classes * k, -1)
        covariance = shared @ shared.T + block_diag(*(alone @ alone.T for alone in self.alone))
        values, vectors = eigh(covariance, check_finite=False)
        root = (vectors * np.sqrt(np.maximum(values, np.finfo(float).eps))) @ vectors.T
        basis = np.asarray(np.kron(np.eye(n_classes), self.basis), float)
        return Gaussian.on(self.z_mean.ravel(), basis, root)

    def draw(self, n_draws: int, rng: np.random.Generator) -> Stack:
        """Draw z from the posterior, shape (n_draws, n_classes, n_latent)."""
        n_classes, _, n_alone = self.alone.shape
        xi, own = (rng.standard_normal((n_draws, n_classes, n)) for n in (self.z_mean.shape[1], n_alone))
        common = rng.standard_normal((n_draws, self.shared.shape[2]))
        change = (
            (self.alone @ own[..., None])[..., 0] + np.tensordot(common, self.shared, (1, 2)) - xi @ self.basis
        )
        return np.asarray(self.z_mean + xi + change @ self.basis.T)

    def field_moments(self, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Posterior mean and variance of every field, shape (n, n_classes) each."""
        mean, variance, cross = self.fields_at(conditional, deviation)
        return mean, variance[:, None] + np.einsum("nkk->nk", cross)

    def fields_at(self, conditional: Matrix, deviation: Vector) -> FieldMoments:
        """Posterior moments where ``u_k | z ~ N(M z_k, deviation^2)``, in the precision of M.

        `cross` comes from the span of `basis`, `variance` from its complement and `deviation`.
        """
        return self._fields(conditional, deviation, covariances_at)

    def _fields(self, conditional: Matrix, deviation: Vector, covariance: Callable[..., Any]) -> FieldMoments:
        with blas_threads(len(conditional) * self.shared[0].size):
            directions = np.column_stack([self.basis, self.z_mean.T]).astype(conditional.dtype, copy=False)
            at, mean = np.split(conditional @ directions, [self.basis.shape[1]], axis=1)
            outside = np.einsum("nj,nj->n", conditional, conditional) - np.einsum("nj,nj->n", at, at)
            variance = np.maximum(outside, 0) + np.square(deviation).astype(conditional.dtype, copy=False)
            return FieldMoments(mean, variance, covariance(at, self.alone, self.shared))

    def classes(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """The probability that each field, plus noise, is the largest, shape (n, n_classes)."""
        covariance = covariances_anywhere if self.sites.n_classes > 3 else covariances_at
        return _largest(self._fields(conditional, deviation, covariance), noise)

    def classes_and_variances(self, conditional: Matrix, deviation: Vector, noise: float) -> tuple[Matrix, Matrix]:
        """The results of `classes` and of `independent_variances`, whose cost is that of one of them."""
        fields = self._fields(conditional, deviation, covariances_at)
        return _largest(fields, noise), matched_variances(fields.mean, fields.variance + noise**2, fields.cross)

    def first_sites(self, sites: StarSites, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Initial sites of new labels, each added alone to this fit: precision and shift, (n, n_classes) each."""
        mean, variance, cross = self.fields_at(conditional, deviation)
        return lone_stars(sites, mean, cross + (variance + sites.noise)[:, None, None] * np.eye(sites.n_classes))

    def independent_variances(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """Variances, noise included, of independent fields that approximate these, shape (n, n_classes)."""
        mean, variance, cross = self._fields(conditional, deviation, covariances_anywhere)
        return matched_variances(mean, variance + noise**2, cross)

    def labeled_classes(self, noise: float = 0.0) -> Matrix | None:
        """Class probabilities at the labeled nodes, from the tilted distributions; None with noise.

        Quasi-random fields, given all other labels, are kept where they give the label once noise is added. Where
        hardly any do, because the label is a surprise, the Gaussian approximation is used, as for very many labels.
        """
        if noise:
            return None
        from scipy.stats.qmc import Sobol

        n_classes, cavity = self.sites.n_classes, self.left_out
        p = _largest(FieldMoments(self.mean, np.zeros(len(self.mean)), self.covariance), 0.0)
        n_points = min(MOST_POINTS, 2 ** int(np.log2(max(POINT_NUMBERS / p.size, 1))))
        if n_points < FEWEST_POINTS:
            return p
        points = ndtri(Sobol(2 * n_classes, seed=0).random(n_points)).T
        values, vectors = np.linalg.eigh(cavity.cross + cavity.variance[:, None, None] * np.eye(n_classes))
        roots = vectors * np.sqrt(np.maximum(values, 0))[:, None]
        u = cavity.mean[:, :, None] + roots @ points[:n_classes]
        g = u + np.sqrt(self.sites.noise) * points[n_classes:]
        kept = self.sites.relative_likelihood(g)
        enough = kept.sum(axis=1) > LEAST_KEPT * n_points
        shares = np.stack([(kept * (u.argmax(axis=1) == k)).sum(axis=1) for k in range(n_classes)], axis=1)
        p[enough] = shares[enough] / kept[enough].sum(axis=1, keepdims=True)
        return p

    def left_out_classes(self, noise: float) -> Matrix:
        """Leave-one-out class probabilities: at each labeled node given all labels but its own."""
        return _largest(self.left_out, noise)


def _largest(fields: FieldMoments, noise: float) -> Matrix:
    return largest_probability_correlated(fields.mean, fields.variance + noise**2, fields.cross)


def propagate(
    factor: Matrix,
    sites: StarSites,
    *,
    start: StarEP | Start | None = None,
    tolerance: float = 1e-8,
    max_sweeps: int = 200,
    negligible: float = 0.0,
) -> StarEP:
    """Approximate the posterior of z_k ~ N(0, I), k < K, given class labels by a Gaussian. Inputs are unchecked.

    With J = n_labeled and k = min(J, n_latent) or less, one sweep costs O(K (J k^2 + J^2 k) + J^3), or
    O(J (K k)^2 + (K k)^3) with few modes. The arguments are those of `ep.propagate`.
    """
    n_labeled, n_latent = factor.shape
    with blas_threads(n_labeled * min(n_labeled, n_latent) ** 2):
        basis, reduced, cut = span(factor, negligible * sites.noise)
        sites = replace(sites, noise=sites.noise + cut.sum())
        problem = _problem(reduced, sites)
        posterior = partial(posterior_of, problem)
        first = no_sites = np.zeros(2 * sites.n_classes * n_labeled)
        if start is not None:
            first = np.concatenate([start.precision.T.ravel(), start.shift.T.ravel()])
        fit = settle(posterior, sites.match, first, tolerance, max_sweeps)
        if not fit.converged and start is not None:
            fit = settle(posterior, sites.match, no_sites, tolerance, max_sweeps, fit.n_sweeps)
        return _result(problem, basis, cut, fit)


def _problem(reduced: Matrix, sites: StarSites) -> StarProblem:
    """Choose sweeps by modes, by nodes, or by nodes on an accelerator; refuse problems that are too large."""
    (n_labeled, k), n_classes = reduced.shape, sites.n_classes
    wide = n_classes * k
    by_modes = n_labeled * wide**2 + wide**3
    by_nodes = n_classes * (n_labeled * k**2 + n_labeled**2 * k) + n_labeled**3
    few_modes = by_modes <= QUICKER_BY_MODES * by_nodes
    work = by_modes / 2 if few_modes else by_nodes
    on_accelerator = _accelerator.takes_sweeps(work) and by_nodes < min(QUICKER_ON_GPU * work, LARGEST_SWEEP)
    on_accelerator = on_accelerator and n_classes * n_labeled**2 <= LARGEST_ON_GPU
    few_modes = few_modes and not on_accelerator
    numbers = 3 * wide**2 if few_modes else 3 * n_classes * (n_labeled + k) * k
    numbers += 10 * n_classes**2 * n_labeled  # covariances of the fields at every label
    if work > LARGEST_SWEEP or 8 * numbers > LARGEST_MEMORY:
        raise ValueError(
            f"Expectation propagation with {n_classes:,} classes and {n_labeled:,} labels would take about "
            f"{8 * numbers / 2**30:.1f} GB of memory and {work / 1e10:,.0f} seconds a sweep, and learning takes "
            "thousands of sweeps: keep fewer classes, labels or modes (n_modes), or choose a prior and sample."
        )
    if few_modes:
        return StarProblem(sites, reduced)
    levels = levels_of(reduced, sites)
    return StarProblem(sites, reduced, levels, by_nodes_of(levels, sites, on_accelerator=on_accelerator))


def _result(problem: StarProblem, basis: Matrix, cut: Vector, fit: Settled) -> StarEP:
    """Collect the results at a fixed point, including the log evidence

        log Z = sum_nk log s_nk - log det(I + C S) / 2 + shift . mean / 2 - J log total,

    where s_nk is the height of a site: its cavity times s_nk times the site integrates to exp(log_z_nk).
    """
    sites, reduced, posterior = problem.sites, problem.reduced, fit.posterior
    stars, gaps = posterior.parts
    own = stars.own
    precision, shift = fit.site.reshape(2, *own.shape)
    d_mean = posterior.moments.mean.reshape(own.shape)
    slope = shift - precision * d_mean
    b = np.where(own, slope.sum(axis=0), -slope)
    z_mean = b @ reduced  # S B^T shift = B^T (shift - T mean)
    alone, shared = _roots(problem, gaps)
    log_heights, flip_gradient = _heights(sites, posterior.moments, precision, shift)
    return StarEP(
        sites=sites,
        precision=precision.T,
        shift=shift.T,
        stars=stars,
        log_heights=log_heights,
        mean=reduced @ z_mean.T,
        z_mean=z_mean @ basis.T,
        basis=basis,
        labeled=reduced,
        cut=cut,
        alone=alone,
        shared=shared,
        log_evidence=float(log_heights.sum() + (np.sum(shift * d_mean) - posterior.log_det) / 2),
        flip_gradient=flip_gradient,
        n_sweeps=fit.n_sweeps,
        converged=fit.converged,
    )


def _heights(sites: StarSites, moments: Moments, precision: Matrix, shift: Matrix) -> tuple[Vector, float]:
    """``sum_k log s_nk - log total`` of every node n, and the derivative of its sum with respect to `log_flip`."""
    own, half_space, (log_total, total_slope) = sites.own(), sites.half_space(), sites.log_total()
    mean, variance = moments.cavity_mean.reshape(own.shape), moments.cavity_variance.reshape(own.shape)
    log_heights = heights(half_space.match(mean, variance).log_z, mean, variance, precision, shift)
    flip_gradient = half_space.flip_gradient(mean[~own], variance[~own])
    return np.where(own, 0, log_heights).sum(axis=0) - log_total, flip_gradient - sites.labels.size * total_slope


def _cavities_of(
    stars: Stars, shift: Matrix, noise: float, mean: Matrix, covariance: Stack
) -> tuple[FieldMoments, Vector]:
    """The moments of each labeled node's cavity, and twice the log mass of its sites, without heights, under it.

    Its own term exp(-u^T T u / 2 + f^T u) is removed from its N(m, V). With A = I - V T,

        V_- = A^-1 V,    m_- = A^-1 (m - V f).

    The product of the node's sites, with precisions tau_k and shifts nu_k, is this term times the constants from
    integrating out the noise:

        log_mass = log det A - m . T m_- + f . (m + m_-)
                   + sum_k (noise nu_k + offset) rho_k nu_k - log det(I + noise diag(tau)) - log(noise / variance),

    where rho, variance and the logarithms are those of `Stars`, and offset that of `force_of`.
    """
    T, (force, offset) = terms_of(stars), force_of(stars, stars.shift)
    f = force.T
    A = np.eye(mean.shape[1]) - covariance @ T
    cavity: Any = np.linalg.solve(A, np.dstack([covariance, mean - _times(covariance, f)]))
    cavity_mean = cavity[..., -1]
    log_mass = np.linalg.slogdet(A)[1] - np.sum(mean * _times(T, cavity_mean) - f * (mean + cavity_mean), axis=1)
    log_mass += np.sum((noise * shift + offset) * stars.shift, axis=0)
    log_mass -= stars.log_det + stars.log_grown
    return _split(cavity_mean, cavity[..., :-1]), log_mass


def _times(matrices: Stack, vectors: Matrix) -> Matrix:
    return (matrices @ vectors[..., None])[..., 0]


def _roots(problem: StarProblem, gaps: Gaps) -> tuple[Stack, Stack]:
    """`StarEP.alone` and `StarEP.shared`."""
    levels, k, spread = problem.levels, problem.reduced.shape[1], np.asarray(gaps.spread)
    if levels is None:
        shared = spread.reshape(-1, k, len(spread))
        return shared[:, :, :0], shared
    alone = levels.narrow @ np.asarray(gaps.alone)[:, :k, :k]
    return alone, alone @ np.asarray(gaps.moved)[:, :k] + [levels.turn[:, own] @ spread[own] for own in levels.own]


def _split(mean: Matrix, covariance: Stack) -> FieldMoments:
    """Split off the largest common variance, the smallest eigenvalue."""
    covariance = (covariance + covariance.swapaxes(1, 2)) / 2
    variance = np.maximum(np.linalg.eigvalsh(covariance)[:, 0], 0)
    return FieldMoments(mean, variance, covariance - variance[:, None, None] * np.eye(mean.shape[1]))


Fit: TypeAlias = EP | StarEP  # the result of expectation propagation, for one field or one field per class
