import numpy as np
import pytest

from graphuq.inference import independence, run
from graphuq.inference.independence import sample_independently
from graphuq.models import GinzburgLandau, LevelSet, Probit
from tests.oracles import exact_label_means, four_priors, random_spectrum

PRIORS = four_priors(random_spectrum(seed=2))
NODES, Y = np.array([4, 21]), np.array([1.0, -1.0])
ASKED = np.array([0, 4, 9, 15, 26])
MODELS = {"probit": Probit(NODES, Y, gamma=0.5), "level_set": LevelSet(NODES, Y, gamma=1.0)}


def worst_z_score(prior, model, **settings):
    found = sample_independently(prior, model, n_steps=4000, n_chains=16, seed=3, **settings).labels(ASKED)
    return np.abs((found.mean - exact_label_means(prior, model, ASKED)) / found.error).max()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prior", PRIORS)
def test_label_means_match_closed_forms(prior, model):
    assert worst_z_score(PRIORS[prior], MODELS[model]) < 5


def test_fewer_draws_of_more_steps_have_the_same_law():
    assert worst_z_score(PRIORS["full"], MODELS["level_set"], thin=5) < 5
    posterior = sample_independently(PRIORS["full"], MODELS["level_set"], n_steps=30, thin=5, n_chains=2)
    assert posterior.z.shape[:2] == posterior.acceptance.shape == (2, 30)


def test_a_chain_goes_on_across_blocks(monkeypatch):
    """In blocks of one proposal: forgetting where a chain was would leave the law of the Gaussian alone."""
    monkeypatch.setattr(independence, "BLOCK_NUMBERS", 1)
    assert worst_z_score(PRIORS["full"], MODELS["level_set"], thin=2) < 5
    posterior = sample_independently(PRIORS["full"], MODELS["level_set"], n_steps=30, thin=5, n_chains=2)
    assert posterior.z.shape[:2] == posterior.acceptance.shape == (2, 30)


def test_draws_of_the_gaussian_alone_fail_the_same_test(monkeypatch):
    """Without the correction the law is that of expectation propagation, not the posterior's."""

    def accept_all(log_w, log_uniform):
        return np.broadcast_to(np.arange(log_w.shape[1]), log_w.shape), np.ones(log_w.shape)

    monkeypatch.setattr(independence, "_walk", accept_all)
    assert worst_z_score(PRIORS["full"], MODELS["level_set"]) > 5


def test_the_same_seed_gives_the_same_draws():
    first, again, other = (sample_independently(PRIORS["full"], MODELS["probit"], seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.z, again.z)
    assert not np.array_equal(first.z, other.z)


def test_a_model_that_expectation_propagation_does_not_know_is_refused():
    with pytest.raises(TypeError, match="GinzburgLandau offers no sites"):
        sample_independently(PRIORS["full"], GinzburgLandau(NODES, Y))


@pytest.mark.parametrize(("kind", "used"), [("probit", True), ("level_set", False), ("mistakes", False)])
def test_no_tail_is_left_to_proposals_that_miss_it(kind, used, monkeypatch):
    """Near twins of different labels, one of 200 labels wrong: with such proposals 0.05 off, at an error of 0.004."""
    asked = []
    monkeypatch.setattr(
        run, "sample_independently", lambda *a, **k: asked.append(k) or sample_independently(*a, **k)
    )
    monkeypatch.setattr(run, "sample", lambda *a, **k: sample_independently(*a, n_steps=4000))
    models = MODELS | {"mistakes": Probit(NODES, Y, gamma=0.01, delta=0.005)}
    run.sample_enough(PRIORS["full"], models[kind])
    assert bool(asked) == used
