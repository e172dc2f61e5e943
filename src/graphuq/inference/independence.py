"""A prior and a label model in; posterior draws by independence Metropolis-Hastings out, within milliseconds."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from graphuq.inference.whiten import whiten
from graphuq.models.base import Model, ask
from graphuq.posterior.draws import Draws
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]


def sample_independently(
    prior: GaussianPrior,
    model: Model,
    *,
    n_steps: int = 500,
    n_warmup: int = 100,
    thin: int = 1,
    n_chains: int = 8,
    seed: int = 0,
) -> Draws:
    """Sample the posterior with independent proposals from the Gaussian N(m, S) of expectation propagation.

    ``z' ~ N(m, S)``, accepted with ``min(1, w(z') / w(z))``, ``w(z) = exp(-Phi(B z)) N(z; 0, I) / N(z; m, S)``
    (Metropolis-Hastings), so that the chain targets the exact posterior. All proposals are weighted in one matrix
    product and nothing is compiled, whereas `sample` compiles for each number of labels. With some hundreds of
    contradicting labels few proposals are accepted: the diagnostics show it, and `sample` is the remedy.

    The model needs `sites` of one field, as `Probit` of two classes has. Settings are those of `sample`, but `n_steps`
    counts the draws of each chain, with `thin` steps per draw.
    """
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    sites = ask(model, "sites")
    whitening = whiten(prior, model.nodes)
    B = whitening.matrix(model.nodes)
    reference = sites.fit(B).gaussian()
    zeta = rng.standard_normal((n_chains, n_warmup + n_steps * thin, whitening.n_latent))
    z = reference.mean + zeta @ reference.factor.T
    # One chain at a time: u of all draws at thousands of labels takes much memory.
    log_w = np.array([sites.log_likelihood(chain @ B.T).sum(axis=1) for chain in z])
    log_w += (np.square(zeta).sum(axis=2) - np.square(z).sum(axis=2)) / 2
    visited, acceptance = _walk(log_w, np.log(rng.random(log_w.shape)))
    kept = visited[:, n_warmup + thin - 1 :: thin]
    acceptance = acceptance[:, n_warmup:].reshape(n_chains, n_steps, thin).mean(axis=2)
    return Draws(
        whitening=whitening,
        model=model,
        z=np.take_along_axis(z, kept[..., None], axis=1),
        acceptance=acceptance,
        work=np.full(kept.shape, thin, dtype=np.int32),
        settings={
            "sampler": "independent proposals from expectation propagation",
            "seed": seed,
            "n_warmup": n_warmup,
            "thin": thin,
            "dtype": "float64",
            "prior": prior.name,
            "stopped_by": "the last step",
            "seconds": time.perf_counter() - began,
        },
    )


def _walk(log_w: Array, log_uniform: Array) -> tuple[NDArray[np.int64], Array]:
    """Index of the proposal each chain is at after each step, and the acceptance probability of each proposal."""
    chains = np.arange(len(log_w))
    current = np.zeros(len(log_w), dtype=np.int64)
    visited, acceptance = np.empty(log_w.shape, dtype=np.int64), np.empty(log_w.shape)
    for step in range(log_w.shape[1]):
        log_ratio = log_w[:, step] - log_w[chains, current]
        current = np.where(log_uniform[:, step] < log_ratio, step, current)
        visited[:, step], acceptance[:, step] = current, np.exp(np.minimum(log_ratio, 0.0))
    return visited, acceptance
