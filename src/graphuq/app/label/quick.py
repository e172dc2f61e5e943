"""A posterior and rows in; the probability of each class there after each new label, near enough for a map, out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.calibration import apply_temperature
from graphuq.inference.ep import blas_threads
from graphuq.inference.largest import largest_probability
from graphuq.inference.star_ep import StarEP
from graphuq.inference.whiten import OnModes
from graphuq.models.base import offer
from graphuq.posterior import GaussianPosterior, Mixture

Array = NDArray[np.floating]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sketch:
    """Some rows of a graph, of which the probabilities are wanted after each new label.

    Attributes:
        rows: their numbers.
        modes: the columns of the prior at these rows, in single precision, shape (n_rows, n_columns).
    """

    rows: Rows
    modes: NDArray[np.float32] = field(repr=False)

    @classmethod
    def of(cls, posterior: Any, rows: Rows) -> Sketch:
        """For a posterior, and for those that have other labels under the same prior."""
        parts = _parts(posterior)[0]
        n_columns = max((each.prior.first + each.prior.n_modes for each in parts), default=0)
        modes = np.zeros((len(rows), n_columns), dtype=np.float32)
        for each in parts:
            modes[:, each.prior.first : each.prior.first + each.prior.n_modes] = each.prior.vectors[rows]
        return cls(rows, modes)

    def probability(self, posterior: Any) -> Array:
        """The probability of each class, shape (n_rows, n_classes).

        Of more than two classes the fields at a row are taken as independent, with the variance that their differences
        have on average, and of a mixture the means over deviations are averaged. One field is exact.
        """
        parts, weights = _parts(posterior)
        if not parts:
            return posterior.probability(self.rows)
        mean = np.zeros((len(self.rows), posterior.n_classes), dtype=np.float32)
        with blas_threads(self.modes.size * posterior.n_classes):
            for weight, each in zip(weights, parts, strict=True):
                mean += np.float32(weight) * self._standard(each)
        found = largest_probability(mean, 1.0).astype(float)
        if isinstance(posterior, Mixture) and posterior.temperature != 1:
            found = apply_temperature(found, posterior.temperature)
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def _standard(self, posterior: Any) -> Array:
        """Means of the fields over one deviation s for all, shape (n_rows, n_classes).

            s^2 = gamma^2 + (tr S - 1^T S 1 / K) / (K - 1),    S the covariance of the fields at a row.

        Trace and sum are one quadratic form of the row's modes, so that no matrix is made for a row.
        """
        fit, prior, K = posterior.fit, posterior.prior, posterior.n_classes
        seen = prior.variances > 0
        root = np.zeros((prior.n_modes, fit.basis.shape[0]))
        root[np.flatnonzero(seen), np.arange(root.shape[1])] = np.sqrt(prior.variances[seen])
        columns = self.modes[:, prior.first : prior.first + prior.n_modes]
        at = columns @ (root @ fit.basis).astype(np.float32)
        together = fit.shared.sum(axis=0)
        form = (1 - 1 / K) * np.tensordot(fit.alone, fit.alone, ((0, 2), (0, 2)))
        form += np.tensordot(fit.shared, fit.shared, ((0, 2), (0, 2))) - together @ together.T / K
        form = form / (K - 1) - np.eye(
            len(form)
        )  # and what no label touches: the prior's variance less this part's
        variance = np.square(columns) @ prior.variances.astype(np.float32)
        variance = variance + np.einsum("ni,ni->n", at @ form.astype(np.float32), at)
        noise = float(offer(posterior.model, "noise"))
        deviation = np.sqrt(np.maximum(variance, 0) + np.float32(noise**2))
        return np.asarray(columns @ (root @ fit.z_mean.T).astype(np.float32) / deviation[:, None])


def _parts(posterior: Any) -> tuple[tuple[GaussianPosterior, ...], NDArray[np.float64]]:
    """The components and their weights, where all are Gaussians of several fields on modes; else none."""
    mixture = isinstance(posterior, Mixture)
    parts: Any = posterior.components if mixture else (posterior,)
    ours = (
        isinstance(each, GaussianPosterior)
        and isinstance(each.fit, StarEP)
        and isinstance(each.whitening, OnModes)
        for each in parts
    )
    weights = posterior.weights if mixture else np.ones(1)
    return (parts, weights) if all(ours) else ((), np.empty(0))
