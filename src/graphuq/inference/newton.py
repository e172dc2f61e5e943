"""From a prior and labels of convex Phi to the one minimizer of J(u) = <u, P u>/2 + Phi(u; y), by Newton's method.

The search runs in whitened coordinates, over the labels or, where those are fewer, over the modes: a step costs the
same on any graph.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from graphuq._pytree import traced
from graphuq.inference.whiten import whiten
from graphuq.models.base import Model, offer
from graphuq.prior import GaussianPrior
from graphuq.tall import row_blocks

Array = NDArray[np.float64]

# A change of J or of u by less than this share of it is rounding.
ROUNDING = 1e-12


def newton(prior: GaussianPrior, model: Model, n_steps: int, tolerance: float) -> tuple[Array, float, float, int]:
    """u at all nodes, J(u), ``|C^(1/2) grad J| / |C^(-1/2) u|``, and the number of steps taken.

    Field k is ``u_k = B z_k`` at the labels, and ``J = |z|^2 / 2 + Phi(B z)``. The search starts at z = 0 and halves a
    step until J falls, which is rarely needed.
    """
    whitening = whiten(prior, model.nodes)
    B = whitening.matrix(model.nodes)
    z = np.zeros((int(offer(model, "n_fields")), B.shape[1]))
    energy, gradient, curvature = _phi(model, B @ z.T)
    for n in range(n_steps + 1):
        slope = z + gradient.T @ B
        steep, size = np.linalg.norm(slope), np.linalg.norm(z)
        norm = 0.0 if steep == 0 else np.inf if size == 0 else float(steep / size)
        if norm <= tolerance or n == n_steps:
            break
        direction = _direction(prior, model.nodes, B, slope, curvature)
        if np.linalg.norm(direction) <= ROUNDING * size:
            break
        for scale in 0.5 ** np.arange(40):
            z_new = z + scale * direction
            phi, gradient, curvature = _phi(model, B @ z_new.T)
            energy_new = float(np.sum(z_new**2) / 2 + phi)
            if energy_new <= energy + ROUNDING * (1 + abs(energy)):
                break
        z, energy = z_new, energy_new
    every = np.arange(prior.n_nodes)
    u = np.concatenate([whitening.mean(z, every[rows]).T for rows in row_blocks(len(every), z.shape[1])])
    return (u[:, 0] if len(z) == 1 else u), energy, norm, n


def _direction(prior: GaussianPrior, nodes: Any, B: Array, slope: Array, W: Array) -> Array:
    """dz of ``(I + B^T W B) dz = -(z + B^T grad Phi)``, where W, the curvature of Phi, couples the fields of a node.

    Nothing is divided by, so labels that contradict each other on few modes do no harm.
    """
    if B.shape[1] <= len(B):
        hessian = np.einsum("ni,nkl,nj->kilj", B, W, B, optimize=True).reshape(slope.size, slope.size)
        return -cho_solve(cho_factor(hessian + np.eye(slope.size)), slope.ravel()).reshape(slope.shape)
    # There is a tail t, and B B^T = V e V^T + t I. With P = (W^-1 + t I)^-1 the system is one in the modes (Woodbury).
    V, e, t = prior.vectors[nodes], prior.variances - prior.tail_variance, prior.tail_variance
    P = np.linalg.solve(np.eye(len(slope)) + t * W, W)
    pulled = np.einsum("nkl,nl->nk", P, B @ slope.T)
    size = e.size * len(slope)
    system = np.einsum("i,ni,nkl,nj->ikjl", e, V, P, V, optimize=True).reshape(size, size) + np.eye(size)
    modes = np.linalg.solve(system, (e[:, None] * (V.T @ pulled)).ravel()).reshape(e.size, -1)
    pulled -= np.einsum("nkl,nl->nk", P, V @ modes)  # (W^-1 + B B^T)^-1 B slope
    return pulled.T @ B - slope


def _phi(model: Model, u: Array) -> tuple[float, Array, Array]:
    """Phi, its gradient, and its curvature at u of shape (n_labeled, n_fields).

    Labels are independent given u, so Phi has a second derivative within a node alone: (n_labeled, n_fields, n_fields).
    """
    with jax.enable_x64(True):
        phi, gradient, curvature = map(np.asarray, _derivatives(traced(model, "phi"), jnp.asarray(u)))
    return float(phi), gradient, np.maximum(curvature, 0.0) if u.shape[1] == 1 else curvature


@jax.jit
def _derivatives(phi: Partial, u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The second by one product with the Hessian for each field, all nodes at once."""

    def of_fields(u: jax.Array) -> jax.Array:
        return phi(u[:, 0] if u.shape[1] == 1 else u)

    def curvature(direction: jax.Array) -> jax.Array:
        return jax.jvp(jax.grad(of_fields), (u,), (direction,))[1]

    directions = jnp.broadcast_to(jnp.eye(u.shape[1])[:, None], (u.shape[1], *u.shape))
    return *jax.value_and_grad(of_fields)(u), jnp.moveaxis(jax.vmap(curvature)(directions), 0, 2)
