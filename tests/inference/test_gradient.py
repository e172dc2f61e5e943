from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from graphuq import sample
from graphuq.app.wording import verdict
from graphuq.graph import precomputed
from graphuq.inference.diagnostics import DIVERGING_LIMIT, diagnose
from graphuq.inference.gradient import NUTS, EllipticalSlice
from graphuq.inference.target import Linear, Target
from graphuq.laplacian import normalized
from graphuq.models import LevelSet, Model
from graphuq.posterior import load
from graphuq.prior import matern
from graphuq.spectrum import dense
from tests.inference.chains import run, shapes, z_scores

SAMPLERS = {
    "elliptical_slice": (EllipticalSlice(), 0, 400),
    "nuts": (NUTS(), 100, 60),
}
MATRIX = np.random.default_rng(0).normal(size=(4, 3))
OBSERVED = np.array([1.0, -0.5, 2.0, 0.3])
NOISE = 0.5


class Regression(Model):
    """``y = u + eta``: the posterior of z is Gaussian, with precision ``I + B^T B / noise^2``."""

    nodes = np.arange(4)

    def phi(self, u):
        return jnp.sum((jnp.asarray(OBSERVED, u.dtype) - u) ** 2) / (2 * NOISE**2)


def regression(dtype="float32"):
    return Target.of(Linear(jnp.asarray(MATRIX)), Regression(), dtype)


def starts(target, n_chains=64, dtype="float32"):
    return 2 * jax.random.normal(jax.random.key(9), (n_chains, target.n_latent), dtype)


def first_and_second_moments(draws):
    return np.concatenate([draws, (draws[..., :, None] * draws[..., None, :]).reshape(*draws.shape[:2], -1)], -1)


def exact_moments():
    covariance = np.linalg.inv(np.eye(3) + MATRIX.T @ MATRIX / NOISE**2)
    mean = covariance @ MATRIX.T @ OBSERVED / NOISE**2
    return np.concatenate([mean, (covariance + np.outer(mean, mean)).ravel()])


@cache
def chains(name):
    sampler, n_warmup, n_steps = SAMPLERS[name]
    target = regression()
    return run(sampler, target, starts(target), n_warmup=n_warmup, n_steps=n_steps, seed=1)


@pytest.mark.parametrize("name", SAMPLERS)
def test_gaussian_posterior_in_closed_form(name):
    draws, _, _ = chains(name)
    assert np.abs(z_scores(first_and_second_moments(draws[:, -300:]), exact_moments())).max() < 5


class Careless(NUTS):
    """A wrong step: the point shrinks by a little after it was accepted."""

    def step(self, key, state, problem, warm):
        state, info = super().step(key, state, problem, warm)
        return state._replace(hmc=state.hmc._replace(position=0.95 * state.hmc.position)), info


def test_a_wrong_step_fails_the_same_test():
    target = regression()
    draws, _, _ = run(Careless(), target, starts(target), n_warmup=100, n_steps=60, seed=1)
    assert np.abs(z_scores(first_and_second_moments(draws), exact_moments())).max() > 5


def test_step_size_is_adapted_in_the_warm_up_and_then_kept():
    _, info, state = chains("nuts")
    step_size = np.exp(state.averaging.log_step_size_avg)
    assert (state.averaging.step == 101).all()  # of the 160 steps, the 100 of the warm-up were learned from
    assert (step_size > 0.15).all()
    assert 0.7 < info.acceptance.mean() < 0.95
    assert (info.work >= 1).all()


def test_without_a_warm_up_the_given_step_size_is_used():
    target = regression()
    state = NUTS(step_size=0.03).init(jax.random.key(0), jnp.zeros(3), target)
    np.testing.assert_allclose(np.exp(state.averaging.log_step_size_avg), 0.03, rtol=1e-6)


def test_a_model_without_gradient_is_refused():
    target = Target.of(Linear(jnp.asarray(MATRIX)), LevelSet(np.arange(4), np.array([1, -1, 1, -1])))
    with pytest.raises(TypeError, match=r"piecewise constant.*Orthant, EllipticalSlice or PCN"):
        NUTS().prepare(target)


def test_a_constant_potential_is_not_refused():
    class Nothing(Model):
        nodes = np.arange(4)

        def phi(self, u):
            return 0.0 * u.sum()

    target = Target.of(Linear(jnp.asarray(MATRIX)), Nothing())
    assert NUTS().prepare(target) is target


def test_elliptical_slice_on_a_level_set():
    """Two labels, correlation rho: P(both positive) = 1/4 + asin(rho) / (2 pi) a priori."""
    rho, gamma = 0.6, 1.0
    field = Linear(jnp.asarray([[1.0, 0.0], [rho, np.sqrt(1 - rho**2)]]))
    target = Target.of(field, LevelSet(np.array([0, 1]), np.array([1.0, -1.0]), gamma=gamma))
    draws, info, _ = run(EllipticalSlice(), target, starts(target), n_warmup=0, n_steps=300)
    same = 0.25 + np.arcsin(rho) / (2 * np.pi)
    wrong = np.exp(-2 / gamma**2)
    weights = np.array([0.5 - same, same * wrong, same * wrong, (0.5 - same) * wrong**2])
    expected = weights[[0, 1]].sum() / weights.sum()
    assert np.abs(z_scores((draws[:, 20:, 0] > 0).astype(float), expected)) < 5
    assert (info.work >= 1).all()


@pytest.mark.parametrize("sampler", [EllipticalSlice(), NUTS()])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision_is_that_of_the_target(sampler, dtype):
    with jax.enable_x64(dtype == "float64"):
        target = regression(dtype)
        draws = shapes(sampler, target, starts(target, 2, dtype), n_warmup=3, n_steps=3)[0]
    assert draws.dtype == dtype


@pytest.mark.parametrize(
    ("sampler", "settings"),
    [
        (NUTS, {"step_size": 0.0}),
        (NUTS, {"target_acceptance": 1.0}),
        (NUTS, {"max_doublings": 0}),
        (NUTS, {"target_acceptance": 0.0}),
    ],
)
def test_settings_are_doubted(sampler, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        sampler(**settings)


class Funnel(Model):
    """Far too narrow for any one step size where its first coordinate is low."""

    nodes = np.arange(4)

    def phi(self, u):
        return jnp.sum(u[1:] ** 2) * jnp.exp(-12 * u[0]) / 2 + 18 * u[0]


def test_trajectories_that_diverge_are_counted_and_told(tmp_path):
    spectrum = dense(normalized(precomputed(np.ones((4, 4)) - np.eye(4))))
    with pytest.warns(ConvergenceWarning):
        found = sample(matern(spectrum, tau=1, alpha=1), Funnel(), NUTS(), n_steps=300, n_chains=4, progress=False)
    share = found.diagnostics().diverging
    assert share > DIVERGING_LIMIT
    assert not found.diagnostics().converged
    assert found.to_arviz().sample_stats["diverging"].values.mean() == pytest.approx(share)
    found.save(tmp_path / "draws.npz")
    assert load(tmp_path / "draws.npz", model=Funnel()).diagnostics().diverging == share


def test_divergences_alone_are_a_reason_to_doubt():
    good = diagnose(np.random.default_rng(0).standard_normal((4, 500, 2)))
    few, many = (replace(good, diverging=share) for share in (0.005, 0.02))
    assert good.converged
    assert "diverge" not in str(good)
    assert few.converged
    assert "0.50% of the trajectories diverged" in str(few)
    assert not many.converged
    assert str(many).startswith("Not converged: 2.00% of the trajectories diverged")
    assert verdict(many) == str(many)
