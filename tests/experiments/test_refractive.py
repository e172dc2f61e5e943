"""Flights between the walls of many labels, against numbers computed without sampling."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.refractive import Refractive

from graphuq import Referenced
from graphuq.inference.target import Linear, Target
from graphuq.models import LevelSet
from tests.inference.chains import run, z_scores
from tests.inference.test_reference import POOR, deviations, many, small


def test_label_means_match_closed_forms_from_a_poor_reference_and_with_one_wall():
    """With a good one and all walls it is among the samplers of inference/test_exactness.py."""
    z, _ = deviations(Referenced(Refractive(2.0, 3, max_walls=1), POOR), "level_set", 3)
    assert np.abs(z).max() < 5


class LowWalls(Refractive):
    """Walls, and so the price of the opposite direction, at half their height."""

    def prepare(self, target):
        right = super().prepare(target)
        return replace(right, height=right.height / 2)


def test_a_wrong_step_fails_the_same_test():
    z, _ = deviations(Referenced(LowWalls()), "level_set")
    assert np.abs(z).max() > 5


def test_refraction_keeps_the_energy_and_can_be_reversed():
    with jax.enable_x64(True):
        target = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, many("level_set"))
        sampler = Refractive(n_kicks=1)
        problem = Referenced(sampler).prepare(target).inner
        free = replace(problem, target=replace(problem.target, scale=jnp.zeros(8)))  # walls alone, no kicks
        key_zeta, key_p = jax.random.split(jax.random.key(0))
        zeta = jax.random.normal(key_zeta, (8,), jnp.float64)
        p = sampler._across(jax.random.normal(key_p, (8,), jnp.float64), problem)
        fly = jax.jit(lambda zeta, p: sampler._fly(zeta, p, jnp.asarray(3.0), free))
        end, p_end, n_bounces = fly(zeta, p)
        back, p_back, n_back = fly(end, -p_end)
        wrong = [int((problem.target.field(x)[problem.walls] * problem.y < 0).sum()) for x in (zeta, end)]
        zeta, p, end, p_end, back, p_back = (np.asarray(x) for x in (zeta, p, end, p_end, back, p_back))
    assert n_bounces > 20
    assert n_back == n_bounces
    np.testing.assert_allclose(back, zeta, atol=1e-8)
    np.testing.assert_allclose(p_back, -p, atol=1e-8)
    lost = 2.0 * (wrong[1] - wrong[0])
    np.testing.assert_allclose(p @ p / 2 - p_end @ p_end / 2, lost, atol=1e-8)


def test_refraction_crosses_to_the_opposite_side():
    """Labels +1, +1, -1 on one value: the sign is + with odds exp(2 / gamma^2)."""
    B = jnp.ones((3, 1))
    target = Target.of(Linear(B), LevelSet(np.arange(3), np.array([1.0, 1.0, -1.0]), 1.0))
    starts = jax.random.normal(jax.random.key(1), (48, 1))
    draws, _, _ = run(Referenced(Refractive()), target, starts, n_warmup=20, n_steps=400)
    assert np.abs(z_scores(np.where(draws[..., 0] >= 0, 1.0, -1.0), np.tanh(1.0))) < 5
    assert np.abs(z_scores(draws[..., 0] ** 2, 1.0)) < 5


def test_wrong_input_is_named():
    for wrong, told in (
        ({"time": 0.0}, "time must be a finite number above 0, got 0.0"),
        ({"time": "a"}, "must be a finite number above 0, got 'a'"),
        ({"n_kicks": 1.5}, "n_kicks must be a whole number, got 1.5"),
    ):
        with pytest.raises(ValueError, match=told):
            Refractive(**wrong)
    _, target, _ = small("probit")
    with pytest.raises(TypeError, match="Referenced\\(Refractive"):
        Referenced(Refractive()).prepare(target)
