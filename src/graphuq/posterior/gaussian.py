"""A prior and a label model in; the probability of every class at any row out, in milliseconds and without draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq import _accelerator
from graphuq._expect import expect_generator, expect_in_graph
from graphuq._threads import blas_threads
from graphuq.inference.largest import rows_at_once
from graphuq.inference.star_ep import Fit
from graphuq.inference.sweeps import Start
from graphuq.inference.whiten import OnModes, Whitening, check_problem, positions, whiten
from graphuq.models.base import Model, ask, expect_fields, offer, remade
from graphuq.posterior import base
from graphuq.posterior.arviz_object import arviz_nodes, arviz_object
from graphuq.posterior.base import LEAST_PROBABILITY, Array, Classes, blocks, chosen_rows, described, latent_of
from graphuq.prior import GaussianPrior, NewRows

# Rows are taken in blocks of about so many numbers, 4 MB: what is made of them stays in the processor's cache.
BLOCK_NUMBERS = 2**19
N_LATENT_DRAWS = 1000
# Of many fields, whose probabilities are known to 2e-3, all rows are asked in single precision unless the noise is less
# than this share of the prior's variance: it moves probabilities by less than 1e-4, and takes half the time.
LEAST_NOISE = 3e-5
# Sites right to this many deviations give probabilities to 1e-5 and the evidence to 1e-7; the second, to 3e-4, is for
# many fields, whose probabilities are known to 2e-3.
RELABEL_TOLERANCE, RELABEL_TOLERANCE_MANY = 3e-5, 1e-3


@dataclass(frozen=True)
class EPDiagnosis:
    """Whether expectation propagation found its fixed point."""

    converged: bool
    n_sweeps: int

    def __str__(self) -> str:
        if self.converged:
            return f"Expectation propagation converged after {self.n_sweeps} sweeps; there are no draws to check."
        return (
            f"Expectation propagation did not converge in {self.n_sweeps} sweeps: the labels contradict each other. "
            "Sample the posterior instead, or look at the suspicious labels."
        )


@dataclass(frozen=True, eq=False)
class GaussianPosterior:
    """The posterior by expectation propagation: what `Draws` estimates from draws, in closed form.

    Attributes:
        whitening: the map from z to u at every row.
        model: the likelihood.
        fit: the Gaussian of z.
        negligible: what the fit treated as noise, see `span.span`; kept when the labels change.
    """

    whitening: Whitening = field(repr=False)
    model: Model = field(repr=False)
    fit: Fit = field(repr=False)
    negligible: float = 0.0

    def __repr__(self) -> str:
        return described(self)

    @classmethod
    def of(cls, prior: GaussianPrior, model: Model, **settings: Any) -> GaussianPosterior:
        """The posterior of labels with closed-form moments; the cost does not depend on the size of the graph."""
        check_problem(prior, model)
        with blas_threads(len(model.nodes) ** 2 * prior.n_modes):
            whitening = whiten(prior, model.nodes)
            factor = whitening.matrix(model.nodes)
            return cls(whitening, model, ask(model, "sites").fit(factor, **settings))

    def with_labels(self, nodes: NDArray[np.int64], y: NDArray[np.int64]) -> GaussianPosterior:
        """The posterior given other labels under the same prior and noise; starts from this one where labels agree."""
        expect_fields(self.model, "nodes", "y")
        model = remade(self.model, nodes=nodes, y=y)
        nodes, y = model.nodes, np.asarray(model.y)
        expect_in_graph(nodes, self.n_nodes)
        same = np.flatnonzero(np.isin(nodes, self.model.nodes))
        old = positions(nodes[same], self.model.nodes)
        unchanged = np.asarray(self.model.y)[old] == y[same]  # type: ignore[attr-defined]
        fit: Any = self.fit
        precision, shift = (np.zeros((len(nodes), *each.shape[1:])) for each in (fit.precision, fit.shift))
        precision[same[unchanged]] = fit.precision[old[unchanged]]
        shift[same[unchanged]] = fit.shift[old[unchanged]]
        new = np.setdiff1d(np.arange(len(nodes)), same[unchanged])
        if new.size:
            there, alone = nodes[new], ask(remade(model, nodes=nodes[new], y=y[new]), "sites")
            first = fit.first_sites(alone, self.whitening.matrix(there), self.whitening.std(there))
            precision[new], shift[new] = first
        start = Start(precision, shift)
        if not isinstance(self.whitening, OnModes):
            return GaussianPosterior.of(self.prior, model, start=start)
        whitening = OnModes(self.prior, nodes)  # nothing to factor: that is what a new label would wait for
        tolerance = RELABEL_TOLERANCE if model.n_fields <= 3 else RELABEL_TOLERANCE_MANY
        settings = {"tolerance": tolerance, "negligible": self.negligible}
        fit = ask(model, "sites").fit(whitening.matrix(nodes), start=start, **settings)
        return GaussianPosterior(whitening, model, fit, self.negligible)

    @property
    def blurred(self) -> bool:
        """Whether the noise is large enough that single precision loses nothing that matters."""
        most = float(self.prior.marginal_variance(self.model.nodes).max(initial=0))
        return self.n_classes > 3 and float(offer(self.model, "noise")) ** 2 > LEAST_NOISE * most

    @property
    def rows_at_once(self) -> int:
        """How many rows are computed together; with several fields, as many as their integral can take."""
        n_fields, most = int(offer(self.model, "n_fields")), max(1, BLOCK_NUMBERS // self.whitening.n_latent)
        if n_fields == 1:
            return most
        return rows_at_once(n_fields) if _accelerator.is_there() else min(8 * most, rows_at_once(n_fields))

    def classes(self, where: ArrayLike | NewRows | None = None, *, noise: bool = True) -> Classes:
        """The probability of each class at rows, in closed form."""
        rows, deviation = chosen_rows(self, where), float(offer(self.model, "noise")) if noise else 0.0
        found = np.concatenate(
            [
                self.fit.classes(self.whitening.matrix(part), self.whitening.std(part), deviation)
                for part in blocks(rows, self.rows_at_once)
            ]
        )
        if not noise and not isinstance(rows, NewRows):
            # Where a label is, the Gaussian of the same moments does not know that the label cuts u at zero.
            labeled = np.isin(rows, self.model.nodes)
            found[labeled] = self.fit.labeled_classes()[positions(rows[labeled], self.model.nodes)]
        elif noise:
            found = np.clip(found, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        return Classes(found, np.zeros_like(found))

    def moments(self, where: ArrayLike | NewRows | None = None) -> tuple[Array, Array]:
        """Mean and variance of the latent fields at rows."""
        size = max(1, BLOCK_NUMBERS // self.whitening.n_latent)
        parts = [
            self.fit.field_moments(self.whitening.matrix(part), self.whitening.std(part))
            for part in blocks(chosen_rows(self, where), size)
        ]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return mean, variance

    def latent(self, where: ArrayLike | NewRows, *, seed: int = 0) -> NDArray[Any]:
        """Draws of u at rows from the Gaussian, shape (1, 1000, n_rows) or (1, 1000, n_rows, n_fields), see `Posterior`."""
        rng = expect_generator(seed)
        z = self.fit.draw(N_LATENT_DRAWS, rng).reshape(1, N_LATENT_DRAWS, -1)
        return latent_of(self.whitening, z, chosen_rows(self, where), rng)

    def to_arviz(self, nodes: ArrayLike | None = None) -> Any:
        """An ArviZ object: 1,000 independent draws of `u` at some nodes, by default those watched for convergence.

        It has no `log_likelihood`: a Gaussian also has draws on the wrong side of a label, which would decide `az.loo`.
        Use `left_out`, or `sample`.
        """
        chosen = arviz_nodes(self, nodes)
        return arviz_object(self, chosen, {"posterior": {"u": self.latent(chosen)}})

    def left_out(self) -> Array:
        """The probability of each class at each labeled node given all labels but its own."""
        return self.fit.left_out_classes(float(offer(self.model, "noise")))

    def diagnostics(self) -> EPDiagnosis:
        """Whether the sweeps converged."""
        return EPDiagnosis(self.fit.converged, self.fit.n_sweeps)

    labels = base.sign_labels
    prior, components, weights = property(base.prior_alone), property(base.itself_alone), property(base.one_weight)
    n_nodes, n_classes = property(base.n_nodes), property(base.n_classes)
    probability, mixed, save = base.probability, base.mixed_alone, base.save
    label_mean, label_variance = base.label_mean, base.label_variance
    mean_label_variance = base.mean_label_variance
    most_uncertain, least_uncertain = base.most_uncertain, base.least_uncertain
