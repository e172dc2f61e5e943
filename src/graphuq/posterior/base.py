"""The protocol of a posterior, and what all posteriors compute alike from the probabilities of their classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq import uncertainty
from graphuq._expect import expect_nodes, expect_path, expect_whole
from graphuq.inference.fields import drawn_fields, left_open
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model, offer
from graphuq.prior import GaussianPrior, NewRows

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

# Rows whose fields are drawn together where z leaves something open: their covariance is a matrix.
JOINT_ROWS = 1000
# No probability is told as 0 or 1 where noise or uncertainty is left: smaller ones than this are no number to act on.
LEAST_PROBABILITY = 1e-12


@dataclass(frozen=True, eq=False)
class Classes:
    """The probability of every class at some rows and its Monte-Carlo error, shape (n_rows, n_classes) each."""

    probability: Array
    error: Array


@dataclass(frozen=True, eq=False)
class LabelStatistics:
    """Posterior mean and variance of the label at some rows, and the Monte-Carlo error of the mean."""

    mean: Array
    variance: Array
    error: Array


class Diagnosis(Protocol):
    """Whether a posterior can be trusted; printed, it is a sentence."""

    @property
    def converged(self) -> bool:
        """Whether it can."""
        ...


class Posterior(Protocol):
    """What is known about the classes of rows, given the labels.

    Rows are nodes of the graph, given by number (by default all of them), or `NewRows`.
    """

    @property
    def model(self) -> Model:
        """The likelihood; for a mixture, that of its heaviest component."""
        ...

    @property
    def prior(self) -> GaussianPrior:
        """The prior; for a mixture, that of its heaviest component."""
        ...

    @property
    def components(self) -> tuple[Any, ...]:
        """The posteriors that a mixture averages, heaviest first; for any other posterior, itself alone."""
        ...

    @property
    def weights(self) -> Array:
        """Their weights, adding up to one."""
        ...

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        ...

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        ...

    def classes(self, where: ArrayLike | NewRows | None = None, *, noise: bool = True) -> Classes:
        """The probability of each class at rows, and its Monte-Carlo error.

        With noise it is the probability of the label that a row like this would get: where classes overlap, gamma keeps
        it away from 0 and 1. Without noise it is that of the sign, or of the largest field, of u alone: the paper's
        quantity.
        """
        ...

    def mixed(self, probabilities: Sequence[Array]) -> Array:
        """The answers of all components, noise included, as one."""
        ...

    def moments(self, where: ArrayLike | NewRows | None = None) -> tuple[Array, Array]:
        """Mean and variance of the latent fields u at rows, shape (n_rows, n_fields) each."""
        ...

    def latent(self, where: ArrayLike | NewRows, *, seed: int = 0) -> NDArray[Any]:
        """Draws of u at rows, shape (n_chains, n_draws, n_rows), or (..., n_fields) if there are several.

        Rows and fields are drawn jointly. Beyond 1,000 rows, the part that z does not determine (none, where z are
        modes) is drawn jointly within each 1,000 rows only.
        """
        ...

    def to_arviz(self, nodes: ArrayLike | None = None) -> Any:
        """An ArviZ object of draws of u at some nodes, by default at those watched for convergence."""
        ...

    def labels(self, where: ArrayLike | NewRows | None = None) -> LabelStatistics:
        """Mean, variance and error of the label itself, without noise."""
        ...

    def left_out(self) -> Array:
        """The probability of each class at each labeled node given all labels but its own, (n_labeled, n_classes)."""
        ...

    def diagnostics(self) -> Diagnosis:
        """Whether it can be trusted."""
        ...

    def save(self, path: str | Path) -> None:
        """Write everything to one file; `load` reads it."""
        ...


def chosen_rows(posterior: Posterior, where: ArrayLike | NewRows | None) -> Nodes | NewRows:
    """The requested rows: new ones, some nodes, or all."""
    if isinstance(where, NewRows):
        return where
    return np.arange(posterior.n_nodes) if where is None else expect_nodes(where, posterior.n_nodes)


def blocks(where: Nodes | NewRows, size: int) -> Iterator[Nodes | NewRows]:
    """The rows, some at a time; one block even if there are no rows."""
    for first in range(0, max(1, len(where)), size):
        part = slice(first, first + size)
        yield where.part(part) if isinstance(where, NewRows) else where[part]


def latent_of(
    whitening: Whitening, z: NDArray[Any], where: Nodes | NewRows, rng: np.random.Generator
) -> NDArray[Any]:
    """u at rows given z of shape (n_chains, n_draws, n_fields * n_latent), as `Posterior.latent` tells."""
    n_fields, parts = z.shape[2] // whitening.n_latent, []
    for part in blocks(where, JOINT_ROWS):
        mean = drawn_fields(whitening, z, part, n_fields)
        parts.append(mean + left_open(whitening, part, rng.standard_normal(mean.shape, mean.dtype)))
    draws = np.concatenate(parts, axis=2)
    return draws[..., 0] if n_fields == 1 else draws


# What every leaf offers beside the above: they are methods and properties of the leaves, and written once.


def described(posterior: Posterior, *more: str) -> str:
    """A posterior in a line: its kind and size."""
    sizes = (
        (posterior.n_nodes, "nodes"),
        (posterior.n_classes, "classes"),
        (len(posterior.model.nodes), "labels"),
    )
    return f"{type(posterior).__name__}({', '.join([*(f'{n:,} {what}' for n, what in sizes), *more])})"


def n_nodes(self: Posterior) -> int:
    """Number of nodes N."""
    return self.prior.n_nodes


def n_classes(self: Posterior) -> int:
    """Number of classes K."""
    return int(offer(self.model, "n_classes"))


def prior_alone(self: Any) -> GaussianPrior:
    """The prior."""
    found: GaussianPrior = self.whitening.prior
    return found


def itself_alone(self: Posterior) -> tuple[Posterior]:
    """Itself alone, since it is not a mixture."""
    return (self,)


def one_weight(self: Posterior) -> Array:
    """A single weight, one."""
    return np.ones(1)


def probability(self: Posterior, where: ArrayLike | NewRows | None = None) -> Array:
    """The probability of each class, shape (n_rows, n_classes), for the label that a row like this would get."""
    return self.classes(where).probability


def sign_labels(self: Posterior, where: ArrayLike | NewRows | None = None) -> LabelStatistics:
    """Mean, variance and Monte-Carlo error of the label.

    For two classes the label is -1 or +1 and its mean ``2 P(u_j >= 0) - 1``. For more it is a corner of the simplex,
    and its mean the probability of each class, shape (n_rows, n_classes). Noise is left out.
    """
    found = self.classes(where, noise=False)
    variance = uncertainty.label_variance(found.probability)
    if self.n_classes > 2:
        return LabelStatistics(found.probability, variance, found.error)
    return LabelStatistics(found.probability[:, 1] - found.probability[:, 0], variance, 2 * found.error[:, 1])


def label_mean(self: Posterior, where: ArrayLike | NewRows | None = None) -> Array:
    """The posterior mean of the label, ``s_j`` (3.1): its sign is the class, its size says how sure we are."""
    return self.labels(where).mean


def label_variance(self: Posterior, where: ArrayLike | NewRows | None = None) -> Array:
    """The posterior variance of the label; ``1 - s_j^2`` where labels are signs."""
    return self.labels(where).variance


def mean_label_variance(self: Posterior) -> float:
    """``Var(l)`` (3.2): the variance of the label averaged over all nodes; 1 under the prior."""
    return float(self.labels().variance.mean())


def most_uncertain(self: Posterior, n: int = 10, *, include_labeled: bool = False) -> Nodes:
    """The nodes whose class is least certain, least certain first; for two classes, by ``|s_j|``."""
    return _ranked(self, include_labeled)[: expect_whole(n, "n")]


def least_uncertain(self: Posterior, n: int = 10, *, include_labeled: bool = False) -> Nodes:
    """The nodes whose class is most certain, most certain first."""
    return _ranked(self, include_labeled)[::-1][: expect_whole(n, "n")]


def _ranked(posterior: Posterior, include_labeled: bool) -> Nodes:
    nodes = np.arange(posterior.n_nodes)
    if not include_labeled:
        nodes = np.setdiff1d(nodes, posterior.model.nodes)
    found = posterior.classes(nodes, noise=False).probability
    return nodes[uncertainty.ranked(found)]


def mixed_alone(self: Posterior, probabilities: Sequence[Array]) -> Array:
    """The answers of all components as one, where there is one."""
    return probabilities[0]


def save(self: Posterior, path: str | Path) -> None:
    """Write everything to one file, whole or not at all; `graphuq.posterior.load` reads it."""
    from graphuq.posterior.archive import save

    save(self, expect_path(path))
