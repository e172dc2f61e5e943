"""Draws of z in; the probability of every class at any row, its Monte-Carlo error, and R-hat out (Sec. 3.4).

Only z is stored. Everything about a row is computed from it on request, in blocks of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import expect_generator
from graphuq.inference.contradictions import missed
from graphuq.inference.diagnostics import Diagnostics, batch_starts, diagnose, error_of_batches
from graphuq.inference.fields import at_each_draw, drawn_fields
from graphuq.inference.largest import largest_probability
from graphuq.inference.watch import quantities
from graphuq.inference.whiten import Where, Whitening
from graphuq.models.base import Model, offer, offers
from graphuq.posterior import base
from graphuq.posterior.arviz_object import arviz_nodes, arviz_object
from graphuq.posterior.base import (
    LEAST_PROBABILITY,
    Array,
    Classes,
    LabelStatistics,
    blocks,
    chosen_rows,
    described,
    latent_of,
)
from graphuq.prior import NewRows

# Numbers held at once while row statistics are computed: 32 MB in single precision.
BLOCK_NUMBERS = 2**23


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws from a posterior, as made by `sample`.

    Attributes:
        whitening: the map from z to u at every row.
        model: the likelihood.
        z: the draws, shape (n_chains, n_draws, n_fields * n_latent), one field after another.
        acceptance: the mean acceptance of the steps behind each draw, shape (n_chains, n_draws).
        work: their cost, in evaluations of Phi or bounces.
        settings: how the draws were made.
    """

    whitening: Whitening = field(repr=False)
    model: Model = field(repr=False)
    z: NDArray[Any] = field(repr=False)
    acceptance: NDArray[Any] = field(repr=False)
    work: NDArray[Any] = field(repr=False)
    settings: dict[str, Any]

    def __repr__(self) -> str:
        return described(self, f"{self.n_chains:,} chains of {self.n_draws:,} draws")

    @property
    def n_fields(self) -> int:
        """Columns of u."""
        return int(offer(self.model, "n_fields"))

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return self.z.shape[0]

    @property
    def n_draws(self) -> int:
        """Draws of each chain."""
        return self.z.shape[1]

    def classes(self, where: ArrayLike | NewRows | None = None, *, noise: bool = True) -> Classes:
        """The probability of each class at rows, and its Monte-Carlo error.

        Given z, u_j is Gaussian, so each draw gives the probability of a class in closed form, ``Psi(m_j(z) /
        sqrt(s_j^2 + gamma^2))``, instead of just a sign. The average over draws is then less noisy, and never 0 or 1
        while anything is uncertain.
        """
        extra = float(offer(self.model, "noise")) if noise else 0.0
        starts, total = batch_starts(self.n_draws), self.n_chains * self.n_draws
        parts = []
        for block in self._blocks(where):
            m, s = self._conditional(block)
            s = np.hypot(s, extra)
            sums = _sign_sums(m[..., 0], s, starts) if self.n_fields == 1 else _largest_sums(m, s, starts)
            found = sums.sum(axis=(0, 1))
            found /= found.sum(axis=1, keepdims=True)
            error = error_of_batches(sums, starts, self.n_draws)
            # Draws that all agree do not know better than to one draw.
            agreed = (s == 0)[:, None] & ((found == 0) | (found == 1))
            error = np.maximum(error, np.where(agreed, 1 / total, 0))
            least = np.where((s > 0) | noise, LEAST_PROBABILITY, 0.0)[:, None]
            parts.append((np.clip(found, least, 1 - least), error))
        return Classes(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def labels(self, where: ArrayLike | NewRows | None = None) -> LabelStatistics:
        """Mean, variance and Monte-Carlo error of the label at rows.

        The label is the sign of u, or the largest of several fields. Ginzburg-Landau labels of two classes are the real
        numbers v, so their variance comes from the second moment and not from ``1 - mean^2``.
        """
        if not offer(self.model, "labels_are_real") or self.n_fields > 1:
            return base.sign_labels(self, where)
        starts, total = batch_starts(self.n_draws), self.n_chains * self.n_draws
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
        """Draws of u at rows, shape (n_chains, n_draws, n_rows), or (..., n_fields) if there are several, see `Posterior`."""
        return latent_of(self.whitening, self.z, chosen_rows(self, where), expect_generator(seed))

    def left_out(self) -> Array:
        """The probability of each class at each labeled node given all labels but its own, by expectation propagation."""
        from graphuq.posterior.gaussian import GaussianPosterior

        return GaussianPosterior.of(self.prior, self.model).left_out()

    def diagnostics(self) -> Diagnostics:
        """R-hat and effective sample sizes of what is reported: u and the classes at some nodes, and Phi."""
        run = self.whitening, self.model, self.z
        return diagnose(*quantities(*run), shift=missed(*run))

    def to_arviz(self, nodes: ArrayLike | None = None) -> Any:
        """An ArviZ object: `u` at some nodes (by default the watched ones), acceptance and work.

        If the model has a likelihood for each label, it is included as `log_likelihood`, for `az.loo` and `az.compare`.
        Returns an `InferenceData` with ArviZ before 1.0, a `DataTree` after.
        """
        chosen = arviz_nodes(self, nodes)
        groups: dict[str, Any] = {
            "posterior": {"u": self.latent(chosen)},
            "sample_stats": {"acceptance_rate": self.acceptance, "work": self.work},
        }
        if offers(self.model, "log_likelihood"):
            groups["log_likelihood"] = {"y": self.log_likelihood()}
        return arviz_object(self, chosen, groups)

    def log_likelihood(self) -> NDArray[Any]:
        """That of every label at every draw, shape (n_chains, n_draws, n_labeled), if the model offers it."""
        u = self._conditional(self.whitening.nodes)[0].astype(self.z.dtype, copy=False)
        return at_each_draw(self.model, "log_likelihood", u)

    def _blocks(self, where: ArrayLike | NewRows | None) -> Any:
        """The rows asked for, a block at a time."""
        size = max(1, BLOCK_NUMBERS // (self.n_chains * self.n_draws * self.n_fields))
        return blocks(chosen_rows(self, where), size)

    def _conditional(self, where: Where) -> tuple[NDArray[Any], Array]:
        """``m_j(z)`` of every draw, shape (chains, draws, rows, fields), and ``s_j``."""
        return drawn_fields(self.whitening, self.z, where, self.n_fields), self.whitening.std(where)

    prior, components, weights = property(base.prior_alone), property(base.itself_alone), property(base.one_weight)
    n_nodes, n_classes = property(base.n_nodes), property(base.n_classes)
    probability, mixed, save = base.probability, base.mixed_alone, base.save
    label_mean, label_variance = base.label_mean, base.label_variance
    mean_label_variance = base.mean_label_variance
    most_uncertain, least_uncertain = base.most_uncertain, base.least_uncertain


def _sign_sums(m: NDArray[Any], s: Array, starts: tuple[int, ...]) -> Array:
    """P(u < 0) and P(u >= 0) for u ~ N(m, s^2), summed over batches of draws: (chains, batches, rows, 2)."""
    batches = np.split(m, starts[1:], axis=1)
    if s.any():
        sums = [np.asarray(_sides(batch, s.astype(m.dtype))) for batch in batches]
    else:  # z decides the sign: to count is cheaper than to compute
        up = [np.sum(batch >= 0, axis=1, dtype=m.dtype) for batch in batches]
        sums = [np.stack([batch.shape[1] - n, n], axis=-1) for batch, n in zip(batches, up, strict=True)]
    return np.stack(sums, axis=1).astype(float)


@jax.jit
def _sides(m: jax.Array, s: jax.Array) -> jax.Array:
    """Sums over draws of ``Psi(-m / s)`` and ``Psi(m / s)``, each exact where it is small; the side itself where s = 0."""
    sure = s == 0
    x = jnp.where(sure, jnp.where(m >= 0, jnp.inf, -jnp.inf), m / jnp.where(sure, 1.0, s))
    return jnp.stack([ndtr(-x).sum(axis=1), ndtr(x).sum(axis=1)], axis=-1)


def _largest_sums(m: NDArray[Any], s: Array, starts: tuple[int, ...]) -> Array:
    """P(class) of several fields, summed over batches of draws: shape (chains, batches, rows, classes)."""
    found = largest_probability(m, np.broadcast_to(s.astype(m.dtype), m.shape[:-1]))
    return np.add.reduceat(found, starts, axis=1, dtype=float)
