"""Folds and scores where most rows have no class."""

import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from graphuq import GraphClassifier, LabeledKFold, LabeledScorer

FLOWERS = load_iris()
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)
KNOWN = np.arange(150) % 10 == 0
QUICK = {"prior": "matern", "inference": "ep", "gamma": 0.2}


def text():
    return np.where(KNOWN, NAMES[FLOWERS.target], None)


def numbers():
    return np.where(KNOWN, FLOWERS.target, -1)


@pytest.mark.parametrize("y", [text(), numbers(), np.where(KNOWN, FLOWERS.target, np.nan)])
def test_folds(y):
    """Of sorted rows: every labeled one is tested once, each fold has every class, unlabeled ones are always there."""
    folds = list(LabeledKFold(5).split(FLOWERS.data, y))
    assert len(folds) == LabeledKFold(5).get_n_splits() == 5
    tested = np.concatenate([test for _, test in folds])
    assert np.array_equal(np.sort(tested), np.flatnonzero(KNOWN))
    for train, test in folds:
        assert set(FLOWERS.target[test]) == {0, 1, 2}
        assert np.array_equal(np.union1d(train, test), np.arange(150))
        assert not np.intersect1d(train, test).size
    again = list(LabeledKFold(5).split(FLOWERS.data, y))
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(folds, again, strict=True))


@pytest.mark.parametrize("settings", [{}, {"shuffle": True, "random_state": 3}])
def test_folds_are_those_of_scikit_learn(settings):
    """And a class with fewer labels than folds is warned of, as there."""
    y = numbers()
    y[np.flatnonzero(y == 1)[2:]] = -1
    labeled = np.flatnonzero(y >= 0)
    with pytest.warns(UserWarning, match=r"n_splits = 4 needs as many labels .* in each fold, and 1 has fewer\."):
        found = [test.tolist() for _, test in LabeledKFold(4, **settings).split(FLOWERS.data, y)]
    with pytest.warns(UserWarning, match="least populated class"):
        known = list(StratifiedKFold(4, **settings).split(labeled, y[labeled]))
    assert found == [labeled[test].tolist() for _, test in known]


@pytest.mark.parametrize("name", [str, float], ids=["text", "numbers"])
def test_groups_are_held_out_whole(name):
    """Labels of one patient are together in a test set; rows without a label need no patient."""
    patients = np.array([name(k // 20) if KNOWN[k] else None for k in range(150)], dtype=object)
    folds = list(LabeledKFold(3).split(FLOWERS.data, text(), patients))
    tested = [set(patients[test]) for _, test in folds]
    assert sum(map(len, tested)) == len(set.union(*tested)) == 8
    assert np.array_equal(np.sort(np.concatenate([test for _, test in folds])), np.flatnonzero(KNOWN))
    for train, test in folds:
        assert np.array_equal(np.union1d(train, test), np.arange(150))
    patients[10] = np.nan
    with pytest.raises(ValueError, match="groups must name the group of every labeled row"):
        list(LabeledKFold(3).split(FLOWERS.data, text(), patients))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        list(LabeledKFold(3).split(FLOWERS.data, text(), patients[:20]))


def test_a_class_in_few_groups_is_told():
    """It is tested in few folds; of one group it has no training data where it is tested."""
    with pytest.warns(UserWarning, match=r"3 needs as many groups of each class .* and 'setosa' has fewer\."):
        list(LabeledKFold(3).split(FLOWERS.data, text(), np.where(np.arange(150) < 50, -1, np.arange(150))))
    with pytest.raises(
        ValueError, match=r"4 needs as many groups of a class, .* fewer: use at most 3 folds, or label"
    ):
        list(LabeledKFold(4).split(FLOWERS.data, text(), np.arange(150) // 20))
    with pytest.raises(ValueError, match=r"5 needs as many groups of a class, .* have fewer: label more\."):
        list(LabeledKFold(5).split(FLOWERS.data, text(), FLOWERS.target))


def test_groups_that_leave_a_fold_empty_are_refused(monkeypatch):
    """Scikit-learn divides groups greedily, without a promise that each fold gets one."""
    greedy = [(np.arange(15), np.arange(15)), (np.arange(15), np.array([], dtype=int))]
    monkeypatch.setattr(StratifiedGroupKFold, "split", lambda *given: greedy)
    with pytest.raises(ValueError, match="These groups cannot be divided into n_splits = 2 folds: use fewer"):
        list(LabeledKFold(2).split(FLOWERS.data, text(), np.arange(150)))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (pd.Series([1, None] * 75, dtype="Int64"), "that of some is missing"),
        ([""] * 150, "that of some is missing"),
        ([("site", k) for k in range(150)], r"one group a row, got the shape \(150, 2\)"),
    ],
)
def test_odd_groups_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        list(LabeledKFold(3).split(FLOWERS.data, np.where(np.arange(150) % 9 == 0, FLOWERS.target, -1), groups))


def test_groups_in_another_order_are_warned_of():
    frame, groups = pd.DataFrame(FLOWERS.data), pd.Series(np.arange(150))
    with pytest.warns(UserWarning, match=r"X and groups have the same index in different orders.*groups\.loc"):
        list(LabeledKFold(3).split(frame, numbers(), groups[::-1]))
    mixed = np.array([1, 1.0, "1"] * 50, dtype=object)  # two groups
    with pytest.raises(ValueError, match="use at most 2 folds"):
        list(LabeledKFold(3).split(frame, numbers(), mixed))


def test_cross_validation_hands_groups_on():
    patients, folds = np.arange(150) // 20, LabeledKFold(3)
    classifier, scorer = GraphClassifier(**QUICK), LabeledScorer("neg_log_loss")
    found = cross_val_score(classifier, FLOWERS.data, numbers(), cv=folds, groups=patients, scoring=scorer)
    by_hand = [
        scorer(classifier.fit(FLOWERS.data[train], numbers()[train]), FLOWERS.data[test], numbers()[test])
        for train, test in folds.split(FLOWERS.data, numbers(), patients)
    ]
    assert found == pytest.approx(by_hand)


def test_folds_are_shuffled_when_asked_for():
    tested = [
        [test.tolist() for _, test in LabeledKFold(5, **settings).split(FLOWERS.data, numbers())]
        for settings in (
            {},
            {"shuffle": True, "random_state": 0},
            {"shuffle": True, "random_state": np.random.RandomState(0)},
            {"shuffle": True, "random_state": 1},
        )
    ]
    assert tested[1] == tested[2]
    assert tested[0] != tested[1] != tested[3]


def test_cross_validation():
    """What scikit-learn's own folds and scores cannot do with None, and what they give for -1 nan or too little for."""
    found = cross_val_score(
        GraphClassifier(**QUICK), FLOWERS.data, text(), cv=LabeledKFold(3), scoring=LabeledScorer("neg_log_loss"),
        error_score="raise",
    )  # fmt: skip
    assert found.shape == (3,)
    assert np.isfinite(found).all()
    assert found.mean() > np.log(1 / 3)
    pipeline = make_pipeline(StandardScaler(), GraphClassifier(**QUICK))
    grid = GridSearchCV(
        pipeline, {"graphclassifier__n_neighbors": [20, 30]}, cv=LabeledKFold(2), scoring=LabeledScorer(),
        error_score="raise",
    )  # fmt: skip
    assert grid.fit(FLOWERS.data, numbers()).best_score_ > 0.5


def test_scores_are_those_of_scikit_learn():
    classifier = GraphClassifier(**QUICK).fit(FLOWERS.data, text())
    rows = np.r_[1:20, 51:70]  # one class is missing
    y = NAMES[FLOWERS.target[rows]].copy()
    y[::4] = None
    kept = y != None  # noqa: E711
    p = classifier.predict_proba(FLOWERS.data[rows])[kept]
    truth = y[kept].astype(str)
    scores = {
        name: LabeledScorer(name)(classifier, FLOWERS.data[rows], y) for name in ("neg_log_loss", "accuracy")
    }
    assert scores["neg_log_loss"] == pytest.approx(-log_loss(truth, p, labels=list(NAMES)))
    assert scores["accuracy"] == np.mean(classifier.classes_[p.argmax(axis=1)] == truth)
    two = GraphClassifier(**QUICK).fit(FLOWERS.data[:100], numbers()[:100])
    brier = LabeledScorer("neg_brier_score")(two, FLOWERS.data[:100], numbers()[:100])
    q = two.predict_proba(FLOWERS.data[:100])[KNOWN[:100], 1]
    assert brier == pytest.approx(-brier_score_loss(FLOWERS.target[:100][KNOWN[:100]], q))
    assert pickle.loads(pickle.dumps(LabeledScorer())) == LabeledScorer()  # noqa: S301


@pytest.mark.filterwarnings("ignore:.*has fewer", "ignore:.*is none of the classes of fit")
def test_a_class_that_a_fold_has_not_seen_counts_as_wrong():
    """Its probability is 0, which the log-loss clips; and a search still compares what it tries."""
    y = np.where(FLOWERS.target == 2, -1, numbers())
    y[100] = 2
    train = np.where(np.arange(150) == 100, -1, y)
    classifier = GraphClassifier(**QUICK).fit(FLOWERS.data, train)
    test = np.r_[0, 60, 100]
    p = np.column_stack([classifier.predict_proba(FLOWERS.data[test]), np.zeros(3)])
    expected = {
        "accuracy": 2 / 3,
        "neg_log_loss": -log_loss(FLOWERS.target[test], p),
        "neg_brier_score": -np.square(p - np.eye(3)).sum(axis=1).mean(),
    }
    for name, score in expected.items():
        assert LabeledScorer(name)(classifier, FLOWERS.data[test], y[test]) == pytest.approx(score)
    search = GridSearchCV(
        GraphClassifier(**QUICK), {"tau": [30.0, 0.1]}, cv=LabeledKFold(3), scoring=LabeledScorer("neg_log_loss"),
        error_score="raise",
    )  # fmt: skip
    assert search.fit(FLOWERS.data, y).best_params_ == {"tau": 0.1}


def test_rows_in_another_order_than_their_classes_are_warned_of():
    frame, y = pd.DataFrame(FLOWERS.data), pd.Series(FLOWERS.target)
    score = partial(LabeledScorer(), GraphClassifier(**QUICK).fit(FLOWERS.data, numbers()), frame)
    for match_rows in (score, lambda each: list(LabeledKFold().split(frame, each))):
        with pytest.warns(UserWarning, match="the same index in different orders"):
            match_rows(y[::-1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            match_rows(y)


def test_what_is_refused():
    with pytest.raises(
        ValueError, match=r"n_splits = 6 needs as many labels .*'virginica' have fewer: use at most 5 folds"
    ):
        next(LabeledKFold(6).split(FLOWERS.data, text()))
    with pytest.raises(ValueError, match="random_state makes no difference without shuffle=True: leave it out"):
        LabeledKFold(3, random_state=0)
    with pytest.raises(ValueError, match="n_splits must be a whole number of at least 2, got 1"):
        LabeledKFold(1)
    with pytest.raises(
        ValueError, match="measure must be 'accuracy', 'neg_log_loss' or 'neg_brier_score', got 'auc'"
    ):
        LabeledScorer("auc")
    classifier = GraphClassifier(**QUICK).fit(FLOWERS.data, numbers())
    with pytest.raises(ValueError, match="No row of y has a class"):
        LabeledScorer()(classifier, FLOWERS.data[:3], [-1, -1, -1])
    with pytest.raises(ValueError, match="sample_weight must be one number for each of 150 rows"):
        GraphClassifier().fit(FLOWERS.data, numbers(), sample_weight=np.ones(3))
