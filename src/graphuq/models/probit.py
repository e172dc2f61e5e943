"""Probit: labels are the signs of u plus Gaussian noise (Sec. 3.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import NDArray

from graphuq._pytree import pytree
from graphuq.models.base import check_labels, check_positive


@pytree
class Probit:
    """``y_j = S(u_j + eta_j)``, ``eta_j ~ N(0, gamma^2)``.

        Phi(u; y) = - sum_j log Psi(y_j u_j; gamma),    Psi(.; gamma) the cdf of N(0, gamma^2).

    The logarithm of the cdf is taken as one function, so Phi is finite and exact far in the tail.
    """

    nodes: NDArray[np.int64]
    y: NDArray[np.float64]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        nodes, y = check_labels(self.nodes, self.y)
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "gamma", check_positive("gamma", self.gamma))

    def phi(self, u: jax.Array) -> jax.Array:
        """Minus the log likelihood of u at the labeled nodes."""
        return -jnp.sum(log_ndtr(self.y * u / self.gamma))
