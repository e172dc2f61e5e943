"""Laplacians against their definition, for dense and sparse weights."""

import numpy as np
import pytest
from scipy import sparse

from graphuq import graph, laplacian, tall
from tests.test_graph import points, to_dense


def random_weights(n_nodes=25, *, share=0.4, diagonal=False, seed=0):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.uniform(size=(n_nodes, n_nodes)) * (rng.uniform(size=(n_nodes, n_nodes)) < share), 1)
    W[np.arange(n_nodes - 1), np.arange(1, n_nodes)] = 0.5  # a path through all nodes keeps them connected
    W = W + W.T
    return W + np.diag(rng.uniform(size=n_nodes)) if diagonal else W


kinds = pytest.mark.parametrize("convert", [np.array, sparse.csr_array, graph.precomputed])
normalizations = pytest.mark.parametrize("make", [laplacian.normalized, laplacian.unnormalized])


@kinds
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("block_bytes", [2**25, 500])
def test_laplacians_are_their_definitions(convert, diagonal, block_bytes, monkeypatch):
    monkeypatch.setattr(tall, "_BLOCK_BYTES", block_bytes)
    W = random_weights(diagonal=diagonal)
    d = W.sum(axis=1)
    L = laplacian.normalized(convert(W))
    expected = np.eye(25) - np.diag(d**-0.5) @ W @ np.diag(d**-0.5)
    np.testing.assert_allclose(to_dense(L.matrix), expected, atol=1e-15)
    np.testing.assert_allclose(L.degrees, d, rtol=1e-15)
    assert L.normalized
    L = laplacian.unnormalized(convert(W))
    np.testing.assert_allclose(to_dense(L.matrix), np.diag(d) - W, atol=1e-14)
    assert not L.normalized


@kinds
@normalizations
def test_matrix_is_exactly_symmetric_and_of_the_kind_of_the_weights(convert, make):
    A = convert(random_weights(diagonal=True))
    L = make(A).matrix
    assert isinstance(L, sparse.csr_array) == sparse.issparse(A)
    np.testing.assert_array_equal(to_dense(L), to_dense(L).T)


@normalizations
def test_weights_are_left_alone(make):
    A = graph.precomputed(random_weights())
    before = A.weights.copy()
    make(A)
    np.testing.assert_array_equal(A.weights, before)


@kinds
def test_dirichlet_energy_sums_differences(convert):
    """``J_0(D^{1/2} u) = 1/4 sum_ij a_ij (u_i - u_j)^2`` (2.2); for D - A without the root."""
    W = random_weights(diagonal=True)
    u = np.random.default_rng(1).normal(size=(25, 3))
    expected = (W[:, :, None] * np.square(u[:, None] - u[None])).sum(axis=(0, 1)) / 4
    L = laplacian.normalized(convert(W))
    scaled = np.sqrt(L.degrees)[:, None] * u
    np.testing.assert_allclose(laplacian.dirichlet_energy(L, scaled), expected, rtol=1e-12)
    assert laplacian.dirichlet_energy(L, scaled[:, 1]) == pytest.approx(expected[1], rel=1e-12)
    L = laplacian.unnormalized(convert(W))
    np.testing.assert_allclose(laplacian.dirichlet_energy(L, u), expected, rtol=1e-12)


def test_dirichlet_energy_needs_a_value_for_each_node():
    L = laplacian.normalized(random_weights())
    with pytest.raises(ValueError, match="25 nodes"):
        laplacian.dirichlet_energy(L, np.ones(24))


@kinds
@pytest.mark.parametrize("sizes", [[25], [10, 15], [2, 20, 3], [1, 1, 1]])
def test_components_are_found(convert, sizes):
    blocks = [random_weights(n, seed=n) if n > 1 else np.ones((1, 1)) for n in sizes]
    W = sparse.block_diag(blocks).toarray()
    order = np.random.default_rng(0).permutation(len(W))
    A = convert(W[np.ix_(order, order)])
    truth = np.repeat(np.arange(len(sizes)), sizes)[order]
    n_components, component = laplacian.connected_components(A)
    assert n_components == len(sizes)
    assert len(set(zip(truth, component, strict=True))) == len(sizes)
    assert laplacian.normalized(A).n_components == len(sizes)
    assert laplacian.unnormalized(A).n_components == len(sizes)


def test_a_long_path_is_one_component():
    W = np.diag(np.ones(299), 1)
    assert laplacian.connected_components(W + W.T)[0] == 1


@normalizations
def test_graphs_from_features_are_taken(make):
    for A in (graph.self_tuning(points()), graph.knn(points(), n_neighbors=6)):
        L = make(A)
        root = np.sqrt(L.degrees) if L.normalized else np.ones(40)
        np.testing.assert_allclose(L.matrix @ root, 0, atol=1e-13)
        assert np.linalg.eigvalsh(to_dense(L.matrix))[0] > -1e-13


@normalizations
def test_bad_weights_are_refused(make):
    with pytest.raises(ValueError, match="isolated"):
        make(np.zeros((3, 3)))
    with pytest.raises(TypeError, match=r"spectrum\.low_rank"):
        make(graph.cosine(np.abs(points())))
