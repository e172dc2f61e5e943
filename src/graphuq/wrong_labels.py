"""A posterior in; the labels that are likely wrong, most suspicious first, out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from graphuq.learning import Learned
    from graphuq.posterior import Posterior


@dataclass(frozen=True)
class SuspiciousLabels:
    """Labeled nodes from the most to the least suspicious; all of shape (n_labeled,) or cut to the first.

    Attributes:
        nodes: the labeled nodes.
        y: the labels they were given.
        probability: that the label is wrong.
    """

    nodes: NDArray[np.int64]
    y: NDArray[np.float64]
    probability: NDArray[np.float64]


def wrong_label_probability(result: Learned | Posterior) -> NDArray[np.float64]:
    """``P(y_j u_j < 0 | y)`` for each labeled node, in the order of the model's nodes.

    A label is wrong where it is not the sign of u. All labels count, its own too: a label that stands
    alone against its neighbors is outvoted, one among few others is believed. From `learn` it comes
    from expectation propagation, averaged over hyper-parameters; from `sample`, from exact draws.
    """
    from graphuq.learning import Learned

    y = _labels(result)
    if isinstance(result, Learned):
        positive = result.labeled_probability()
    else:
        positive = result.probability(result.model.nodes)
    return np.where(y > 0, 1 - positive, positive)


def suspicious_labels(result: Learned | Posterior, *, n: int | None = None) -> SuspiciousLabels:
    """The labels ranked by the probability that they are wrong, all of them or the first n."""
    if n is not None and n < 1:
        raise ValueError(f"n must be at least 1, or None for all labels, got {n}.")
    probability = wrong_label_probability(result)
    order = np.argsort(-probability, kind="stable")[:n]
    y = _labels(result)
    return SuspiciousLabels(np.asarray(result.model.nodes)[order], y[order], probability[order])


def _labels(result: Learned | Posterior) -> NDArray[np.float64]:
    """The labels of a model; one of your own may have none that can be wrong."""
    y = getattr(result.model, "y", None)
    if y is None:
        raise TypeError(f"{type(result.model).__name__} has no labels y of -1 and +1 that could be wrong.")
    return np.asarray(y, dtype=np.float64)
