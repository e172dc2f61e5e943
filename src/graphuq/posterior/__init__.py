"""Prior, model and draws or sites in; class probabilities at every row out: one base class, three kinds.

| class | created by | contents |
|---|---|---|
| `Draws` | `sample` | draws of z |
| `GaussianPosterior` | expectation propagation | a Gaussian for z, in closed form |
| `Mixture` | `learn` | either of the two at several hyper-parameters, with weights |

All have the same methods. `to_arviz` returns the chains of `Draws` unchanged, with the log likelihood of every
label and the sampler statistics; for a `Mixture` of draws one chain with the log likelihood; for closed forms one
chain of independent draws of u, without a log likelihood.
"""

from graphuq.posterior.archive import load
from graphuq.posterior.base import Classes, LabelStatistics, Posterior
from graphuq.posterior.draws import Draws
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.mixture import Mixture

__all__ = ["Classes", "Draws", "GaussianPosterior", "LabelStatistics", "Mixture", "Posterior", "load"]
