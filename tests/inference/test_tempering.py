import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphuq import prior as priors
from graphuq.inference import tempering
from graphuq.inference.gradient import NUTS
from graphuq.inference.target import Linear, Target
from graphuq.inference.tempering import Tempered
from graphuq.models import GinzburgLandau
from tests.inference.chains import run, shapes, z_scores
from tests.oracles import random_spectrum

# Three nodes: v lies in the plane orthogonal to q_0, so every expectation is an integral over z in R^2.
PRIOR = priors.full(random_spectrum(3, seed=1))
MATRIX = (PRIOR.vectors * np.sqrt(PRIOR.variances))[:, 1:]
GRID = np.stack(np.meshgrid(*[np.linspace(-6, 6, 601)] * 2), axis=-1).reshape(-1, 2)
LADDER = Tempered(n_rungs=6, n_leapfrog=4)


def model(epsilon):
    return GinzburgLandau(np.array([0, 2]), np.array([1.0, -1.0]), gamma=1.5, epsilon=epsilon)


def target(epsilon):
    return Target.of(Linear(jnp.asarray(MATRIX)), model(epsilon))


def phi(epsilon):
    """Phi at every point of the grid."""
    v = GRID @ MATRIX.T
    misfit = np.square(np.array([1.0, -1.0]) - v[:, [0, 2]]).sum(1) / (2 * 1.5**2)
    return np.square(v**2 - 1).sum(1) / (4 * epsilon) + misfit


def weights(epsilon, power=1.0):
    """The law ``exp(-power Phi) N(0, I)`` as probabilities of the points of the grid."""
    log_density = -power * phi(epsilon) - np.square(GRID).sum(1) / 2
    density = np.exp(log_density - log_density.max())
    return density / density.sum()


def exact(epsilon, quantity):
    """The posterior mean of quantity(z) by quadrature."""
    return weights(epsilon) @ quantity(GRID)


def moments(z):
    """v and v^2 at every node: the label means and, for real labels, what their variance needs."""
    v = z @ MATRIX.T
    return np.concatenate([v, v**2], axis=-1)


def in_the_first_well(z):
    return (z @ MATRIX.T)[..., 0] > 0


def starts(n_chains=64):
    return 2 * jax.random.normal(jax.random.key(3), (n_chains, 2))


# Between wells this deep lies a barrier of 11 in log density; their weights differ.
DEEP = 0.02


def test_nuts_stays_in_the_well_it_started_in():
    draws, _, _ = run(NUTS(), target(DEEP), starts(), n_warmup=100, n_steps=200)
    first = in_the_first_well(draws)
    assert (first == first[:, :1]).all()
    assert 0 < first[:, 0].mean() < 1


def test_tempered_chains_visit_each_well_as_often_as_its_weight():
    weight = exact(DEEP, in_the_first_well)
    assert 0.6 < weight < 0.95
    lighter = jnp.tile(-jnp.linalg.pinv(MATRIX) @ jnp.array([1.0, 0.0, -1.0]), (64, 1))
    assert not in_the_first_well(lighter).any()
    draws, info, _ = run(LADDER, target(DEEP), lighter, n_warmup=100, n_steps=200)
    first = in_the_first_well(draws).astype(float)
    assert np.abs(z_scores(first, weight)) < 5
    assert (np.ptp(first, axis=1) == 1).all()  # every chain crosses
    assert 0.3 < info.acceptance.mean() < 1


class Careless(Tempered):
    """Its exchanges are always taken."""


def test_a_wrong_exchange_fails_the_same_test(monkeypatch):
    monkeypatch.setattr(tempering, "exchange_probability", lambda t, potential: jnp.ones_like(potential[1:]))
    draws, _, _ = run(Careless(n_rungs=6, n_leapfrog=4), target(1.0), starts(), n_warmup=100, n_steps=200)
    assert np.abs(z_scores(moments(draws), exact(1.0, moments))).max() > 5


class Watched(Tempered):
    """Draws the squares of every replica's coordinates, the ladder as it was given."""

    def draw(self, state, problem):
        return (state.z**2).mean(axis=1)


def test_every_rung_has_its_own_law():
    draws, _, state = run(Watched(n_rungs=5, n_leapfrog=4), target(1.0), starts(), n_warmup=0, n_steps=300)
    ladder = state.ladder[0]
    np.testing.assert_allclose(ladder, (np.arange(5) / 4) ** 3, rtol=1e-5)
    expected = [weights(1.0, power) @ (GRID**2).mean(axis=1) for power in ladder]
    assert expected[0] == pytest.approx(1.0, abs=1e-6)
    assert np.abs(z_scores(draws[:, 30:], np.array(expected))).max() < 5


def test_the_warm_up_spaces_the_ladder_by_rejections():
    _, _, state = run(LADDER, target(DEEP), starts(), n_warmup=100, n_steps=200)
    assert (state.ladder[:, 0] == 0).all()
    assert (state.ladder[:, -1] == 1).all()
    assert (np.diff(state.ladder) > 0).all()

    # Independent draws of the grid stand for replicas that mix perfectly.
    rng, ladder = np.random.default_rng(0), state.ladder.mean(axis=0)
    draws = [rng.choice(phi(DEEP), 5000, p=weights(DEEP, power)) for power in ladder]
    rejected = 1 - tempering.exchange_probability(jnp.asarray(ladder), jnp.asarray(draws).T).mean(axis=0)
    assert rejected.max() < 1.5 * rejected.min()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision_is_that_of_the_target(dtype):
    with jax.enable_x64(dtype == "float64"):
        problem = Target.of(Linear(jnp.asarray(MATRIX)), model(1.0), dtype)
        draws, _, state = shapes(LADDER, problem, jnp.zeros((2, 2), dtype), n_warmup=3, n_steps=3)
    assert draws.dtype == dtype
    assert {x.dtype.name for x in state} == {dtype, "int32"}


@pytest.mark.parametrize("settings", [{"n_rungs": 1}, {"n_leapfrog": 0}, {"target_acceptance": 1.0}])
def test_settings_are_doubted(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Tempered(**settings)
