"""Bayesian level-set: labels are the sign of u, seen through Gaussian noise (Sec. 3.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq._pytree import pytree
from graphuq.models.base import check_label_model


@pytree
class LevelSet:
    """``y_j = S(u_j) + eta_j``, ``eta_j ~ N(0, gamma^2)``, with S(0) = +1.

        Phi(u; y) = sum_j |y_j - S(u_j)|^2 / (2 gamma^2)

    Every label on the wrong side costs ``2 / gamma^2``. Phi is piecewise constant: it has no
    gradient to follow and the posterior has no mode.
    """

    nodes: NDArray[np.int64]
    y: NDArray[np.float64]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        check_label_model(self)

    def phi(self, u: jax.Array) -> jax.Array:
        """Minus the log likelihood of u at the labeled nodes."""
        sign = jnp.where(u >= 0, 1.0, -1.0).astype(u.dtype)
        return jnp.sum((self.y - sign) ** 2) / (2 * self.gamma**2)
