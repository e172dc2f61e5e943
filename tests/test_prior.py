from copy import deepcopy
from dataclasses import replace

import joblib
import numpy as np
import pytest

from graphuq import prior as priors
from graphuq.prior import GaussianPrior
from graphuq.spectrum.result import Spectrum
from tests.oracles import dense_covariance, four_priors, random_spectrum

SPECTRUM = random_spectrum()
PRIORS = four_priors(SPECTRUM)
each_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())


@each_prior
def test_trace_is_the_number_of_nodes(prior):
    assert np.trace(dense_covariance(prior)) == pytest.approx(prior.n_nodes, rel=1e-12)


@each_prior
def test_covariance_blocks_and_marginals_match_the_dense_matrix(prior):
    rows, columns = np.array([3, 9, 4]), np.array([9, 0, 1, 3])
    dense = dense_covariance(prior)
    np.testing.assert_allclose(prior.covariance(rows, columns), dense[np.ix_(rows, columns)], atol=1e-13)
    np.testing.assert_allclose(prior.marginal_variance(), np.diag(dense), atol=1e-13)
    np.testing.assert_allclose(prior.marginal_variance([5, 2]), np.diag(dense)[[5, 2]], atol=1e-13)


@each_prior
def test_precision_and_energy_match_the_dense_matrix(prior):
    dense = dense_covariance(prior)
    u = dense @ np.random.default_rng(1).normal(size=prior.n_nodes)  # in the support
    precision = np.linalg.pinv(dense, rcond=1e-12, hermitian=True)
    np.testing.assert_allclose(prior.precision(u), precision @ u, atol=1e-9)
    assert prior.energy(u) == pytest.approx(u @ precision @ u / 2, rel=1e-9)


@each_prior
def test_draws_have_the_covariance(prior):
    """Each entry of the sample covariance of n draws has standard deviation sqrt((C_ii C_jj + C_ij^2) / n)."""
    n_draws = 20_000
    draws = prior.sample(n_draws, seed=3)
    dense = dense_covariance(prior)
    found = draws.T @ draws / n_draws
    spread = np.sqrt((np.outer(np.diag(dense), np.diag(dense)) + dense**2) / n_draws)
    assert np.abs((found - dense) / spread).max() < 5
    twice = dense_covariance(prior) * 1.1
    assert np.abs((found - twice) / spread).max() > 5  # the bound would notice a tenth more variance


def test_the_full_prior_is_the_scaled_pseudo_inverse_of_the_laplacian():
    laplacian = (SPECTRUM.vectors * SPECTRUM.values) @ SPECTRUM.vectors.T
    inverse = np.linalg.pinv(laplacian, rcond=1e-10, hermitian=True)
    expected = inverse * SPECTRUM.n_nodes / np.trace(inverse)
    np.testing.assert_allclose(dense_covariance(PRIORS["full"]), expected, atol=1e-10)


def test_the_paper_priors_have_no_component_along_q0():
    for name in ("full", "project", "approximate"):
        assert np.abs(dense_covariance(PRIORS[name]) @ SPECTRUM.vectors[:, 0]).max() < 1e-12


def test_approximation_and_projection_become_full_with_all_modes():
    for prior in (priors.project(SPECTRUM), priors.approximate(SPECTRUM)):
        np.testing.assert_allclose(dense_covariance(prior), dense_covariance(PRIORS["full"]), atol=1e-12)


def test_approximation_with_the_exact_rest_is_the_full_prior():
    """Where all other eigenvalues are equal, as for low-rank weights, the tail is exact."""
    values = np.concatenate([SPECTRUM.values[:6], np.ones(SPECTRUM.n_nodes - 6)])
    whole = Spectrum(values, SPECTRUM.vectors, 0 * values, SPECTRUM.degrees, 1, True, "made up")
    cut = Spectrum(
        values[:6], SPECTRUM.vectors[:, :6], np.zeros(6), SPECTRUM.degrees, 1, True, "made up", rest=1.0
    )
    expected = dense_covariance(priors.full(whole))
    np.testing.assert_allclose(dense_covariance(priors.full(cut)), expected, atol=1e-12)
    np.testing.assert_allclose(dense_covariance(priors.approximate(cut, lambda_bar=1.0)), expected, atol=1e-12)


def test_matern_is_a_power_of_the_shifted_laplacian():
    laplacian = (SPECTRUM.vectors * SPECTRUM.values) @ SPECTRUM.vectors.T
    shifted = np.linalg.inv(laplacian + 0.3**2 * np.eye(30))
    expected = shifted @ shifted * 30 / np.trace(shifted @ shifted)
    np.testing.assert_allclose(dense_covariance(priors.matern(SPECTRUM, tau=0.3, alpha=2)), expected, atol=1e-10)


def test_matern_meets_the_full_prior_as_tau_vanishes_and_the_constant_is_removed():
    prior = priors.matern(SPECTRUM, tau=1e-6, alpha=1, constant=0)
    np.testing.assert_allclose(dense_covariance(prior), dense_covariance(PRIORS["full"]), atol=1e-8)


@pytest.mark.parametrize("unit", [1e-13, 1e13])
def test_the_unit_of_the_weights_does_not_matter(unit):
    """The eigenvalues of D - A have it; which of them are zero must not depend on it."""
    spectrum = replace(SPECTRUM, normalized=False)
    scaled = replace(spectrum, values=unit * spectrum.values, degrees=unit * spectrum.degrees)
    for one, other in (
        (priors.project(spectrum, n_modes=8), priors.project(scaled, n_modes=8)),
        (
            priors.matern(spectrum, tau=0.3, alpha=2, constant=0),
            priors.matern(scaled, tau=0.3 * unit**0.5, alpha=2, constant=0),
        ),
    ):
        np.testing.assert_allclose(other.variances, one.variances)


def test_matern_with_a_tail_exists_where_only_the_null_space_is_kept():
    apart = Spectrum(np.zeros(2), np.eye(6)[:, :2], np.zeros(2), np.ones(6), 2, True, "made up")
    prior = priors.matern(apart, tau=0.5, alpha=1, tail=True)
    np.testing.assert_allclose(dense_covariance(prior), np.eye(6))


def test_matern_does_not_overflow():
    prior = priors.matern(SPECTRUM, tau=1e-8, alpha=40.0)
    assert np.isfinite(prior.variances).all()
    assert prior.variances.sum() == pytest.approx(30)


def test_energy_outside_the_support_is_infinite():
    assert PRIORS["full"].energy(SPECTRUM.vectors[:, 0]) == np.inf
    assert np.isfinite(PRIORS["matern_tail"].energy(SPECTRUM.vectors[:, 0]))


def test_columns_that_are_not_orthonormal_have_an_energy():
    """As those of a learned prior, here with one column that others add up to and one of no variance."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((30, 6))
    vectors[:, 4] = vectors[:, 0] - 2 * vectors[:, 1]
    prior = GaussianPrior(vectors, np.array([4.0, 1.0, 0.3, 0.0, 2.0, 0.01]))
    u = prior.sample(3, seed=1).T
    precision = np.linalg.pinv(dense_covariance(prior), rcond=1e-12, hermitian=True)
    np.testing.assert_allclose(prior.precision(u), precision @ u, atol=1e-9)
    for field in u.T:
        assert prior.energy(field) == pytest.approx(field @ precision @ field / 2, rel=1e-9)
    assert prior.energy(u) == pytest.approx(sum(prior.energy(field) for field in u.T))
    assert prior.energy(rng.standard_normal(30)) == np.inf
    with pytest.raises(ValueError, match="not orthonormal, and it has a tail"):
        GaussianPrior(vectors, np.ones(6), 0.1).energy(u[:, 0])


def test_a_disconnected_graph_is_refused_with_the_number_of_components():
    values = np.array([0.0, 0.0, 0.0, 0.5, 0.6, 0.7])
    apart = Spectrum(values, np.eye(6), 0 * values, np.ones(6), 3, True, "made up")
    for constructor in (priors.full, priors.project, priors.approximate):
        with pytest.raises(ValueError, match=r"3 connected components.*matern"):
            constructor(apart)
    prior = priors.matern(apart, tau=0.5, alpha=1)
    assert prior.variances[:3] == pytest.approx(prior.variances[0])
    barely = Spectrum(
        np.array([0, 1e-15, 0.4, 0.5, 0.6, 0.7]), np.eye(6), 0 * values, np.ones(6), 1, True, "made up"
    )
    with pytest.raises(ValueError, match="2 eigenvalues are zero to rounding"):
        priors.full(barely)


def test_bad_settings_are_refused():
    cut = SPECTRUM.truncate(5)
    with pytest.raises(ValueError, match="needs all 30 eigenpairs"):
        priors.full(cut)
    with pytest.raises(ValueError, match="between 2 and 5"):
        priors.project(cut, n_modes=6)
    with pytest.raises(ValueError, match="between 2 and 30"):
        priors.approximate(SPECTRUM, n_modes=1)
    with pytest.raises(ValueError, match="lambda_bar"):
        priors.approximate(SPECTRUM, n_modes=5, lambda_bar=0)
    with pytest.raises(ValueError, match="tau must be"):
        priors.matern(SPECTRUM, tau=0, alpha=1)
    with pytest.raises(ValueError, match="constant"):
        priors.matern(SPECTRUM, tau=1, alpha=1, constant=-1)


RECIPES = {
    "full": (priors.full, {}),
    "project": (priors.project, {"n_modes": 8}),
    "approximate": (priors.approximate, {"n_modes": 8, "lambda_bar": 2.0}),
    "matern": (priors.matern, {"tau": 0.4, "alpha": 2.0, "n_modes": 8, "tail": True}),
}


def test_variances_of_a_prior_of_ones_own_are_checked():
    vectors = np.eye(5)[:, :3]
    for wrong in (np.ones(2), np.ones((3, 1)), 1.0):
        with pytest.raises(ValueError, match="one variance for each of its 3 vectors, got the shape"):
            GaussianPrior(vectors, wrong)
    for wrong, tail in (([1, -0.5, 1], 0.0), ([1, np.nan, 1], 0.0), (np.ones(3), -0.5), ([1, 1, np.inf], 0)):
        with pytest.raises(ValueError, match=r"must be finite and 0 or above, got (-0\.5|nan|inf)"):
            GaussianPrior(vectors, wrong, tail)


@pytest.mark.parametrize("name", RECIPES)
def test_without_a_spectrum_a_constructor_is_a_recipe(name):
    make, settings = RECIPES[name]
    direct = make(SPECTRUM, **settings)
    for made in (make(**settings)(SPECTRUM), make(spectrum=SPECTRUM, **settings)):
        np.testing.assert_array_equal(made.variances, direct.variances)
        assert (made.tail_variance, made.name) == (direct.tail_variance, direct.name)
    with pytest.raises(TypeError, match="modes"):
        make(modes=8)


def test_same_seed_same_draw():
    prior = PRIORS["approximate"]
    assert np.array_equal(prior.sample(3, seed=4), prior.sample(3, seed=4))
    assert not np.array_equal(prior.sample(3, seed=4), prior.sample(3, seed=5))


def test_priors_that_share_columns_are_stored_once(tmp_path):
    """By joblib, which writes every array that it meets."""
    basis = np.random.default_rng(0).standard_normal((500, 30))
    shared = [GaussianPrior(basis[:, first:25], np.ones(25 - first)) for first in range(8)]
    own = GaussianPrior(basis[:, :25].copy(), np.ones(25))
    for path, several in (("shared", shared), ("alone", [own])):
        joblib.dump(several, tmp_path / path)
    assert (tmp_path / "shared").stat().st_size < 1.5 * basis.nbytes
    loaded = joblib.load(tmp_path / "shared")
    for each, prior in zip(loaded, shared, strict=True):
        assert np.array_equal(each.vectors, prior.vectors)
        assert each.vectors.base is loaded[0].vectors.base
        assert each.name == prior.name
    assert np.array_equal(joblib.load(tmp_path / "alone")[0].vectors, own.vectors)
    by_columns = GaussianPrior(np.asfortranarray(basis)[:, :5], np.ones(5))
    assert np.array_equal(deepcopy(by_columns).vectors, by_columns.vectors)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_node_has_the_same_variance_among_few_as_among_all(order):
    vectors = np.asarray(np.linalg.qr(np.random.default_rng(0).standard_normal((30, 30))).Q, order=order)
    prior = GaussianPrior(vectors, np.geomspace(1, 1e-3, 30))
    everywhere = prior.marginal_variance()
    for nodes in ([3], [3, 8], np.arange(2, 29)):
        np.testing.assert_array_equal(prior.marginal_variance(nodes), everywhere[nodes])


@each_prior
def test_unit_scale_restores_the_trace_and_keeps_the_shape(prior):
    scaled = GaussianPrior(prior.vectors, 9 * prior.variances, 9 * prior.tail_variance, "nine times").unit_scale()
    np.testing.assert_allclose(dense_covariance(scaled), dense_covariance(prior), atol=1e-12)


def test_variances_are_numbers_whatever_holds_them():
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 3)))[0]
    plain = GaussianPrior(vectors, np.array([1.0, 2.0, 3.0]), 0.5)
    listed = GaussianPrior(vectors, [1, 2, 3], np.float32(0.5))
    np.testing.assert_array_equal(listed.covariance([0, 4], [1]), plain.covariance([0, 4], [1]))
    assert type(listed.tail_variance) is float
