"""A posterior and cached moments of rows in; their updated class probabilities out, in milliseconds.

A new label at c changes the mean at j in proportion to ``Sigma_jc`` and lowers the variance in proportion to its
square. After a change of few labels the means of the fields are therefore recomputed at all rows, which is one
matrix product, but variances only where the mean has moved far, or many labels have changed, since they were
computed. Updates treat fields as independent, see `largest`; the first evaluation, and that after a change of many
labels, includes correlations of up to three fields. Nothing is cached with so few labels that the marginals of a
single field are corrected for not being Gaussian (`marginals`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq._threads import in_threads
from graphuq.inference.largest import LEAST_PROBABILITY
from graphuq.inference.marginals import gaussian_classes
from graphuq.inference.whiten import OnModes
from graphuq.posterior.base import Array, blocks
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.mixture import labels_by_node
from graphuq.prior import GaussianPrior

Nodes = NDArray[np.int64]

# Variances are recomputed where this staleness exceeds the first number: the squared change of a mean, in units of the
# variance, plus the squared share of labels that changed, since variances change even where means stay, times the
# label variance. With several fields, whose covariances take a hundred times as long, at most MOST_ROWS rows are
# recomputed per update; the others follow at later ones.
STALE, MOST_ROWS = 0.01, 2000
# After more label changes at once than a person who waits for each would make, everything is recomputed.
MOST_CHANGES = 3
# With fewer probabilities than this, counted over all components, everything is recomputed.
FEW_NUMBERS = 2**16
# With more fields, all probabilities treat the fields as independent.
CORRELATED_FIELDS = 3


class Kept(NamedTuple):
    """Cached moments of the fields of one component at some rows."""

    prior: GaussianPrior  # identifies the component: labels do not change the prior
    mean: Array  # at the time the variances were computed, (n_rows, n_fields)
    variance: Array  # noise included, (n_rows, n_fields)
    changes: Nodes  # of labels since then, (n_rows,)
    labels: dict[int, tuple[int, float]]  # class and weight of each labeled node, now

    def at(self, rows: Nodes) -> Kept:
        """The moments at a subset of the rows, given by position."""
        return self._replace(mean=self.mean[rows], variance=self.variance[rows], changes=self.changes[rows])


def refreshed(
    posterior: Any, before: tuple[Kept, ...] = (), rows: Nodes | None = None
) -> tuple[Array, Array, tuple[Kept, ...]]:
    """Class probabilities of rows (all by default), their errors, and the cache for the next call."""
    nodes = np.arange(posterior.n_nodes) if rows is None else rows
    parts = posterior.components
    in_closed_form = all(isinstance(each, GaussianPosterior) for each in parts)
    if not in_closed_form or len(nodes) * posterior.n_classes * len(parts) < FEW_NUMBERS:
        classes = posterior.classes(nodes)
        return classes.probability, classes.error, ()
    cacheable = all(_is_cacheable(each) for each in parts)

    def component(each: GaussianPosterior) -> tuple[Kept | None, Array]:
        if not cacheable:
            return None, each.probability(nodes)
        model: Any = each.model
        labels = labels_by_node(model)
        old = next((old for old in before if old.prior is each.prior), None)
        changes = MOST_CHANGES + 1 if old is None else len(dict(old.labels.items() ^ labels.items()))
        if old is None or changes > MOST_CHANGES:
            kept, probability = _computed(each, nodes, labels)
        else:
            kept, probability = _updated(each, nodes, old._replace(changes=old.changes + changes, labels=labels))
        each.correct_labeled(probability, nodes, float(model.noise))
        return kept, np.clip(probability, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)

    caches, probabilities = zip(*in_threads(component, parts), strict=True)
    mixed = posterior.mixed(probabilities)
    return mixed, np.zeros_like(mixed), caches if cacheable else ()


def _is_cacheable(posterior: GaussianPosterior) -> bool:
    """Whether class probabilities follow from means and variances alone."""
    on_modes = isinstance(posterior.whitening, OnModes) and posterior.model.offers("y")
    return on_modes and not posterior.fit.is_corrected


def _computed(
    posterior: GaussianPosterior, nodes: Nodes, labels: dict[int, tuple[int, float]]
) -> tuple[Kept, Array]:
    """Moments and class probabilities of one component at rows, without a cache."""
    mean = _means(posterior, nodes)
    fit: Any = posterior.fit
    if 1 < mean.shape[1] <= CORRELATED_FIELDS:
        parts = _conditionals(posterior, nodes)
        found = (fit.classes_and_variances(*part, float(posterior.model.noise)) for part in parts)
        probability, variance = (np.concatenate(each) for each in zip(*found, strict=True))
    else:
        variance = _variances(posterior, nodes)
        probability = gaussian_classes(mean, variance)
    return Kept(posterior.prior, mean, variance, np.zeros(len(nodes), dtype=np.int64), labels), probability


def _updated(posterior: GaussianPosterior, nodes: Nodes, before: Kept) -> tuple[Kept, Array]:
    """Moments and class probabilities of one component at rows; variances are recomputed where they are stale.

    `before` has the old moments, with the current labels and the number of changes up to now.
    """
    mean = _means(posterior, nodes)
    probability = gaussian_classes(mean, before.variance)
    change = mean - before.mean
    change -= change.mean(axis=1, keepdims=True) if mean.shape[1] > 1 else 0.0  # only differences of fields matter
    relative = (np.square(change) / before.variance).max(axis=1)
    relative += np.square(before.changes / len(before.labels))
    staleness = relative * uncertainty.label_variance(probability)
    worst = np.argsort(-staleness)[: len(staleness) if mean.shape[1] == 1 else MOST_ROWS]
    rows = worst[staleness[worst] > STALE]
    mean_then, variance, changes = before.mean.copy(), before.variance.copy(), before.changes.copy()
    mean_then[rows], variance[rows], changes[rows] = mean[rows], _variances(posterior, nodes[rows]), 0
    probability[rows] = gaussian_classes(mean[rows], variance[rows])
    return before._replace(mean=mean_then, variance=variance, changes=changes), probability


def _means(posterior: GaussianPosterior, nodes: Nodes) -> Array:
    """Posterior means of the fields at rows, from scaled weights: scaling the eigenvectors would copy them."""
    prior, fit = posterior.prior, posterior.fit
    z: Any = np.atleast_2d(fit.z_mean)
    weights = np.zeros((prior.n_modes, len(z)))
    active = prior.variances > 0
    weights[active] = np.sqrt(prior.variances[active])[:, None] * z.T
    return np.asarray(prior.rows(nodes) @ weights)


def _variances(posterior: GaussianPosterior, nodes: Nodes) -> Array:
    """Posterior variances of the fields at rows, noise included, for fields treated as independent."""
    fit, noise = posterior.fit, float(posterior.model.noise)
    return np.concatenate([fit.independent_variances(*part, noise) for part in _conditionals(posterior, nodes)])


def _conditionals(posterior: GaussianPosterior, nodes: Nodes) -> Iterator[tuple[Array, Array]]:
    """M and s of ``u | z ~ N(M z, s^2)`` at rows, in blocks, in single precision where that suffices."""
    precision: Any = np.float32 if posterior.blurred else np.float64
    for part in blocks(nodes, posterior.rows_at_once):
        matrix, deviation = posterior.whitening.conditional(part)
        yield matrix.astype(precision, copy=False), deviation
