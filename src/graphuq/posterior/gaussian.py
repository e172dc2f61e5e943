"""A prior and a label model in; class probabilities at any row, in closed form by expectation propagation, out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq import _accelerator
from graphuq._expect import expect_generator, expect_in_graph
from graphuq._threads import blas_threads
from graphuq.inference.contradictions import contradictions
from graphuq.inference.largest import LEAST_PROBABILITY, rows_at_once
from graphuq.inference.star_ep import Fit
from graphuq.inference.sweeps import Start
from graphuq.inference.whiten import OnModes, Whitening, check_problem, positions, whiten
from graphuq.models.base import Model, expect_fields, relabeled
from graphuq.new_rows import NewRows
from graphuq.posterior.arviz_object import arviz_nodes, arviz_object
from graphuq.posterior.base import (
    Alone,
    Array,
    Classes,
    Nodes,
    blocks,
    chosen_rows,
    described,
    latent_of,
)
from graphuq.prior import GaussianPrior

# Rows are processed in blocks of about this many array elements, 4 MB, so that intermediates fit in the cache.
BLOCK_NUMBERS = 2**19
N_LATENT_DRAWS = 1000
# With many fields, whose probabilities are accurate to 2e-3, single precision is used unless the noise variance is
# below this fraction of the prior variance: probabilities change by less than 1e-4, in half the time.
LEAST_BLUR = 3e-5
# Tolerance of the sites, in posterior standard deviations, after a change of labels: the first gives probabilities
# to 1e-5 and the evidence to 1e-7; the second, for many fields, to 3e-4, where they are accurate to 2e-3 anyway.
RELABEL_TOLERANCE, RELABEL_TOLERANCE_MANY = 3e-5, 1e-3


@dataclass(frozen=True)
class EPDiagnosis:
    """Whether expectation propagation converged to a fixed point that can be trusted."""

    converged: bool
    n_sweeps: int
    contradicted: bool = False  # labels of nearly equal rows differ, or of opposite rows agree, without noise

    def __str__(self) -> str:
        if self.contradicted:
            return (
                "Expectation propagation cannot be trusted here: rows that are nearly equal have different labels, or nearly "
                "opposite rows the same, and the model has no noise that would explain it. Sample the posterior, or use probit."
            )
        if self.converged:
            return f"Expectation propagation converged after {self.n_sweeps} sweeps; there are no draws to check."
        return (
            f"Expectation propagation did not converge in {self.n_sweeps} sweeps: the labels contradict each other. "
            "Sample the posterior instead, or look at the suspicious labels."
        )


@dataclass(frozen=True, eq=False)
class GaussianPosterior(Alone):
    """The expectation propagation approximation of the posterior: closed forms of what `Draws` estimates.

    Attributes:
        whitening: the map from z to u at every row.
        model: the likelihood.
        fit: the Gaussian approximation of z.
        negligible: variance that the fit treated as noise, see `span.span`; retained when the labels change.
    """

    whitening: Whitening = field(repr=False)
    model: Model = field(repr=False)
    fit: Fit = field(repr=False)
    negligible: float = 0.0

    def __repr__(self) -> str:
        return described(self)

    @classmethod
    def of(
        cls, prior: GaussianPrior, model: Model, *, negligible: float = 0.0, **settings: Any
    ) -> GaussianPosterior:
        """Fit a model with closed-form tilted moments, at a cost independent of the size of the graph."""
        check_problem(prior, model)
        with blas_threads(len(model.nodes) ** 2 * prior.n_modes):
            return cls.on(whiten(prior, model.nodes), model, negligible, **settings)

    @classmethod
    def on(cls, whitening: Whitening, model: Model, negligible: float, **settings: Any) -> GaussianPosterior:
        """Fit a model on given coordinates z."""
        fit = model.sites().fit(whitening.matrix(model.nodes), negligible=negligible, **settings)
        return cls(whitening, model, fit, negligible)

    def closed(self) -> GaussianPosterior:
        """This posterior, which is in closed form."""
        return self

    def with_labels(self, nodes: NDArray[np.int64], y: NDArray[np.int64]) -> GaussianPosterior:
        """The posterior given other labels, same prior and noise, warm-started at the unchanged sites."""
        expect_fields(self.model, "nodes", "y")
        model = relabeled(self.model, nodes, y)
        nodes, y = model.nodes, np.asarray(model.y)
        expect_in_graph(nodes, self.n_nodes)
        same = np.flatnonzero(np.isin(nodes, self.model.nodes))
        old = positions(nodes[same], self.model.nodes)
        unchanged = np.asarray(self.model.y)[old] == y[same]
        fit: Any = self.fit
        precision, shift = (np.zeros((len(nodes), *each.shape[1:])) for each in (fit.precision, fit.shift))
        precision[same[unchanged]] = fit.precision[old[unchanged]]
        shift[same[unchanged]] = fit.shift[old[unchanged]]
        new = np.setdiff1d(np.arange(len(nodes)), same[unchanged])
        if new.size:
            new_nodes = nodes[new]
            sites = relabeled(model, new_nodes, y[new]).sites()
            first = fit.first_sites(sites, *self.whitening.conditional(new_nodes))
            precision[new], shift[new] = first
        start = Start(precision, shift)
        if not isinstance(self.whitening, OnModes):
            return GaussianPosterior.of(self.prior, model, negligible=self.negligible, start=start)
        whitening = OnModes(self.prior, nodes)  # requires no factorization, which would delay a new label
        tolerance = RELABEL_TOLERANCE if model.n_fields <= 3 else RELABEL_TOLERANCE_MANY
        return GaussianPosterior.on(whitening, model, self.negligible, start=start, tolerance=tolerance)

    @property
    def blurred(self) -> bool:
        """Whether the noise is large enough for single precision to suffice."""
        most = float(self.prior.marginal_variance(self.model.nodes).max(initial=0))
        return self.n_classes > 3 and float(self.model.noise) ** 2 > LEAST_BLUR * most

    @property
    def rows_at_once(self) -> int:
        """Block size in rows; with several fields limited by their integral, see `largest.rows_at_once`."""
        n_fields, most = self.model.n_fields, max(1, BLOCK_NUMBERS // self.whitening.n_latent)
        if n_fields == 1:
            return most
        return rows_at_once(n_fields) if _accelerator.has_gpu() else min(8 * most, rows_at_once(n_fields))

    def classes(self, where: ArrayLike | NewRows | None = None, *, noise: bool = True) -> Classes:
        """The probability of each class at rows, in closed form."""
        rows, gamma = chosen_rows(self, where), float(self.model.noise) if noise else 0.0
        with blas_threads(0):  # many small products
            p = np.concatenate(
                [
                    self.fit.classes(*self.whitening.conditional(part), gamma)
                    for part in blocks(rows, self.rows_at_once)
                ]
            )
        if not isinstance(rows, NewRows):
            self.correct_labeled(p, rows, gamma)
        if noise:
            p = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        return Classes(p, np.zeros_like(p))

    def correct_labeled(self, p: Array, rows: Nodes, noise: float) -> None:
        """Replace class probabilities at labeled nodes by those of the tilted distributions, if the fit has them."""
        tilted = self.fit.labeled_classes(noise)
        if tilted is not None:
            labeled = np.isin(rows, self.model.nodes)
            p[labeled] = tilted[positions(rows[labeled], self.model.nodes)]

    def moments(self, where: ArrayLike | NewRows | None = None) -> tuple[Array, Array]:
        """Mean and variance of the latent fields at rows."""
        size = max(1, BLOCK_NUMBERS // self.whitening.n_latent)
        with blas_threads(0):
            parts = [
                self.fit.field_moments(*self.whitening.conditional(part))
                for part in blocks(chosen_rows(self, where), size)
            ]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return mean, variance

    def latent(self, where: ArrayLike | NewRows, *, seed: int = 0) -> NDArray[Any]:
        """Independent draws of u at rows, shape (1, 1000, n_rows) or (..., n_fields), see `Posterior.latent`."""
        rng = expect_generator(seed)
        z = self.fit.draw(N_LATENT_DRAWS, rng).reshape(1, N_LATENT_DRAWS, -1)
        return latent_of(self.whitening, z, chosen_rows(self, where), rng)

    def to_arviz(self, nodes: ArrayLike | None = None) -> Any:
        """An ArviZ object with 1,000 independent draws of `u` at some nodes, by default the monitored ones.

        It has no `log_likelihood`: some draws of the Gaussian contradict a label and would dominate `az.loo`. Use
        `left_out`, or `sample`.
        """
        chosen = arviz_nodes(self, nodes)
        return arviz_object(self, chosen, {"posterior": {"u": self.latent(chosen)}})

    def left_out(self) -> Array:
        """Leave-one-out class probabilities of the labeled nodes, from the cavity distributions."""
        return self.fit.left_out_classes(float(self.model.noise))

    def diagnostics(self) -> EPDiagnosis:
        """Whether expectation propagation converged, and can be trusted."""
        settled = self.fit.converged
        contradicted = settled and not self.model.noise and len(contradictions(self.prior, self.model).one) > 0
        return EPDiagnosis(settled and not contradicted, self.fit.n_sweeps, contradicted)
