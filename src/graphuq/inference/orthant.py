"""A Gaussian cut by planes in; nearly independent draws from it out, one for each exact Hamiltonian trajectory.

The likelihoods of probit and level-set depend only on the sign of u (plus noise), or on which field is the
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

from graphuq._expect import expect_between, expect_whole, put
from graphuq._pytree import pytree, static
from graphuq.inference.sampler import Info
from graphuq.inference.target import Target
from graphuq.models.base import labels_of, signs

_JITTER = 0.2  # relative jitter of the trajectory time, so that no direction returns to its start every time
_GROWTH = 0.25  # target of the adaptation, see `Orthant.step`
_MANY, _DENSE = 100, 10  # labels, and labels per mode; with fewer, shortening trajectories does not pay
_BATCH = 256  # columns of the Gram matrix computed together
_LARGEST_GRAM = 2**30  # bytes; columns of a larger one are computed when needed
_NEAREST = 1e-12  # least distance to a wall, so that the sign of a distance always tells the side


def is_dense(n_labeled: int, n_latent: int) -> bool:
    """Whether there are so many labels for the coordinates of z that the next wall is always near."""
    return n_labeled >= max(_MANY, _DENSE * n_latent)


@pytree
class Cut:
    """The walls of a likelihood, planes ``(A x)_w = 0``, x ~ N(0, I), with normals pointing to the label's side.

    x = (z, eta) consists of the whitened fields and, if the likelihood has noise, the noise. The noisy fields
    ``g_k = B z_k + noise eta_k`` are scaled to unit variance at every node. With one field there is a wall for
    each label, ``y_j g_j``; with one field per class there is a wall for each label and class k, ``g_c - g_k``
    where c is the label's class, except for k = c.
    """

    one: Any  # z -> u of one field at the labeled nodes, times the factors of the labels
    scale: jax.Array  # (n_labeled,), one over the deviation of g; with the sign of the label if there is one field
    noise: jax.Array | None  # standard deviation of the noise, or None
    y: jax.Array  # (n_labeled,), classes
    height: jax.Array  # increase of Phi on the wrong side
    gram: jax.Array | None  # correlations of g between the labels, or None if too large
    n_fields: int = static()
    leader_only: bool = static()

    @property
    def n_latent(self) -> int:
        """Length of z."""
        return self.n_fields * int(self.one.n_latent)

    @property
    def square(self) -> int:
        """The squared length of a normal: that of a unit vector, or of a difference of two."""
        return 1 if self.n_fields == 1 else 2

    def __call__(self, x: jax.Array) -> jax.Array:
        """``A x``, the signed distances to the walls, shape (n_labeled * n_fields,)."""
        g = self.one(x[: self.n_latent].reshape(self.n_fields, -1))
        if self.noise is not None:
            g = g + self.noise * x[self.n_latent :].reshape(g.shape)
        g = self.scale * g  # (n_fields, n_labeled)
        if self.no_wall is None:
            return g[0]
        lead = (jnp.take_along_axis(g, self.y[None], axis=0) - g).T.ravel()
        return jnp.where(self.no_wall, 0, lead)  # exactly 0 despite rounding

    def transpose(self, kappa: jax.Array) -> jax.Array:
        """``A^T kappa``."""
        n_noise = 0 if self.noise is None else self.n_fields * len(self.scale)
        x = jax.ShapeDtypeStruct((self.n_latent + n_noise,), kappa.dtype)
        (result,) = jax.linear_transpose(self, x)(kappa)
        return result

    def column(self, w: jax.Array) -> jax.Array:
        """Changes of all distances when a move along the normal of wall w increases its own distance by one."""
        if self.n_fields == 1:
            return self._correlation(w)
        n, k = w // self.n_fields, w % self.n_fields
        c, classes = self.y[n], jnp.arange(self.n_fields)
        of_own = (self.y == c).astype(jnp.int8) - (self.y == k)  # change of each label's own field
        of_other = (classes == c).astype(jnp.int8) - (classes == k)  # and of the field it is compared with
        change = (of_own[:, None] - of_other[None]) * (self._correlation(n) / 2)[:, None]
        return change.ravel()

    def rise(self, distance: jax.Array, w: jax.Array) -> jax.Array:
        """Increase of Phi when wall w is crossed from the current side; negative towards the right side."""
        cost = self.height * jnp.sign(distance[w])
        if self.n_fields == 1 or not self.leader_only:
            return cost
        # Only the largest field counts: while a third field exceeds the label's, crossing changes nothing.
        n, k = w // self.n_fields, w % self.n_fields
        ahead = distance.reshape(-1, self.n_fields)[n] < 0
        return jnp.where(jnp.sum(ahead) - ahead[k] > 0, 0, cost)

    @property
    def no_wall(self) -> jax.Array | None:
        """Mask of the entries that compare a label's field with itself, or None."""
        if self.n_fields == 1:
            return None
        return (self.y[:, None] == jnp.arange(self.n_fields)).ravel()

    def _correlation(self, n: jax.Array) -> jax.Array:
        """Column n of the correlations of g between labels, with the signs of the labels if there is one field."""
        return _correlation(self, n) if self.gram is None else self.gram[n]


class Flight(NamedTuple):
    """A point in motion, in terms of its distances to the walls."""

    u: jax.Array  # A x, (n_walls,)
    w: jax.Array  # A v, (n_walls,)
    kappa: jax.Array  # (n_walls,), accumulated displacement of the end point along each normal
    cos_left: jax.Array  # cosine and sine of the time left
    sin_left: jax.Array
    n_bounces: jax.Array


def bounce(walls: Cut, flight: Flight) -> Flight:
    """Move to the first wall met and refract or reflect there, or to the end of the trajectory if it comes first.

    ``u_j cos t + w_j sin t`` first vanishes where ``cot t = -w_j / u_j``, and cot decreases on (0, pi): the
    largest ratio is the first wall met. There v, the velocity along the normal a_j, loses the kinetic energy by
    which Phi rises (and gains it on the way back to the right side), or is reversed if it has too little:

        v' = sign(v) sqrt(v^2 - 2 |a_j|^2 rise)  or  v' = -v,    w' = w + A a_j (v' - v) / |a_j|^2.

    The change of velocity moves the end point by ``a_j (v' - v) / |a_j|^2 sin(time left)``. At the end of the
    trajectory this is the identity.
    """
    u, w, kappa, cos_left, sin_left, n_bounces = flight
    n = len(u)
    index = jnp.arange(n, dtype=u.dtype)  # floats: XLA has a fast maximum for these, but no fast argmax
    ratio = -w / u
    if walls.no_wall is not None:
        ratio = jnp.where(walls.no_wall, -jnp.inf, ratio)
    cot = jnp.max(ratio)
    # Of walls met simultaneously take those crossed from the wrong side first. Two opposite labels on one plane
    # are then passed from either side, which keeps the motion reversible.
    j = jnp.max(jnp.where(ratio == cot, jnp.where(u < 0, n + index, index), 0)).astype(jnp.int32) % n

    hit = cot * sin_left > cos_left
    length = jnp.sqrt(1 + cot**2)
    sin = jnp.where(hit, 1 / length, sin_left)
    cos = jnp.where(hit, cot / length, cos_left)
    v = -u[j] * length
    v_squared = v**2 - 2 * walls.square * walls.rise(u, j)  # behind the wall
    through = hit & (v_squared > 0)
    push = jnp.where(hit, jnp.where(through, jnp.sign(v) * jnp.sqrt(jnp.maximum(v_squared, 0)), -v) - v, 0)

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
    """Follow the motion from distances u and velocities w, for a time in (0, pi)."""
    right = (u >= 0) | jnp.isinf(walls.height)  # only rounding puts a point behind an infinite wall
    zero = jnp.zeros((), jnp.int32)
    start = Flight(_off_the_wall(u, right), w, jnp.zeros_like(u), jnp.cos(time), jnp.sin(time), zero)
    return jax.lax.while_loop(
        lambda flight: (flight.sin_left > 0) & (flight.n_bounces < max_bounces),
        # Two bounces per iteration: buffers are swapped instead of copied (a fifth faster on a CPU).
        lambda flight: bounce(walls, bounce(walls, flight)),
        start,
    )


class OrthantState(NamedTuple):
    """Position of a chain and the adapted length of its trajectories."""

    x: jax.Array  # z, followed by eta if there is noise
    log_time: jax.Array
    n_adapted: jax.Array


@dataclass(frozen=True)
class Orthant:
    """Exact Hamiltonian Monte Carlo for Gaussians cut by planes: probit and level-set (Sec. 3.1, 3.2).

    A step scales x to a newly drawn length, draws a momentum, and follows the motion for a time jittered by a
    fifth. Since the walls pass through the origin, length and direction of x are independent and the length can be
    drawn exactly. Free motion for pi/2 makes independent draws.

    Attributes:
        time: integration time of a trajectory, an angle in (0, 2.5]. The warm-up shortens it for dense walls, such as
            thousands of labels on a few modes, where this pays. Elsewhere it would harm: a field confined between two
            close walls gains nothing from a longer time, but the noise that moves these walls needs all of it.
        max_bounces: a trajectory with more bounces is rejected. The reverse trajectory has as many, so the
            posterior stays invariant. It only guards against endless trajectories.
    """

    time: float = math.pi / 2
    max_bounces: int = 1_000_000

    def __post_init__(self) -> None:
        put(
            self,
            time=expect_between(self.time, "time", 2.5, included=True),
            max_bounces=expect_whole(self.max_bounces, "max_bounces"),
        )

    def prepare(self, target: Target) -> Cut:
        """The walls of the model, with the correlations between labels if these fit in memory."""
        model = target.model
        walls = model.walls()
        dtype = jax.tree.leaves(target.field)[0].dtype
        y, n_fields, one = jnp.asarray(labels_of(model), jnp.int32), target.field.n_fields, target.field.one
        return _normalized(
            Cut(
                one=one if walls.scale is None else one.scaled(jnp.asarray(walls.scale, dtype)),
                scale=signs(y).astype(dtype) if n_fields == 1 else jnp.ones(y.shape, dtype),
                noise=jnp.asarray(walls.noise, dtype) if walls.noise else None,
                y=y,
                height=jnp.asarray(walls.height, dtype),
                gram=None,
                n_fields=n_fields,
                leader_only=walls.leader_only,
            )
        )

    def init(self, key: jax.Array, z: jax.Array, problem: Cut) -> OrthantState:
        """The initial state, at z, with noise that puts every label on its right side."""
        x = z
        if problem.noise is not None:
            u = problem.one(z.reshape(problem.n_fields, -1)) / problem.noise
            if problem.n_fields == 1:
                side = jnp.sign(problem.scale)
                eta = side * _above(-side * u)
            else:
                own = jnp.arange(problem.n_fields)[:, None] == problem.y
                rival = jnp.max(jnp.where(own, -jnp.inf, u), axis=0)
                eta = jnp.where(own, _above(rival - jnp.sum(jnp.where(own, u, 0), axis=0)), 0)
            x = jnp.concatenate([z, eta.ravel()])
        return OrthantState(x, jnp.log(jnp.asarray(self.time, z.dtype)), jnp.zeros((), z.dtype))

    def step(
        self, key: jax.Array, state: OrthantState, problem: Cut, warm: bool | jax.Array
    ) -> tuple[OrthantState, Info]:
        """One trajectory, followed in the warm-up by a Robbins-Monro update of its time towards a growth of `_GROWTH`.

        The growth is ``d log D / d log time``, where D is the squared distance from start to end orthogonal to the
        start. It is 2 for straight motion, 1 for a random walk, and 0 where a longer trajectory leads no further.
        """
        state, info, growth = self._move(key, state, problem)
        if not is_dense(len(problem.scale), problem.one.n_latent):
            return state, info
        n = state.n_adapted + warm
        log_time = jnp.minimum(state.log_time + n**-0.6 * (growth - _GROWTH), math.log(self.time))
        return state._replace(log_time=jnp.where(warm, log_time, state.log_time), n_adapted=n), info

    def draw(self, state: OrthantState, problem: Cut) -> jax.Array:
        """z, without the noise."""
        return state.x[: problem.n_latent]

    def _move(self, key: jax.Array, state: OrthantState, problem: Cut) -> tuple[OrthantState, Info, jax.Array]:
        """The state after one trajectory, its `Info` and its growth."""
        n = state.x.size
        normals = jax.random.normal(key, (2 * n + 1,), state.x.dtype)  # one call compiles fast
        p, length, uniform = normals[:n], jnp.linalg.norm(normals[n:-1]), erf(normals[-1] / math.sqrt(2))
        time = (1 + _JITTER * uniform) * jnp.exp(state.log_time)  # uniform in (-1, 1)

        x = state.x * (length / jnp.maximum(jnp.linalg.norm(state.x), _NEAREST))
        u = problem(x)
        flight = fly(problem, u, problem(p), time, self.max_bounces)
        arrived = flight.sin_left <= 0
        end = x * jnp.cos(time) + p * jnp.sin(time) + problem.transpose(flight.kappa)

        orthogonal = flight.u - u * (u @ flight.u) / jnp.maximum(u @ u, _NEAREST)
        growth = 2 * time * (orthogonal @ flight.w) / jnp.maximum(orthogonal @ orthogonal, _NEAREST)
        growth = jnp.where(arrived, jnp.clip(growth, -2, 2), -2)
        info = Info(arrived.astype(x.dtype), flight.n_bounces)
        return state._replace(x=jnp.where(arrived, end, state.x)), info, growth


@jax.jit
def _normalized(walls: Cut) -> Cut:
    """The same walls with g scaled to unit variance at every label, and its correlations if they fit in memory."""
    labels = jnp.arange(len(walls.scale))

    def deviation(n: jax.Array) -> jax.Array:
        noise = 0 if walls.noise is None else walls.noise**2
        return jnp.sqrt(jnp.square(_row(walls, n)).sum() + noise)

    deviations = jax.lax.map(deviation, labels, batch_size=_BATCH)
    walls = replace(walls, scale=walls.scale / jnp.where(deviations > 0, deviations, 1))
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
    """Move u back to its side of zero if rounding has moved it across."""
    return jnp.where(right, jnp.maximum(u, _NEAREST), jnp.minimum(u, -_NEAREST))


def _above(least: jax.Array) -> jax.Array:
    """About the mean of a standard normal above `least`, and at least 0 (Birnbaum 1942)."""
    return (least + jnp.hypot(least, 2)) / 2
