"""What the labels say about every row: one protocol, and three implementations.

| leaf | made by | what it holds |
|---|---|---|
| `Draws` | `sample` | draws of z |
| `GaussianPosterior` | expectation propagation | a Gaussian of z, in closed form |
| `Mixture` | `learn` | either of the two at several hyper-parameters, with weights |

All have the same methods. `to_arviz` gives the chains of `Draws` as they are, with the log likelihood of every label and the
statistics of the sampler; of a `Mixture` of draws one chain with the log likelihood; of anything in closed form one chain of
independent draws of u alone.
"""

from graphuq.posterior.archive import load
from graphuq.posterior.base import Classes, LabelStatistics, Posterior
from graphuq.posterior.draws import Draws
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.mixture import Mixture

__all__ = ["Classes", "Draws", "GaussianPosterior", "LabelStatistics", "Mixture", "Posterior", "load"]
