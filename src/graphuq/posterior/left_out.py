"""A posterior in; each label predicted from the others, which look wrong, and whether it is too sure, out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq._expect import expect_whole
from graphuq.calibration import SURPRISE
from graphuq.models.base import ask, offer
from graphuq.posterior.base import Posterior

# A label is worth a look when the others give it less than the first, and another class more than the second.
DOUBTED, CLEAR = 0.2, 0.5
# Where chance could hide a larger difference than this, there are too few labels to tell anything.
UNTOLD = 1 / 3
# Mistakes of fewer labels are what is believed before any label, and not worth a word.
LEAST_TOLD = 0.03
# Labels up to which a page leaves each of them out: it costs their number cubed.
MAX_LEFT_OUT = 2000


@dataclass(frozen=True, eq=False)
class SuspiciousLabels:
    """Labeled nodes from the most to the least suspicious; all of shape (n_labeled,) or cut to the first.

    Attributes:
        nodes: the labeled nodes.
        y: the classes they were given, as numbers.
        likelier: the class that the other labels make most probable there.
        probability: that the class there is not the given one, judged by all *other* labels. The label itself does not
            count, so where classes overlap this is high for many correct labels too.
        rival: the probability of the likelier class, given all other labels.
    """

    nodes: NDArray[np.int64]
    y: NDArray[np.int64]
    likelier: NDArray[np.int64]
    probability: NDArray[np.float64]
    rival: NDArray[np.float64]

    def clear(self) -> NDArray[np.int64]:
        """Positions of those that a person should check: where the other labels clearly support another class."""
        return np.flatnonzero((self.probability > 1 - DOUBTED) & (self.rival > CLEAR))


def suspicious_labels(
    posterior: Posterior, *, n: int | None = None, left_out: NDArray[np.float64] | None = None
) -> SuspiciousLabels:
    """The labels ranked by how probable the others make another class; all of them, or the first n.

    ``1 - P(class of j is y_j | all labels but y_j)``: a label that contradicts its neighbors is suspicious, however
    sure its author was. The model must offer sites. `left_out` is the result of `posterior.left_out`, if already
    computed.
    """
    if n is not None:
        expect_whole(n, "n")
    y = np.asarray(ask(posterior.model, "y"))
    others = posterior.left_out() if left_out is None else left_out
    probability = 1 - others[np.arange(len(y)), y]
    order = np.argsort(-probability, kind="stable")[:n]
    return SuspiciousLabels(
        np.asarray(posterior.model.nodes)[order],
        y[order],
        others.argmax(axis=1)[order],
        probability[order],
        others.max(axis=1)[order],
    )


@dataclass(frozen=True)
class SelfCheck:
    """Every label, left out and predicted from all others, as it is given: mistakes that the model expects are counted.

    Attributes:
        n_labels: how many are judged: those whose class has others.
        share_right: the share whose most probable class was the label.
        promised: the share that the probabilities promised, that is, their mean confidence.
        log_loss: mean of ``-log p(label)``.
        shares_log_loss: the same for a guess based only on how often each class occurs among the other labels.
        z: how many standard deviations `share_right` is above `promised`, if the probabilities are right.
        hidden: how large a difference between the two chance could hide.
        mistakes: the share of labels that the model takes for mistakes.
    """

    n_labels: int
    share_right: float
    promised: float
    log_loss: float
    shares_log_loss: float
    z: float
    hidden: float
    mistakes: float = 0.0

    @property
    def verdict(self) -> str:
        """ "too sure", "too timid", "about right", or "not known" where there are too few labels to tell."""
        if abs(self.z) > SURPRISE:
            return "too sure" if self.z < 0 else "too timid"
        return "about right" if self.hidden <= UNTOLD else "not known"

    def __str__(self) -> str:
        if not self.n_labels:
            return "Whether the probabilities are right cannot be checked: no class has a second label."
        expected = (
            f", {self.mistakes:.0%} of labels being taken for mistakes" if self.mistakes > LEAST_TOLD else ""
        )
        found = (
            f"each left out in turn, {self.share_right:.0%} were predicted right where {self.promised:.0%} were "
            f"promised{expected} (a difference below {self.hidden:.0%} would not show)."
        )
        if self.verdict == "not known":
            return f"{self.n_labels:,} labels are too few to tell whether the probabilities are right: {found}"
        told = f"As far as {self.n_labels:,} labels can tell, the probabilities are {self.verdict}: {found}"
        if self.log_loss < self.shares_log_loss:
            return f"{told} Log-loss {self.log_loss:.3f}, less than the {self.shares_log_loss:.3f} of bare class shares."
        return (
            f"The answers are no better than a guess by the shares of the classes: log-loss {self.log_loss:.3f}, where that "
            f"has {self.shares_log_loss:.3f}. {told}"
        )


def self_check(posterior: Posterior, *, left_out: NDArray[np.float64] | None = None) -> SelfCheck:
    """Leave out every label in turn; needs a model that offers sites, or the result of `posterior.left_out`.

    A class with a single label cannot be predicted without it, so such labels are not judged. The probabilities are of
    the class of a row, and a label may be a mistake: it is predicted as such,

        P(label = k) = (1 - e) P(class = k) + e P(class is not k) / (K - 1),    e the share of mistakes.
    """
    y = np.asarray(ask(posterior.model, "y"))
    counts = np.bincount(y, minlength=posterior.n_classes)
    judged = counts[y] > 1
    weighed = zip(posterior.weights, posterior.components, strict=True)
    mistakes = float(sum(weight * offer(each.model, "mistake_rate") for weight, each in weighed))
    if not judged.any():
        return SelfCheck(0, np.nan, np.nan, np.nan, np.nan, 0.0, 1.0, mistakes)
    p = (posterior.left_out() if left_out is None else left_out)[judged]
    p = (1 - mistakes) * p + mistakes * (1 - p) / (posterior.n_classes - 1)
    y = y[judged]
    # Laplace's rule for the shares among the other labels, every class once more.
    shares = (counts[y] - 1 + 1) / (counts.sum() - 1 + posterior.n_classes)
    confidence, right = uncertainty.confidence(p), uncertainty.most_probable(p) == y
    deviation = np.sqrt(np.sum(confidence * (1 - confidence)))
    return SelfCheck(
        n_labels=len(y),
        share_right=float(right.mean()),
        promised=float(confidence.mean()),
        log_loss=float(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-300)).mean()),
        shares_log_loss=float(-np.log(shares).mean()),
        z=float((right.sum() - confidence.sum()) / max(deviation, 1e-12)),
        # chance's two deviations, or one label that is wrong where all were all but sure
        hidden=float(max(SURPRISE * deviation, 1.0) / len(y)),
        mistakes=mistakes,
    )
