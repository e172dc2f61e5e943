"""What a sampler is: settings, and pure functions from one state of one chain to the next."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax

from graphuq.inference.target import Target


class Info(NamedTuple):
    """What diagnostics need to know about one step."""

    acceptance: jax.Array  # probability with which the proposal was accepted, in [0, 1]
    work: jax.Array  # evaluations of Phi or its gradient, or bounces: what the step cost


class Sampler(Protocol):
    """A Markov kernel for a `Target`, for one chain; chains are added by `jax.vmap`.

    A sampler is a frozen dataclass of settings. Its functions are pure: State holds what the next step needs. Adapted
    quantities, such as a step size, are part of the state; only `warm_step` changes them, `step` never does.
    """

    def prepare(self, target: Target) -> Any:
        """Work done once, outside the chain: the pytree that the functions below are given."""
        ...

    def init(self, key: jax.Array, z: jax.Array, problem: Any) -> Any:
        """The first state, at z."""
        ...

    def warm_step(self, key: jax.Array, state: Any, problem: Any) -> tuple[Any, Info]:
        """One step of the warm-up, which may adapt."""
        ...

    def step(self, key: jax.Array, state: Any, problem: Any) -> tuple[Any, Info]:
        """One step, which leaves the target invariant."""
        ...

    def draw(self, key: jax.Array, state: Any, problem: Any) -> jax.Array:
        """The draw z that a state represents."""
        ...
