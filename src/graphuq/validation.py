"""A column of classes with gaps in; folds and scores for scikit-learn that know which rows have a class, out.

cross_val_score(GraphClassifier(), X, y, cv=LabeledKFold(5), scoring=LabeledScorer("neg_log_loss"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import calibration
from graphuq._expect import called, expect_one_of, expect_whole
from graphuq.classes import names_listed, read_labels

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class LabeledKFold:
    """Folds of the labeled rows, stratified by class; unlabeled rows are in every training set and in no test set.

    Attributes:
        n_splits: number of folds, at least 2 and at most the number of labels of the rarest class.
        random_state: seed of the folds; the same number gives the same folds.
    """

    n_splits: int = 5
    random_state: int = 0

    def __post_init__(self) -> None:
        expect_whole(self.n_splits, "n_splits", least=2)
        expect_whole(self.random_state, "random_state", 0, 2**32 - 1)

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[RowNumbers, RowNumbers]]:
        """Row numbers of the training set and of the test set."""
        from sklearn.model_selection import StratifiedKFold
        from sklearn.utils.validation import check_consistent_length

        check_consistent_length(X, y)
        labels = read_labels(y)
        rare = labels.counts() < self.n_splits
        if rare.any():
            raise ValueError(
                f"n_splits = {self.n_splits} needs as many labels of each class, and {names_listed(labels.classes[rare])} "
                f"{'has' if rare.sum() == 1 else 'have'} fewer: use at most {labels.counts().min()} folds, or label more."
            )
        folds = StratifiedKFold(self.n_splits, shuffle=True, random_state=self.random_state)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        for _, held_out in folds.split(labels.nodes, labels.y):
            test = labels.nodes[held_out]
            yield np.setdiff1d(np.arange(n_rows), test), test

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits


@dataclass(frozen=True)
class LabeledScorer:
    """A score over the rows whose class is given; larger is better.

    Attributes:
        measure: "accuracy", "neg_log_loss" or "neg_brier_score".
    """

    measure: str = "accuracy"

    def __post_init__(self) -> None:
        expect_one_of(self.measure, _MEASURES, "measure")

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """The score of a fitted classifier."""
        if not hasattr(estimator, "predict_proba") or not hasattr(estimator, "classes_"):
            raise TypeError(f"estimator must be a fitted classifier with probabilities, got {called(estimator)}.")
        from sklearn.utils.validation import check_consistent_length

        check_consistent_length(X, y)
        truth = read_labels(y, classes=estimator.classes_)
        if not truth.nodes.size:
            raise ValueError(
                "No row of y has a class to compare with: use LabeledKFold for folds of rows that have one."
            )
        p = np.asarray(estimator.predict_proba(X))[truth.nodes]
        return float(_MEASURES[self.measure](p, truth.y))


_MEASURES: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": calibration.accuracy,
    "neg_log_loss": lambda p, y: -calibration.log_loss(p, y),
    "neg_brier_score": lambda p, y: -calibration.brier(p, y),
}
