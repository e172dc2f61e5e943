"""Parallel tempering: a posterior with several modes in; draws that cross between them out."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import NamedTuple

import jax
import jax.numpy as jnp

from graphuq._expect import expect_between, expect_whole
from graphuq.inference.sampler import Info
from graphuq.inference.target import Target


class TemperedState(NamedTuple):
    """The replicas of one chain, one for each rung of the ladder, the target's last."""

    z: jax.Array  # (n_rungs, n_latent)
    potential: jax.Array  # (n_rungs,), not tempered
    gradient: jax.Array  # (n_rungs, n_latent), not tempered
    ladder: jax.Array  # (n_rungs,), the powers t, from 0 to 1
    log_step: jax.Array  # (n_rungs,)
    rejection: jax.Array  # (n_rungs - 1,), summed over the current round of the warm-up
    n_steps: jax.Array


class Phase(NamedTuple):
    """Where a replica is on its trajectory."""

    z: jax.Array
    momentum: jax.Array
    potential: jax.Array
    gradient: jax.Array


@dataclass(frozen=True)
class Tempered:
    """Replicas on a ladder from the standard normal to the target, which swap places.

        rung k has the law  exp(-t_k potential(z)) N(dz; 0, I),    0 = t_0 < ... < t_K = 1.

    At t = 0 there is one mode and every move makes a nearly independent draw. These draws climb the ladder and reach
    each mode in proportion to its probability, however high the barriers between modes.

    A step moves every replica by one trajectory, then offers an exchange to every second pair of
    neighbors. Even and odd pairs take turns, which carries replicas up and down the ladder instead of
    letting them diffuse (Syed, Bouchard-Cote, Deligiannidis and Doucet 2022). The ladder and the sizes
    of the moves are adapted in the warm-up alone.

    The standard normal is the prior, or, inside `Referenced`, a Gaussian close to the posterior: the
    closer it is, the fewer rungs are needed.

    Attributes:
        n_rungs: replicas of a chain. About twice the number of rejections on the way up the ladder is best: add rungs
            if the exchange rate (the reported acceptance) falls below a third.
        n_leapfrog: gradient evaluations in one trajectory.
        target_acceptance: the acceptance that trajectories move towards in the warm-up, in (0, 1).
    """

    n_rungs: int = 20
    n_leapfrog: int = 8
    target_acceptance: float = 0.8

    def __post_init__(self) -> None:
        expect_whole(self.n_rungs, "n_rungs", least=2)
        expect_whole(self.n_leapfrog, "n_leapfrog")
        expect_between(self.target_acceptance, "target_acceptance", 1)

    def prepare(self, target: Target) -> Target:
        """Nothing to prepare."""
        return target

    def init(self, key: jax.Array, z: jax.Array, problem: Target) -> TemperedState:
        """The first state: all replicas at z."""
        potential, gradient = jax.value_and_grad(problem.potential)(z)
        return TemperedState(
            z=jnp.tile(z, (self.n_rungs, 1)),
            potential=jnp.tile(potential, self.n_rungs),
            gradient=jnp.tile(gradient, (self.n_rungs, 1)),
            # The law changes fastest near t = 0, where the potential is largest.
            ladder=jnp.linspace(0, 1, self.n_rungs, dtype=z.dtype) ** 3,
            log_step=jnp.full(self.n_rungs, self._max_log_step, z.dtype),
            rejection=jnp.zeros(self.n_rungs - 1, z.dtype),
            n_steps=jnp.zeros((), jnp.int32),
        )

    def step(self, key: jax.Array, state: TemperedState, problem: Target) -> tuple[TemperedState, Info]:
        """Move every replica, then offer exchanges."""
        state, _, exchange = self._advance(key, state, problem)
        return state, self._info(exchange)

    def warm_step(self, key: jax.Array, state: TemperedState, problem: Target) -> tuple[TemperedState, Info]:
        """One step, after which step sizes follow the acceptance, and the ladder the exchanges."""
        state, acceptance, exchange = self._advance(key, state, problem)
        n = state.n_steps
        # Gains n^-0.6 forget the start yet settle.
        log_step = state.log_step + n.astype(state.z.dtype) ** -0.6 * (acceptance - self.target_acceptance)
        state = state._replace(
            log_step=jnp.minimum(log_step, self._max_log_step), rejection=state.rejection + 1 - exchange
        )
        # Rounds double in length: each ladder is judged by twice the steps of the one before.
        end_of_round = (n & (n - 1)) == 0
        return jax.lax.cond(end_of_round, _respace, lambda state: state, state), self._info(exchange)

    def draw(self, key: jax.Array, state: TemperedState, problem: Target) -> jax.Array:
        """The replica whose law is the target."""
        return state.z[-1]

    @property
    def _max_log_step(self) -> float:
        """A trajectory turns by a quarter at most, after which N(0, I) has forgotten where it was."""
        return log(pi / 2 / self.n_leapfrog)

    def _advance(
        self, key: jax.Array, state: TemperedState, problem: Target
    ) -> tuple[TemperedState, jax.Array, jax.Array]:
        """The state after, the acceptance of each move, and that of each exchange, offered or not."""
        key_momentum, key_uniform = jax.random.split(key)
        momentum = jax.random.normal(key_momentum, state.z.shape, state.z.dtype)
        varied, move, swap = jax.random.uniform(key_uniform, (3, self.n_rungs), state.z.dtype)

        # Varied by a fifth (Neal 2011), for no direction to come back to where it was at every step.
        step = jnp.exp(state.log_step) * (0.8 + 0.4 * varied)
        before = Phase(state.z, momentum, state.potential, state.gradient)
        after = jax.vmap(self._trajectory, in_axes=(0, 0, 0, None))(before, state.ladder, step, problem)
        gain = jax.vmap(_energy)(before, state.ladder) - jax.vmap(_energy)(after, state.ladder)
        # Not finite: the step was far too long.
        acceptance = jnp.where(jnp.isfinite(gain), jnp.exp(jnp.minimum(gain, 0)), 0)
        moved = jax.vmap(lambda yes, new, old: jax.tree.map(lambda a, b: jnp.where(yes, a, b), new, old))(
            move < acceptance, after, before
        )

        exchange = exchange_probability(state.ladder, moved.potential)
        offered = jnp.arange(self.n_rungs - 1) % 2 == state.n_steps % 2
        taken = offered & (swap[1:] < exchange)
        order = jnp.arange(self.n_rungs) + jnp.append(taken, False) - jnp.append(False, taken)
        state = state._replace(
            z=moved.z[order],
            potential=moved.potential[order],
            gradient=moved.gradient[order],
            n_steps=state.n_steps + 1,
        )
        return state, acceptance, exchange

    def _trajectory(self, start: Phase, t: jax.Array, step: jax.Array, problem: Target) -> Phase:
        """Hamiltonian motion of one replica: kicks by ``t grad potential``, exact turns for N(0, I) between."""
        cos, sin = jnp.cos(step), jnp.sin(step)

        def leap(_: int, at: Phase) -> Phase:
            momentum = at.momentum - step / 2 * t * at.gradient
            z, momentum = cos * at.z + sin * momentum, cos * momentum - sin * at.z
            potential, gradient = jax.value_and_grad(problem.potential)(z)
            return Phase(z, momentum - step / 2 * t * gradient, potential, gradient)

        return jax.lax.fori_loop(0, self.n_leapfrog, leap, start)

    def _info(self, exchange: jax.Array) -> Info:
        return Info(exchange.mean(), jnp.asarray(self.n_rungs * self.n_leapfrog, jnp.int32))


def exchange_probability(ladder: jax.Array, potential: jax.Array) -> jax.Array:
    """``min(1, exp((t_{k+1} - t_k) (potential_{k+1} - potential_k)))`` for every pair of neighbors."""
    return jnp.exp(jnp.minimum(jnp.diff(ladder) * jnp.diff(potential), 0))


def _energy(at: Phase, t: jax.Array) -> jax.Array:
    """Minus the log density of a replica and its momentum."""
    return t * at.potential + at.z @ at.z / 2 + at.momentum @ at.momentum / 2


def _respace(state: TemperedState) -> TemperedState:
    """Move the rungs to where each pair of neighbors would have been rejected as often as any other.

    The rejections summed up the ladder are a length along the path (Syed et al. 2022, Algorithm 2);
    rungs are set at equal distances.
    """
    # A little is added for the length to grow even where nothing was rejected.
    length = jnp.append(0, jnp.cumsum(state.rejection + 1e-3 * (1 + state.rejection.sum())))
    ladder = jnp.interp(jnp.linspace(0, length[-1], length.size), length, state.ladder)
    ladder = ladder.at[-1].set(1)
    return state._replace(ladder=ladder, rejection=jnp.zeros_like(state.rejection))
