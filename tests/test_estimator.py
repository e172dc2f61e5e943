import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from graphuq import EffectiveSize, GraphClassifier, calibration, datasets, graph
from graphuq.inference.independence import sample_independently
from graphuq.models import Probit

# Enough draws for the quick sampler to be kept, so that nothing is compiled.
QUICK = {"n_steps": 500, "n_chains": 8}
EXPECTED_FAILURES = {
    "check_classifiers_classes": "it has a class called -1, which marks unlabeled rows here",
}


@parametrize_with_checks([GraphClassifier(gamma=1.0, **QUICK)], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def moons(n_nodes=200, n_labeled=10, seed=0):
    """Two moons, their classes as text, and y with most of them None."""
    data = datasets.two_moons(n_nodes, n_features=4, noise=0.08, seed=seed)
    truth = np.where(data.y > 0, "upper", "lower").astype(object)
    y = np.full(n_nodes, None, dtype=object)
    known = np.random.default_rng(seed).choice(n_nodes, n_labeled, replace=False)
    y[known] = truth[known]
    return data.X, y, truth, known


X, Y, TRUTH, KNOWN = moons()
SETTINGS = {"prior": "matern", "n_neighbors": 20, "gamma": 0.5, **QUICK}


@pytest.fixture(scope="module")
def fitted():
    return GraphClassifier(**SETTINGS).fit(X, Y)


def test_what_a_fit_says(fitted):
    assert fitted.classes_.tolist() == ["lower", "upper"]
    assert np.mean(fitted.transduction_ == TRUTH) > 0.8
    np.testing.assert_allclose(fitted.label_distributions_.sum(axis=1), 1)
    assert fitted.posterior_.n_nodes == 200
    assert fitted.hyperparameters_["gamma"] == 0.5
    assert (fitted.n_iter_, fitted.n_features_in_) == (500, 4)
    assert set(fitted.labels_.nodes) == set(KNOWN)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"prior": "full"},
        {"prior": "approximate", "n_modes": 40},
        {"prior": "project", "n_modes": 40},
        {"affinity": "self_tuning", "prior": "approximate", "n_modes": 40},
        {"affinity": "gaussian", "width": 0.5},
    ],
    ids=str,
)
def test_rows_of_fit_get_their_own_answer_back(settings):
    """Labeled and unlabeled alike, to the last digit."""
    classifier = GraphClassifier(**SETTINGS | settings).fit(X, Y)
    assert np.array_equal(classifier.predict_proba(X), classifier.label_distributions_)
    assert np.array_equal(classifier.predict(X[::-1]), classifier.transduction_[::-1])
    assert np.array_equal(classifier.uncertainty(X[:7]), classifier.posterior_.label_variance(np.arange(7)))


@pytest.mark.parametrize(
    "settings",
    [{}, {"prior": "full"}, {"prior": "approximate"}, {"affinity": "self_tuning", "prior": "full"}],
    ids=str,
)
def test_new_rows_are_classified_as_well_as_those_of_fit(settings):
    digits = load_digits()
    pair = np.isin(digits.target, (3, 8))
    features, truth = digits.data[pair], digits.target[pair]
    y = np.full(200, -1)
    for digit in (3, 8):
        known = np.flatnonzero(truth[:200] == digit)[:10]
        y[known] = digit
    classifier = GraphClassifier(**SETTINGS | {"gamma": 1.0} | settings).fit(features[:200], y)
    new = calibration.log_loss(classifier.predict_proba(features[200:])[:, 1], truth[200:] == 8)
    old = calibration.log_loss(classifier.label_distributions_[y < 0, 1], truth[:200][y < 0] == 8)
    assert new < old + 0.1
    assert classifier.score(features[200:], truth[200:]) > 0.85


def test_a_point_between_rows_is_like_them(fitted):
    near = X + 1e-4
    np.testing.assert_allclose(fitted.predict_proba(near), fitted.label_distributions_, atol=0.35)
    assert np.mean(fitted.predict(near) == fitted.transduction_) > 0.97


def test_a_row_far_from_all_others_is_a_coin_toss(fitted):
    direction = np.full((1, X.shape[1]), 1.0)
    sure = [
        np.abs(fitted.predict_proba(X[:20] + distance * direction)[:, 1] - 0.5).mean() for distance in (0, 2, 5)
    ]
    assert sure[0] > sure[1] > sure[2]
    with pytest.warns(UserWarning, match="20 new points have no weight"):
        nowhere = fitted.predict_proba(X[:20] + 1e6 * direction)
    np.testing.assert_allclose(nowhere, 0.5)


def test_identical_rows_of_different_classes_are_no_secret():
    twice, y = np.concatenate([X, X[KNOWN[:1]]]), np.append(Y, "lower" if Y[KNOWN[0]] == "upper" else "upper")
    with pytest.warns(UserWarning, match=f"Rows {KNOWN[0]} and 200 are the same in every feature"):
        found = GraphClassifier(**SETTINGS).fit(twice, y)
    assert np.isfinite(found.label_distributions_).all()


def test_a_graph_is_weights_too(fitted):
    weights = graph.knn(X, n_neighbors=20)
    again = GraphClassifier(**SETTINGS | {"affinity": "precomputed"}).fit(weights, Y)
    np.testing.assert_array_equal(again.transduction_, fitted.transduction_)


def test_the_same_seed_gives_the_same_answer(fitted):
    again = clone(fitted).fit(X, Y)
    other = clone(fitted).set_params(random_state=1).fit(X, Y)
    assert np.array_equal(again.label_distributions_, fitted.label_distributions_)
    assert not np.array_equal(other.label_distributions_, fitted.label_distributions_)
    np.testing.assert_allclose(other.label_distributions_, fitted.label_distributions_, atol=0.15)


def test_new_labels_without_a_new_graph():
    """What a fit with all the labels says; the graph and its spectrum are the same objects."""
    later = np.concatenate([KNOWN[Y[KNOWN] == name][2:] for name in ("lower", "upper")])
    few = Y.copy()
    few[later] = None
    classifier = GraphClassifier(**SETTINGS).fit(X, few)
    graph_, spectrum_ = classifier.graph_, classifier.spectrum_
    classifier.partial_fit_labels(later, Y[later])
    whole = GraphClassifier(**SETTINGS).fit(X, Y)
    assert classifier.graph_ is graph_
    assert classifier.spectrum_ is spectrum_
    quick, right = classifier.label_distributions_, whole.label_distributions_
    assert np.abs(quick - right).mean() < 0.01
    assert np.array_equal(classifier.predict_proba(X), quick)
    assert np.array_equal(classifier.uncertainty(X), 4 * quick[:, 0] * quick[:, 1])
    near = X[:50] + 1e-3
    assert np.abs(classifier.predict_proba(near) - whole.predict_proba(near)).mean() < 0.01
    assert not hasattr(classifier, "n_iter_")
    with pytest.raises(AttributeError, match=r"call draw\(\)"):
        _ = classifier.posterior_
    assert np.array_equal(classifier.draw().label_distributions_, right)
    assert np.array_equal(classifier.predict_proba(near), whole.predict_proba(near))
    classifier.partial_fit_labels(later, np.full(len(later), None)).draw()
    assert np.array_equal(classifier.posterior_.z, GraphClassifier(**SETTINGS).fit(X, few).posterior_.z)


def test_new_labels_are_taken_in_without_a_draw(monkeypatch):
    classifier = GraphClassifier(prior="matern", tau=0.3).fit(X, Y)
    monkeypatch.setattr("graphuq.inference.auto.sample", None)
    monkeypatch.setattr("graphuq.inference.auto.sample_independently", None)
    truth = classifier.transduction_
    for n_new in range(1, 21):
        row = classifier.most_uncertain(1)[0]
        classifier.partial_fit_labels([row], [truth[row]])
        assert len(classifier.labels_.nodes) == len(KNOWN) + n_new
        assert classifier.predict_proba(X[[row]]).max() > 0.9
    with pytest.raises(TypeError, match="not callable"):
        classifier.draw()


def test_who_asked_for_sampling_gets_draws():
    classifier = GraphClassifier(**SETTINGS | {"inference": "sample", "prior": "matern", "tau": 0.3}).fit(X, Y)
    classifier.partial_fit_labels(0, "upper")
    assert 0 in classifier.posterior_.model.nodes
    assert np.array_equal(classifier.label_distributions_[:, 1], classifier.posterior_.probability())


def test_a_fit_that_fails_leaves_nothing_that_answers():
    classifier = GraphClassifier(**SETTINGS).fit(X, Y)
    with pytest.raises(ValueError, match="Only one class"):
        classifier.fit(X, np.where(Y == "upper", Y, None))
    with pytest.raises(NotFittedError):
        classifier.predict(X)


def test_the_most_uncertain_rows_are_those_near_even_odds(fitted):
    rows = fitted.most_uncertain(len(X))
    assert set(rows) == set(np.setdiff1d(np.arange(len(X)), KNOWN))
    distance = np.abs(fitted.label_distributions_[rows, 1] - 0.5)
    assert np.all(np.diff(distance) >= 0)


def test_ginzburg_landau_draws_anew_for_new_labels():
    classifier = GraphClassifier(**SETTINGS | {"model": "ginzburg_landau", "prior": "matern", "tau": 1.0}).fit(
        X, Y
    )
    row = np.setdiff1d(np.arange(len(X)), KNOWN)[0]
    classifier.partial_fit_labels([row], ["upper"])
    assert row in classifier.posterior_.model.nodes
    assert np.array_equal(classifier.label_distributions_[:, 1], classifier.posterior_.probability())


def test_labeled_rows_keep_what_their_label_says():
    """However many labels there are: the Gaussian alone would have some of them disagree with their label."""
    digits = load_digits()
    pair = np.isin(digits.target, (3, 8))
    features, truth = digits.data[pair][:150], digits.target[pair][:150]
    y = np.where(np.arange(150) < 60, truth, -1)
    settings = {"prior": "matern", "tau": 0.3, "model": "level_set", "gamma": 1.0}
    classifier = GraphClassifier(**SETTINGS | settings).fit(features, y)
    classifier.partial_fit_labels([60], [truth[60]])
    labeled = classifier.labels_.nodes
    quick = classifier.label_distributions_[labeled, 1]
    right = classifier.draw().posterior_.probability(labeled)
    assert np.abs(quick - right).mean() < 0.02
    assert np.abs(quick - right).max() < 0.08


def test_the_fitted_model_decides_not_later_settings():
    classifier = GraphClassifier(**SETTINGS | {"prior": "matern", "tau": 0.3}).fit(X, Y)
    classifier.set_params(model="ginzburg_landau", gamma=5.0)
    classifier.partial_fit_labels(0, Y[KNOWN[0]]).draw()
    assert isinstance(classifier.posterior_.model, Probit)
    assert classifier.posterior_.model.gamma == classifier.hyperparameters_["gamma"]


def test_a_tie_is_the_first_class_everywhere():
    weights = np.kron(np.eye(3), np.ones((4, 4)) - np.eye(4))
    y = np.array([0, -1, -1, -1, 1, *[-1] * 7])
    with pytest.warns(UserWarning, match="4 nodes lie in components"):
        classifier = GraphClassifier(affinity="precomputed", prior="matern").fit(weights, y)
    assert classifier.label_distributions_[8:].tolist() == [[0.5, 0.5]] * 4
    assert classifier.transduction_[8:].tolist() == classifier.predict(weights)[8:].tolist() == [0] * 4
    assert classifier.score(weights, classifier.transduction_) == 1


def test_equal_rows_are_one_row(fitted):
    """Sparse or dense, with zeros stored or not; of equal rows of fit a labeled one answers."""
    table = np.where(np.abs(X) < 0.05, 0.0, X)
    stored = csr_matrix(table)
    stored[0, 0] = stored[0, 0]  # stored, even if zero
    settings = SETTINGS | {"n_components": 4}
    classifier = GraphClassifier(**settings).fit(stored, Y)
    assert np.array_equal(classifier.predict_proba(csr_matrix(table)), classifier.label_distributions_)
    twice = np.concatenate([X, X[KNOWN[:1]]])
    y = np.append(Y, Y[KNOWN[0]])
    y[KNOWN[0]] = None
    copied = GraphClassifier(**SETTINGS).fit(twice, y)
    assert np.array_equal(copied.predict_proba(X[KNOWN[:1]]), copied.label_distributions_[-1:])
    later = GraphClassifier(**SETTINGS).fit(np.concatenate([X, X[:1]]), np.append(Y, None))
    later.partial_fit_labels(200, Y[KNOWN[0]])
    assert np.array_equal(later.predict_proba(X[:1]), later.label_distributions_[-1:])
    with pytest.warns(UserWarning, match="Rows 0 and 200 are the same"):
        later.partial_fit_labels(0, Y[KNOWN[Y[KNOWN] != Y[KNOWN[0]]][0]])


def test_wrong_new_labels_are_refused(fitted):
    with pytest.raises(ValueError, match="1 is none of the classes of fit, 'lower' and 'upper'"):
        fitted.partial_fit_labels(0, 1)
    with pytest.raises(NotFittedError):
        GraphClassifier().most_uncertain()
    with pytest.raises(ValueError, match="n must be at least 1"):
        fitted.most_uncertain(0)
    with pytest.raises(ValueError, match="No row of y has a class"):
        fitted.score(X, np.full(len(X), None))
    with pytest.raises(ValueError, match="0 to 199"):
        fitted.partial_fit_labels([200], ["upper"])
    with pytest.raises(ValueError, match="2 nodes and 1 classes"):
        fitted.partial_fit_labels([1, 2], ["upper"])
    with pytest.raises(ValueError, match="must differ"):
        fitted.partial_fit_labels([1, 1], ["upper", "lower"])
    with pytest.raises(ValueError, match="none of the classes of fit"):
        fitted.partial_fit_labels([1], ["left"])
    with pytest.raises(ValueError, match="Only one class would stay"):
        fitted.partial_fit_labels(KNOWN[Y[KNOWN] == "upper"], [None] * int(np.sum(Y[KNOWN] == "upper")))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames(frame, fitted):
    table = frame({f"x{k}": X[:, k] for k in range(4)})
    series = pd.Series(Y) if frame is pd.DataFrame else pl.Series(Y.tolist())
    classifier = GraphClassifier(**SETTINGS).fit(table, series)
    assert classifier.feature_names_in_.tolist() == ["x0", "x1", "x2", "x3"]
    assert np.array_equal(classifier.label_distributions_, fitted.label_distributions_)
    assert np.array_equal(classifier.predict_proba(table), fitted.label_distributions_)


@pytest.mark.parametrize("kind", [csr_array, csr_matrix])
def test_sparse_features_are_projected(kind):
    features = np.maximum(np.random.default_rng(0).normal(size=(60, 30)) - 0.5, 0)
    features[:30] += 1
    y = np.full(60, -1)
    y[[0, 1, 58, 59]] = 0, 0, 1, 1
    classifier = GraphClassifier(n_components=5, **SETTINGS).fit(kind(features), y)
    assert np.mean(classifier.transduction_ == np.arange(60) // 30) > 0.95
    assert np.array_equal(classifier.predict_proba(kind(features)), classifier.label_distributions_)
    with pytest.raises(TypeError, match="n_components"):
        GraphClassifier(**SETTINGS).fit(kind(features), y)


@pytest.mark.parametrize("form", [lambda A: A, lambda A: A.toarray()], ids=["sparse", "dense"])
def test_precomputed_weights(form, fitted):
    A = graph.knn(X, n_neighbors=20).weights
    classifier = GraphClassifier(affinity="precomputed", **SETTINGS).fit(form(A), Y)
    np.testing.assert_allclose(classifier.label_distributions_, fitted.label_distributions_, atol=1e-6)
    new = fitted.graph_.to_new(X[:5] + 0.01)
    np.testing.assert_allclose(classifier.predict_proba(form(new)), fitted.predict_proba(X[:5] + 0.01), atol=1e-6)


def test_precomputed_weights_are_cut_on_both_sides_in_cross_validation():
    A = graph.self_tuning(X, n_neighbors=20).weights
    classifier = GraphClassifier(affinity="precomputed", **SETTINGS)
    assert cross_val_score(classifier, A, TRUTH, cv=2).min() > 0.75


def test_pipeline_and_grid_search():
    y = np.where(TRUTH == "upper", 1, 0)
    y[::3] = -1
    pipeline = make_pipeline(StandardScaler(), GraphClassifier(**SETTINGS))
    search = GridSearchCV(pipeline, {"graphclassifier__n_neighbors": [5, 15]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8  # unlabeled rows do not count
    assert search.best_params_["graphclassifier__n_neighbors"] in (5, 15)


def test_the_score_leaves_unlabeled_rows_out(fitted):
    half = np.where(np.arange(200) % 2, TRUTH, None)
    labeled = np.arange(200) % 2 == 1
    assert fitted.score(X, half) == np.mean(fitted.transduction_[labeled] == TRUTH[labeled])


@pytest.mark.filterwarnings("ignore:Not converged")
def test_ginzburg_landau():
    settings = SETTINGS | {"model": "ginzburg_landau", "gamma": 0.6, "n_modes": 30, "n_steps": 100}
    classifier = GraphClassifier(**settings).fit(X, Y)
    assert np.mean(classifier.transduction_ == TRUTH) > 0.85
    assert classifier.hyperparameters_["epsilon"] == 10.0
    assert np.array_equal(classifier.predict_proba(X), classifier.label_distributions_)


def test_hard_posteriors_go_to_the_models_own_sampler(monkeypatch):
    called = []

    def record(prior, model, **settings):
        called.append(settings)
        return sample_independently(prior, Probit([0, 5], [1.0, -1.0], gamma=1.0), n_steps=500)

    monkeypatch.setattr("graphuq.inference.auto.sample", record)
    monkeypatch.setattr("graphuq.estimator.sample", record)
    GraphClassifier(**SETTINGS).fit(X, Y)
    assert not called
    GraphClassifier(**SETTINGS | {"inference": "sample"}).fit(X, Y)
    GraphClassifier(**SETTINGS | {"gamma": 0.001}).fit(X, TRUTH[np.random.default_rng(0).permutation(200)])
    assert ["stop" in settings for settings in called] == [False, True]


def test_draws_that_end_too_soon_are_no_secret(monkeypatch):
    monkeypatch.setattr("graphuq.inference.auto.ENOUGH", EffectiveSize(target=1e9))
    with pytest.warns(ConvergenceWarning, match=r"ended before .* Raise time_limit \(0.001 seconds\)"):
        GraphClassifier(**SETTINGS | {"time_limit": 1e-3, "n_steps": 2000}).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"affinity": "near"}, "affinity must be one of knn"),
        ({"prior": "flat"}, "prior must be one of"),
        ({"model": "logit"}, "model must be one of probit"),
        ({"inference": "guess"}, "inference must be one of"),
        ({"affinity": "gaussian"}, "needs a width"),
        ({"n_neighbors": 0}, "n_neighbors must be a whole number of at least 1"),
        ({"n_modes": 1}, "n_modes must be a whole number of at least 2, got 1"),
        ({"n_modes": None}, "n_modes must be a whole number"),
        ({"gamma": "a"}, "gamma must be a number, got .a."),
        ({"time_limit": None}, "time_limit must be a number, got None"),
        ({"time_limit": 0}, "time_limit must be above 0 seconds"),
        ({"gamma": -1.0}, "gamma must lie between 1e-9 and 1e9, got -1.0"),
        ({"tau": np.inf}, "tau must lie between 1e-9 and 1e9"),
        ({"n_steps": 0}, "n_steps must be a whole number of at least 1, got 0"),
    ],
)
def test_settings_that_do_not_exist(settings, message):
    with pytest.raises(ValueError, match=message):
        GraphClassifier(**settings).fit(X, Y)


def test_a_graph_in_pieces_is_refused_by_the_papers_priors():
    apart = np.concatenate([X, X + 100])
    y = np.concatenate([Y, Y])
    with pytest.raises(ValueError, match="connected components"):
        GraphClassifier(**SETTINGS | {"prior": "project"}).fit(apart, y)
    classifier = GraphClassifier(**SETTINGS).fit(apart, y)
    assert np.mean(classifier.transduction_ == np.concatenate([TRUTH, TRUTH])) > 0.8


def test_the_default_learns_its_prior():
    classifier = GraphClassifier(n_neighbors=20, n_steps=100).fit(X, Y)
    assert {"gamma", "tau", "alpha", "constant"} <= set(classifier.hyperparameters_)
    assert all(factor > 1 for factor in classifier.hyperparameter_spread_.values())
    assert "tau" in classifier.hyperparameter_spread_
    assert classifier.posterior_.model.gamma == classifier.hyperparameters_["gamma"]


def test_a_noise_that_is_given_is_not_learned():
    classifier = GraphClassifier(model="level_set", n_neighbors=20, gamma=0.7, n_steps=100).fit(X, Y)
    assert classifier.hyperparameters_["gamma"] == pytest.approx(0.7)
    assert "gamma" not in classifier.hyperparameter_spread_
    assert "tau" in classifier.hyperparameter_spread_


def test_before_fit():
    with pytest.raises(NotFittedError):
        GraphClassifier().predict(X)


def test_numbers_beyond_reason_are_refused():
    for name in ("gamma", "tau", "alpha", "epsilon"):
        with pytest.raises(ValueError, match=f"{name} must lie between"):
            GraphClassifier(**{name: 1e300}).fit(X, Y)
    weights = graph.knn(X, n_neighbors=20).weights
    with pytest.raises(ValueError, match="sum is infinite"):
        GraphClassifier(affinity="precomputed").fit(weights * 1e308, Y)


def test_rows_that_no_label_reaches_are_no_secret():
    apart = np.concatenate([X, X[:30] + 1000.0])
    y = np.concatenate([Y, np.full(30, None)])
    with pytest.warns(UserWarning, match="30 nodes lie in components"):
        found = GraphClassifier(prior="matern", tau=0.3).fit(apart, y)
    np.testing.assert_allclose(found.label_distributions_[200:], 0.5, atol=1e-6)
    assert found.posterior_.diagnostics().converged
