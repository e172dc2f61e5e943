"""A target cut by planes in; nearly independent exact draws out, one for each trajectory.

Probit and level-set look only at the side of zero on which a labeled value lies, or at which of its fields is the
largest, so their posteriors are Gaussians cut by planes through the origin, the walls. Hamiltonian motion under a
Gaussian is a rotation, ``x(t) = x cos t + p sin t``: it meets every wall at a time known in closed form, and it is
reflected or refracted there (Pakman and Paninski, 2014). There is no step size and no rejection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import erf

from graphuq._expect import expect, expect_between, expect_whole
from graphuq._pytree import pytree, static
from graphuq.inference.sampler import Info
from graphuq.inference.target import Target
from graphuq.models.base import ask, signs

_JITTER = 0.2  # times differ by this share, so that no direction comes back to where it was each time
_GROWTH = 0.25  # see `Orthant.warm_step`
_MANY, _DENSE = 100, 10  # labels, and labels for each mode: with fewer, shorter trajectories do not pay
_BATCH = 256  # columns of the Gram matrix computed together
_LARGEST_GRAM = 2**30  # bytes; beyond, its columns are computed when needed
_NEAREST = 1e-12  # a wall is never closer than this, so the sign of its value is always its side


@pytree
class Cut:
    """The planes ``(A x)_w = 0`` of a likelihood, x ~ N(0, I), their normals pointing to the side of the label.

    x = (z, eta) holds the whitened fields and, where the labels see noise, the noise; ``g_k = B z_k + noise eta_k``
    is made unit at every node. One field: a wall for each label, ``y_j g_j``. A field for each class: a wall for
    each label and class, ``g_c - g_k`` at the label's class c; that of k = c is none.
    """

    one: Any  # z -> u of one field at the labeled nodes
    scale: jax.Array  # (n_labeled,), one over the deviation of g; with the sign of the label if there is one field
    noise: jax.Array | None  # standard deviation, where there is any
    y: jax.Array  # (n_labeled,), classes
    height: jax.Array  # what a wrong side costs
    gram: jax.Array | None  # correlations of g between the labels, where they fit
    n_fields: int = static()
    leader_only: bool = static()

    @property
    def n_latent(self) -> int:
        """Length of z."""
        return self.n_fields * int(self.one.n_latent)

    @property
    def square(self) -> int:
        """The squared length of a normal: of one unit vector, or of a difference of two."""
        return 1 if self.n_fields == 1 else 2

    def __call__(self, x: jax.Array) -> jax.Array:
        """``A x``, the signed distances to the walls, shape (n_labeled * n_fields,)."""
        g = self.one(x[: self.n_latent].reshape(self.n_fields, -1))
        if self.noise is not None:
            g = g + self.noise * x[self.n_latent :].reshape(g.shape)
        g = self.scale * g  # (n_fields, n_labeled)
        if self.no_wall is None:
            return g[0]
        ahead = (jnp.take_along_axis(g, self.y[None], axis=0) - g).T.ravel()
        return jnp.where(self.no_wall, 0, ahead)  # exactly, however the difference was rounded

    def transpose(self, kappa: jax.Array) -> jax.Array:
        """``A^T kappa``."""
        n_noise = 0 if self.noise is None else self.n_fields * len(self.scale)
        x = jax.ShapeDtypeStruct((self.n_latent + n_noise,), kappa.dtype)
        (result,) = jax.linear_transpose(self, x)(kappa)
        return result

    def column(self, w: jax.Array) -> jax.Array:
        """How a push along the normal of wall w, by which its own distance grows by one, is felt at every wall."""
        if self.n_fields == 1:
            return self._correlation(w)
        n, k = w // self.n_fields, w % self.n_fields
        c, classes = self.y[n], jnp.arange(self.n_fields)
        grows = (self.y == c).astype(jnp.int8) - (self.y == k)  # of the label's own field
        falls = (classes == c).astype(jnp.int8) - (classes == k)  # of the field it is compared with
        felt = (grows[:, None] - falls[None]) * (self._correlation(n) / 2)[:, None]
        return felt.ravel()

    def rise(self, distance: jax.Array, w: jax.Array) -> jax.Array:
        """What it costs to cross wall w from where we are; negative on the way back to the right side."""
        cost = self.height * jnp.sign(distance[w])
        if self.n_fields == 1 or not self.leader_only:
            return cost
        # Only the largest field counts: while another one is ahead of the label's, nothing changes here.
        n, k = w // self.n_fields, w % self.n_fields
        ahead = distance.reshape(-1, self.n_fields)[n] < 0
        return jnp.where(jnp.sum(ahead) - ahead[k] > 0, 0, cost)

    @property
    def no_wall(self) -> jax.Array | None:
        """Where a label's field would be compared with itself."""
        if self.n_fields == 1:
            return None
        return (self.y[:, None] == jnp.arange(self.n_fields)).ravel()

    def _correlation(self, n: jax.Array) -> jax.Array:
        """Column n of the correlations of g between labels, with the signs of one field in them."""
        return _correlation(self, n) if self.gram is None else self.gram[n]


class Flight(NamedTuple):
    """A point in motion, seen from the walls."""

    u: jax.Array  # A x, (n_labeled,)
    w: jax.Array  # A v, (n_labeled,)
    kappa: jax.Array  # (n_labeled,), the pushes so far, each as it will count at the end
    cos_left: jax.Array  # the time left, as an angle
    sin_left: jax.Array
    n_bounces: jax.Array


def bounce(walls: Cut, flight: Flight) -> Flight:
    """Move to the nearest wall and through it or back from it, or to the end if that is nearer.

    ``u_j cos t + w_j sin t`` first vanishes where ``cot t = -w_j / u_j``, and cot decreases on
    (0, pi): the largest ratio is the nearest wall. There v, the rate along the normal a_j, pays the
    rise of Phi (which is negative on the way back to the right side), or turns round if it cannot:

        v' = sign(v) sqrt(v^2 - 2 |a_j|^2 rise)  or  v' = -v,    w' = w + A a_j (v' - v) / |a_j|^2.

    The push moves the end point by ``a_j (v' - v) / |a_j|^2 sin(time left)``. Once the end is reached, nothing
    moves any more.
    """
    u, w, kappa, cos_left, sin_left, n_bounces = flight
    n = len(u)
    index = jnp.arange(n, dtype=u.dtype)  # as floats: XLA has a fast maximum for these, no fast argmax
    ratio = -w / u
    if walls.no_wall is not None:
        ratio = jnp.where(walls.no_wall, -jnp.inf, ratio)
    cot = jnp.max(ratio)
    # Of walls met at once take those from the wrong side first. Two opposite labels on one plane then let
    # everything pass from either side, as they should: the motion can be reversed.
    j = jnp.max(jnp.where(ratio == cot, jnp.where(u < 0, n + index, index), 0)).astype(jnp.int32) % n

    hit = cot * sin_left > cos_left
    length = jnp.sqrt(1 + cot**2)
    sin = jnp.where(hit, 1 / length, sin_left)
    cos = jnp.where(hit, cot / length, cos_left)
    v = -u[j] * length
    left_over = v**2 - 2 * walls.square * walls.rise(u, j)
    through = hit & (left_over > 0)
    push = jnp.where(hit, jnp.where(through, jnp.sign(v) * jnp.sqrt(jnp.maximum(left_over, 0)), -v) - v, 0)

    moved = _off_the_wall(u * cos + w * sin, u > 0)
    sin_after = jnp.where(hit, jnp.maximum(sin_left * cos - cos_left * sin, 0), 0)
    return Flight(
        u=jnp.where(through & (index == j), -moved, moved),
        w=w * cos - u * sin + push * walls.column(j),
        kappa=kappa + jnp.where(index == j, push * sin_after / walls.square, 0),
        cos_left=cos_left * cos + sin_left * sin,
        sin_left=sin_after,
        n_bounces=n_bounces + hit,
    )


def fly(walls: Cut, u: jax.Array, w: jax.Array, time: jax.Array, max_bounces: int) -> Flight:
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

    x: jax.Array  # z, and where there is noise eta behind it
    log_time: jax.Array
    n_adapted: jax.Array


@dataclass(frozen=True)
class Orthant:
    """Exact Hamiltonian Monte Carlo for Gaussians cut by planes: probit and level-set (Sec. 3.1, 3.2).

    A step scales x to a fresh length, draws a momentum, and follows the motion for a time varied by a
    fifth. The walls pass through the origin, so length and direction are independent and the first is
    drawn exactly. With free motion for pi/2 a draw does not depend on the one before.

    Attributes:
        time: the length of a trajectory, in (0, 2.5]: an angle.
        adapt: whether the warm-up may shorten it. It does so only where walls are dense, as with thousands of labels on
            a few modes, where it pays. Elsewhere it would harm: a field held between two close walls gains nothing from
            a longer time, but the noise that moves these walls needs all of it.
        max_bounces: a trajectory with more is abandoned and the chain stays where it is. The reverse trajectory has as
            many bounces, so the posterior stays invariant. It only guards against endless trajectories.
    """

    time: float = math.pi / 2
    adapt: bool = True
    max_bounces: int = 1_000_000

    def __post_init__(self) -> None:
        expect_between(self.time, "time", 2.5, included=True)
        expect(self.adapt, bool, "adapt", "True or False")
        expect_whole(self.max_bounces, "max_bounces")

    def prepare(self, target: Target) -> Cut:
        """The walls of a target, with the correlations between labels where they fit."""
        model = target.model
        offered = ask(model, "walls")
        dtype = jax.tree.leaves(target.field)[0].dtype
        y, n_fields = jnp.asarray(ask(model, "y"), jnp.int32), target.field.n_fields
        return _normalized(
            Cut(
                one=target.field.one,
                scale=signs(y).astype(dtype) if n_fields == 1 else jnp.ones(y.shape, dtype),
                noise=jnp.asarray(offered.noise, dtype) if offered.noise else None,
                y=y,
                height=jnp.asarray(offered.height, dtype),
                gram=None,
                n_fields=n_fields,
                leader_only=offered.leader_only,
            )
        )

    def init(self, key: jax.Array, z: jax.Array, problem: Cut) -> OrthantState:
        """The first state, at z; the noise is drawn so that every label holds."""
        x = z
        if problem.noise is not None:
            u = problem.one(z.reshape(problem.n_fields, -1))
            if problem.n_fields == 1:
                side = jnp.sign(problem.scale)
                eta = side * _normal_above(key, -side * u[0] / problem.noise)
            else:  # all but the label's are free
                key_own, key_others = jax.random.split(key)
                eta = jax.random.normal(key_others, u.shape, z.dtype)
                own = jnp.arange(problem.n_fields)[:, None] == problem.y
                rival = jnp.max(jnp.where(own, -jnp.inf, u / problem.noise + eta), axis=0)
                least = rival - jnp.sum(jnp.where(own, u, 0), axis=0) / problem.noise
                eta = jnp.where(own, _normal_above(key_own, least), eta)
            x = jnp.concatenate([z, eta.ravel()])
        return OrthantState(x, jnp.log(jnp.asarray(self.time, z.dtype)), jnp.zeros((), z.dtype))

    def step(self, key: jax.Array, state: OrthantState, problem: Cut) -> tuple[OrthantState, Info]:
        """One trajectory."""
        state, info, _ = self._move(key, state, problem)
        return state, info

    def warm_step(self, key: jax.Array, state: OrthantState, problem: Cut) -> tuple[OrthantState, Info]:
        """One trajectory, after which its time follows its growth by Robbins-Monro.

        The growth is ``d log D / d log time``, D the squared distance from start to end across the
        direction of the start. It is 2 where the motion is straight, 1 where it is a random walk, and 0
        where a longer trajectory leads no further.
        """
        state, info, growth = self._move(key, state, problem)
        if not self.adapt or len(problem.scale) < max(_MANY, _DENSE * problem.one.n_latent):
            return state, info
        n = state.n_adapted + 1
        log_time = state.log_time + n**-0.6 * (growth - _GROWTH)
        return state._replace(log_time=jnp.minimum(log_time, math.log(self.time)), n_adapted=n), info

    def draw(self, key: jax.Array, state: OrthantState, problem: Cut) -> jax.Array:
        """The part z of the state."""
        return state.x[: problem.n_latent]

    def _move(self, key: jax.Array, state: OrthantState, problem: Cut) -> tuple[OrthantState, Info, jax.Array]:
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
def _normalized(walls: Cut) -> Cut:
    """The same walls with g of deviation one at every label, and its correlations where they fit."""
    labels = jnp.arange(len(walls.scale))

    def deviation(n: jax.Array) -> jax.Array:
        noise = 0 if walls.noise is None else walls.noise**2
        return jnp.sqrt(jnp.square(_row(walls, n)).sum() + noise)

    length = jax.lax.map(deviation, labels, batch_size=_BATCH)
    walls = replace(walls, scale=walls.scale / jnp.where(length > 0, length, 1))
    if labels.size**2 * walls.scale.itemsize > _LARGEST_GRAM:
        return walls
    return replace(walls, gram=jax.lax.map(lambda n: _correlation(walls, n), labels, batch_size=_BATCH))


def _row(walls: Cut, n: jax.Array) -> jax.Array:
    """Row n of B."""
    z = jax.ShapeDtypeStruct((walls.one.n_latent,), walls.scale.dtype)
    (row,) = jax.linear_transpose(walls.one, z)(jax.nn.one_hot(n, len(walls.scale), dtype=walls.scale.dtype))
    return row


def _correlation(walls: Cut, n: jax.Array) -> jax.Array:
    """Column n of the correlations of g between labels."""
    column = walls.one(_row(walls, n))
    if walls.noise is not None:
        column = column + walls.noise**2 * jax.nn.one_hot(n, column.size, dtype=column.dtype)
    return walls.scale * column * walls.scale[n]


def _off_the_wall(u: jax.Array, right: jax.Array) -> jax.Array:
    """u on its side of zero, where rounding may have moved it across."""
    return jnp.where(right, jnp.maximum(u, _NEAREST), jnp.minimum(u, -_NEAREST))


def _normal_above(key: jax.Array, least: jax.Array) -> jax.Array:
    """Standard normals above `least`, far out by the tail ``t exp(-t^2 / 2)`` that they approach there."""
    key_near, key_far = jax.random.split(key)
    near = jax.random.truncated_normal(key_near, jnp.minimum(least, 4), jnp.inf, least.shape, least.dtype)
    far = jnp.sqrt(least**2 + 2 * jax.random.exponential(key_far, least.shape, least.dtype))
    return jnp.where(least < 4, near, far)
