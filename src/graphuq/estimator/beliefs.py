"""Labels of a table and the parameters of a classifier in; the posterior, and its update for new labels, out."""

from __future__ import annotations

import time
from dataclasses import is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import LARGEST_COUNT
from graphuq._progress import stages_told
from graphuq.classes import Labels
from graphuq.estimator.seen import Seen
from graphuq.estimator.settings import known_shares, make_prior, refuse_ignored_noise, shows_bars
from graphuq.inference.run import sample, sample_enough
from graphuq.learning import LogNormal, learn
from graphuq.learning.learned import warn_of_unlabeled_components
from graphuq.models import Model, Probit, unlabeled
from graphuq.models.base import LEARNED_FIELDS, expect_fields, labeled
from graphuq.posterior import Draws, GaussianPosterior, Mixture
from graphuq.posterior.mixture import AnyPosterior
from graphuq.prior import GaussianPrior
from graphuq.tall import numbered, spread

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

# Sampling a mixture is limited to its heaviest components, which together have this weight.
DRAWN_WEIGHT = 0.9
# Noise parameters learned with probit, of no use to another model.
NOISE = ("gamma", "mistakes")
# Standard deviations in units of the noise.
IN_UNITS_OF_NOISE = ("gamma", "graph", "linear", "bent")
# Hyper-parameters that a prior without a graph term lacks.
OF_GRAPH = ("tau", "alpha")
# A hyper-parameter known to within this factor was fixed, up to rounding.
FIXED = 1 + 1e-6


class Inferred(NamedTuple):
    """A posterior, the table with the eigenpairs it needed, hyper-parameters, and the factor each is known to."""

    posterior: AnyPosterior
    seen: Seen
    hyperparameters: dict[str, float]
    spread: dict[str, float]


def model_of(classifier: GraphClassifier, labels: Labels) -> Model:
    """The model with its labels; raise an error if it does not support the settings."""
    template = unlabeled(classifier.model, classifier)
    model = labeled(template, labels.nodes, labels.y, labels.n_classes, labels.weights)
    if classifier.inference == "ep":
        model.sites()  # raises an error if there are none
    if classifier.prior == "learned" and model.offers("sites", "hyperprior"):
        expect_fields(model, *LEARNED_FIELDS)
        if template is classifier.model:
            refuse_ignored_noise(model)
    return model


def infer(classifier: GraphClassifier, seen: Seen, labels: Labels) -> Inferred:
    """Compute the posterior under the requested prior, given or learned."""
    model = model_of(classifier, labels)
    numbers = {name: float(getattr(model, name)) for name in model.numbers}
    if classifier.prior == "learned":
        return _learned(classifier, seen, labels, model, numbers)
    prior = make_prior(classifier, seen.spectrum)
    if classifier.prior == "matern":
        numbers |= {"tau": float(classifier.tau), "alpha": float(classifier.alpha)}
        warn_of_unlabeled_components(seen.spectrum, labels.nodes)
    by_ep = classifier.inference == "ep"
    posterior = GaussianPosterior.of(prior, model) if by_ep else _sampled(classifier, seen.seed, prior, model)
    return Inferred(posterior, seen, numbers, {})


def drawn(classifier: GraphClassifier, seed: int, before: AnyPosterior) -> Draws | Mixture:
    """Sample a posterior; of a mixture its heaviest components, each with its own seed."""
    if not isinstance(before, Mixture) or not before.model.offers("sites"):
        return _sampled(classifier, seed, before.prior, before.model)
    whole = before.closed()
    n_drawn = 1 + int(np.searchsorted(np.cumsum(whole.weights), DRAWN_WEIGHT))
    weights = whole.weights[:n_drawn] / whole.weights[:n_drawn].sum()
    parts = []
    for k, component in enumerate(whole.components[:n_drawn]):
        of = f", of hyper-parameters {k + 1} of {n_drawn}"
        parts.append(_sampled(classifier, seed + k, component.prior, component.model, of))
    return replace(whole, components=tuple(parts), weights=weights, drawn_from=whole, learned=None)


def with_labels(classifier: GraphClassifier, seed: int, before: AnyPosterior, labels: Labels) -> AnyPosterior:
    """The posterior with the same prior and new labels: by expectation propagation, or by sampling if that fails.

    With inference="sample", the weights and the temperature of a mixture are still those of expectation
    propagation.
    """
    samples, can_relabel = classifier.inference == "sample", is_dataclass(before.model)
    if before.model.offers("sites") and (not samples or isinstance(before, Mixture)):
        if can_relabel:
            after: GaussianPosterior | Mixture = before.closed().with_labels(labels.nodes, labels.y)
        else:
            after = GaussianPosterior.of(before.prior, model_of(classifier, labels))
        return after if settled(after) and not samples else drawn(classifier, seed, after)
    template = before.model if can_relabel else unlabeled(classifier.model, classifier)
    model = labeled(template, labels.nodes, labels.y, labels.n_classes, labels.weights)
    return _sampled(classifier, seed, before.prior, model)


def settled(posterior: Any) -> bool:
    """Whether expectation propagation reached a fixed point in every component."""
    return all(each.fit.converged for each in posterior.components)


def with_shares(classifier: GraphClassifier, posterior: AnyPosterior, classes: NDArray[Any]) -> AnyPosterior:
    """The posterior that agrees with the known class shares, or, if there are none, without those known before."""
    shares = known_shares(classifier, classes)
    if shares is None:
        if isinstance(posterior, Mixture) and posterior.class_weights is not None:
            return replace(posterior, class_weights=None)
        return posterior
    mixture = posterior if isinstance(posterior, Mixture) else Mixture((posterior,), np.ones(1))
    return mixture.with_shares(shares, numbered(spread(mixture.n_nodes), mixture.n_nodes))


def _learned(
    classifier: GraphClassifier, seen: Seen, labels: Labels, model: Any, numbers: dict[str, float]
) -> Inferred:
    """Learn the prior, and average the posterior over the hyper-parameters that the labels support.

    A model without tractable evidence, such as Ginzburg-Landau, uses the prior learned with probit, brought from
    units of probit's noise to the scale of the paper's priors, on which its wells lie.
    """
    learnable = model.offers("sites", "hyperprior")
    source = model if learnable else labeled(Probit(), labels.nodes, labels.y, labels.n_classes, labels.weights)
    hyperprior, unit = source.hyperprior(), 1.0
    if not learnable:  # a constant alone would leave it nothing to move
        hyperprior = replace(hyperprior, constant_alone=None)
    if classifier.gamma is not None and learnable:
        gamma = float(classifier.gamma)
        if hyperprior.gamma.factor > 1:
            hyperprior = replace(hyperprior, gamma=LogNormal(gamma, 1.0))
        else:  # noise is the unit: fixing gamma for a graph term of deviation 1 fixes that deviation
            hyperprior, unit = replace(hyperprior, graph=LogNormal(1 / gamma, 1.0)), gamma
    seconds = dict(seen.seconds)  # a copy, as other classifiers may share `seen`
    seen = replace(seen, seconds=seconds)
    before, began, modes = seconds["spectrum"], time.perf_counter(), seen.spectrum
    if len(labels.nodes) >= classifier.n_modes:  # enough labels to determine all modes
        modes = seen.more_modes(classifier, modes, classifier.n_modes) or modes
    more_modes = partial(seen.more_modes, classifier)
    n_bent = 0 if seen.linear is None else seen.linear.n_bent
    learned = learn(modes, source, features=seen.columns, n_bent=n_bent, hyperprior=hyperprior, more=more_modes)
    seconds["learning"] = time.perf_counter() - began - (seconds["spectrum"] - before)
    seen = replace(seen, spectrum=learned.spectrum)
    prior = learned.prior
    if not learnable:
        prior = prior.unit_scale()
        unit = float(np.sqrt(prior.variances.sum() / learned.prior.variances.sum()))
    values = learned.hyperparameters._asdict()
    reported = {
        name: float(f"{value * (unit if name in IN_UNITS_OF_NOISE else 1.0):.12g}")  # not 7.999999999999998
        for name, value in values.items()
        if value > 0 and (learnable or name not in NOISE) and (values["graph"] or name not in OF_GRAPH)
    }
    log_factors = learned.log_deviations._asdict()
    factors = {name: float(np.exp(log)) for name, log in log_factors.items() if name in reported}
    spread = {name: factor for name, factor in factors.items() if factor > FIXED}
    posterior: AnyPosterior = learned.posterior
    if not learnable:
        posterior = _sampled(classifier, seen.seed, prior, model)
    elif classifier.inference == "sample":
        posterior = drawn(classifier, seen.seed, learned.posterior)
    return Inferred(posterior, seen, numbers | reported, spread)


def _sampled(classifier: GraphClassifier, seed: int, prior: GaussianPrior, model: Model, of: str = "") -> Draws:
    """Sample a posterior by the classifier's settings; `of` names it in the progress report."""
    run: dict[str, Any] = {
        "n_chains": classifier.n_chains,
        "seed": seed,
        "progress": shows_bars(classifier),
        "n_steps": classifier.n_steps,
    }
    with stages_told(classifier.verbose) as tell:
        tell(f"draws of {classifier.n_chains} chains{of}")
        if classifier.inference == "sample" or classifier.sampler is not None:
            return sample(prior, model, classifier.sampler, n_warmup=classifier.n_steps, **run)
        time_limit = float(min(classifier.time_limit, LARGEST_COUNT))  # infinity is no limit
        return sample_enough(prior, model, time_limit=time_limit, **run)
