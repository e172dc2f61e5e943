"""Elliptical slice sampling, HMC and NUTS of BlackJAX as `Sampler`s: a whitened target in; a Markov chain out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc import elliptical_slice, hmc, nuts

from graphuq._expect import expect_between, expect_number, expect_whole, put
from graphuq.inference.sampler import Info
from graphuq.inference.target import Target


@dataclass(frozen=True)
class EllipticalSlice:
    """Slice sampling on the ellipse ``z cos(theta) + xi sin(theta)``, xi ~ N(0, I) (Murray et al. 2010).

    It has no settings, uses no gradient and moves at every step; steps are small where Phi is steep.
    """

    def prepare(self, target: Target) -> Target:
        """Return the target itself."""
        return target

    def init(self, key: jax.Array, z: jax.Array, problem: Target) -> Any:
        """The initial state, at z."""
        return elliptical_slice.init(z, lambda z: -problem.potential(z))

    def step(self, key: jax.Array, state: Any, problem: Target, warm: bool | jax.Array) -> tuple[Any, Info]:
        """One step: shrink the bracket of angles until a point lies on the slice."""
        kernel = elliptical_slice.build_kernel(jnp.ones_like(state.position), jnp.zeros_like(state.position))
        # Subtract Phi at the current z: relative to a huge Phi the slice level would be lost to rounding.
        current = problem.potential(state.position)
        shifted = state._replace(logdensity=jnp.zeros_like(current))
        state, info = kernel(key, shifted, lambda z: current - problem.potential(z))
        return state, Info(jnp.ones((), state.position.dtype), jnp.asarray(info.subiter, jnp.int32))

    def draw(self, state: Any, problem: Target) -> jax.Array:
        """The position."""
        return state.position


class GradientState(NamedTuple):
    """Position of a chain and the dual-averaging state of its step size."""

    hmc: Any  # BlackJAX's HMCState: z, the log density and its gradient
    averaging: Any  # BlackJAX's DualAveragingAdaptationState


# Methods that NUTS and HMC share; these differ only in `move` and in their settings.


def _prepare(self: NUTS | HMC, target: Target) -> Target:
    """Return the target itself; refuse one whose Phi varies while its gradient is zero."""
    dtype = jax.tree.leaves(target)[0].dtype
    z = jnp.asarray(np.random.default_rng(0).standard_normal((32, target.n_latent)), dtype)
    potential, gradient = jax.lax.map(jax.value_and_grad(target.potential), z)
    if np.ptp(potential) > 0 and not np.any(gradient):
        raise TypeError(
            f"{type(self).__name__} follows the gradient of Phi, but Phi of this model is piecewise constant: its "
            "gradient is zero. Use Orthant, EllipticalSlice or PCN."
        )
    return target


def _init(self: NUTS | HMC, key: jax.Array, z: jax.Array, problem: Target) -> GradientState:
    """The initial state, at z."""
    init, _, _ = dual_averaging_adaptation(self.target_acceptance)
    averaging = jax.tree.map(lambda x: jnp.asarray(x, z.dtype), init(self.step_size))
    # If there is no warm-up, the initial step size is used throughout.
    averaging = averaging._replace(log_step_size_avg=averaging.log_step_size)
    return GradientState(hmc.init(z, _log_density(problem)), averaging)


def _step(
    self: NUTS | HMC, key: jax.Array, state: GradientState, problem: Target, warm: bool | jax.Array
) -> tuple[GradientState, Info]:
    """One trajectory with the averaged step size of the warm-up, in which dual averaging updates it."""
    old = state.averaging
    state, info = self.move(key, state, problem, jnp.where(warm, old.log_step_size, old.log_step_size_avg))
    _, update, _ = dual_averaging_adaptation(self.target_acceptance)
    new = jax.lax.cond(warm, update, lambda old, _: old, old, info.acceptance)
    return state._replace(averaging=new), info


def _draw(self: NUTS | HMC, state: GradientState, problem: Target) -> jax.Array:
    """The position."""
    return state.hmc.position


@dataclass(frozen=True)
class NUTS:
    """The no-U-turn sampler: a trajectory is doubled until it turns back (Hoffman and Gelman 2014).

    Attributes:
        step_size: initial step size; dual averaging adapts it during the warm-up, then its average is kept.
        target_acceptance: acceptance rate that the step size is adapted to, in (0, 1).
        max_doublings: a trajectory has at most ``2^max_doublings`` steps.
    """

    step_size: float = 0.1
    target_acceptance: float = 0.8
    max_doublings: int = 10

    def __post_init__(self) -> None:
        _check_settings(self)
        put(self, max_doublings=expect_whole(self.max_doublings, "max_doublings"))

    prepare, init, step, draw = _prepare, _init, _step, _draw

    def move(
        self, key: jax.Array, state: GradientState, problem: Target, log_step: jax.Array
    ) -> tuple[GradientState, Info]:
        """One trajectory with the given step size."""
        unit = jnp.ones_like(state.hmc.position)  # unit mass matrix: z ~ N(0, I) a priori
        moved, info = nuts.build_kernel()(
            key, state.hmc, _log_density(problem), jnp.exp(log_step), unit, self.max_doublings
        )
        return state._replace(hmc=moved), Info(info.acceptance_rate, info.num_integration_steps, info.is_divergent)


@dataclass(frozen=True)
class HMC:
    """Hamiltonian Monte Carlo with a fixed mean trajectory length (Neal 2011).

    Attributes:
        path_length: mean integration time of a trajectory. Motion under N(0, I) has period 2 pi, and a quarter
            turn, pi / 2, would make independent draws from the prior. The time is jittered by up to half in either
            direction, so that no direction returns to its start at every step.
        step_size: initial step size; dual averaging adapts it during the warm-up, then its average is kept.
        target_acceptance: acceptance rate that the step size is adapted to, in (0, 1).
        max_steps: the largest number of steps in a trajectory.
    """

    path_length: float = pi / 2
    step_size: float = 0.1
    target_acceptance: float = 0.8
    max_steps: int = 1000

    def __post_init__(self) -> None:
        _check_settings(self)
        put(
            self,
            path_length=expect_number(self.path_length, "path_length"),
            max_steps=expect_whole(self.max_steps, "max_steps"),
        )

    prepare, init, step, draw = _prepare, _init, _step, _draw

    def move(
        self, key: jax.Array, state: GradientState, problem: Target, log_step: jax.Array
    ) -> tuple[GradientState, Info]:
        """One trajectory with the given step size."""
        key_length, key_hmc = jax.random.split(key)
        step_size = jnp.exp(log_step)
        length = self.path_length * jax.random.uniform(key_length, (), step_size.dtype, 0.5, 1.5)
        n_steps = jnp.clip(jnp.ceil(length / step_size), 1, self.max_steps).astype(jnp.int32)
        unit = jnp.ones_like(state.hmc.position)  # unit mass matrix: z ~ N(0, I) a priori
        moved, info = hmc.build_kernel()(key_hmc, state.hmc, _log_density(problem), step_size, unit, n_steps)
        return state._replace(hmc=moved), Info(info.acceptance_rate, n_steps, info.is_divergent)


def _log_density(problem: Target) -> Callable[[jax.Array], jax.Array]:
    """``log p(z | y) = -|z|^2 / 2 - Phi(B z)``, up to a constant."""
    return lambda z: -z @ z / 2 - problem.potential(z)


def _check_settings(sampler: NUTS | HMC) -> None:
    """Check the settings that NUTS and HMC share."""
    put(
        sampler,
        step_size=expect_number(sampler.step_size, "step_size"),
        target_acceptance=expect_between(sampler.target_acceptance, "target_acceptance", 1),
    )
