"""Every sampler against numbers computed without sampling, and against a plain sampler over all nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphuq.inference.diagnostics import standard_error
from graphuq.inference.orthant import Orthant
from graphuq.inference.pcn import PCN
from graphuq.inference.run import sample
from graphuq.models import LevelSet, Probit
from tests.oracles import exact_label_means, four_priors, random_spectrum

PRIORS = four_priors(random_spectrum(seed=2))
NODES, Y = np.array([4, 21]), np.array([1.0, -1.0])
ASKED = np.array([0, 4, 9, 15, 26])
MODELS = {"probit": Probit(NODES, Y, gamma=0.5), "level_set": LevelSet(NODES, Y, gamma=1.0)}


def z_scores(posterior, expected):
    found = posterior.labels(ASKED)
    return (found.mean - expected) / found.error


SAMPLERS = {"pcn": (PCN(), 2000), "orthant": (Orthant(), 500)}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prior", PRIORS)
def test_label_means_match_closed_forms(prior, model, sampler):
    move, n_steps = SAMPLERS[sampler]
    posterior = sample(PRIORS[prior], MODELS[model], move, n_steps=n_steps, n_warmup=200, n_chains=32, seed=5)
    assert np.abs(z_scores(posterior, exact_label_means(PRIORS[prior], MODELS[model], ASKED))).max() < 5


@pytest.mark.parametrize("likelihood", [Probit, LevelSet])
def test_three_labels(likelihood):
    model = likelihood(np.array([4, 21, 9]), np.array([1.0, -1.0, -1.0]), gamma=0.7)
    posterior = sample(PRIORS["full"], model, n_steps=1000, n_warmup=50, n_chains=32, seed=5)
    assert np.abs(z_scores(posterior, exact_label_means(PRIORS["full"], model, ASKED))).max() < 5


@pytest.mark.parametrize(("likelihood", "gamma"), [(Probit, 0.5), (LevelSet, 1.0)])
def test_a_factor_of_two_fails_the_same_test(likelihood, gamma):
    """Only gamma over the prior's scale counts, so this is a factor of two in either."""
    posterior = sample(
        PRIORS["full"], likelihood(NODES, Y, gamma=2 * gamma), n_steps=500, n_warmup=200, n_chains=32, seed=5
    )
    expected = exact_label_means(PRIORS["full"], likelihood(NODES, Y, gamma=gamma), ASKED)
    assert np.abs(z_scores(posterior, expected)).max() > 5


class NoCorrection(PCN):
    """A wrong step: the old point is not shrunk, so the prior is not kept."""

    def step(self, key, state, problem):
        grown = state._replace(z=state.z * 1.02)
        return super().step(key, grown._replace(potential=problem.potential(grown.z)), problem)


def test_a_wrong_step_fails_the_same_test():
    prior, model = PRIORS["full"], MODELS["probit"]
    posterior = sample(prior, model, NoCorrection(), n_steps=2000, n_chains=32, seed=5)
    assert np.abs(z_scores(posterior, exact_label_means(prior, model, ASKED))).max() > 5


def node_space_pcn(prior, model, *, beta, n_steps, n_chains, seed):
    """Algorithms 1 to 3 as printed: u over all nodes, the prior drawn at every step. Signs of u out."""
    rng = np.random.default_rng(seed)
    phi = jax.jit(jax.vmap(model.phi))
    u = prior.sample(n_chains, seed=rng)
    energy, signs = np.asarray(phi(jnp.asarray(u[:, NODES]))), []
    for _ in range(n_steps):
        w = np.sqrt(1 - beta**2) * u + beta * prior.sample(n_chains, seed=rng)
        proposed = np.asarray(phi(jnp.asarray(w[:, NODES])))
        accept = rng.random(n_chains) < np.exp(np.minimum(energy - proposed, 0))
        u, energy = np.where(accept[:, None], w, u), np.where(accept, proposed, energy)
        signs.append(np.where(u[:, ASKED] >= 0, 1.0, -1.0))
    return np.stack(signs, axis=1)[:, n_steps // 10 :]


@pytest.mark.parametrize("prior", ["full", "approximate"])
def test_reduced_chain_and_chain_over_all_nodes_agree(prior):
    model = MODELS["level_set"]
    signs = node_space_pcn(PRIORS[prior], model, beta=0.5, n_steps=3000, n_chains=32, seed=1)
    found = sample(PRIORS[prior], model, PCN(), n_steps=2000, n_chains=32, seed=6).labels(ASKED)
    difference = signs.mean(axis=(0, 1)) - found.mean
    error = np.hypot(standard_error(signs), found.error)
    assert np.abs(difference / error).max() < 5
    assert (found.error < standard_error(signs)).all()  # averaging closed forms is less noisy than signs


def test_acceptance_is_that_of_the_chain_over_all_nodes():
    """The two chains have one law: at one beta they accept as often."""
    model = MODELS["probit"]
    reduced = sample(
        PRIORS["full"], model, PCN(beta=0.6, target_acceptance=None), n_steps=2000, n_chains=16, seed=3
    ).acceptance
    rng = np.random.default_rng(0)
    start = sample(PRIORS["full"], model, PCN(), n_steps=500, n_chains=64, seed=4)
    u = start.latent(NODES)[:, ::25].reshape(-1, 2)
    xi = PRIORS["full"].sample(len(u), seed=rng)[:, NODES]
    phi = jax.vmap(model.phi)
    proposal = jnp.asarray(np.sqrt(1 - 0.36) * u + 0.6 * xi)
    direct = np.exp(np.minimum(np.asarray(phi(jnp.asarray(u)) - phi(proposal)), 0))
    error = np.hypot(float(standard_error(reduced[:, :, None])[0]), direct.std() / np.sqrt(len(direct)))
    assert abs(reduced.mean() - direct.mean()) / error < 5


def test_no_likelihood_accepts_always_and_gives_the_prior():
    class Nothing:
        nodes = NODES

        def phi(self, u):
            return 0.0 * u.sum()

    posterior = sample(PRIORS["full"], Nothing(), PCN(), n_steps=500, n_chains=16, seed=0)
    assert (posterior.acceptance == 1).all()
    assert np.abs(posterior.labels(ASKED).mean / posterior.labels(ASKED).error).max() < 5
    assert posterior.mean_label_variance() == pytest.approx(1.0, abs=0.01)


def test_flipped_labels_flip_the_means():
    prior = PRIORS["approximate"]
    up = sample(prior, Probit(NODES, Y, gamma=0.5), PCN(), n_steps=1000, n_chains=16, seed=1).labels(ASKED)
    down = sample(prior, Probit(NODES, -Y, gamma=0.5), PCN(), n_steps=1000, n_chains=16, seed=2).labels(ASKED)
    assert np.abs((up.mean + down.mean) / np.hypot(up.error, down.error)).max() < 5


def test_a_model_of_ones_own_and_double_precision():
    """Logistic likelihood, written as a user would, against importance sampling from the prior."""

    class Logistic:
        nodes = NODES

        def phi(self, u):
            return jnp.sum(jnp.logaddexp(0.0, -3 * Y * u))

    posterior = sample(PRIORS["full"], Logistic(), PCN(), n_steps=1500, n_chains=16, seed=0, dtype="float64")
    assert posterior.z.dtype == np.float64
    u = PRIORS["full"].sample(400_000, seed=1)[:, [*NODES, *ASKED]]
    weights = np.exp(-np.logaddexp(0, -3 * Y * u[:, :2]).sum(axis=1))
    signs = np.where(u[:, 2:] >= 0, 1.0, -1.0)
    expected = weights @ signs / weights.sum()
    error = np.sqrt((weights**2) @ np.square(signs - expected)) / weights.sum()
    found = posterior.labels(ASKED)
    assert np.abs((found.mean - expected) / np.hypot(error, found.error)).max() < 5


@pytest.mark.filterwarnings("ignore:Not converged")
def test_one_compilation_serves_other_labels():
    """Labels and gamma are traced: a sweep over them does not compile again."""
    from graphuq.inference import run

    prior = PRIORS["full"]
    settings = {"n_steps": 200, "n_warmup": 0, "n_chains": 4}
    sample(prior, Probit(NODES, Y, gamma=0.5), PCN(beta=0.7, target_acceptance=None), **settings)
    compiled = run._block._cache_size()
    sample(prior, Probit(NODES, -Y, gamma=0.7), PCN(beta=0.7, target_acceptance=None), **settings)
    assert run._block._cache_size() == compiled
