"""The orthant sampler against closed forms and quadrature, and its motion against the laws of mechanics."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import log_ndtr

from graphuq.inference.orthant import Orthant, fly
from graphuq.inference.target import Linear, LinearWithTail, Target
from graphuq.models import GinzburgLandau, LevelSet, Model, Probit
from tests.inference.chains import run, z_scores
from tests.oracles import signed_cdf

B = np.array([[1.2, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.3, 0.4, 0.9]])
Y = np.array([1.0, -1.0, -1.0])
# Two latent numbers, seven labels: a plane twice with one label, one twice with both, one nearly there, none.
FLAT = np.array([[1.0, 0.2], [1.0, 0.2], [0.3, -1.0], [0.3, -1.0], [0.3, -1.001], [-0.7, 0.4], [0.0, 0.0]])
FLAT_Y = np.array([1.0, 1.0, 1.0, -1.0, 1.0, 1.0, -1.0])


def target(matrix, y, model, gamma, dtype="float32"):
    return Target.of(Linear(matrix), model(np.arange(len(y)), y, gamma=gamma), dtype)


def draws(sampler, posterior, *, n_chains=128, seed=0):
    z = jax.random.normal(jax.random.key(9), (n_chains, posterior.n_latent))
    return run(sampler, posterior, z, n_warmup=50, n_steps=300, seed=seed)


def moments(z):
    """First and second moments, (..., n + n^2)."""
    return np.concatenate([z, (z[..., None] * z[..., None, :]).reshape(*z.shape[:-1], -1)], axis=-1)


def probit_moments(matrix, y, gamma, n_points=80):
    """Moments of z by Gauss-Hermite quadrature, good because Phi is smooth."""
    points, weights = hermegauss(n_points)
    n = matrix.shape[1]
    z = np.stack(np.meshgrid(*[points] * n, indexing="ij"), axis=-1).reshape(-1, n)
    prior = np.prod(np.stack(np.meshgrid(*[weights] * n, indexing="ij"), axis=-1).reshape(-1, n), axis=1)
    weight = prior * np.exp(log_ndtr(y * (z @ matrix.T) / gamma).sum(axis=1))
    return weight @ moments(z) / weight.sum()


def level_set_moments(matrix, y, gamma, n_points=200_000):
    """Moments of z in the plane: Phi depends on the angle alone, the length is that of two normals."""
    angle = 2 * np.pi * (np.arange(n_points) + 0.5) / n_points
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    wrong = (np.where(direction @ matrix.T >= 0, 1.0, -1.0) != y).sum(axis=1)
    weight = np.exp(-2 / gamma**2 * (wrong - wrong.min()))
    mean_and_square = np.array([np.sqrt(np.pi / 2)] * 2 + [2.0] * 4)
    return mean_and_square * (weight @ moments(direction)) / weight.sum()


def side_probabilities(matrix, y, gamma):
    """The posterior of every pattern of signs of u under the level-set model, exactly."""
    patterns = np.array(list(np.ndindex(*(2,) * len(y)))) * 2.0 - 1
    weight = [signed_cdf(s, matrix @ matrix.T) * np.exp(-2 / gamma**2 * (s != y).sum()) for s in patterns]
    return patterns, np.array(weight) / np.sum(weight)


def pattern_frequencies(z, matrix, patterns):
    signs = np.where(z @ matrix.T >= 0, 1.0, -1.0)
    return (signs[..., None, :] == patterns).all(axis=-1).astype(float)


def test_probit_moments():
    z, info, _ = draws(Orthant(), target(B, Y, Probit, 0.6))
    assert np.abs(z_scores(moments(z), probit_moments(B, Y, 0.6))).max() < 5
    assert (info.acceptance == 1).all()


def test_level_set_sides():
    patterns, expected = side_probabilities(B, Y, 1.2)
    z, info, _ = draws(Orthant(), target(B, Y, LevelSet, 1.2))
    assert np.abs(z_scores(pattern_frequencies(z, B, patterns), expected)).max() < 5
    assert (info.acceptance == 1).all()


WRONG = {
    "crossing costs less than Phi rises": lambda walls: replace(walls, height=0.8 * walls.height),
    "a push is not felt at other walls": lambda walls: replace(walls, gram=jnp.eye(len(walls.scale))),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_rule_at_the_wall_fails_the_same_test(rule, monkeypatch):
    right = Orthant.prepare
    monkeypatch.setattr(Orthant, "prepare", lambda self, target: WRONG[rule](right(self, target)))
    patterns, expected = side_probabilities(B, Y, 1.2)
    z, _, _ = draws(Orthant(), target(B, Y, LevelSet, 1.2))
    assert np.abs(z_scores(pattern_frequencies(z, B, patterns), expected)).max() > 5


@pytest.mark.parametrize(
    ("model", "gamma", "exact"), [(Probit, 0.6, probit_moments), (LevelSet, 1.2, level_set_moments)]
)
def test_more_labels_than_dimensions(model, gamma, exact):
    """Walls that coincide, that nearly do, and one that is no wall."""
    z, info, _ = draws(Orthant(), target(FLAT, FLAT_Y, model, gamma))
    assert np.abs(z_scores(moments(z), exact(FLAT, FLAT_Y, gamma))).max() < 5
    assert (info.acceptance == 1).all()


def test_flat_level_set_is_the_prior_and_moves_freely():
    z, _, state = draws(Orthant(), target(B, Y, LevelSet, 1e4))
    expected = np.concatenate([np.zeros(3), np.eye(3).ravel()])
    assert np.abs(z_scores(moments(z), expected)).max() < 5
    assert np.exp(state.log_time).mean() > 1.2


@pytest.mark.parametrize(("model", "gamma"), [(Probit, 0.6), (LevelSet, 1.2)])
def test_flipped_labels_flip_the_means(model, gamma):
    up, _, _ = draws(Orthant(), target(B, Y, model, gamma), seed=1)
    down, _, _ = draws(Orthant(), target(B, -Y, model, gamma), seed=2)
    assert np.abs(z_scores(up + down, 0.0)).max() < 5
    assert np.abs(z_scores(up, 0.0)).max() > 5


def test_giving_up_long_trajectories_keeps_the_posterior():
    patterns, expected = side_probabilities(B, Y, 1.2)
    z, info, state = draws(Orthant(max_bounces=2), target(B, Y, LevelSet, 1.2))
    assert 0.1 < info.acceptance.mean() < 0.9
    assert np.abs(z_scores(pattern_frequencies(z, B, patterns), expected)).max() < 5
    np.testing.assert_allclose(np.exp(state.log_time), np.pi / 2, rtol=1e-6)  # as was asked


def many_walls(n_labels, n_latent, seed=0):
    """Labels of a function in reach of the prior, so that some point has all of them right."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n_labels, n_latent))
    return matrix, np.where(matrix @ rng.standard_normal(n_latent) >= 0, 1.0, -1.0)


def test_single_precision_stays_in_the_orthant():
    posterior = target(*many_walls(30, 12), Probit, 0.05)
    z, info, state = draws(Orthant(), posterior, n_chains=32)
    assert info.work.sum() > 100_000
    assert jax.vmap(Orthant().prepare(posterior))(state.x).min() > -1e-5
    assert np.isfinite(z).all()


def test_starts_inside_the_orthant_from_anywhere():
    walls = Orthant().prepare(target(*many_walls(30, 12), Probit, 0.01))
    starts = 10 * jax.random.normal(jax.random.key(0), (50, 12))
    keys = jax.random.split(jax.random.key(1), 50)
    state = jax.jit(jax.vmap(Orthant().init, in_axes=(0, 0, None)))(keys, starts, walls)
    assert np.isfinite(state.x).all()
    assert jax.vmap(walls)(state.x).min() > -1e-5
    np.testing.assert_array_equal(state.x[:, :12], starts)


@jax.jit
def there_and_back(walls, x, p):
    there = fly(walls, walls(x), walls(p), jnp.asarray(2.0), 1000)
    back = fly(walls, there.u, -there.w, jnp.asarray(2.0), 1000)
    end = x * jnp.cos(2.0) + p * jnp.sin(2.0) + walls.transpose(there.kappa)
    return there, back, end, walls(x), walls(p), walls(end)


@pytest.mark.parametrize(("model", "gamma"), [(Probit, 0.3), (LevelSet, 0.8)])
def test_motion_keeps_energy_and_can_be_reversed(model, gamma):
    with jax.enable_x64(True):
        walls = Orthant().prepare(target(*many_walls(30, 12), model, gamma, "float64"))
        z = jax.random.normal(jax.random.key(3), (12,), "float64")
        x = jax.jit(Orthant().init)(jax.random.key(4), z, walls).x
        p = jax.random.normal(jax.random.key(5), x.shape, "float64")
        there, back, end, u, w, u_end = jax.tree.map(np.asarray, there_and_back(walls, x, p))
        x, p = np.asarray(x), np.asarray(p)
        A = np.asarray(jax.jit(jax.vmap(walls))(jnp.eye(x.size, dtype="float64"))).T

    assert there.n_bounces == back.n_bounces > 10
    np.testing.assert_allclose(back.u, u, atol=1e-6)
    np.testing.assert_allclose(-back.w, w, atol=1e-6)
    np.testing.assert_allclose(u_end, there.u, atol=1e-6)
    if model is LevelSet:  # more walls than dimensions: the velocity is known from its values there
        v = np.linalg.lstsq(A, there.w)[0]
        rise = 2 / gamma**2 * (np.sum(there.u < 0) - np.sum(u < 0))
        assert rise != 0
        assert x @ x + p @ p == pytest.approx(end @ end + v @ v + 2 * rise, rel=1e-9)


@pytest.mark.parametrize("model", [Probit, LevelSet])
def test_structured_field_and_missing_gram_matrix_change_nothing(model):
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        q0 = jnp.asarray(rng.standard_normal(6) / 4)
        factor, unseen = jnp.asarray(rng.standard_normal((6, 2))), jnp.sqrt(1 - q0 @ q0)
        tail = LinearWithTail(factor, q0, unseen, jnp.asarray(0.7))
        matrix = np.asarray(jax.jit(jax.vmap(tail, in_axes=1, out_axes=1))(jnp.eye(tail.n_latent)))
        y = np.array([1.0, -1, 1, 1, -1, -1])
        walls = Orthant().prepare(Target.of(tail, model(np.arange(6), y, gamma=0.3), "float64"))
        A = y[:, None] * (np.hstack([matrix, 0.3 * np.eye(6)]) if model is Probit else matrix)
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        bare = replace(walls, gram=None)
        x = rng.standard_normal(A.shape[1])
        for name, found, expected in (
            ("values", walls(jnp.asarray(x)), A @ x),
            ("transpose", walls.transpose(jnp.asarray(y)), A.T @ y),
            ("stored", walls.gram, A @ A.T),
            ("computed", jax.jit(jax.vmap(bare.column))(jnp.arange(6)), A @ A.T),
        ):
            np.testing.assert_allclose(found, expected, atol=1e-12, err_msg=name)


def test_time_shrinks_where_walls_are_dense():
    _, _, state = draws(Orthant(), target(*many_walls(200, 4), LevelSet, 1.0), n_chains=8)
    assert 0.01 < np.exp(state.log_time).mean() < 0.5


def test_other_models_are_refused():
    class Logistic(Model):
        nodes = np.arange(3)

        def phi(self, u):
            return jnp.sum(jnp.logaddexp(0.0, -u))

    for model, name in ((GinzburgLandau(np.arange(3), Y), "GinzburgLandau"), (Logistic(), "Logistic")):
        with pytest.raises(TypeError, match=f"{name} offers no walls: .* Use PCN"):
            Orthant().prepare(Target.of(Linear(B), model))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"time": 0.0}, "time must lie"), ({"time": 3.0}, "time must lie"), ({"max_bounces": 0}, "max_bounces")],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        Orthant(**settings)
