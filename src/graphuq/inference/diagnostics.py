"""Convergence diagnostics: draws of shape (chains, draws, quantities) in; R-hat and ESS (by ArviZ) out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021) recommend R-hat below 1.01 and 400 effective draws; above
# 1.05 averages over chains mean little.
R_HAT_LIMIT = 1.05
ESS_LIMIT = 100.0
# Number of batches whose means give Monte-Carlo errors, with a relative error of about an eighth.
BATCHES = 32
# Share of diverging trajectories up to which averages are still trusted.
DIVERGING_LIMIT = 0.01
# Largest change of a class probability by one further posterior-invariant move, see `contradictions.missed`.
SHIFT_LIMIT = 0.01


@dataclass(frozen=True)
class Diagnostics:
    """Convergence diagnostics of several monitored quantities, one entry each.

    Attributes:
        r_hat, ess_bulk, ess_tail: diagnostics of each quantity.
        names: name of each quantity.
        nodes: node of each quantity, -1 if it belongs to none.
        shift: change of a class probability by one further move across contradictory labels, and the node of the
            largest change; see `contradictions.missed`.
        diverging: share of trajectories of NUTS that diverged: the chains avoid a part of the posterior where
            it is too narrow for their step size.
    """

    r_hat: Array
    ess_bulk: Array
    ess_tail: Array
    names: list[str] = field(repr=False)
    nodes: NDArray[np.int64] = field(repr=False)
    shift: tuple[float, int] = (0.0, -1)
    diverging: float = 0.0

    @property
    def worst_r_hat(self) -> float:
        """The largest R-hat."""
        return float(np.max(self.r_hat))

    @property
    def converged(self) -> bool:
        """Whether the chains agree and have enough effective draws for an average to be meaningful."""
        return bool(self.mixed and self.balanced and self.diverging <= DIVERGING_LIMIT)

    @property
    def mixed(self) -> bool:
        """Whether R-hat and the effective draws of all quantities are good enough."""
        return bool(self.worst_r_hat < R_HAT_LIMIT and self.ess_bulk.min() >= ESS_LIMIT)

    @property
    def balanced(self) -> bool:
        """Whether the chains cover all parts of the posterior around contradictory labels."""
        return self.shift[0] <= SHIFT_LIMIT

    def __str__(self) -> str:
        numbers = f"R-hat at most {self.worst_r_hat:.3f}, effective draws at least {self.ess_bulk.min():.0f}"
        diverged = f"{self.diverging:.2%} of the trajectories diverged" if self.diverging else ""
        if self.converged:
            return f"Converged: {numbers}{diverged and ', ' + diverged}."
        if np.isinf(self.worst_r_hat):
            return (
                "Not converged: a chain has not moved at all. Use more steps, a sampler with smaller steps, or a "
                "larger gamma."
            )
        if np.isnan(self.worst_r_hat):
            return "Cannot say whether the chains converged: run at least 2 chains and 8 draws each."
        if self.worst_r_hat >= R_HAT_LIMIT:
            return (
                f"Not converged: the chains disagree ({numbers}). Run more steps, or a sampler that moves "
                "further; if chains stay apart the posterior has several modes: use Tempered."
            )
        if not self.balanced:
            return (
                "Not converged: labels contradict each other in nearly equal rows (or agree in nearly opposite ones), and the "
                f"chains miss a part of the posterior there: one more move would change the probability of a class at node {self.shift[1]} by "
                f"{self.shift[0]:.2f}. Look at these labels, or use probit or a larger gamma."
            )
        if self.mixed:
            return (
                f"Not converged: {diverged}, so the chains avoid a part of the posterior ({numbers}). Use a larger "
                "target_acceptance, or a sampler without gradients, such as EllipticalSlice."
            )
        return f"Not converged: too few effective draws ({numbers}). Run more steps."


def diagnose(
    draws: NDArray[Any],
    names: list[str] | None = None,
    nodes: NDArray[np.int64] | None = None,
    *,
    shift: tuple[float, int] = (0.0, -1),
) -> Diagnostics:
    """Rank-normalized split R-hat, bulk and tail ESS of draws of shape (chains, draws, quantities).

    R-hat is the larger of the rank-normalized and the classical one: for quantities with few distinct values, such
    as the side of a label, tied ranks hide disagreement between chains.
    """
    names = [str(k) for k in range(draws.shape[2])] if names is None else names
    nodes = np.full(draws.shape[2], -1) if nodes is None else nodes
    if draws.shape[0] < 2 or draws.shape[1] < 8:
        unknown = np.full(draws.shape[2], np.nan)
        return Diagnostics(unknown, np.zeros(draws.shape[2]), np.zeros(draws.shape[2]), names, nodes)
    from arviz_stats.base import array_stats

    draws = np.asarray(draws, dtype=float)
    axes = {"chain_axis": 0, "draw_axis": 1}
    with np.errstate(invalid="ignore", divide="ignore"):
        r_hat = np.asarray(array_stats.rhat(draws, **axes, method="rank"), dtype=float)
        bulk = np.asarray(array_stats.ess(draws, **axes, method="bulk"), dtype=float)
        tail = np.asarray(array_stats.ess(draws, **axes, method="tail", prob=(0.05, 0.95)), dtype=float)
    classical = split_r_hat(draws)
    r_hat = np.fmax(r_hat, classical)
    # Chains that never moved have no variance; this is not agreement.
    stuck = np.ptp(draws, axis=1).max(axis=0) == 0
    r_hat[stuck], bulk[stuck], tail[stuck] = np.inf, 0.0, 0.0
    # With few distinct values the quantiles can coincide and the tail ESS is undefined: fall back to the bulk ESS.
    tail = np.where(np.isnan(tail), bulk, tail)
    return Diagnostics(r_hat, bulk, tail, names, nodes, shift)


def split_r_hat(draws: NDArray[Any]) -> Array:
    """Classical split R-hat, a cheap indicator during a run; `diagnose` decides on convergence."""
    half = draws.shape[1] // 2
    if half < 2:
        return np.full(draws.shape[2:], np.nan)
    halves = np.concatenate([draws[:, :half], draws[:, -half:]]).astype(float)
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt(
        np.divide(between, within, out=np.full_like(within, np.inf), where=within > 0) + (half - 1) / half
    )


def batch_starts(n_draws: int, n_chains: int) -> tuple[int, ...]:
    """First draws of the batches of a chain, of nearly equal length: at most sqrt(draws), and `BATCHES` in all chains.

    Few and long, so that even batches of slow chains are nearly independent: chains that have only just converged have
    a dozen effective draws each.
    """
    n_batches = max(1, min(int(np.sqrt(n_draws)), -(-BATCHES // n_chains)))
    return tuple(int(start) for start in np.linspace(0, n_draws, n_batches, endpoint=False))


def standard_error(draws: NDArray[Any]) -> Array:
    """Monte-Carlo standard error of the mean of draws of shape (chains, draws, quantities), by batch means.

    Estimated from the spread of all batch means, between and within chains, in one pass: cheap enough for every
    node of a large graph.
    """
    starts = batch_starts(draws.shape[1], len(draws))
    return error_of_batches(np.add.reduceat(draws, starts, axis=1, dtype=float), starts, draws.shape[1])


def error_of_batches(sums: NDArray[Any], starts: tuple[int, ...], n_draws: int) -> Array:
    """`standard_error` from the sums over batches, shape (chains, batches, ...)."""
    lengths = np.diff([*starts, n_draws]).reshape(-1, *(1,) * (sums.ndim - 2))
    means = np.concatenate(sums / lengths)
    if len(means) < 2:
        return np.full(sums.shape[2:], np.nan)
    return np.asarray(means.std(axis=0, ddof=1) / np.sqrt(len(means)), dtype=float)
