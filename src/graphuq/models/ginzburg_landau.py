"""Ginzburg-Landau: relaxed labels v drawn to -1 and +1 by a double well at every node (Sec. 3.3)."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq._pytree import pytree
from graphuq.models.base import check_label_model, check_positive


def double_well(v: jax.Array, epsilon: float) -> jax.Array:
    """The potential ``W_eps(v) = (v^2 - 1)^2 / (4 epsilon)`` of Sec. 2.4."""
    return (v**2 - 1) ** 2 / (4 * epsilon)


def relaxed_sign(u: jax.Array, epsilon: float) -> jax.Array:
    """``S_eps(u)``: where the gradient flow of the double well, started at u, stands at time 1.

    The flow ``dv/dt = -(v^3 - v) / epsilon`` has the closed form

        S_eps(u) = u / sqrt(u^2 + (1 - u^2) exp(-2 / epsilon)),

    which tends to the sign of u as epsilon -> 0.
    """
    return u / jnp.sqrt(u**2 + (1 - u**2) * jnp.exp(-2 / epsilon))


@pytree
class GinzburgLandau:
    """``y_j = v_j + eta_j``, ``eta_j ~ N(0, gamma^2)``, under the Ginzburg-Landau measure (2.7).

        Phi(v; y) = sum_{all i} W_eps(v_i) + sum_{labeled j} |y_j - v_j|^2 / (2 gamma^2)

    The double well looks at every node, labeled or not, and the labels of this model are the real
    numbers v themselves.
    """

    nodes: NDArray[np.int64]
    y: NDArray[np.float64]
    gamma: float = 0.6
    epsilon: float = 10.0

    sees_all_nodes: ClassVar[bool] = True
    labels_are_real: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_label_model(self)
        object.__setattr__(self, "epsilon", check_positive("epsilon", self.epsilon))

    def phi(self, v: jax.Array) -> jax.Array:
        """Minus the log of the well and the likelihood, v at all nodes."""
        misfit = jnp.sum((self.y - v[self.nodes]) ** 2) / (2 * self.gamma**2)
        return jnp.sum(double_well(v, self.epsilon)) + misfit
