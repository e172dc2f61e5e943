from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from graphuq import graph, laplacian, spectrum
from graphuq.tall import tall

X = np.abs(np.random.default_rng(0).normal(size=(150, 6))) + 0.1


def test_cosine_spectrum_is_that_of_the_dense_matrix():
    weights = graph.cosine(X)
    found = spectrum.low_rank(weights)
    dense = laplacian.normalized(weights.factor @ weights.factor.T).matrix
    values, vectors = np.linalg.eigh(dense)
    assert found.n_modes == 6
    np.testing.assert_allclose(found.values, values[:6], atol=1e-12)
    np.testing.assert_allclose(values[6:], found.rest, atol=1e-12)
    np.testing.assert_allclose(np.abs((found.vectors * vectors[:, :6]).sum(axis=0)), 1, atol=1e-10)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(found.vectors[:, 0], np.sqrt(weights.degrees / weights.degrees.sum()), atol=1e-14)
    true_residuals = np.linalg.norm(dense @ found.vectors - found.vectors * found.values, axis=0)
    np.testing.assert_allclose(found.residuals, true_residuals, atol=1e-13)
    assert found.n_components == 1


def test_blocks_do_not_matter(monkeypatch):
    whole = spectrum.low_rank(graph.cosine(X))
    monkeypatch.setattr("graphuq.tall._BLOCK_BYTES", 7 * 6 * 8)  # seven rows
    pieces = spectrum.low_rank(graph.cosine(X))
    np.testing.assert_allclose(pieces.values, whole.values, atol=1e-13)
    np.testing.assert_allclose(pieces.vectors, whole.vectors, atol=1e-10)


@pytest.mark.parametrize("given", [np.asarray, tall], ids=["in memory", "in a store"])
def test_nearly_dependent_features_lose_no_digits(given):
    """Columns that differ by 1e-5: vectors from a Gram matrix alone would be orthogonal to four digits."""
    near = np.concatenate([X, X[:, :2] + 1e-5 * np.random.default_rng(1).normal(size=(150, 2))], axis=1)
    found = spectrum.low_rank(graph.cosine(given(near)))
    vectors = np.asarray(found.vectors[:])
    most = 1e-13 if given is np.asarray else 1e-10  # rows of a store are computed again from coefficients
    assert found.n_modes == 8
    assert 1 - found.values[-1] < 1e-10
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(8), atol=most)
    F = graph.cosine(near).factor
    dense = laplacian.normalized(F @ F.T).matrix
    assert np.linalg.norm(dense @ vectors - vectors * found.values, axis=0).max() < most
    assert found.residuals.max() < 1e-11  # known from the Gram matrix, to its digits


def test_rank_deficient_features():
    found = spectrum.low_rank(graph.cosine(np.concatenate([X, X], axis=1)))
    assert found.n_modes == 6
    assert found.rest == 1.0


def test_two_components_are_counted():
    apart = np.zeros((40, 4))
    apart[:20, :2], apart[20:, 2:] = X[:20, :2], X[20:40, :2]
    found = spectrum.low_rank(graph.cosine(apart))
    assert found.n_components == 2
    assert (found.values[:2] == 0).all()
    assert found.values[2] > 0.1
    assert spectrum.low_rank(graph.cosine(apart), n_modes=1).n_components == 2


def test_weights_with_a_negative_eigenvalue_are_refused():
    weights = replace(graph.cosine(X), total=np.full(6, 0.1))  # degrees far below the row sums
    with pytest.raises(ValueError, match=r"negative eigenvalue .* Use more landmarks"):
        spectrum.low_rank(weights)


def test_fewer_modes():
    found = spectrum.low_rank(graph.cosine(X), n_modes=3)
    assert found.n_modes == 3
    assert found.rest is None
    with pytest.raises(ValueError, match="between 1 and 6, the rank of the weights, got 7"):
        spectrum.low_rank(graph.cosine(X), n_modes=7)


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_at_most_so_many_modes(kind):
    weights = graph.cosine(kind(X))
    assert spectrum.low_rank(weights, at_most=4).n_modes == 4
    assert spectrum.low_rank(weights, at_most=100).n_modes == 6
    assert spectrum.low_rank(weights, n_modes=5, at_most=4).n_modes == 5  # limits only the default
    with pytest.raises(ValueError, match="at_most must be a whole number of at least 1, got 0"):
        spectrum.low_rank(weights, at_most=0)


def test_nystrom_error_falls_with_landmarks():
    """Largest error of ten eigenvalues against the dense Gaussian graph with self-weights."""
    points = np.random.default_rng(2).normal(size=(300, 3))
    exact = spectrum.dense(laplacian.normalized(graph.gaussian(points, tau=1.0).weights + np.eye(300)), n_modes=10)
    errors = []
    for n in (200, 100, 30):
        weights = graph.nystrom(points, tau=1.0, n_landmarks=n, seed=0)
        errors.append(np.abs(spectrum.low_rank(weights, n_modes=10).values - exact.values).max())
    assert errors[0] < errors[1] < errors[2] < 0.1
    assert errors[0] < 5e-3


def test_nystrom_with_every_node_a_landmark_is_exact():
    points = np.random.default_rng(2).normal(size=(60, 3))
    exact = spectrum.dense(laplacian.normalized(graph.gaussian(points, tau=0.7).weights + np.eye(60)))
    weights = graph.nystrom(points, tau=0.7, n_landmarks=60)
    found = spectrum.low_rank(weights)
    np.testing.assert_allclose(found.values, exact.values[: found.n_modes], atol=1e-8)


def test_a_floored_degree_keeps_the_spectrum_sound():
    """One point far from every landmark: its degree is set to 1, q_0 stays the null vector, residuals say so."""
    points = np.concatenate([np.random.default_rng(3).normal(size=(80, 2)), [[40.0, 40.0]]])
    weights = graph.nystrom(points, tau=0.5, n_landmarks=10, seed=1)
    assert (weights.degrees >= 1).all()
    found = spectrum.low_rank(weights)
    assert found.values[0] == 0
    assert found.residuals[0] < 1e-12
    assert ((found.values >= 0) & (found.values <= 2)).all()


def test_sparse_features_give_the_spectrum_of_dense_ones():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((60, 40)) < 0.2, rng.random((60, 40)), 0.0)
    X[:, 0] += 0.1
    dense, sparse = (spectrum.low_rank(graph.cosine(each), n_modes=12) for each in (X, csr_array(X)))
    np.testing.assert_allclose(sparse.values, dense.values, atol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(sparse.vectors * dense.vectors, axis=0)), 1, atol=1e-8)
    assert sparse.residuals.max() < 1e-8
    new = X[:5] + 0.01
    for rows in (csr_array(new), new):
        found = spectrum.extend(sparse, graph.cosine(csr_array(X)), rows)
        np.testing.assert_allclose(np.abs(found), np.abs(spectrum.extend(dense, graph.cosine(X), new)), atol=1e-8)


@pytest.mark.parametrize("n_modes", [1, 2, 6])
def test_components_of_sparse_features_are_counted_in_few_modes(n_modes):
    apart = np.kron(np.eye(3), np.ones((4, 3))) * np.random.default_rng(0).uniform(0.1, 1, (12, 9))
    apart = csr_array(apart)
    apart.data[0] = 0.0  # stored, but no link
    found = spectrum.low_rank(graph.cosine(apart), n_modes=n_modes)
    assert (
        found.n_components == spectrum.low_rank(graph.cosine(apart.toarray()), n_modes=n_modes).n_components == 3
    )


def test_one_mode_of_sparse_features():
    dense, sparse = (spectrum.low_rank(graph.cosine(each), n_modes=1) for each in (X, csr_array(X)))
    np.testing.assert_array_equal(sparse.values, [0.0])
    np.testing.assert_allclose(sparse.vectors, dense.vectors, atol=1e-14)
    assert sparse.residuals.max() < 1e-12
    assert spectrum.low_rank(graph.cosine(csr_array(X[:, :1]))).n_modes == 1  # all there are of one feature
