"""From a Ginzburg-Landau model to the Gaussian that replaces its wells by their mean curvature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import brentq

from graphuq.inference.ep import Gaussian

if TYPE_CHECKING:
    from graphuq.models import GinzburgLandau


def self_consistent(matrix: NDArray[np.float64], model: GinzburgLandau) -> Gaussian:
    """N(m, S) on z, where v = B z has the labels of the model and a harmonic well kappa v^2 / 2 at every node.

        S^-1 = I + kappa B^T B + B_lab^T B_lab / gamma^2,    m = S B_lab^T y / gamma^2,
        kappa = max(0, mean over nodes of E[W_eps''(v_i)]),    E[W_eps''(v)] = (3 E[v^2] - 1) / eps,

    the expectation being that of N(m, S) itself. It leans to one side at a node only as far as the
    labels reach, so it lies over all modes of the posterior, and is as wide as they are apart: the place
    for replicas to set out from. `matrix` is B, of shape (n_nodes, n_latent).

    Of K fields each has such a Gaussian, with the label's corner ``2 p_y`` in the place of y and twice the misfit and
    well of one: only differences between fields matter, and ``v_c - v_k`` is what v is for two classes.
    """
    n_fields = int(model.n_fields or 1)
    classes = np.asarray(model.y)
    y = 2.0 * classes[:, None] - 1
    stretch = 1.0
    if n_fields > 1:
        y, stretch = np.eye(n_fields)[classes] - 1 / n_fields, 2.0
    precision = stretch / float(model.gamma) ** 2
    labeled = matrix[np.asarray(model.nodes)]
    without_wells = np.eye(matrix.shape[1]) + precision * labeled.T @ labeled
    # In these directions both parts of S^-1 are diagonal: kappa then costs nothing to vary.
    strength, directions = eigh(matrix.T @ matrix, without_wells)
    strength = np.maximum(strength, 0)
    pull = precision * directions.T @ (labeled.T @ y)  # (n_latent, n_fields)

    def curvature(kappa: float) -> float:
        """The mean of E[W_eps''] when the harmonic well is kappa."""
        variance = 1 / (1 + stretch * kappa * strength)
        square = np.square(variance[:, None] * pull).sum(axis=1) / (1 if n_fields == 1 else n_fields - 1)
        second_moment = stretch * np.sum(strength * (variance + square)) / len(matrix)
        return float((3 * second_moment - 1) / model.epsilon)

    # The curvature falls as kappa grows, so there is one solution, between 0 and the first value.
    most = curvature(0.0)
    kappa = brentq(lambda kappa: curvature(kappa) - kappa, 0.0, most) if most > 0 else 0.0
    variance = 1 / (1 + stretch * kappa * strength)
    mean, factor = directions @ (variance[:, None] * pull), directions * np.sqrt(variance)
    return Gaussian(mean=mean.T.ravel(), factor=np.kron(np.eye(n_fields), factor))
