"""Class probabilities in; the predicted class, measures of its certainty, and a ranking of rows out.

Every function takes `p`, shape (n, n_classes): the probability of each class at each row, rows summing to 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import expect_nodes, expect_numbers, expect_whole

Array = NDArray[np.float64]
RowNumbers = NDArray[np.int64]

# Probabilities this close are ties: between classes the first is taken, between rows none ranks higher.
TIE = 1e-12
# Rows computed in single precision sum to 1 within this.
SUM_TOLERANCE = 1e-5


def most_probable(p: ArrayLike) -> RowNumbers:
    """The index of the most probable class, ``argmax_k p_k``, shape (n,); the first in case of ties."""
    p = check_probability(p)
    return np.asarray(np.argmax(p >= p.max(axis=1, keepdims=True) - TIE, axis=1))


def confidence(p: ArrayLike) -> Array:
    """The probability of the most probable class, shape (n,), between 1 / n_classes and 1."""
    p = check_probability(p)
    return np.take_along_axis(p, most_probable(p)[:, None], axis=1)[:, 0]


def margin(p: ArrayLike) -> Array:
    """The largest probability minus the second largest, shape (n,); for two classes ``|s| = |2 p_1 - 1|``."""
    two = np.partition(check_probability(p), -2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])


def entropy(p: ArrayLike) -> Array:
    """``-sum_k p_k log p_k`` in nats, shape (n,): 0 if certain, log n_classes if all classes are equal."""
    p = check_probability(p)
    return 0.0 - np.sum(p * np.log(np.where(p > 0, p, 1)), axis=1)


def label_variance(p: ArrayLike) -> Array:
    """The variance of the label, normalized, shape (n,): 0 if certain, 1 if all classes are equally probable.

        K / (K - 1) (1 - sum_k p_k^2),

    for two classes the variance ``1 - s^2`` of a label -1 or +1 with mean s, as averaged in (3.2).
    """
    p = check_probability(p)
    n_classes = p.shape[1]
    # sum p (1 - p) equals 1 - sum p^2 without cancellation where one class is nearly certain
    return np.asarray(n_classes / (n_classes - 1) * np.sum(p * (1 - p), axis=1))


def mean_label_variance(p: ArrayLike) -> float:
    """``Var(l)`` (3.2): the label variance averaged over all rows."""
    variance = label_variance(p)
    if not len(variance):
        raise ValueError("p has no rows: at least one is needed for a mean.")
    return float(variance.mean())


def ranked(p: ArrayLike, among: ArrayLike | None = None) -> RowNumbers:
    """Row indices from least to most certain: by confidence, then by margin, then by index.

    For two classes this is the order of ``|s_j|`` (3.1).

    Args:
        p: shape (n, n_classes).
        among: indices of the rows to rank; all by default.
    """
    p = check_probability(p)
    rows = np.arange(len(p)) if among is None else expect_nodes(among, len(p), "among", once=True)
    chosen = p[rows]
    digits = -round(np.log10(TIE))
    keys = (rows, np.round(margin(chosen), digits), np.round(confidence(chosen), digits))
    return np.asarray(rows[np.lexsort(keys)])


def most_uncertain(p: ArrayLike, n: int, among: ArrayLike | None = None) -> RowNumbers:
    """The n least certain rows, or all if there are fewer: the first of `ranked`."""
    return ranked(p, among)[: expect_whole(n, "n")]


def check_probability(p: ArrayLike) -> Array:
    """Validate class probabilities and return them as an array, clipped to [0, 1]."""
    values = expect_numbers(p, "Probabilities")
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(
            f"Probabilities must have the shape (n, n_classes) with 2 or more classes, got {values.shape}."
        )
    wrong = ~((values >= -SUM_TOLERANCE) & (values <= 1 + SUM_TOLERANCE))
    if wrong.any():
        raise ValueError(f"Probabilities must lie between 0 and 1, got {values[wrong][0]}.")
    total = values.sum(axis=1)
    off = np.abs(total - 1) > SUM_TOLERANCE
    if off.any():
        raise ValueError(
            f"Rows of probabilities must add up to 1, got {total[off][0]:.6g} in row {np.argmax(off)}."
        )
    return np.clip(values, 0, 1)
