"""Robust units: each by its definition, the same for sparse and dense features."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from graphuq import graph
from graphuq.graph.units import NORMAL_DISTANCE, in_units, units_of

RNG = np.random.default_rng(0)


def test_a_number_is_told_by_its_median_and_its_usual_distance_from_it():
    x = np.exp(RNG.standard_normal(501))
    middle, unit, scale = units_of(x[:, None])[:, 0]
    others = np.sort(np.abs(x - np.median(x)))[1:]
    assert middle == np.median(x)
    assert unit == pytest.approx(others[250] / NORMAL_DISTANCE)
    z = np.arcsinh((x - middle) / unit)
    assert scale == pytest.approx(1 / z.std())
    np.testing.assert_allclose(
        in_units(x[:, None], units_of(x[:, None]))[:, 0], (z + np.arcsinh(middle / unit)) * scale
    )


def test_a_value_that_most_rows_have_counts_as_half_of_them():
    """The deviation is that of as many rows elsewhere as there."""
    x = np.where(np.arange(400) < 380, 3.0, 3.0 + RNG.standard_normal(400))
    units = units_of(x[:, None])
    z = np.arcsinh((x - 3.0) / units[1, 0])
    balanced = np.concatenate([z[380:], np.zeros(20)])
    assert units[2, 0] == pytest.approx(1 / balanced.std())


def test_sparse_and_dense_features_have_the_same_units():
    X = np.where(RNG.random((80, 4)) < [0.1, 0.4, 0.6, 1.0], RNG.standard_normal((80, 4)) + 1, 0.0)
    np.testing.assert_allclose(units_of(X), units_of(csr_array(X)))
    np.testing.assert_allclose(in_units(X, units_of(X)), in_units(csr_array(X), units_of(X)).toarray(), atol=1e-12)


@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_numbers_of_any_size(size):
    X = RNG.standard_normal((50, 2))
    X[:, 1] = 4.0
    units = units_of(size * X)
    np.testing.assert_allclose(in_units(size * X, units), in_units(X, units_of(X)), rtol=1e-6)
    assert units[2, 1] == 0


@pytest.mark.parametrize(
    "make", [graph.knn, graph.self_tuning, graph.gaussian(tau=1.0), graph.nystrom(tau=1.0, n_landmarks=20)]
)
def test_graphs_compare_features_in_these_units(make):
    X = RNG.standard_normal((40, 3)) * [1.0, 1e3, 1e-3]
    X[0, 1] = 1e9
    robust, by_hand = make(X, robust=True), make(in_units(X, units_of(X)))
    new = X[:5] + 1e-4
    if hasattr(robust, "weights"):
        np.testing.assert_allclose(_dense(robust.weights), _dense(by_hand.weights), atol=1e-12)
        placed = [_dense(robust.place(new).weights), _dense(by_hand.place(in_units(new, units_of(X))).weights)]
        np.testing.assert_allclose(*placed, atol=1e-12)
    else:
        np.testing.assert_allclose(np.asarray(robust.factor), np.asarray(by_hand.factor), atol=1e-9)


def _dense(matrix):
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
