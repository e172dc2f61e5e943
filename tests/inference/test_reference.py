"""Samplers that start from a Gaussian close to the posterior, against numbers computed without sampling."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphuq.inference.ep import Gaussian
from graphuq.inference.orthant import Orthant
from graphuq.inference.reference import Referenced
from graphuq.inference.target import Linear, LinearWithTail, Target
from graphuq.models import GinzburgLandau, LevelSet, Model, Probit
from tests.inference.chains import run, z_scores
from tests.oracles import dense_covariance, exact_label_mean, four_priors, random_spectrum

COVARIANCE = dense_covariance(four_priors(random_spectrum(seed=2))["full"])
LABELS = {2: ((4, 21), (1.0, -1.0)), 3: ((4, 21, 9), (1.0, -1.0, -1.0))}
GAMMA = {"probit": 0.5, "level_set": 1.0}
POOR = Gaussian(np.array([0.4, -0.3, 0.2]), 1.2 * np.array([[0.9, 0, 0], [0.3, 1.2, 0], [0, -0.2, 1.1]]))


def small(kind, n_labels=2, asked=15):
    """A target whose z gives u at the labeled nodes and at one more, and the exact label means there."""
    nodes, y = LABELS[n_labels]
    where = [*nodes, asked] if n_labels == 2 else list(nodes)
    B = np.linalg.cholesky(COVARIANCE[np.ix_(where, where)])
    model = (Probit if kind == "probit" else LevelSet)(np.arange(n_labels), np.array(y), GAMMA[kind])
    target = Target.of(Linear(jnp.asarray(B[:n_labels], jnp.float32)), model)
    # Three labels have closed forms at the labeled nodes of level-set alone; see `exact_label_mean`.
    exact = [exact_label_mean(COVARIANCE, nodes, y, node, **{f"{kind}_gamma": GAMMA[kind]}) for node in where]
    return B, target, np.array(exact)


def deviations(sampler, kind, n_labels=2, n_steps=1500):
    B, target, exact = small(kind, n_labels)
    starts = jax.random.normal(jax.random.key(1), (48, target.n_latent))
    draws, info, _ = run(sampler, target, starts, n_warmup=200, n_steps=n_steps, seed=3)
    return z_scores(np.where(draws @ B.T >= 0, 1.0, -1.0), exact), info


def test_label_means_match_closed_forms_from_a_poor_reference():
    """A good one is among the samplers of test_exactness."""
    z, _ = deviations(Referenced(reference=POOR), "probit")
    assert np.abs(z).max() < 5


class Unmoved(Referenced):
    """As if the reference had the mean of the prior."""

    def prepare(self, target):
        right = super().prepare(target)
        return replace(right, inner=replace(right.inner, slope=jnp.zeros_like(right.inner.slope)))


def test_a_wrong_reference_fails_the_same_test():
    z, _ = deviations(Unmoved(reference=POOR), "probit")
    assert np.abs(z).max() > 5


def test_the_relative_potential_is_the_same_posterior():
    _, target, _ = small("probit")
    problem = Referenced(reference=POOR).prepare(target)

    @jax.jit
    def both(zeta):
        z = problem.mean + problem.rotation @ (problem.scale * zeta)
        return problem.inner.potential(zeta) + zeta @ zeta / 2, target.potential(z) + z @ z / 2

    relative, absolute = np.array([both(zeta) for zeta in jax.random.normal(jax.random.key(0), (20, 3))]).T
    np.testing.assert_allclose(relative - absolute, -np.square(POOR.mean).sum() / 2, atol=1e-4)
    covariance = problem.rotation * problem.scale**2 @ problem.rotation.T
    np.testing.assert_allclose(covariance, POOR.factor @ POOR.factor.T, atol=1e-5)


def test_fields_with_equal_covariances_need_the_matrix_of_one():
    """Three fields in one matrix would take three times the work of each of them alone."""
    B = np.random.default_rng(0).normal(size=(7, 4))
    model = GinzburgLandau(np.array([0, 2, 5]), np.array([0, 1, 2]), n_classes=3, n_fields=3)
    target = Target.of(Linear(jnp.asarray(B, jnp.float32)), model)
    problem = Referenced().prepare(target)
    assert problem.inner.matrix.shape == (7, 4)
    assert problem.inner.n_latent == 12
    gaussian = model.reference(B)
    whole = Gaussian(gaussian.mean, np.kron(np.eye(3), gaussian.factor))
    expanded = Referenced(reference=whole).prepare(target)
    z = jax.random.normal(jax.random.key(0), (5, 12))

    def field(problem, z):
        n = len(problem.rotation)
        zeta = ((z - problem.mean).reshape(-1, n) @ problem.rotation).ravel() / problem.scale
        return problem.inner.field(zeta), problem.inner.potential(zeta) + zeta @ zeta / 2

    for each in z:
        ours, theirs = field(problem, each), field(expanded, each)
        np.testing.assert_allclose(ours[0], target.field(each), atol=1e-4)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-4)


def test_a_start_within_reach_is_kept_and_one_far_out_is_drawn_in():
    _, target, _ = small("probit")
    sampler = Referenced()
    problem = sampler.prepare(target)
    for z, kept in ((problem.mean + 0.1, True), (problem.mean + 100.0, False)):
        drawn = sampler.draw(sampler.init(jax.random.key(0), z, problem), problem)
        assert np.allclose(drawn, z, atol=1e-4) == kept
    assert np.abs(drawn).max() < 10


def many(kind, n_labeled=400, n_latent=8):
    rng = np.random.default_rng(0)
    B = rng.normal(size=(n_labeled, n_latent))
    u = B @ rng.normal(size=n_latent)
    y = np.where(u + rng.normal(size=n_labeled) >= 0, 1.0, -1.0)
    model = (Probit if kind == "probit" else LevelSet)(np.arange(n_labeled), y, 1.0)
    return Target.of(Linear(jnp.asarray(B, jnp.float32)), model)


def test_many_labels_accept_nearly_independent_steps():
    starts = jax.random.normal(jax.random.key(1), (8, 8))
    _, info, state = run(Referenced(), many("probit"), starts, n_warmup=300, n_steps=300)
    assert np.mean(info.acceptance) > 0.8
    assert np.exp(state.log_beta).min() > 0.8


def test_a_field_with_a_tail_is_expanded():
    field = LinearWithTail(jnp.ones((2, 1)), jnp.array([0.3, 0.1]), jnp.asarray(0.9**0.5), jnp.asarray(0.5))
    target = Target.of(field, Probit([0, 1], np.array([1.0, -1.0]), 0.5))
    problem = Referenced().prepare(target)
    zeta = jax.random.normal(jax.random.key(0), (4,))
    z = problem.mean + problem.rotation @ (problem.scale * zeta)
    np.testing.assert_allclose(problem.inner.field(zeta), field(z), atol=1e-5)


def test_wrong_input_is_named():
    _, target, _ = small("probit")
    with pytest.raises(ValueError, match="z has 3 coordinates"):
        Referenced(reference=Gaussian(np.zeros(2), np.eye(2))).prepare(target)
    with pytest.raises(ValueError, match="singular"):
        Referenced(reference=Gaussian(np.zeros(3), np.diag([1.0, 1.0, 0.0]))).prepare(target)

    class Own(Model):
        nodes = np.array([0, 1, 2])

        def phi(self, u):
            return (u**2).sum()

    with pytest.raises(TypeError, match="Own offers no Gaussian close to its posterior"):
        Referenced().prepare(Target.of(target.field, Own()))


@pytest.mark.parametrize("inner", [Orthant(), Referenced()])
def test_samplers_that_ask_the_model_are_no_inner_ones(inner):
    with pytest.raises(TypeError, match="use it without Referenced"):
        Referenced(inner)
