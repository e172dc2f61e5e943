"""Expectation propagation for many classes: the whitening map and class labels in, a Gaussian of K fields out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, eigh, qr
from scipy.linalg.lapack import dpotrf, dtrtri

from graphuq.inference import ep
from graphuq.inference.ep import EvidenceGradient, Gaussian, Matrix, Vector, blas_threads
from graphuq.inference.largest import largest_probability_correlated
from graphuq.inference.sites import Sites

Stack = NDArray[np.float64]  # matrices, one for each class or each node
Whole = NDArray[np.int_]
# Roots at many nodes are formed about this many numbers at a time.
BLOCK = 2**21
# By modes, a sweep costs less up to so many coordinates of all fields a label; measured for 3 to 32 classes.
FEW_MODES = 1.5


class FieldMoments(NamedTuple):
    """The K fields at some nodes: covariance ``variance I + cross``, the variance as large as it can be."""

    mean: Matrix  # (n_nodes, n_classes)
    variance: Vector  # (n_nodes,)
    cross: Stack  # (n_nodes, n_classes, n_classes), positive semi-definite


@dataclass(frozen=True)
class StarSites:
    """Labels of K classes as half-spaces of the noisy fields g = u + N(0, noise).

        P(c | g) ~ prod_{k != c} [delta + (1 - 2 delta) 1(g_c > g_k)]

    Without delta the label is the largest field's. With it, the class whose field m others exceed is the label
    with probability r^m / sum_{i < K} r^i, r = delta / (1 - delta).

    Attributes:
        labels: the class of every labeled node, 0 to n_classes - 1, shape (n_labeled,).
        n_classes: K.
        noise: variance of the noise of each field.
        log_flip: log of delta.
        noise_slope, flip_slope: derivatives of `noise` and `log_flip` by the parameters that set them.
    """

    labels: Whole
    n_classes: int
    noise: float
    log_flip: float = -np.inf
    noise_slope: float = 0.0
    flip_slope: float = 0.0

    def own(self) -> NDArray[np.bool_]:
        """Which field is a node's own, shape (n_classes, n_labeled)."""
        return np.asarray(np.arange(self.n_classes)[:, None] == self.labels)

    def fit(self, factor: Matrix, **settings: Any) -> StarEP:
        """The Gaussian of expectation propagation, see `propagate`."""
        return propagate(factor, self, **settings)

    def half_space(self) -> Sites:
        """The likelihood of ``d = g_c - g_k`` for one k."""
        return Sites(np.ones(1), 0.0, self.log_flip)

    def log_total(self) -> tuple[float, float]:
        """Log of the sum over c of the product above, and its derivative by `log_flip`."""
        if self.log_flip == -np.inf:
            return 0.0, 0.0
        delta, rank = np.exp(self.log_flip), np.arange(self.n_classes)
        log_each = rank * self.log_flip + rank[::-1] * np.log1p(-delta)
        log_total = np.logaddexp.reduce(log_each)
        slope = np.exp(log_each - log_total) @ (rank - rank[::-1] * delta / (1 - delta))
        return float(log_total), float(slope)


@dataclass(frozen=True)
class StarEP:
    """The Gaussian that expectation propagation puts in place of the posterior of K fields.

    Field k is ``u_k = B z_k`` at the labeled nodes. With Q = `basis`, z has means `z_mean` and covariances
    ``delta_kl (I - Q Q^T + Q alone_k alone_k^T Q^T) + Q shared_k shared_l^T Q^T``.

    Attributes:
        sites: the likelihood of the labels.
        precision, shift: natural parameters of the sites of d_nk = g_nc - g_nk, shape (n_labeled, n_classes), 0
            where k is the label; a later call starts from them.
        left_out: u at each labeled node given all labels but its own.
        log_predictive: ``log P(label of n | all other labels)``, shape (n_labeled,).
        z_mean: shape (n_classes, n_latent).
        basis: orthonormal columns, shape (n_latent, k), k = min(n_labeled, n_latent).
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
    alone: Stack
    shared: Stack
    log_evidence: float
    noise_gradient: float
    flip_gradient: float
    n_sweeps: int
    converged: bool

    def gradient(self) -> EvidenceGradient:
        """Derivatives of the evidence."""
        return evidence_gradient(self)

    def gaussian(self) -> Gaussian:
        """The posterior of z, one field after another."""
        return gaussian(self)

    def field_moments(self, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Mean and variance of every field, shape (n, n_classes) each."""
        found = moments(self, conditional, deviation)
        return found.mean, found.variance[:, None] + np.einsum("nkk->nk", found.cross)

    def classes(self, conditional: Matrix, deviation: Vector, noise: float, n_points: int = 64) -> Matrix:
        """The probability that each field, with noise, is the largest, shape (n, n_classes)."""
        return _largest(moments(self, conditional, deviation), noise, n_points)

    def labeled_classes(self, noise: float) -> Matrix:
        """The same at the labeled nodes."""
        return _largest(_split(self.mean, self.covariance), noise, 64)

    def left_out_classes(self, noise: float) -> Matrix:
        """The same at each labeled node given all labels but its own."""
        return _largest(self.left_out, noise, 64)


def _largest(found: FieldMoments, noise: float, n_points: int) -> Matrix:
    return largest_probability_correlated(found.mean, found.variance + noise**2, found.cross, n_points=n_points)


def padded(start: StarEP, positions: Whole, n_labeled: int) -> tuple[Matrix, Matrix]:
    """Sites to start from when labels were added: those of `start` at their new positions, no others yet."""
    precision, shift = np.zeros((2, n_labeled, start.sites.n_classes))
    precision[positions], shift[positions] = start.precision, start.shift
    return precision, shift


def propagate(
    factor: Matrix,
    sites: StarSites,
    *,
    start: StarEP | tuple[Matrix, Matrix] | None = None,
    tolerance: float = 1e-8,
    max_sweeps: int = 200,
) -> StarEP:
    """Fit a Gaussian to the posterior of z_k ~ N(0, I), k < K, given class labels; nothing is checked.

    With J = n_labeled and k = min(J, n_latent), one sweep costs O(K (J k^2 + J^2 k) + J^3), or
    O(J (K k)^2 + (K k)^3) where there are few modes.

    Args:
        factor: B, shape (n_labeled, n_latent); row n belongs to label n.
        sites: the likelihood of the labels.
        start: an earlier result with the same labels, or (precision, shift), for a warm start.
        tolerance: sweeps end when no moment is off by more than this many posterior deviations.
        max_sweeps: sweeps after which an attempt is given up.
    """
    n_labeled, n_latent = factor.shape
    with blas_threads(n_labeled * min(n_labeled, n_latent) ** 2):
        basis, reduced = np.eye(n_latent), factor
        if n_labeled < n_latent:
            basis, triangle = (np.asarray(x, float) for x in qr(factor.T, mode="economic", check_finite=False))
            reduced = np.ascontiguousarray(triangle.T)
        few_modes = sites.n_classes * reduced.shape[1] <= FEW_MODES * n_labeled
        problem = _Problem(sites, reduced, None if few_modes else _levels(reduced, sites))
        first = nothing = np.zeros(2 * sites.n_classes * n_labeled)
        if start is not None:
            pair = (start.precision, start.shift) if isinstance(start, StarEP) else start
            first = np.concatenate([each.T.ravel() for each in pair])
        fit = _settle(problem, first, tolerance, max_sweeps)
        if not fit.converged and start is not None:
            fit = _settle(problem, nothing, tolerance, max_sweeps, fit.n_sweeps)
        return _result(problem, basis, fit)


class _Levels(NamedTuple):
    """The prior around the levels a_n = g_nc: with xi, zeta_k ~ N(0, I) independent,

        a = level xi,    z_k = turn[:, own_k] xi[own_k] + narrow_k zeta_k.

    Singular values of B at the nodes of a class give all three without dividing by small numbers.
    """

    own: list[Whole]  # for every class its nodes
    level: Matrix  # (n_labeled, n_labeled)
    turn: Matrix  # (k, n_labeled)
    narrow: Stack  # (n_classes, k, k)
    follow: Matrix  # B turn
    factor: Stack  # B narrow


class _Problem(NamedTuple):
    """What stays the same from sweep to sweep."""

    sites: StarSites
    reduced: Matrix  # B, (n_labeled, k)
    levels: _Levels | None  # where sweeps go by nodes


def _levels(reduced: Matrix, sites: StarSites) -> _Levels:
    n_labeled, k = reduced.shape
    own = [np.flatnonzero(sites.labels == c) for c in range(sites.n_classes)]
    level, turn = np.zeros((n_labeled, n_labeled)), np.zeros((k, n_labeled))
    narrow = np.tile(np.eye(k), (sites.n_classes, 1, 1))
    for nodes, spread in zip(own, narrow, strict=True):
        left, s, right = np.linalg.svd(reduced[nodes])
        deviation = np.sqrt(np.append(s, np.zeros(nodes.size - s.size)) ** 2 + sites.noise)
        level[np.ix_(nodes, nodes)] = left * deviation
        seen = np.flatnonzero(s)
        v, size = right[seen].T, deviation[seen]
        turn[:, nodes[seen]] = v * (s[seen] / size)
        spread -= v * (1 - np.sqrt(sites.noise) / size) @ v.T
    return _Levels(own, level, turn, narrow, reduced @ turn, reduced @ narrow)


class _Stars(NamedTuple):
    """The sites of d_nk = a_n - g_nk as sites of the gaps a_n - u_nk, the noise of g_nk integrated out, and those
    of a node as one Gaussian term in its u, a_n ~ N(u_nc, noise) integrated out too; (n_classes, n_labeled).
    """

    own: NDArray[np.bool_]
    rho: Matrix  # 1 / (1 + noise tau), what the noise leaves of a site; 0 for k = c, where there is no gap
    weight: Matrix  # rho tau
    shift: Matrix  # rho nu
    log_det: Vector  # of I + noise diag(tau)
    term: Stack  # precision of u, (n_classes, n_classes, n_labeled)
    force: Matrix  # shift of u
    share: Matrix  # given u, a has mean share . u + offset
    offset: Vector
    variance: Vector  # of a given u
    log_grown: Vector  # log(noise / variance)


def _stars(sites: StarSites, site: Vector) -> _Stars | None:
    """None where sites widen by more than the noise allows."""
    own, noise = sites.own(), sites.noise
    precision, shift = site.reshape(2, *own.shape)
    scale = 1 + noise * precision
    rho = np.where(own, 0, 1 / np.where(scale > 1e-9, scale, np.nan))
    weight, shift = rho * precision, rho * shift
    total, push = weight.sum(axis=0), shift.sum(axis=0)
    grown = 1 + noise * total
    if not (grown > 1e-9).all():
        return None
    share, offset = np.where(own, 1, noise * weight) / grown, noise * push / grown
    term = -np.where(own[:, None], share[:, None] * weight, weight[:, None] * share)
    k = np.arange(len(own))
    term[k, k] = np.where(own, share * total, weight * (1 - share))
    force = np.where(own, share * push, weight * offset - shift)
    log_det, log_grown = np.log(scale).sum(axis=0), np.log(grown)
    return _Stars(own, rho, weight, shift, log_det, term, force, share, offset, noise / grown, log_grown)


class _Joint(NamedTuple):
    """The Gaussian of the gaps a_n - u_nk, and roots of what it is made of."""

    log_det: float  # of all precisions, those of the prior being I
    mean: Matrix  # (n_classes, n_labeled)
    variance: Matrix
    spread: Matrix  # root of the covariance of xi, or by modes of z
    alone: list[Matrix]  # by nodes: roots of the covariance of zeta_k given xi,
    moved: list[Matrix]  # and where deviations of xi move those


def _inverse_root(matrix: Matrix) -> Matrix | None:
    """R with ``R R^T`` the inverse of I + matrix, whose upper triangle is overwritten; None if not positive."""
    matrix.flat[:: len(matrix) + 1] += 1
    cholesky, failed = dpotrf(matrix.T, lower=1, overwrite_a=1)
    if failed or not np.isfinite(cholesky[-1, -1]):
        return None
    return np.asarray(dtrtri(cholesky, lower=1, overwrite_c=1)[0].T)


def _by_nodes(levels: _Levels, sites: StarSites, stars: _Stars) -> _Joint | None:
    """Given xi the fields are independent, and the gaps of field k are ``D_k xi - B_k zeta_k``. So first xi,

    precision  I + sum_k D_k^T (W_k^-1 + B_k B_k^T)^-1 D_k,    D_k = level - follow on the columns own_k.
    """
    level, follow = levels.level, levels.follow
    tied = stars.weight[sites.labels].T * follow
    cross = level.T @ tied
    precision = level.T @ (stars.weight.sum(axis=0)[:, None] * level) - cross - cross.T
    precision += np.where(sites.labels[:, None] == sites.labels, follow.T @ tied, 0)
    push, roots, parts = np.zeros(len(level)), [], []
    for weight, shift, factor, own in zip(stars.weight, stars.shift, levels.factor, levels.own, strict=True):
        root = _inverse_root(factor.T @ (weight[:, None] * factor))
        if root is None:
            return None
        half = factor @ root
        heavy = half.T * weight
        drag = heavy @ level
        drag[:, own] -= heavy @ follow[:, own]
        precision -= drag.T @ drag
        pull = half.T @ shift
        free = shift - pull @ heavy
        push += free @ level
        push[own] -= free @ follow[:, own]
        roots.append(root)
        parts.append((half, drag, pull, own))
    spread = _inverse_root(precision)
    if spread is None:
        return None
    xi = np.column_stack([spread, spread @ (push @ spread)])  # its deviations, then its mean
    a = level @ xi
    mean, variance, moves = [], [], []
    for half, drag, pull, own in parts:
        moved = drag @ xi
        moved[:, -1] -= pull
        gap = a - follow[:, own] @ xi[own] - half @ moved
        mean.append(gap[:, -1])
        variance.append(np.square(half).sum(axis=1) + np.square(gap[:, :-1]).sum(axis=1))
        moves.append(moved[:, :-1])
    log_det = stars.log_det.sum() - 2 * sum(np.log(root.diagonal()).sum() for root in [spread, *roots])
    return _Joint(float(log_det), np.array(mean), np.array(variance), spread, roots, moves)


def _by_modes(reduced: Matrix, stars: _Stars) -> _Joint | None:
    """All fields' z at once: better with many labels on few modes."""
    (n_labeled, k), n_classes = reduced.shape, len(stars.own)
    precision = np.zeros((n_classes, k, n_classes, k))
    for c in range(n_classes):
        wide = stars.term[c, c:].T[:, :, None] * reduced[:, None]
        precision[c, :, c:] = (reduced.T @ wide.reshape(n_labeled, -1)).reshape(k, -1, k)
    spread = _inverse_root(precision.reshape(n_classes * k, -1))
    if spread is None:
        return None
    u = (spread @ ((stars.force @ reduced).ravel() @ spread)).reshape(n_classes, k) @ reduced.T
    mean = (stars.share * u).sum(axis=0) + stars.offset - u
    variance = np.empty_like(mean)
    for nodes in _blocks(n_labeled, spread.size // k):
        half = (reduced[nodes] @ spread.reshape(n_classes, k, -1)).swapaxes(0, 1)
        gap = stars.share.T[nodes, None] @ half - half
        variance[:, nodes] = np.square(gap).sum(axis=2).T + stars.variance[nodes]
    log_det = (stars.log_det + stars.log_grown).sum() - 2 * np.log(spread.diagonal()).sum()
    return _Joint(float(log_det), mean, variance, spread, [], [])


def _blocks(n_nodes: int, n_each: int) -> list[slice]:
    size = max(1, BLOCK // n_each)
    return [slice(i, i + size) for i in range(0, n_nodes, size)]


class _State(NamedTuple):
    """The Gaussian that given sites stand for."""

    stars: _Stars
    joint: _Joint
    half_spaces: ep._Posterior  # of d and of its cavities, field after field


class _Fit(NamedTuple):
    """Where the sweeps ended."""

    site: Vector  # all precisions, then all shifts
    state: _State
    n_sweeps: int
    converged: bool


def _state(problem: _Problem, site: Vector) -> _State | None:
    """None where the sites do not make a proper Gaussian."""
    sites, reduced, levels = problem
    stars = _stars(sites, site)
    if stars is None:
        return None
    joint = _by_modes(reduced, stars) if levels is None else _by_nodes(levels, sites, stars)
    if joint is None:
        return None
    precision, shift = np.split(site, 2)
    mean = (stars.rho * joint.mean + sites.noise * stars.shift).ravel()
    variance = (stars.rho * (sites.noise + stars.rho * joint.variance)).ravel()
    left = 1 - precision * variance
    if not (left > 1e-12).all():
        return None
    cavity = (mean - variance * shift) / left, np.where(stars.own.ravel(), 1, variance / left)
    return _State(stars, joint, ep._Posterior(joint.spread, joint.log_det, mean, variance, *cavity))


def _settle(problem: _Problem, start: Vector, tolerance: float, max_sweeps: int, n_sweeps: int = 0) -> _Fit:
    """Sweep all sites at once until every site reproduces its tilted moments, as `ep` does for one field."""
    half_space, real = problem.sites.half_space(), ~problem.sites.own().ravel()
    site, state = start, _state(problem, start)
    if state is None:  # sites of another problem: begin with none
        site = np.zeros_like(start)
        state = _state(problem, site)
    assert state is not None  # the prior is proper
    step, last = 1.0, np.inf
    history: list[tuple[Vector, Vector]] = []
    for sweep in range(n_sweeps + 1, n_sweeps + max_sweeps + 1):
        now = state.half_spaces
        target = half_space.match(now.cavity_mean, now.cavity_variance)
        change = np.concatenate([real * target.precision, real * target.shift]) - site
        size = np.abs(ep._in_deviations(change, now)).max()
        if size < tolerance:
            return _Fit(site, state, sweep, True)
        history = [*history[-ep.ACCELERATION_MEMORY :], (site, change)] if size < min(last, ep.CLOSE) else []
        step = max(step / 2, 0.02) if size > last else min(1.0, 1.2 * step)
        last = size
        new = site + (ep._leap(history, now) if len(history) > 1 else step * change)
        moved = _state(problem, new)
        while moved is None:  # sites that widen can leave no proper Gaussian: go less far
            step /= 4
            if step < 1e-3:
                return _Fit(site, state, sweep, False)
            new = site + step * change
            moved = _state(problem, new)
        site, state = new, moved
    return _Fit(site, state, n_sweeps + max_sweeps, False)


def _result(problem: _Problem, basis: Matrix, fit: _Fit) -> StarEP:
    """All that a fixed point says, with the evidence

        log Z = sum_nk log s_nk - log det(I + C S) / 2 + shift . mean / 2 - J log total,

    s_nk the height of a site, which makes its belief times the site integrate to log_z_nk.
    """
    (sites, reduced, _), (stars, joint, now) = problem, fit.state
    own, half_space, (log_total, total_slope) = stars.own, sites.half_space(), sites.log_total()
    precision, shift = fit.site.reshape(2, *own.shape)
    center, gap, width = (x.reshape(own.shape) for x in (now.mean, now.cavity_mean, now.cavity_variance))
    grown = 1 + width * precision
    heights = half_space.match(gap, width).log_z + np.log(grown) / 2
    heights -= (2 * gap * shift + width * shift**2 - gap**2 * precision) / (2 * grown)
    heights = np.where(own, 0, heights).sum(axis=0) - log_total

    slope = shift - precision * center
    b = np.where(own, slope.sum(axis=0), -slope)
    z_mean = b @ reduced  # S B^T shift = B^T (shift - T mean)
    alone, shared = _roots(problem, joint)
    mean, covariance = reduced @ z_mean.T, _covariance(reduced, alone, shared)
    # The Gaussian of a node's u without its term, and what the term integrates to under it.
    term, force = stars.term.transpose(2, 0, 1), stars.force.T
    kept = np.eye(sites.n_classes) - covariance @ term
    left = np.linalg.solve(kept, np.dstack([covariance, mean - _times(covariance, force)]))
    without = left[..., -1]
    log_mass = np.linalg.slogdet(kept)[1] - np.sum(mean * _times(term, without) - force * (mean + without), axis=1)
    log_mass += np.sum((sites.noise * shift + stars.offset) * stars.shift, axis=0)
    log_mass -= stars.log_det + stars.log_grown
    flips = half_space.flip_gradient(gap[~own], width[~own])
    return StarEP(
        sites=sites,
        precision=precision.T,
        shift=shift.T,
        mean=mean,
        covariance=covariance,
        left_out=_split(without, left[..., :-1]),
        log_predictive=heights + log_mass / 2,
        z_mean=z_mean @ basis.T,
        basis=basis,
        alone=alone,
        shared=shared,
        log_evidence=float(heights.sum() + (np.sum(shift * center) - joint.log_det) / 2),
        noise_gradient=float(np.sum(b * b) - np.sum(term * kept.swapaxes(1, 2))) / 2,
        flip_gradient=flips - sites.labels.size * total_slope,
        n_sweeps=fit.n_sweeps,
        converged=fit.converged,
    )


def _times(matrices: Stack, vectors: Matrix) -> Matrix:
    return (matrices @ vectors[..., None])[..., 0]


def _roots(problem: _Problem, joint: _Joint) -> tuple[Stack, Stack]:
    """`alone` and `shared` of the result."""
    levels, k = problem.levels, problem.reduced.shape[1]
    if levels is None:
        shared = joint.spread.reshape(-1, k, len(joint.spread))
        return shared[:, :, :0], shared
    alone = levels.narrow @ np.array(joint.alone)
    return alone, alone @ np.array(joint.moved) + [levels.turn[:, own] @ joint.spread[own] for own in levels.own]


def _covariance(at: Matrix, alone: Stack, shared: Stack) -> Stack:
    """Of the fields ``at z_k``, one matrix for each row of `at`."""
    k = np.arange(len(shared))
    result = np.empty((len(at), k.size, k.size))
    for rows in _blocks(len(at), k.size * shared.shape[2]):
        half = at[rows] @ shared
        result[rows] = half.swapaxes(0, 1) @ half.transpose(1, 2, 0)
        result[rows, k, k] += np.square(at[rows] @ alone).sum(axis=2).T
    return result


def _split(mean: Matrix, covariance: Stack) -> FieldMoments:
    """The largest common variance is the least eigenvalue."""
    covariance = (covariance + covariance.swapaxes(1, 2)) / 2
    variance = np.maximum(np.linalg.eigvalsh(covariance)[:, 0], 0)
    return FieldMoments(mean, variance, covariance - variance[:, None, None] * np.eye(mean.shape[1]))


def moments(result: StarEP, conditional: Matrix, deviation: Vector) -> FieldMoments:
    """The K fields at nodes where ``u_k | z ~ N(M z_k, deviation^2)``, M of shape (n_nodes, n_latent)."""
    with blas_threads(len(conditional) * result.shared[0].size):
        at = conditional @ result.basis
        outside = np.square(conditional).sum(axis=1) - np.square(at).sum(axis=1)
        found = _split(conditional @ result.z_mean.T, _covariance(at, result.alone, result.shared))
        return found._replace(variance=found.variance + np.maximum(outside, 0) + np.square(deviation))


def leave_one_out(result: StarEP) -> FieldMoments:
    """The K fields u at each labeled node given all labels but its own, without the noise."""
    return result.left_out


def gaussian(result: StarEP) -> Gaussian:
    """The posterior of z, one field after the other, as one mean and one square factor; O((K n_latent)^3)."""
    n_classes, k = result.shared.shape[:2]
    shared = result.shared.reshape(n_classes * k, -1)
    covariance = shared @ shared.T + block_diag(*(each @ each.T for each in result.alone))
    values, vectors = eigh(covariance, check_finite=False)
    root = (vectors * np.sqrt(np.maximum(values, np.finfo(float).eps))) @ vectors.T
    basis = np.kron(np.eye(n_classes), result.basis)
    factor = basis @ (root - np.eye(len(root))) @ basis.T
    factor.flat[:: len(factor) + 1] += 1
    return Gaussian(result.z_mean.ravel(), factor)


def evidence_gradient(result: StarEP) -> EvidenceGradient:
    """Exact derivatives of the evidence: at the fixed point the sites do not count.

    With ``C = sum_j v_j q_j q_j^T + noise I`` the covariance of each field,

        d log Z / dC = sum_k (b_k b_k^T - R_kk) / 2,    d log Z / d log v_j = sum_k (E z_kj^2 - 1) / 2.
    """
    sites, basis = result.sites, result.basis
    with blas_threads(basis.size * basis.shape[1]):
        change = sum(np.tensordot(x, x, ((0, 2), (0, 2))) for x in (result.alone, result.shared))
        change -= sites.n_classes * np.eye(basis.shape[1])
        twice = np.square(result.z_mean).sum(axis=0) + np.einsum("ij,ij->i", basis @ change, basis)
    gamma = sites.noise_slope * result.noise_gradient + sites.flip_slope * result.flip_gradient
    return EvidenceGradient(log_variances=twice / 2, tail=0.0, gamma=gamma, log_flip=result.flip_gradient)
