"""Preconditioned Crank-Nicolson, Algorithms 1, 2 and 3: a target of any Gaussian prior in; a Markov chain out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from graphuq._expect import expect_between, put
from graphuq.inference.sampler import Info
from graphuq.inference.target import Target


class PCNState(NamedTuple):
    """Position of a chain, Phi there, and the adapted step size."""

    z: jax.Array
    potential: jax.Array
    log_beta: jax.Array
    n_adapted: jax.Array


@dataclass(frozen=True)
class PCN:
    """``z' = sqrt(1 - beta^2) z + beta xi``, accepted with ``min(1, exp(Phi(B z) - Phi(B z')))``.

    In node space this is line 5 of Algorithms 1 to 3: u = B z has the prior's law, so the three
    algorithms differ in B alone.

    Attributes:
        beta: the step size, in (0, 1].
        target_acceptance: beta is adapted to this acceptance rate during the warm-up and then kept;
            None keeps the given beta throughout, as the paper does. 0.3 is within 2% of the best
            efficiency over a wide range for random-walk moves.
    """

    beta: float = 0.3
    target_acceptance: float | None = 0.3

    def __post_init__(self) -> None:
        put(self, beta=expect_between(self.beta, "beta", 1, included=True))
        if self.target_acceptance is not None:
            put(self, target_acceptance=expect_between(self.target_acceptance, "target_acceptance", 1))

    def prepare(self, target: Target) -> Target:
        """Return the target itself."""
        return target

    def init(self, key: jax.Array, z: jax.Array, problem: Target) -> PCNState:
        """The initial state, at z."""
        log_beta = jnp.log(jnp.asarray(self.beta, z.dtype))
        return PCNState(z, problem.potential(z), log_beta, jnp.zeros((), z.dtype))

    def step(
        self, key: jax.Array, state: PCNState, problem: Target, warm: bool | jax.Array
    ) -> tuple[PCNState, Info]:
        """One step (lines 5 to 7), followed in the warm-up by a Robbins-Monro update of log beta."""
        key_xi, key_accept = jax.random.split(key)
        beta = jnp.exp(state.log_beta)
        xi = jax.random.normal(key_xi, state.z.shape, state.z.dtype)
        z = jnp.sqrt(1 - beta**2) * state.z + beta * xi  # line 5
        potential = problem.potential(z)
        acceptance = jnp.exp(jnp.minimum(state.potential - potential, 0))  # line 6
        # NaN between two infinite potentials, where the chain walks on until it is out
        acceptance = jnp.where(jnp.isnan(acceptance), 1.0 * (state.potential == potential), acceptance)
        accept = jax.random.uniform(key_accept, (), state.z.dtype) < acceptance  # line 7
        z = jnp.where(accept, z, state.z)
        potential = jnp.where(accept, potential, state.potential)
        state, info = state._replace(z=z, potential=potential), Info(acceptance, jnp.ones((), jnp.int32))
        if self.target_acceptance is None:
            return state, info
        n = state.n_adapted + warm
        # Gains n^-0.6 forget the initial beta yet converge; beta = 1 proposes independent draws from the prior.
        log_beta = state.log_beta + n**-0.6 * (acceptance - self.target_acceptance)
        log_beta = jnp.where(warm, jnp.clip(log_beta, math.log(1e-4), 0.0), state.log_beta)
        return state._replace(log_beta=log_beta, n_adapted=n), info

    def draw(self, state: PCNState, problem: Target) -> jax.Array:
        """The position."""
        return state.z
