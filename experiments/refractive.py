"""A level-set target of many labels on few modes in; draws by flights that bounce at the labels' planes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from graphuq._expect import expect_number, expect_whole
from graphuq._pytree import pytree
from graphuq.inference.reference import RelativeTarget
from graphuq.inference.sampler import Info
from graphuq.inference.target import model_of
from graphuq.models.base import signs

_TINY = 1e-30


class RefractiveState(NamedTuple):
    """Where a chain is, and Phi there."""

    zeta: jax.Array
    phi: jax.Array


@pytree
class RefractiveProblem:
    """A level-set target and the walls that a trajectory is likely to meet."""

    target: RelativeTarget
    axis: jax.Array  # unit vector along L^T m: what moves z along m
    walls: jax.Array  # (n_walls,), which labels
    normals: jax.Array  # (n_walls, n_latent), unit, across `axis`
    gram: jax.Array  # normals normals^T
    length: jax.Array  # (n_walls,), of the normals before they were made unit
    y: jax.Array  # (n_walls,)
    height: jax.Array  # 2 / gamma^2


class _Flight(NamedTuple):
    """A point in motion, and as the walls see it."""

    zeta: jax.Array
    p: jax.Array
    u: jax.Array  # distances to the walls
    w: jax.Array  # their rates of change
    side: jax.Array  # +1 or -1; kept apart from u, whose sign at a wall is rounding
    time_left: jax.Array
    n_bounces: jax.Array


@dataclass(frozen=True)
class Refractive:
    """Hamiltonian motion that is reflected or refracted where labels change side, inside `graphuq.Referenced`.

    For `LevelSet` of two classes with many labels on few modes. Phi jumps by ``2 / gamma^2`` at every plane u_j = 0;
    the planes lie so densely that random steps cross several, and are refused. Here a straight flight
    meets them one by one: with velocity v along the normal of the wall and a jump s,

        v' = sign(v) sqrt(v^2 - 2 s) if positive, else -v.

    In the reference's coordinates the posterior is as wide in every direction, so a flight leads
    through all of it, and most walls are out of reach. Those enter only by the test at the end, as do
    the errors of the kicks by which the prior bends the flight (Mohasel Afshar and Domke, 2015).

    All planes pass through the origin: the length of z is independent of its direction and drawn
    afresh, and the flight keeps <z, m> as it is. A step also offers -z, where every label changes.

    Attributes:
        time: the length of a flight in the reference's units; it varies by 30%.
        n_kicks: how often the prior acts during a flight.
        reach: walls within so many standard deviations of the reference's mean are met in flight.
        max_walls: at most so many are, the nearest; their Gram matrix is held in memory.
        max_bounces: a flight with more is given up. The way back has as many, so this is exact.
    """

    time: float = 3.0
    n_kicks: int = 2
    reach: float = 3.5
    max_walls: int = 4096
    max_bounces: int = 100_000

    def __post_init__(self) -> None:
        for name in ("time", "reach"):
            expect_number(getattr(self, name), name)
        for name in ("n_kicks", "max_walls", "max_bounces"):
            expect_whole(getattr(self, name), name)

    def prepare(self, target: RelativeTarget) -> RefractiveProblem:
        """The nearest walls of a level-set target."""
        model = model_of(target.phi)
        walls = model.walls()
        if not isinstance(target, RelativeTarget) or walls.noise or model.n_fields > 1:
            raise TypeError(
                "Refractive works inside Referenced and on LevelSet of one field alone, whose Phi jumps at planes: "
                "Referenced(Refractive()). For Probit use Referenced(), for other models NUTS."
            )
        slope = np.asarray(target.slope, float)
        axis = slope / max(float(np.linalg.norm(slope)), _TINY)
        rows = np.asarray(target.matrix, float)
        rows = rows - np.outer(rows @ axis, axis)
        length = np.linalg.norm(rows, axis=1)
        length = np.where(length > 1e-6 * length.max(), length, np.inf)  # along the axis: never met
        distance = np.abs(np.asarray(target.offset, float)) / length
        distance = np.where(np.isfinite(length), distance, np.inf)
        n_walls = min(self.max_walls, max(1, int(np.count_nonzero(distance < self.reach))))
        near = np.argsort(distance, kind="stable")[:n_walls]
        normals = rows[near] / length[near, None]

        def cast(x: Any) -> jax.Array:
            return jnp.asarray(x, target.matrix.dtype)

        return RefractiveProblem(
            target=target,
            axis=cast(axis),
            walls=jnp.asarray(near),
            normals=cast(normals),
            gram=cast(normals @ normals.T),
            length=cast(length[near]),
            y=cast(signs(np.asarray(model.y, float))[near]),
            height=cast(walls.height),
        )

    def init(self, key: jax.Array, z: jax.Array, problem: RefractiveProblem) -> RefractiveState:
        """The first state, at zeta = z."""
        return RefractiveState(z, problem.target.phi(problem.target.field(z)))

    def step(
        self, key: jax.Array, state: RefractiveState, problem: RefractiveProblem, warm: bool | jax.Array
    ) -> tuple[RefractiveState, Info]:
        """A fresh length, perhaps the opposite direction, and one flight."""
        target = problem.target
        key_length, key_p, key_time, key_flip, key_accept = jax.random.split(key, 5)
        dtype, n = state.zeta.dtype, state.zeta.size

        # c z = m + L (c zeta + (c - 1) L^-1 m), and Phi does not change with c > 0.
        center = target.slope / target.scale**2  # L^-1 m
        square = jnp.square(target.scale * (state.zeta + center)).sum()  # |z|^2
        fresh = jnp.linalg.norm(jax.random.normal(key_length, (n,), dtype))
        opposite = problem.height * target.offset.size - state.phi  # Phi(-u)
        flip = jax.random.uniform(key_flip, (), dtype) < jnp.exp(jnp.minimum(state.phi - opposite, 0))
        c = jnp.where(flip, -1, 1) * fresh / jnp.sqrt(jnp.maximum(square, _TINY))
        zeta = c * (state.zeta + center) - center
        phi = jnp.where(flip, opposite, state.phi)

        p = self._across(jax.random.normal(key_p, (n,), dtype), problem)
        time = self.time * jax.random.uniform(key_time, (), dtype, 0.7, 1.3)
        end, p_end, n_bounces = self._fly(zeta, p, time, problem)
        phi_end = target.phi(target.field(end))
        gain = phi + target.prior_energy(zeta) + p @ p / 2
        gain = gain - phi_end - target.prior_energy(end) - p_end @ p_end / 2
        acceptance = jnp.where(n_bounces < self.max_bounces, jnp.exp(jnp.minimum(gain, 0)), 0)
        accept = jax.random.uniform(key_accept, (), dtype) < acceptance
        state = RefractiveState(jnp.where(accept, end, zeta), jnp.where(accept, phi_end, phi))
        return state, Info(acceptance, n_bounces)

    def draw(self, state: RefractiveState, problem: RefractiveProblem) -> jax.Array:
        """The state itself."""
        return state.zeta

    def _across(self, x: jax.Array, problem: RefractiveProblem) -> jax.Array:
        """The part of x that leaves <z, m> as it is."""
        return x - problem.axis * (problem.axis @ x)

    def _fly(
        self, zeta: jax.Array, p: jax.Array, time: jax.Array, problem: RefractiveProblem
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Half a kick, flight, half a kick, `n_kicks` times; the end point, its momentum, the bounces."""
        target, pause = problem.target, time / self.n_kicks
        seen = target.field(zeta)[problem.walls]
        base = seen / problem.length - problem.normals @ zeta
        side = jnp.where(seen >= 0, 1, -1).astype(zeta.dtype)

        def kick(zeta: jax.Array) -> jax.Array:
            return -pause / 2 * self._across(target.scale**2 * zeta, problem)

        def lap(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
            zeta, p, side, n_bounces = carry
            p = p + kick(zeta)
            flight = _Flight(zeta, p, base + problem.normals @ zeta, problem.normals @ p, side, pause, n_bounces)
            flight = jax.lax.while_loop(
                lambda flight: (flight.time_left > 0) & (flight.n_bounces < self.max_bounces),
                lambda flight: _bounce(flight, problem),
                flight,
            )
            return (flight.zeta, flight.p + kick(flight.zeta), flight.side, flight.n_bounces), None

        start = (zeta, p, side, jnp.zeros((), jnp.int32))
        (zeta, p, _, n_bounces), _ = jax.lax.scan(lap, start, None, length=self.n_kicks)
        return zeta, p, n_bounces


def _bounce(flight: _Flight, problem: RefractiveProblem) -> _Flight:
    """Fly to the next wall and through it or back from it, or to the end if that comes first."""
    zeta, p, u, w, side, time_left, n_bounces = flight
    n = u.size
    index = jnp.arange(n, dtype=u.dtype)  # as floats: XLA has a fast maximum for these, no fast argmin
    time = jnp.where(side * w < 0, jnp.maximum(-u / w, 0), jnp.inf)
    nearest = jnp.min(time)
    wrong = side * problem.y < 0
    # Of walls met at once, first those from the wrong side: two opposite labels on one plane then let
    # everything pass from either side, and the motion can be reversed.
    j = jnp.max(jnp.where(time == nearest, jnp.where(wrong, n + index, index), 0)).astype(jnp.int32) % n
    hit = nearest < time_left
    dt = jnp.minimum(nearest, time_left)
    v = w[j]
    left_over = v**2 - 2 * problem.height * problem.y[j] * side[j]
    through = hit & (left_over > 0)
    push = jnp.where(through, jnp.sign(v) * jnp.sqrt(jnp.maximum(left_over, 0)), -v) - v
    push = jnp.where(hit, push, 0)
    return _Flight(
        zeta=zeta + dt * p,
        p=p + push * problem.normals[j],
        u=u + dt * w,
        w=w + push * problem.gram[j],
        side=jnp.where(through & (index == j), -side, side),
        time_left=jnp.where(hit, time_left - dt, 0),
        n_bounces=n_bounces + hit,
    )
