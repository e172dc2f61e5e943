"""A few numbers in; the variances they give to the pieces of a prior, and how plausible they are, out.

The prior is a sum of pieces: functions that vary little along the graph, and functions linear in the features. The
matern prior of the graph, ``v_j ~ (lambda_j + tau^2)^-alpha``, is followed along coordinates in which it changes
evenly, the logarithms of

- diffusion ``t = alpha / tau^2``: the variances start to fall as ``exp(-t lambda)``;
- alpha: how they go on falling; as alpha grows ``(1 + t lambda / alpha)^-alpha -> exp(-t lambda)``, so that
  there is nothing to run away to (along tau, alpha alone has no limit);
- gamma: the noise of the labels, where the graph's part of u has variance 1 on average;
- offset: the variance of the constant mode q_0 over that of all other modes together. Where one class is
  larger than the other it has to be large, where they are alike it is better small;
- mistakes: the odds that a label is wrong, ``delta / (1 - delta)``;
- linear: the variance of the linear piece over that of the graph's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]

# Outside of these nothing changes any more. Eigenvalues of the normalized Laplacian end at 2: with t < 0.5
# all modes weigh alike, with t > 1e5 eigenvalues of 1e-5 still count. alpha = 100 is the heat kernel
# exp(-t lambda) to a few percent. Noise of 1e-3 is none, of 30 drowns the labels.
BOUNDS = {
    "diffusion": (0.5, 1e5),
    "alpha": (0.5, 100.0),
    "gamma": (1e-3, 30.0),
    "offset": (1e-6, 1e3),
    "mistakes": (1e-7, 0.5),
    "linear": (1e-6, 1e4),
}
DIFFUSION, ALPHA, GAMMA, OFFSET, MISTAKES, LINEAR = range(len(BOUNDS))


class Hyperparameters(NamedTuple):
    """The numbers that are learned; `mistakes` is delta, the share of labels that are wrong."""

    tau: float
    alpha: float
    gamma: float
    constant: float
    mistakes: float
    linear: float


@dataclass(frozen=True)
class LogNormal:
    """A number that lies within a factor of its median with probability 0.68; a factor of 1 fixes it.

    `bounds` are where it is looked for, by default those of its kind.
    """

    median: float
    factor: float
    bounds: tuple[float, float] | None = None

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
        diffusion, alpha, gamma, offset, mistakes, linear: see the top of this file; diffusion is in units of one
            over the mean degree for the Laplacian ``D - A``. None leaves mistakes, or the linear piece, out.
        n_effective: of ``1 / sum_j p_j^2`` modes, p_j the share of mode j >= 1 in the variance: the one
            number that graphs of every kind agree on. Classes are told apart by few modes.
    """

    diffusion: LogNormal = LogNormal(80.0, 5.0)
    alpha: LogNormal = LogNormal(8.0, 2.25)
    gamma: LogNormal = LogNormal(0.08, 3.7)
    offset: LogNormal = LogNormal(0.05, 7.4)
    n_effective: LogNormal | None = LogNormal(2.5, 2.0)
    mistakes: LogNormal | None = None
    linear: LogNormal | None = LogNormal(0.1, 9.0)

    def __post_init__(self) -> None:
        if self.n_effective is not None and self.n_effective.factor == 1:
            raise ValueError(
                "n_effective follows from diffusion and alpha, so a factor of 1 cannot fix it: fix these two."
            )

    @classmethod
    def level_set(cls) -> Hyperprior:
        """Of the level-set model, whose gamma is another quantity than that of probit.

        Every label is right at gamma = 0.3 (odds of 2e-10) and none says anything at 30.
        """
        return cls(gamma=LogNormal(0.75, 1.5, bounds=(0.3, 30.0)), mistakes=None)


@dataclass(frozen=True)
class Family:
    """The priors of one spectrum, and of features, along theta, the logarithms of the numbers above.

    Columns of the basis are the features first, then q_0, then all other modes.

    Attributes:
        values: eigenvalues of all modes but q_0, over `scale`, shape (n_modes - 1,).
        scale: 1, or the mean degree for the Laplacian ``D - A``.
        n_nodes: number of nodes N.
        n_linear: columns of features.
        mean, deviation: of theta under the hyperprior, shape (6,).
        log_modes: log of the median and of the factor of the effective number of modes, if believed.
        lower, upper: bounds of theta, shape (6,).
    """

    values: Array
    scale: float
    n_nodes: int
    n_linear: int
    mean: Array
    deviation: Array
    log_modes: tuple[float, float] | None
    lower: Array
    upper: Array

    @classmethod
    def of(cls, spectrum: Spectrum, hyperprior: Hyperprior, n_linear: int = 0) -> Family:
        """The family of a spectrum whose first mode is q_0."""
        scale = 1.0 if spectrum.normalized else float(spectrum.degrees.mean())
        absent = LogNormal(1e-300, 1.0)
        believed = [getattr(hyperprior, name) or absent for name in BOUNDS]
        if n_linear == 0:
            believed[LINEAR] = absent
        mean = np.log([each.median for each in believed])
        deviation = np.log([each.factor for each in believed])
        bounds = [each.bounds or BOUNDS[name] for name, each in zip(BOUNDS, believed, strict=True)]
        lower, upper = np.log(bounds).T
        modes = hyperprior.n_effective
        return cls(
            values=spectrum.values[1:] / scale,
            scale=scale,
            n_nodes=spectrum.n_nodes,
            n_linear=n_linear,
            mean=mean,
            deviation=deviation,
            log_modes=None if modes is None else (float(np.log(modes.median)), float(np.log(modes.factor))),
            lower=np.where(deviation > 0, np.minimum(lower, mean), mean),
            upper=np.where(deviation > 0, np.maximum(upper, mean), mean),
        )

    def log_variances(self, theta: Array) -> Array:
        """``log v_j`` of every column, shape (n_linear + n_modes,).

            v_0 = N r / (1 + r),    v_j = N p_j / (1 + r),    p_j ~ (1 + t lambda_j / alpha)^-alpha,

        r the offset and ``sum_j p_j = 1``; that of a feature is `linear`.
        """
        graph = np.append(theta[OFFSET], self.log_shares(theta)) - np.logaddexp(0.0, theta[OFFSET])
        return np.concatenate([np.full(self.n_linear, theta[LINEAR]), graph + np.log(self.n_nodes)])

    def log_shares(self, theta: Array) -> Array:
        """``log p_j``, shape (n_modes - 1,)."""
        alpha = np.exp(theta[ALPHA])
        weight = -alpha * np.log1p(self.values * np.exp(theta[DIFFUSION] - theta[ALPHA]))
        weight = weight - weight.max()
        return np.asarray(weight - np.log(np.exp(weight).sum()))

    def jacobian(self, theta: Array) -> Array:
        """Derivatives of `log_variances`, shape (6, n_linear + n_modes)."""
        x = self.values * np.exp(theta[DIFFUSION] - theta[ALPHA])
        alpha = np.exp(theta[ALPHA])
        falls = alpha * x / (1 + x)
        slopes = np.stack([-falls, falls - alpha * np.log1p(x)])
        slopes -= (slopes @ np.exp(self.log_shares(theta)))[:, None]  # the shares add up to one
        result = np.zeros((len(BOUNDS), self.n_linear + self.values.size + 1))
        graph = result[:, self.n_linear :]
        graph[[DIFFUSION, ALPHA], 1:] = slopes
        offset = 1 / (1 + np.exp(-theta[OFFSET]))
        graph[OFFSET] = -offset
        graph[OFFSET, 0] = 1 - offset
        result[LINEAR, : self.n_linear] = 1.0
        return result

    def log_prior(self, theta: Array) -> float:
        """Log density of the hyperprior at theta, up to a constant."""
        z = (theta - self.mean)[self.free] / self.deviation[self.free]
        return float(-(z @ z) / 2 - self.surplus(theta) ** 2 / 2)

    def log_prior_gradient(self, theta: Array) -> Array:
        """Derivative of `log_prior`, shape (6,), zero along what is fixed."""
        gradient = np.zeros(len(BOUNDS))
        gradient[self.free] = -(theta - self.mean)[self.free] / self.deviation[self.free] ** 2
        if self.log_modes is not None:
            square = np.exp(2 * self.log_shares(theta))
            shapes = self.jacobian(theta)[[DIFFUSION, ALPHA], self.n_linear + 1 :]
            slope = -2 * (shapes @ square) / square.sum()
            gradient[[DIFFUSION, ALPHA]] -= self.surplus(theta) * slope / self.log_modes[1]
        return np.where(self.free, gradient, 0.0)

    def hyperparameters(self, theta: Array) -> Hyperparameters:
        """The same point as `prior.matern` and the models name it."""
        diffusion, alpha, gamma, offset, odds, linear = np.exp(theta)
        weights = np.exp(-alpha * np.log1p(self.values * diffusion / alpha))
        tau = np.sqrt(alpha / diffusion * self.scale)
        found = (tau, alpha, gamma, offset * weights.sum(), odds / (1 + odds), linear if self.n_linear else 0.0)
        return Hyperparameters(*map(float, found))

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which coordinates are not fixed, shape (6,)."""
        return self.deviation > 0

    def n_effective(self, theta: Array) -> float:
        """The effective number of modes, ``1 / sum_j p_j^2``."""
        return float(1 / np.exp(2 * self.log_shares(theta)).sum())

    def surplus(self, theta: Array) -> Any:
        """How far the effective number of modes is from its median, in units of its spread."""
        if self.log_modes is None:
            return 0.0
        median, spread = self.log_modes
        return (np.log(self.n_effective(theta)) - median) / spread
