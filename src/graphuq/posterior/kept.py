"""A posterior and what was known of rows before in; the probabilities of these rows now out, in milliseconds.

A new label moves means by ``Sigma_jc``, times a factor, and lowers variances by its square. So the means of the fields
at all rows are computed anew, which is one product; variances only where the mean has moved far since they were
computed. Fields count as independent there, see `largest`; the first time they are asked as they are. So are rows of so
few labels that a single field is no Gaussian (`marginals`), each time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq._threads import in_threads
from graphuq.inference.marginals import FEW_LABELS
from graphuq.inference.whiten import OnModes
from graphuq.models.base import offer
from graphuq.posterior.base import LEAST_PROBABILITY, Array, blocks
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.prior import GaussianPrior

Nodes = NDArray[np.int64]

# Variances are computed anew where the square of a mean's move, in units of the variance, times the label variance
# exceeds this; with several fields, whose covariances take a hundred times as long, at so many rows at most, the
# others being next when another label comes.
STALE, MOST_ROWS = 0.01, 2000
# Of fewer probabilities, of all components, all are computed anew.
FEW_NUMBERS = 2**16
# Probabilities of more fields are those of independent ones everywhere.
CORRELATED_FIELDS = 3


class Kept(NamedTuple):
    """The fields of one component at some rows."""

    prior: GaussianPrior  # which component it is: labels do not change the prior
    mean: Array  # when the variances were computed, (n_rows, n_fields)
    variance: Array  # with noise, (n_rows, n_fields)

    def at(self, rows: Nodes) -> Kept:
        """At some of its rows, by position."""
        return Kept(self.prior, self.mean[rows], self.variance[rows])


def refreshed(
    posterior: Any, before: tuple[Kept, ...] = (), rows: Nodes | None = None
) -> tuple[Array, Array, tuple[Kept, ...]]:
    """The probabilities of rows, by default all, and their errors, and what to hand in next time for the same rows."""
    nodes = np.arange(posterior.n_nodes) if rows is None else rows
    parts = posterior.components
    in_closed_form = all(isinstance(each, GaussianPosterior) for each in parts)
    if not in_closed_form or len(nodes) * posterior.n_classes * len(parts) < FEW_NUMBERS:
        found = posterior.classes(nodes)
        return found.probability, found.error, ()
    keeps = all(_can_keep(each) for each in parts)

    def now_of(each: GaussianPosterior) -> tuple[Kept | None, Array]:
        if not keeps:
            return None, each.probability(nodes)
        old = next((old for old in before if old.prior is each.prior), None)
        kept, probability = _asked(each, nodes) if old is None else _followed(each, nodes, old)
        return kept, np.clip(probability, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)

    now, probabilities = zip(*in_threads(now_of, parts), strict=True)
    mixed = posterior.mixed(probabilities)
    return mixed, np.zeros_like(mixed), now if keeps else ()


def _can_keep(posterior: GaussianPosterior) -> bool:
    """Whether its probabilities follow from means and variances alone."""
    corrected = int(offer(posterior.model, "n_fields")) == 1 and len(posterior.model.nodes) <= FEW_LABELS
    return isinstance(posterior.whitening, OnModes) and not corrected


def _asked(posterior: GaussianPosterior, nodes: Nodes) -> tuple[Kept, Array]:
    """One component at rows, for the first time."""
    kept = Kept(posterior.prior, _means(posterior, nodes), _variances(posterior, nodes))
    if 1 < kept.mean.shape[1] <= CORRELATED_FIELDS:
        return kept, posterior.probability(nodes)
    return kept, posterior.fit.independent_classes(kept.mean, kept.variance)


def _followed(posterior: GaussianPosterior, nodes: Nodes, before: Kept) -> tuple[Kept, Array]:
    """One component at rows, its variances anew where that matters."""
    fit, mean = posterior.fit, _means(posterior, nodes)
    probability = fit.independent_classes(mean, before.variance)
    change = mean - before.mean
    change -= change.mean(axis=1, keepdims=True) if mean.shape[1] > 1 else 0.0  # only differences of fields matter
    lost = (np.square(change) / before.variance).max(axis=1)
    off = lost * uncertainty.label_variance(probability)
    worst = np.argsort(-off)[: len(off) if mean.shape[1] == 1 else MOST_ROWS]
    rows = worst[off[worst] > STALE]
    then, variance = before.mean.copy(), before.variance.copy()
    then[rows], variance[rows] = mean[rows], _variances(posterior, nodes[rows])
    probability[rows] = fit.independent_classes(mean[rows], variance[rows])
    return Kept(posterior.prior, then, variance), probability


def _means(posterior: GaussianPosterior, nodes: Nodes) -> Array:
    """Of every field at rows: the modes of all are not copied, which would take longer than the product."""
    prior, fit = posterior.prior, posterior.fit
    z: Any = np.atleast_2d(fit.z_mean)
    weights = np.zeros((prior.n_modes, len(z)))
    active = prior.variances > 0
    weights[active] = np.sqrt(prior.variances[active])[:, None] * z.T
    return np.asarray(prior.rows(nodes) @ weights)


def _variances(posterior: GaussianPosterior, nodes: Nodes) -> Array:
    whitening, noise = posterior.whitening, float(offer(posterior.model, "noise"))
    precision = np.float32 if posterior.blurred else np.float64
    found = []
    for part in blocks(nodes, posterior.rows_at_once):
        matrix: Any = whitening.matrix(part).astype(precision, copy=False)
        found.append(posterior.fit.independent_variances(matrix, whitening.std(part), noise))
    return np.concatenate(found)
