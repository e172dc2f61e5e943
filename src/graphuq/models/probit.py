"""Probit: labels are the signs of u plus Gaussian noise, or the largest of several noisy fields (Sec. 3.1)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import NDArray

from graphuq._pytree import pytree, static
from graphuq.models.base import Curvature, Walls, check_label_model, signs

if TYPE_CHECKING:
    from graphuq.inference.sampler import Sampler
    from graphuq.inference.sites import Sites
    from graphuq.inference.star_ep import StarSites
    from graphuq.learning.hyperprior import Hyperprior

# Of Gauss and Hermite: 32 points reach ten deviations to either side.
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)


@pytree
class Probit:
    """``y_j = S(u_j + eta_j)``, ``eta_j ~ N(0, gamma^2)``.

        Phi(u; y) = - sum_j log Psi(y_j u_j; gamma),    Psi(.; gamma) the cdf of N(0, gamma^2).

    The logarithm of the cdf is taken as one function, so Phi is finite and exact far in the tail.

    With a field for each of K classes the label is the largest of ``g_k = u_k + eta_k``, all with noise of their own,

        P(y = c | u) = int phi(x) prod_{k != c} Psi(x + (u_c - u_k) / gamma) dx.

    Two fields are the model of one field that is their difference, at sqrt(2) times its deviation and noise.

    Labels may be mistakes: `delta` is the probability of one where there are two classes. Among K classes the label
    is that of rank m, 0 the largest g, with probability ``r^m / sum_i r^i``, ``r = delta / (1 - delta)``: a mistake
    likely names the runner-up. delta = 0 is the paper's probit, and gamma -> 0 with delta > 0 its level-set.
    """

    nodes: NDArray[np.int64] | None = None
    y: NDArray[np.int64] | None = None
    gamma: float = 0.1
    delta: float = static(default=0.0)
    n_classes: int | None = static(default=None)
    n_fields: int | None = static(default=None)

    def __post_init__(self) -> None:
        check_label_model(self, "gamma")
        if not 0 <= self.delta < 0.5:
            raise ValueError(f"delta, the probability of a wrong label, must lie in [0, 0.5), got {self.delta}.")

    @property
    def noise(self) -> float:
        """The standard deviation of the noise of every field."""
        return self.gamma

    def phi(self, u: jax.Array) -> jax.Array:
        """Minus the log likelihood of u at the labeled nodes."""
        return -jnp.sum(self.log_likelihood(u))

    def log_likelihood(self, u: jax.Array) -> jax.Array:
        """That of each label, shape (n_labeled,)."""
        if self.n_fields == 1:
            return self._mistaken(log_normal_cdf(u * signs(self.y) / self.gamma))
        own = jnp.take_along_axis(u, self.y[:, None], axis=1)
        lead = (own - u) / self.gamma
        others = jnp.arange(u.shape[1]) != self.y[:, None]
        # Where the label's field lies behind, the noise must make up for it: the points follow.
        shift = jnp.maximum(jnp.max(jnp.where(others, -lead, 0), axis=1) / 2, 0)[:, None]
        x = jnp.asarray(_POINTS, u.dtype) + shift
        log_weight = jnp.log(jnp.asarray(_WEIGHTS / _WEIGHTS.sum(), u.dtype)) + shift * (shift / 2 - x)
        ahead = self._mistaken(log_normal_cdf(x[:, None, :] + lead[:, :, None]))
        log_integrand = log_weight + jnp.sum(jnp.where(others[..., None], ahead, 0), axis=1)
        return jax.scipy.special.logsumexp(log_integrand, axis=1) + channel_constant(self.delta, u.shape[1])

    def _mistaken(self, log_right: jax.Array) -> jax.Array:
        """``log(delta + (1 - 2 delta) p)`` from log p."""
        if not self.delta:
            return log_right
        return jnp.logaddexp(math.log(self.delta), math.log1p(-2 * self.delta) + log_right)

    def walls(self) -> Walls:
        """Planes of the noisy fields, which mistakes alone can cross."""
        delta = float(self.delta)
        return Walls(float(self.gamma), math.log((1 - delta) / delta) if delta else math.inf, leader_only=False)

    def sites(self) -> Sites | StarSites:
        """Of one field, or of a star of differences between several."""
        from graphuq.inference.sites import Sites
        from graphuq.inference.star_ep import StarSites

        gamma, log_flip = float(self.gamma), math.log(self.delta) if self.delta else -math.inf
        if self.n_fields == 1:
            return Sites(np.asarray(signs(self.y), float), gamma**2, log_flip, noise_slope=2 * gamma)
        return StarSites(np.asarray(self.y), int(self.n_classes or 0), gamma**2, log_flip, noise_slope=2 * gamma)

    def curvature(self) -> Curvature:
        """At most one over the noise; convex, for the integral of a Gaussian over a convex cone is log-concave."""
        return Curvature(1 / float(self.gamma) ** 2, convex=not self.delta)

    def default_sampler(self) -> Sampler:
        """Exact trajectories."""
        from graphuq.inference.orthant import Orthant

        return Orthant()

    def hyperprior(self) -> Hyperprior:
        """What is believed of gamma."""
        from graphuq.learning.hyperprior import Hyperprior

        return Hyperprior()


def channel_constant(delta: float, n_classes: int) -> float:
    """Minus the log of ``(1 - delta)^(K - 1) sum_{m < K} r^m``: what makes probabilities of the K labels add to one."""
    ratio = delta / (1 - delta)
    return -((n_classes - 1) * math.log1p(-delta) + math.log(sum(ratio**m for m in range(n_classes))))


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
