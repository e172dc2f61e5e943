"""The Ginzburg-Landau model: real labels pulled to -1 and +1, or to simplex corners, at every node (Sec. 3.3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq._expect import SettingError
from graphuq._pytree import pytree, static
from graphuq.models.base import Curvature, Model, check_label_model, is_traced, signs
from graphuq.models.quartic import Quartic, pays, quartic

if TYPE_CHECKING:
    from graphuq.inference.ep import Gaussian
    from graphuq.inference.sampler import Sampler

# Labels and wells have curvatures 1 / gamma^2 and 2 / epsilon; far above 1e16 the prior is lost to rounding.
SHARPEST = {"gamma": 1e-8, "epsilon": 1e-16}


def double_well(v: jax.Array, epsilon: float) -> jax.Array:
    """The double-well potential ``W_eps(v) = (v^2 - 1)^2 / (4 epsilon)`` of Sec. 2.4."""
    return (v**2 - 1) ** 2 / (4 * epsilon)


def simplex_wells(v: jax.Array, epsilon: float) -> jax.Array:
    """Wells at the corners of a simplex (Garcia-Cardona, Merkurjev, Bertozzi, Flenner, Percus 2014).

        W_eps(v) = 4 / eps prod_k |w - p_k|^2 / 2,    w_k = v_k - mean(v),    p_k = e_k - 1/K,

    v of shape (..., K). It is invariant to adding a constant to all v_k. For K = 2 it is the double well of
    ``v_1 - v_0``, and the width of the wells does not depend on K.
    """
    return 4 / epsilon * jnp.prod(corner_distances(v) / 2, axis=0)


def corner_distances(v: jax.Array) -> jax.Array:
    """``|w - p_k|^2`` for every corner, shape (K, ...): with the nodes last, XLA vectorizes over them."""
    v = jnp.moveaxis(v, -1, 0)
    w = v - v.mean(axis=0)
    return jnp.sum(w**2, axis=0) - 2 * w + (1 - 1 / len(v))


def relaxed_sign(u: jax.Array, epsilon: float) -> jax.Array:
    """``S_eps(u)``: the gradient flow of the double well from u, evaluated at time 1.

    The flow ``dv/dt = -(v^3 - v) / epsilon`` has the closed form

        S_eps(u) = u / sqrt(u^2 + (1 - u^2) exp(-2 / epsilon)),

    which tends to the sign of u as epsilon -> 0.
    """
    return u / jnp.sqrt(u**2 + (1 - u**2) * jnp.exp(-2 / epsilon))


@pytree
class GinzburgLandau(Model):
    """``y_j = v_j + eta_j``, ``eta_j ~ N(0, gamma^2)``, under the Ginzburg-Landau measure (2.7).

        Phi(v; y) = sum_{all i} W_eps(v_i) + sum_{labeled j} |y_j - v_j|^2 / (2 gamma^2)

    The double well acts at every node, labeled or not, and the labels of this model are the real values v
    themselves. With one field for each of K classes the wells are those of `simplex_wells` and the misfit is
    ``|w_j - p_y|^2 / gamma^2``; for K = 2 both are the same functions of ``v_1 - v_0`` as above.
    """

    nodes: NDArray[np.int64] | None = None
    y: NDArray[np.int64] | None = None
    gamma: float = 0.6
    epsilon: float = 10.0
    n_classes: int | None = static(default=None)
    n_fields: int | None = static(default=None)

    numbers = ("gamma", "epsilon")
    sees_all_nodes = True
    labels_are_real = True

    def __post_init__(self) -> None:
        check_label_model(self)
        for name, least in SHARPEST.items():
            if not is_traced(value := getattr(self, name)) and value < least:
                raise SettingError(name, f"of Ginzburg-Landau must be at least {least:g}, got {value:g}.")

    def phi(self, v: jax.Array) -> jax.Array:
        """The wells plus the negative log likelihood, up to a constant, v at all nodes."""
        wells = double_well if self.n_fields == 1 else simplex_wells
        return jnp.sum(wells(v, self.epsilon)) + jnp.sum(self._misfit(v))

    def reduced(self, B: NDArray[np.floating], progress: bool | None = None) -> Quartic | None:
        """``Phi(B z)`` as a polynomial of z where that is faster; with K fields its degree is too high."""
        if self.n_fields != 1 or not pays(*B.shape):
            return None
        nodes, y = np.asarray(self.nodes), signs(np.asarray(self.y))
        return quartic(B, nodes, y, float(self.gamma), float(self.epsilon), progress)

    def log_likelihood(self, v: jax.Array) -> jax.Array:
        """The log density of each label, a real value, or K - 1 with K classes, shape (n_labeled,).

        Densities are not probabilities: they can be compared only with those of other Ginzburg-Landau models.
        """
        n_values = int(self.n_classes or 2) - 1
        return -self._misfit(v) - n_values * (jnp.log(self.gamma) + math.log(2 * math.pi) / 2)

    def _misfit(self, v: jax.Array) -> jax.Array:
        """``|y_j - v_j|^2 / (2 gamma^2)`` of each label, or ``|w_j - p_y|^2 / gamma^2``."""
        v = v[self.nodes]
        if self.n_fields == 1:
            return (signs(self.y) - v) ** 2 / (2 * self.gamma**2)
        own = jnp.take_along_axis(corner_distances(v), jnp.asarray(self.y)[None], axis=0)
        return own[0] / self.gamma**2

    def curvature(self) -> Curvature:
        """A bound on the second derivative within [-1, 1], or between the corners."""
        stretch = 1 if self.n_fields == 1 else 2
        return Curvature(stretch * (2 / float(self.epsilon) + 1 / float(self.gamma) ** 2), convex=False)

    def reference(self, matrix: NDArray[np.float64]) -> Gaussian:
        """The posterior N(m, S) of z, v = B z, with each double well replaced by a harmonic one, kappa v^2 / 2.

            S^-1 = I + kappa B^T B + B_lab^T B_lab / gamma^2,    m = S B_lab^T y / gamma^2,
            kappa = max(0, mean over nodes of E[W_eps''(v_i)]),    E[W_eps''(v)] = (3 E[v^2] - 1) / eps,

        where the expectation is under N(m, S) itself. It favors one sign at a node only as far as the labels do,
        so it covers all modes of the posterior and is a good initial distribution for replicas. `matrix` is B, of
        shape (n_nodes, n_latent).

        With K fields each has such a Gaussian, all with the same S, with the label's corner ``2 p_y`` in place of y and twice the
        misfit and well of one field, because only differences between fields matter and ``v_c - v_k`` takes the
        role that v has for two classes.
        """
        from scipy.linalg import eigh
        from scipy.optimize import brentq

        from graphuq.inference.ep import Gaussian

        n_fields = int(self.n_fields or 1)
        classes = np.asarray(self.y)
        y, stretch = signs(classes)[:, None].astype(float), 1.0
        if n_fields > 1:
            y, stretch = np.eye(n_fields)[classes] - 1 / n_fields, 2.0
        precision = stretch / float(self.gamma) ** 2
        labeled = matrix[np.asarray(self.nodes)]
        without_wells = np.eye(matrix.shape[1]) + precision * labeled.T @ labeled
        # The generalized eigenvectors diagonalize S^-1 for every kappa, so evaluating another kappa is cheap.
        strength, directions = eigh(matrix.T @ matrix, without_wells)
        strength = np.maximum(strength, 0)
        pull = precision * directions.T @ (labeled.T @ y)  # (n_latent, n_fields)

        def curvature(kappa: float) -> float:
            """The mean of E[W_eps''] over nodes for the harmonic well kappa."""
            variance = 1 / (1 + stretch * kappa * strength)
            square = np.square(variance[:, None] * pull).sum(axis=1) / (1 if n_fields == 1 else n_fields - 1)
            second_moment = stretch * np.sum(strength * (variance + square)) / len(matrix)
            return float((3 * second_moment - 1) / self.epsilon)

        # The curvature decreases with kappa, so the fixed point is unique and lies between 0 and curvature(0).
        most = curvature(0.0)
        kappa = brentq(lambda kappa: curvature(kappa) - kappa, 0.0, most) if most > 0 else 0.0
        variance = 1 / (1 + stretch * kappa * strength)
        mean, factor = directions @ (variance[:, None] * pull), directions * np.sqrt(variance)
        return Gaussian(mean=mean.T.ravel(), factor=factor)

    def default_sampler(self) -> Sampler:
        """Parallel tempering, whose replicas cross between modes."""
        from graphuq.inference.reference import Referenced
        from graphuq.inference.tempering import Tempered

        return Referenced(Tempered())
