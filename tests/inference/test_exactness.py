"""Every sampler on every model that it takes, against numbers computed without a chain."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.refractive import Refractive

from graphuq import prior as priors
from graphuq.inference import run
from graphuq.inference.diagnostics import standard_error
from graphuq.inference.gradient import NUTS, EllipticalSlice
from graphuq.inference.orthant import Orthant
from graphuq.inference.pcn import PCN
from graphuq.inference.reference import Referenced
from graphuq.inference.run import sample
from graphuq.inference.tempering import Tempered
from graphuq.inference.whiten import OnLabels, OnModes, OnModesAndLabels, whiten
from graphuq.models import GinzburgLandau, LevelSet, Model, Probit
from tests.inference.chains import draws as chains
from tests.oracles import exact_label_means, random_spectrum, simulated_classes

# Of three modes, so that two or three labels are enough for every kind of whitening, and say much about each other.
SPECTRUM = random_spectrum(seed=2)
PRIORS = {
    "full": priors.full(SPECTRUM),
    "project": priors.project(SPECTRUM, n_modes=3),
    "approximate": priors.approximate(SPECTRUM, n_modes=3, lambda_bar=20.0),
    "matern": priors.matern(SPECTRUM, tau=0.4, alpha=2.0, n_modes=3),
    "matern_tail": priors.matern(SPECTRUM, tau=0.4, alpha=1.5, n_modes=3, tail=True, lambda_bar=20.0),
}
SMALL = {"three nodes": priors.full(random_spectrum(3, seed=1))}
ASKED = np.array([0, 4, 9, 15, 26])
TWO = {"nodes": [4, 21], "y": [1, 0]}
THREE = {"nodes": [4, 21, 9], "y": [0, 2, 1]}
MODELS = {
    "probit": Probit(**TWO, gamma=0.5),
    "probit_with_mistakes": Probit(**TWO, gamma=0.5, delta=0.1),
    "level_set": LevelSet(**TWO, gamma=1.0),
    "ginzburg_landau": GinzburgLandau([0, 2], [1, 0], gamma=1.5, epsilon=1.0),
    "probit_3": Probit(**THREE, gamma=0.5),
    "probit_with_mistakes_3": Probit(**THREE, gamma=0.5, delta=0.1),
    "level_set_3": LevelSet(**THREE, gamma=0.8),
    "ginzburg_landau_3": GinzburgLandau([0, 1, 2], [1, 0, 2], gamma=2.0, epsilon=2.0),
}
LADDER = Tempered(n_rungs=5, n_leapfrog=4)
SAMPLERS = {  # with steps that are left out and steps after them
    "pcn": (PCN(beta=0.5), 100, 400),
    "orthant": (Orthant(), 20, 200),
    "elliptical_slice": (EllipticalSlice(), 20, 300),
    "nuts": (NUTS(step_size=0.3, max_doublings=4), 20, 60),
    "tempered": (LADDER, 50, 150),
    "referenced": (Referenced(PCN(beta=0.7)), 50, 300),
    "refractive": (Referenced(Refractive()), 20, 300),
    "tempered_from_reference": (Referenced(LADDER), 50, 150),
}
# What follows Phi alone need not be run on every model: that Phi is right is tested with the models.
TAKES = {
    "probit": ["pcn", "orthant", "nuts", "referenced"],
    "probit_with_mistakes": ["orthant", "referenced"],
    "level_set": ["pcn", "orthant", "elliptical_slice", "referenced", "refractive"],
    "ginzburg_landau": ["pcn", "elliptical_slice", "nuts", "tempered", "tempered_from_reference"],
    "probit_3": ["pcn", "orthant", "nuts", "referenced"],
    "probit_with_mistakes_3": ["pcn", "orthant", "referenced"],
    "level_set_3": ["pcn", "orthant", "elliptical_slice"],
    "ginzburg_landau_3": ["pcn", "nuts", "tempered", "tempered_from_reference"],
}
# How z is read is no matter of the sampler: one for each size on every kind of whitening.
ON_ALL_PRIORS = {("probit", "pcn"), ("probit", "orthant"), ("level_set", "orthant"), ("probit_3", "orthant")}
CASES = [(model, sampler) for model, samplers in TAKES.items() for sampler in samplers]


def priors_of(name):
    if name.startswith("ginzburg_landau"):
        return SMALL
    return {each: PRIORS[each] for each in ("full", "project", "approximate")} if name.endswith("_3") else PRIORS


def asked_of(name):
    return np.arange(3) if name.startswith("ginzburg_landau") else ASKED


@cache
def expected(prior, name):
    """P(class) at the asked nodes and its error, without noise and with it.

    In closed form for two classes, else by weighing draws of the prior.
    """
    model, prior, asked = MODELS[name], priors_of(name)[prior], asked_of(name)
    if model.n_classes > 2 or isinstance(model, GinzburgLandau):
        return simulated_classes(prior, model, asked, n_draws=100_000)
    up = [(1 + exact_label_means(prior, model, asked, predictive=noise)) / 2 for noise in (False, True)]
    return [(np.column_stack([1 - each, each]), 0.0) for each in up]


def worst_z_score(posterior, prior, name):
    """Of the probabilities of all classes, with the noise and without."""
    worst = 0.0
    for noise, (mean, error) in enumerate(expected(prior, name)):
        found = posterior.classes(asked_of(name), noise=bool(noise))
        worst = max(worst, np.abs((found.probability - mean) / np.hypot(found.error, error)).max())
    return worst


@pytest.mark.parametrize(("name", "sampler"), CASES)
def test_class_probabilities_are_exact(name, sampler):
    for each, prior in priors_of(name).items():
        if (name, sampler) in ON_ALL_PRIORS or each in ("approximate", "three nodes"):
            assert worst_z_score(chains(prior, MODELS[name], *SAMPLERS[sampler]), each, name) < 5


def test_every_kind_of_whitening_is_among_them():
    for labels in (TWO, THREE):
        kinds = {type(whiten(prior, np.array(labels["nodes"]))) for prior in PRIORS.values()}
        assert kinds == {OnLabels, OnModes, OnModesAndLabels}


class NoCorrection(PCN):
    """A wrong step: the old point is not shrunk, so the prior is not kept."""

    def step(self, key, state, problem, warm):
        grown = state._replace(z=state.z * 1.1)
        return super().step(key, grown._replace(potential=problem.potential(grown.z)), problem, warm)


class EveryRankCosts(Orthant):
    """A wrong wall: all fields ahead of the label's cost, and not the first alone."""

    def prepare(self, target):
        return replace(super().prepare(target), leader_only=False)


class Unmoved(Orthant):
    """A wrong push: what moves the label's field leaves the other one alone."""

    def prepare(self, target):
        cut = super().prepare(target)
        return replace(cut, gram=cut.gram * jnp.eye(len(cut.scale)))


class NoReference(Referenced):
    """A wrong potential: Phi alone, as if the reference were the prior."""

    def prepare(self, target):
        right = super().prepare(target)
        inner = replace(right.inner, slope=jnp.zeros_like(right.scale), scale=jnp.ones_like(right.scale))
        return replace(right, inner=inner)


WRONG = {
    "probit": (NoCorrection(beta=0.5), 100, 400),
    "probit_3": (NoReference(PCN(beta=0.7)), 50, 300),
    "level_set_3": (EveryRankCosts(), 20, 200),
    "probit_with_mistakes_3": (Unmoved(), 20, 200),
    "ginzburg_landau_3": (NoReference(LADDER), 50, 150),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_fails_the_same_test(name):
    prior = "project" if "project" in priors_of(name) else "three nodes"
    assert worst_z_score(chains(priors_of(name)[prior], MODELS[name], *WRONG[name]), prior, name) > 5


@pytest.mark.parametrize("name", ["probit", "level_set", "probit_3", "level_set_3"])
def test_a_factor_of_two_in_gamma_fails_the_same_test(name):
    """Only gamma over the prior's scale counts, so this is a factor of two in either."""
    model = replace(MODELS[name], gamma=2 * MODELS[name].gamma)
    assert worst_z_score(chains(PRIORS["full"], model, *SAMPLERS["orthant"]), "full", name) > 5


@pytest.mark.parametrize("name", ["probit", "probit_with_mistakes", "level_set", "ginzburg_landau"])
def test_two_fields_are_one_field_of_twice_the_variance(name):
    """Draws of the model of K fields at K = 2 against those of the two-class model, or its closed form."""
    one = MODELS[name]
    two = replace(one, n_fields=2)
    if isinstance(one, LevelSet):  # 1 / gamma^2 for another corner, 2 / gamma^2 for another sign
        two = replace(two, gamma=one.gamma / np.sqrt(2))
    if isinstance(one, Probit):
        two = replace(two, gamma=one.gamma / np.sqrt(2))
    each = "project" if "project" in priors_of(name) else "three nodes"
    prior = priors_of(name)[each]
    half = replace(prior, variances=prior.variances / 2, tail_variance=prior.tail_variance / 2)
    sampler = SAMPLERS["tempered" if name == "ginzburg_landau" else "orthant"]
    assert worst_z_score(chains(half, two, *sampler), each, name) < 5
    assert worst_z_score(chains(half, replace(two, gamma=two.gamma / 2), *sampler), each, name) > 5


@pytest.mark.parametrize("likelihood", [Probit, LevelSet])
def test_renamed_classes_rename_the_answer(likelihood):
    model = likelihood(**THREE, gamma=0.6)
    order = np.array([2, 0, 1])
    one = chains(PRIORS["full"], model, *SAMPLERS["orthant"], seed=1).classes(ASKED)
    other = chains(PRIORS["full"], replace(model, y=order[model.y]), *SAMPLERS["orthant"], seed=2).classes(ASKED)
    difference = one.probability - other.probability[:, order]
    assert np.abs(difference / np.hypot(one.error, other.error[:, order])).max() < 5
    assert np.abs((one.probability - other.probability) / np.hypot(one.error, other.error)).max() > 5


def node_space_pcn(prior, model, *, beta, n_steps, n_chains, seed):
    """Algorithms 1 to 3 as printed: u over all nodes, the prior drawn at every step. Signs of u out."""
    rng = np.random.default_rng(seed)
    phi = jax.jit(jax.vmap(model.phi))
    u = prior.sample(n_chains, seed=rng)
    energy, signs = np.asarray(phi(jnp.asarray(u[:, model.nodes]))), []
    for _ in range(n_steps):
        w = np.sqrt(1 - beta**2) * u + beta * prior.sample(n_chains, seed=rng)
        proposed = np.asarray(phi(jnp.asarray(w[:, model.nodes])))
        accept = rng.random(n_chains) < np.exp(np.minimum(energy - proposed, 0))
        u, energy = np.where(accept[:, None], w, u), np.where(accept, proposed, energy)
        signs.append(np.where(u[:, ASKED] >= 0, 1.0, -1.0))
    return np.stack(signs, axis=1)[:, n_steps // 10 :]


@pytest.mark.parametrize("prior", ["full", "approximate"])
def test_reduced_chain_and_chain_over_all_nodes_agree(prior):
    model = MODELS["level_set"]
    signs = node_space_pcn(PRIORS[prior], model, beta=0.5, n_steps=2000, n_chains=32, seed=1)
    found = chains(PRIORS[prior], model, PCN(beta=0.5), 200, 1800).labels(ASKED)
    difference = signs.mean(axis=(0, 1)) - found.mean
    error = np.hypot(standard_error(signs), found.error)
    assert np.abs(difference / error).max() < 5
    # Averaging closed forms is less noisy than signs, where z does not decide them.
    assert (found.error < standard_error(signs))[~np.isin(ASKED, model.nodes)].all()


def test_acceptance_is_that_of_the_chain_over_all_nodes():
    """The two chains have one law: at one beta they accept as often."""
    model, prior = MODELS["probit"], PRIORS["full"]
    reduced = chains(prior, model, PCN(beta=0.6), 100, 1000).acceptance
    start = chains(prior, model, *SAMPLERS["orthant"])
    u = start.latent(model.nodes)[:, ::10].reshape(-1, 2)
    xi = prior.sample(len(u), seed=0)[:, model.nodes]
    phi = jax.vmap(model.phi)
    proposal = jnp.asarray(np.sqrt(1 - 0.36) * u + 0.6 * xi)
    direct = np.exp(np.minimum(np.asarray(phi(jnp.asarray(u)) - phi(proposal)), 0))
    error = np.hypot(float(standard_error(reduced[:, :, None])[0]), direct.std() / np.sqrt(len(direct)))
    assert abs(reduced.mean() - direct.mean()) / error < 5


def test_no_likelihood_accepts_always_and_gives_the_prior():
    class Nothing(Model):
        nodes = np.array(TWO["nodes"])

        def phi(self, u):
            return 0.0 * u.sum()

    posterior = chains(PRIORS["full"], Nothing(), PCN(beta=0.5), 100, 300)
    assert (posterior.acceptance == 1).all()
    assert np.abs(posterior.labels(ASKED).mean / posterior.labels(ASKED).error).max() < 5
    assert posterior.mean_label_variance() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("name", "dtype"), [("probit", "float32"), ("probit_3", "float64")])
def test_sample_draws_from_the_same_law(name, dtype):
    """The engine around the chains, in either precision."""
    posterior = sample(PRIORS["approximate"], MODELS[name], n_steps=200, n_warmup=20, n_chains=8, dtype=dtype)
    assert posterior.z.dtype == dtype
    assert worst_z_score(posterior, "approximate", name) < 5


def test_a_model_of_ones_own():
    """Logistic likelihood, written as a user would, against importance sampling from the prior."""
    nodes, signs_of_labels = np.array([4, 21]), np.array([1.0, -1.0])

    class Logistic(Model):
        def __init__(self):
            self.nodes = nodes

        def phi(self, u):
            return jnp.sum(jnp.logaddexp(0.0, -3 * signs_of_labels * u))

    found = chains(PRIORS["full"], Logistic(), *SAMPLERS["pcn"]).labels(ASKED)
    u = PRIORS["full"].sample(200_000, seed=1)[:, [*nodes, *ASKED]]
    weights = np.exp(-np.logaddexp(0, -3 * signs_of_labels * u[:, :2]).sum(axis=1))
    signs = np.where(u[:, 2:] >= 0, 1.0, -1.0)
    mean = weights @ signs / weights.sum()
    error = np.sqrt((weights**2) @ np.square(signs - mean)) / weights.sum()
    assert np.abs((found.mean - mean) / np.hypot(error, found.error)).max() < 5


@pytest.mark.filterwarnings("ignore:Not converged")
def test_one_compilation_serves_other_numbers_of_modes():
    """The components of a mixture differ in them: spare coordinates are drawn, and change nothing."""
    compiled, settings = run._block._cache_size(), {"n_steps": 200, "n_warmup": 10, "n_chains": 16}
    sample(PRIORS["full"], MODELS["probit_3"], Orthant(time=1.5), **settings)
    found = sample(PRIORS["project"], MODELS["probit_3"], Orthant(time=1.5), **settings)
    assert run._block._cache_size() == compiled + 1
    assert found.z.shape == (16, 200, 3 * 2)
    assert worst_z_score(found, "project", "probit_3") < 5


@pytest.mark.filterwarnings("ignore:Not converged")
def test_one_compilation_serves_other_labels():
    """Labels and gamma are traced: a sweep over them does not compile again."""
    prior, sampler = PRIORS["full"], PCN(beta=0.7, target_acceptance=None)
    settings = {"n_steps": 200, "n_warmup": 0, "n_chains": 4}
    sample(prior, Probit([4, 21], [1, 0], gamma=0.5), sampler, **settings)
    compiled = run._block._cache_size()
    sample(prior, Probit([4, 21], [0, 1], gamma=0.7), sampler, **settings)
    assert run._block._cache_size() == compiled
