"""Wrappers of scikit-learn: those that count unlabeled rows as a class are refused, all others work."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.tree import DecisionTreeClassifier

from graphuq import GraphClassifier, LabeledKFold, LabeledScorer
from graphuq.classes import holds_mark

X, TRUTH = (each[np.unique(load_iris().data, axis=0, return_index=True)[1]] for each in load_iris(return_X_y=True))
Y = np.where(np.arange(len(X)) % 3, -1, TRUTH)
REFUSED = r"inside of [A-Za-z_.]+, which counts the mark of unlabeled rows as a class: use GraphClassifier without"
FOLDS = KFold(3, shuffle=True, random_state=0)


def quick(**settings):
    return GraphClassifier(prior="matern", gamma=0.3, inference="ep", **settings)


def two(classifier):
    return [("graph", classifier), ("tree", DecisionTreeClassifier(random_state=0))]


COUNTING = {
    "voting": lambda each, **jobs: VotingClassifier(two(each), voting="soft", **jobs),
    "voting by classes": lambda each, **jobs: VotingClassifier(two(each), **jobs),
    "stacking": lambda each, **jobs: StackingClassifier(two(each), cv=FOLDS, **jobs),
    "bagging": lambda each, **jobs: BaggingClassifier(each, n_estimators=2, random_state=0, **jobs),
    "calibrated": lambda each, **jobs: CalibratedClassifierCV(each, cv=FOLDS, **jobs),
    "calibrated once": lambda each, **jobs: CalibratedClassifierCV(each, cv=FOLDS, ensemble=False, **jobs),
    "one versus rest": OneVsRestClassifier,
    "one versus one": OneVsOneClassifier,
}


@pytest.mark.parametrize("name", COUNTING)
def test_wrappers_that_count_the_unlabeled_as_a_class_are_refused(name):
    for y in (Y, np.array(["", "a", "b", "c"], dtype=object)[Y + 1]):
        for classifier in (quick(), make_pipeline(StandardScaler(), quick())):
            with pytest.raises(TypeError, match=REFUSED):
                COUNTING[name](classifier).fit(X, y)


@pytest.mark.parametrize("name", ["voting", "bagging", "one versus rest"])
def test_they_are_refused_where_the_fits_are_in_other_processes(name):
    with pytest.raises(TypeError, match=REFUSED):
        COUNTING[name](quick(), n_jobs=2).fit(X, Y)


@pytest.mark.parametrize("name", COUNTING)
def test_they_work_where_all_rows_have_a_class(name):
    wrapper = COUNTING[name](quick()).fit(X[::2], TRUTH[::2])
    assert wrapper.classes_.tolist() == [0, 1, 2]
    assert wrapper.score(X[1::2], TRUTH[1::2]) > 0.85


def test_a_wrapper_of_a_fitted_classifier_is_refused_too():
    fitted = quick().fit(X, Y)
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted))
    stacked = StackingClassifier([("graph", fitted)], cv="prefit")
    for wrapper in (calibrated, stacked):
        with pytest.raises(TypeError, match=REFUSED):
            wrapper.fit(X, Y)
        assert wrapper.fit(X[1::3], TRUTH[1::3]).score(X[2::3], TRUTH[2::3]) > 0.85


def test_codes_and_chains_are_refused():
    codes = OutputCodeClassifier(quick(), random_state=0)
    with pytest.raises(TypeError, match=REFUSED):
        codes.fit(X, Y).predict(X)
    assert codes.fit(X, TRUTH).score(X, TRUTH) > 0.85
    pairs = np.column_stack([TRUTH, TRUTH > 0])
    with pytest.raises(TypeError, match=REFUSED):
        ClassifierChain(quick()).fit(X, np.where(Y[:, None] < 0, -1, pairs))
    assert np.mean(ClassifierChain(quick()).fit(X, pairs).predict(X) == pairs) > 0.85


def test_boosting_does_not_take_the_marks_for_a_class_in_silence():
    with pytest.raises(ValueError, match="worse than random"):
        AdaBoostClassifier(quick()).fit(X, Y)


def test_left_out_predictions_but_not_probabilities_may_have_unlabeled_rows():
    found = cross_val_predict(quick(), X, Y, cv=FOLDS)
    assert np.mean(found == TRUTH) > 0.85
    with pytest.raises(TypeError, match=REFUSED):
        cross_val_predict(quick(), X, Y, cv=FOLDS, method="predict_proba")
    found = cross_val_predict(quick(), X, TRUTH, cv=FOLDS, method="predict_proba")
    assert np.mean(found.argmax(axis=1) == TRUTH) > 0.85
    with pytest.raises(ValueError, match="only works for partitions"):
        cross_val_predict(quick(), X, Y, cv=LabeledKFold(3))


def test_wrappers_that_pass_the_marks_on_work():
    training = SelfTrainingClassifier(quick()).fit(X, Y)
    assert training.classes_.tolist() == [0, 1, 2]
    assert training.score(X, TRUTH) > 0.85
    voting = VotingClassifier(two(quick()), voting="soft")
    inner = SelfTrainingClassifier(voting).fit(X, Y)  # which gives it labeled rows only
    assert inner.score(X, TRUTH) > 0.85
    outputs = MultiOutputClassifier(quick()).fit(X, np.column_stack([Y, np.where(Y < 0, -1, Y > 0)]))
    assert [classes.tolist() for classes in outputs.classes_] == [[0, 1, 2], [0, 1]]
    pipeline = make_pipeline(StandardScaler(), quick())
    assert pipeline.fit(X, Y).score(X, TRUTH) > 0.85
    scored = {"cv": LabeledKFold(3), "scoring": LabeledScorer("accuracy")}
    assert cross_val_score(pipeline, X, Y, **scored).mean() > 0.85
    search = GridSearchCV(pipeline, {"graphclassifier__n_neighbors": [5, 10]}, **scored).fit(X, Y)
    assert search.best_score_ > 0.85


def test_marks_are_known_in_all_that_wrappers_hold():
    for marked in (np.array([-1, 0]), ["not -1", -1], np.array(["", "a"]), np.array([None, "a"], dtype=object)):
        assert holds_mark(marked)
    assert holds_mark([np.array([0, 1]), np.array([-1, 0, 1])])
    assert not holds_mark([np.array([0, 1]), np.arange(3)])
    for clean in (None, [], np.array([0, 1]), ["not 0", 0], np.array(["a", "b"])):
        assert not holds_mark(clean)


def test_variables_of_callers_are_not_kept_alive():
    class Large:
        pass

    large = Large()
    alive = weakref.ref(large)
    clone(GraphClassifier())
    del large
    assert alive() is None
