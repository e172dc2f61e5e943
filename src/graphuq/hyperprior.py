"""Four numbers in; the variances they give to the modes of a graph, and how plausible they are, out.

The matern prior ``v_j ~ (lambda_j + tau^2)^-alpha`` is followed along coordinates in which it changes
evenly, the logarithms of

- diffusion ``t = alpha / tau^2``: the variances start to fall as ``exp(-t lambda)``;
- alpha: how they go on falling; as alpha grows ``(1 + t lambda / alpha)^-alpha -> exp(-t lambda)``, so that
  there is nothing to run away to (along tau, alpha alone has no limit);
- gamma: the noise of the labels, where u has variance 1 on average (tr C = N);
- offset: the variance of the constant mode q_0 over that of all other modes together. Where one class is
  larger than the other it has to be large, where they are alike it is better small.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._pytree import pytree
from graphuq.models.base import Model
from graphuq.models.level_set import LevelSet
from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]

# Outside of these nothing changes any more. Eigenvalues of the normalized Laplacian end at 2: with t < 0.5
# all modes weigh alike, with t > 1e5 eigenvalues of 1e-5 still count. alpha = 100 is the heat kernel
# exp(-t lambda) to a few percent. Noise of 1e-3 is none, of 30 drowns the labels; in the level-set model
# every label is right at gamma = 0.3 (odds of 2e-10) and none says anything at 30.
BOUNDS = {"diffusion": (0.5, 1e5), "alpha": (0.5, 100.0), "gamma": (1e-3, 30.0), "offset": (1e-6, 1e3)}
LEVEL_SET_GAMMA = (0.3, 30.0)


class Hyperparameters(NamedTuple):
    """What `prior.matern` and a model are made with.

    On a graph of several components `constant` is that of q_0 alone, where `prior.matern` gives it to every mode
    of eigenvalue zero: take `Learned.prior` there.
    """

    tau: float
    alpha: float
    gamma: float
    constant: float


@dataclass(frozen=True)
class LogNormal:
    """A number that lies within a factor of its median with probability 0.68; a factor of 1 fixes it."""

    median: float
    factor: float

    def __post_init__(self) -> None:
        if not (0 < self.median < np.inf and 1 <= self.factor < np.inf):
            raise ValueError(
                f"A median must be a finite number above 0 and a factor at least 1, got {self.median} "
                f"and {self.factor}."
            )


@dataclass(frozen=True)
class Hyperprior:
    """What is believed of the hyper-parameters before a label is seen: weak, but not nothing.

    With ten labels the evidence says little, and this decides. The defaults are round numbers near where
    the evidence of 40 and 160 labels peaks on public data, with gamma and offset moved up and `n_effective`
    chosen by the log-loss of predictions from 10 and 40 labels, a tenth of them wrong or none.
    experiments/hyperprior.py shows where those peaks lie, and what tuning every number by log-loss would
    gain on data it saw and on data left out.

    Attributes:
        diffusion, alpha, gamma, offset: see the top of this file; diffusion is in units of one over the
            mean degree for the Laplacian ``D - A``.
        n_effective: of ``1 / sum_j p_j^2`` modes, p_j the share of mode j >= 1 in the variance: the one
            number that graphs of every kind agree on. Classes are told apart by few modes.
    """

    diffusion: LogNormal = LogNormal(80.0, 5.0)
    alpha: LogNormal = LogNormal(8.0, 2.25)
    gamma: LogNormal = LogNormal(0.08, 3.7)
    offset: LogNormal = LogNormal(0.05, 7.4)
    n_effective: LogNormal | None = LogNormal(2.5, 2.0)

    def __post_init__(self) -> None:
        if self.n_effective is not None and self.n_effective.factor == 1:
            raise ValueError(
                "n_effective follows from diffusion and alpha, so a factor of 1 cannot fix it: fix these two."
            )

    @classmethod
    def of(cls, model: Model) -> Hyperprior:
        """The default for a model: gamma of level-set is another quantity than that of probit."""
        return cls(gamma=LogNormal(0.75, 1.5)) if isinstance(model, LevelSet) else cls()


@pytree
class Family:
    """The matern priors of one spectrum, along ``theta = log (diffusion, alpha, gamma, offset)``.

    Methods that take `xp` run in numpy, or in jax.numpy inside a chain.

    Attributes:
        values: eigenvalues of all modes but q_0, over `scale`, shape (n_modes - 1,).
        scale: 1, or the mean degree for the Laplacian ``D - A``.
        n_nodes: number of nodes N.
        mean, deviation: of theta under the hyperprior, shape (4,).
        log_modes: log of the median and of the factor of the effective number of modes, if believed.
        lower, upper: bounds of theta, shape (4,).
    """

    values: Array
    scale: float
    n_nodes: int
    mean: Array
    deviation: Array
    log_modes: tuple[float, float] | None
    lower: Array
    upper: Array

    @classmethod
    def of(cls, spectrum: Spectrum, hyperprior: Hyperprior, model: Model) -> Family:
        """The family of a spectrum whose first mode is q_0."""
        scale = 1.0 if spectrum.normalized else float(spectrum.degrees.mean())
        believed = [getattr(hyperprior, name) for name in BOUNDS]
        bounds = BOUNDS | ({"gamma": LEVEL_SET_GAMMA} if isinstance(model, LevelSet) else {})
        mean = np.log([each.median for each in believed])
        deviation = np.log([each.factor for each in believed])
        lower, upper = np.log(list(bounds.values())).T
        modes = hyperprior.n_effective
        return cls(
            values=spectrum.values[1:] / scale,
            scale=scale,
            n_nodes=spectrum.n_nodes,
            mean=mean,
            deviation=deviation,
            log_modes=None if modes is None else (float(np.log(modes.median)), float(np.log(modes.factor))),
            lower=np.where(deviation > 0, np.minimum(lower, mean), mean),
            upper=np.where(deviation > 0, np.maximum(upper, mean), mean),
        )

    def log_variances(self, theta: Any, xp: ModuleType = np) -> Any:
        """``log v_j`` of every mode, q_0 first, shape (n_modes,).

            v_0 = N r / (1 + r),    v_j = N p_j / (1 + r),    p_j ~ (1 + t lambda_j / alpha)^-alpha,

        r the offset and ``sum_j p_j = 1``.
        """
        share = self.log_shares(theta, xp)
        return xp.append(theta[3], share) - xp.logaddexp(0.0, theta[3]) + xp.log(self.n_nodes)

    def log_shares(self, theta: Any, xp: ModuleType = np) -> Any:
        """``log p_j``, shape (n_modes - 1,)."""
        alpha = xp.exp(theta[1])
        weight = -alpha * xp.log1p(self.values * xp.exp(theta[0] - theta[1]))
        weight = weight - weight.max()
        return weight - xp.log(xp.exp(weight).sum())

    def jacobian(self, theta: Array) -> Array:
        """Derivatives of `log_variances`, shape (4, n_modes)."""
        x = self.values * np.exp(theta[0] - theta[1])
        alpha = np.exp(theta[1])
        falls = alpha * x / (1 + x)
        slopes = np.stack([-falls, falls - alpha * np.log1p(x)])
        slopes -= (slopes @ np.exp(self.log_shares(theta)))[:, None]  # the shares add up to one
        result = np.zeros((4, self.values.size + 1))
        result[:2, 1:] = slopes
        offset = 1 / (1 + np.exp(-theta[3]))
        result[3] = -offset
        result[3, 0] = 1 - offset
        return result

    def log_prior(self, theta: Array) -> float:
        """Log density of the hyperprior at theta, up to a constant."""
        z = (theta - self.mean)[self.free] / self.deviation[self.free]
        return float(-(z @ z) / 2 - self.surplus(theta) ** 2 / 2)

    def log_prior_gradient(self, theta: Array) -> Array:
        """Derivative of `log_prior`, shape (4,), zero along what is fixed."""
        gradient = np.zeros(4)
        gradient[self.free] = -(theta - self.mean)[self.free] / self.deviation[self.free] ** 2
        if self.log_modes is not None:
            square = np.exp(2 * self.log_shares(theta))
            slope = -2 * (self.jacobian(theta)[:2, 1:] @ square) / square.sum()
            gradient[:2] -= self.surplus(theta) * slope / self.log_modes[1]
        return np.where(self.free, gradient, 0.0)

    def n_effective(self, theta: Any, xp: ModuleType = np) -> Any:
        """The effective number of modes, ``1 / sum_j p_j^2``."""
        return 1 / xp.exp(2 * self.log_shares(theta, xp)).sum()

    def hyperparameters(self, theta: Array) -> Hyperparameters:
        """The same point as `prior.matern` and the models name it."""
        diffusion, alpha, gamma, offset = np.exp(theta)
        weights = np.exp(-alpha * np.log1p(self.values * diffusion / alpha))
        tau = np.sqrt(alpha / diffusion * self.scale)
        return Hyperparameters(float(tau), float(alpha), float(gamma), float(offset * weights.sum()))

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which coordinates are not fixed, shape (4,)."""
        return self.deviation > 0

    def surplus(self, theta: Any, xp: ModuleType = np) -> Any:
        """How far the effective number of modes is from its median, in units of its spread."""
        if self.log_modes is None:
            return 0.0
        median, spread = self.log_modes
        return (xp.log(self.n_effective(theta, xp)) - median) / spread
