"""The Bayesian level-set model: a label is the sign of u, or its largest field, plus noise (Sec. 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
        """The negative log likelihood of u at the labeled nodes, up to a constant."""
        return jnp.sum(self._wrong(u)) * self._height

    def log_likelihood(self, u: jax.Array) -> jax.Array:
        """The log likelihood of each label, where labels are the possible values of S, shape (n_labeled,)."""
        n_others = (self.n_classes or 2) - 1
        return -self._wrong(u) * self._height - jnp.log1p(n_others * jnp.exp(-self._height))

    @property
    def _height(self) -> Any:
        """What a label on the wrong side adds to Phi."""
        return (2 if self.n_fields == 1 else 1) / self.gamma**2

    def _wrong(self, u: jax.Array) -> jax.Array:
        """1 for a label on the wrong side, and 0 for others."""
        y = jnp.asarray(self.y)
        wrong = (u >= 0) != (y == 1) if self.n_fields == 1 else jnp.argmax(u, axis=1) != y
        return wrong.astype(u.dtype)

    @property
    def mistake_rate(self) -> float:
        """The probability that a label is on the wrong side."""
        others = ((self.n_classes or 2) - 1) * np.exp(-self.walls().height)
        return float(others / (1 + others))

    def walls(self) -> Walls:
        """Walls of finite height, where the label's field starts or stops being the largest."""
        return Walls(0.0, min(float(self._height), HIGHEST_WALL), leader_only=True)

    def offers(self, *names: str) -> bool:
        """As for any model, except that sites need a single field: with several, Phi depends on all at once."""
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
