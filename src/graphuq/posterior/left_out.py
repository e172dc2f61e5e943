"""A posterior in; leave-one-out predictions of its labels, suspicious labels, and a calibration check out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq._expect import expect_whole
from graphuq.calibration import SURPRISE, tally
from graphuq.models.base import labels_of
from graphuq.posterior.base import Posterior

# A label should be checked if the others give it less probability than DOUBTED and than OF_SHARE times the share of its
# class (every label of a rare class is improbable), and another class more than CLEAR.
DOUBTED, OF_SHARE, CLEAR = 0.2, 0.5, 0.5
# If chance alone could explain a larger difference than this, there are too few labels for a verdict.
UNTOLD = 1 / 3
# A smaller share of mistakes is expected before any label is seen, and is not reported.
LEAST_TOLD = 0.03
# The report leaves labels out only up to this number of them: the cost is cubic.
MAX_LEFT_OUT = 2000


@dataclass(frozen=True, eq=False)
class SuspiciousLabels:
    """Labeled nodes from the most to the least suspicious; arrays of shape (n_labeled,), or fewer if limited.

    Attributes:
        nodes: the labeled nodes.
        y: their given classes, as numbers.
        likelier: the most probable class there, given all other labels.
        probability: the probability that the class is not the given one, given all *other* labels. The label
            itself is not used, so where classes overlap this is high for many correct labels too.
        rival: the probability of the class `likelier`, given all other labels.
        share: the share of the given class among all labels.
    """

    nodes: NDArray[np.int64]
    y: NDArray[np.int64]
    likelier: NDArray[np.int64]
    probability: NDArray[np.float64]
    rival: NDArray[np.float64]
    share: NDArray[np.float64]

    def clear(self) -> NDArray[np.int64]:
        """Positions of the labels to check: those where the other labels clearly support another class."""
        limit = np.minimum(DOUBTED, OF_SHARE * self.share)
        return np.flatnonzero((1 - self.probability < limit) & (self.rival > CLEAR))


def suspicious_labels(
    posterior: Posterior, *, n: int | None = None, left_out: NDArray[np.float64] | None = None
) -> SuspiciousLabels:
    """Rank labels by the probability of another class given the other labels; all labels, or the first n.

    The score is ``1 - P(class of j is y_j | all labels but y_j)``: a label that contradicts its neighbors is
    suspicious. Requires a model with sites. `left_out` is the result of `posterior.left_out`, if already computed.
    """
    if n is not None:
        expect_whole(n, "n")
    y = labels_of(posterior.model)
    others = _predictions(posterior) if left_out is None else left_out
    probability = 1 - others[np.arange(len(y)), y]
    order = np.argsort(-probability, kind="stable")[:n]
    return SuspiciousLabels(
        np.asarray(posterior.model.nodes)[order],
        y[order],
        uncertainty.most_probable(others)[order],
        probability[order],
        uncertainty.confidence(others)[order],
        (np.bincount(y) / len(y))[y[order]],
    )


def _predictions(posterior: Posterior) -> NDArray[np.float64]:
    """Leave-one-out predictions, or an error that says why there are none."""
    if not (model := posterior.model).offers("sites"):
        raise TypeError(
            f"{type(model).__name__} offers no sites, so no label can be left out and checked against the others: "
            "check labels under probit, or under level-set with two classes."
        )
    return posterior.left_out()


@dataclass(frozen=True)
class SelfCheck:
    """Leave-one-out calibration: each label against its prediction from all others, mistakes included.

    Attributes:
        n_labels: number of labels evaluated: those whose class has another label.
        share_right: the share of labels predicted correctly, that is, as the most probable class.
        promised: the share expected from the probabilities, that is, their mean confidence.
        log_loss: mean of ``-log p(label)``.
        shares_log_loss: the same for a prediction from the class frequencies of the other labels.
        z: how many standard deviations `share_right` lies above `promised`, if the probabilities are right.
        hidden: the largest difference between the two that chance could explain.
        mistakes: the share of labels that the model takes for mistakes.
        explained: whether fewer labels than promised were predicted right, and this may be because a label that is
            left out leaves its own class less frequent, which matters where features tell little.
    """

    n_labels: int
    share_right: float
    promised: float
    log_loss: float
    shares_log_loss: float
    z: float
    hidden: float
    mistakes: float = 0.0
    explained: bool = False

    @property
    def verdict(self) -> str:
        """ "too sure", "too timid", "about right", or "not known" if there are too few labels to decide."""
        if abs(self.z) > SURPRISE and not self.explained:
            return "too sure" if self.z < 0 else "too timid"
        if self.explained:
            return "not known"
        return "about right" if self.hidden <= UNTOLD else "not known"

    def __str__(self) -> str:
        if not self.n_labels:
            return "Whether the probabilities are right cannot be checked: no class has a second label."
        expected = (
            f", {self.mistakes:.0%} of labels being taken for mistakes" if self.mistakes > LEAST_TOLD else ""
        )
        result = (
            f"each left out in turn, {self.share_right:.0%} were predicted right where {self.promised:.0%} were "
            f"promised{expected}"
        )
        unseen = f"(a difference below {self.hidden:.0%} would not show)."
        verdict = (
            f"As far as {self.n_labels:,} labels can tell, the probabilities are {self.verdict}: {result} {unseen}"
        )
        if self.explained:
            verdict = (
                f"{self.n_labels:,} labels cannot tell whether the probabilities are right: {result}. A label that is left "
                "out leaves its own class less frequent, which may be why, or they are too sure."
            )
        elif self.verdict == "not known":
            return f"{self.n_labels:,} labels are too few to tell whether the probabilities are right: {result} {unseen}"
        if self.log_loss < self.shares_log_loss:
            return (
                f"{verdict} Log-loss {self.log_loss:.3f}; a guess by the shares of the classes has {self.shares_log_loss:.3f}, "
                "and lower is better."
            )
        return (
            f"The answers are no better than a guess by the shares of the classes: log-loss {self.log_loss:.3f}, where that "
            f"has {self.shares_log_loss:.3f}. {verdict}"
        )


def self_check(posterior: Posterior, *, left_out: NDArray[np.float64] | None = None) -> SelfCheck:
    """Check the calibration of leave-one-out predictions of the labels.

    Requires a model with sites, or the result of `posterior.left_out`. The only label of a class cannot be
    predicted from the others and is not evaluated. Probabilities are those of the class of a row, while a label
    may be mistaken. Its predictive probability is therefore

        P(label = k) = (1 - e) P(class = k) + e P(class is not k) / (K - 1),    e the share of mistakes.
    """
    y = labels_of(posterior.model)
    counts = np.bincount(y, minlength=posterior.n_classes)
    predictable = counts[y] > 1
    weighted = zip(posterior.weights, posterior.components, strict=True)
    mistakes = float(sum(weight * each.model.mistake_rate for weight, each in weighted))
    if not predictable.any():
        return SelfCheck(0, np.nan, np.nan, np.nan, np.nan, 0.0, 1.0, mistakes)
    p = (_predictions(posterior) if left_out is None else left_out)[predictable]
    p = (1 - mistakes) * p + mistakes * (1 - p) / (posterior.n_classes - 1)
    y = y[predictable]
    # Class frequencies among the other labels, smoothed by Laplace's rule: one extra count for every class.
    shares = (counts[y] - 1 + 1) / (counts.sum() - 1 + posterior.n_classes)
    # the same if the class of the label that is left out kept its frequency
    kept = np.where(np.arange(p.shape[1]) == y[:, None], (counts / np.maximum(counts - 1, 1))[y][:, None] * p, p)
    right, promised, deviation, z = tally(p, y)
    explained = z < -SURPRISE and tally(kept / kept.sum(axis=1, keepdims=True), y).z > -SURPRISE
    return SelfCheck(
        n_labels=len(y),
        share_right=right / len(y),
        promised=promised / len(y),
        log_loss=float(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-300)).mean()),
        shares_log_loss=float(-np.log(shares).mean()),
        z=z,
        # two standard deviations, but at least one label, where all predictions are nearly certain
        hidden=float(max(SURPRISE * deviation, 1.0) / len(y)),
        mistakes=mistakes,
        explained=bool(explained),
    )
