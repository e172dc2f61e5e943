"""Posteriors at several hyper-parameters and their weights in; one posterior, averaged over them, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from graphuq._expect import LARGEST_SEED, expect, expect_generator, expect_number, expect_numbers
from graphuq.calibration import apply_temperature, temperature
from graphuq.models.base import Model, ask, offer, offers
from graphuq.posterior import base
from graphuq.posterior.arviz_object import arviz_nodes, arviz_object
from graphuq.posterior.base import LEAST_PROBABILITY, Array, Classes, described
from graphuq.posterior.draws import Draws
from graphuq.posterior.gaussian import N_LATENT_DRAWS, GaussianPosterior
from graphuq.prior import GaussianPrior, NewRows

# A new label is taken in by the heaviest components, so many that all their sites together are no more than this.
MOST_SITES, FEWEST_COMPONENTS = 2000, 3
# What is believed of the temperature of K classes: it lies within a factor of (2 / K)^exponent. And the exponent where no
# class has a second label: nothing then says how far a class reaches, and timidity is at its worst. All were chosen, as
# the hyperprior was, on data that are not reported: experiments/choose.py.
TEMPERATURE, EXPONENT_OF_SINGLES = (0.3, 1.2), 0.5


@dataclass(frozen=True)
class MixtureDiagnosis:
    """The diagnostics of the components."""

    components: tuple[Any, ...]

    @property
    def converged(self) -> bool:
        """Whether all of them can be trusted."""
        return all(each.converged for each in self.components)

    def __str__(self) -> str:
        worst = next((each for each in self.components if not each.converged), self.components[0])
        return f"An average over {len(self.components)} choices of hyper-parameters. {worst}"


def closed(each: Draws | GaussianPosterior) -> GaussianPosterior:
    """Draws replaced by expectation propagation; what is in closed form already stays."""
    return GaussianPosterior.of(each.prior, each.model) if isinstance(each, Draws) else each


@dataclass(frozen=True, eq=False)
class Mixture:
    """The posterior averaged over hyper-parameters, so that their uncertainty is part of the answer.

    Attributes:
        components: the posterior at each choice of hyper-parameters, heaviest first.
        weights: their posterior probabilities, shape (n_components,), adding up to one.
        temperature: T in ``p_k^(1/T) / sum_l p_l^(1/T)``, applied to answers that include noise and to `left_out`.
        drawn_from: the mixture in closed form whose heaviest components were drawn; with other labels its lighter ones
            may regain weight.
    """

    components: tuple[GaussianPosterior | Draws, ...] = field(repr=False)
    weights: Array
    temperature: float = 1.0
    drawn_from: Mixture | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        weights = expect_numbers(self.weights, "weights")
        expect(self.components, tuple, "components", "a tuple of posteriors")
        for each in self.components:
            expect(each, (GaussianPosterior, Draws), "A component", "a GaussianPosterior or Draws")
        expect_number(self.temperature, "temperature")
        if weights.shape != (len(self.components),) or not weights.size:
            raise ValueError(f"A mixture needs one weight for each of its components, got {weights.size} weights.")
        if weights.min() < 0 or abs(weights.sum() - 1) > 1e-6:
            raise ValueError(f"weights must be 0 or above and add up to 1, got the sum {weights.sum():.6g}.")

    def __repr__(self) -> str:
        return described(self, f"{len(self.components):,} components")

    def closed(self) -> Mixture:
        """The same in closed form, with the lighter components that were not drawn."""
        if self.drawn_from is not None:
            return replace(self.drawn_from, temperature=self.temperature)
        return replace(self, components=tuple(map(closed, self.components)))

    def with_labels(self, nodes: NDArray[np.int64], y: NDArray[np.int64]) -> Mixture:
        """The mixture given other labels, in closed form: components are recomputed and reweighted by evidence.

        A component whose sweeps do not converge is dropped, unless none converges. So are the lightest ones where there
        are so many sites that a person would have to wait; `learn` averages over all again. Components of very small
        weight are kept, since removing a label may restore it.
        """
        if self.drawn_from is not None:
            return self.closed().with_labels(nodes, y)
        n_sites = max(1, np.size(nodes)) * int(offer(self.model, "n_fields"))
        kept = [closed(each) for each in self.components[: max(FEWEST_COMPONENTS, MOST_SITES // n_sites)]]
        components = [each.with_labels(nodes, y) for each in kept]
        gains = [new.fit.log_evidence - old.fit.log_evidence for new, old in zip(components, kept, strict=True)]
        trusted = np.array([each.fit.converged for each in components])
        log_weights = np.log(self.weights[: len(kept)]) + gains - np.where(trusted | ~trusted.any(), 0.0, np.inf)
        weights = np.exp(log_weights - log_weights.max())
        order = np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)]
        chosen = tuple(components[i] for i in order)
        found = replace(self, components=chosen, weights=weights[order] / weights.sum())
        return found if self.temperature == 1 else found.tempered()

    def tempered(self) -> Mixture:
        """The same with the temperature at which the left-out labels are most probable; with two classes unchanged.

        A flat Gaussian of many fields is too timid, the more so the more classes there are, which leaving labels out
        reveals. A class with a single label cannot be predicted without it, so it is not used. With two classes a
        temperature neither helps nor harms.
        """
        if self.n_classes == 2:
            return self
        y = np.asarray(ask(self.model, "y"))
        judged = np.bincount(y)[y] > 1
        if not judged.any():
            return replace(self, temperature=(2 / self.n_classes) ** EXPONENT_OF_SINGLES)
        exponent, factor = TEMPERATURE
        bare = replace(self, temperature=1.0).left_out()[judged]
        median, spread = (2 / self.n_classes) ** exponent, float(np.log(factor))
        return replace(self, temperature=temperature(bare, y[judged], median=median, spread=spread))

    @property
    def prior(self) -> GaussianPrior:
        """That of the heaviest component."""
        return self.components[0].prior

    @property
    def model(self) -> Model:
        """That of the heaviest component."""
        return self.components[0].model

    def classes(self, where: ArrayLike | NewRows | None = None, *, noise: bool = True) -> Classes:
        """The probability of each class at rows: the weighted average over components."""
        probability, square = 0.0, 0.0
        for weight, each in zip(self.weights, self.components, strict=True):
            found = each.classes(where, noise=noise)
            probability = probability + weight * found.probability
            square = square + (weight * found.error) ** 2
        found = Classes(np.asarray(probability), np.sqrt(square))
        return found if self.temperature == 1 or not noise else self._tempered_with_error(found)

    def mixed(self, probabilities: Sequence[Array]) -> Array:
        """The answers of all components, noise included, as one."""
        return self._tempered(np.asarray(sum(w * p for w, p in zip(self.weights, probabilities, strict=True))))

    def moments(self, where: ArrayLike | NewRows | None = None) -> tuple[Array, Array]:
        """Mean and variance of the latent fields at rows, including the variance between components."""
        parts = [each.moments(where) for each in self.components]
        means, variances = (np.array(each) for each in zip(*parts, strict=True))
        mean = np.tensordot(self.weights, means, 1)
        return mean, np.tensordot(self.weights, variances + (means - mean) ** 2, 1)

    def latent(self, where: ArrayLike | NewRows, *, seed: int = 0) -> NDArray[Any]:
        """Draws of u at rows, from components in proportion to their weights; one chain of 1,000."""
        return self._drawn(lambda each, own_seed: each.latent(where, seed=own_seed), seed)

    def to_arviz(self, nodes: ArrayLike | None = None) -> Any:
        """An ArviZ object: one chain of 1,000 draws of `u` at some nodes, as `latent` takes them from the components.

        If all components are draws, the `log_likelihood` of their labels is included, for `az.loo`. The temperature has
        no part in it. The chains of a component, with their acceptance and work, are in its own `to_arviz`.
        """
        chosen = arviz_nodes(self, nodes)
        groups: dict[str, Any] = {"posterior": {"u": self.latent(chosen)}}
        if all(isinstance(each, Draws) and offers(each.model, "log_likelihood") for each in self.components):
            groups["log_likelihood"] = {"y": self._drawn(lambda each, _: each.log_likelihood())}
        return arviz_object(self, chosen, groups)

    def _drawn(self, at_draws: Callable[[Any, int], NDArray[Any]], seed: int = 0) -> NDArray[Any]:
        """What components say of each of their draws, at some of these; with one seed, at the same ones.

        A component gives as many as its weight asks for, none of them twice while it has others.
        """
        rng = expect_generator(seed)
        counts = rng.multinomial(N_LATENT_DRAWS, self.weights)
        parts = []
        for count, each in zip(counts, self.components, strict=True):
            if count:
                flat = np.concatenate(at_draws(each, int(rng.integers(LARGEST_SEED))))  # all chains
                parts.append(flat[np.resize(rng.permutation(len(flat)), count)])
        return np.concatenate(parts)[rng.permutation(N_LATENT_DRAWS)][None]

    def left_out(self) -> Array:
        """The probability of each class at each labeled node given all labels but its own.

        Leaving out a label removes its part of the evidence, so each component's weight is divided by the probability
        that it gave to the label, mistakes included.
        """
        parts = list(map(closed, self.components))
        found = np.array([each.left_out() for each in parts])
        weights = softmax(np.log(self.weights)[:, None] - [each.fit.log_predictive for each in parts], axis=0)
        return self._tempered(np.einsum("cj,cjk->jk", weights, found))

    def _tempered(self, probability: Array) -> Array:
        if self.temperature == 1:
            return probability
        return np.clip(apply_temperature(probability, self.temperature), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)

    def _tempered_with_error(self, bare: Classes) -> Classes:
        """The error follows from ``T dq_k = q_k (dp_k / p_k - sum_l q_l dp_l / p_l)``, at most, since errors of classes go together."""
        p, q = bare.probability, self._tempered(bare.probability)
        relative = q * bare.error / p
        others = relative.sum(axis=1, keepdims=True) - relative
        return Classes(q, np.minimum(((1 - q) * relative + q * others) / self.temperature, 1.0))

    def diagnostics(self) -> MixtureDiagnosis:
        """The diagnostics of the components."""
        return MixtureDiagnosis(tuple(each.diagnostics() for each in self.components))

    labels = base.sign_labels
    n_nodes, n_classes = property(base.n_nodes), property(base.n_classes)
    probability, save = base.probability, base.save
    label_mean, label_variance = base.label_mean, base.label_variance
    mean_label_variance = base.mean_label_variance
    most_uncertain, least_uncertain = base.most_uncertain, base.least_uncertain


AnyPosterior: TypeAlias = Draws | GaussianPosterior | Mixture
