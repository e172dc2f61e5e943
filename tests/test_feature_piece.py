"""The covariance that the columns of features give."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array

from graphuq import feature_piece, tall
from graphuq.feature_piece import FeaturePiece
from graphuq.graph import features, units
from graphuq.graph.units import NORMAL_DISTANCE

RNG = np.random.default_rng(0)


@pytest.fixture
def X():
    return RNG.standard_normal((80, 3)) * [1.0, 100.0, 1e-6] + [0.0, 1e3, 5.0]


def linear_part(piece, X):
    return piece.columns(X)[:, piece.n_bent :]


def compressed(x):
    """By the definition."""
    distance = np.abs(x - np.median(x))
    others = np.sort(distance[distance > 0])
    return np.arcsinh((x - np.median(x)) / (others[len(others) // 2] / NORMAL_DISTANCE))


def test_columns_are_those_of_a_linear_function_and_of_a_bent_one(X, monkeypatch):
    monkeypatch.setattr(feature_piece, "N_BENT", 80)
    piece = FeaturePiece.of(X)
    H = piece.columns(X)[:, : piece.n_bent]
    Z = np.column_stack([compressed(x) for x in X.T])
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0) / np.sqrt(3)
    np.testing.assert_allclose(linear_part(piece, X), Z, atol=1e-12)
    apart = np.abs(Z[:, None] - Z[None]).sum(axis=2)
    K = np.exp(-1.5 * apart / apart.mean())
    center = np.eye(80) - 1 / 80
    K = center @ K @ center
    np.testing.assert_allclose(H @ H.T, K * 80 / np.trace(K), atol=1e-10)
    assert np.square(linear_part(piece, X)).sum(axis=1).mean() == pytest.approx(1)


def test_the_leading_columns_carry_most_of_what_bends(X):
    """60 of 80 columns, and what they leave out is small."""
    piece = FeaturePiece.of(X)
    assert piece.n_bent == 60
    assert np.square(piece.columns(X)[:, :60]).sum(axis=1).mean() == pytest.approx(1)


def test_the_order_of_rows_does_not_matter():
    """Also where some of them are landmarks."""
    X = np.round(RNG.standard_normal((500, 4)), 2)
    order = RNG.permutation(500)
    a, b = FeaturePiece.of(X).columns(X), FeaturePiece.of(X[order]).columns(X)
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-7)


def test_a_bent_function_may_bend_with_one_feature_alone():
    """Rows at the corners of a square: the L1 distance is a sum over features, so similarities are products."""
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=float)
    similar = np.exp(-np.abs(corners[:, None] - corners).sum(axis=2))
    np.testing.assert_allclose(feature_piece._bent(corners, corners, np.eye(4)), similar)
    assert similar[0, 3] == pytest.approx(similar[0, 1] * similar[0, 2])


def test_the_scale_of_a_feature_does_not_matter(X):
    moved = X * [1e-3, 1e5, 7.0] + [3.0, -2.0, 1.0]
    a, b = FeaturePiece.of(X).columns(X), FeaturePiece.of(moved).columns(moved)
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-6)


def test_a_rare_yes_is_a_step_as_long_as_a_frequent_one():
    """Of features of deviation 1 that of 2 rows among 200 would be seven times as long."""
    rare, frequent, number = np.arange(200) < 2, np.arange(200) % 2 == 0, RNG.standard_normal(200)
    X = np.column_stack([rare, frequent, number]).astype(float)
    linear = linear_part(FeaturePiece.of(X), X)
    steps = np.ptp(linear, axis=0)
    assert steps[0] == pytest.approx(steps[1])
    assert steps[1] == pytest.approx(2 * linear[:, 2].std())  # a fair coin of deviation 1


def test_outliers_are_compressed():
    """A number a million times as large as the others is no more than a few times as far out."""
    x = np.append(RNG.standard_normal(199), 1e6)
    linear = linear_part(FeaturePiece.of(x[:, None]), x[:, None])
    assert linear.std() == pytest.approx(1)
    assert 5 < linear[-1, 0] < 15
    assert linear[:-1].std() > 0.5  # of plain numbers of deviation 1 it would be 1e-5


def test_rounding_is_no_difference(X):
    rounded = 7.0 * (1 + 1e-15 * RNG.integers(0, 2, 80))
    piece = FeaturePiece.of(np.column_stack([X, rounded]))
    np.testing.assert_array_equal(piece.weights[3], 0)
    jitter = np.where(np.arange(80) < 40, 1.0, 0.0) + 1e-9 * RNG.standard_normal(80)
    linear = linear_part(FeaturePiece.of(jitter[:, None]), jitter[:, None])
    np.testing.assert_allclose(np.ptp(linear[:40]), 0, atol=1e-2)


def test_new_rows_have_the_columns_of_rows_like_them(X):
    piece = FeaturePiece.of(X)
    columns, beyond = piece.within_reach(X[:7])
    np.testing.assert_array_equal(columns, piece.columns(X[:7]))
    np.testing.assert_array_equal(beyond, 0)
    far, beyond = piece.within_reach(1e6 * X[:7])
    assert (beyond > 1e3).all()
    farthest = piece.units[0] + piece.reach * np.sign(1e6 * X[:7] - piece.units[0])
    np.testing.assert_allclose(far, piece.columns(farthest))
    np.testing.assert_allclose(
        piece.within_reach(farthest)[1], 0, atol=1e-12
    )  # and little more is cut off a little farther out
    assert (piece.within_reach(piece.units[0] + 1.01 * (farthest - piece.units[0]))[1] < 1e-2).all()


def test_an_outlier_in_one_feature_does_not_lengthen_the_reach_of_another():
    X = RNG.standard_normal((300, 2))
    X[7, 1] = 1e12
    piece = FeaturePiece.of(X)
    assert piece.within_reach(np.array([[100.0, 0.0]]))[1] > 10
    assert piece.within_reach(np.array([[0.0, 1e12]]))[1] == 0


def test_noise_in_the_ninth_digit_is_no_difference():
    """Also where most rows share a value, which all others are measured from."""
    X = RNG.poisson(0.3, (400, 4)).astype(float)
    noisy = X + 1e-9 * RNG.standard_normal(X.shape)
    np.testing.assert_allclose(
        linear_part(FeaturePiece.of(noisy), noisy), linear_part(FeaturePiece.of(X), X), atol=1e-6
    )


def test_equal_categories_have_directions(monkeypatch):
    """LAPACK's search for some of many equal eigenvalues may fail."""
    X = np.column_stack([RNG.standard_normal(120), np.eye(120)])
    assert FeaturePiece.of(X).weights.shape == (121, 50)
    covariance = np.eye(70)

    def failing(matrix, subset_by_index=None):
        if subset_by_index is not None:
            raise np.linalg.LinAlgError("Internal Error.")
        return np.linalg.eigh(matrix)

    X = RNG.standard_normal((90, 70)) @ (covariance + RNG.standard_normal((70, 70)))
    columns = FeaturePiece.of(X).columns(X)
    monkeypatch.setattr(features, "eigh", failing)
    others = FeaturePiece.of(X).columns(X)
    np.testing.assert_allclose(columns @ columns.T, others @ others.T, atol=1e-8)


def test_parts_of_a_sparse_entry_are_added_up():
    X = np.where(RNG.random((60, 5)) < 0.3, RNG.standard_normal((60, 5)), 0.0)
    rows, columns = X.nonzero()
    values, ends = X[rows, columns], np.append(0, np.cumsum(2 * np.bincount(rows, minlength=60)))
    parts = csr_array(
        (np.column_stack([3 * values, -2 * values]).ravel(), np.repeat(columns, 2), ends), shape=X.shape
    )
    a, b = FeaturePiece.of(X).columns(X), FeaturePiece.of(parts).columns(parts)
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-10)


@pytest.mark.parametrize("n_features", [7, 70])
def test_sparse_features_have_the_columns_of_dense_ones(n_features):
    X = np.where(RNG.random((90, n_features)) < 0.1, RNG.standard_normal((90, n_features)), 0.0)
    X[:, 0] = 0.0
    dense, sparse = FeaturePiece.of(X), FeaturePiece.of(csr_array(X))
    a, b = dense.columns(X), sparse.columns(csr_array(X))
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-8)
    far = 30 * X
    (a, cut), (b, also) = dense.within_reach(far), sparse.within_reach(csr_array(far))
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-8)
    np.testing.assert_allclose(cut, also, atol=1e-8)
    assert cut.max() > 0


def test_of_very_many_features_the_directions_are_the_same(monkeypatch):
    X = RNG.standard_normal((90, 70)) @ RNG.standard_normal((70, 70))
    columns = FeaturePiece.of(X).columns(X)
    monkeypatch.setattr(features, "MOST_IN_COVARIANCE", 60)
    others = FeaturePiece.of(X).columns(X)
    np.testing.assert_allclose(columns @ columns.T, others @ others.T, atol=1e-8)


def test_some_rows_stand_for_many(monkeypatch):
    """The same rows in memory and in a store."""
    monkeypatch.setattr(units, "MOST_ROWS", 1000)
    X = RNG.standard_normal((4000, 3)) ** 3
    piece, stored = FeaturePiece.of(X), FeaturePiece.of(tall.tall(X))
    np.testing.assert_array_equal(piece.weights, stored.weights)
    np.testing.assert_allclose(piece.columns(X), stored.columns(tall.tall(X)), atol=1e-12)
    for part in np.split(piece.columns(X), [piece.n_bent], axis=1):
        assert np.square(part).sum(axis=1).mean() == pytest.approx(1, abs=0.1)


def test_features_that_do_not_vary_are_left_out(X):
    assert FeaturePiece.of(np.ones((10, 2))) is None
    piece = FeaturePiece.of(np.column_stack([X, np.full(80, 7.0)]))
    np.testing.assert_allclose(
        piece.columns(np.column_stack([X, np.full(80, 9.0)])), FeaturePiece.of(X).columns(X)
    )


def test_what_is_cut_off_is_measured_in_units_of_the_reach(X):
    """At three times the reach of one feature, twice what the compressed feature is at its reach."""
    piece = FeaturePiece.of(X)
    far = np.tile(piece.units[0], (1, 1))
    far[0, 1] += 3 * piece.reach[1]
    distance = np.abs(X[:, 1] - np.median(X[:, 1]))
    assert piece.reach[1] == pytest.approx(1.5 * distance.max())
    at_reach = np.arcsinh(piece.reach[1] / piece.units[1, 1]) * piece.units[2, 1] / np.sqrt(3)
    assert piece.within_reach(far)[1].item() == pytest.approx((2 * at_reach) ** 2)


def test_very_many_sparse_features_need_no_square_matrix():
    """5,000 x 5,000 numbers would take 200 MB."""
    X = csr_array((np.ones(600), (np.repeat(np.arange(20), 30), np.arange(600) * 8)), shape=(20, 5_000))
    tracemalloc.start()
    piece = FeaturePiece.of(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert piece.weights.shape == (5_000, 19)
    assert peak < 5e7
