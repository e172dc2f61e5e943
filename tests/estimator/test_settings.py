import re

import numpy as np
import pytest
from sklearn.base import clone

from graphuq import GraphClassifier, graph, prior
from graphuq.estimator.seen import Seen
from graphuq.estimator.settings import make_graph, refuse_unused

X = np.random.default_rng(0).standard_normal((520, 3))


@pytest.mark.parametrize("seed", [0, np.int64(0), 7])
def test_landmarks_follow_random_state(seed):
    made = make_graph(GraphClassifier(graph="nystrom", width=1.0, random_state=seed), X)
    factors = [graph.nystrom(X, tau=1.0, n_landmarks=500, seed=each).factor for each in (0, 7)]
    assert [np.array_equal(made.factor, each) for each in factors] == [seed == 0, seed == 7]


@pytest.mark.parametrize("seed", [0, 7])
def test_the_search_for_neighbors_follows_random_state(seed, monkeypatch):
    asked = []
    monkeypatch.setattr(graph, "knn", lambda X, **settings: asked.append(settings))
    make_graph(GraphClassifier(random_state=seed), X)
    assert asked == [{"n_neighbors": 5, "n_components": None, "robust": False, "unit_length": False, "seed": seed}]


def test_a_random_state_is_drawn_from():
    def factor():
        state = np.random.RandomState(3)
        return make_graph(GraphClassifier(graph="nystrom", width=1.0, random_state=state), X).factor

    assert np.array_equal(factor(), factor())


@pytest.mark.parametrize("verbose", ["yes", 1.5, [True]])
def test_verbose_is_a_truth(verbose):
    with pytest.raises(TypeError, match="verbose must be True, False or None, got"):
        GraphClassifier(verbose=verbose).fit(np.eye(8), [0, 1] * 4)


IN_VAIN = [
    ({"tau": 0.3}, 'tau makes no difference here: it is for prior="matern". Leave it out.'),
    ({"alpha": 3.0}, 'alpha makes no difference here: it is for prior="matern". Leave it out.'),
    (
        {"prior": "approximate", "tau": 0.3},
        'tau makes no difference here: it is for prior="matern". Leave it out.',
    ),
    ({"prior": prior.matern(tau=0.2, alpha=2), "tau": 0.3}, "tau makes no difference here"),
    (
        {"width": 0.5},
        'width makes no difference here: it is for graph="gaussian" and graph="nystrom". Leave it out.',
    ),
    ({"epsilon": 2.0}, 'epsilon makes no difference here: it is for model="ginzburg_landau". Leave it out.'),
]


@pytest.mark.parametrize(("settings", "told"), IN_VAIN, ids=[" ".join(settings) for settings, _ in IN_VAIN])
def test_a_number_that_changes_nothing_is_refused_before_any_work(settings, told, monkeypatch):
    monkeypatch.setattr(Seen, "of", lambda *given: pytest.fail("work was begun"))
    with pytest.raises(ValueError, match=re.escape(told)):
        clone(GraphClassifier(**settings)).fit(X, np.arange(520) % 3)


def test_numbers_that_are_looked_at_or_are_as_usual_are_taken():
    usual = GraphClassifier()
    for settings in (
        {name: getattr(usual, name) for name in ("tau", "alpha", "width", "epsilon")},
        {"prior": "matern", "tau": 0.3, "alpha": 3.0},
        {"graph": "gaussian", "width": 0.5},
        {"model": "ginzburg_landau", "epsilon": 2.0},
        {"n_steps": 50, "n_chains": 2},  # of `draw`
        {"graph": "precomputed", "n_neighbors": 9},  # while a search tries several graphs
    ):
        refuse_unused(clone(GraphClassifier(**settings)))


@pytest.mark.parametrize("limit", [100, 2])
def test_no_component_with_a_label_is_left_out(limit, monkeypatch):
    """Twenty groups of equal rows are twenty components: a label of a group tells its other rows, if all take part."""
    monkeypatch.setattr("graphuq.estimator.settings.MOST_COMPONENTS", limit)
    table, classes = (
        np.repeat(np.random.default_rng(1).permutation(20)[:, None], 8, axis=0),
        np.arange(160) // 8 % 3 // 2,
    )
    y = np.where(np.arange(160) % 8 == 0, classes, -1)
    classifier = GraphClassifier(prior="matern", inference="ep", n_modes=12)
    if limit == 2:
        with pytest.warns(UserWarning, match="falls into 20 components, too many for all to take part"):
            classifier.fit(table.astype(float), y)
        return
    classifier.fit(table.astype(float), y)
    assert classifier.spectrum_.n_modes == 23
    assert np.array_equal(classifier.transduction_, classes)
