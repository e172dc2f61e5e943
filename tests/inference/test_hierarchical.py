import jax.numpy as jnp
import numpy as np
import pytest

from graphuq.hyperprior import Family, Hyperprior, LogNormal
from graphuq.inference.hierarchical import sample_hyperparameters
from graphuq.learning import learn
from graphuq.models import LevelSet, Probit
from tests.oracles import random_spectrum
from tests.test_learning import NODES, THETA, S, Y

MODES = S.truncate(10)
FREE = Hyperprior(n_effective=None)
BELIEVED = (FREE.diffusion, FREE.alpha, FREE.gamma, FREE.offset)
MEAN = np.log([each.median for each in BELIEVED])
RUN = {"n_steps": 800, "n_warmup": 300}


@pytest.fixture(scope="module")
def draws():
    return sample_hyperparameters(MODES, Probit(NODES, Y), hyperprior=FREE, **RUN)


def z_scores(draws, mean):
    """Of the posterior means of theta against given ones."""
    flat = draws.theta.reshape(-1, 4)
    return (flat.mean(axis=0) - mean) / (flat.std(axis=0) / np.sqrt(draws.diagnostics().ess_bulk))


def test_one_label_leaves_the_hyperprior_as_it_is(draws):
    """P(y = 1) is one half whatever the hyper-parameters are, so their posterior is the prior, exactly."""
    with pytest.warns(UserWarning, match="one class only"):
        model = Probit([4], [1.0])
    one = sample_hyperparameters(random_spectrum(12, seed=1).truncate(6), model, hyperprior=FREE, **RUN)
    assert np.abs(z_scores(one, MEAN)).max() < 5
    deviation = np.log([each.factor for each in BELIEVED])
    np.testing.assert_allclose(one.theta.reshape(-1, 4).std(axis=0), deviation, rtol=0.1)
    assert np.abs(z_scores(draws, MEAN)).max() > 5  # the twin: eight labels that follow a mode do move it


def test_posterior_means_agree_with_the_evidence(draws):
    learned = learn(MODES, Probit(NODES, Y), hyperprior=FREE)
    theta = np.array([point.theta for point in learned.points])
    mean = learned.weights @ theta
    spread = np.sqrt(learned.weights @ (theta - mean) ** 2)
    assert np.abs((draws.theta.reshape(-1, 4).mean(axis=0) - mean) / spread).max() < 0.3
    np.testing.assert_allclose(np.log(draws.hyperparameters.alpha), draws.theta[:, :, 1], atol=1e-6)
    others = np.setdiff1d(np.arange(40), NODES)
    np.testing.assert_allclose(draws.probability(others), learned.predict(others).probability, atol=0.08)
    assert draws.diagnostics().converged


def test_fixed_numbers_stay():
    fixed = Hyperprior(gamma=LogNormal(0.3, 1.0), n_effective=None)
    draws = sample_hyperparameters(MODES, Probit(NODES, Y), hyperprior=fixed, **RUN)
    np.testing.assert_allclose(draws.hyperparameters.gamma, 0.3)


def test_chains_see_the_formulas_of_the_evidence():
    family = Family.of(S, Hyperprior(), Probit(NODES, Y))
    np.testing.assert_allclose(family.log_variances(THETA, jnp), family.log_variances(THETA), rtol=1e-4)
    np.testing.assert_allclose(family.surplus(THETA, jnp), family.surplus(THETA), rtol=1e-4)


def test_bad_input_is_refused():
    with pytest.raises(TypeError, match="sampled for Probit"):
        sample_hyperparameters(S, LevelSet(NODES, Y))
    with pytest.raises(ValueError, match="n_steps must be at least 1"):
        sample_hyperparameters(S, Probit(NODES, Y), n_steps=0)
    with pytest.raises(ValueError, match="Node 40 is not in the graph"):
        sample_hyperparameters(S, Probit([0, 40], [1, -1]))
