"""Newton's method: a prior and a model of convex Phi in; the one minimizer of J(u) = <u, P u>/2 + Phi(u; y) out.

The search runs in whitened coordinates, as many as there are labels or, if fewer, modes: the cost of a step does
not depend on the size of the graph.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from graphuq._pytree import traced
from graphuq.inference.whiten import whiten
from graphuq.models.base import Model
from graphuq.prior import GaussianPrior
from graphuq.tall import row_blocks

Array = NDArray[np.float64]

# Relative changes of J or u below this are rounding errors.
ROUNDING = 1e-12


def newton(prior: GaussianPrior, model: Model, n_steps: int, tolerance: float) -> tuple[Array, float, float, int]:
    """Minimize J; returns u at all nodes, J(u), ``|C^(1/2) grad J| / |C^(-1/2) u|`` and the number of steps.

    Field k is ``u_k = B z_k`` at the labels, and ``J = |z|^2 / 2 + Phi(B z)``. The search starts at z = 0 with
    full steps; a backtracking line search, rarely needed, halves a step until J does not rise.
    """
    whitening = whiten(prior, model.nodes)
    B = whitening.matrix(model.nodes)
    z = np.zeros((model.n_fields, B.shape[1]))
    energy, gradient, curvature = _phi(model, B @ z.T)
    for n in range(n_steps + 1):
        slope = z + gradient.T @ B  # grad J in z
        slope_norm, z_norm = np.linalg.norm(slope), np.linalg.norm(z)
        norm = 0.0 if slope_norm == 0 else np.inf if z_norm == 0 else float(slope_norm / z_norm)
        if norm <= tolerance or n == n_steps:
            break
        try:
            direction = _direction(prior, model.nodes, B, slope, curvature)
        except LinAlgError:
            raise ValueError(
                f"Phi of {type(model).__name__} is too steep for Newton's method in double precision: use a larger gamma, "
                "or sample."
            ) from None
        if np.linalg.norm(direction) <= ROUNDING * z_norm:
            break
        for scale in 0.5 ** np.arange(40):
            z_new = z + scale * direction
            phi, gradient, curvature = _phi(model, B @ z_new.T)
            energy_new = float(np.sum(z_new**2) / 2 + phi)
            if energy_new <= energy + ROUNDING * (1 + abs(energy)):
                break
        z, energy = z_new, energy_new
    nodes = np.arange(prior.n_nodes)
    u = np.concatenate([whitening.mean(z, nodes[rows]).T for rows in row_blocks(len(nodes), z.shape[1])])
    return (u[:, 0] if len(z) == 1 else u), energy, norm, n


def _direction(prior: GaussianPrior, nodes: Any, B: Array, slope: Array, W: Array) -> Array:
    """Solve ``(I + B^T W B) dz = -(z + B^T grad Phi)``, where W, the Hessian of Phi, couples the fields of a node.

    No possibly singular matrix is inverted, so labels that contradict each other on few modes do no harm.
    """
    if B.shape[1] <= len(B):
        hessian = np.einsum("ni,nkl,nj->kilj", B, W, B, optimize=True).reshape(slope.size, slope.size)
        return -cho_solve(cho_factor(hessian + np.eye(slope.size)), slope.ravel()).reshape(slope.shape)
    # There is a tail t, and B B^T = V e V^T + t I. With P = (W^-1 + t I)^-1, Woodbury reduces the system to the
    # modes.
    V, e, t = prior.vectors[nodes], prior.variances - prior.tail_variance, prior.tail_variance
    P = np.linalg.solve(np.eye(len(slope)) + t * W, W)
    weighted = np.einsum("nkl,nl->nk", P, B @ slope.T)
    size = e.size * len(slope)
    system = np.einsum("i,ni,nkl,nj->ikjl", e, V, P, V, optimize=True).reshape(size, size) + np.eye(size)
    modes = np.linalg.solve(system, (e[:, None] * (V.T @ weighted)).ravel()).reshape(e.size, -1)
    weighted -= np.einsum("nkl,nl->nk", P, V @ modes)  # (W^-1 + B B^T)^-1 B slope
    return weighted.T @ B - slope


def _phi(model: Model, u: Array) -> tuple[float, Array, Array]:
    """Phi, its gradient and its Hessian at u of shape (n_labeled, n_fields).

    Labels are independent given u, so the Hessian has one block per node: (n_labeled, n_fields, n_fields).
    """
    with jax.enable_x64(True):
        phi, gradient, curvature = map(np.asarray, _derivatives(traced(model, "phi"), jnp.asarray(u)))
    return float(phi), gradient, np.maximum(curvature, 0.0) if u.shape[1] == 1 else curvature


@jax.jit
def _derivatives(phi: Partial, u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Phi, its gradient and its Hessian, by one Hessian-vector product per field for all nodes at once."""

    def of_fields(u: jax.Array) -> jax.Array:
        return phi(u[:, 0] if u.shape[1] == 1 else u)

    def hessian_product(direction: jax.Array) -> jax.Array:
        return jax.jvp(jax.grad(of_fields), (u,), (direction,))[1]

    directions = jnp.broadcast_to(jnp.eye(u.shape[1])[:, None], (u.shape[1], *u.shape))
    return *jax.value_and_grad(of_fields)(u), jnp.moveaxis(jax.vmap(hessian_product)(directions), 0, 2)
