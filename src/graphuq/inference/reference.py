"""Any sampler, run on the posterior seen from a Gaussian close to it instead of from the prior."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect, expect_number, expect_sampler, expect_whole
from graphuq._pytree import pytree, static
from graphuq.inference.ep import Gaussian
from graphuq.inference.pcn import PCN
from graphuq.inference.sampler import Info, Sampler
from graphuq.inference.target import Fields, Target, model_of
from graphuq.models.base import ask, offer, offers, signs

_LARGEST = 5000  # coordinates: beyond, factoring the reference takes minutes
_TINY = 1e-30


@pytree
class RelativeTarget:
    """The posterior relative to N(m, S): ``exp(-potential(zeta)) N(d zeta; 0, I)``, z = m + L zeta.

        potential(zeta) = Phi(B m + B L zeta) + (|m + L zeta|^2 - |m|^2 - |zeta|^2) / 2.

    L = U diag(scale) with U orthogonal, so that the Gaussian terms cost O(n_latent).
    """

    offset: jax.Array  # B m
    matrix: jax.Array  # B L
    phi: Any  # Partial: u -> Phi(u; y)
    slope: jax.Array  # L^T m
    scale: jax.Array
    n_fields: int = static(default=1)

    @property
    def n_latent(self) -> int:
        """Length of zeta."""
        return self.matrix.shape[1]

    def field(self, zeta: jax.Array) -> jax.Array:
        """u at the nodes the model sees."""
        u = self.offset + self.matrix @ zeta
        return u if self.n_fields == 1 else u.reshape(self.n_fields, -1).T

    def prior_energy(self, zeta: jax.Array) -> jax.Array:
        """``(|z|^2 - |m|^2) / 2``."""
        return self.slope @ zeta + jnp.square(self.scale * zeta).sum() / 2

    def potential(self, zeta: jax.Array) -> jax.Array:
        """The formula above, a number."""
        return self.phi(self.field(zeta)) + self.prior_energy(zeta) - zeta @ zeta / 2


@pytree
class ReferencedProblem:
    """What the inner sampler works on, and the way back to z."""

    inner: Any
    mean: jax.Array  # m
    rotation: jax.Array  # U
    scale: jax.Array


@dataclass(frozen=True)
class Referenced:
    """Run `inner` with a Gaussian N(m, S) close to the posterior in the place of the prior.

    In the coordinates zeta of ``z = m + L zeta``, ``L L^T = S``, the posterior is close to N(0, I),
    which is what pCN proposes from: with many labels it accepts nearly every step at beta = 1.
    The draws are exact whatever the Gaussian is; a poor one only makes them slow.

    Attributes:
        inner: any sampler that asks its target for `potential` and `n_latent` alone, or `Refractive`.
        reference: N(m, S) on z; by default the one that the model offers, or that of expectation propagation. For
            a model of your own give one, a Laplace approximation say.
        inflation: stretches the reference's standard deviations; 1 leaves them as they are.
    """

    inner: Sampler | Refractive = field(default_factory=PCN)
    reference: Gaussian | None = None
    inflation: float = 1.0

    def __post_init__(self) -> None:
        expect_sampler(self.inner, "inner")
        expect(self.reference, (Gaussian, type(None)), "reference", "a Gaussian of a mean and a factor, or None")
        expect_number(self.inflation, "inflation")

    def prepare(self, target: Target) -> ReferencedProblem:
        """Fit the reference and rewrite the target relative to it."""
        n_latent = target.n_latent
        if n_latent > _LARGEST:
            raise ValueError(
                f"Referenced factors a matrix over all {n_latent} coordinates; at most {_LARGEST} are allowed. "
                "Use Orthant or PCN, or a prior without a tail."
            )
        dtype = jax.tree.leaves(target.field)[0].dtype
        several = isinstance(target.field, Fields)
        one = target.field.one if several else target.field
        n_fields = target.field.n_fields if several else 1
        dense = np.asarray(one(jnp.eye(one.n_latent, dtype=dtype)).T, float)
        reference = _close_gaussian(target.model, dense) if self.reference is None else self.reference
        dense = np.kron(np.eye(n_fields), dense)  # z holds one field after another
        if reference.mean.shape != (n_latent,) or reference.factor.shape != (n_latent, n_latent):
            raise ValueError(
                f"The reference has shapes {reference.mean.shape} and {reference.factor.shape}; z has {n_latent} "
                f"coordinates, so they must be ({n_latent},) and ({n_latent}, {n_latent})."
            )
        rotation, scale, _ = np.linalg.svd(reference.factor)
        if not scale[-1] > 0:
            raise ValueError("The reference is singular: its factor must have full rank.")
        scale = scale * self.inflation
        factor = rotation * scale

        def cast(x: NDArray[Any]) -> jax.Array:
            return jnp.asarray(x, dtype)

        relative = RelativeTarget(
            offset=cast(dense @ reference.mean),
            matrix=cast(dense @ factor),
            phi=target.phi,
            slope=cast(factor.T @ reference.mean),
            scale=cast(scale),
            n_fields=n_fields,
        )
        inner: Any = self.inner
        return ReferencedProblem(inner.prepare(relative), cast(reference.mean), cast(rotation), cast(scale))

    def init(self, key: jax.Array, z: jax.Array, problem: ReferencedProblem) -> Any:
        """The first state, at z or as far towards it as the reference reaches.

        Far outside, the posterior outweighs the reference so much that no step back is accepted.
        """
        zeta = problem.rotation.T @ (z - problem.mean) / problem.scale
        reach = jnp.sqrt(zeta.size / jnp.maximum(zeta @ zeta, zeta.size))
        return self.inner.init(key, reach * zeta, problem.inner)

    def warm_step(self, key: jax.Array, state: Any, problem: ReferencedProblem) -> tuple[Any, Info]:
        """One step of the inner sampler's warm-up."""
        return self.inner.warm_step(key, state, problem.inner)

    def step(self, key: jax.Array, state: Any, problem: ReferencedProblem) -> tuple[Any, Info]:
        """One step of the inner sampler."""
        return self.inner.step(key, state, problem.inner)

    def draw(self, key: jax.Array, state: Any, problem: ReferencedProblem) -> jax.Array:
        """``z = m + L zeta``."""
        zeta = self.inner.draw(key, state, problem.inner)
        return problem.mean + problem.rotation @ (problem.scale * zeta)


def _close_gaussian(model: Any, matrix: NDArray[np.float64]) -> Gaussian:
    """A Gaussian close to the posterior of z, u = B z; however close it is, the draws will be exact."""
    if not offers(model, "reference") and offers(model, "sites"):
        found: Gaussian = ask(model, "sites").fit(matrix).gaussian()
        return found
    given: Gaussian = ask(model, "reference", matrix)
    return given


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
    """Hamiltonian motion that is reflected or refracted where labels change side, inside `Referenced`.

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
        walls = ask(model, "walls")
        if not isinstance(target, RelativeTarget) or walls.noise or offer(model, "n_fields") > 1:
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
        self, key: jax.Array, state: RefractiveState, problem: RefractiveProblem
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

    def warm_step(
        self, key: jax.Array, state: RefractiveState, problem: RefractiveProblem
    ) -> tuple[RefractiveState, Info]:
        """Nothing adapts."""
        return self.step(key, state, problem)

    def draw(self, key: jax.Array, state: RefractiveState, problem: RefractiveProblem) -> jax.Array:
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
