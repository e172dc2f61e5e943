"""What every result of expectation propagation answers, of one field (`EP`) or of one for each class (`StarEP`)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from graphuq.inference.ep import EvidenceGradient, Gaussian, Matrix, Vector
from graphuq.inference.stars import Stack


class Fit(Protocol):
    """The Gaussian of expectation propagation, of one field (`EP`) or of one for each class (`StarEP`)."""

    @property
    def log_evidence(self) -> float:
        """``log P(y)``."""
        ...

    @property
    def log_predictive(self) -> Vector:
        """``log P(y_j | all other labels)``, shape (n_labeled,)."""
        ...

    @property
    def converged(self) -> bool:
        """Whether the sites agree with their tilted moments."""
        ...

    @property
    def n_sweeps(self) -> int:
        """Sweeps over all sites."""
        ...

    def gradient(self) -> EvidenceGradient:
        """Derivatives of the evidence."""
        ...

    def gaussian(self) -> Gaussian:
        """The posterior of z, one field after another."""
        ...

    def draw(self, n_draws: int, rng: np.random.Generator) -> Stack:
        """Draws of z from it, shape (n_draws, n_fields, n_latent)."""
        ...

    def field_moments(self, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Mean and variance of u at nodes where ``u | z ~ N(M z, deviation^2)``, shape (n, n_fields) each."""
        ...

    def classes(self, conditional: Matrix, deviation: Vector, noise: float, n_points: int) -> Matrix:
        """The probability of each class there, with noise of this deviation added to u; shape (n, n_classes)."""
        ...

    def first_sites(self, sites: Any, conditional: Matrix, deviation: Vector) -> tuple[Matrix, Matrix]:
        """Sites of new labels, each alone beside those that are there."""
        ...

    def independent_variances(self, conditional: Matrix, deviation: Vector, noise: float) -> Matrix:
        """Variances of independent fields that stand for those of nodes, noise included, shape (n, n_fields)."""
        ...

    def independent_classes(self, mean: Matrix, variance: Matrix) -> Matrix:
        """The probability of each class under such fields, shape (n, n_classes)."""
        ...

    def labeled_classes(self) -> Matrix:
        """The same at the labeled nodes, without noise, shape (n_labeled, n_classes)."""
        ...

    def left_out_classes(self, noise: float) -> Matrix:
        """The same at each labeled node given all labels but its own."""
        ...
