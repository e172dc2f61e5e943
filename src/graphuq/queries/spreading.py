"""A graph or a prior in; the rows that together are most informative about all others out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq import graph as graphs
from graphuq import laplacian, prior
from graphuq._expect import expect, expect_nodes, expect_whole
from graphuq._threads import blas_threads
from graphuq.prior import GaussianPrior
from graphuq.spectrum import Spectrum, leading, low_rank

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

# The medians of the default hyperprior: diffusion alpha / tau^2 = 80, alpha = 8, u twelve times the noise.
TAU, ALPHA, NOISE = 0.1**0.5, 8.0, 1 / 12
N_MODES = 60
# Modes with less than this fraction of the total variance are dropped: they do not affect the choice.
NEGLIGIBLE = 1e-4


def spread(
    where: Spectrum | graphs.Graph | graphs.LowRankGraph,
    n: int,
    *,
    taken: ArrayLike | Sequence[int] = (),
    among: ArrayLike | None = None,
) -> Nodes:
    """Choose n rows spread over the graph, each the most informative about all rows given those before it.

    For data with no or few labels, where only the graph is known.

    Args:
        where: a graph, or its spectrum.
        n: number of rows; fewer are returned if fewer are left.
        taken: labeled rows, which are not chosen again.
        among: rows to choose from, by default all.
    """
    expect(where, (Spectrum, graphs.Graph, graphs.LowRankGraph), "where", "a graph, or the Spectrum of one")
    expect_whole(n, "n")
    if isinstance(where, graphs.LowRankGraph):
        where = low_rank(where)
    elif isinstance(where, graphs.Graph):
        where = leading(laplacian.normalized(where), n_modes=min(N_MODES, where.n_nodes))
    smooth = prior.matern(where, tau=TAU, alpha=ALPHA, n_modes=min(where.n_modes, N_MODES))
    known = expect_nodes(taken, where.n_nodes) if np.size(taken) else np.empty(0, np.int64)
    allowed = np.arange(where.n_nodes) if among is None else expect_nodes(among, where.n_nodes)
    candidates = np.setdiff1d(allowed, known)
    return most_telling(smooth, NOISE, candidates, n, known=known)


def most_telling(
    prior: GaussianPrior, noise: float, candidates: Nodes, n: int, *, known: Nodes, summed: bool = False
) -> Nodes:
    """Greedy V-optimality (Ji and Han 2012), or Sigma-optimality (Ma, Garnett and Schneider 2013).

    If every label were u plus Gaussian noise, one more label at c would lower the sum of the variances over all
    rows, or the variance of the sum over all rows, by

        sum_j Sigma_jc^2 / (Sigma_cc + noise^2),    (sum_j Sigma_jc)^2 / (Sigma_cc + noise^2).

    Args:
        prior: the prior of u; its tail is treated as noise.
        noise: standard deviation of the label noise.
        candidates: rows to choose from.
        n: number of rows.
        known: labeled rows.
        summed: whether to use Sigma-optimality.
    """
    kept = prior.variances >= NEGLIGIBLE * prior.variances.sum()
    F = prior.vectors[:, kept] * np.sqrt(prior.variances[kept])
    noise_variance = noise**2 + prior.tail_variance
    with blas_threads(F.shape[0] * F.shape[1] ** 2 / 10):
        gram, total = F.T @ F, F.sum(axis=0)
        A = np.linalg.inv(np.eye(F.shape[1]) + F[known].T @ F[known] / noise_variance)
        among, left, chosen = F[candidates], np.ones(len(candidates), bool), []
        for _ in range(min(n, len(candidates))):
            half = among @ A
            own = np.einsum("ij,ij->i", half, among) + noise_variance
            explained = np.square(half @ total) if summed else np.einsum("ij,ij->i", half @ gram, half)
            best = int(np.argmax(np.where(left, explained / own, -np.inf)))
            left[best] = False
            chosen.append(candidates[best])
            A -= np.outer(half[best], half[best]) / own[best]
    return np.array(chosen, dtype=np.int64)
