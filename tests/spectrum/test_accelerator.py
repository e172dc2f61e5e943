"""The iteration that runs on a GPU, here on JAX's CPU, against LAPACK."""

import numpy as np
import pytest

from graphuq import graph, laplacian, spectrum
from graphuq._accelerator import precise
from graphuq.spectrum import accelerator


def test_the_settings_of_jax_are_those_of_the_caller(monkeypatch):
    """Sparse products are compiled for cuSPARSE here alone."""
    jax = pytest.importorskip("jax")
    setting, during, one = accelerator.SETTING, [], accelerator._filter
    monkeypatch.setattr(accelerator, "_filter", lambda *a: during.append(getattr(jax.config, setting)) or one(*a))
    monkeypatch.setattr(accelerator, "is_worth_it", lambda matrix: True)
    before = getattr(jax.config, setting)
    X = np.random.default_rng(0).standard_normal((900, 3))
    spectrum.leading(laplacian.normalized(graph.knn(X, n_neighbors=8)), n_modes=10, tolerance=1e-3)
    assert during
    assert all(during)
    assert getattr(jax.config, setting) == before


@pytest.mark.parametrize("tolerance", [1e-4, 1e-8])
def test_eigenpairs_are_those_of_lapack(tolerance, monkeypatch):
    monkeypatch.setattr(accelerator, "is_worth_it", lambda matrix: True)
    X = np.random.default_rng(0).standard_normal((900, 3))
    L = laplacian.normalized(graph.knn(X, n_neighbors=8))
    found, exact = spectrum.leading(L, n_modes=40, tolerance=tolerance), spectrum.dense(L, n_modes=40)
    assert found.residuals.max() <= tolerance
    np.testing.assert_allclose(found.values, exact.values, atol=max(tolerance**1.5, 1e-10))
    true = L.matrix @ found.vectors - found.vectors * found.values
    assert np.linalg.norm(true, axis=0).max() <= 2 * tolerance
    np.testing.assert_allclose(
        found.vectors.T @ found.vectors, np.eye(40), atol=1e-4 if tolerance > 1e-5 else 1e-10
    )


def test_small_and_dense_matrices_and_machines_without_a_gpu_stay_here():
    assert not accelerator.is_worth_it(np.eye(30_000, 3))
    L = laplacian.normalized(graph.knn(np.random.default_rng(0).standard_normal((50, 2)), n_neighbors=5))
    assert not accelerator.is_worth_it(L.matrix)


def test_dependent_columns_are_made_independent():
    L = laplacian.normalized(graph.knn(np.random.default_rng(0).standard_normal((60, 2)), n_neighbors=5))
    W = np.random.default_rng(1).standard_normal((60, 4))
    W[:, 3] = W[:, 0]
    there = accelerator.OnAccelerator(L.matrix, np.zeros((60, 1)), W)
    jnp = pytest.importorskip("jax.numpy")
    from graphuq.spectrum.chebyshev import _rayleigh_ritz

    with precise():
        vectors, values, residuals = _rayleigh_ritz(there, jnp.asarray(W), jnp.asarray(L.matrix @ W))
    V = np.asarray(vectors)
    np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(L.matrix @ V - V * values, axis=0), residuals, atol=1e-10)
