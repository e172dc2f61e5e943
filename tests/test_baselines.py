"""Baselines against dense linear algebra."""

import numpy as np
import pytest
from scipy import sparse

from graphuq import baselines, graph
from graphuq.datasets import two_moons, voting_records
from graphuq.spectrum.result import Spectrum
from tests.test_laplacian import random_weights

dense_and_sparse = pytest.mark.parametrize("convert", [np.array, sparse.csr_array, graph.precomputed])
NODES = np.array([2, 19, 7])


def spectrum_of(A, n_components=1):
    root = np.sqrt(A.degrees)
    values, vectors = np.linalg.eigh(np.eye(A.n_nodes) - A.weights / np.outer(root, root))
    return Spectrum(values, vectors, np.zeros(A.n_nodes), A.degrees, n_components, True, "numpy")


def test_fiedler_vector_of_the_voting_records():
    data = voting_records()
    labels = baselines.fiedler(spectrum_of(graph.gaussian(data.X, tau=1.25)))
    assert set(labels) == {-1, 1}
    right = np.mean(labels == data.y)
    assert max(right, 1 - right) == pytest.approx(0.88, abs=0.005)


def test_fiedler_vector_needs_a_connected_graph_and_two_modes():
    spectrum = spectrum_of(graph.precomputed(np.ones((4, 4))), n_components=2)
    with pytest.raises(ValueError, match="2 components"):
        baselines.fiedler(spectrum)
    one = Spectrum(np.zeros(1), np.ones((4, 1)) / 2, np.zeros(1), np.ones(4), 1, True, "numpy")
    with pytest.raises(ValueError, match="only one"):
        baselines.fiedler(one)


@dense_and_sparse
@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_hard_harmonic_function(convert, shape):
    W = random_weights(diagonal=True)
    y = np.random.default_rng(0).normal(size=shape)
    L = np.diag(W.sum(axis=1)) - W
    free = np.setdiff1d(np.arange(25), NODES)
    u = baselines.harmonic(convert(W), NODES, y)
    np.testing.assert_array_equal(u[NODES], y)
    expected = -np.linalg.inv(L[np.ix_(free, free)]) @ L[np.ix_(free, NODES)] @ y
    np.testing.assert_allclose(u[free], expected, atol=1e-10)
    np.testing.assert_allclose((L @ u)[free], 0, atol=1e-10)
    assert u.min() >= y.min() - 1e-10
    assert u.max() <= y.max() + 1e-10


@dense_and_sparse
@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_soft_harmonic_function(convert, shape):
    W = random_weights(diagonal=True)
    y = np.random.default_rng(0).normal(size=shape)
    precision, values = np.zeros((25, 25)), np.zeros((25, *shape[1:]))
    precision[NODES, NODES] = 1 / 0.3**2
    values[NODES] = y
    expected = np.linalg.inv(np.diag(W.sum(axis=1)) - W + precision) @ precision @ values
    np.testing.assert_allclose(baselines.harmonic(convert(W), NODES, y, noise=0.3), expected, atol=1e-10)


@dense_and_sparse
def test_soft_becomes_hard_as_the_noise_vanishes(convert):
    A, y = convert(random_weights()), np.array([1.0, -1.0, 1.0])
    np.testing.assert_allclose(
        baselines.harmonic(A, NODES, y, noise=1e-5), baselines.harmonic(A, NODES, y), atol=1e-8
    )


@dense_and_sparse
def test_all_nodes_labeled(convert):
    y = np.linspace(-1, 1, 25)
    np.testing.assert_array_equal(baselines.harmonic(convert(random_weights()), np.arange(25), y), y)


def test_harmonic_function_classifies_two_moons():
    data = two_moons(600, n_features=20, noise=0.06)
    nodes = np.random.default_rng(0).choice(600, 18, replace=False)
    u = baselines.harmonic(graph.knn(data.X, n_neighbors=10), nodes, data.y[nodes])
    assert np.mean(np.sign(u) == data.y) > 0.95


@pytest.mark.parametrize(
    ("nodes", "y", "noise", "message"),
    [
        ([], [], None, "one or more"),
        ([0.5], [1], None, "node numbers"),
        ([0, 25], [1, -1], None, "between 0 and 24"),
        ([-1, 2], [1, -1], None, "between 0 and 24"),
        ([2, 2], [1, -1], None, "listed once"),
        ([2, 3], [1], None, "a row for each of 2"),
        ([2, 3], [1, np.nan], None, "finite"),
        ([2, 3], [1, -1], 0.0, "noise must be a positive number"),
        ([2, 3], [1, -1], -1.0, "noise must be a positive number"),
    ],
)
def test_bad_labels_are_refused(nodes, y, noise, message):
    with pytest.raises(ValueError, match=message):
        baselines.harmonic(random_weights(), nodes, y, noise=noise)


@dense_and_sparse
@pytest.mark.parametrize("noise", [None, 0.1])
def test_every_component_needs_a_label(convert, noise):
    A = convert(sparse.block_diag([random_weights(10), random_weights(8), random_weights(9)]).toarray())
    with pytest.raises(ValueError, match="2 of 3 components of the graph have no label"):
        baselines.harmonic(A, [0, 3], [1, -1], noise=noise)
    baselines.harmonic(A, [0, 10, 18], [1, -1, 1], noise=noise)


def test_lack_of_convergence_is_said(monkeypatch):
    monkeypatch.setattr(baselines, "_MAX_STEPS", 2)
    with pytest.warns(RuntimeWarning, match="did not converge"):
        baselines.harmonic(sparse.csr_array(random_weights()), NODES, np.ones(3))
