"""The sampler interface: a target and a state of one chain in; the next state and its draw out."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax

from graphuq.inference.target import Target


class Info(NamedTuple):
    """Per-step statistics for the diagnostics."""

    acceptance: jax.Array  # acceptance probability of the proposal, in [0, 1]
    work: jax.Array  # cost of the step: evaluations of Phi or its gradient, or bounces
    diverging: jax.Array | bool = False  # whether a trajectory left the region where its integrator is accurate


class Sampler(Protocol):
    """A Markov kernel for a `Target`, written for one chain; `jax.vmap` runs many.

    A sampler is a frozen dataclass of settings. Its methods are pure functions; all that changes is in the state,
    including adapted quantities such as a step size, which only steps of the warm-up may change.
    """

    def prepare(self, target: Target) -> Any:
        """Do the work that is needed once per run; returns the pytree passed to the methods below as `problem`."""
        ...

    def init(self, key: jax.Array, z: jax.Array, problem: Any) -> Any:
        """The initial state, at z."""
        ...

    def step(self, key: jax.Array, state: Any, problem: Any, warm: bool | jax.Array) -> tuple[Any, Info]:
        """One step of a kernel that leaves the target invariant; in the warm-up it may also adapt the sampler.

        `warm` is traced, so that one compiled program serves both: select by `jnp.where`.
        """
        ...

    def draw(self, state: Any, problem: Any) -> jax.Array:
        """The draw z that a state represents."""
        ...
