"""The posterior: draws of z in; label means, variances, rankings and their errors out (Sec. 3.4).

Only z is stored. Everything about a node is computed from it when asked for, in blocks of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from numpy.typing import ArrayLike, NDArray

from graphuq.inference.diagnostics import Diagnostics, batch_starts, diagnose, error_of_batches
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model, check_nodes, labels_are_real

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

# Numbers held at once while node statistics are computed: 32 MB in single precision.
BLOCK_NUMBERS = 2**23


@dataclass(frozen=True)
class LabelStatistics:
    """Of the label at each of some nodes: posterior mean, variance, and the Monte-Carlo error of the mean."""

    mean: Array
    variance: Array
    error: Array


@dataclass(frozen=True)
class Posterior:
    """Draws from a posterior, as made by `sample`.

    Attributes:
        whitening: what z says about u at every node.
        model: the likelihood.
        z: the draws, shape (n_chains, n_draws, n_latent).
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

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return self.whitening.prior.n_nodes

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return self.z.shape[0]

    @property
    def n_draws(self) -> int:
        """Draws of each chain."""
        return self.z.shape[1]

    def labels(self, nodes: ArrayLike | None = None) -> LabelStatistics:
        """Mean, variance and Monte-Carlo error of the label at all nodes, or at some.

        The label is the sign of u. Given z, u_j is Gaussian, so each draw gives the expectation of the
        sign in closed form, ``2 Psi(m_j(z) / s_j) - 1``, instead of one sign: an average over draws has
        less noise. Ginzburg-Landau labels are the real numbers v, so their variance comes from the
        second moment and not from ``1 - mean^2``.
        """
        real, starts, total = labels_are_real(self.model), batch_starts(self.n_draws), self.n_chains * self.n_draws
        parts = []
        for block in self._blocks(nodes):
            m, s = self._conditional(block)
            sums = np.add.reduceat(m, starts, axis=1, dtype=float) if real else _sign_sums(m, s, starts)
            mean = sums.sum(axis=(0, 1)) / total
            second = np.square(m, dtype=float).mean(axis=(0, 1)) + s**2 if real else 1.0
            error = error_of_batches(sums, starts, self.n_draws)
            if not real:  # draws that all agree do not know better than to one draw
                error = np.maximum(error, np.where(np.abs(mean) == 1, 2 / total, 0))
            parts.append((mean, second - mean**2, error))
        return LabelStatistics(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def label_mean(self, nodes: ArrayLike | None = None) -> Array:
        """The posterior mean of the label, ``s_j`` (3.1): its size says how sure we are, its sign of what."""
        return self.labels(nodes).mean

    def label_variance(self, nodes: ArrayLike | None = None) -> Array:
        """The posterior variance of the label; ``1 - s_j^2`` where labels are signs."""
        return self.labels(nodes).variance

    def mean_label_variance(self) -> float:
        """``Var(l)`` (3.2): the variance of the label averaged over all nodes; 1 under the prior."""
        return float(self.labels().variance.mean())

    def probability(self, nodes: ArrayLike | None = None) -> Array:
        """The posterior probability that u_j >= 0, that is, of the label +1."""
        if not labels_are_real(self.model):
            return (1 + self.labels(nodes).mean) / 2
        sums = [_sign_sums(*self._conditional(block), (0,)).sum(axis=(0, 1)) for block in self._blocks(nodes)]
        return (1 + np.concatenate(sums) / (self.n_chains * self.n_draws)) / 2

    def latent(self, nodes: ArrayLike, *, seed: int = 0) -> NDArray[Any]:
        """Draws of u at some nodes, shape (n_chains, n_draws, n_nodes): jointly with z, not with each other.

        What z leaves open at a node is filled in independently for each node asked for.
        """
        nodes = check_nodes(nodes, self.n_nodes)
        m, s = self._conditional(nodes)
        return m + s * np.random.default_rng(seed).standard_normal(m.shape)

    def most_uncertain(self, n: int = 10, *, include_labeled: bool = False) -> Nodes:
        """The nodes whose label is least sure, least sure first: those with the smallest ``|s_j|``."""
        return self._ranked(include_labeled)[:n]

    def least_uncertain(self, n: int = 10, *, include_labeled: bool = False) -> Nodes:
        """The nodes whose label is most sure, most sure first."""
        return self._ranked(include_labeled)[::-1][:n]

    def diagnostics(self, nodes: ArrayLike | None = None) -> Diagnostics:
        """R-hat and effective sample sizes of u at some nodes, by default ten labeled and ten others."""
        chosen = (
            watched_nodes_of(self.whitening, self.model) if nodes is None else check_nodes(nodes, self.n_nodes)
        )
        return diagnose(self._conditional(chosen)[0], chosen)

    def extended(
        self,
        vectors: ArrayLike,
        *,
        has_value: NDArray[np.bool_] | None = None,
        least_quantile: float | None = None,
    ) -> Posterior:
        """The same draws on a larger graph: nodes N, N + 1, ... are new, see `Extended`.

        Args:
            vectors: the eigenvectors' values at the new nodes, shape (n_new, n_modes), by `spectrum.extend`.
            has_value: the modes whose values are to be believed, shape (n_modes,); all by default.
            least_quantile: the share of old nodes whose prior variance may be less than that of any new node: one far
                from all others then is unsure. None leaves the variance to the eigenvectors.
        """
        from graphuq.inference.extended import extend_whitening

        believed = np.ones(self.whitening.prior.n_modes, dtype=bool) if has_value is None else has_value
        return replace(self, whitening=extend_whitening(self.whitening, vectors, believed, least_quantile))

    def to_arviz(self, nodes: ArrayLike | None = None) -> Any:
        """An ArviZ object: `u` at some nodes (by default the watched ones), acceptance and work.

        An `InferenceData` of ArviZ before 1.0, a `DataTree` after.
        """
        try:
            import arviz
        except ImportError as error:
            raise ImportError("to_arviz needs ArviZ: pip install 'graphuq[arviz]'.") from error

        chosen = (
            watched_nodes_of(self.whitening, self.model) if nodes is None else check_nodes(nodes, self.n_nodes)
        )
        groups: dict[str, Any] = {
            "posterior": {"u": self.latent(chosen)},
            "sample_stats": {"acceptance_rate": self.acceptance, "work": self.work},
        }
        labels: dict[str, Any] = {"coords": {"node": chosen}, "dims": {"u": ["node"]}}
        if int(arviz.__version__.split(".")[0]) < 1:
            return arviz.from_dict(**groups, **labels)
        return arviz.from_dict(groups, **labels)

    def save(self, path: str | Path) -> None:
        """Write everything to one netCDF file."""
        from graphuq.storage import save_posterior

        save_posterior(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, model: Model | None = None) -> Posterior:
        """Read what `save` wrote; a model of your own must be given again."""
        from graphuq.storage import load_posterior

        return load_posterior(Path(path), model)

    def _blocks(self, nodes: ArrayLike | None) -> Iterator[Nodes]:
        """The nodes asked for, a block at a time."""
        chosen = np.arange(self.n_nodes) if nodes is None else check_nodes(nodes, self.n_nodes)
        size = max(1, BLOCK_NUMBERS // (self.n_chains * self.n_draws))
        for first in range(0, max(1, len(chosen)), size):  # one block even of no nodes
            yield chosen[first : first + size]

    def _conditional(self, nodes: Nodes) -> tuple[NDArray[Any], Array]:
        """``m_j(z)`` of every draw, shape (chains, draws, nodes), and ``s_j``."""
        flat = self.whitening.mean(self.z.reshape(-1, self.z.shape[2]), nodes)
        return flat.reshape(self.n_chains, self.n_draws, len(nodes)), self.whitening.std(nodes)

    def _ranked(self, include_labeled: bool) -> Nodes:
        """Nodes from least to most sure."""
        nodes = np.arange(self.n_nodes)
        if not include_labeled:
            nodes = np.setdiff1d(nodes, self.model.nodes)
        return nodes[np.argsort(np.abs(self.label_mean(nodes)), kind="stable")]


def watched_nodes(labeled: Nodes, n_nodes: int, n_each: int = 10) -> Nodes:
    """Ten labeled nodes and ten others, spread evenly over the graph's order: where convergence is checked."""
    others = np.setdiff1d(np.arange(n_nodes), labeled)
    parts = [
        group[np.linspace(0, len(group) - 1, min(n_each, len(group))).astype(int)]
        for group in (np.sort(labeled), others)
        if len(group)
    ]
    return np.concatenate(parts)


def watched_nodes_of(whitening: Whitening, model: Model) -> Nodes:
    """Those of the watched nodes where the draws decide anything: no label reaches a component without one."""
    nodes = watched_nodes(model.nodes, whitening.prior.n_nodes)
    any_z = np.random.default_rng(0).standard_normal((1, whitening.n_latent))
    decided = nodes[whitening.mean(any_z, nodes)[0] != 0]
    return decided if decided.size else nodes


def _sign_sums(m: NDArray[Any], s: Array, starts: tuple[int, ...]) -> Array:
    """``E[sign(u)]`` for u ~ N(m, s^2), summed over batches of draws: shape (chains, batches, nodes)."""
    batches = np.split(m, starts[1:], axis=1)
    if s.any():
        sums = [np.asarray(_mean_sign(batch, s.astype(m.dtype)).sum(axis=1)) for batch in batches]
    else:  # z decides the sign: to count is cheaper than to compute
        sums = [2 * np.sum(batch >= 0, axis=1, dtype=m.dtype) - batch.shape[1] for batch in batches]
    return np.stack(sums, axis=1).astype(float)


@jax.jit
def _mean_sign(m: jax.Array, s: jax.Array) -> jax.Array:
    """``2 Psi(m / s) - 1``, the sign itself where s = 0."""
    sure = s == 0
    return jnp.where(sure, jnp.where(m >= 0, 1.0, -1.0), 2 * ndtr(m / jnp.where(sure, 1.0, s)) - 1)
