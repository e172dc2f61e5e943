"""Labels of K classes as half-spaces: sites in, the Gaussian that they make of K fields out.

The half-spaces of a node, its own field against each other one, share that field: their sites make a star.
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
from graphuq.inference.sites import Match, Sites
from graphuq.inference.span import Matrix, Vector
from graphuq.inference.sweeps import OfSites, inverse_root, with_cavities
from graphuq.tall import row_blocks

if TYPE_CHECKING:
    from graphuq.inference.star_ep import StarEP

Stack = NDArray[np.float64]  # matrices, one for each class or each node
Whole = NDArray[np.int_]
# Numbers that matrices of several classes at once have on an accelerator at most.
MOST_THERE = 2**26
# Damped sweeps over the sites of one label: they need not end, only begin well.
LONE_SWEEPS, LONE_STEP, LEAST_LEFT = 12, 0.7, 1e-3


@dataclass(frozen=True, eq=False)
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
        """The Gaussian of expectation propagation, see `star_ep.propagate`."""
        from graphuq.inference.star_ep import propagate

        return propagate(factor, self, **settings)

    def half_space(self) -> Sites:
        """The likelihood of ``d = g_c - g_k`` for one k."""
        return Sites(np.ones(1), 0.0, self.log_flip)

    def match(self, mean: Vector, variance: Vector) -> Match:
        """What the half-spaces make of beliefs about their d, field after field; a node's own field has none."""
        found, real = self.half_space().match(mean, variance), ~self.own().ravel()
        return Match(found.log_z, real * found.precision, real * found.shift)

    def log_total(self) -> tuple[float, float]:
        """Log of the sum over c of the product above, and its derivative by `log_flip`."""
        if self.log_flip == -np.inf:
            return 0.0, 0.0
        delta, rank = np.exp(self.log_flip), np.arange(self.n_classes)
        log_each = rank * self.log_flip + rank[::-1] * np.log1p(-delta)
        log_total = np.logaddexp.reduce(log_each)
        slope = np.exp(log_each - log_total) @ (rank - rank[::-1] * delta / (1 - delta))
        return float(log_total), float(slope)


class Levels(NamedTuple):
    """The prior around the levels a_n = g_nc: with xi, zeta_k ~ N(0, I) independent,

        a = level xi,    z_k = turn[:, own_k] xi[own_k] + narrow_k zeta_k.

    Singular values of B at the nodes of a class give all three without dividing by small numbers.
    """

    own: list[Whole]  # for every class its nodes
    level: Matrix  # (n_labeled, n_labeled)
    turn: Matrix  # (k, n_labeled)
    narrow: Stack  # (n_classes, k, k)
    follow: Matrix  # B turn
    ties: list[Matrix]  # follow[:, own_k]
    factor: Stack  # B narrow


def levels_of(reduced: Matrix, sites: StarSites) -> Levels:
    """The prior of B, shape (n_labeled, k), around the levels."""
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
    follow = reduced @ turn
    return Levels(own, level, turn, narrow, follow, [follow[:, nodes] for nodes in own], reduced @ narrow)


class Stars(NamedTuple):
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


def _stars_of(sites: StarSites, site: Vector) -> Stars | None:
    """None where sites widen by more than the noise allows."""
    own, noise = sites.own(), sites.noise
    tau, nu = site.reshape(2, *own.shape)
    scale = 1 + noise * tau
    rho = np.where(own, 0, 1 / np.where(scale > 1e-9, scale, np.nan))
    weight, shift = rho * tau, rho * nu
    total, push = weight.sum(axis=0), shift.sum(axis=0)
    grown = 1 + noise * total
    if not (grown > 1e-9).all():
        return None
    share, offset = np.where(own, 1, noise * weight) / grown, noise * push / grown
    term = -np.where(own[:, None], share[:, None] * weight, weight[:, None] * share)
    k = np.arange(len(own))
    term[k, k] = np.where(own, share * total, weight * (1 - share))
    return Stars(
        own=own,
        rho=rho,
        weight=weight,
        shift=shift,
        log_det=np.log(scale).sum(axis=0),
        term=term,
        force=np.where(own, share * push, weight * offset - shift),
        share=share,
        offset=offset,
        variance=noise / grown,
        log_grown=np.log(grown),
    )


class Gaps(NamedTuple):
    """The Gaussian of the gaps a_n - u_nk, and roots of what it is made of; these are left where they were made."""

    log_det: Any  # of all precisions, those of the prior being I
    mean: Any  # (n_classes, n_labeled)
    variance: Any
    spread: Any  # root of the covariance of xi, or by modes of z
    alone: Any  # by nodes: roots of the covariance of zeta_k given xi,
    moved: Any  # and where deviations of xi move those


class _Array(NamedTuple):
    """How matrices are computed with, here or on an accelerator."""

    module: Any  # numpy or jax.numpy
    inverse_root: Callable[[Any], Any]
    each: Callable[..., Any]  # a function and what it takes of every class to what it makes of them


def _each_here(function: Callable[..., Any], *stacks: Any) -> Any:
    return zip(*(function(*one) for one in zip(*stacks, strict=True)), strict=True)


def _by_nodes(with_: _Array, levels: Any, labels: Any, mine: Any, weight: Any, shift: Any) -> Gaps:
    """Given xi the fields are independent, and the gaps of field k are ``D_k xi - B_k zeta_k``: first xi, then zeta_k.

    D_k is level less follow on the columns own_k, W_k and nu_k the weights and shifts of the gaps. Together xi and all
    zeta_k have the precision and the shift

        [  P    -E_1^T  ... ]    [ sum_k D_k^T nu_k ]        P = I + sum_k D_k^T W_k D_k,
        [ -E_1   Q_1        ]    [ -B_1^T nu_1      ]      E_k = B_k^T W_k D_k,
        [  ...         ...  ]    [  ...             ]      Q_k = I + B_k^T W_k B_k.

    With a root R_k R_k^T = Q_k^-1, H_k = B_k R_k, F_k = R_k^T E_k and p_k = H_k^T nu_k the Schur complement of the Q_k
    is the precision of xi,

        S = P - sum_k F_k^T F_k,    m = S^-1 sum_k (D_k^T nu_k - F_k^T p_k)  the mean,

    and zeta_k = R_k (F_k xi - p_k + N(0, I)). So the gaps of field k have mean and covariance

        D_k m - H_k (F_k m - p_k),    H_k H_k^T + (D_k - H_k F_k) S^-1 (D_k - H_k F_k)^T.
    """
    xp, inverse_root, each = with_
    level, follow = levels.level, levels.follow
    weighed_follow = weight[labels].T * follow
    cross = level.T @ weighed_follow
    P = level.T @ (weight.sum(axis=0)[:, None] * level) - cross - cross.T  # less I, which inverse_root adds
    P += xp.where(labels[:, None] == labels, follow.T @ weighed_follow, 0)

    def given_xi(W: Any, nu: Any, B: Any, mine: Any) -> Any:
        R = inverse_root(B.T @ (W[:, None] * B))
        H, D = B @ R, level - follow * mine
        HW, p = H.T * W, H.T @ nu
        return R, H, HW @ D, p, (nu - p @ HW) @ D

    Rs, Hs, Fs, ps, pushes = each(given_xi, weight, shift, levels.factor, mine)
    F = xp.concatenate(Fs)
    root = inverse_root(P - F.T @ F)  # of S^-1
    m = root @ (sum(pushes) @ root)
    level_root, level_m = level @ root, level @ m

    def gap(H: Any, F: Any, p: Any, own: Any, tie: Any) -> Any:
        F_root = F @ root
        deviation = level_root - tie @ root[own] - H @ F_root
        mean = level_m - tie @ m[own] - H @ (F @ m - p)
        return mean, xp.einsum("ij,ij->i", H, H) + xp.einsum("ij,ij->i", deviation, deviation), F_root

    mean, variance, F_roots = each(gap, Hs, Fs, ps, levels.own, levels.ties)
    log_det = -2 * sum(xp.log(one.diagonal()).sum() for one in [root, *Rs])
    return Gaps(log_det, xp.stack(mean), xp.stack(variance), spread=root, alone=Rs, moved=F_roots)


def by_nodes_of(levels: Levels, sites: StarSites, *, there: bool) -> Callable[[Matrix, Matrix], Gaps]:
    """Weights and shifts of stars to their Gaussian, here or on an accelerator."""
    own = sites.own()
    if not there:
        return partial(_by_nodes, _Array(np, inverse_root, _each_here), levels, sites.labels, own)
    most = max(nodes.size for nodes in levels.own)
    # a node too many follows nothing
    nodes = np.array([np.pad(each, (0, most - each.size)) for each in levels.own])
    ties = np.array([np.pad(each, ((0, 0), (0, most - each.shape[1]))) for each in levels.ties])
    factor = _accelerator.widened(levels.factor, 2, width=_accelerator.SWEEP_WIDTH)
    changed: Any = {"own": nodes, "ties": ties, "factor": factor, "narrow": None, "turn": None}
    return _accelerator.sent(_by_nodes_there, levels._replace(**changed), sites.labels, own)


@jax.jit
def _by_nodes_there(
    levels: Levels, labels: jax.Array, mine: jax.Array, weight: jax.Array, shift: jax.Array
) -> Gaps:
    at_once = max(1, MOST_THERE // levels.level.size)

    def each(function: Callable[..., Any], *stacks: Any) -> Any:
        return jax.lax.map(lambda one: function(*one), stacks, batch_size=min(at_once, len(mine)))

    return _by_nodes(_Array(jnp, _accelerator.inverse_root, each), levels, labels, mine, weight, shift)


def _by_modes(reduced: Matrix, stars: Stars) -> Gaps:
    """All fields' z at once: better with many labels on few modes."""
    (n_labeled, k), n_classes = reduced.shape, len(stars.own)
    precision = np.zeros((n_classes, k, n_classes, k))
    for c in range(n_classes):
        wide = stars.term[c, c:].T[:, :, None] * reduced[:, None]
        precision[c, :, c:] = (reduced.T @ wide.reshape(n_labeled, -1)).reshape(k, -1, k)
    spread = inverse_root(precision.reshape(n_classes * k, -1))
    u = (spread @ ((stars.force @ reduced).ravel() @ spread)).reshape(n_classes, k) @ reduced.T
    mean = (stars.share * u).sum(axis=0) + stars.offset - u
    variance = np.empty_like(mean)
    for nodes in row_blocks(n_labeled, spread.size // k):
        half = (reduced[nodes] @ spread.reshape(n_classes, k, -1)).swapaxes(0, 1)
        gap = stars.share.T[nodes, None] @ half - half
        variance[:, nodes] = np.square(gap).sum(axis=2).T + stars.variance[nodes]
    log_det = stars.log_grown.sum() - 2 * np.log(spread.diagonal()).sum()
    return Gaps(log_det, mean, variance, spread, [], [])


def lone_stars(sites: StarSites, mean: Matrix, covariance: Stack) -> tuple[Matrix, Matrix]:
    """The sites of one label each, where g ~ N(mean, covariance) without it: (n, n_classes), (n, n_classes, n_classes).

    Expectation propagation in K numbers: where a label is new, sweeps over all labels start from here.
    """
    own = sites.own().T
    arms = np.where(own[:, None, :], 1.0, 0.0) - np.eye(sites.n_classes)  # d_k = g_c - g_k, row k
    precision, shift = np.zeros(own.shape), np.zeros(own.shape)
    prior = np.linalg.inv(covariance)
    for _ in range(LONE_SWEEPS):
        spread = np.linalg.inv(prior + arms.swapaxes(1, 2) @ (precision[:, :, None] * arms))
        center = spread @ (prior @ mean[:, :, None] + (shift[:, None] @ arms).swapaxes(1, 2))
        gap, width = (arms @ center)[..., 0], np.einsum("nki,nij,nkj->nk", arms, spread, arms)
        left = np.where(own, 1.0, np.maximum(1 - precision * width, LEAST_LEFT))
        width = np.where(own, 1.0, width)
        found = sites.half_space().match((gap - width * shift) / left, width / left)
        precision += LONE_STEP * np.where(own, 0.0, found.precision - precision)
        shift += LONE_STEP * np.where(own, 0.0, found.shift - shift)
    return precision, shift


class StarProblem(NamedTuple):
    """What stays the same from sweep to sweep."""

    sites: StarSites
    reduced: Matrix  # B, (n_labeled, k)
    levels: Levels | None = None  # where sweeps go by nodes,
    by_nodes: Callable[[Matrix, Matrix], Gaps] | None = None  # and how


def posterior_of(problem: StarProblem, site: Vector) -> OfSites | None:
    """The Gaussian of the sites of d, field after field: their `Stars` and `Gaps`; None where it is not a proper one."""
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
    width = np.where(stars.own.ravel(), 1, moments.cavity_variance)
    log_det = float(gaps.log_det) + stars.log_det.sum()
    return OfSites((stars, gaps), log_det, moments._replace(cavity_variance=width))
