"""What runs on a GPU where there is one, here on JAX's CPU, against NumPy and dense matrices."""

import numpy as np
import pytest

from graphuq import _accelerator
from graphuq.inference import matched, star_ep
from graphuq.inference.star_ep import propagate
from graphuq.inference.stars import StarSites
from graphuq.models import Probit
from graphuq.posterior import GaussianPosterior
from graphuq.prior import GaussianPrior


@pytest.fixture
def there(monkeypatch):
    """A call after which all that can run on an accelerator does."""

    def begin():
        monkeypatch.setattr(_accelerator, "is_there", lambda: True)
        monkeypatch.setattr(star_ep, "LEAST_ROWS_THERE", 1)

    return begin


def fitted(n_classes, n_latent, seed=0):
    """Few modes go by modes, many by nodes."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((24, n_latent)) * 3 * 0.8 ** np.arange(n_latent)
    return propagate(B, StarSites(np.arange(24) % n_classes, n_classes, 0.3)), rng


@pytest.mark.parametrize("n_latent", [3, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_covariances_are_those_of_dense_matrices(n_latent, dtype, there, monkeypatch):
    fit, rng = fitted(4, n_latent)
    M = rng.standard_normal((37, n_latent)).astype(dtype)
    here = fit.fields_at(M, np.zeros(37))
    there()
    monkeypatch.setattr(star_ep, "MOST_THERE", 2**17)  # several parts
    found = fit._fields(M, np.zeros(37), star_ep._covariance_anywhere).cross
    assert found.shape == (matched.rows_at_once(4), 4, 4)
    assert found.dtype == np.float32
    dense = np.einsum("nr,krs,lts,nt->nkl", M @ fit.basis, fit.shared, fit.shared, M @ fit.basis)
    alone = np.square(np.einsum("nr,krs->nks", M @ fit.basis, fit.alone)).sum(axis=2)
    dense += alone[:, :, None] * np.eye(4)
    np.testing.assert_allclose(found[:37], dense, atol=1e-5 * np.abs(dense).max())
    np.testing.assert_allclose(found[:37], here.cross, atol=1e-5 * np.abs(dense).max())
    assert not np.asarray(found[37:]).any()


def test_probabilities_of_all_rows_are_the_same(there, monkeypatch):
    rng = np.random.default_rng(1)
    vectors = np.linalg.qr(rng.standard_normal((700, 12)))[0]
    smooth = GaussianPrior(vectors, 700 / 12 * 0.9 ** np.arange(12))
    nodes = np.arange(0, 700, 28)
    posterior = GaussianPosterior.of(smooth, Probit(nodes, np.arange(25) % 5, gamma=0.3, n_classes=5))
    here = posterior.classes().probability, posterior.fit.independent_variances(vectors, np.ones(700), 0.1)
    there()
    monkeypatch.setattr(matched, "MOST_ROWS_THERE", 256)
    assert posterior.rows_at_once == 256
    found = posterior.classes().probability, posterior.fit.independent_variances(vectors, np.ones(700), 0.1)
    np.testing.assert_allclose(found[0], here[0], atol=1e-4)
    np.testing.assert_allclose(found[1], here[1], rtol=1e-3)
    assert np.abs(found[0] - here[0]).max() > 0  # the other way, and not the same again
