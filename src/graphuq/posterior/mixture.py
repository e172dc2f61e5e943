"""Posteriors at several hyper-parameters and their weights in; their average, a posterior itself, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from graphuq._expect import LARGEST_SEED, expect, expect_generator, expect_number, expect_numbers, put
from graphuq.calibration import apply_temperature, class_weights, temperature, weighted_classes
from graphuq.inference.largest import LEAST_PROBABILITY
from graphuq.models.base import Model, expect_fields, labels_of, relabeled
from graphuq.new_rows import NewRows
from graphuq.posterior.arviz_object import arviz_nodes, arviz_object
from graphuq.posterior.base import Array, Classes, Posterior, described
from graphuq.posterior.draws import Draws
from graphuq.posterior.gaussian import N_LATENT_DRAWS, GaussianPosterior
from graphuq.prior import GaussianPrior

# When labels change, only the heaviest components are updated: as many as have at most this many sites together,
# and no fewer than the second number.
MOST_SITES, FEWEST_COMPONENTS = 2000, 3
# The prior of the temperature for K classes is log-normal: (exponent, factor) mean that it lies within `factor` of
# its median (2 / K)^exponent. The last number is the exponent if no class has a second label: underconfidence is then
# worst, because nothing indicates how far a class extends. In between, the exponent follows the square of the share of
# labels that are the only ones of their class. All were chosen, like the hyperprior, on data that are not reported:
# experiments/choose.py.
TEMPERATURE, EXPONENT_OF_SINGLES = (0.3, 1.2), 0.7


@dataclass(frozen=True)
class MixtureDiagnosis:
    """The diagnostics of the components."""

    components: tuple[Any, ...]

    @property
    def converged(self) -> bool:
        """Whether all components converged."""
        return all(each.converged for each in self.components)

    def __str__(self) -> str:
        worst = next((each for each in self.components if not each.converged), self.components[0])
        return f"An average over {len(self.components)} choices of hyper-parameters. {worst}"


def labels_by_node(model: Any) -> dict[int, tuple[int, float]]:
    """The class of each labeled node, and the weight of its label."""
    y = labels_of(model)
    weights = np.ones(len(y)) if model.weights is None else model.weights
    labels = zip(y.tolist(), weights.tolist(), strict=True)
    return dict(zip(np.asarray(model.nodes).tolist(), labels, strict=True))


@dataclass(frozen=True, eq=False)
class Mixture(Posterior):
    """A posterior averaged over hyper-parameters, which accounts for their uncertainty.

    Attributes:
        components: the posterior at each choice of hyper-parameters, by decreasing weight.
        weights: their posterior probabilities, shape (n_components,), summing to one.
        temperature: T in ``p_k^(1/T) / sum_l p_l^(1/T)``, applied to probabilities with noise and to `left_out`.
        class_weights: w in ``p_k w_k / sum_l p_l w_l``, shape (n_classes,), applied after the temperature to
            probabilities with noise, by which they agree with known class shares; None if these are unknown.
        drawn_from: of draws, the mixture in closed form whose heaviest components were sampled, if known. Its
            lighter components may regain weight when labels change.
        learned: of a mixture in closed form whose labels have changed, that before the first change, which may have
            more components.
    """

    components: tuple[GaussianPosterior | Draws, ...] = field(repr=False)
    weights: Array
    temperature: float = 1.0
    class_weights: Array | None = None
    drawn_from: Mixture | None = field(default=None, repr=False)
    learned: Mixture | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        weights = expect_numbers(self.weights, "weights")
        put(self, weights=weights, temperature=expect_number(self.temperature, "temperature"))
        expect(self.components, tuple, "components", "a tuple of posteriors")
        for each in self.components:
            expect(each, (GaussianPosterior, Draws), "A component", "a GaussianPosterior or Draws")
        if weights.shape != (len(self.components),) or not weights.size:
            raise ValueError(f"A mixture needs one weight for each of its components, got {weights.size} weights.")
        if weights.min() < 0 or abs(weights.sum() - 1) > 1e-6:
            raise ValueError(f"weights must be 0 or above and add up to 1, got the sum {weights.sum():.6g}.")

    def __repr__(self) -> str:
        return described(self, f"{len(self.components):,} components")

    def closed(self) -> Mixture:
        """The same mixture in closed form, including components that were too light to be sampled."""
        if self.drawn_from is not None:
            return replace(self.drawn_from, temperature=self.temperature, class_weights=self.class_weights)
        return replace(self, components=tuple(each.closed() for each in self.components))

    @property
    def _log_weights(self) -> Array:
        with np.errstate(divide="ignore"):  # a weight may be 0
            return np.asarray(np.log(self.weights))

    def with_labels(self, nodes: NDArray[np.int64], y: NDArray[np.int64]) -> Mixture:
        """The closed-form mixture given other labels: components are refitted and reweighted by their evidence.

        A component that does not converge is dropped, unless none does. The lightest ones are dropped too if there
        are too many sites for an interactive update, until `learn` averages over all again or the labels are those
        that it saw. Components whose weight becomes very small are kept, since removing a label may restore it.
        """
        before = self.closed()
        learned = before.learned or before
        expect_fields(before.model, "nodes", "y")
        if labels_by_node(relabeled(before.model, nodes, y)) == labels_by_node(learned.model):
            return learned
        n_sites = max(1, np.size(nodes)) * self.model.n_fields
        old: Any = before.components[: max(FEWEST_COMPONENTS, MOST_SITES // n_sites)]
        new = [each.with_labels(nodes, y) for each in old]
        gains = [after.fit.log_evidence - before.fit.log_evidence for after, before in zip(new, old, strict=True)]
        converged = np.array([each.fit.converged for each in new])
        log_weights = before._log_weights[: len(old)] + gains
        log_weights -= np.where(converged | ~converged.any(), 0.0, np.inf)
        weights = np.exp(log_weights - log_weights.max())
        order = np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)]
        components = tuple(new[i] for i in order)
        mixture = replace(before, components=components, weights=weights[order] / weights.sum(), learned=learned)
        return mixture if self.temperature == 1 else mixture.tempered()

    def tempered(self) -> Mixture:
        """Fit the temperature to leave-one-out predictions, with a prior; no change with two classes.

        A recalibration: with few labels of many classes the model is underconfident, increasingly so with the number
        of classes, which leave-one-out predictions reveal. The only label of a class cannot be predicted from the
        others and is not used.
        """
        if self.n_classes == 2:
            return self
        y, (exponent, factor) = labels_of(self.model), TEMPERATURE
        single = np.bincount(y)[y] == 1
        exponent += (EXPONENT_OF_SINGLES - exponent) * single.mean() ** 2
        median, spread = (2 / self.n_classes) ** exponent, float(np.log(factor))
        if single.all():
            return replace(self, temperature=median)
        p = replace(self, temperature=1.0).left_out()[~single]
        return replace(self, temperature=temperature(p, y[~single], median=median, spread=spread))

    @property
    def prior(self) -> GaussianPrior:
        """The prior of the heaviest component."""
        return self.components[0].prior

    @property
    def model(self) -> Model:
        """The model of the heaviest component."""
        return self.components[0].model

    def classes(self, where: ArrayLike | NewRows | None = None, *, noise: bool = True) -> Classes:
        """The probability of each class at rows: the weighted average over components."""
        probability, square = 0.0, 0.0
        for weight, each in zip(self.weights, self.components, strict=True):
            classes = each.classes(where, noise=noise)
            probability = probability + weight * classes.probability
            square = square + (weight * classes.error) ** 2
        average = Classes(np.asarray(probability), np.sqrt(square))
        return self._adjusted_with_error(average) if noise else average

    def with_shares(self, shares: ArrayLike, rows: ArrayLike | None = None) -> Mixture:
        """The mixture whose class probabilities have the given mean over rows; see `calibration.match_shares`.

        Args:
            shares: known shares of the classes, shape (n_classes,).
            rows: nodes that represent all rows; by default all.
        """
        bare = replace(self, class_weights=None)
        return replace(self, class_weights=class_weights(bare.classes(rows).probability, shares))

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
        """An ArviZ object with one chain of 1,000 draws of `u` at some nodes, taken as by `latent`.

        Includes the `log_likelihood` of the labels, for `az.loo`, if all components are draws; the temperature
        does not enter. For the chains of a component, with acceptance rates and work, use its own `to_arviz`.
        """
        chosen = arviz_nodes(self, nodes)
        groups: dict[str, Any] = {"posterior": {"u": self.latent(chosen)}}
        if all(isinstance(each, Draws) and each.model.offers("log_likelihood") for each in self.components):
            groups["log_likelihood"] = {"y": self._drawn(lambda each, _: each.log_likelihood())}
        return arviz_object(self, chosen, groups)

    def _drawn(self, at_draws: Callable[[Any, int], NDArray[Any]], seed: int = 0) -> NDArray[Any]:
        """Values of `at_draws` at draws taken from the components in proportion to their weights.

        The same seed selects the same draws. A component repeats draws only after all of them have been used.
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
        """Leave-one-out class probabilities of the labeled nodes.

        Leaving out a label removes its factor from the evidence, so the weight of each component is divided by its
        leave-one-out predictive probability of the label, mistakes included. Class weights do not enter: classes
        need not be as frequent among the labels as among the rows.
        """
        parts: Any = self.closed().components[: len(self.components)]
        p = np.array([each.left_out() for each in parts])
        weights = softmax(self._log_weights[:, None] - [each.fit.log_predictive for each in parts], axis=0)
        return self._tempered(np.einsum("cj,cjk->jk", weights, p))

    def _tempered(self, probability: Array) -> Array:
        if self.temperature == 1:
            return probability
        return np.clip(apply_temperature(probability, self.temperature), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)

    def adjusted(self, probability: Array) -> Array:
        """Apply the temperature and the class weights."""
        tempered = self._tempered(probability)
        if self.class_weights is None:
            return tempered
        return np.clip(weighted_classes(tempered, self.class_weights), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)

    def _adjusted_with_error(self, bare: Classes) -> Classes:
        """Apply the temperature and the class weights, and propagate the error.

        From ``T dq_k = q_k (dp_k / p_k - sum_l q_l dp_l / p_l)``, as an upper bound since errors are correlated.
        """
        if self.temperature == 1 and self.class_weights is None:
            return bare
        p, q = bare.probability, self.adjusted(bare.probability)
        relative = q * bare.error / p
        others = relative.sum(axis=1, keepdims=True) - relative
        return Classes(q, np.minimum(((1 - q) * relative + q * others) / self.temperature, 1.0))

    def diagnostics(self) -> MixtureDiagnosis:
        """The diagnostics of the components."""
        return MixtureDiagnosis(tuple(each.diagnostics() for each in self.components))


AnyPosterior: TypeAlias = Draws | GaussianPosterior | Mixture
