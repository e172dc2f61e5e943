"""Nearest-neighbor graphs against their definition, written out."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.neighbors import BallTree

from graphuq import graph
from graphuq.datasets import mnist
from graphuq.graph import neighbors
from graphuq.graph.neighbors import approximate_neighbors, exact_neighbors
from tests.test_graph import naive_squared_distances, points

both_methods = pytest.mark.parametrize("method", ["exact", "approximate"])


def naive_knn(X, n_neighbors, tau=None):
    squared = naive_squared_distances(X, X)
    np.fill_diagonal(squared, np.inf)
    kth = np.sort(squared, axis=1)[:, n_neighbors - 1]
    wanted = squared <= kth[:, None]
    tau = np.sqrt(kth) if tau is None else np.full(len(X), tau)
    return np.where(wanted | wanted.T, np.exp(-squared / (2 * np.outer(tau, tau))), 0.0)


@both_methods
@pytest.mark.parametrize("tau", [None, 0.8])
@pytest.mark.parametrize("n_neighbors", [1, 4, 20])
@pytest.mark.parametrize("n_features", [2, 12], ids=["tree", "brute"])
def test_knn_is_its_definition(method, tau, n_neighbors, n_features):
    X = points(60, n_features)
    A = graph.knn(X, n_neighbors=n_neighbors, weights="self_tuning" if tau is None else tau, method=method)
    assert isinstance(A.weights, sparse.csr_array)
    np.testing.assert_allclose(A.weights.toarray(), naive_knn(X, n_neighbors, tau), atol=1e-10)


def test_ties_do_not_depend_on_the_order_in_memory():
    X = np.random.default_rng(0).integers(0, 9, (300, 4)) / 10  # numbers of one digit have many equal distances
    turned, new = np.asfortranarray(X), X[:50] + 0.05  # as a data frame gives them
    for settings in ({}, {"robust": True}, {"n_components": 3}):
        A, B = (graph.knn(table, n_neighbors=5, **settings) for table in (X, turned))
        assert (A.weights != B.weights).nnz == 0
        assert (A.to_new(new) != A.to_new(np.asfortranarray(new))).nnz == 0


def test_an_edge_wanted_from_one_side_keeps_its_full_weight():
    X = np.array([[0.0], [1.0], [2.5]])
    A = graph.knn(X, n_neighbors=1, weights=1.0).weights.toarray()
    assert A[2, 1] == A[1, 2] == pytest.approx(np.exp(-(1.5**2) / 2), rel=1e-14)
    assert A[0, 2] == 0


@pytest.mark.parametrize("tau", [None, 0.8])
def test_weights_of_new_points(tau):
    """An edge if the node is among the K nearest of the point, or has the point within its own K nearest."""
    X, X_new = points(50), points(12, seed=1)
    A = graph.knn(X, n_neighbors=4, weights="self_tuning" if tau is None else tau)
    kth = np.sort(naive_squared_distances(X, X), axis=1)[:, 4]
    squared = naive_squared_distances(X_new, X)
    kth_new = np.sort(squared, axis=1)[:, 3]
    joined = (squared <= kth_new[:, None]) | (squared <= kth)
    assert (joined.sum(axis=1) > 4).any()
    scale = np.sqrt(np.outer(kth_new, kth)) if tau is None else tau**2
    new = A.to_new(X_new)
    assert isinstance(new, sparse.csr_array)
    np.testing.assert_allclose(new.toarray(), np.where(joined, np.exp(-squared / (2 * scale)), 0), atol=1e-10)


@both_methods
def test_coincident_points_are_joined_by_weight_one(method):
    """Nine copies of a point, K = 4: a copy knows only copies, and is scaled by the nearest other point."""
    X = points(40, 3)
    X[8:17] = X[8]
    A = graph.knn(X, n_neighbors=4, method=method)
    copies = A.weights.toarray()[8:17, 8:17]
    assert set(np.unique(copies)) == {0.0, 1.0}
    assert (np.diag(copies) == 0).all()
    assert (copies.sum(axis=1) >= 4).all()
    apart = np.delete(naive_squared_distances(X[8:9], X)[0], range(8, 17))
    np.testing.assert_allclose(A.kernel.tau[8:17], np.sqrt(apart.min()), rtol=1e-12)
    assert np.isfinite(A.weights.data).all()


def crowd(name):
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((900, 12))
    if name == "clusters far from the center":  # single precision cannot tell their points apart
        return 1e-3 * noise + 100 * (np.arange(900) % 2)[:, None]
    if name == "clusters that one product cannot resolve":  # neither in double precision
        return noise + 1e8 * (np.arange(900) % 2)[:, None]
    if name == "half of the points coincide":
        return np.where(np.arange(900)[:, None] % 2, noise[:1], noise)
    if name == "few values":
        return np.sign(noise)
    return noise


@pytest.mark.parametrize(
    "name",
    [
        "none",
        "clusters far from the center",
        "clusters that one product cannot resolve",
        "half of the points coincide",
        "few values",
    ],
)
@pytest.mark.parametrize("n_features", [3, 12])
def test_exact_neighbors_are_the_nearest_other_points(name, n_features):
    X = crowd(name)[:, :n_features]
    squared = np.square(X[:, None] - X[None]).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    found = exact_neighbors(X, 5)
    assert all(len(set(row)) == 5 for row in found)
    distances = np.take_along_axis(squared, found, axis=1)  # infinite to the point itself
    np.testing.assert_allclose(distances, np.sort(squared, axis=1)[:, :5], rtol=1e-9)


def test_far_clusters_make_components_and_no_error():
    X = np.concatenate([points(30), points(30) + 1e3])
    A = graph.knn(X, n_neighbors=5)
    assert sparse.csgraph.connected_components(A.weights)[0] == 2


def test_weights_below_the_smallest_float_are_no_edges():
    with pytest.raises(ValueError, match="isolated"):
        graph.knn(points(), n_neighbors=3, weights=1e-4)


@pytest.mark.parametrize("options", [{"method": "quick"}, {"weights": "cosine"}])
def test_unknown_words_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        graph.knn(points(), n_neighbors=3, **options)


def test_a_large_graph_is_approximate_unless_asked_otherwise(monkeypatch):
    monkeypatch.setattr(neighbors, "_EXACT_UP_TO", 30)
    monkeypatch.setattr(neighbors, "exact_neighbors", lambda *_: pytest.fail("exact"))
    graph.knn(points(40, 9), n_neighbors=3)
    with pytest.raises(pytest.fail.Exception):
        graph.knn(points(40, 9), n_neighbors=3, method="exact")
    with pytest.raises(pytest.fail.Exception):
        graph.knn(points(40, 8), n_neighbors=3)  # few dimensions: a tree is quick


def recall(found, exact):
    return np.mean([np.isin(some, all_).mean() for some, all_ in zip(found, exact, strict=True)])


def test_approximate_search_finds_nearly_all_neighbors(monkeypatch):
    X = np.random.default_rng(0).normal(size=(4000, 3)) @ np.random.default_rng(1).normal(size=(3, 20))
    X += 0.1 * np.random.default_rng(2).normal(size=X.shape)
    exact = exact_neighbors(X, 10)
    found = approximate_neighbors(X, 10, seed=0)
    assert (found != np.arange(4000)[:, None]).all()
    assert all(np.unique(row).size == 10 for row in found)
    assert recall(found, exact) > 0.98
    np.testing.assert_array_equal(found, approximate_neighbors(X, 10, seed=0))
    monkeypatch.setattr(neighbors, "_N_PROBES", 1)
    assert recall(approximate_neighbors(X, 10, seed=0), exact) < 0.9


@pytest.mark.parametrize("distance", [1e3, 1e7])
def test_approximate_search_sees_far_groups_as_well(distance):
    """Groups so far apart that single precision around their common center could not tell the points of one apart."""
    X = np.random.default_rng(0).normal(size=(2000, 12))
    exact = np.concatenate([first + exact_neighbors(X[first : first + 1000], 5) for first in (0, 1000)])
    X[1000:] += distance
    assert recall(approximate_neighbors(X - X.mean(axis=0), 5, seed=0), exact) > 0.99


def test_approximate_search_from_cells_smaller_than_K(monkeypatch):
    monkeypatch.setattr(neighbors, "_N_PROBES", 1)
    X = np.concatenate([points(300, 3), 1e3 * points(10, 3, seed=1)])
    found = approximate_neighbors(X, 20, seed=0)
    assert found.min() >= 0
    assert all(np.unique(row).size == 20 for row in found)
    np.testing.assert_array_equal(np.sort(found[300:]), np.sort(exact_neighbors(X, 20)[300:]))


@pytest.mark.mnist
def test_approximate_search_on_digits():
    X = graph.features.prepare(mnist().X[:8000].astype(float), 50).points
    assert recall(approximate_neighbors(X, 20, seed=0), exact_neighbors(X, 20)) > 0.95


def by_ball_tree(points, n):
    return BallTree(points).query(points, n, return_distance=False)


def without_themselves(points, n):
    squared = naive_squared_distances(points, points)
    np.fill_diagonal(squared, np.inf)
    return np.argsort(squared, axis=1)[:, :n]


@pytest.mark.parametrize("search", [by_ball_tree, without_themselves])
def test_neighbors_may_come_from_an_index_of_another_library(search):
    X = points(300, 6)
    given, own = graph.knn(X, n_neighbors=7, method=search), graph.knn(X, n_neighbors=7, method="exact")
    assert abs(given.weights - own.weights).max() < 1e-12
    np.testing.assert_array_equal(given.to_new(X[:5] + 0.1).toarray(), own.to_new(X[:5] + 0.1).toarray())


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        (lambda points, n: np.zeros((len(points), n - 1), int), TypeError, "the indices of 4 points near each"),
        (lambda points, n: np.zeros((len(points), n)), TypeError, "got float64"),
        (lambda points, n: np.tile([0, 1, 2, -1], (len(points), 1)), ValueError, "for point 0 it returned"),
        (lambda points, n: np.tile([0, 1, 2, len(points)], (len(points), 1)), ValueError, "4 different points"),
        (lambda points, n: np.tile([0, 1, 1, 2], (len(points), 1)), ValueError, "let it search more"),
    ],
    ids=["too few", "no indices", "missing", "outside", "twice"],
)
def test_neighbors_of_another_library_are_checked(found, error, message):
    with pytest.raises(error, match=message):
        graph.knn(points(20, 3), n_neighbors=3, method=found)
