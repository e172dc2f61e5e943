"""The search for nodes near new points against all distances."""

import numpy as np
import pytest

from graphuq.graph import knn
from graphuq.graph.distances import Search, squared_distances
from graphuq.graph.kernel import affinity, kth_distance

RNG = np.random.default_rng(0)
CLOUDS = {
    "a cloud": RNG.standard_normal((1500, 3)),
    "wide": RNG.standard_normal((400, 60)),
    "far from its center": np.concatenate([RNG.standard_normal((700, 2)), 1e3 + RNG.standard_normal((700, 2))]),
    "on a grid, with ties": RNG.integers(0, 6, (900, 2)).astype(float),
    "hardly more than K": RNG.standard_normal((8, 2)),
    "beyond the range of single precision": 1e25 * RNG.standard_normal((600, 3)),
    "one of them far beyond all others": np.vstack([RNG.standard_normal((600, 3)), np.full((1, 3), 1e60)]),
}


@pytest.mark.parametrize("name", CLOUDS)
def test_every_node_that_counts_is_found(name, monkeypatch):
    nodes, K = CLOUDS[name], 5
    points = nodes[RNG.choice(len(nodes), 40)] + 0.1 * RNG.standard_normal((40, nodes.shape[1]))
    points[:3] = nodes[:3]
    radii = RNG.exponential(0.5, len(nodes))
    monkeypatch.setattr("graphuq.tall._BLOCK_BYTES", 2**16)  # several blocks
    found = Search.of(nodes, radii).near(points, K)
    squared = squared_distances(points, nodes)
    kth = np.sort(squared, axis=1)[:, K - 1]
    i, j = np.nonzero((squared <= kth[:, None]) | (squared <= radii**2))
    assert set(zip(i, j, strict=True)) <= set(zip(found.points, found.nodes, strict=True))
    np.testing.assert_allclose(found.squared, squared[found.points, found.nodes], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.squared[found.first + K - 1], kth, rtol=1e-9, atol=1e-12)
    assert np.all(np.diff(found.first) >= K)


@pytest.mark.parametrize("weights", ["self_tuning", 0.7])
def test_weights_of_new_points_follow_the_rule_of_the_graph(weights):
    X, K = CLOUDS["a cloud"], 6
    graph, points = knn(X, n_neighbors=K, weights=weights), RNG.standard_normal((30, 3))
    squared = squared_distances(points, X)
    kth = kth_distance(squared, K)[:, None]
    reach = np.sort(squared_distances(X, X), axis=1)[:, K]
    tau, tau_nodes = (0.7, 0.7) if weights == 0.7 else (kth, np.sqrt(reach))
    expected = np.where(squared <= (1 + 1e-10) * np.maximum(kth**2, reach), affinity(squared, tau, tau_nodes), 0)
    placed = graph.place(points)
    np.testing.assert_allclose(placed.weights.toarray(), expected, rtol=1e-9)
    np.testing.assert_array_equal(placed.nearest, squared.argmin(axis=1))
    np.testing.assert_allclose(graph.place(X[:5]).weights.toarray(), graph.weights[:5].toarray())
    np.testing.assert_allclose(graph.place(X[:5]).share, 1)


def test_a_point_far_beyond_all_nodes_is_placed_without_a_warning():
    nodes, points = CLOUDS["a cloud"], np.vstack([np.full((1, 3), 1e140), RNG.standard_normal((4, 3))])
    found = Search.of(nodes, np.full(len(nodes), 0.5)).near(points, 5)
    kth = np.sort(squared_distances(points, nodes), axis=1)[:, 4]
    np.testing.assert_allclose(found.squared[found.first + 4], kth, rtol=1e-9)
