"""A prior and a label model in; P(u >= 0) at any node out, in milliseconds and without draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq.inference.ep import EP, blas_threads, propagate
from graphuq.inference.marginals import labeled_probability, predict
from graphuq.inference.sites import Sites
from graphuq.inference.whiten import Whitening, conditional_matrix, whiten
from graphuq.models.base import Model, check_nodes
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]

# Nodes are taken in blocks, so that a large graph needs no more memory than this many numbers: 32 MB.
BLOCK_NUMBERS = 2**22


@dataclass(frozen=True)
class GaussianPosterior:
    """The posterior as expectation propagation sees it: what `Posterior` counts from draws, in closed form.

    Attributes:
        whitening: what z says about u at every node.
        result: the Gaussian of z.
    """

    whitening: Whitening
    result: EP

    @classmethod
    def of(cls, prior: GaussianPrior, model: Model) -> GaussianPosterior:
        """Of `Probit` or `LevelSet` labels: the cost does not depend on the size of the graph."""
        with blas_threads(len(model.nodes) ** 2 * prior.n_modes):
            whitening = whiten(prior, model.nodes)
            return cls(whitening, propagate(conditional_matrix(whitening, model.nodes), Sites.of(model)))

    def probability(self, nodes: ArrayLike | None = None) -> Array:
        """The posterior probability that u_j >= 0, that is, of the label +1, at all nodes or at some."""
        n_nodes = self.whitening.prior.n_nodes
        chosen = np.arange(n_nodes) if nodes is None else check_nodes(nodes, n_nodes)
        found = np.empty(chosen.size)
        size = max(1, BLOCK_NUMBERS // self.whitening.n_latent)
        for first in range(0, chosen.size, size):
            block = chosen[first : first + size]
            at = predict(self.result, conditional_matrix(self.whitening, block), self.whitening.std(block))
            found[first : first + size] = at.probability
        # Where a label is, the Gaussian of the same moments does not know that the label cuts u at zero.
        order = np.argsort(self.whitening.nodes)
        labeled = np.isin(chosen, self.whitening.nodes)
        which = order[np.searchsorted(self.whitening.nodes, chosen[labeled], sorter=order)]
        found[labeled] = labeled_probability(self.result)[which]
        return found

    def label_variance(self, nodes: ArrayLike | None = None) -> Array:
        """The posterior variance of the label, ``1 - s_j^2`` (3.2)."""
        probability = self.probability(nodes)
        return 4 * probability * (1 - probability)
