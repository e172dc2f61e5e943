"""Draws of z in; class probabilities at any row, their Monte-Carlo errors, and R-hat out (Sec. 3.4).

Only z is stored. Statistics of rows are computed from it on request, in blocks of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import expect_generator
from graphuq._threads import blas_threads, in_threads
from graphuq.inference.contradictions import missed
from graphuq.inference.diagnostics import Diagnostics, batch_starts, diagnose, error_of_batches
from graphuq.inference.fields import at_each_draw, drawn_fields
from graphuq.inference.largest import LEAST_PROBABILITY, largest_probability
from graphuq.inference.watch import quantities
from graphuq.inference.whiten import Where, Whitening
from graphuq.models.base import Model
from graphuq.new_rows import NewRows
from graphuq.posterior.arviz_object import arviz_nodes, arviz_object
from graphuq.posterior.base import (
    Alone,
    Array,
    Classes,
    LabelStatistics,
    blocks,
    chosen_rows,
    described,
    latent_of,
)
from graphuq.posterior.gaussian import GaussianPosterior

# Array elements held at once while row statistics are computed: 32 MB in single precision. Rows of several fields, whose
# integrals take far longer than all else, are computed in threads, each of which holds fewer.
BLOCK_NUMBERS, NUMBERS_OF_A_THREAD = 2**23, 2**21
# Longer chains are diagnosed from evenly spaced draws: ranks and spectra of all would take longer than many runs.
MOST_DIAGNOSED = 20_000
# Rows of a block are padded to a power of two, at least this: each new shape takes half a second to compile.
LEAST_ROWS = 2**6


@dataclass(frozen=True, eq=False)
class Draws(Alone):
    """Markov chain draws from a posterior, as returned by `sample`.

    Attributes:
        whitening: the map from z to u at every row.
        model: the likelihood.
        z: the draws, shape (n_chains, n_draws, n_fields * n_latent), one field after another.
        acceptance: mean acceptance rate of the steps between stored draws, shape (n_chains, n_draws).
        work: cost of these steps, in evaluations of Phi or in bounces.
        settings: the settings of the sampler run.
        diverging: share of these steps whose trajectory diverged (NUTS), shape (n_chains, n_draws); None if
            the sampler has no trajectories.
    """

    whitening: Whitening = field(repr=False)
    model: Model = field(repr=False)
    z: NDArray[Any] = field(repr=False)
    acceptance: NDArray[Any] = field(repr=False)
    work: NDArray[Any] = field(repr=False)
    settings: dict[str, Any]
    diverging: NDArray[Any] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, without what was computed from them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __repr__(self) -> str:
        return described(self, f"{self.n_chains:,} chains of {self.n_draws:,} draws")

    @property
    def n_fields(self) -> int:
        """Number of columns of u."""
        return int(self.model.n_fields)

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return self.z.shape[0]

    @property
    def n_draws(self) -> int:
        """Number of draws per chain."""
        return self.z.shape[1]

    def classes(self, where: ArrayLike | NewRows | None = None, *, noise: bool = True) -> Classes:
        """The probability of each class at rows, and its Monte-Carlo error.

        Given z, u_j is Gaussian, so each draw yields the class probability in closed form,
        ``Psi(m_j(z) / sqrt(s_j^2 + gamma^2))``, instead of only a sign (Rao-Blackwellization). This lowers the
        variance of the average over draws and keeps it away from 0 and 1 while uncertainty remains.
        """
        gamma = float(self.model.noise) if noise else 0.0
        starts, total = batch_starts(self.n_draws, self.n_chains), self.n_chains * self.n_draws

        def of(block: Where) -> tuple[Array, Array]:
            m, s = self._conditional(block)
            s = np.hypot(s, gamma)
            if self.n_fields == 1:
                sums = _sign_sums(m[..., 0], s, starts)
            else:
                sums = np.add.reduceat(largest_probability(m, s), starts, axis=1, dtype=float)
            p = sums.sum(axis=(0, 1))
            p /= p.sum(axis=1, keepdims=True)
            error = error_of_batches(sums, starts, self.n_draws)
            # Where all draws agree, the resolution is still no better than one draw.
            agreed = (s == 0)[:, None] & ((p == 0) | (p == 1))
            error = np.maximum(error, np.where(agreed, 1 / total, 0))
            least = np.where((s > 0) | noise, LEAST_PROBABILITY, 0.0)[:, None]
            return np.clip(p, least, 1 - least), error

        parts = (in_threads if self.n_fields > 1 else map)(of, self._blocks(where))
        return Classes(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def labels(self, where: ArrayLike | NewRows | None = None) -> LabelStatistics:
        """Mean, variance and Monte-Carlo error of the label at rows.

        The label is the sign of u, or the largest of several fields. Two-class Ginzburg-Landau labels are the real
        values v, whose variance is computed from the second moment instead of as ``1 - mean^2``.
        """
        if not self.model.labels_are_real or self.n_fields > 1:
            return super().labels(where)
        starts, total = batch_starts(self.n_draws, self.n_chains), self.n_chains * self.n_draws
        parts = []
        for block in self._blocks(where):
            m, s = self._conditional(block)
            sums = np.add.reduceat(m[..., 0], starts, axis=1, dtype=float)
            mean = sums.sum(axis=(0, 1)) / total
            second = np.square(m[..., 0], dtype=float).mean(axis=(0, 1)) + s**2
            parts.append((mean, second - mean**2, error_of_batches(sums, starts, self.n_draws)))
        return LabelStatistics(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def moments(self, where: ArrayLike | NewRows | None = None) -> tuple[Array, Array]:
        """Mean and variance of the latent fields at rows."""
        parts = []
        for block in self._blocks(where):
            m, s = self._conditional(block)
            parts.append((m.mean(axis=(0, 1), dtype=float), m.var(axis=(0, 1), dtype=float) + s[:, None] ** 2))
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return mean, variance

    def latent(self, where: ArrayLike | NewRows, *, seed: int = 0) -> NDArray[Any]:
        """Draws of u at rows, shape (n_chains, n_draws, n_rows) or (..., n_fields), see `Posterior.latent`."""
        return latent_of(self.whitening, self.z, chosen_rows(self, where), expect_generator(seed))

    def closed(self) -> GaussianPosterior:
        """The same posterior in closed form, by expectation propagation."""
        return GaussianPosterior.of(self.prior, self.model)

    def left_out(self) -> Array:
        """Leave-one-out class probabilities of the labeled nodes, by expectation propagation."""
        return self.closed().left_out()

    def diagnostics(self) -> Diagnostics:
        """R-hat and effective sample sizes of the reported quantities: u and classes at some nodes, and Phi.

        Chains of more than 20,000 draws are judged by evenly spaced ones, so that effective draws are undercounted.
        """
        return self._diagnostics

    @cached_property  # `sample`, `sample_enough` and reports all ask for it
    def _diagnostics(self) -> Diagnostics:
        run = self.whitening, self.model, self.z[:, :: -(-self.n_draws // MOST_DIAGNOSED)]
        diverging = 0.0 if self.diverging is None else float(np.mean(self.diverging))
        return replace(diagnose(*quantities(*run), shift=missed(*run)), diverging=diverging)

    def to_arviz(self, nodes: ArrayLike | None = None) -> Any:
        """An ArviZ object with `u` at some nodes (by default the monitored ones), acceptance rate and work.

        Includes `log_likelihood`, for `az.loo` and `az.compare`, if the model provides it for each label. These
        break down when labels are few, as their Pareto k shows: `left_out` does not. Returns an `InferenceData`
        with ArviZ before 1.0, a `DataTree` after.
        """
        chosen = arviz_nodes(self, nodes)
        groups: dict[str, Any] = {
            "posterior": {"u": self.latent(chosen)},
            "sample_stats": {"acceptance_rate": self.acceptance, "work": self.work},
        }
        if self.diverging is not None:
            groups["sample_stats"]["diverging"] = self.diverging > 0
        if self.model.offers("log_likelihood"):
            groups["log_likelihood"] = {"y": self.log_likelihood()}
        return arviz_object(self, chosen, groups)

    def log_likelihood(self) -> NDArray[Any]:
        """The log likelihood of each label at each draw, shape (n_chains, n_draws, n_labeled), if available."""
        u = self._conditional(self.whitening.nodes)[0].astype(self.z.dtype, copy=False)
        return at_each_draw(self.model, "log_likelihood", u)

    def _blocks(self, where: ArrayLike | NewRows | None) -> Any:
        """The requested rows in blocks that bound the memory used."""
        most = BLOCK_NUMBERS if self.n_fields == 1 else min(BLOCK_NUMBERS, NUMBERS_OF_A_THREAD)
        size = max(1, most // (self.n_chains * self.n_draws * self.n_fields))
        return blocks(chosen_rows(self, where), 2 ** (size.bit_length() - 1))  # whole blocks need no padding

    def _conditional(self, where: Where) -> tuple[NDArray[Any], Array]:
        """Mean ``m_j(z)`` given each draw, shape (chains, draws, rows, fields), and deviation ``s_j``."""
        with blas_threads(self.z.size * len(where)):
            return drawn_fields(self.whitening, self.z, where, self.n_fields), self.whitening.std(where)


def _sign_sums(m: NDArray[Any], s: Array, starts: tuple[int, ...]) -> Array:
    """P(u < 0) and P(u >= 0) for u ~ N(m, s^2), summed over batches of draws: (chains, batches, rows, 2)."""
    batches = np.split(m, starts[1:], axis=1)
    if s.any():
        n_rows = m.shape[2]
        padding = (0, max(LEAST_ROWS, 2 ** (n_rows - 1).bit_length()) - n_rows)
        deviation = np.pad(s.astype(m.dtype), padding)
        padded = (np.pad(batch, ((0, 0), (0, 0), padding)) for batch in batches)
        sums = [np.asarray(_sides(batch, deviation))[:, :n_rows] for batch in padded]
    else:  # z determines u: counting signs is cheaper than evaluating Psi
        up = [np.heaviside(batch, 0.5).sum(axis=1) for batch in batches]
        sums = [np.stack([batch.shape[1] - n, n], axis=-1) for batch, n in zip(batches, up, strict=True)]
    return np.stack(sums, axis=1).astype(float)


@jax.jit
def _sides(m: jax.Array, s: jax.Array) -> jax.Array:
    """Sums over draws of ``Psi(-m / s)`` and ``Psi(m / s)``, each accurate where small; sign counts if s = 0.

    Where u is 0 for certain, since its prior variance is 0, either sign is as probable.
    """
    certain = s == 0
    x = jnp.where(certain, jnp.where(m == 0, 0.0, jnp.sign(m) * jnp.inf), m / jnp.where(certain, 1.0, s))
    return jnp.stack([ndtr(-x).sum(axis=1), ndtr(x).sum(axis=1)], axis=-1)
