"""Labels of a seen table and the settings of a classifier in; the posterior that they ask for out, and how it follows labels."""

from __future__ import annotations

import time
from dataclasses import is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphuq._progress import stages_told
from graphuq.classes import Labels
from graphuq.estimator.seen import Seen
from graphuq.estimator.settings import make_prior, refuse_ignored_noise, shows_bars
from graphuq.inference.run import sample, sample_enough
from graphuq.learning import LogNormal, learn
from graphuq.learning.learned import warn_of_unlabeled_components
from graphuq.models import Model, Probit, unlabeled
from graphuq.models.base import LEARNED_FIELDS, ask, expect_fields, has_evidence, labeled, offer, offers
from graphuq.posterior import Draws, GaussianPosterior, Mixture
from graphuq.posterior.mixture import AnyPosterior, closed
from graphuq.prior import GaussianPrior

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

# Components of a mixture that are drawn from: the heaviest that together weigh this much.
DRAWN_WEIGHT = 0.9
# What probit learns of the labels' noise: of no use to another model.
NOISE = ("gamma", "mistakes")
# Deviations, which are in units of the noise.
IN_UNITS_OF_NOISE = ("gamma", "graph", "linear", "bent")
# What a prior without a graph piece does not have.
OF_GRAPH = ("tau", "alpha")
# What is known within this factor was fixed, but for rounding.
FIXED = 1 + 1e-6


class Inferred(NamedTuple):
    """A posterior; the table with as many eigenpairs as it took; hyper-parameters, and the factors within which they are known."""

    posterior: AnyPosterior
    seen: Seen
    hyperparameters: dict[str, float]
    spread: dict[str, float]


def model_of(classifier: GraphClassifier, labels: Labels) -> Model:
    """The model of the labels, if it can do what is asked of it."""
    template = unlabeled(classifier.model, classifier)
    model = labeled(template, labels.nodes, labels.y, labels.n_classes)
    if classifier.inference == "ep":
        ask(model, "sites")  # or a sentence that says why not
    if classifier.prior == "learned" and has_evidence(model):
        expect_fields(model, *LEARNED_FIELDS)
        if template is classifier.model:
            refuse_ignored_noise(model)
    return model


def infer(classifier: GraphClassifier, seen: Seen, labels: Labels) -> Inferred:
    """The posterior under the prior that is asked for, made or learned."""
    model = model_of(classifier, labels)
    numbers = {name: float(getattr(model, name)) for name in offer(model, "numbers")}
    if classifier.prior == "learned":
        return _learned(classifier, seen, labels, model, numbers)
    prior = make_prior(classifier, seen.spectrum)
    if classifier.prior == "matern":
        numbers |= {"tau": float(classifier.tau), "alpha": float(classifier.alpha)}
        warn_of_unlabeled_components(seen.spectrum, labels.nodes)
    by_ep = classifier.inference == "ep"
    posterior = GaussianPosterior.of(prior, model) if by_ep else _sampled(classifier, seen, prior, model)
    return Inferred(posterior, seen, numbers, {})


def drawn(classifier: GraphClassifier, seen: Seen, before: AnyPosterior) -> Draws | Mixture:
    """The same by draws, of a mixture by those of its heaviest components, each independent of the others'."""
    if not isinstance(before, Mixture):
        return _sampled(classifier, seen, before.prior, before.model)
    whole = before.closed()
    n_drawn = 1 + int(np.searchsorted(np.cumsum(whole.weights), DRAWN_WEIGHT))
    weights = whole.weights[:n_drawn] / whole.weights[:n_drawn].sum()
    parts = []
    for k, each in enumerate(whole.components[:n_drawn]):
        own = replace(seen, seed=seen.seed + k)
        of = f", of hyper-parameters {k + 1} of {n_drawn}"
        parts.append(_sampled(classifier, own, each.prior, each.model, of))
    return replace(before, components=tuple(parts), weights=weights, drawn_from=whole)


def with_labels(classifier: GraphClassifier, seen: Seen, before: AnyPosterior, labels: Labels) -> AnyPosterior:
    """The posterior under the same prior and other labels: by expectation propagation, or by draws where that fails.

    Where draws are asked for, the weights of a mixture and its temperature are those of expectation propagation.
    """
    asked, changes = classifier.inference == "sample", is_dataclass(before.model)
    if offers(before.model, "sites") and (not asked or isinstance(before, Mixture)):
        if changes:
            source = before if isinstance(before, Mixture) else closed(before)
            after: GaussianPosterior | Mixture = source.with_labels(labels.nodes, labels.y)
        else:
            after = GaussianPosterior.of(before.prior, model_of(classifier, labels))
        return after if not asked and after.diagnostics().converged else drawn(classifier, seen, after)
    template = before.model if changes else unlabeled(classifier.model, classifier)
    model = labeled(template, labels.nodes, labels.y, labels.n_classes)
    return _sampled(classifier, seen, before.prior, model)


def _learned(
    classifier: GraphClassifier, seen: Seen, labels: Labels, model: Any, numbers: dict[str, float]
) -> Inferred:
    """The posterior averaged over the hyper-parameters that the labels speak for.

    A model without evidence to climb, such as Ginzburg-Landau, gets the prior that probit learns.
    """
    climbs = has_evidence(model)
    climbed = model if climbs else labeled(Probit(), labels.nodes, labels.y, labels.n_classes)
    believed, unit = ask(climbed, "hyperprior"), 1.0
    if classifier.gamma is not None and climbs:
        gamma = float(classifier.gamma)
        if believed.gamma.factor > 1:
            believed = replace(believed, gamma=LogNormal(gamma, 1.0))
        else:  # noise is the unit: to fix gamma where u has deviation 1 along the graph is to fix that deviation
            believed, unit = replace(believed, graph=LogNormal(1 / gamma, 1.0)), gamma
    seconds = dict(seen.seconds)  # other classifiers may have seen the same
    seen = replace(seen, seconds=seconds)
    before, began, modes = seconds["spectrum"], time.perf_counter(), seen.spectrum
    if len(labels.nodes) >= classifier.n_modes:  # so many labels can tell all modes apart
        modes = seen.more_modes(classifier, modes, classifier.n_modes) or modes
    more = partial(seen.more_modes, classifier)
    n_bent = 0 if seen.linear is None else seen.linear.n_bent
    found = learn(modes, climbed, features=seen.columns, n_bent=n_bent, hyperprior=believed, more=more)
    seconds["learning"] = time.perf_counter() - began - (seconds["spectrum"] - before)
    seen = replace(seen, spectrum=found.spectrum)
    values = found.hyperparameters._asdict()
    told = {
        name: value * (unit if name in IN_UNITS_OF_NOISE else 1.0)
        for name, value in values.items()
        if value > 0 and (climbs or name not in NOISE) and (values["graph"] or name not in OF_GRAPH)
    }
    factors = {name: float(np.exp(each)) for name, each in found.log_deviations._asdict().items() if name in told}
    spread = {name: each for name, each in factors.items() if each > FIXED}
    posterior: AnyPosterior = found.posterior
    if not climbs:
        posterior = _sampled(classifier, seen, found.prior, model)
    elif classifier.inference == "sample":
        posterior = drawn(classifier, seen, found.posterior)
    return Inferred(posterior, seen, numbers | told, spread)


def _sampled(classifier: GraphClassifier, seen: Seen, prior: GaussianPrior, model: Model, of: str = "") -> Draws:
    """Draws of a posterior, as the settings ask for; `of` says in words which of several it is."""
    run: dict[str, Any] = {
        "n_chains": classifier.n_chains,
        "seed": seen.seed,
        "progress": shows_bars(classifier),
        "n_steps": classifier.n_steps,
    }
    with stages_told(classifier.verbose) as tell:
        tell(f"draws of {classifier.n_chains} chains{of}")
        if classifier.inference == "sample" or classifier.sampler is not None:
            return sample(prior, model, classifier.sampler, n_warmup=classifier.n_steps, **run)
        return sample_enough(prior, model, time_limit=classifier.time_limit, **run)
