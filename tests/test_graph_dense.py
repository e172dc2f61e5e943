"""Dense graphs against their definition, written out."""

import numpy as np
import pytest

from graphuq import graph
from graphuq.datasets import two_moons, voting_records
from graphuq.graph import dense
from tests.test_graph import naive_squared_distances, points


def naive_self_tuning(X, n_neighbors):
    squared = naive_squared_distances(X, X)
    tau = np.sqrt(np.sort(squared, axis=1)[:, n_neighbors])  # place 0 is the node itself
    A = np.exp(-squared / (2 * np.outer(tau, tau)))
    np.fill_diagonal(A, 0)
    return A, tau


@pytest.mark.parametrize("n_neighbors", [1, 10, 39])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_self_tuning_is_its_definition(n_neighbors, offset):
    X = points() + offset
    expected, _ = naive_self_tuning(X, n_neighbors)
    np.testing.assert_allclose(graph.self_tuning(X, n_neighbors=n_neighbors).weights, expected, atol=1e-10)


def test_gaussian_is_its_definition():
    X = points()
    expected = np.exp(-naive_squared_distances(X, X) / (2 * 0.7**2))
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(graph.gaussian(X, tau=0.7).weights, expected, atol=1e-12)


def test_self_tuning_weights_of_new_points():
    X, X_new = points(), points(9, seed=1)
    _, tau = naive_self_tuning(X, 6)
    squared = naive_squared_distances(X_new, X)
    tau_new = np.sqrt(np.sort(squared, axis=1)[:, 5])
    expected = np.exp(-squared / (2 * np.outer(tau_new, tau)))
    np.testing.assert_allclose(graph.self_tuning(X, n_neighbors=6).to_new(X_new), expected, atol=1e-12)


def test_a_point_left_out_and_added_as_new_has_the_same_gaussian_weights():
    X = points()
    A = graph.gaussian(X, tau=1.1).weights
    new = graph.gaussian(X[1:], tau=1.1).to_new(X[:1])
    np.testing.assert_allclose(new[0], A[0, 1:], atol=1e-14)


def test_self_tuning_does_not_depend_on_units():
    X = points()
    np.testing.assert_allclose(graph.self_tuning(1e-5 * X).weights, graph.self_tuning(X).weights, atol=1e-12)


def test_coincident_points_are_joined_by_weight_one():
    """Six copies of a point, K = 5: the K-th neighbor of a copy is a copy, and sets no scale."""
    X = points(20, 3)
    X[4:10] = X[4]
    A = graph.self_tuning(X, n_neighbors=5).weights
    apart = np.delete(naive_squared_distances(X[4:5], X)[0], range(4, 10))
    tau_copy = np.sqrt(apart.min())
    np.testing.assert_array_equal(A[4:10, 4:10], 1 - np.eye(6))
    others = [0, 1, 2, 3, *range(10, 20)]
    tau_others = np.sqrt(np.sort(naive_squared_distances(X[others], X), axis=1)[:, 5])
    np.testing.assert_allclose(A[4, others], np.exp(-apart / (2 * tau_copy * tau_others)), atol=1e-12)
    assert np.isfinite(A).all()


def test_copies_stay_copies_after_a_projection():
    X = points(60, 8)
    X[5:30] = X[5]
    A = graph.self_tuning(X, n_neighbors=10, n_components=3).weights
    np.testing.assert_array_equal(A[5:30, 5:30], 1 - np.eye(25))


def test_a_new_point_equal_to_copies_gets_the_row_of_the_first():
    X = points(20, 3)
    X[4:10] = X[4]
    A = graph.self_tuning(X, n_neighbors=5)
    np.testing.assert_array_equal(A.to_new(X[7:8])[0], A.weights[4])


@pytest.mark.parametrize("make", [graph.self_tuning, graph.knn])
def test_all_points_in_one_place_are_refused(make):
    with pytest.raises(ValueError, match="All points coincide"):
        make(np.ones((8, 2)), n_neighbors=3)


def test_isolated_nodes_are_refused():
    X = np.concatenate([points(), [[1e3, 0, 0, 0]]])
    with pytest.raises(ValueError, match=r"1 of 41 nodes are isolated.*node 40.*wider kernel"):
        graph.gaussian(X, tau=1.0)


@pytest.mark.parametrize("make", [graph.self_tuning, lambda X: graph.gaussian(X, tau=1.0)])
def test_a_graph_beyond_memory_is_refused(make, monkeypatch):
    monkeypatch.setattr("graphuq.memory.room", lambda: 1_000_000)
    monkeypatch.setattr(dense, "prepare", lambda *_: pytest.fail("work began before the check"))
    with pytest.raises(
        MemoryError, match=r"1,000 nodes.* takes 24\.0 MB, but 1\.0 MB are free.*graph\.knn.*graph\.nystrom"
    ):
        make(np.zeros((1_000, 2)))


def test_voting_records_have_the_spectrum_of_the_paper():
    data = voting_records()
    A = graph.gaussian(data.X, tau=1.25)
    root = np.sqrt(A.degrees)
    values, vectors = np.linalg.eigh(np.eye(435) - A.weights / np.outer(root, root))
    np.testing.assert_allclose(values[:4], [0, 0.00503, 0.308, 0.381], rtol=2e-3, atol=1e-12)
    right = np.mean(np.where(vectors[:, 1] >= 0, 1, -1) == data.y)
    assert max(right, 1 - right) == pytest.approx(0.88, abs=0.005)


def test_two_moons_graph():
    X = two_moons().X
    A = graph.self_tuning(X, n_neighbors=10)
    some = [0, 700, 1999]
    squared = np.array([np.square(X - X[i]).sum(axis=1) for i in some])
    tau = np.sqrt(np.sort(squared, axis=1)[:, 10])
    np.testing.assert_allclose(
        A.weights[np.ix_(some, some)] + np.eye(3), np.exp(-squared[:, some] / (2 * np.outer(tau, tau))), atol=1e-12
    )


def test_weights_that_underflow_are_no_error():
    with np.errstate(all="raise"):
        assert graph.gaussian(np.array([[0.0], [1.0], [1e3], [1001.0]]), tau=1.0).weights[0, 2] == 0
