"""A prior and a model in; draws by the quickest way that gives enough of them out."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import ConvergenceWarning

from graphuq._warn import warn
from graphuq.inference.independence import sample_independently
from graphuq.inference.run import sample
from graphuq.inference.stopping import EffectiveSize, TimeLimit
from graphuq.models.base import Model, offer, offers
from graphuq.posterior.draws import Draws
from graphuq.prior import GaussianPrior

# What is drawn until it holds (Vehtari, Gelman, Simpson, Carpenter, Buerkner 2021).
ENOUGH = EffectiveSize(target=400.0, r_hat=1.01)
# Where quick draws are too few, so many times as many are made: still quicker than to compile a sampler.
LONGER = 20
# That sampler draws at most so many times `n_steps`.
MOST_ROUNDS = 20


def sample_enough(
    prior: GaussianPrior,
    model: Model,
    *,
    n_steps: int = 500,
    time_limit: float = 60.0,
    n_chains: int = 8,
    seed: int = 0,
    progress: bool | None = None,
) -> Draws:
    """Draws until R-hat is below 1.01 with 400 effective draws.

    First by proposals from expectation propagation (`sample_independently`), where the model allows them; if those
    fall short, by the model's own sampler.

    Args:
        prior: the Gaussian prior of u.
        model: the likelihood of the labels.
        n_steps: draws of each chain at first, and a twentieth of the most the sampler makes.
        time_limit: seconds after which the sampler stops, with a warning.
        n_chains: independent chains.
        seed: the same seed gives the same draws.
        progress: show a bar, see `sample`.
    """
    run: dict[str, Any] = {"n_chains": n_chains, "seed": seed}
    if offers(model, "sites") and offer(model, "n_fields") == 1:
        for thin in (1, LONGER):
            posterior = sample_independently(prior, model, n_steps=n_steps, thin=thin, **run)
            found = posterior.diagnostics()
            if ENOUGH.holds(found):
                return posterior
            if LONGER * found.ess_bulk.min() < ENOUGH.target:
                break
    stop = (ENOUGH, TimeLimit(time_limit))
    posterior = sample(
        prior, model, n_steps=MOST_ROUNDS * n_steps, n_warmup=n_steps, stop=stop, progress=progress, **run
    )
    found = posterior.diagnostics()
    if found.converged and not ENOUGH.holds(found):  # `sample` itself has warned if it is worse
        warn(
            f"The draws ended before R-hat was below {ENOUGH.r_hat} with {ENOUGH.target:.0f} effective draws. "
            f"{found} Raise time_limit ({time_limit:g} seconds) or n_steps for more.",
            ConvergenceWarning,
        )
    return posterior
