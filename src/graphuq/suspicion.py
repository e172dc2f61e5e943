"""A posterior in; the labels that the others speak against, most suspicious first, out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect_whole
from graphuq.models.base import ask
from graphuq.posterior.base import Posterior

# A label is worth a look when the others give it less than the first, and another class more than the second.
DOUBTED, CLEAR = 0.2, 0.5
# Labels up to which a page leaves each of them out: it costs their number cubed.
MAX_LEFT_OUT = 2000


@dataclass(frozen=True, eq=False)
class SuspiciousLabels:
    """Labeled nodes from the most to the least suspicious; all of shape (n_labeled,) or cut to the first.

    Attributes:
        nodes: the labeled nodes.
        y: the classes they were given, as numbers.
        likelier: the class that the other labels make most probable there.
        probability: that the class there is not the given one, as far as all *other* labels tell. The label itself does
            not count: where classes overlap this is high for many a right label too.
        rival: the probability of the likelier class, given all other labels.
    """

    nodes: NDArray[np.int64]
    y: NDArray[np.int64]
    likelier: NDArray[np.int64]
    probability: NDArray[np.float64]
    rival: NDArray[np.float64]

    def clear(self) -> NDArray[np.int64]:
        """Which of them, by position, a person should look at: where the others speak clearly for another class."""
        return np.flatnonzero((self.probability > 1 - DOUBTED) & (self.rival > CLEAR))


def suspicious_labels(
    posterior: Posterior, *, n: int | None = None, left_out: NDArray[np.float64] | None = None
) -> SuspiciousLabels:
    """The labels ranked by how probable the others make another class there, all of them or the first n.

    ``1 - P(class of j is y_j | all labels but y_j)``: a label that stands alone against its neighbors is suspicious,
    however sure the one who gave it was. It takes a model that offers sites. `left_out` is what `posterior.left_out`
    returns, where that is at hand.
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
