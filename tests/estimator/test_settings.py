import numpy as np
import pytest

from graphuq import GraphClassifier, graph
from graphuq.estimator.settings import make_graph

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
    assert asked == [{"n_neighbors": 5, "n_components": None, "robust": False, "seed": seed}]


def test_a_random_state_is_drawn_from():
    def factor():
        state = np.random.RandomState(3)
        return make_graph(GraphClassifier(graph="nystrom", width=1.0, random_state=state), X).factor

    assert np.array_equal(factor(), factor())


@pytest.mark.parametrize("verbose", ["yes", 1.5, [True]])
def test_verbose_is_a_truth(verbose):
    with pytest.raises(TypeError, match="verbose must be True, False or None, got"):
        GraphClassifier(verbose=verbose).fit(np.eye(8), [0, 1] * 4)
