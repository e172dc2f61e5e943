"""The interface of a posterior, and the methods that all posteriors share, computed from class probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq import uncertainty
from graphuq._expect import expect_nodes, expect_path
from graphuq.inference.fields import drawn_fields, left_open
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model
from graphuq.new_rows import NewRows
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

# Rows that are drawn jointly where z does not determine u: their covariance matrix is factorized.
JOINT_ROWS = 1000


@dataclass(frozen=True, eq=False)
class Classes:
    """Class probabilities at some rows and their Monte-Carlo errors, shape (n_rows, n_classes) each."""

    probability: Array
    error: Array


@dataclass(frozen=True, eq=False)
class LabelStatistics:
    """Posterior mean and variance of the label at some rows, and the Monte-Carlo error of the mean."""

    mean: Array
    variance: Array
    error: Array


class Diagnosis(Protocol):
    """Whether a posterior computation converged; `str` gives an explanation in words."""

    @property
    def converged(self) -> bool:
        """Whether the result can be trusted."""
        ...


class Posterior(ABC):
    """The posterior distribution of the classes of rows, given the labels.

    Rows are nodes of the graph, given by index (all by default), or `NewRows`.
    """

    if TYPE_CHECKING:  # fields of some kinds of posterior, properties of others

        @property
        def model(self) -> Model:
            """The likelihood; for a mixture, that of its heaviest component."""
            raise NotImplementedError

        @property
        def prior(self) -> GaussianPrior:
            """The prior; for a mixture, that of its heaviest component."""
            raise NotImplementedError

        @property
        def components(self) -> tuple[Any, ...]:
            """The posteriors that a mixture averages, by decreasing weight; otherwise the posterior itself."""
            raise NotImplementedError

        @property
        def weights(self) -> Array:
            """The weights of the components, summing to one."""
            raise NotImplementedError

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return self.prior.n_nodes

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return int(self.model.n_classes)

    @abstractmethod
    def classes(self, where: ArrayLike | NewRows | None = None, *, noise: bool = True) -> Classes:
        """The probability of each class at rows, and its Monte-Carlo error.

        With noise, it is the predictive probability of a label, which gamma keeps away from 0 and 1 where classes
        overlap. Without noise, it is that of the sign of u, or of its largest field: the paper's quantity.
        """

    def mixed(self, probabilities: Sequence[Array]) -> Array:
        """Combine class probabilities of all components, noise included, into those of the posterior."""
        return self.adjusted(np.asarray(sum(w * p for w, p in zip(self.weights, probabilities, strict=True))))

    def adjusted(self, probability: Array) -> Array:
        """Apply the temperature and the class weights of a mixture to class probabilities, noise included."""
        return probability

    @abstractmethod
    def moments(self, where: ArrayLike | NewRows | None = None) -> tuple[Array, Array]:
        """Mean and variance of the latent fields u at rows, shape (n_rows, n_fields) each."""

    @abstractmethod
    def latent(self, where: ArrayLike | NewRows, *, seed: int = 0) -> NDArray[Any]:
        """Draws of u at rows, shape (n_chains, n_draws, n_rows), or (..., n_fields) if there are several.

        Rows and fields are drawn jointly. With more than 1,000 rows, the part of u that z does not determine (none
        if z are modal coordinates) is drawn jointly only within blocks of 1,000 rows.
        """

    @abstractmethod
    def to_arviz(self, nodes: ArrayLike | None = None) -> Any:
        """An ArviZ object with draws of u at some nodes, by default those monitored for convergence."""

    @abstractmethod
    def left_out(self) -> Array:
        """Leave-one-out class probabilities of the labeled nodes, shape (n_labeled, n_classes).

        Approximated from one fit by expectation propagation, without fitting again: the contributions of the other
        labels stay as they were. With few labels of several classes this is somewhat kind to a surprising label.
        """

    @abstractmethod
    def diagnostics(self) -> Diagnosis:
        """Convergence diagnostics."""

    def labels(self, where: ArrayLike | NewRows | None = None) -> LabelStatistics:
        """Mean, variance and Monte-Carlo error of the noise-free label at rows.

        For two classes the label is -1 or +1 and its mean ``2 P(u_j >= 0) - 1``. For more classes it is a corner of
        the simplex, and its mean is the probability of each class, shape (n_rows, n_classes).
        """
        classes = self.classes(where, noise=False)
        p, variance = classes.probability, uncertainty.label_variance(classes.probability)
        if self.n_classes > 2:
            return LabelStatistics(p, variance, classes.error)
        return LabelStatistics(p[:, 1] - p[:, 0], variance, 2 * classes.error[:, 1])

    def probability(self, where: ArrayLike | NewRows | None = None) -> Array:
        """The predictive probability of each class at rows, noise included, shape (n_rows, n_classes)."""
        return self.classes(where).probability

    def label_mean(self, where: ArrayLike | NewRows | None = None) -> Array:
        """The posterior mean of the label, ``s_j`` (3.1): its sign is the class, its magnitude the certainty."""
        return self.labels(where).mean

    def label_variance(self, where: ArrayLike | NewRows | None = None) -> Array:
        """The posterior variance of the label, shape (n_rows,); ``1 - s_j^2`` if labels are signs."""
        return self.labels(where).variance

    def mean_label_variance(self) -> float:
        """``Var(l)`` (3.2): the variance of the label averaged over all nodes; 1 under the prior."""
        return float(self.labels().variance.mean())

    def most_uncertain(self, n: int = 10) -> Nodes:
        """The unlabeled nodes whose class is least certain, least certain first; for two classes, by ``|s_j|``."""
        nodes = np.setdiff1d(np.arange(self.n_nodes), self.model.nodes)
        return nodes[uncertainty.most_uncertain(self.classes(nodes, noise=False).probability, n)]

    def save(self, path: str | Path) -> None:
        """Write everything to one file, atomically; `graphuq.posterior.load` reads it."""
        from graphuq.posterior.archive import save

        save(self, expect_path(path))


def chosen_rows(posterior: Posterior, where: ArrayLike | NewRows | None) -> Nodes | NewRows:
    """The requested rows: new rows, some nodes, or all nodes."""
    if isinstance(where, NewRows):
        return where
    return np.arange(posterior.n_nodes) if where is None else expect_nodes(where, posterior.n_nodes)


def blocks(where: Nodes | NewRows, size: int) -> Iterator[Nodes | NewRows]:
    """Split rows into blocks; a single empty block if there are none."""
    for first in range(0, max(1, len(where)), size):
        part = slice(first, first + size)
        yield where.part(part) if isinstance(where, NewRows) else where[part]


def latent_of(
    whitening: Whitening, z: NDArray[Any], where: Nodes | NewRows, rng: np.random.Generator
) -> NDArray[Any]:
    """Draws of u at rows given z of shape (n_chains, n_draws, n_fields * n_latent), see `Posterior.latent`."""
    n_fields, parts = z.shape[2] // whitening.n_latent, []
    for part in blocks(where, JOINT_ROWS):
        mean = drawn_fields(whitening, z, part, n_fields)
        parts.append(mean + left_open(whitening, part, rng.standard_normal(mean.shape, mean.dtype)))
    draws = np.concatenate(parts, axis=2)
    return draws[..., 0] if n_fields == 1 else draws


def described(posterior: Posterior, *more: str) -> str:
    """The one-line `repr` of a posterior: its class and sizes."""
    sizes = (
        (posterior.n_nodes, "nodes"),
        (posterior.n_classes, "classes"),
        (len(posterior.model.nodes), "labels"),
    )
    return f"{type(posterior).__name__}({', '.join([*(f'{n:,} {what}' for n, what in sizes), *more])})"


class Alone(Posterior):
    """A posterior that averages nothing and is its own only component."""

    if TYPE_CHECKING:
        whitening: Whitening

    @property
    def prior(self) -> GaussianPrior:
        """The prior."""
        return self.whitening.prior

    @property
    def components(self) -> tuple[Any, ...]:
        """The posterior itself."""
        return (self,)

    @property
    def weights(self) -> Array:
        """One."""
        return np.ones(1)
