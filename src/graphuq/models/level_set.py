"""The Bayesian level-set model: a label is the sign of u, or its largest field, plus noise (Sec. 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphuq._pytree import pytree, static
from graphuq.models.base import Curvature, Model, Walls, check_label_model, signs

if TYPE_CHECKING:
    from graphuq.inference.sampler import Sampler
    from graphuq.inference.sites import Sites
    from graphuq.learning.hyperprior import Hyperprior


# A wall of this height is never crossed (probability e^-10,000); higher ones overflow in single precision.
HIGHEST_WALL = 1e4


@pytree
class LevelSet(Model):
    """``y_j = S(u_j) + eta_j``, ``eta_j ~ N(0, gamma^2)``, with S(0) = +1.

        Phi(u; y) = sum_j |y_j - S(u_j)|^2 / (2 gamma^2)

    Each label on the wrong side adds ``2 / gamma^2``. With one field for each of K classes, S(u) is the unit
    vector e_k of the largest field u_k and y_j that of the label, so that a wrong label adds ``1 / gamma^2``. Phi
    is piecewise constant: its gradient carries no information and the posterior has no mode.
    """

    nodes: NDArray[np.int64] | None = None
    y: NDArray[np.int64] | None = None
    gamma: float = 0.1
    n_classes: int | None = static(default=None)
    n_fields: int | None = static(default=None)

    numbers = ("gamma",)

    def __post_init__(self) -> None:
        check_label_model(self)

    def phi(self, u: jax.Array) -> jax.Array:
        """The negative log likelihood of u at the labeled nodes."""
        return -jnp.sum(self.log_likelihood(u))

    def log_likelihood(self, u: jax.Array) -> jax.Array:
        """The log likelihood of each label, up to a constant, shape (n_labeled,)."""
        if self.n_fields == 1:
            sign = jnp.where(u >= 0, 1.0, -1.0).astype(u.dtype)
            return -((signs(self.y) - sign) ** 2) / (2 * self.gamma**2)
        wrong = jnp.argmax(u, axis=1) != jnp.asarray(self.y)
        return -wrong.astype(u.dtype) / self.gamma**2

    @property
    def mistake_rate(self) -> float:
        """The probability that a label is on the wrong side."""
        others = ((self.n_classes or 2) - 1) * np.exp(-self.walls().height)
        return float(others / (1 + others))

    def walls(self) -> Walls:
        """Walls of finite height, where the label's field starts or stops being the largest."""
        height = (2 if self.n_fields == 1 else 1) / float(self.gamma) ** 2
        return Walls(0.0, min(height, HIGHEST_WALL), leader_only=True)

    def offers(self, *names: str) -> bool:
        """As of any model, but sites only of one field: with several, Phi depends on all at once."""
        return super().offers(*names) and (self.n_fields == 1 or "sites" not in names)

    def sites(self) -> Sites:
        """Sites of one field; with several there is no closed form."""
        from graphuq.inference.sites import Sites

        if self.n_fields != 1:
            return super().sites()
        return Sites.level_set(np.asarray(signs(self.y), float), float(self.gamma))

    def curvature(self) -> Curvature:
        """Unbounded: steps have no second derivative, and the posterior has no mode."""
        return Curvature(np.inf, convex=False)

    def default_sampler(self) -> Sampler:
        """`Orthant`: exact trajectories."""
        from graphuq.inference.orthant import Orthant

        return Orthant()

    def hyperprior(self) -> Hyperprior:
        """The hyperprior of the level-set model, whose gamma is a different quantity from probit's."""
        from graphuq.learning.hyperprior import Hyperprior

        return Hyperprior.level_set()
