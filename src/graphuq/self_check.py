"""A posterior in; how well it foresees each label from all the others, and whether it is too sure, out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq.models.base import ask
from graphuq.posterior.base import Posterior

# Deviations from what the probabilities promise beyond which chance no longer explains it.
SURPRISE = 2.0


@dataclass(frozen=True)
class SelfCheck:
    """Every label, left out and foreseen from all others.

    Attributes:
        n_labels: how many there are.
        share_right: the share whose most probable class was the label.
        promised: the share that the probabilities promised, their mean confidence.
        log_loss: mean of ``-log p(label)``.
        shares_log_loss: the same for a guess that knows only how often each class occurs among the other labels.
        z: how many deviations `share_right` is above `promised`, were the probabilities right.
        hidden: the difference between the two that chance would hide.
    """

    n_labels: int
    share_right: float
    promised: float
    log_loss: float
    shares_log_loss: float
    z: float
    hidden: float

    @property
    def verdict(self) -> str:
        """ "too sure", "too timid" or "about right"."""
        return "too sure" if self.z < -SURPRISE else "too timid" if self.z > SURPRISE else "about right"

    def __str__(self) -> str:
        better = "less" if self.log_loss < self.shares_log_loss else "no less"
        return (
            f"As far as {self.n_labels:,} labels can tell, the probabilities are {self.verdict}: each left out in turn, "
            f"{self.share_right:.0%} were foreseen where {self.promised:.0%} were promised (a difference below "
            f"{self.hidden:.0%} would not show). "
            f"Log-loss {self.log_loss:.3f}, {better} than the {self.shares_log_loss:.3f} of bare class shares."
        )


def self_check(posterior: Posterior, *, left_out: NDArray[np.float64] | None = None) -> SelfCheck:
    """Leave out every label in turn; it takes a model that offers sites, or what `posterior.left_out` returns.

    A class with a single label is never foreseen without it, so such labels are not judged unless there are no others.
    """
    y = np.asarray(ask(posterior.model, "y"))
    counts = np.bincount(y, minlength=posterior.n_classes)
    judged = counts[y] > 1 if (counts > 1).any() else np.ones(len(y), dtype=bool)
    p = (posterior.left_out() if left_out is None else left_out)[judged]
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
    )
