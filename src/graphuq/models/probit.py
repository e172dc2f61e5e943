"""Probit: labels are the signs of u plus Gaussian noise (Sec. 3.1)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import NDArray

from graphuq._pytree import pytree
from graphuq.models.base import check_label_model


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
        check_label_model(self)

    def phi(self, u: jax.Array) -> jax.Array:
        """Minus the log likelihood of u at the labeled nodes."""
        return -jnp.sum(log_normal_cdf(u * self.y / self.gamma))


# log(erfc(z) / t) + z^2 as a polynomial in t = 1 / (1 + z/2), z >= 0, to 1.2e-7 (Press, Teukolsky, Vetterling,
# Flannery, Numerical Recipes, 2nd ed., Sec. 6.2); the constant term comes last.
_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807,
    -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip


def log_normal_cdf(x: jax.Array) -> jax.Array:
    """``log Psi(x)``, exact far in the tail; in single precision by a fit that costs one exp and one log."""
    if x.dtype != jnp.float32:
        return log_ndtr(x)
    below = x < 0
    z = jnp.where(below, -x, x) * jnp.float32(math.sqrt(0.5))
    half_t = 1 / (2 + z)
    power = jnp.full_like(z, _ERFC[0])
    for coefficient in _ERFC[1:]:
        power = 2 * half_t * power + coefficient
    power -= z * z
    return jnp.log(jnp.where(below, half_t, 1 - half_t * jnp.exp(power))) + jnp.where(below, power, 0)
