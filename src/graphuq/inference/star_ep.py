"""Expectation propagation for many classes: the whitening map and class labels in, a Gaussian of K fields out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import block_diag, eigh

from graphuq import _accelerator
from graphuq._threads import blas_threads
from graphuq.inference.ep import EP, EvidenceGradient, Gaussian
from graphuq.inference.largest import (
    go_there,
    independent_probability,
    largest_probability_correlated,
    matched_variances,
    rows_at_once,
)
from graphuq.inference.span import Matrix, Vector, span
from graphuq.inference.stars import (
    Gaps,
    Stack,
    StarProblem,
    Stars,
    StarSites,
    by_nodes_of,
    levels_of,
    lone_stars,
    posterior_of,
)
from graphuq.inference.sweeps import Moments, Settled, Start, heights, settle

# A multiplication by modes takes half the time of one by nodes; measured for 3 to 32 classes.
QUICKER_BY_MODES = 2
# Multiplications in a sweep, some seconds, and bytes: beyond these it is refused.
LARGEST_SWEEP, LARGEST_MEMORY = 3e10, 8 * 2**30
# By nodes on an accelerator a multiplication takes a twentieth of its time here, at the least; numbers of a matrix of nodes
# for each class that it may hold.
QUICKER_THERE, LARGEST_THERE = 20, 2**27
# Covariances at many nodes are formed about so many numbers at a time, which the processor's cache holds: half the time.
CACHED, LEAST_ROWS = 2**17, 16
# On an accelerator so many numbers at a time.
MOST_THERE = 2**25


class FieldMoments(NamedTuple):
    """The K fields at some nodes: covariance ``variance I + cross``."""

    mean: Matrix  # (n_nodes, n_classes)
    variance: Vector  # (n_nodes,)
    cross: Stack  # (n_nodes, n_classes, n_classes), positive semi-definite


@dataclass(frozen=True, eq=False)
class StarEP:
    """The Gaussian that expectation propagation puts in place of the posterior of K fields.

    Field k is ``u_k = B z_k`` at the labeled nodes. With Q = `basis`, z has means `z_mean` and covariances
    ``delta_kl (I - Q Q^T + Q alone_k alone_k^T Q^T) + Q shared_k shared_l^T Q^T``.

    Attributes:
        sites: the likelihood of the labels.
        precision, shift: natural parameters of the sites of d_nk = g_nc - g_nk, shape (n_labeled, n_classes), 0
            where k is the label; a later call starts from them.
        left_out: u at each labeled node given all labels but its own, the common variance as large as it can be.
        log_predictive: ``log P(label of n | all other labels)``, shape (n_labeled,).
        z_mean: shape (n_classes, n_latent).
        basis: orthonormal columns, shape (n_latent, k), see `span.span`.
        cut: what each coordinate of z adds to the sites' noise, shape (n_latent,).
        alone, shared: shapes (n_classes, k, any).
        log_evidence: log P(labels), approximately; exact for one label of two classes.
        noise_gradient, flip_gradient: its derivatives by `noise` and `log_flip`.
        n_sweeps: sweeps over all sites, those of failed attempts included.
        converged: whether the moments of every site agree with the Gaussian's.
    """

    sites: StarSites
    precision: Matrix
    shift: Matrix
    mean: Matrix
    covariance: Stack
    left_out: FieldMoments
    log_predictive: Vector
    z_mean: Matrix
    basis: Matrix
    cut: Vector
    alone: Stack
    shared: Stack
    log_evidence: float
    noise_gradient: float
    flip_gradient: float
    n_sweeps: int
    converged: bool

    def gradient(self) -> EvidenceGradient:
        """Exact derivatives of the evidence: at the fixed point the sites do not count.

        With ``C = sum_j v_j q_j q_j^T + noise I`` the covariance of each field,

            d log Z / dC = sum_k (b_k b_k^T - R_kk) / 2,    d log Z / d log v_j = sum_k (E z_kj^2 - 1) / 2.
        """
        sites, basis = self.sites, self.basis
        with blas_threads(basis.size * basis.shape[1]):
            change = sum(np.tensordot(x, x, ((0, 2), (0, 2))) for x in (self.alone, self.shared))
            change -= sites.n_classes * np.eye(basis.shape[1])
            twice = np.square(self.z_mean).sum(axis=0) + np.einsum("ij,ij->i", basis @ change, basis)
        return EvidenceGradient(
            log_variances=twice / 2 + self.noise_gradient * self.cut,
            tail=0.0,
            gamma=sites.noise_slope * self.noise_gradient + sites.flip_slope * self.flip_gradient,
            log_flip=self.flip_gradient,
        )

    def gaussian(self) -> Gaussian:
        """The posterior of z, one field after the other, as one mean and one square factor; O((K n_latent)^3)."""
        n_classes, k = self.shared.shape[:2]
        shared = self.shared.reshape(n_classes * k, -1)
        covariance = shared @ shared.T + block_diag(*(each @ each.T for each in self.alone))
        values, vectors = eigh(covariance, check_finite=False)
        root = (vectors * np.sqrt(np.maximum(values, np.finfo(float).eps))) @ vectors.T
        basis = np.asarray(np.kron(np.eye(n_classes), self.basis), float)
        return Gaussian.on(self.z_mean.ravel(), basis, root)

    def draw(self, n_draws: int, rng: np.random.Generator) -> Stack:
        """Draws of z, shape (n_draws, n_classes, n_latent)."""
        n_classes, _, n_alone = self.alone.shape
        xi, own = (rng.standard_normal((n_draws, n_classes, n)) for n in (self.z_mean.shape[1], n_alone))
        common = rng.standard_normal((n_draws, self.shared.shape[2]))
        change = (
            (self.alone @ own[..., None])[..., 0] + np.tensordot(common, self.shared, (1, 2)) - xi @ self.basis
        )
        return np.asarray(self.z_mean + xi + change @ self.basis.T)

    def field_moments(self, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Mean and variance of every field, shape (n, n_classes) each."""
        found = self.fields_at(conditional, deviation)
        return found.mean, found.variance[:, None] + np.einsum("nkk->nk", found.cross)

    def fields_at(self, conditional: Matrix, deviation: Vector) -> FieldMoments:
        """The fields where ``u_k | z ~ N(M z_k, deviation^2)``, in the precision of M: `cross` is what labels touch."""
        return self._fields(conditional, deviation, _covariance)

    def _fields(self, conditional: Matrix, deviation: Vector, covariance: Callable[..., Any]) -> FieldMoments:
        with blas_threads(len(conditional) * self.shared[0].size):
            directions = np.column_stack([self.basis, self.z_mean.T]).astype(conditional.dtype, copy=False)
            at, mean = np.split(conditional @ directions, [self.basis.shape[1]], axis=1)
            outside = np.einsum("nj,nj->n", conditional, conditional) - np.einsum("nj,nj->n", at, at)
            alone = np.maximum(outside, 0) + np.square(deviation).astype(conditional.dtype, copy=False)
            return FieldMoments(mean, alone, covariance(at, self.alone, self.shared))

    def classes(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """The probability that each field, with noise, is the largest, shape (n, n_classes)."""
        covariance = _covariance_anywhere if self.sites.n_classes > 3 else _covariance
        return _largest(self._fields(conditional, deviation, covariance), noise)

    def first_sites(self, sites: StarSites, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Sites of new labels, each alone beside those that are there: precision and shift, shape (n, n_classes) each."""
        mean, variance, cross = self.fields_at(conditional, deviation)
        return lone_stars(sites, mean, cross + (variance + sites.noise)[:, None, None] * np.eye(sites.n_classes))

    def independent_variances(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """Variances of independent fields that stand for these, noise included, shape (n, n_classes)."""
        mean, variance, cross = self._fields(conditional, deviation, _covariance_anywhere)
        return matched_variances(mean, variance + noise**2, cross)

    def independent_classes(self, mean: Matrix, variance: Matrix) -> Matrix:
        """The probability that each of these is the largest."""
        return independent_probability(mean, variance)

    def labeled_classes(self) -> Matrix:
        """The same at the labeled nodes, without noise."""
        return _largest(FieldMoments(self.mean, np.zeros(len(self.mean)), self.covariance), 0.0)

    def left_out_classes(self, noise: float) -> Matrix:
        """The same at each labeled node given all labels but its own."""
        return _largest(self.left_out, noise)


def _largest(found: FieldMoments, noise: float) -> Matrix:
    return largest_probability_correlated(found.mean, found.variance + noise**2, found.cross)


def propagate(
    factor: Matrix,
    sites: StarSites,
    *,
    start: StarEP | Start | None = None,
    tolerance: float = 1e-8,
    max_sweeps: int = 200,
    negligible: float = 0.0,
) -> StarEP:
    """Fit a Gaussian to the posterior of z_k ~ N(0, I), k < K, given class labels; nothing is checked.

    With J = n_labeled and k = min(J, n_latent) or less, one sweep costs O(K (J k^2 + J^2 k) + J^3), or
    O(J (K k)^2 + (K k)^3) where there are few modes. The arguments
    are those of `ep.propagate`.
    """
    n_labeled, n_latent = factor.shape
    with blas_threads(n_labeled * min(n_labeled, n_latent) ** 2):
        basis, reduced, cut = span(factor, negligible * sites.noise)
        sites = replace(sites, noise=sites.noise + cut.sum())
        problem = _problem(reduced, sites)
        posterior = partial(posterior_of, problem)
        first = nothing = np.zeros(2 * sites.n_classes * n_labeled)
        if start is not None:
            first = np.concatenate([each.T.ravel() for each in (start.precision, start.shift)])
        fit = settle(posterior, sites.match, first, tolerance, max_sweeps)
        if not fit.converged and start is not None:
            fit = settle(posterior, sites.match, nothing, tolerance, max_sweeps, fit.n_sweeps)
        return _result(problem, basis, cut, fit)


def _problem(reduced: Matrix, sites: StarSites) -> StarProblem:
    """By modes, by nodes, or by nodes on an accelerator; a sentence instead of hours, or of no memory left."""
    (n_labeled, k), n_classes = reduced.shape, sites.n_classes
    wide = n_classes * k
    by_modes = n_labeled * wide**2 + wide**3
    by_nodes = n_classes * (n_labeled * k**2 + n_labeled**2 * k) + n_labeled**3
    few_modes = by_modes <= QUICKER_BY_MODES * by_nodes
    work = by_modes / 2 if few_modes else by_nodes
    there = _accelerator.takes_sweeps(work) and by_nodes < min(QUICKER_THERE * work, LARGEST_SWEEP)
    there = there and n_classes * n_labeled**2 <= LARGEST_THERE
    few_modes = few_modes and not there
    numbers = 3 * wide**2 if few_modes else 3 * n_classes * (n_labeled + k) * k
    numbers += 10 * n_classes**2 * n_labeled  # covariances between fields at every label
    if work > LARGEST_SWEEP or 8 * numbers > LARGEST_MEMORY:
        raise ValueError(
            f"Expectation propagation with {n_classes:,} classes and {n_labeled:,} labels would take about "
            f"{8 * numbers / 2**30:.1f} GB of memory and {work / 1e10:,.0f} seconds a sweep, of which learning takes "
            "thousands: keep fewer classes, labels or modes (n_modes), or choose a prior and sample."
        )
    if few_modes:
        return StarProblem(sites, reduced)
    levels = levels_of(reduced, sites)
    return StarProblem(sites, reduced, levels, by_nodes_of(levels, sites, there=there))


def _result(problem: StarProblem, basis: Matrix, cut: Vector, fit: Settled) -> StarEP:
    """All that a fixed point says, with the evidence

        log Z = sum_nk log s_nk - log det(I + C S) / 2 + shift . mean / 2 - J log total,

    s_nk the height of a site, which makes its belief times the site integrate to log_z_nk.
    """
    sites, reduced, now = problem.sites, problem.reduced, fit.posterior
    stars, gaps = now.parts
    own = stars.own
    precision, shift = fit.site.reshape(2, *own.shape)
    center = now.moments.mean.reshape(own.shape)
    slope = shift - precision * center
    b = np.where(own, slope.sum(axis=0), -slope)
    z_mean = b @ reduced  # S B^T shift = B^T (shift - T mean)
    alone, shared = _roots(problem, gaps)
    mean, covariance = reduced @ z_mean.T, _covariance(reduced, alone, shared)
    left = _left_out(stars, shift, sites.noise, mean, covariance)
    log_heights, flip_gradient = _heights(sites, now.moments, precision, shift)
    return StarEP(
        sites=sites,
        precision=precision.T,
        shift=shift.T,
        mean=mean,
        covariance=covariance,
        left_out=_split(left.mean, left.covariance),
        log_predictive=log_heights + left.log_mass / 2,
        z_mean=z_mean @ basis.T,
        basis=basis,
        cut=cut,
        alone=alone,
        shared=shared,
        log_evidence=float(log_heights.sum() + (np.sum(shift * center) - now.log_det) / 2),
        noise_gradient=float(np.sum(b * b) - left.trace) / 2,
        flip_gradient=flip_gradient,
        n_sweeps=fit.n_sweeps,
        converged=fit.converged,
    )


def _heights(sites: StarSites, now: Moments, precision: Matrix, shift: Matrix) -> tuple[Vector, float]:
    """``sum_k log s_nk - log total`` of every node n, and the derivative of the sum over n by `log_flip`."""
    own, half_space, (log_total, total_slope) = sites.own(), sites.half_space(), sites.log_total()
    gap, width = (each.reshape(own.shape) for each in (now.cavity_mean, now.cavity_variance))
    log_heights = heights(half_space.match(gap, width).log_z, gap, width, precision, shift)
    flips = half_space.flip_gradient(gap[~own], width[~own])
    return np.where(own, 0, log_heights).sum(axis=0) - log_total, flips - sites.labels.size * total_slope


class _LeftOut(NamedTuple):
    """The K fields at every labeled node without its own label, and what the label's sites add there."""

    mean: Matrix  # (n_labeled, n_classes)
    covariance: Stack  # (n_labeled, n_classes, n_classes)
    log_mass: Vector  # twice the log of what the sites integrate to under it, their heights aside
    trace: float  # of R, the precision of the labels, over all nodes


def _left_out(stars: Stars, shift: Matrix, noise: float, mean: Matrix, covariance: Stack) -> _LeftOut:
    """Take each node's own term exp(-u^T T u / 2 + f^T u) out of its N(m, V). With A = I - V T,

        V_- = A^-1 V,    m_- = A^-1 (m - V f),    trace = sum_n tr T A.

    The node's sites, with precisions tau_k and shifts nu_k, are this term times what is left of integrating the noise out:

        log_mass = log det A - m . T m_- + f . (m + m_-)
                   + sum_k (noise nu_k + offset) rho_k nu_k - log det(I + noise diag(tau)) - log(noise / variance),

    where rho, offset, variance and the logarithms are those of `Stars`.
    """
    term, force = stars.term.transpose(2, 0, 1), stars.force.T
    kept = np.eye(mean.shape[1]) - covariance @ term
    left: Any = np.linalg.solve(kept, np.dstack([covariance, mean - _times(covariance, force)]))
    without = left[..., -1]
    log_mass = np.linalg.slogdet(kept)[1] - np.sum(mean * _times(term, without) - force * (mean + without), axis=1)
    log_mass += np.sum((noise * shift + stars.offset) * stars.shift, axis=0)
    log_mass -= stars.log_det + stars.log_grown
    return _LeftOut(without, left[..., :-1], log_mass, float(np.sum(term * kept.swapaxes(1, 2))))


def _times(matrices: Stack, vectors: Matrix) -> Matrix:
    return (matrices @ vectors[..., None])[..., 0]


def _roots(problem: StarProblem, gaps: Gaps) -> tuple[Stack, Stack]:
    """`alone` and `shared` of the result."""
    levels, k, spread = problem.levels, problem.reduced.shape[1], np.asarray(gaps.spread)
    if levels is None:
        shared = spread.reshape(-1, k, len(spread))
        return shared[:, :, :0], shared
    alone = levels.narrow @ np.asarray(gaps.alone)[:, :k, :k]
    return alone, alone @ np.asarray(gaps.moved)[:, :k] + [levels.turn[:, own] @ spread[own] for own in levels.own]


def _covariance(at: Matrix, alone: Stack, shared: Stack) -> Stack:
    """Of the fields ``at z_k``, one matrix for each row of `at` and in its precision."""
    roots, n_classes = _side_by_side(at, shared, alone), len(shared)
    result = np.empty((len(at), n_classes, n_classes), at.dtype)
    size = max(LEAST_ROWS, CACHED // sum(root.shape[1] for root in roots))
    for rows in (slice(first, first + size) for first in range(0, len(at), size)):
        result[rows] = _products(np, at[rows], roots, n_classes)
    return result


def _covariance_anywhere(at: Matrix, alone: Stack, shared: Stack) -> Any:
    """The same; of many rows on an accelerator, if there is one, where it stays, in single precision and a whole block."""
    n_classes = len(shared)
    if not go_there(len(at)) or len(at) > rows_at_once(n_classes):
        return _covariance(at, alone, shared)
    # doubles: single precision was left when XLA still tried many products for the quickest, and not measured since
    at = _accelerator.whole_block(_accelerator.widened(at.astype(float), 1), rows_at_once(n_classes))
    roots = _side_by_side(at, *(_accelerator.widened(each, 1, 2) for each in (shared, alone)))
    n_numbers = len(at) * sum(root.shape[1] for root in roots)
    n_parts = min(len(at), 2 ** math.ceil(math.log2(max(1, n_numbers / MOST_THERE))))
    with _accelerator.precise():
        return _products_there(at, roots, n_classes, n_parts)


def _side_by_side(at: Matrix, *stacks: Stack) -> list[Matrix]:
    return [np.hstack([*each]).astype(at.dtype, copy=False) for each in stacks]


def _products(xp: Any, at: Any, roots: Sequence[Any], n_classes: int) -> Any:
    """``sum_r shared_k shared_l + delta_kl sum_r alone_k^2`` at each row; xp is NumPy or jax.numpy."""
    common, own = ((at @ root).reshape(len(at), n_classes, -1) for root in roots)
    each = xp.einsum("nki,nki->nk", own, own)
    return common @ common.swapaxes(1, 2) + each[:, :, None] * np.eye(n_classes, dtype=at.dtype)


@partial(_accelerator.compiled, static=(2, 3))
def _products_there(at: jax.Array, roots: Sequence[jax.Array], n_classes: int, n_parts: int) -> jax.Array:
    parts = at.reshape(n_parts, -1, at.shape[1])
    found = jax.lax.map(lambda part: _products(jnp, part, roots, n_classes), parts)
    return found.reshape(-1, n_classes, n_classes).astype(jnp.float32)


def _split(mean: Matrix, covariance: Stack) -> FieldMoments:
    """The largest common variance is the least eigenvalue."""
    covariance = (covariance + covariance.swapaxes(1, 2)) / 2
    variance = np.maximum(np.linalg.eigvalsh(covariance)[:, 0], 0)
    return FieldMoments(mean, variance, covariance - variance[:, None, None] * np.eye(mean.shape[1]))


Fit: TypeAlias = EP | StarEP  # what expectation propagation finds, of one field or of one for each class
