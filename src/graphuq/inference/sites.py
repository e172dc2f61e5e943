"""Labels and a Gaussian cavity for each labeled value in; the site and the tilted moments of each label out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfcx, log_expit, log_ndtr, ndtr, owens_t

if TYPE_CHECKING:
    from graphuq.inference.ep import EP

Vector = NDArray[np.float64]


class Match(NamedTuple):
    """The sites that match the tilted moments, one entry per label.

    The cavity times the site ``exp(shift f - precision f^2 / 2)`` is a Gaussian with the mean and variance of the
    tilted distribution, the cavity times the likelihood.
    """

    log_z: Vector  # log probability of the label under the cavity
    precision: Vector  # negative where the tilted variance exceeds the cavity's
    shift: Vector


def scaled(factor: NDArray[Any], scale: Vector | None) -> NDArray[Any]:
    """The rows of a matrix, one for each label, times factors."""
    return factor if scale is None else factor * scale[:, None]


@dataclass(frozen=True, eq=False)
class Sites:
    """The likelihood of one-field probit and level-set: the sign of u plus noise, flipped with some probability.

        P(y_j | f_j) = flip + (1 - 2 flip) Psi(y_j f_j; sqrt(noise + tail)).

    Probit (Sec. 3.1) has ``noise = gamma^2`` and no flips. Level-set (Sec. 3.2) has no noise and
    flips with odds ``exp(-2 / gamma^2)``: its exp(-Phi), normalized by ``1 + exp(-2 / gamma^2)`` so
    that the probabilities of the two labels add to one. `tail` is the variance of an
    independent part of u: u_j = f_j + N(0, tail).

    Attributes:
        y: labels, -1 or +1, shape (n_labeled,).
        noise: variance of the noise added to u.
        log_flip: log of the probability that the sign is flipped.
        tail: variance of ``u_j - f_j``.
        noise_slope: derivative of `noise` with respect to gamma.
        flip_slope: derivative of `log_flip` with respect to gamma.
        scale: factor of u at each label, shape (n_labeled,), if labels differ in precision; everything else refers to
            u times this factor.
    """

    y: Vector
    noise: float
    log_flip: float
    tail: float = 0.0
    noise_slope: float = 0.0
    flip_slope: float = 0.0
    scale: Vector | None = None

    @classmethod
    def level_set(cls, y: Vector, gamma: float) -> Sites:
        """The sites of `LevelSet`."""
        odds = 2 / gamma / gamma
        log_flip = float(log_expit(-odds))
        # For large odds the slope is multiplied by a probability that underflows, so 0 replaces a huge gamma^-3.
        slope = 2 * odds / gamma * -np.expm1(log_flip) if odds < 1e6 else 0.0
        return cls(y, 0.0, log_flip, flip_slope=float(slope))

    def fit(self, factor: NDArray[Any], **settings: Any) -> EP:
        """Run expectation propagation, see `ep.propagate`."""
        from graphuq.inference.ep import propagate

        return propagate(scaled(factor, self.scale), self, **settings)

    def match(self, mean: Vector, variance: Vector) -> Match:
        """Moments of ``N(f; mean, variance) P(y | f)`` in closed form, accurate far in the tail.

        With ``k = y mean / sqrt(variance + noise + tail)`` the tilted distribution is a mixture: with probability
        1 - right the cavity itself, otherwise the cavity truncated by the label; `ratio` and `spread` are the mean
        less k and the variance of N(k, 1) truncated to positive values.
        """
        extra = self.noise + self.tail
        certain = variance + extra == 0  # u is certainly 0 and the label tells nothing: its site is 1
        total = self._total(variance)
        k = self.y * mean / np.sqrt(total)
        ratio = np.sqrt(2 / np.pi) / erfcx(-k / np.sqrt(2))  # pdf / cdf without overflow
        # 1 - ratio (ratio + k) cancels for k << 0; there its asymptotic series is exact to 1e-9.
        x = np.square(1 / np.maximum(np.abs(k), 30.0))
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
        scale = np.where(certain, np.inf, extra + variance * spread)
        precision = (1 - spread) / scale
        return Match(log_z, precision, precision * mean + self.y * ratio * np.sqrt(total) / scale)

    def _total(self, variance: Vector) -> Vector:
        """The variance of u plus noise, or 1 where that is 0 and so is the mean."""
        total = variance + self.noise + self.tail
        return np.where(total == 0, 1.0, total)

    def log_likelihood(self, u: NDArray[Any]) -> NDArray[Any]:
        """``log P(y_j | u_j)``, labels along the last axis."""
        side = self.y * (u if self.scale is None else self.scale * u)
        log_right = log_ndtr(side / np.sqrt(self.noise)) if self.noise > 0 else np.where(side >= 0, 0.0, -np.inf)
        return np.asarray(self._flipped(log_right))

    def _flipped(self, log_right: NDArray[Any]) -> NDArray[Any]:
        """``log(flip + (1 - 2 flip) p)``, given log p."""
        if self.log_flip == -np.inf:
            return log_right
        log_keep = np.log(max(-np.expm1(np.log(2) + self.log_flip), np.finfo(float).tiny))  # log(1 - 2 flip)
        return np.logaddexp(self.log_flip, log_keep + log_right)

    def agreement(self, mean: Vector, variance: Vector, noise: float | Vector = 0.0) -> Vector:
        """P(sign of u_j + new noise is y_j | y_j) for the cavity ``f_j ~ N(mean, variance)``, in [0, 1].

        The new noise, of variance `noise`, is independent of the label's own. The probability that u plus either of
        them has the label's sign is a bivariate normal orthant probability, here given by Owen's T function.
        """
        width = np.maximum(variance + self.tail, 1e-150)
        less = np.minimum(noise, self.noise)
        # Below -30 the probabilities underflow, while their ratio has stopped changing.
        h = np.maximum(self.y * mean / np.sqrt(width + less), -30.0)
        h_new, h_label = (h * np.sqrt((width + less) / (width + each)) for each in (noise, self.noise))
        apart = np.sqrt(np.maximum(width * (noise + self.noise) + noise * self.noise, 1e-300))
        both = (
            (ndtr(h_new) + ndtr(h_label)) / 2
            - owens_t(h_new, noise / apart)
            - owens_t(h_label, self.noise / apart)
        )
        flip = np.exp(self.log_flip)
        label = flip + (1 - 2 * flip) * ndtr(h_label)
        return np.clip((flip * ndtr(h_new) + (1 - 2 * flip) * both) / label, 0.0, 1.0)

    def flip_gradient(self, mean: Vector, variance: Vector) -> float:
        """Derivative of ``sum_j log_z_j`` with respect to `log_flip`."""
        if self.log_flip == -np.inf:
            return 0.0
        k = self.y * mean / np.sqrt(self._total(variance))
        log_z = self.match(mean, variance).log_z
        return float(-np.sum(np.exp(self.log_flip - log_z) * erf(k / np.sqrt(2))))
