"""The probit model: a label is the sign of u plus noise, or the largest of several noisy fields (Sec. 3.1)."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import NDArray

from graphuq._expect import expect, put
from graphuq._pytree import pytree, static
from graphuq.models.base import Curvature, Model, Walls, check_label_model, is_traced, signs

if TYPE_CHECKING:
    from graphuq.inference.sampler import Sampler
    from graphuq.inference.sites import Sites
    from graphuq.inference.stars import StarSites
    from graphuq.learning.hyperprior import Hyperprior

# The integral over the noise of the label's own field is computed by the trapezoidal rule, which converges rapidly
# for smooth functions that vanish at both ends: the number of points, and how many standard deviations they extend
# beyond the maximum of the integrand. Measured for 3 to 16 classes: relative error of the likelihood below 1e-5,
# with mistakes below 1e-4.
N_POINTS, N_POINTS_WITH_MISTAKES, REACH = 40, 64, 6.0


@pytree
class Probit(Model):
    """``y_j = S(u_j + eta_j)``, ``eta_j ~ N(0, gamma^2)``.

        Phi(u; y) = - sum_j log Psi(y_j u_j; gamma),    Psi(.; gamma) the cdf of N(0, gamma^2).

    The log cdf is evaluated as one function, so Phi is finite and accurate far in the tail.

    With one field for each of K classes the label is the largest of ``g_k = u_k + eta_k`` with independent noises,

        P(y = c | u) = int phi(x) prod_{k != c} Psi(x + (u_c - u_k) / gamma) dx.

    Two fields are equivalent to one field, their difference, with sqrt(2) times the standard deviation and noise.

    Labels may be mistaken: with two classes, with probability `delta`. With K classes the label is the class of
    rank m (rank 0 has the largest g) with probability ``r^m / sum_i r^i``, ``r = delta / (1 - delta)``: a mistaken
    label most likely names the runner-up. delta = 0 is the paper's probit model; gamma -> 0 with delta > 0 is its
    level-set model.

    Labels may differ in precision: a label of weight w has the noise ``gamma / sqrt(w)``, as if ``sqrt(w) u`` were
    seen with the noise gamma.
    """

    nodes: NDArray[np.int64] | None = None
    y: NDArray[np.int64] | None = None
    gamma: float = 0.1
    delta: float = 0.0
    weights: NDArray[np.float64] | None = None
    n_classes: int | None = static(default=None)
    n_fields: int | None = static(default=None)
    # Static, so that Phi needs no terms for mistakes where there are none; delta itself is traced, since the components
    # of a mixture differ in it.
    has_mistakes: bool = static(default=False, init=False, repr=False)

    numbers = ("gamma",)

    def __post_init__(self) -> None:
        check_label_model(self)
        if is_traced(self.delta):
            put(self, has_mistakes=True)
            return
        delta = self.delta.item() if isinstance(self.delta, jax.Array) and self.delta.ndim == 0 else self.delta
        expect(delta, Real, "delta", "a number in [0, 0.5)")
        if not 0 <= delta < 0.5:
            raise ValueError(f"delta, the probability of a wrong label, must lie in [0, 0.5), got {delta}.")
        put(self, delta=float(delta), has_mistakes=delta > 0)

    @property
    def noise(self) -> float:
        """The standard deviation of the noise in every field."""
        return self.gamma

    @property
    def mistake_rate(self) -> float:
        """The probability that a label is not the class of rank 0."""
        ratio = float(self.delta) / (1 - float(self.delta))
        return 1 - 1 / sum(ratio**m for m in range(self.n_classes or 2))

    def phi(self, u: jax.Array) -> jax.Array:
        """The negative log likelihood of u at the labeled nodes."""
        return -jnp.sum(self.log_likelihood(u))

    def log_likelihood(self, u: jax.Array) -> jax.Array:
        """The log likelihood of each label, shape (n_labeled,)."""
        if self.weights is not None:
            u = (u.T * jnp.sqrt(jnp.asarray(self.weights))).T
        if self.n_fields == 1:
            return self._mistaken(log_normal_cdf(u * signs(self.y) / self.gamma))
        y = jnp.asarray(self.y)[:, None]
        own = jnp.take_along_axis(u, y, axis=1)
        lead = (own - u) / self.gamma
        others = jnp.arange(u.shape[1]) != y
        x, log_spacing = self._noise(jax.lax.stop_gradient(lead), others)
        ahead = self._mistaken(log_normal_cdf(x[:, None, :] + lead[:, :, None]))
        log_integrand = jnp.sum(jnp.where(others[..., None], ahead, 0), axis=1) - x**2 / 2
        log_integral = jax.scipy.special.logsumexp(log_integrand, axis=1) + log_spacing
        return log_integral + self._log_scale(u.shape[1]) - math.log(2 * math.pi) / 2

    def _noise(self, lead: jax.Array, others: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Integration points that cover the integrand, shape (n_labeled, n_points), and the log of their spacing.

        Without mistakes the integrand is log-concave, and Newton's method approaches its maximum from below. With
        mistakes there may be a second maximum near 0, where the label is a mistake instead of a result of large
        noise; the points then extend from 0 to the noise beyond which mistakes alone are more likely.
        """

        def newton(_: int, top: jax.Array) -> jax.Array:
            z = top[:, None] + lead
            density = jnp.exp(-(z**2) / 2 - log_normal_cdf(z)) / math.sqrt(2 * math.pi)
            ratio = jnp.where(z < -8, -z - 1 / z, density)  # phi / Psi; its asymptote in the tail
            ratio = jnp.where(others, ratio, 0)
            return top + (ratio.sum(axis=1) - top) / (1 + jnp.sum(ratio * (z + ratio), axis=1))

        top = jax.lax.fori_loop(0, 4, newton, jnp.zeros_like(lead[:, 0]))  # four copies would be slow to compile
        first, n_points = top, N_POINTS
        if self.has_mistakes:
            delta = jax.lax.stop_gradient(self.delta)
            most = jnp.sqrt(2 * (lead.shape[1] - 1) * jnp.log((1 - delta) / delta))
            first, top, n_points = jnp.zeros_like(top), jnp.minimum(top, most), N_POINTS_WITH_MISTAKES
        spacing = (top - first + 2 * REACH) / (n_points - 1)
        steps = jnp.arange(n_points, dtype=lead.dtype)
        return (first - REACH)[:, None] + spacing[:, None] * steps, jnp.log(spacing)

    def _mistaken(self, log_right: jax.Array) -> jax.Array:
        """``log(delta + (1 - 2 delta) p)`` from log p."""
        if not self.has_mistakes:
            return log_right
        return jnp.logaddexp(jnp.log(self.delta), jnp.log1p(-2 * self.delta) + log_right)

    def _log_scale(self, n_classes: int) -> jax.Array | float:
        """Minus the log of ``(1 - delta)^(K - 1) sum_{m < K} r^m``, which normalizes the label probabilities."""
        if not self.has_mistakes:
            return 0.0
        ratio = self.delta / (1 - self.delta)
        total = sum(ratio**m for m in range(1, n_classes))
        return -((n_classes - 1) * jnp.log1p(-self.delta) + jnp.log1p(total))

    def walls(self) -> Walls:
        """Walls of the noisy fields, which only mistakes can cross."""
        delta = float(self.delta)
        height = math.log((1 - delta) / delta) if delta else math.inf
        return Walls(float(self.gamma), height, leader_only=False, scale=self._scale)

    @property
    def _scale(self) -> NDArray[np.float64] | None:
        """The factor of each label's fields by which its noise becomes gamma."""
        return None if self.weights is None else np.sqrt(self.weights)

    def sites(self) -> Sites | StarSites:
        """Sites on one field, or on the star of differences between the label's field and the others."""
        from graphuq.inference.sites import Sites
        from graphuq.inference.stars import StarSites

        gamma, log_flip = float(self.gamma), math.log(self.delta) if self.has_mistakes else -math.inf
        noise: Any = {"noise": gamma**2, "log_flip": log_flip, "noise_slope": 2 * gamma, "scale": self._scale}
        if self.n_fields == 1:
            return Sites(np.asarray(signs(self.y), float), **noise)
        return StarSites(np.asarray(self.y), int(self.n_classes or 0), **noise)

    def curvature(self) -> Curvature:
        """At most one over the noise variance; convex without mistakes."""
        largest = 1.0 if self.weights is None else float(self.weights.max())
        return Curvature(largest / float(self.gamma) ** 2, convex=not self.has_mistakes)

    def default_sampler(self) -> Sampler:
        """`Orthant`: exact trajectories."""
        from graphuq.inference.orthant import Orthant

        return Orthant()

    def hyperprior(self) -> Hyperprior:
        """The hyperprior; with more than two classes, it has no mistakes, for which EP would have no fixed point."""
        from graphuq.learning.hyperprior import Hyperprior

        return Hyperprior() if self.n_classes == 2 else Hyperprior(mistakes=None)


# log(erfc(z) / t) + z^2 as a polynomial in t = 1 / (1 + z/2), z >= 0, to 1.2e-7 (Press, Teukolsky, Vetterling,
# Flannery, Numerical Recipes, 2nd ed., Sec. 6.2); the constant term comes last.
_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807,
    -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip


def log_normal_cdf(x: jax.Array) -> jax.Array:
    """``log Psi(x)``, accurate far in the tail; a fit with one exp and one log in single precision."""
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
