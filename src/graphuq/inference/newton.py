"""From a prior and labels of convex Phi to the one minimizer of J(u) = <u, P u>/2 + Phi(u; y), by Newton's method.

The mode is a combination of the labeled columns of C. The search therefore runs over the labels or,
where those are fewer, over the modes, and a step costs the same on any graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from graphuq._pytree import traced
from graphuq.inference.whiten import Whitening, whiten
from graphuq.models.base import Model, offer
from graphuq.prior import GaussianPrior
from graphuq.tall import row_blocks

Array = NDArray[np.float64]

# A change of J or of u by less than this share of it is rounding.
ROUNDING = 1e-12


def newton(prior: GaussianPrior, model: Model, n_steps: int, tolerance: float) -> tuple[Array, float, float, int]:
    """u at all nodes, J(u), ``|C^(1/2) grad J| / |C^(-1/2) u|``, and the number of steps taken.

    It starts at zero and halves a step until J falls, which is rarely needed.
    """
    n_fields = int(offer(model, "n_fields"))
    field: Any
    if n_fields == 1 and prior.tail_variance > 0:
        field = _WithTail(prior, model.nodes, prior.vectors[model.nodes])
    else:
        whitening = whiten(prior, model.nodes)
        field = _Whitened(whitening, whitening.matrix(model.nodes), n_fields)
    x = np.zeros(field.length)
    energy, gradient, curvature = _energy(field, model, x)
    for n in range(n_steps + 1):
        slope = x + field.pull(gradient)
        squared, size = slope @ field.metric(slope), x @ field.metric(x)
        norm = 0.0 if squared <= 0 else np.inf if size <= 0 else float(np.sqrt(squared / size))
        if norm <= tolerance or n == n_steps:
            break
        direction = field.direction(slope, curvature)
        if direction @ field.metric(direction) <= ROUNDING**2 * size:
            break
        for scale in 0.5 ** np.arange(40):
            x_new = x + scale * direction
            energy_new, gradient, curvature = _energy(field, model, x_new)
            if energy_new <= energy + ROUNDING * (1 + abs(energy)):
                break
        x, energy = x_new, energy_new
    return field.everywhere(x), energy, norm, n


def _energy(field: Any, model: Model, x: Array) -> tuple[float, Array, Array]:
    """J, and the gradient and the curvature of Phi at the labels.

    Labels are independent given u, so Phi has a second derivative within a node alone: shape (n_labeled,), or
    (n_labeled, n_fields, n_fields).
    """
    u = field.at_labels(x)
    with jax.enable_x64(True):
        phi, gradient = (np.asarray(each) for each in _first_derivatives(traced(model, "phi"), jnp.asarray(u)))
        curvature = np.asarray(_second_derivatives(traced(model, "phi"), jnp.asarray(u)))
    return float(x @ field.metric(x) / 2 + phi), gradient, curvature if u.ndim > 1 else np.maximum(curvature, 0.0)


@jax.jit
def _first_derivatives(phi: Partial, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(phi)(u)


@jax.jit
def _second_derivatives(phi: Partial, u: jax.Array) -> jax.Array:
    """Of each node by its own fields, all nodes at once: one product with the Hessian for each field."""
    if u.ndim == 1:
        return jax.jvp(jax.grad(phi), (u,), (jnp.ones_like(u),))[1]
    directions = jnp.broadcast_to(jnp.eye(u.shape[1])[:, None], (u.shape[1], *u.shape))
    return jnp.moveaxis(jax.vmap(lambda d: jax.jvp(jax.grad(phi), (u,), (d,))[1])(directions), 0, 2)


@dataclass(frozen=True)
class _Whitened:
    """Whitened coordinates of one or several fields: ``u = B z_k`` at the labels, for each field k, and ``<u, P u> = |z|^2``.

    A step solves ``(I + B^T W B) dz = -(z + B^T grad Phi)``, where W, the curvature of Phi, couples the fields of a
    node. Nothing is divided by, so labels that contradict each other on few modes do no harm.
    """

    whitening: Whitening
    matrix: Array  # B, (n_labeled, n_coordinates)
    n_fields: int

    @property
    def length(self) -> int:
        return self.n_fields * self.matrix.shape[1]

    def at_labels(self, z: Array) -> Array:
        return self._fields(self.matrix @ z.reshape(self.n_fields, -1).T)

    def everywhere(self, z: Array) -> Array:
        z, every = z.reshape(self.n_fields, -1), np.arange(self.whitening.prior.n_nodes)
        parts = [self.whitening.mean(z, every[rows]).T for rows in row_blocks(len(every), z.shape[1])]
        return self._fields(np.concatenate(parts))

    def _fields(self, u: Array) -> Array:
        return u[:, 0] if self.n_fields == 1 else u

    def metric(self, z: Array) -> Array:
        return z

    def pull(self, gradient: Array) -> Array:
        return (gradient.reshape(-1, self.n_fields).T @ self.matrix).ravel()

    def direction(self, slope: Array, curvature: Array) -> Array:
        coupled = curvature.reshape(-1, self.n_fields, self.n_fields)
        hessian = np.einsum("ni,nkl,nj->kilj", self.matrix, coupled, self.matrix, optimize=True)
        hessian = hessian.reshape(self.length, self.length) + np.eye(self.length)
        return -cho_solve(cho_factor(hessian), slope)


@dataclass(frozen=True)
class _WithTail:
    """Weights w on the labeled columns of C: ``u = C w`` and ``<u, P u> = <w, C w>``.

    A step solves ``(I + W C) dw = -(w + grad Phi)`` (Rasmussen and Williams, Alg. 3.1). C at the labels
    is the tail plus a matrix of the rank of the modes, so the system is one in the modes (Woodbury).
    """

    prior: GaussianPrior
    nodes: NDArray[np.int64]
    vectors: Array  # the modes at the labels, (n_labeled, n_modes)

    @property
    def length(self) -> int:
        return len(self.nodes)

    @property
    def excess(self) -> Array:
        return self.prior.variances - self.prior.tail_variance

    def at_labels(self, w: Array) -> Array:
        return self.vectors @ (self.excess * (self.vectors.T @ w)) + self.prior.tail_variance * w

    def everywhere(self, w: Array) -> Array:
        u = self.prior.vectors @ (self.excess * (self.vectors.T @ w))
        u[self.nodes] += self.prior.tail_variance * w
        return u

    def metric(self, w: Array) -> Array:
        return self.at_labels(w)

    def pull(self, gradient: Array) -> Array:
        return gradient

    def direction(self, slope: Array, curvature: Array) -> Array:
        diagonal = 1 + self.prior.tail_variance * curvature
        weights, slope = curvature / diagonal, slope / diagonal
        system = np.eye(self.prior.n_modes) + self.excess[:, None] * ((self.vectors.T * weights) @ self.vectors)
        modes = np.linalg.solve(system, self.excess * (self.vectors.T @ slope))
        return weights * (self.vectors @ modes) - slope
