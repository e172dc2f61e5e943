"""What runs on a GPU where there is one, here on JAX's CPU, against NumPy and dense matrices."""

import numpy as np
import pytest

from graphuq import _accelerator
from graphuq.inference import covariances, ep, largest, star_ep, stars
from graphuq.inference.sites import Sites
from graphuq.inference.star_ep import propagate
from graphuq.inference.stars import StarSites
from graphuq.inference.sweeps import Start, inverse_root
from graphuq.models import Probit
from graphuq.posterior import GaussianPosterior
from graphuq.prior import GaussianPrior
from tests.oracles import probit_sites


@pytest.fixture
def begin(monkeypatch):
    """A call after which all that can run on an accelerator does."""

    def begin():
        monkeypatch.setattr(_accelerator, "has_gpu", lambda: True)
        monkeypatch.setattr(largest, "LEAST_ROWS_ON_GPU", 1)
        monkeypatch.setattr(_accelerator, "LEAST_SWEEP", 0)

    return begin


def fitted(n_classes, n_latent, seed=0):
    """Few modes go by modes, many by nodes."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((24, n_latent)) * 3 * 0.8 ** np.arange(n_latent)
    return propagate(B, StarSites(np.arange(24) % n_classes, n_classes, 0.3)), rng


@pytest.mark.parametrize("n_latent", [3, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_covariances_are_those_of_dense_matrices(n_latent, dtype, begin, monkeypatch):
    fit, rng = fitted(4, n_latent)
    M = rng.standard_normal((37, n_latent)).astype(dtype)
    here = fit.fields_at(M, np.zeros(37))
    begin()
    monkeypatch.setattr(covariances, "MOST_ON_GPU", 2**17)  # several parts
    found = fit._fields(M, np.zeros(37), covariances.covariances_anywhere).cross
    assert found.shape == (largest.rows_at_once(4), 4, 4)
    assert found.dtype == np.float32
    dense = np.einsum("nr,krs,lts,nt->nkl", M @ fit.basis, fit.shared, fit.shared, M @ fit.basis)
    alone = np.square(np.einsum("nr,krs->nks", M @ fit.basis, fit.alone)).sum(axis=2)
    dense += alone[:, :, None] * np.eye(4)
    np.testing.assert_allclose(found[:37], dense, atol=1e-5 * np.abs(dense).max())
    np.testing.assert_allclose(found[:37], here.cross, atol=1e-5 * np.abs(dense).max())
    assert not np.asarray(found[37:]).any()


def test_probabilities_of_all_rows_are_the_same(begin, monkeypatch):
    rng = np.random.default_rng(1)
    vectors = np.linalg.qr(rng.standard_normal((700, 12)))[0]
    smooth = GaussianPrior(vectors, 700 / 12 * 0.9 ** np.arange(12))
    nodes = np.arange(0, 700, 28)
    posterior = GaussianPosterior.of(smooth, Probit(nodes, np.arange(25) % 5, gamma=0.3, n_classes=5))
    here = posterior.classes().probability, posterior.fit.independent_variances(vectors, np.ones(700), 0.1)
    begin()
    monkeypatch.setattr(largest, "MOST_ROWS_ON_GPU", 256)
    assert posterior.rows_at_once == 256
    found = posterior.classes().probability, posterior.fit.independent_variances(vectors, np.ones(700), 0.1)
    np.testing.assert_allclose(found[0], here[0], atol=1e-4)
    np.testing.assert_allclose(found[1], here[1], rtol=1e-3)
    assert np.abs(found[0] - here[0]).max() > 0  # the other way, and not the same again


def test_few_rows_stay_on_the_processor(begin, monkeypatch):
    fit, rng = fitted(5, 12)
    M = rng.standard_normal((20, 12))
    here = fit.classes(M, np.zeros(20), 0.3)
    begin()
    monkeypatch.setattr(largest, "LEAST_ROWS_ON_GPU", 21)
    for name in ("_matched_variances_on_gpu", "_integrals_on_gpu"):
        monkeypatch.setattr(largest, name, None)
    asked, processor = [], _accelerator.processor
    monkeypatch.setattr(_accelerator, "processor", lambda: asked.append(1) or processor())
    np.testing.assert_array_equal(fit.classes(M, np.zeros(20), 0.3), here)
    assert asked
    monkeypatch.setattr(_accelerator, "processor", lambda: None)  # as JAX without one
    np.testing.assert_allclose(fit.classes(M, np.zeros(20), 0.3), here, rtol=1e-6)


def assert_alike(one, other, names):
    for name in names:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-7, atol=1e-7, err_msg=name)
    for mine, theirs in zip(one.gradient(), other.gradient(), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-7)


# Classes of different sizes, one of them without a label; few modes, which would go by modes here.
@pytest.mark.parametrize(("n_labeled", "n_latent"), [(14, 25), (40, 6)])
@pytest.mark.parametrize("log_flip", [-np.inf, np.log(0.05)])
def test_sweeps_of_many_classes_end_in_the_same_place(n_labeled, n_latent, log_flip, begin, monkeypatch):
    rng = np.random.default_rng(3)
    B = rng.standard_normal((n_labeled, n_latent)) / np.arange(1, n_latent + 1)
    sites = StarSites(np.minimum(np.arange(n_labeled) % 5, 2), 4, 0.1, log_flip, noise_slope=1.0)
    here = propagate(B, sites, tolerance=1e-10)
    begin()
    monkeypatch.setattr(star_ep, "QUICKER_ON_GPU", np.inf)
    monkeypatch.setattr(stars, "MOST_ON_GPU", 2 * n_labeled**2)  # two classes at once
    found = propagate(B, sites, tolerance=1e-10)
    assert found.converged
    assert found.alone.shape == (4, *[min(n_labeled, n_latent)] * 2)
    assert_alike(
        found, here, ("precision", "shift", "mean", "covariance", "log_predictive", "z_mean", "log_evidence")
    )
    M = rng.standard_normal((9, n_latent))
    for one, other in zip(found.fields_at(M, np.ones(9)), here.fields_at(M, np.ones(9)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
    # sites that make no proper Gaussian are found out there too: the sweeps begin with none
    improper = Start(np.full((n_labeled, 4), -5.0), np.zeros((n_labeled, 4)))
    assert_alike(propagate(B, sites, start=improper, tolerance=1e-10), found, ("precision", "shift"))


@pytest.mark.parametrize("kind", ["probit", "level-set"])
def test_sweeps_of_one_field_end_in_the_same_place(kind, begin):
    rng = np.random.default_rng(4)
    B = rng.standard_normal((40, 30)) * 0.8 ** np.arange(30)
    y = np.where(B[:, 0] > 0, 1.0, -1.0)
    sites = probit_sites(y, 0.3) if kind == "probit" else Sites.level_set(y, 0.4)
    here = ep.propagate(B, sites, tolerance=1e-10)
    begin()
    found = ep.propagate(B, sites, tolerance=1e-10)
    assert found.converged
    assert found.root.shape == (30, 30)
    assert_alike(found, here, ("precision", "shift", "mean", "variance", "z_mean", "root", "log_evidence"))


def test_the_root_of_an_inverse_is_the_same_or_none():
    A = np.random.default_rng(5).standard_normal((7, 7))
    with _accelerator.precise():
        np.testing.assert_allclose(_accelerator.inverse_root(A @ A.T), inverse_root(A @ A.T), atol=1e-12)
        assert np.isnan(_accelerator.inverse_root(-A @ A.T)).any()
    np.testing.assert_allclose(
        inverse_root(A @ A.T) @ inverse_root(A @ A.T).T, np.linalg.inv(np.eye(7) + A @ A.T), atol=1e-12
    )
    assert np.isnan(inverse_root(-A @ A.T)).all()
