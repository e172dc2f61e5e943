"""Sites of K-class labels in; the Gaussian over K fields that they define out.

A label is a set of half-spaces, in each of which the field of its class exceeds one of the others. All of them share
that field, so the sites of a node form a star.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq import _accelerator
from graphuq.inference.sites import Match, Sites, scaled
from graphuq.inference.span import Matrix, Vector
from graphuq.inference.sweeps import OfSites, inverse_root, with_cavities
from graphuq.tall import row_blocks

if TYPE_CHECKING:
    from graphuq.inference.star_ep import StarEP

Stack = NDArray[np.float64]  # matrices, one for each class or each node
Whole = NDArray[np.int_]
# Largest number of matrix entries that a batch of classes has on an accelerator.
MOST_ON_GPU = 2**26
# Number and damping of the sweeps over the sites of one label, which only provide a start and need not converge,
# and the smallest ratio of cavity to marginal precision.
LONE_SWEEPS, LONE_STEP, LEAST_LEFT = 12, 0.7, 1e-3


@dataclass(frozen=True, eq=False)
class StarSites:
    """Labels of K classes as half-spaces of the noisy fields g = u + N(0, noise).

        P(c | g) ~ prod_{k != c} [delta + (1 - 2 delta) 1(g_c > g_k)]

    For delta = 0 the label is the class of the largest field. Otherwise a class whose field is exceeded by m
    others is the label with probability r^m / sum_{i < K} r^i, r = delta / (1 - delta).

    Attributes:
        labels: the class of every labeled node, 0 to n_classes - 1, shape (n_labeled,).
        n_classes: K.
        noise: variance of the noise of each field.
        log_flip: log of delta.
        noise_slope: derivative of `noise` with respect to gamma.
        scale: factor of the fields of each label, as in `Sites`.
    """

    labels: Whole
    n_classes: int
    noise: float
    log_flip: float = -np.inf
    noise_slope: float = 0.0
    scale: Vector | None = None

    def own(self) -> NDArray[np.bool_]:
        """Mask of the field of each node's label, its own field, shape (n_classes, n_labeled)."""
        return np.asarray(np.arange(self.n_classes)[:, None] == self.labels)

    def fit(self, factor: Matrix, **settings: Any) -> StarEP:
        """Run expectation propagation, see `star_ep.propagate`."""
        from graphuq.inference.star_ep import propagate

        return propagate(scaled(factor, self.scale), self, **settings)

    def half_space(self) -> Sites:
        """The likelihood of ``d = g_c - g_k`` for one k."""
        return Sites(np.ones(1), 0.0, self.log_flip)

    def match(self, mean: Vector, variance: Vector) -> Match:
        """Match the tilted moments of every d, field by field; a node's own field has no site."""
        match, has_site = self.half_space().match(mean, variance), ~self.own().ravel()
        return Match(match.log_z, has_site * match.precision, has_site * match.shift)

    def relative_likelihood(self, g: Stack) -> Matrix:
        """The product above at noisy fields g, up to a factor; shape (n_labeled, n_points) of (n_labeled, K, n_points)."""
        exceeded = (g > np.take_along_axis(g, self.labels[:, None, None], axis=1)).sum(axis=1)
        odds = np.exp(self.log_flip - np.log1p(-np.exp(self.log_flip)))
        return np.asarray(odds**exceeded)

    def log_total(self) -> tuple[float, float]:
        """Log of the sum over c of the product above, and its derivative with respect to `log_flip`."""
        if self.log_flip == -np.inf:
            return 0.0, 0.0
        delta, rank = np.exp(self.log_flip), np.arange(self.n_classes)
        log_terms = rank * self.log_flip + rank[::-1] * np.log1p(-delta)
        log_total = np.logaddexp.reduce(log_terms)
        slope = np.exp(log_terms - log_total) @ (rank - rank[::-1] * delta / (1 - delta))
        return float(log_total), float(slope)


class Levels(NamedTuple):
    """The prior in terms of the levels a_n = g_nc, the noisy own fields: with xi, zeta_k ~ N(0, I) independent,

        a = level xi,    z_k = turn[:, own_k] xi[own_k] + narrow_k zeta_k.

    An SVD of B at the nodes of each class gives all three without dividing by small numbers.
    """

    own: list[Whole]  # the nodes labeled with each class
    level: Matrix  # (n_labeled, n_labeled)
    turn: Matrix  # (k, n_labeled)
    narrow: Stack  # (n_classes, k, k)
    follow: Matrix  # B turn
    ties: list[Matrix]  # follow[:, own_k]
    factor: Stack  # B narrow


def levels_of(reduced: Matrix, sites: StarSites) -> Levels:
    """Compute the `Levels` of the prior ``u_k = B z_k``; B has shape (n_labeled, k)."""
    n_labeled, k = reduced.shape
    own = [np.flatnonzero(sites.labels == c) for c in range(sites.n_classes)]
    level, turn = np.zeros((n_labeled, n_labeled)), np.zeros((k, n_labeled))
    narrow = np.tile(np.eye(k), (sites.n_classes, 1, 1))
    for nodes, narrow_k in zip(own, narrow, strict=True):
        left, s, right = np.linalg.svd(reduced[nodes])
        deviation = np.sqrt(np.append(s, np.zeros(nodes.size - s.size)) ** 2 + sites.noise)
        level[np.ix_(nodes, nodes)] = left * deviation
        nonzero = np.flatnonzero(s)
        v, scale = right[nonzero].T, deviation[nonzero]
        turn[:, nodes[nonzero]] = v * (s[nonzero] / scale)
        narrow_k -= v * (1 - np.sqrt(sites.noise) / scale) @ v.T
    follow = reduced @ turn
    return Levels(own, level, turn, narrow, follow, [follow[:, nodes] for nodes in own], reduced @ narrow)


class Stars(NamedTuple):
    """The sites of d_nk = a_n - g_nk with the noise integrated out; shape (n_classes, n_labeled).

    `weight` and `shift` are the sites of the gaps a_n - u_nk, without the noise of g_nk; `terms_of` and
    `force_of` combine those of a node into one Gaussian term in its u, with a_n ~ N(u_nc, noise) integrated out.
    """

    own: NDArray[np.bool_]
    rho: Matrix  # 1 / (1 + noise tau), by which the noise weakens a site; 0 for k = c, where there is no gap
    weight: Matrix  # rho tau
    shift: Matrix  # rho nu
    log_det: Vector  # of I + noise diag(tau)
    share: Matrix  # given u, a has mean share . u + offset, see `force_of`
    variance: Vector  # of a given u
    log_grown: Vector  # log(noise / variance)


def _stars_of(sites: StarSites, site: Vector) -> Stars | None:
    """Integrate the noise out of the sites; None if their negative precisions make that diverge."""
    own, noise = sites.own(), sites.noise
    tau, nu = site.reshape(2, *own.shape)
    scale = 1 + noise * tau
    rho = np.where(own, 0, 1 / np.where(scale > 1e-9, scale, np.nan))
    weight, shift = rho * tau, rho * nu
    grown = 1 + noise * weight.sum(axis=0)
    if not (grown > 1e-9).all():
        return None
    return Stars(
        own=own,
        rho=rho,
        weight=weight,
        shift=shift,
        log_det=np.log(scale).sum(axis=0),
        share=np.where(own, 1, noise * weight) / grown,
        variance=noise / grown,
        log_grown=np.log(grown),
    )


def terms_of(stars: Stars) -> Stack:
    """Precision of u from the sites of each node, shape (n_labeled, n_classes, n_classes)."""
    own, weight, share = stars.own.T, stars.weight.T, stars.share.T
    terms = -np.where(own[:, :, None], share[:, :, None] * weight[:, None], weight[:, :, None] * share[:, None])
    k = np.arange(own.shape[1])
    terms[:, k, k] = np.where(own, share * weight.sum(axis=1, keepdims=True), weight * (1 - share))
    return np.asarray(terms)


def force_of(stars: Stars, shift: Matrix) -> tuple[Matrix, Vector]:
    """Shift of u, and offset of a, from shifts of the gaps; shapes (n_classes, n_labeled) and (n_labeled,)."""
    total = shift.sum(axis=0)
    offset = stars.variance * total
    return np.where(stars.own, stars.share * total, stars.weight * offset - shift), offset


class Gaps(NamedTuple):
    """The Gaussian of the gaps a_n - u_nk, and roots of its covariance, left on the device that computed them."""

    log_det: Any  # of the joint precision
    mean: Any  # (n_classes, n_labeled)
    mean_of: Callable[[Matrix], Matrix] | None  # the mean given other shifts; None on an accelerator
    variance: Any
    spread: Any  # by nodes: root of the covariance of xi; by modes: of z
    alone: Any  # by nodes: roots of the covariance of zeta_k given xi
    moved: Any  # by nodes: F_k spread, see `_by_nodes`


class _Backend(NamedTuple):
    """Array functions of NumPy or JAX."""

    module: Any  # numpy or jax.numpy
    inverse_root: Callable[[Any], Any]
    map_classes: Callable[..., Any]  # maps a function over stacks with one entry per class


def _map_classes(function: Callable[..., Any], *stacks: Any) -> Any:
    return zip(*(function(*of_class) for of_class in zip(*stacks, strict=True)), strict=True)


def _by_nodes(backend: _Backend, levels: Any, labels: Any, is_own: Any, weight: Any, shift: Any) -> Gaps:
    """Compute the gaps by nodes: first xi, then all zeta_k, which are independent given xi.

    The gaps of field k are ``D_k xi - B_k zeta_k``, where D_k is `level` minus `follow` in the columns own_k. With
    the weights W_k and shifts nu_k of the gaps, xi and all zeta_k have the joint precision and shift

        [  P    -E_1^T  ... ]    [ sum_k D_k^T nu_k ]        P = I + sum_k D_k^T W_k D_k,
        [ -E_1   Q_1        ]    [ -B_1^T nu_1      ]      E_k = B_k^T W_k D_k,
        [  ...         ...  ]    [  ...             ]      Q_k = I + B_k^T W_k B_k.

    With R_k R_k^T = Q_k^-1, H_k = B_k R_k, F_k = R_k^T E_k and p_k = H_k^T nu_k the precision of xi is the Schur
    complement of the Q_k,

        S = P - sum_k F_k^T F_k,    m = S^-1 sum_k (D_k^T nu_k - F_k^T p_k)  the mean,

    and zeta_k = R_k (F_k xi - p_k + N(0, I)). Hence the gaps of field k have mean and covariance

        D_k m - H_k (F_k m - p_k),    H_k H_k^T + (D_k - H_k F_k) S^-1 (D_k - H_k F_k)^T.
    """
    xp, inverse_root, map_classes = backend
    level, follow = levels.level, levels.follow
    weighted_follow = weight[labels].T * follow
    cross = level.T @ weighted_follow
    P = level.T @ (weight.sum(axis=0)[:, None] * level) - cross - cross.T  # without I, which inverse_root adds
    P += xp.where(labels[:, None] == labels, follow.T @ weighted_follow, 0)

    def given_xi(W: Any, B: Any, is_own: Any) -> Any:
        R = inverse_root(B.T @ (W[:, None] * B))
        H, D = B @ R, level - follow * is_own
        return R, H, (H.T * W) @ D

    Rs, Hs, Fs = map_classes(given_xi, weight, levels.factor, is_own)
    H, F = xp.stack(Hs), xp.concatenate(Fs)
    root = inverse_root(P - F.T @ F)  # of S^-1
    level_root = level @ root

    def gap(H: Any, F: Any, own: Any, tie: Any) -> Any:
        F_root = F @ root
        deviation = level_root - tie @ root[own] - H @ F_root
        return xp.einsum("ij,ij->i", H, H) + xp.einsum("ij,ij->i", deviation, deviation), F_root

    def mean_of(shift: Any) -> Any:
        p = (shift[:, None] @ H)[:, 0]
        pull = shift.sum(axis=0) @ level - xp.einsum("nj,jn->j", follow, shift[labels])
        m = root @ ((pull - p.ravel() @ F) @ root)
        zeta = (F @ m).reshape(p.shape) - p
        return level @ m - (is_own * m) @ follow.T - (H @ zeta[:, :, None])[:, :, 0]

    variance, F_roots = map_classes(gap, Hs, Fs, levels.own, levels.ties)
    log_det = -2 * sum(xp.log(R.diagonal()).sum() for R in [root, *Rs])
    return Gaps(log_det, mean_of(shift), mean_of, xp.stack(variance), spread=root, alone=Rs, moved=F_roots)


def by_nodes_of(levels: Levels, sites: StarSites, *, on_accelerator: bool) -> Callable[[Matrix, Matrix], Gaps]:
    """Return `_by_nodes` as a function of weights and shifts, on the CPU or on an accelerator."""
    own = sites.own()
    if not on_accelerator:
        return partial(_by_nodes, _Backend(np, inverse_root, _map_classes), levels, sites.labels, own)
    most = max(nodes.size for nodes in levels.own)
    # Pad all classes to the same number of nodes; padded nodes have zero columns in `ties`.
    padded_own = np.array([np.pad(nodes, (0, most - nodes.size)) for nodes in levels.own])
    ties = np.array([np.pad(tie, ((0, 0), (0, most - tie.shape[1]))) for tie in levels.ties])
    factor = _accelerator.widened(levels.factor, 2, width=_accelerator.SWEEP_WIDTH)
    changed: Any = {"own": padded_own, "ties": ties, "factor": factor, "narrow": None, "turn": None}
    return _accelerator.sent(_by_nodes_on_gpu, levels._replace(**changed), sites.labels, own)


@jax.jit
def _by_nodes_on_gpu(
    levels: Levels, labels: jax.Array, is_own: jax.Array, weight: jax.Array, shift: jax.Array
) -> Gaps:
    batch_size = min(max(1, MOST_ON_GPU // levels.level.size), len(is_own))

    def map_classes(function: Callable[..., Any], *stacks: Any) -> Any:
        return jax.lax.map(lambda of_class: function(*of_class), stacks, batch_size=batch_size)

    backend = _Backend(jnp, _accelerator.inverse_root, map_classes)
    return _by_nodes(backend, levels, labels, is_own, weight, shift)._replace(mean_of=None)


def _by_modes(reduced: Matrix, stars: Stars) -> Gaps:
    """Compute the gaps from the joint precision of all z_k: faster with many labels on few modes."""
    (n_labeled, k), n_classes = reduced.shape, len(stars.own)
    precision = np.zeros((n_classes, k, n_classes, k))
    terms = terms_of(stars)
    for c in range(n_classes):
        weighted = terms[:, c, c:, None] * reduced[:, None]
        precision[c, :, c:] = (reduced.T @ weighted.reshape(n_labeled, -1)).reshape(k, -1, k)  # upper triangle
    spread = inverse_root(precision.reshape(n_classes * k, -1))

    def mean_of(shift: Matrix) -> Matrix:
        force, offset = force_of(stars, shift)
        u = (spread @ ((force @ reduced).ravel() @ spread)).reshape(n_classes, k) @ reduced.T
        return np.asarray((stars.share * u).sum(axis=0) + offset - u)

    mean = mean_of(stars.shift)
    variance = np.empty_like(mean)
    for nodes in row_blocks(n_labeled, spread.size // k):
        u_root = (reduced[nodes] @ spread.reshape(n_classes, k, -1)).swapaxes(0, 1)
        gap_root = stars.share.T[nodes, None] @ u_root - u_root
        variance[:, nodes] = np.square(gap_root).sum(axis=2).T + stars.variance[nodes]
    log_det = stars.log_grown.sum() - 2 * np.log(spread.diagonal()).sum()
    return Gaps(log_det, mean, mean_of, variance, spread, [], [])


def lone_stars(sites: StarSites, mean: Matrix, covariance: Stack) -> tuple[Matrix, Matrix]:
    """Sites of n labels that do not interact, precision and shift, shape (n, n_classes) each.

    Expectation propagation in K dimensions for each label, with g ~ N(mean, covariance) as its cavity, shapes
    (n, n_classes) and (n, n_classes, n_classes). New labels start from here in the sweeps over all labels.
    """
    own = sites.own().T
    arms = np.where(own[:, None, :], 1.0, 0.0) - np.eye(sites.n_classes)  # d_k = g_c - g_k, row k
    precision, shift = np.zeros(own.shape), np.zeros(own.shape)
    prior = np.linalg.inv(covariance)
    for _ in range(LONE_SWEEPS):
        posterior = np.linalg.inv(prior + arms.swapaxes(1, 2) @ (precision[:, :, None] * arms))
        center = posterior @ (prior @ mean[:, :, None] + (shift[:, None] @ arms).swapaxes(1, 2))
        d_mean, d_variance = (arms @ center)[..., 0], np.einsum("nki,nij,nkj->nk", arms, posterior, arms)
        ratio = np.where(own, 1.0, np.maximum(1 - precision * d_variance, LEAST_LEFT))
        d_variance = np.where(own, 1.0, d_variance)
        match = sites.half_space().match((d_mean - d_variance * shift) / ratio, d_variance / ratio)
        precision += LONE_STEP * np.where(own, 0.0, match.precision - precision)
        shift += LONE_STEP * np.where(own, 0.0, match.shift - shift)
    return precision, shift


class StarProblem(NamedTuple):
    """The quantities that all sweeps share."""

    sites: StarSites
    reduced: Matrix  # B, (n_labeled, k)
    levels: Levels | None = None  # None if sweeps go by modes
    by_nodes: Callable[[Matrix, Matrix], Gaps] | None = None  # None if sweeps go by modes


def posterior_of(problem: StarProblem, site: Vector) -> OfSites | None:
    """The Gaussian that the sites of d, field by field, define, with its `Stars` and `Gaps`; None if improper."""
    sites = problem.sites
    stars = _stars_of(sites, site)
    if stars is None:
        return None
    if problem.by_nodes is None:
        gaps = _by_modes(problem.reduced, stars)
    else:
        gaps = problem.by_nodes(stars.weight, stars.shift)
    mean = (stars.rho * np.asarray(gaps.mean) + sites.noise * stars.shift).ravel()
    variance = (stars.rho * (sites.noise + stars.rho * np.asarray(gaps.variance))).ravel()
    moments = with_cavities(mean, variance, site)
    if moments is None:
        return None
    cavity_variance = np.where(stars.own.ravel(), 1, moments.cavity_variance)  # a node's own field has no site
    log_det = float(gaps.log_det) + stars.log_det.sum()
    mean_of = None if gaps.mean_of is None else partial(_mean_of, gaps.mean_of, stars.rho, sites.noise)
    return OfSites((stars, gaps), log_det, moments._replace(cavity_variance=cavity_variance), mean_of)


def _mean_of(gap_mean_of: Callable[[Matrix], Matrix], rho: Matrix, noise: float, shift: Vector) -> Vector:
    """The mean of d given other shifts."""
    gap_shift = rho * shift.reshape(rho.shape)
    return np.ravel(rho * gap_mean_of(gap_shift) + noise * gap_shift)
