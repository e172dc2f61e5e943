"""Labels and a model in; out, for a Gaussian belief about each labeled value, what its label adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfcx, log_expit, log_ndtr, ndtr, owens_t

if TYPE_CHECKING:
    from graphuq.inference.ep import EP

Vector = NDArray[np.float64]

# Where mistakes are likelier than this, a probability with them cannot underflow, and needs no logarithm of its tail.
LEAST_LOG_FLIP = -600.0


class Match(NamedTuple):
    """What one label makes of a Gaussian belief, one entry per label.

    The site ``exp(shift f - precision f^2 / 2)`` turns the belief into a Gaussian with the same
    mean and variance as the belief times the likelihood.
    """

    log_z: Vector  # log probability of the label under the belief
    precision: Vector  # negative where the label makes the belief wider
    shift: Vector


@dataclass(frozen=True, eq=False)
class Sites:
    """Probit and level-set of one field are one likelihood: a sign seen through noise and then flipped, or not.

        P(y_j | f_j) = flip + (1 - 2 flip) Psi(y_j f_j; sqrt(noise + tail)).

    Probit (Sec. 3.1) has ``noise = gamma^2`` and no flips. Level-set (Sec. 3.2) has no noise and
    flips with odds ``exp(-2 / gamma^2)``: its exp(-Phi), divided by ``1 + exp(-2 / gamma^2)`` so
    that the two labels have probabilities that add to one. `tail` is the variance of an
    independent part of u: u_j = f_j + N(0, tail).

    Attributes:
        y: labels, -1 or +1, shape (n_labeled,).
        noise: variance of the noise added to u.
        log_flip: log of the probability that the label is not the sign.
        tail: variance of u_j that f_j does not carry.
        noise_slope: derivative of `noise` with respect to gamma.
        flip_slope: derivative of `log_flip` with respect to gamma.
    """

    y: Vector
    noise: float
    log_flip: float
    tail: float = 0.0
    noise_slope: float = 0.0
    flip_slope: float = 0.0

    @classmethod
    def level_set(cls, y: Vector, gamma: float) -> Sites:
        """The sites of `LevelSet`."""
        odds = 2 / gamma / gamma
        log_flip = float(log_expit(-odds))
        # A slope times a probability that underflows: it is zero long before gamma^3 is.
        slope = 2 * odds / gamma * -np.expm1(log_flip) if odds < 1e6 else 0.0
        return cls(y, 0.0, log_flip, flip_slope=float(slope))

    def fit(self, factor: NDArray[Any], **settings: Any) -> EP:
        """The Gaussian of expectation propagation, see `ep.propagate`."""
        from graphuq.inference.ep import propagate

        return propagate(factor, self, **settings)

    def match(self, mean: Vector, variance: Vector) -> Match:
        """Moments of ``N(f; mean, variance) P(y | f)`` in closed form, exact far in the tail.

        With ``k = y mean / sqrt(variance + noise + tail)`` the label keeps the belief as it is
        with probability 1 - right, or cuts it in half; `ratio` and `spread` are the mean and the
        variance that N(k, 1) has above zero, less k.
        """
        extra = self.noise + self.tail
        total = variance + extra
        k = self.y * mean / np.sqrt(total)
        ratio = np.sqrt(2 / np.pi) / erfcx(-k / np.sqrt(2))  # pdf / cdf without overflow
        # 1 - ratio (ratio + k) cancels for k << 0; there its asymptotic series is exact to 1e-9.
        x = 1 / np.maximum(k * k, 30.0**2)
        series = x * (1 - x * (6 - x * (50 - x * (518 - x * 6354))))
        spread = np.where(k < -30, series, 1 - ratio * (ratio + k))
        log_z = log_ndtr(k)
        if self.log_flip > -np.inf:
            keep = -np.expm1(np.log(2) + self.log_flip)  # 1 - 2 flip
            log_half = log_z + np.log(max(keep, np.finfo(float).tiny))
            log_z = np.logaddexp(self.log_flip, log_half)
            right = np.exp(log_half - log_z)
            spread = 1 - right + right * spread + right * (1 - right) * ratio**2
            ratio = right * ratio
        scale = extra + variance * spread
        precision = (1 - spread) / scale
        return Match(log_z, precision, precision * mean + self.y * ratio * np.sqrt(total) / scale)

    def log_likelihood(self, u: NDArray[Any]) -> NDArray[Any]:
        """``log P(y_j | u_j)``, labels along the last axis."""
        side = self.y * u
        each = log_ndtr(side / np.sqrt(self.noise)) if self.noise > 0 else np.where(side >= 0, 0.0, -np.inf)
        return np.asarray(self._flipped(each))

    def log_predictive(self, mean: Vector, variance: Vector) -> Vector:
        """Log probability of each label for a belief about f_j; labels along the last axis."""
        k = self.y * mean / np.sqrt(variance + self.noise + self.tail)
        if self.log_flip > LEAST_LOG_FLIP:
            flip = np.exp(self.log_flip)
            return np.asarray(np.log(flip + (1 - 2 * flip) * ndtr(k)))
        return np.asarray(self._flipped(log_ndtr(k)))

    def _flipped(self, log_right: NDArray[Any]) -> NDArray[Any]:
        """``log(flip + (1 - 2 flip) p)`` from log p."""
        if self.log_flip == -np.inf:
            return log_right
        log_keep = np.log(max(-np.expm1(np.log(2) + self.log_flip), np.finfo(float).tiny))  # log(1 - 2 flip)
        return np.logaddexp(self.log_flip, log_keep + log_right)

    def agreement(self, mean: Vector, variance: Vector) -> Vector:
        """P(sign of u_j is y_j | y_j) for a belief about f_j, in [0, 1].

        That u and u + noise are both on the label's side is the orthant probability of a
        bivariate normal, here one value of Owen's T function.
        """
        width = variance + self.tail
        # Below -30 the probabilities underflow; there the answer no longer changes with k.
        h = np.maximum(self.y * mean / np.sqrt(width), -30.0)
        rho = np.sqrt(width / (width + self.noise))
        both = (ndtr(h) + ndtr(rho * h)) / 2 - owens_t(rho * h, np.sqrt(self.noise / width))
        flip = np.exp(self.log_flip)
        label = flip + (1 - 2 * flip) * ndtr(rho * h)
        return np.clip((flip * ndtr(h) + (1 - 2 * flip) * both) / label, 0.0, 1.0)

    def flip_gradient(self, mean: Vector, variance: Vector) -> float:
        """Derivative of ``sum_j log_z_j`` with respect to `log_flip`."""
        if self.log_flip == -np.inf:
            return 0.0
        k = self.y * mean / np.sqrt(variance + self.noise + self.tail)
        log_z = self.match(mean, variance).log_z
        return float(-np.sum(np.exp(self.log_flip - log_z) * erf(k / np.sqrt(2))))
