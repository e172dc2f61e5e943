"""The covariance that the columns of features give."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from graphuq.feature_piece import SMOOTH_DISTANCE, SMOOTH_SHARE, FeaturePiece

RNG = np.random.default_rng(0)


@pytest.fixture
def X():
    return RNG.standard_normal((80, 3)) * [1.0, 100.0, 1e-6] + [0.0, 1e3, 5.0]


def test_covariance_is_that_of_a_linear_function_and_a_smooth_one(X):
    piece = FeaturePiece.of(X)
    H = piece.columns(X)
    Z = (X - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(3)
    square = np.square(Z[:, None] - Z[None]).sum(axis=2)
    K = np.exp(-square / (2 * SMOOTH_DISTANCE))
    center = np.eye(80) - 1 / 80
    K = center @ K @ center
    K *= 80 / np.trace(K)
    expected = (1 - SMOOTH_SHARE) * Z @ Z.T + SMOOTH_SHARE * K
    np.testing.assert_allclose(H @ H.T, expected, atol=1e-5)  # the smallest eigenvalues are left out
    assert np.square(H).sum(axis=1).mean() == pytest.approx(1)


def test_new_rows_have_the_columns_of_rows_like_them(X):
    piece = FeaturePiece.of(X)
    columns, beyond = piece.within_reach(X[:7])
    np.testing.assert_array_equal(columns, piece.columns(X[:7]))
    np.testing.assert_array_equal(beyond, 0)
    far, beyond = piece.within_reach(1e6 * X[:7])
    assert (beyond > 1e3).all()
    assert (np.linalg.norm(far, axis=1) < 2 * piece.reach).all()


def test_sparse_and_wide_features_have_the_columns_of_dense_ones():
    X = np.where(RNG.random((90, 70)) < 0.1, RNG.random((90, 70)), 0.0)
    dense, sparse = FeaturePiece.of(X), FeaturePiece.of(csr_array(X))
    a, b = dense.columns(X), sparse.columns(csr_array(X))
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-8)


def test_features_that_do_not_vary_or_overflow_are_left_out(X):
    assert FeaturePiece.of(np.ones((10, 2))) is None
    piece = FeaturePiece.of(np.column_stack([X, np.full(80, 7.0)]))
    np.testing.assert_allclose(
        piece.columns(np.column_stack([X, np.full(80, 9.0)])), FeaturePiece.of(X).columns(X)
    )
