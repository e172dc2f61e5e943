"""Probabilities of every class in; the class, how certain it is, and which rows are least certain out.

Every function takes `p`, shape (n, n_classes): the probability of each class at each row, rows adding up to 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import expect_nodes, expect_numbers, expect_whole

Array = NDArray[np.float64]
RowNumbers = NDArray[np.int64]

# Probabilities this close are equal: of two such classes the first is taken, of two such rows neither is surer.
TIE = 1e-12
# Rows computed in single precision add up to 1 within this.
SUM_TOLERANCE = 1e-5


def most_probable(p: ArrayLike) -> RowNumbers:
    """The index of the most probable class, ``argmax_k p_k``, shape (n,); the first of several that are equal."""
    found = check_probability(p)
    return np.asarray(np.argmax(found >= found.max(axis=1, keepdims=True) - TIE, axis=1))


def confidence(p: ArrayLike) -> Array:
    """The probability of the most probable class, shape (n,), between 1 / n_classes and 1."""
    found = check_probability(p)
    return np.take_along_axis(found, most_probable(found)[:, None], axis=1)[:, 0]


def margin(p: ArrayLike) -> Array:
    """The largest probability less the second largest, shape (n,); for two classes ``|s| = |2 p_1 - 1|``."""
    two = np.partition(check_probability(p), -2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])


def entropy(p: ArrayLike) -> Array:
    """``-sum_k p_k log p_k`` in nats, shape (n,): 0 where certain, log n_classes where all are equal."""
    found = check_probability(p)
    return 0.0 - np.sum(found * np.log(np.where(found > 0, found, 1)), axis=1)


def label_variance(p: ArrayLike) -> Array:
    """How uncertain the label is, shape (n,): 0 where certain, 1 where all classes are equally probable.

        K / (K - 1) (1 - sum_k p_k^2),

    for two classes the variance ``1 - s^2`` of a label -1 or +1 of mean s, as averaged in (3.2).
    """
    found = check_probability(p)
    n_classes = found.shape[1]
    # 1 - sum p^2 without the loss of digits where one class is nearly certain
    return np.asarray(n_classes / (n_classes - 1) * np.sum(found * (1 - found), axis=1))


def mean_label_variance(p: ArrayLike) -> float:
    """``Var(l)`` (3.2): the label variance averaged over all rows."""
    found = label_variance(p)
    if not len(found):
        raise ValueError("p has no rows: at least one is needed for a mean.")
    return float(found.mean())


def ranked(p: ArrayLike, among: ArrayLike | None = None) -> RowNumbers:
    """Row numbers from least to most certain: by confidence, then by margin, then by row number.

    For two classes this is the order of ``|s_j|`` (3.1).

    Args:
        p: shape (n, n_classes).
        among: the row numbers to rank; all by default.
    """
    found = check_probability(p)
    rows = np.arange(len(found)) if among is None else expect_nodes(among, len(found), "among", once=True)
    chosen = found[rows]
    digits = -round(np.log10(TIE))
    keys = (rows, np.round(margin(chosen), digits), np.round(confidence(chosen), digits))
    return np.asarray(rows[np.lexsort(keys)])


def most_uncertain(p: ArrayLike, n: int, among: ArrayLike | None = None) -> RowNumbers:
    """The first n of `ranked`, or all if there are fewer: the rows worth asking a person about."""
    return ranked(p, among)[: expect_whole(n, "n")]


def check_probability(p: ArrayLike) -> Array:
    """Probabilities of every class, each between 0 and 1."""
    found = expect_numbers(p, "Probabilities")
    if found.ndim != 2 or found.shape[1] < 2:
        raise ValueError(
            f"Probabilities must have the shape (n, n_classes) with 2 or more classes, got {found.shape}."
        )
    wrong = ~((found >= -SUM_TOLERANCE) & (found <= 1 + SUM_TOLERANCE))
    if wrong.any():
        raise ValueError(f"Probabilities must lie between 0 and 1, got {found[wrong][0]}.")
    total = found.sum(axis=1)
    off = np.abs(total - 1) > SUM_TOLERANCE
    if off.any():
        raise ValueError(
            f"Rows of probabilities must add up to 1, got {total[off][0]:.6g} in row {np.argmax(off)}."
        )
    return np.clip(found, 0, 1)
