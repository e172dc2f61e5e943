from dataclasses import replace

import numpy as np
import pytest

from graphuq import graph, laplacian, spectrum
from graphuq.tall import tall

X = np.random.default_rng(0).normal(size=(120, 3))
GRAPHS = {
    "self_tuning": graph.self_tuning(X, n_neighbors=6),
    "gaussian": graph.gaussian(X, tau=0.8),
    "knn": graph.knn(X, n_neighbors=7),
    "knn, fixed scale": graph.knn(X, n_neighbors=7, weights=0.8),
}
LOW_RANK = {
    "cosine": graph.cosine(np.abs(X) + 0.1),
    "nystrom": graph.nystrom(X, tau=1.0, n_landmarks=40),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_node_given_as_new_gets_its_own_values_back(name):
    found = spectrum.dense(laplacian.normalized(GRAPHS[name]))
    posed = np.abs(1 - found.values) > 1e-3
    assert posed.sum() > 60
    np.testing.assert_allclose(
        spectrum.extend(found, GRAPHS[name], X)[:, posed], found.vectors[:, posed], atol=1e-10
    )


@pytest.mark.parametrize("name", LOW_RANK)
def test_a_node_of_a_low_rank_graph_gets_its_own_values_back(name):
    found = spectrum.low_rank(LOW_RANK[name])
    posed = 1 - found.values > 1e-3
    features = np.abs(X) + 0.1 if name == "cosine" else X
    extended = spectrum.extend(found, LOW_RANK[name], features)
    np.testing.assert_allclose(extended[:, posed], found.vectors[:, posed], atol=1e-10)


def test_a_node_of_the_unnormalized_laplacian_gets_its_own_values_back():
    found = spectrum.dense(laplacian.unnormalized(GRAPHS["gaussian"]))
    divisor = np.abs(found.degrees[:, None] - found.values) / found.degrees[:, None]
    posed = divisor > 1e-3
    extended = spectrum.extend(found, GRAPHS["gaussian"], X)
    np.testing.assert_allclose(extended[posed], found.vectors[posed], atol=1e-10)
    assert (extended[~posed] == 0).all()


def test_modes_at_one_are_zero():
    found = spectrum.low_rank(LOW_RANK["cosine"])
    at_one = replace(
        found, values=np.append(found.values, 1.0), vectors=np.concatenate([found.vectors, X[:, :1]], axis=1)
    )
    extended = spectrum.extend(at_one, LOW_RANK["cosine"], np.abs(X[:5]) + 0.1)
    assert (extended[:, -1] == 0).all()
    assert np.isfinite(extended).all()


def test_new_points_near_a_node_get_nearby_values():
    found = spectrum.low_rank(LOW_RANK["nystrom"], n_modes=5)
    moved = spectrum.extend(found, LOW_RANK["nystrom"], X + 1e-6)
    kept = spectrum.extend(found, LOW_RANK["nystrom"], X)
    np.testing.assert_allclose(moved, kept, atol=1e-4)


def test_weights_may_be_given():
    found = spectrum.dense(laplacian.normalized(GRAPHS["knn"]), n_modes=4)
    dense = GRAPHS["knn"].weights.toarray()
    np.testing.assert_allclose(spectrum.extend_weights(found, dense), found.vectors, atol=1e-10)
    with pytest.raises(ValueError, match=r"a column for each of 120 nodes, got the shape \(120, 7\)"):
        spectrum.extend_weights(found, dense[:, :7])


def test_nothing_is_known_of_a_point_far_from_everything():
    found = spectrum.dense(laplacian.normalized(GRAPHS["gaussian"]), n_modes=4)
    with pytest.warns(UserWarning, match="2 new points have no weight to any node: nothing is known of them"):
        values = spectrum.extend(found, GRAPHS["gaussian"], np.outer([0.0, 1e3, 0.0, -1e3], np.ones(3)))
    assert (values[[1, 3]] == 0).all()
    assert values[[0, 2]].all()
    with pytest.warns(UserWarning, match="1 new point has no weight to any node: nothing is known of it"):
        spectrum.extend(found, GRAPHS["gaussian"], np.full((1, 3), 1e3))


def test_weights_that_are_none_are_refused():
    found = spectrum.dense(laplacian.normalized(GRAPHS["knn"]), n_modes=4)
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(ValueError, match="must be finite and not negative"):
            spectrum.extend_weights(found, np.full((2, 120), bad))


def test_the_graph_of_another_spectrum_is_refused():
    found = spectrum.dense(laplacian.normalized(graph.gaussian(X[:50], tau=0.8)))
    with pytest.raises(ValueError, match="The spectrum has 50 nodes and the graph 120"):
        spectrum.extend(found, GRAPHS["gaussian"], X)


def test_a_nearly_constant_cosine_graph_extends_too():
    """Features that hardly differ: every eigenvalue after the first is within 1e-3 of 1, yet well determined."""
    features = 1 + 0.02 * np.random.default_rng(5).random((120, 4))
    weights = graph.cosine(features)
    found = spectrum.low_rank(weights)
    assert found.n_modes == 4
    assert (1 - found.values[1:] < 1e-3).all()
    np.testing.assert_allclose(spectrum.extend(found, weights, features), found.vectors, atol=1e-8)


@pytest.mark.parametrize("weights", [graph.cosine(np.exp(X)), graph.nystrom(X, tau=0.8, n_landmarks=40)])
def test_functions_of_the_features_are_believed_wherever_they_are_well_posed(weights):
    found = spectrum.low_rank(weights)
    believed = spectrum.believed_modes(found, weights)
    assert np.array_equal(believed, np.abs(1 - found.values) >= 1e-9)
    assert believed.sum() > 1


def test_the_modes_believed_are_those_of_both_laplacians_where_degrees_are_equal():
    """On a ring D - A is d times the normalized Laplacian, and lambda / d what is compared."""
    apart = np.minimum(np.arange(60), 60 - np.arange(60))
    ring = graph.precomputed(np.exp(-(apart[np.abs(np.subtract.outer(range(60), range(60)))] ** 2) / 50.0) * 7.0)
    found = [
        spectrum.believed_modes(spectrum.dense(L), ring)
        for L in (laplacian.normalized(ring), laplacian.unnormalized(ring))
    ]
    assert 2 < found[0].sum() < 50
    np.testing.assert_array_equal(*found)


def test_a_point_opposite_to_all_others_has_no_value_in_memory_as_in_a_store():
    features = np.abs(X) + 0.1
    opposite = np.vstack([features[:1], -features[:2]])
    here, stored = graph.cosine(features), graph.cosine(tall(features))
    with pytest.warns(UserWarning, match="2 new points have no weight to any node"):
        found = spectrum.extend(spectrum.low_rank(here), here, opposite)
    assert (found[1:] == 0).all()
    expected = spectrum.extend(spectrum.low_rank(stored), stored, opposite)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_a_point_far_from_all_landmarks_has_the_same_values_in_memory_and_in_a_store():
    near = np.random.default_rng(0).normal(size=(80, 2))
    new = np.array([[0.0, 0.0], [3.5, 3.5], [6.0, 6.0]])
    found = []
    for features in (near, tall(near)):
        weights = graph.nystrom(features, tau=1.0, n_landmarks=12, seed=3)
        raised = np.ravel(weights.feature_map(new) @ weights.total) < weights.least_degree
        assert raised.tolist() == [False, True, True]
        found.append(spectrum.extend(spectrum.low_rank(weights, n_modes=6), weights, new)[:, 1:])
    np.testing.assert_allclose(*found, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_modes_believed_do_not_depend_on_the_unit_of_weights(scale):
    weights = graph.knn(np.random.default_rng(0).normal(size=(80, 2)), n_neighbors=6).weights
    for each in (weights, weights.toarray()):
        found = spectrum.dense(laplacian.normalized(graph.precomputed(each)))
        believed = spectrum.believed_modes(found, graph.precomputed(each))
        scaled = spectrum.believed_modes(found, graph.precomputed(each * scale))
        assert np.array_equal(believed, scaled)
        assert 1 < believed.sum() < believed.size


@pytest.mark.parametrize("laplacian_of", [laplacian.normalized, laplacian.unnormalized])
def test_only_the_constant_is_believed_where_all_nodes_are_joined_alike(laplacian_of):
    """All other eigenvalues are above the degree: the mean over neighbors has the opposite sign of the node itself."""
    few = graph.gaussian(np.random.default_rng(0).normal(size=(6, 2)), tau=5.0)
    found = laplacian_of(few)
    assert spectrum.believed_modes(spectrum.dense(found), few).tolist() == [True] + [False] * 5
