"""A partially labeled column of classes in; scikit-learn splitters and scorers that use its labeled rows out.

cross_val_score(GraphClassifier(), X, y, cv=LabeledKFold(5), scoring=LabeledScorer("neg_log_loss"))
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import calibration
from graphuq._expect import SettingError, called, expect_flag, expect_one_of, expect_whole
from graphuq._warn import warn
from graphuq.classes import is_missing, names_listed, read_labels

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class LabeledKFold:
    """Stratified k-fold over the labeled rows; unlabeled rows are in every training set and in no test set.

    The folds are those of scikit-learn's `StratifiedKFold`, which has the same settings. A class with fewer labels
    than folds is missing from some test sets, which causes a warning; a class with one label has no training data
    where it is tested. If `groups` are given, such as the patient of each row, labels of one group are held out
    together, as by `StratifiedGroupKFold`, and the groups of each class are counted instead of its labels.

    Attributes:
        n_splits: number of folds, at least 2 and at most the number of labels of the most frequent class.
        shuffle: whether to shuffle the labels of each class first.
        random_state: seed of the shuffle, a number, a RandomState or None; the same number gives the same folds.
    """

    n_splits: int = 5
    _: KW_ONLY
    shuffle: bool = False
    random_state: int | np.random.RandomState | None = None

    def __post_init__(self) -> None:
        expect_whole(self.n_splits, "n_splits", least=2)
        expect_flag(self.shuffle, "shuffle")
        if self.random_state is not None and not isinstance(self.random_state, np.random.RandomState):
            expect_whole(self.random_state, "random_state", 0, 2**32 - 1)
        if self.random_state is not None and not self.shuffle:
            raise SettingError("random_state", "makes no difference without shuffle=True: leave it out.")

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[RowNumbers, RowNumbers]]:
        """Yield the row indices of each training set and test set; of groups only those of labeled rows matter."""
        from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
        from sklearn.utils.validation import check_consistent_length

        from graphuq.estimator.rows import warn_of_order

        warn_of_order(X, y)  # folds of a different order hold different rows, which `fit` cannot tell
        warn_of_order(X, groups, "groups")
        check_consistent_length(X, y, groups)
        labels = read_labels(y)
        of_label, what, counts = None, "labels", labels.counts()
        if groups is not None:
            of_label, what = _groups(groups, labels.nodes), "groups"
            counts = np.array([np.unique(of_label[labels.y == k]).size for k in range(labels.n_classes)])
        rare = counts < self.n_splits
        if rare.any():
            need = f"n_splits = {self.n_splits} needs as many {what} of"
            few = f"{names_listed(labels.classes[rare])} {'has' if rare.sum() == 1 else 'have'} fewer"
            if rare.all():
                most = f"use at most {counts.max()} folds, or " if counts.max() > 1 else ""
                raise ValueError(f"{need} a class, and {few}: {most}label more.")
            warn(f"{need} each class to test all in each fold, and {few}.")
        kind = StratifiedKFold if of_label is None else StratifiedGroupKFold
        folds = kind(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        with warnings.catch_warnings():  # scikit-learn would warn of rare classes again
            warnings.simplefilter("ignore", UserWarning)
            test_positions = [held_out for _, held_out in folds.split(labels.nodes, labels.y, of_label)]
        if not all(held_out.size for held_out in test_positions):
            raise ValueError(f"These groups cannot be divided into n_splits = {self.n_splits} folds: use fewer.")
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        for held_out in test_positions:
            test = labels.nodes[held_out]
            yield np.setdiff1d(np.arange(n_rows), test), test

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits


def _groups(groups: Any, nodes: RowNumbers) -> NDArray[np.int64]:
    """The groups of the labeled rows, numbered."""
    given = np.asarray(groups, dtype=object)
    if given.ndim != 1:
        raise ValueError(f"groups must name one group a row, got the shape {given.shape}.")
    if any(map(is_missing, given[nodes])):
        raise ValueError("groups must name the group of every labeled row, and that of some is missing.")
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in given[nodes]])


@dataclass(frozen=True)
class LabeledScorer:
    """A scikit-learn scorer over the labeled rows; larger is better.

    A class unseen in `fit`, as in a fold with the only label of a class, has probability 0, and its rows count as
    errors. The log-loss clips that to 2.2e-16, as scikit-learn does: each such row costs 36.

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

        from graphuq.estimator.rows import warn_of_order

        warn_of_order(X, y)
        check_consistent_length(X, y)
        truth = read_labels(y, classes=estimator.classes_, others=True)
        if not truth.nodes.size:
            raise ValueError(
                "No row of y has a class to compare with: use LabeledKFold for folds of rows that have one."
            )
        p = np.asarray(estimator.predict_proba(X))[truth.nodes]
        unseen = truth.y < 0
        if unseen.any():  # they get a column of their own
            p = np.column_stack([p, np.zeros(len(p))])
        return float(_MEASURES[self.measure](p, np.where(unseen, p.shape[1] - 1, truth.y)))


_MEASURES: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": calibration.accuracy,
    "neg_log_loss": lambda p, y: -calibration.log_loss(p, y),
    "neg_brier_score": lambda p, y: -calibration.brier(p, y),
}
