"""Stopping rules: the progress of a run in; whether to stop it out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect_number, expect_whole
from graphuq.inference.checkpoint import Log
from graphuq.inference.diagnostics import Diagnostics, diagnose, standard_error
from graphuq.inference.sampler import Info
from graphuq.inference.watch import quantities
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model
from graphuq.posterior.draws import MOST_DIAGNOSED, Draws


@dataclass(frozen=True, eq=False)
class Progress:
    """The state of a run, as stopping rules and the progress bar see it."""

    whitening: Whitening
    model: Model
    log: Log
    thin: int
    began: float
    most_draws: int
    _drawn: dict[int, Draws] = field(default_factory=dict)

    @property
    def n_steps(self) -> int:
        """Steps of each chain after the warm-up."""
        return self.log.n_draws * self.thin

    @property
    def seconds(self) -> float:
        """Time since the start, including the warm-up."""
        return time.perf_counter() - self.began

    def watched(self) -> NDArray[Any]:
        """The monitored quantities except Phi, shape (n_chains, n_draws, n_quantities)."""
        return quantities(self.whitening, self.model, self.log["z"], with_phi=False)[0]

    def drawn(self) -> Draws:
        """The draws so far, at most `most_draws` of each chain; the same object as long as there are no more."""
        n_draws = min(self.log.n_draws, self.most_draws)  # the last block may overshoot
        if n_draws not in self._drawn:
            self._drawn.clear()  # first, or there would be a third copy of the draws
            arrays = {name: self.log[name][:, :n_draws] for name in ("z", *Info._fields)}
            self._drawn[n_draws] = Draws(self.whitening, self.model, **arrays, settings={})
        return self._drawn[n_draws]


class Stop(Protocol):
    """A rule for ending a run before its last step."""

    def reached(self, progress: Progress) -> bool:
        """Whether to stop now."""
        ...


@dataclass(frozen=True)
class EffectiveSize:
    """Stop when every monitored quantity has at least `target` effective draws and an R-hat below `r_hat`."""

    target: float = 400.0
    r_hat: float = 1.01

    def __post_init__(self) -> None:
        expect_number(self.target, "target")
        if expect_number(self.r_hat, "r_hat") <= 1:
            raise ValueError(f"r_hat must be above 1, got {self.r_hat}.")

    def reached(self, progress: Progress) -> bool:
        """Whether to stop now."""
        draws = progress.watched()
        error = standard_error(draws)
        # Batch means are cheap and rarely off by a factor of two: run the full diagnosis only near the target.
        if not np.all(draws.var(axis=(0, 1)) >= 0.5 * self.target * error**2):
            return False
        found = progress.drawn().diagnostics()
        if found.worst_r_hat < self.r_hat and draws.shape[1] > MOST_DIAGNOSED:
            found = diagnose(draws)  # all draws, not only evenly spaced ones
        return self.settled(found)

    def settled(self, found: Diagnostics) -> bool:
        """Whether R-hat and the effective draws meet the rule."""
        return bool(found.ess_bulk.min() >= self.target and found.worst_r_hat < self.r_hat)

    def holds(self, found: Diagnostics) -> bool:
        """Whether these diagnostics meet the rule, and the chains cover all parts of the posterior."""
        return self.settled(found) and found.balanced


@dataclass(frozen=True)
class SteadyMean:
    """The paper's rule: stop when the running mean of u moves less than `tolerance` over `window` steps.

    ``|mean_k - mean_{k - window}| <= tolerance``, the norm over all nodes (Sec. 5.4).
    """

    tolerance: float
    window: int = 5000

    def __post_init__(self) -> None:
        expect_number(self.tolerance, "tolerance")
        expect_whole(self.window, "window")

    def reached(self, progress: Progress) -> bool:
        """Whether to stop now."""
        blocks = [record["z"] for record in progress.log.records if "z" in record]
        n_draws = np.cumsum([z.shape[1] for z in blocks])  # after each block, as the means of z below
        means = np.cumsum([z.mean(axis=0, dtype=float).sum(axis=0) for z in blocks], axis=0) / n_draws[:, None]
        earlier = np.flatnonzero((n_draws[-1] - n_draws) * progress.thin >= self.window)
        if not earlier.size:
            return False
        whitening, moved = progress.whitening, means[-1] - means[earlier[-1]]
        u = whitening.mean(moved.reshape(-1, whitening.n_latent), np.arange(whitening.prior.n_nodes))
        return float(np.linalg.norm(u)) <= self.tolerance


@dataclass(frozen=True)
class TimeLimit:
    """Stop after this many seconds; 0 stops at the first check.

    The warm-up counts, but is always completed, so that a run resumed from its checkpoint equals one that was
    never stopped. After it the clock is checked twenty times in `n_steps`. If steps are slow, as for
    Ginzburg-Landau with many classes, reduce `n_warmup` too.
    """

    seconds: float

    def __post_init__(self) -> None:
        expect_number(self.seconds, "seconds", zero=True)

    def reached(self, progress: Progress) -> bool:
        """Whether to stop now."""
        return progress.seconds >= self.seconds
