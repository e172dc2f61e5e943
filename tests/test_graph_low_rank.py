"""Low-rank graphs against the weights that they stand for."""

import numpy as np
import pytest
from scipy import sparse

from graphuq import graph
from graphuq.graph import low_rank
from graphuq.tall import tall
from tests.test_graph import naive_squared_distances, points


def test_cosine_is_its_definition():
    X = np.abs(points())
    A = graph.cosine(X)
    lengths = np.linalg.norm(X, axis=1)
    expected = X @ X.T / np.outer(lengths, lengths)
    np.testing.assert_allclose(A.factor @ A.factor.T, expected, atol=1e-14)
    np.testing.assert_allclose(A.degrees, expected.sum(axis=1), rtol=1e-13)
    assert A.factor.shape == (40, 4)
    assert A.n_nodes == 40


def test_cosine_of_new_points():
    X, X_new = np.abs(points()), np.abs(points(5, seed=1))
    A = graph.cosine(X)
    expected = X_new @ X.T / np.outer(np.linalg.norm(X_new, axis=1), np.linalg.norm(X, axis=1))
    np.testing.assert_allclose(A.feature_map(X_new) @ A.factor.T, expected, atol=1e-14)
    np.testing.assert_array_equal(A.feature_map(X), A.factor)


def test_cosine_takes_signed_features_whose_weights_are_not_negative():
    X = points() * [0.1, 0.1, 0.1, 0.1] + [3, -3, 3, -3]
    assert graph.cosine(X).degrees.min() > 0


@pytest.mark.parametrize("all_pairs_up_to", [20_000, 10])
def test_cosine_refuses_negative_weights(all_pairs_up_to, monkeypatch):
    monkeypatch.setattr(low_rank, "_ALL_PAIRS_UP_TO", all_pairs_up_to)
    with pytest.raises(ValueError, match="more than a right angle apart"):
        graph.cosine(points())


def test_cosine_refuses_rows_of_zeros():
    X = np.abs(points())
    X[[7, 30]] = 0
    with pytest.raises(ValueError, match=r"2 rows of X are all zeros.*row 7"):
        graph.cosine(X)
    with pytest.raises(ValueError, match=r"Row \d+ of X is all zeros and has no direction\."):
        graph.cosine(np.abs(points())).feature_map(np.zeros((1, 4)))


def naive_gaussian(X, Y, tau):
    return np.exp(-naive_squared_distances(X, Y) / (2 * tau**2))


@pytest.mark.parametrize("n_components", [None, 2])
def test_nystrom_with_all_nodes_as_landmarks_is_exact(n_components):
    X, X_new = points(), points(6, seed=1)
    A = graph.nystrom(X, tau=0.6, n_landmarks=40, n_components=n_components)
    exact = graph.gaussian(X, tau=0.6, n_components=n_components)
    np.testing.assert_allclose(A.factor @ A.factor.T, exact.weights + np.eye(40), atol=1e-8)
    np.testing.assert_allclose(A.degrees, exact.degrees + 1, rtol=1e-8)
    np.testing.assert_allclose(A.feature_map(X_new) @ A.factor.T, exact.to_new(X_new), atol=1e-8)


def test_nystrom_is_the_product_through_its_landmarks():
    X = points(200, 3)
    A = graph.nystrom(X, tau=1.0, n_landmarks=15, seed=3)
    Z = A.feature_map.features.points + X.mean(axis=0)
    through = naive_gaussian(X, Z, 1.0)
    expected = through @ np.linalg.solve(naive_gaussian(Z, Z, 1.0), through.T)
    np.testing.assert_allclose(A.factor @ A.factor.T, expected, atol=1e-10)
    np.testing.assert_allclose(A.degrees, np.maximum(expected.sum(axis=1), 1), rtol=1e-10)


def test_nystrom_gets_better_with_landmarks():
    X = points(400, 3)
    exact = naive_gaussian(X, X, 1.0)

    def error(n_landmarks):
        A = graph.nystrom(X, tau=1.0, n_landmarks=n_landmarks)
        return np.abs(A.factor @ A.factor.T - exact).mean()

    assert error(80) < error(20) / 5
    assert error(80) < 1e-2


def test_nystrom_degrees_stay_above_the_self_weight():
    """Most nodes are far from the one landmark: their rows of F vanish, and their degrees must not."""
    A = graph.nystrom(points(50), tau=0.2, n_landmarks=1)
    assert (A.factor @ A.factor.sum(axis=0)).min() < 1e-6
    assert A.degrees.min() == 1


def test_nystrom_survives_coincident_landmarks():
    X = np.repeat(points(5, 3), 20, axis=0)
    A = graph.nystrom(X, tau=1.0, n_landmarks=30)
    assert A.factor.shape[1] < 10
    np.testing.assert_allclose(A.factor @ A.factor.T, naive_gaussian(X, X, 1.0), atol=1e-8)


def test_nystrom_depends_on_the_seed_alone():
    X = points(100)
    same, again, other = (graph.nystrom(X, tau=1.0, n_landmarks=9, seed=seed).factor for seed in (1, 1, 2))
    np.testing.assert_array_equal(same, again)
    assert not np.allclose(same, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_landmarks": 41}, "n_landmarks must lie between 1 and 40"),
        ({"n_landmarks": 0}, "n_landmarks must lie between 1 and 40"),
    ],
)
def test_bad_landmarks_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        graph.nystrom(points(), tau=1.0, **options)


def test_sparse_features_have_cosines_and_no_distances():
    X = sparse.csr_array(np.eye(4) + 0.5)
    np.testing.assert_allclose(graph.cosine(X).factor.toarray(), graph.cosine(X.toarray()).factor)
    with pytest.raises(TypeError, match="sparse"):
        graph.nystrom(X, tau=1.0, n_landmarks=2)


@pytest.mark.parametrize("make", [graph.cosine, lambda X: graph.nystrom(X, tau=1.0, n_landmarks=2)])
def test_bad_features_are_refused(make):
    with pytest.raises(ValueError, match="NaN"):
        make(np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match="at least 2 rows"):
        make(np.ones((1, 2)))
    with pytest.raises(ValueError, match="X has 3 features, but the graph was made from 2"):
        make(np.ones((5, 2))).feature_map(np.ones((1, 3)))


def test_the_row_of_a_missing_value_in_a_store_is_named():
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[17, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 17\b"):
        graph.nystrom(tall(X), tau=1.0, n_landmarks=30)
