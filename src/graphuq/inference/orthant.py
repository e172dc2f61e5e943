"""A probit or level-set target in; nearly independent exact draws out, one for each trajectory.

Both models look only at the side of zero on which the labeled values lie, so their posteriors are
Gaussians cut by planes through the origin, the walls. Hamiltonian motion under a Gaussian is a
rotation, ``x(t) = x cos t + p sin t``: it meets every wall at a time known in closed form, and it is
reflected or refracted there (Pakman and Paninski, 2014). There is no step size and no rejection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import erf

from graphuq._pytree import pytree
from graphuq.inference.sampler import Info
from graphuq.inference.target import Target
from graphuq.models import LevelSet, Probit

_JITTER = 0.2  # times differ by this share, so that no direction comes back to where it was each time
_GROWTH = 0.25  # see `Orthant.warm_step`
_BATCH = 256  # columns of the Gram matrix computed together
_LARGEST_GRAM = 2**30  # bytes; beyond, its columns are computed when needed
_NEAREST = 1e-12  # a wall is never closer than this, so the sign of its value is always its side


@pytree
class Walls:
    """The planes ``(A x)_j = 0``, their unit normals the rows of A pointing to the side of the label.

    x ~ N(0, I). Level-set: x = z, and ``(A x)_j`` is ``y_j u_j`` up to its scale. Probit: x = (z, eta)
    with ``y_j (u_j + gamma eta_j)`` in its place, which must be positive.
    """

    field: Any  # z -> u at the labeled nodes
    scale: jax.Array  # (n_labeled,), y_j over the length of the normal
    gamma: jax.Array | None  # standard deviation of the probit noise; level-set has none inside x
    height: jax.Array  # what the wrong side costs: 2 / gamma^2 for level-set, infinite for probit
    gram: jax.Array | None  # A A^T, where it fits

    def __call__(self, x: jax.Array) -> jax.Array:
        """``A x``, the signed distances to the walls."""
        n_latent = self.field.n_latent
        u = self.field(x[:n_latent])
        return self.scale * (u if self.gamma is None else u + self.gamma * x[n_latent:])

    def transpose(self, kappa: jax.Array) -> jax.Array:
        """``A^T kappa``."""
        n_noise = 0 if self.gamma is None else len(self.scale)
        x = jax.ShapeDtypeStruct((self.field.n_latent + n_noise,), kappa.dtype)
        (result,) = jax.linear_transpose(self, x)(kappa)
        return result

    def normal(self, j: jax.Array) -> jax.Array:
        """Row j of A."""
        return self.transpose(jax.nn.one_hot(j, len(self.scale), dtype=self.scale.dtype))

    def column(self, j: jax.Array) -> jax.Array:
        """Column j of ``A A^T``: how a push along normal j is felt at every wall."""
        return self(self.normal(j)) if self.gram is None else self.gram[j]


class Flight(NamedTuple):
    """A point in motion, seen from the walls."""

    u: jax.Array  # A x, (n_labeled,)
    w: jax.Array  # A v, (n_labeled,)
    kappa: jax.Array  # (n_labeled,), the pushes so far, each as it will count at the end
    cos_left: jax.Array  # the time left, as an angle
    sin_left: jax.Array
    n_bounces: jax.Array


def bounce(walls: Walls, flight: Flight) -> Flight:
    """Move to the nearest wall and through it or back from it, or to the end if that is nearer.

    ``u_j cos t + w_j sin t`` first vanishes where ``cot t = -w_j / u_j``, and cot decreases on
    (0, pi): the largest ratio is the nearest wall. There v, the velocity along the normal, pays the
    rise of Phi (which is negative on the way back to the right side), or turns round if it cannot:

        v' = sign(v) sqrt(v^2 - 2 rise)  or  v' = -v,    w' = w + (A A^T)_{:,j} (v' - v).

    The push moves the end point by ``a_j (v' - v) sin(time left)``. Once the end is reached, nothing
    moves any more.
    """
    u, w, kappa, cos_left, sin_left, n_bounces = flight
    n = len(u)
    index = jnp.arange(n, dtype=u.dtype)  # as floats: XLA has a fast maximum for these, no fast argmax
    ratio = -w / u
    cot = jnp.max(ratio)
    # Of walls met at once take those from the wrong side first. Two opposite labels on one plane then let
    # everything pass from either side, as they should: the motion can be reversed.
    j = jnp.max(jnp.where(ratio == cot, jnp.where(u < 0, n + index, index), 0)).astype(jnp.int32) % n

    hit = cot * sin_left > cos_left
    length = jnp.sqrt(1 + cot**2)
    sin = jnp.where(hit, 1 / length, sin_left)
    cos = jnp.where(hit, cot / length, cos_left)
    v = -u[j] * length
    left_over = v**2 - 2 * walls.height * jnp.sign(u[j])
    through = hit & (left_over > 0)
    push = jnp.where(hit, jnp.where(through, jnp.sign(v) * jnp.sqrt(jnp.maximum(left_over, 0)), -v) - v, 0)

    moved = _off_the_wall(u * cos + w * sin, u > 0)
    sin_after = jnp.where(hit, jnp.maximum(sin_left * cos - cos_left * sin, 0), 0)
    return Flight(
        u=jnp.where(through & (index == j), -moved, moved),
        w=w * cos - u * sin + push * walls.column(j),
        kappa=kappa + jnp.where(index == j, push * sin_after, 0),
        cos_left=cos_left * cos + sin_left * sin,
        sin_left=sin_after,
        n_bounces=n_bounces + hit,
    )


def fly(walls: Walls, u: jax.Array, w: jax.Array, time: jax.Array, max_bounces: int) -> Flight:
    """The motion from values u and velocities w at the walls, for a time in (0, pi)."""
    right = (u >= 0) | jnp.isinf(walls.height)  # infinite walls are never crossed but by rounding
    zero = jnp.zeros((), jnp.int32)
    start = Flight(_off_the_wall(u, right), w, jnp.zeros_like(u), jnp.cos(time), jnp.sin(time), zero)
    return jax.lax.while_loop(
        lambda flight: (flight.sin_left > 0) & (flight.n_bounces < max_bounces),
        # Two at a time: arrays change places instead of being copied (a fifth faster on a CPU).
        lambda flight: bounce(walls, bounce(walls, flight)),
        start,
    )


class OrthantState(NamedTuple):
    """Where a chain is, and how long its trajectories are."""

    x: jax.Array  # z, and for probit eta behind it
    log_time: jax.Array
    n_adapted: jax.Array


@dataclass(frozen=True)
class Orthant:
    """Exact Hamiltonian Monte Carlo for Gaussians cut by sign changes: probit and level-set (Sec. 3.1, 3.2).

    A step scales x to a fresh length, draws a momentum, and follows the motion for a time varied by a
    fifth. The walls pass through the origin, so length and direction are independent and the first is
    drawn exactly. With free motion for pi/2 a draw does not depend on the one before.

    Attributes:
        time: the length of a trajectory, in (0, 2.5]: an angle.
        adapt: whether the warm-up may shorten it, which pays where walls are dense: thousands of labels
            on a few modes.
        max_bounces: a trajectory with more is given up and the chain stays where it is. The way back
            has as many bounces, so the posterior stays invariant; it only guards against endless ones.
    """

    time: float = math.pi / 2
    adapt: bool = True
    max_bounces: int = 1_000_000

    def __post_init__(self) -> None:
        if not 0 < self.time <= 2.5:
            raise ValueError(f"time must lie in (0, 2.5], got {self.time}; pi/2 is a good choice.")
        if self.max_bounces < 1:
            raise ValueError(f"max_bounces must be at least 1, got {self.max_bounces}.")

    def prepare(self, target: Target) -> Walls:
        """The walls of a target, with their Gram matrix where it fits."""
        model = target.phi.args[0] if target.phi.args else getattr(target.phi.func, "__self__", target.phi.func)
        if not isinstance(model, Probit | LevelSet):
            raise TypeError(
                "Orthant needs a Gaussian cut by planes, as the posteriors of Probit and LevelSet are, which look "
                f"at the signs of the labeled values alone; {type(model).__name__} is something else. Use PCN, "
                "EllipticalSlice, or NUTS where Phi has a gradient."
            )
        dtype = jax.tree.leaves(target.field)[0].dtype
        probit = isinstance(model, Probit)
        walls = Walls(
            field=target.field,
            scale=jnp.asarray(model.y, dtype),
            gamma=jnp.asarray(model.gamma, dtype) if probit else None,
            height=jnp.asarray(math.inf if probit else 2 / model.gamma**2, dtype),
            gram=None,
        )
        return _normalized(walls)

    def init(self, key: jax.Array, z: jax.Array, problem: Walls) -> OrthantState:
        """The first state, at z; the noise of probit is drawn so that every label holds."""
        x = z
        if problem.gamma is not None:
            side = jnp.sign(problem.scale)
            least = -side * problem.field(z) / problem.gamma
            x = jnp.concatenate([z, side * _normal_above(key, least)])
        return OrthantState(x, jnp.log(jnp.asarray(self.time, z.dtype)), jnp.zeros((), z.dtype))

    def step(self, key: jax.Array, state: OrthantState, problem: Walls) -> tuple[OrthantState, Info]:
        """One trajectory."""
        state, info, _ = self._move(key, state, problem)
        return state, info

    def warm_step(self, key: jax.Array, state: OrthantState, problem: Walls) -> tuple[OrthantState, Info]:
        """One trajectory, after which its time follows its growth by Robbins-Monro.

        The growth is ``d log D / d log time``, D the squared distance from start to end across the
        direction of the start. It is 2 where the motion is straight, 1 where it is a random walk, and 0
        where a longer trajectory leads no further.
        """
        state, info, growth = self._move(key, state, problem)
        if not self.adapt:
            return state, info
        n = state.n_adapted + 1
        log_time = state.log_time + n**-0.6 * (growth - _GROWTH)
        return state._replace(log_time=jnp.minimum(log_time, math.log(self.time)), n_adapted=n), info

    def draw(self, key: jax.Array, state: OrthantState, problem: Walls) -> jax.Array:
        """The part z of the state."""
        return state.x[: problem.field.n_latent]

    def _move(self, key: jax.Array, state: OrthantState, problem: Walls) -> tuple[OrthantState, Info, jax.Array]:
        """The state after one trajectory, and the growth of that trajectory."""
        n = state.x.size
        normals = jax.random.normal(key, (2 * n + 1,), state.x.dtype)  # one call: it compiles fast
        p, fresh, vary = normals[:n], normals[n:-1], erf(normals[-1] / math.sqrt(2))  # uniform in (-1, 1)
        time = (1 + _JITTER * vary) * jnp.exp(state.log_time)

        x = state.x * (jnp.linalg.norm(fresh) / jnp.maximum(jnp.linalg.norm(state.x), _NEAREST))
        u = problem(x)
        flight = fly(problem, u, problem(p), time, self.max_bounces)
        arrived = flight.sin_left <= 0
        end = x * jnp.cos(time) + p * jnp.sin(time) + problem.transpose(flight.kappa)

        across = flight.u - u * (u @ flight.u) / jnp.maximum(u @ u, _NEAREST)
        growth = 2 * time * (across @ flight.w) / jnp.maximum(across @ across, _NEAREST)
        growth = jnp.where(arrived, jnp.clip(growth, -2, 2), -2)
        info = Info(arrived.astype(x.dtype), flight.n_bounces)
        return state._replace(x=jnp.where(arrived, end, state.x)), info, growth


@jax.jit
def _normalized(walls: Walls) -> Walls:
    """The same walls with normals of length one, and their Gram matrix where it fits."""
    labels = jnp.arange(len(walls.scale))
    length = jax.lax.map(lambda j: jnp.linalg.norm(walls.normal(j)), labels, batch_size=_BATCH)
    walls = replace(walls, scale=walls.scale / jnp.where(length > 0, length, 1))
    if labels.size**2 * walls.scale.itemsize > _LARGEST_GRAM:
        return walls
    return replace(walls, gram=jax.lax.map(walls.column, labels, batch_size=_BATCH))


def _off_the_wall(u: jax.Array, right: jax.Array) -> jax.Array:
    """u on its side of zero, where rounding may have moved it across."""
    return jnp.where(right, jnp.maximum(u, _NEAREST), jnp.minimum(u, -_NEAREST))


def _normal_above(key: jax.Array, least: jax.Array) -> jax.Array:
    """Standard normals above `least`, far out by the tail ``t exp(-t^2 / 2)`` that they approach there."""
    key_near, key_far = jax.random.split(key)
    near = jax.random.truncated_normal(key_near, jnp.minimum(least, 4), jnp.inf, least.shape, least.dtype)
    far = jnp.sqrt(least**2 + 2 * jax.random.exponential(key_far, least.shape, least.dtype))
    return jnp.where(least < 4, near, far)
