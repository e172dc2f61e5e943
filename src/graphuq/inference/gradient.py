"""Elliptical slice sampling and NUTS of BlackJAX as `Sampler`s: a whitened target in; a Markov chain out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
        put(
            self,
            step_size=expect_number(self.step_size, "step_size"),
            target_acceptance=expect_between(self.target_acceptance, "target_acceptance", 1),
            max_doublings=expect_whole(self.max_doublings, "max_doublings"),
        )

    def prepare(self, target: Target) -> Target:
        """Return the target itself; refuse one whose Phi varies while its gradient is zero."""
        dtype = jax.tree.leaves(target)[0].dtype
        z = jnp.asarray(np.random.default_rng(0).standard_normal((32, target.n_latent)), dtype)
        potential, gradient = jax.lax.map(jax.value_and_grad(target.potential), z)
        if np.ptp(potential) > 0 and not np.any(gradient):
            raise TypeError(
                "NUTS follows the gradient of Phi, but Phi of this model is piecewise constant: its gradient is zero. "
                "Use Orthant, EllipticalSlice or PCN."
            )
        return target

    def init(self, key: jax.Array, z: jax.Array, problem: Target) -> GradientState:
        """The initial state, at z."""
        init, _, _ = dual_averaging_adaptation(self.target_acceptance)
        averaging = jax.tree.map(lambda x: jnp.asarray(x, z.dtype), init(self.step_size))
        # If there is no warm-up, the initial step size is used throughout.
        averaging = averaging._replace(log_step_size_avg=averaging.log_step_size)
        return GradientState(hmc.init(z, _log_density(problem)), averaging)

    def step(
        self, key: jax.Array, state: GradientState, problem: Target, warm: bool | jax.Array
    ) -> tuple[GradientState, Info]:
        """One trajectory with the averaged step size of the warm-up, in which dual averaging updates it."""
        old = state.averaging
        step_size = jnp.exp(jnp.where(warm, old.log_step_size, old.log_step_size_avg))
        unit = jnp.ones_like(state.hmc.position)  # unit mass matrix: z ~ N(0, I) a priori
        moved, info = nuts.build_kernel()(
            key, state.hmc, _log_density(problem), step_size, unit, self.max_doublings
        )
        _, update, _ = dual_averaging_adaptation(self.target_acceptance)
        new = jax.lax.cond(warm, update, lambda old, _: old, old, info.acceptance_rate)
        return GradientState(moved, new), Info(info.acceptance_rate, info.num_integration_steps, info.is_divergent)

    def draw(self, state: GradientState, problem: Target) -> jax.Array:
        """The position."""
        return state.hmc.position


def _log_density(problem: Target) -> Callable[[jax.Array], jax.Array]:
    """``log p(z | y) = -|z|^2 / 2 - Phi(B z)``, up to a constant."""
    return lambda z: -z @ z / 2 - problem.potential(z)
