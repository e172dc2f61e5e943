"""From a prior and probit labels to the one minimizer of J(u) = <u, P u>/2 + Phi(u; y), by Newton's method.

The mode is a combination of the labeled columns of C. The search therefore runs over the labels or,
where those are fewer, over the modes, and a step costs the same on any graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, qr
from scipy.special import erfcx, log_ndtr

from graphuq.models.probit import Probit
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]

# A change of J or of u by less than this share of it is rounding.
ROUNDING = 1e-12


def newton(prior: GaussianPrior, model: Probit, n_steps: int, tolerance: float) -> tuple[Array, float, float, int]:
    """u at all nodes, J(u), ``|C^(1/2) grad J| / |C^(-1/2) u|``, and the number of steps taken.

    It starts at zero and halves a step until J falls, which is rarely needed.
    """
    field = (
        _without_tail(prior, model.nodes)
        if prior.tail_variance == 0
        else _WithTail(prior, model.nodes, prior.vectors[model.nodes])
    )
    x = np.zeros(field.length)
    energy, gradient, curvature = _energy(field, model, x)
    for n in range(n_steps + 1):
        slope = x + field.pull(gradient)
        squared, size = slope @ field.metric(slope), x @ field.metric(x)
        norm = 0.0 if squared <= 0 else np.inf if size <= 0 else float(np.sqrt(squared / size))
        if norm <= tolerance or n == n_steps:
            break
        direction = field.direction(slope, curvature)
        if direction @ field.metric(direction) <= ROUNDING**2 * size:
            break
        for scale in 0.5 ** np.arange(40):
            x_new = x + scale * direction
            energy_new, gradient, curvature = _energy(field, model, x_new)
            if energy_new <= energy + ROUNDING * (1 + abs(energy)):
                break
        x, energy = x_new, energy_new
    return field.everywhere(x), energy, norm, n


def _energy(field: _WithoutTail | _WithTail, model: Probit, x: Array) -> tuple[float, Array, Array]:
    """J, and the gradient and the curvature of Phi at the labels.

    The ratio of the normal density to its cdf is exact in both tails through erfcx.
    """
    t = model.y * field.at_labels(x) / model.gamma
    ratio = np.sqrt(2 / np.pi) / erfcx(-t / np.sqrt(2))
    curvature = np.maximum(ratio * (ratio + t), 0.0) / model.gamma**2
    energy = float(x @ field.metric(x) / 2 - log_ndtr(t).sum())
    return energy, -model.y * ratio / model.gamma, curvature


@dataclass(frozen=True)
class _WithoutTail:
    """Whitened coordinates z, ``u = B z`` at the labels and ``<u, P u> = |z|^2``.

    A step solves ``(I + B^T W B) dz = -(z + B^T grad Phi)``, W the curvature of Phi. Nothing is divided
    by, so labels that contradict each other on few modes do no harm.
    """

    prior: GaussianPrior
    matrix: Array  # B, (n_labeled, n_coordinates)
    rotation: Array | None  # from z to whitened modes, where there are fewer labels than those

    @property
    def length(self) -> int:
        return self.matrix.shape[1]

    def at_labels(self, z: Array) -> Array:
        return self.matrix @ z

    def everywhere(self, z: Array) -> Array:
        modes = z if self.rotation is None else self.rotation @ z
        return self.prior.vectors @ (np.sqrt(self.prior.variances) * modes)

    def metric(self, z: Array) -> Array:
        return z

    def pull(self, gradient: Array) -> Array:
        return self.matrix.T @ gradient

    def direction(self, slope: Array, curvature: Array) -> Array:
        hessian = np.eye(self.length) + (self.matrix.T * curvature) @ self.matrix
        return -cho_solve(cho_factor(hessian), slope)


def _without_tail(prior: GaussianPrior, nodes: NDArray[np.int64]) -> _WithoutTail:
    """B from the modes at the labels, or from its triangular factor where that is smaller."""
    matrix = prior.vectors[nodes] * np.sqrt(prior.variances)
    if len(nodes) >= prior.n_modes:
        return _WithoutTail(prior, matrix, None)
    rotation, upper = qr(matrix.T, mode="economic")
    return _WithoutTail(prior, np.asarray(upper.T, dtype=float), np.asarray(rotation, dtype=float))


@dataclass(frozen=True)
class _WithTail:
    """Weights w on the labeled columns of C: ``u = C w`` and ``<u, P u> = <w, C w>``.

    A step solves ``(I + W C) dw = -(w + grad Phi)`` (Rasmussen and Williams, Alg. 3.1). C at the labels
    is the tail plus a matrix of the rank of the modes, so the system is one in the modes (Woodbury).
    """

    prior: GaussianPrior
    nodes: NDArray[np.int64]
    vectors: Array  # the modes at the labels, (n_labeled, n_modes)

    @property
    def length(self) -> int:
        return len(self.nodes)

    @property
    def excess(self) -> Array:
        return self.prior.variances - self.prior.tail_variance

    def at_labels(self, w: Array) -> Array:
        return self.vectors @ (self.excess * (self.vectors.T @ w)) + self.prior.tail_variance * w

    def everywhere(self, w: Array) -> Array:
        u = self.prior.vectors @ (self.excess * (self.vectors.T @ w))
        u[self.nodes] += self.prior.tail_variance * w
        return u

    def metric(self, w: Array) -> Array:
        return self.at_labels(w)

    def pull(self, gradient: Array) -> Array:
        return gradient

    def direction(self, slope: Array, curvature: Array) -> Array:
        diagonal = 1 + self.prior.tail_variance * curvature
        weights, slope = curvature / diagonal, slope / diagonal
        system = np.eye(self.prior.n_modes) + self.excess[:, None] * ((self.vectors.T * weights) @ self.vectors)
        modes = np.linalg.solve(system, self.excess * (self.vectors.T @ slope))
        return weights * (self.vectors @ modes) - slope
