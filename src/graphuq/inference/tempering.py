"""Parallel tempering: a posterior with several modes in; draws that cross between them out."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import NamedTuple

import jax
import jax.numpy as jnp

from graphuq._expect import expect_between, expect_whole, put
from graphuq.inference.sampler import Info
from graphuq.inference.target import Target


class TemperedState(NamedTuple):
    """The replicas of one chain, one per rung of the ladder; the last one samples the target."""

    z: jax.Array  # (n_rungs, n_latent)
    potential: jax.Array  # (n_rungs,), not tempered
    gradient: jax.Array  # (n_rungs, n_latent), not tempered
    ladder: jax.Array  # (n_rungs,), the powers t, from 0 to 1
    log_step: jax.Array  # (n_rungs,)
    rejection: jax.Array  # (n_rungs - 1,), of exchanges, summed over the current round of the warm-up
    n_steps: jax.Array


class Phase(NamedTuple):
    """Position and momentum of a replica on its trajectory, with the potential and its gradient there."""

    z: jax.Array
    momentum: jax.Array
    potential: jax.Array
    gradient: jax.Array


@dataclass(frozen=True)
class Tempered:
    """Parallel tempering: replicas on a ladder from the standard normal to the target exchange places.

        rung k has the law  exp(-t_k potential(z)) N(dz; 0, I),    0 = t_0 < ... < t_K = 1.

    At t = 0 there is one mode and every move makes a nearly independent draw. These draws climb the ladder and
    reach each mode in proportion to its probability, however high the barriers between modes.

    A step moves every replica by one Hamiltonian trajectory, then proposes to exchange every second pair of
    neighbors. Even and odd pairs alternate, which carries replicas up and down the ladder instead of letting them
    diffuse (Syed, Bouchard-Cote, Deligiannidis and Doucet 2022). The ladder and the step sizes are adapted in the
    warm-up only.

    The standard normal is the prior or, inside `Referenced`, a Gaussian close to the posterior: the closer it is,
    the fewer rungs are needed.

    Attributes:
        n_rungs: replicas per chain. About twice the expected number of rejected exchanges along the ladder is
            best: add rungs if the exchange rate (the reported acceptance) falls below a third.
        n_leapfrog: gradient evaluations in one trajectory.
        target_acceptance: acceptance rate of trajectories that the warm-up adapts the step sizes to, in (0, 1).
    """

    n_rungs: int = 20
    n_leapfrog: int = 8
    target_acceptance: float = 0.8

    def __post_init__(self) -> None:
        put(
            self,
            n_rungs=expect_whole(self.n_rungs, "n_rungs", least=2),
            n_leapfrog=expect_whole(self.n_leapfrog, "n_leapfrog"),
            target_acceptance=expect_between(self.target_acceptance, "target_acceptance", 1),
        )

    def prepare(self, target: Target) -> Target:
        """Return the target itself."""
        return target

    def init(self, key: jax.Array, z: jax.Array, problem: Target) -> TemperedState:
        """The initial state: all replicas at z."""
        potential, gradient = jax.value_and_grad(problem.potential)(z)
        return TemperedState(
            z=jnp.tile(z, (self.n_rungs, 1)),
            potential=jnp.tile(potential, self.n_rungs),
            gradient=jnp.tile(gradient, (self.n_rungs, 1)),
            # Dense near t = 0, where the potential is largest and the law changes fastest.
            ladder=jnp.linspace(0, 1, self.n_rungs, dtype=z.dtype) ** 3,
            log_step=jnp.full(self.n_rungs, self._max_log_step, z.dtype),
            rejection=jnp.zeros(self.n_rungs - 1, z.dtype),
            n_steps=jnp.zeros((), jnp.int32),
        )

    def step(
        self, key: jax.Array, state: TemperedState, problem: Target, warm: bool | jax.Array
    ) -> tuple[TemperedState, Info]:
        """Move every replica, then propose exchanges, see `_adapted` for the warm-up."""
        state, acceptance, exchange = self._advance(key, state, problem)
        info = Info(exchange.mean(), jnp.asarray(self.n_rungs * self.n_leapfrog, jnp.int32))
        return jax.lax.cond(warm, self._adapted, lambda state, *_: state, state, acceptance, exchange), info

    def _adapted(self, state: TemperedState, acceptance: jax.Array, exchange: jax.Array) -> TemperedState:
        """The state after a Robbins-Monro update of the step sizes and, after each round, of the ladder."""
        n = state.n_steps
        # Gains n^-0.6 forget the initial step sizes yet converge.
        log_step = state.log_step + n.astype(state.z.dtype) ** -0.6 * (acceptance - self.target_acceptance)
        state = state._replace(
            log_step=jnp.minimum(log_step, self._max_log_step), rejection=state.rejection + 1 - exchange
        )
        # Rounds double in length: rejections on each ladder are averaged over twice the steps of the one before.
        end_of_round = (n & (n - 1)) == 0
        return jax.lax.cond(end_of_round, _respace, lambda state: state, state)

    def draw(self, state: TemperedState, problem: Target) -> jax.Array:
        """The replica at t = 1, whose law is the target."""
        return state.z[-1]

    @property
    def _max_log_step(self) -> float:
        """Log of the step size at which a trajectory is a quarter turn, an independent draw from N(0, I)."""
        return log(pi / 2 / self.n_leapfrog)

    def _advance(
        self, key: jax.Array, state: TemperedState, problem: Target
    ) -> tuple[TemperedState, jax.Array, jax.Array]:
        """The next state, the acceptance of each move, and that of each exchange, whether proposed or not."""
        key_momentum, key_uniform = jax.random.split(key)
        momentum = jax.random.normal(key_momentum, state.z.shape, state.z.dtype)
        jitter, move, swap = jax.random.uniform(key_uniform, (3, self.n_rungs), state.z.dtype)

        # Jitter of a fifth (Neal 2011), so that no direction returns to its start at every step.
        step = jnp.exp(state.log_step) * (0.8 + 0.4 * jitter)
        before = Phase(state.z, momentum, state.potential, state.gradient)
        after = jax.vmap(self._trajectory, in_axes=(0, 0, 0, None))(before, state.ladder, step, problem)
        gain = jax.vmap(_energy)(before, state.ladder) - jax.vmap(_energy)(after, state.ladder)
        # Not finite if the step size was far too large.
        acceptance = jnp.where(jnp.isfinite(gain), jnp.exp(jnp.minimum(gain, 0)), 0)
        moved = jax.vmap(lambda accept, new, old: jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old))(
            move < acceptance, after, before
        )

        exchange = exchange_probability(state.ladder, moved.potential)
        proposed = jnp.arange(self.n_rungs - 1) % 2 == state.n_steps % 2
        accepted = proposed & (swap[1:] < exchange)
        order = jnp.arange(self.n_rungs) + jnp.append(accepted, False) - jnp.append(False, accepted)
        state = state._replace(
            z=moved.z[order],
            potential=moved.potential[order],
            gradient=moved.gradient[order],
            n_steps=state.n_steps + 1,
        )
        return state, acceptance, exchange

    def _trajectory(self, start: Phase, t: jax.Array, step: jax.Array, problem: Target) -> Phase:
        """Hamiltonian trajectory of one replica: kicks by ``t grad potential`` and exact rotations for N(0, I)."""
        cos, sin = jnp.cos(step), jnp.sin(step)

        def leapfrog(_: int, at: Phase) -> Phase:
            momentum = at.momentum - step / 2 * t * at.gradient
            z, momentum = cos * at.z + sin * momentum, cos * momentum - sin * at.z
            potential, gradient = jax.value_and_grad(problem.potential)(z)
            return Phase(z, momentum - step / 2 * t * gradient, potential, gradient)

        return jax.lax.fori_loop(0, self.n_leapfrog, leapfrog, start)


def exchange_probability(ladder: jax.Array, potential: jax.Array) -> jax.Array:
    """``min(1, exp((t_{k+1} - t_k) (potential_{k+1} - potential_k)))`` for every pair of neighbors."""
    return jnp.exp(jnp.minimum(jnp.diff(ladder) * jnp.diff(potential), 0))


def _energy(at: Phase, t: jax.Array) -> jax.Array:
    """Minus the log joint density of a replica and its momentum."""
    return t * at.potential + at.z @ at.z / 2 + at.momentum @ at.momentum / 2


def _respace(state: TemperedState) -> TemperedState:
    """Move the rungs so that all pairs of neighbors have about the same rejection rate.

    The cumulative rejections are a length along the path (Syed et al. 2022, Algorithm 2); rungs are placed at
    equal distances.
    """
    # A small constant keeps the length strictly increasing where nothing was rejected.
    length = jnp.append(0, jnp.cumsum(state.rejection + 1e-3 * (1 + state.rejection.sum())))
    ladder = jnp.interp(jnp.linspace(0, length[-1], length.size), length, state.ladder)
    ladder = ladder.at[-1].set(1)
    return state._replace(ladder=ladder, rejection=jnp.zeros_like(state.rejection))
