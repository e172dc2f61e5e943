"""Hyper-parameters in; the variances of the prior's columns, and the log density of the hyperprior, out.

u is a sum of three pieces, in units of the label noise:

    u = constant + function of the features + smooth function on the graph,
    C = c^2 1 1^T + a^2 H H^T + b^2 N sum_j p_j q_j q_j^T,    p_j ~ (1 + t lambda_j / alpha)^-alpha,    sum_j p_j = 1.

H are the columns of a `FeaturePiece`: either the linear ones alone, or the linear and the bent ones, each with a
fixed share of the variance. Their squares add up to 1 at an average row, so a and b are the standard deviations of
the pieces there. ``c = kappa sqrt(1 + a^2 + b^2)`` makes the prior share of one of two classes
``Psi(kappa N(0, 1))``, which is uniform for kappa = 1. The Matern shares ``p_j ~ (lambda_j + tau^2)^-alpha`` are
parameterized by the diffusion time ``t = alpha / tau^2``: for small lambda they decay as ``exp(-t lambda)``. The
learned parameters are the logarithms of

- diffusion t, and alpha, the decay of the shares at large lambda;
- graph b, linear a (with or without bent columns), constant kappa;
- mistakes: the odds that a label is wrong, ``delta / (1 - delta)``;
- gamma: the noise. For probit it is the unit of the others; for level-set it sets how often labels are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect, expect_number
from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]

# Beyond these bounds hardly anything changes. Eigenvalues of the normalized Laplacian are at most 2: for t < 0.5
# all modes have similar weight, and at t = 1e5 even eigenvalues of 1e-5 matter. alpha = 100 is the heat kernel
# exp(-t lambda) to a few percent. Where u is a thousand times the noise, labels are nearly certain; at a hundredth
# of it they carry no information. More than 18% mistakes are indistinguishable from overlapping classes.
BOUNDS = {
    "diffusion": (0.5, 1e5),
    "alpha": (0.5, 100.0),
    "graph": (0.01, 1e3),
    "linear": (0.01, 1e3),
    "constant": (0.01, 1e3),
    "mistakes": (1e-5, 0.22),
    "gamma": (1e-3, 30.0),
}
# Of the starting points, the first has at most this `graph`; the second has this many times the median `mistakes`.
LARGEST_START = 3.0
MORE_MISTAKES = 5.0
# What may be left out of a hyperprior.
OPTIONAL = ("graph", "linear", "mistakes", "n_effective")
DIFFUSION, ALPHA, GRAPH, LINEAR, CONSTANT, MISTAKES, GAMMA = range(len(BOUNDS))


class Hyperparameters(NamedTuple):
    """The hyper-parameters. `mistakes` is delta, the share of wrong labels. 0 means that a piece is absent.

    The function of the features has the variance ``a^2 = linear^2 + bent^2``.
    """

    tau: float
    alpha: float
    graph: float
    linear: float
    bent: float
    constant: float
    mistakes: float
    gamma: float


@dataclass(frozen=True)
class LogNormal:
    """A log-normal prior, within `factor` of `median` with probability 0.68; a factor of 1 fixes the value.

    `bounds` limit the search; by default they are those of the hyper-parameter in `BOUNDS`.
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
    """The prior of the hyper-parameters: weakly informative.

    With ten labels the evidence carries little information, and the hyperprior matters. The defaults were chosen
    by log-loss on some tables and evaluated on others: experiments/tables.py.

    Attributes:
        diffusion, alpha, graph, linear, constant, mistakes, gamma: see the module docstring; diffusion is in units
            of one over the mean degree for the Laplacian ``D - A``. None omits a piece, or mistakes.
        beside_linear: replaces `graph` in structures that also have a function of the features.
        bent: the share of the variance that bent columns have in a bent function of the features; None omits them.
        constant_alone: weight of the structure without any piece, in which classes are unrelated to rows, relative to
            the others; None omits it.
        n_effective: prior of the effective number of modes ``1 / sum_j p_j^2``, per boundary between classes. Few
            modes separate classes, and this number is similar on graphs of all kinds.
    """

    diffusion: LogNormal = LogNormal(80.0, 5.0)
    alpha: LogNormal = LogNormal(8.0, 1.0)
    graph: LogNormal | None = LogNormal(12.0, 3.7)
    linear: LogNormal | None = LogNormal(1.0, 3.0)
    constant: LogNormal = LogNormal(0.5, 2.0)
    mistakes: LogNormal | None = LogNormal(0.018, 2.7)
    gamma: LogNormal = LogNormal(1.0, 1.0)
    beside_linear: LogNormal = LogNormal(3.0, 3.0)
    bent: float | None = 0.8
    constant_alone: float | None = 0.2
    n_effective: LogNormal | None = LogNormal(2.5, 2.0)

    def __post_init__(self) -> None:
        for name in (*BOUNDS, "beside_linear", "n_effective"):
            optional = name in OPTIONAL
            kinds = (LogNormal, type(None)) if optional else LogNormal
            expect(getattr(self, name), kinds, name, f"a LogNormal(median, factor){' or None' * optional}")
        if self.n_effective is not None and self.n_effective.factor == 1:
            raise ValueError(
                "n_effective follows from diffusion and alpha, so a factor of 1 cannot fix it: fix these two."
            )
        if self.graph is None and self.linear is None and self.constant_alone is None:
            raise ValueError("graph, linear and constant_alone are all left out: one of them is needed.")
        if self.constant_alone is not None:
            expect_number(self.constant_alone, "constant_alone")
        if self.bent is not None and not 0 < self.bent < 1:
            raise ValueError(f"bent must be a share between 0 and 1, or None, got {self.bent}.")

    @classmethod
    def level_set(cls) -> Hyperprior:
        """The hyperprior of the level-set model: gamma sets how often labels are wrong, and u has no scale.

        At gamma = 0.3 all labels are right (odds of a mistake 2e-10); at gamma = 30 labels carry no information. There is
        no structure of a constant alone, whose evidence would be wrong: all labels contradict each other there.
        """
        gamma = LogNormal(0.75, 1.5, bounds=(0.3, 30.0))
        return cls(graph=LogNormal(1.0, 1.0), mistakes=None, gamma=gamma, constant_alone=None)

    def structures(self, n_linear: int = 0, n_bent: int = 0) -> list[Hyperprior]:
        """The hyperpriors of all structures, between which the evidence decides.

        These are the graph alone, the features alone (linear or bent), both, and the constant alone. Each structure
        with a piece comes after the simpler ones that it extends.
        """
        found = [] if self.graph is None else [replace(self, linear=None)]
        of_features = [replace(self, bent=None)] + ([self] if self.bent is not None and n_bent else [])
        for each in of_features if self.linear is not None and n_linear else ():
            found.append(replace(each, graph=None))
            if self.graph is not None:
                found.append(replace(each, graph=self.beside_linear if self.graph.factor > 1 else self.graph))
        if self.constant_alone is not None:
            found.append(replace(self, graph=None, linear=None))
        if not found:
            raise ValueError("The hyperprior has no piece but linear, which needs features: give them to learn.")
        return found


@dataclass(frozen=True, eq=False)
class Family:
    """The priors of one structure, parameterized by theta, the logarithms listed in the module docstring.

    The columns of the basis are those of the features, bent before linear, then 1, then all modes but q_0, as far
    as the structure has them.

    Attributes:
        values: eigenvalues of these modes divided by `scale`, shape (n_modes - 1,); empty without a graph piece.
        scale: 1, or the mean degree for the Laplacian ``D - A``.
        n_nodes: number of nodes N.
        log_parts: logarithms of the shares of a^2 of the feature columns, shape (n_features,).
        mean, deviation: mean and standard deviation of theta under the hyperprior, shape (7,).
        log_modes: logs of the median and of the factor of the effective number of modes, if it has a prior.
        lower, upper: bounds of theta, shape (7,).
        log_weight: log of the prior weight of the structure.
    """

    values: Array
    scale: float
    n_nodes: int
    log_parts: Array
    mean: Array
    deviation: Array
    log_modes: tuple[float, float] | None
    lower: Array
    upper: Array
    log_weight: float = 0.0

    @classmethod
    def of(
        cls, spectrum: Spectrum, hyperprior: Hyperprior, n_linear: int = 0, n_bent: int = 0, n_classes: int = 2
    ) -> Family:
        """The family for a spectrum whose first mode is q_0.

        The effective number of modes scales with the number of classes, since each has a boundary. With bent
        columns, structures with a linear and with a bent function of the features have half the weight each;
        `n_bent` is 0 if the bent columns are left out. The constant alone has a weight of its own.
        """
        scale = 1.0 if spectrum.normalized else float(spectrum.degrees.mean())
        absent = LogNormal(1e-100, 1.0)
        priors = [getattr(hyperprior, name) or absent for name in BOUNDS]
        if hyperprior.graph is None:
            priors[DIFFUSION] = LogNormal(hyperprior.diffusion.median, 1.0)
        mean = np.log([each.median for each in priors])
        deviation = np.log([each.factor for each in priors])
        bounds = [each.bounds or BOUNDS[name] for name, each in zip(BOUNDS, priors, strict=True)]
        lower, upper = np.log(bounds).T
        modes = hyperprior.n_effective if hyperprior.graph is not None else None
        log_parts = np.zeros(0 if hyperprior.linear is None else n_linear)
        if log_parts.size and n_bent and hyperprior.bent is not None:
            log_parts = np.log(np.repeat([hyperprior.bent, 1 - hyperprior.bent], [n_bent, n_linear]))
        alone = hyperprior.graph is None and hyperprior.linear is None
        weight = 0.5 if log_parts.size and n_bent else 1.0
        if alone and hyperprior.constant_alone is not None:
            weight = hyperprior.constant_alone
        return cls(
            values=spectrum.values[1:] / scale if hyperprior.graph is not None else np.empty(0),
            scale=scale,
            n_nodes=spectrum.n_nodes,
            log_parts=log_parts,
            mean=mean,
            deviation=deviation,
            log_modes=None if modes is None else (np.log(modes.median * n_classes / 2), np.log(modes.factor)),
            lower=np.where(deviation > 0, np.minimum(lower, mean), mean),
            upper=np.where(deviation > 0, np.maximum(upper, mean), mean),
            log_weight=float(np.log(weight)),
        )

    @property
    def n_features(self) -> int:
        """Number of feature columns."""
        return self.log_parts.size

    @property
    def starts(self) -> list[Array]:
        """Starting points: the median with a limited graph deviation, and the median with more mistakes.

        Labels that contradict each other are explained by small fields or by mistakes, which are separate maxima.
        With large fields and few mistakes expectation propagation may have no fixed point.
        """
        start = np.clip(self.mean, self.lower, self.upper)
        smaller = np.minimum(start[GRAPH], np.log(LARGEST_START)) if self.free[GRAPH] else start[GRAPH]
        more = np.minimum(start[MISTAKES] + np.log(MORE_MISTAKES), self.upper[MISTAKES])
        first, second = start.copy(), start
        first[GRAPH], second[MISTAKES] = smaller, more
        return [first, second] if self.free[MISTAKES] else [first]

    @property
    def free(self) -> NDArray[np.bool_]:
        """Mask of the coordinates of theta that are not fixed, shape (7,)."""
        return self.deviation > 0

    def log_variances(self, theta: Array) -> Array:
        """``log v_j`` of every column, shape (n_features + 1 + n_modes - 1,)."""
        graph = np.log(self.n_nodes) + 2 * theta[GRAPH] + self.log_shares(theta)
        constant = 2 * theta[CONSTANT] + np.log(self._spread(theta).sum())
        return np.concatenate([2 * theta[LINEAR] + self.log_parts, [constant], graph])

    def _spread(self, theta: Array) -> Array:
        """``1, a^2, b^2``: the variances of noise, features and graph at an average row."""
        present = np.array([1.0, self.n_features > 0, self.values.size > 0])
        return present * np.exp([0.0, 2 * theta[LINEAR], 2 * theta[GRAPH]])

    def log_shares(self, theta: Array) -> Array:
        """``log p_j`` of every mode."""
        if not self.values.size:
            return self.values
        alpha = np.exp(theta[ALPHA])
        weight = -alpha * np.log1p(self.values * np.exp(theta[DIFFUSION] - theta[ALPHA]))
        weight = weight - weight.max()
        return np.asarray(weight - np.log(np.exp(weight).sum()))

    def jacobian(self, theta: Array) -> Array:
        """Derivatives of `log_variances`, shape (7, n_columns)."""
        x = self.values * np.exp(theta[DIFFUSION] - theta[ALPHA])
        alpha = np.exp(theta[ALPHA])
        decay = alpha * x / (1 + x)
        slopes = np.stack([-decay, decay - alpha * np.log1p(x)])
        slopes -= (slopes @ np.exp(self.log_shares(theta)))[:, None]  # normalization of the shares
        result = np.zeros((len(BOUNDS), self.n_features + 1 + self.values.size))
        result[LINEAR, : self.n_features] = 2.0
        spread = self._spread(theta)
        result[[LINEAR, GRAPH], self.n_features] = 2 * spread[1:] / spread.sum()
        result[CONSTANT, self.n_features] = 2.0
        graph = result[:, self.n_features + 1 :]
        graph[[DIFFUSION, ALPHA]] = slopes
        graph[GRAPH] = 2.0
        return result

    def log_prior(self, theta: Array) -> float:
        """Log density of the hyperprior at theta, plus the log weight of the structure.

        The factor of the effective number of modes is not normalized: structures with a graph weigh less by what it
        integrates to, half to a tenth. On the data for choosing that is as good as any constant in its place.
        """
        z = (theta - self.mean)[self.free] / self.deviation[self.free]
        constant = np.log(np.sqrt(2 * np.pi) * self.deviation[self.free]).sum()
        return float(self.log_weight - (z @ z) / 2 - constant - self.surplus(theta) ** 2 / 2)

    def log_prior_gradient(self, theta: Array) -> Array:
        """Gradient of `log_prior`, shape (7,), zero in fixed coordinates."""
        gradient = np.zeros(len(BOUNDS))
        gradient[self.free] = -(theta - self.mean)[self.free] / self.deviation[self.free] ** 2
        if self.log_modes is not None:
            square = np.exp(2 * self.log_shares(theta))
            shapes = self.jacobian(theta)[[DIFFUSION, ALPHA], self.n_features + 1 :]
            slope = -2 * (shapes @ square) / square.sum()
            gradient[[DIFFUSION, ALPHA]] -= self.surplus(theta) * slope / self.log_modes[1]
        return np.where(self.free, gradient, 0.0)

    def hyperparameters(self, theta: Array) -> Hyperparameters:
        """The hyper-parameters at theta, as parameters of `prior.matern` and of the models."""
        diffusion, alpha, graph, linear, constant, odds, gamma = np.exp(theta)
        parts = np.exp(self.log_parts)
        values = (
            np.sqrt(alpha / diffusion * self.scale),
            alpha,
            graph if self.values.size else 0.0,
            linear * np.sqrt(parts[-1]) if parts.size else 0.0,
            linear * np.sqrt(1 - parts[-1]) if parts.size else 0.0,
            constant,
            odds / (1 + odds) if odds > 1e-50 else 0.0,
            gamma,
        )
        return Hyperparameters(*map(float, values))

    def log_changes(self, theta: Array, axes: Array) -> Array:
        """Derivatives of the logs of `hyperparameters` along n axes of theta: shape (8, n) from (7, n)."""
        changes = axes.copy()
        changes[DIFFUSION] = (axes[ALPHA] - axes[DIFFUSION]) / 2  # tau^2 = alpha / diffusion
        changes[MISTAKES] *= 1 - self.hyperparameters(theta).mistakes
        return np.insert(changes, LINEAR, axes[LINEAR], axis=0)  # linear and bent change together

    def n_effective(self, theta: Array) -> float:
        """The effective number of modes, ``1 / sum_j p_j^2``."""
        return float(1 / np.exp(2 * self.log_shares(theta)).sum())

    def surplus(self, theta: Array) -> Any:
        """Deviation of the log effective number of modes from its prior mean, in standard deviations."""
        if self.log_modes is None:
            return 0.0
        median, spread = self.log_modes
        return (np.log(self.n_effective(theta)) - median) / spread
