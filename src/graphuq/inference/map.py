"""A prior and a model in; the MAP estimate of u, the minimizer of J(u) = <u, P u>/2 + Phi(u; y) (Sec. 4.4), out.

There are two methods: gradient flow, Algorithm 4, for any model with a gradient; and Newton for models that
declare their Phi convex, such as probit, where the minimizer of J is unique.

Both stop by the relative whitened gradient ``|C^(1/2) grad J| / |C^(-1/2) u|``. It is dimensionless and, for
convex Phi, bounds the relative distance to the mode in that norm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import expect_number, expect_numbers, expect_one_of, expect_whole
from graphuq._pytree import traced
from graphuq._warn import warn
from graphuq.inference.newton import ROUNDING, newton
from graphuq.inference.whiten import check_problem
from graphuq.models.base import Model
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mode:
    """A minimizer of J and how accurate it is.

    Attributes:
        u: the mode at all nodes, shape (n_nodes,), or (n_nodes, n_fields) with several fields.
        energy: ``J(u)``.
        gradient_norm: ``|C^(1/2) grad J(u)| / |C^(-1/2) u|``, zero at a stationary point.
        n_steps: steps taken, including rejected ones.
        converged: whether `gradient_norm` met the tolerance.
        message: the outcome in one sentence.
    """

    u: Array = field(repr=False)
    energy: float
    gradient_norm: float
    n_steps: int
    converged: bool
    message: str


def find_mode(
    prior: GaussianPrior,
    model: Model,
    *,
    method: str = "auto",
    start: ArrayLike | None = None,
    beta: float | None = None,
    n_steps: int = 5000,
    tolerance: float = 1e-6,
) -> Mode:
    """Find a minimizer of ``J(u) = <u, P u>/2 + Phi(u; y)``, unique if J is convex.

    Args:
        prior: the Gaussian N(0, C); P is the inverse of C on its support.
        model: `Probit`, `GinzburgLandau`, or a custom model with a smooth `phi`.
        method: "gradient_flow", "newton" (convex Phi only), or "auto": Newton if possible, otherwise the flow.
        start: u at all nodes, where the flow starts, such as a draw from the prior; by default zero. Newton starts at
            zero.
        beta: a fixed step size of the flow, as in the paper. By default the first step size is one over a bound
            on the curvature of Phi, which does not depend on the graph, and later ones are those of
            Barzilai and Borwein. Either is halved where J would rise.
        n_steps: the largest number of steps.
        tolerance: stop when the relative whitened gradient is at most this.
    """
    check_problem(prior, model)
    shape = model.curvature()
    if not np.isfinite(shape.bound):
        raise TypeError(
            f"{type(model).__name__} has no mode: J falls as u shrinks towards 0 with its signs kept, and the "
            "infimum is not attained (Sec. 3.2). Sample its posterior, or use Probit."
        )
    expect_one_of(method, ("auto", "newton", "gradient_flow"), "method")
    if beta is not None:
        expect_number(beta, "beta")
    expect_whole(n_steps, "n_steps")
    expect_number(tolerance, "tolerance", zero=True)
    default = beta is None and start is None
    by_newton = shape.convex and not model.sees_all_nodes
    if method == "newton" and not by_newton:
        raise TypeError(
            "newton is for a model of labeled nodes that says its Phi is convex, as Probit does: use gradient_flow."
        )
    if method == "newton" and not default:
        raise ValueError("start and beta are settings of gradient_flow: newton has neither.")
    if method == "auto":
        method = "newton" if by_newton and default else "gradient_flow"
    if method == "newton":
        result = newton(prior, model, n_steps, tolerance)
    else:
        result = _gradient_flow(prior, model, _start(prior, model, start), beta, n_steps, tolerance)
    mode = _mode(*result, tolerance, method)
    if not mode.converged:
        warn(mode.message)
    return mode


class _State(NamedTuple):
    """State of the flow: ``u = Q a + (I - Q Q^T) h``, with h nonzero only at the nodes that the model sees.

    h represents the component of u outside the modes; it stays zero if the prior has no tail.
    """

    a: jax.Array  # coefficients on the modes, (n_modes,)
    h: jax.Array  # (n_seen,)
    h_modes: jax.Array  # Q^T h, (n_modes,)
    gradient: jax.Array  # of Phi at the seen nodes, (n_seen,)
    gradient_modes: jax.Array  # Q^T gradient, (n_modes,)
    energy: jax.Array
    norm: jax.Array
    beta: jax.Array
    n_steps: jax.Array


@jax.jit
def _flow(
    phi: Partial,
    vectors: jax.Array,
    start: tuple[jax.Array, jax.Array],
    first_beta: jax.Array,
    variances: jax.Array,
    tail: jax.Array,
    settings: tuple[jax.Array, jax.Array, jax.Array],
) -> _State:
    """Algorithm 4: ``a_j <- (a_j - beta <q_j, grad Phi(u)>) / (1 + beta / v_j)``.

    For the paper's priors the precision is ``1 / v_j = lambda_j / c``; the text prints ``c lambda_j``.
    The tail takes the same step with its own variance. u is only ever computed at the seen nodes.
    """
    adapt, n_steps, tolerance = settings
    variances = variances[:, None]
    precision = jnp.where(variances > 0, 1 / variances, 0.0)
    tail_precision = jnp.where(tail > 0, 1 / tail, 0.0)

    def potential_of(u: jax.Array) -> jax.Array:
        return phi(u[:, 0] if u.shape[1] == 1 else u)

    def at(a: jax.Array, h: jax.Array, h_modes: jax.Array, beta: jax.Array, n: jax.Array) -> _State:
        potential, gradient = jax.value_and_grad(potential_of)(vectors @ (a - h_modes) + h)
        gradient_modes = vectors.T @ gradient
        quadratic = _dot(precision * a, a) + tail_precision * (_dot(h, h) - _dot(h_modes, h_modes))
        rest, rest_modes = tail_precision * h + gradient, tail_precision * h_modes + gradient_modes
        slope = precision * a + gradient_modes
        squared = _dot(variances * slope, slope)
        squared += tail * jnp.maximum(_dot(rest, rest) - _dot(rest_modes, rest_modes), 0)
        norm = jnp.where(squared > 0, jnp.sqrt(squared / quadratic), 0.0)
        return _State(a, h, h_modes, gradient, gradient_modes, quadratic / 2 + potential, norm, beta, n)

    def step(old: _State) -> _State:
        shrink, shrink_tail = variances / (variances + old.beta), tail / (tail + old.beta)
        new = at(
            shrink * (old.a - old.beta * old.gradient_modes),  # lines 3 and 4
            shrink_tail * (old.h - old.beta * old.gradient),
            shrink_tail * (old.h_modes - old.beta * old.gradient_modes),
            jnp.minimum(2 * old.beta, first_beta),  # a fixed step size recovers after being halved
            old.n_steps + 1,
        )
        new = new._replace(beta=jnp.where(adapt, _barzilai_borwein(old, new), new.beta))
        lower = new.energy <= old.energy + ROUNDING * (1 + jnp.abs(old.energy))
        rejected = old._replace(beta=old.beta / 2, n_steps=new.n_steps)
        return jax.tree.map(lambda x, y: jnp.where(lower, x, y), new, rejected)

    def unfinished(state: _State) -> jax.Array:
        return (state.n_steps < n_steps) & ~(state.norm <= tolerance)

    a, h = start
    return jax.lax.while_loop(unfinished, step, at(a, h, vectors.T @ h, first_beta, jnp.zeros((), int)))


def _barzilai_borwein(old: _State, new: _State) -> jax.Array:
    """Step size by the curvature of Phi along the last step: ``|du|^2 / <du, d grad Phi>``.

    It changes by at most a factor of ten per step, and grows by that factor if the curvature is negative.
    """
    a, h, h_modes, gradient, gradient_modes = (new[i] - old[i] for i in range(5))
    squared = _dot(a, a) + _dot(h, h) - _dot(h_modes, h_modes)
    rise = _dot(a, gradient_modes) + _dot(h, gradient) - _dot(h_modes, gradient_modes)
    beta = jnp.where(rise > 0, squared / rise, jnp.inf)
    return jnp.clip(beta, old.beta / 10, old.beta * 10)


def _dot(x: jax.Array, y: jax.Array) -> jax.Array:
    """Inner product over nodes, or modes, and fields."""
    return jnp.sum(x * y)


def _gradient_flow(
    prior: GaussianPrior, model: Model, u: Array, beta: float | None, n_steps: int, tolerance: float
) -> tuple[Array, float, float, int]:
    """Algorithm 4 from u, shape (n_nodes, n_fields)."""
    sees_all = model.sees_all_nodes
    seen = slice(None) if sees_all else model.nodes
    vectors = prior.vectors[seen]
    a = prior.vectors.T @ u  # (n_modes, n_fields)
    h = np.zeros((len(vectors), u.shape[1]))
    if sees_all and prior.tail_variance > 0:  # at unseen nodes this part decays to zero, so it starts there
        h = u - prior.vectors @ a
    start = (a * (prior.variances > 0)[:, None], h)
    first_beta = 1 / model.curvature().bound if beta is None else float(beta)
    settings = (beta is None, n_steps, float(tolerance))
    with jax.enable_x64(True):
        args = (traced(model, "phi"), vectors, start, first_beta, prior.variances, prior.tail_variance, settings)
        state = jax.tree.map(np.asarray, _flow(*jax.tree.map(jnp.asarray, args)))
    u = prior.vectors @ (state.a - state.h_modes)
    u[seen] += state.h
    return u[:, 0] if u.shape[1] == 1 else u, float(state.energy), float(state.norm), int(state.n_steps)


def _start(prior: GaussianPrior, model: Model, start: ArrayLike | None) -> Array:
    """u at the start, shape (n_nodes, n_fields)."""
    n_fields = model.n_fields
    if start is None:
        return np.zeros((prior.n_nodes, n_fields))
    u = expect_numbers(start, "start")
    expected = (prior.n_nodes,) if n_fields == 1 else (prior.n_nodes, n_fields)
    if u.shape != expected:
        raise ValueError(f"start must have shape {expected}, got {u.shape}.")
    if not np.isfinite(u).all():
        raise ValueError("start must be finite at every node.")
    return u.reshape(prior.n_nodes, n_fields)


def _mode(u: Array, energy: float, norm: float, n_steps: int, tolerance: float, method: str) -> Mode:
    """Build the `Mode` with its message."""
    converged = norm <= tolerance
    steps = f"{n_steps} steps of {method.replace('_', ' ')}"
    if converged:
        message = f"Converged after {steps}: the relative whitened gradient is {norm:.1e}."
    else:
        message = (
            f"Not converged after {steps}: the relative whitened gradient is {norm:.1e} and the tolerance "
            f"{tolerance:.1e}. Raise n_steps or the tolerance."
        )
    return Mode(u, energy, norm, n_steps, converged, message)
