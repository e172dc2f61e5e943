"""A prior and a label model in; posterior draws by independence Metropolis-Hastings out, within milliseconds."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from graphuq.inference.whiten import whiten
from graphuq.models.base import Model
from graphuq.posterior.draws import Draws
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]

# Array elements of a block of proposals, 8 MB: with `thin` there are many more proposals than draws.
BLOCK_NUMBERS = 2**20
N_WARMUP = 100  # steps of each chain before its draws


def sample_independently(
    prior: GaussianPrior,
    model: Model,
    *,
    n_steps: int = 500,
    thin: int = 1,
    n_chains: int = 8,
    seed: int = 0,
) -> Draws:
    """Sample the posterior with independent proposals from the Gaussian N(m, S) of expectation propagation.

    ``z' ~ N(m, S)``, accepted with ``min(1, w(z') / w(z))``, ``w(z) = exp(-Phi(B z)) N(z; 0, I) / N(z; m, S)``
    (Metropolis-Hastings), so that the chain targets the exact posterior. Proposals are weighted in blocks by one
    matrix product each and nothing is compiled, whereas `sample` compiles for each number of labels. With some hundreds of
    contradicting labels few proposals are accepted: the diagnostics show it, and `sample` is the remedy.

    The model needs `sites` of one field, as `Probit` of two classes has. Settings are those of `sample`, but `n_steps`
    counts the draws of each chain, with `thin` steps per draw.
    """
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    sites = model.sites()
    whitening = whiten(prior, model.nodes)
    B = whitening.matrix(model.nodes)
    reference = sites.fit(B).gaussian()
    n_latent, total = whitening.n_latent, N_WARMUP + n_steps * thin
    size = max(1, BLOCK_NUMBERS // (n_chains * max(n_latent, len(model.nodes))))
    at, log_w_at = np.empty((n_chains, 0, n_latent)), np.empty((n_chains, 0))  # the first proposal is the start
    kept, acceptances = [], []
    for first in range(0, total, size):
        steps = np.arange(first, min(first + size, total))
        zeta = rng.standard_normal((n_chains * len(steps), n_latent))
        z = reference.mean + zeta @ reference.factor.T
        log_w = sites.log_likelihood(z @ B.T).sum(axis=1) + (np.square(zeta) - np.square(z)).sum(axis=1) / 2
        z = np.concatenate([at, z.reshape(n_chains, -1, n_latent)], axis=1)
        log_w = np.concatenate([log_w_at, log_w.reshape(n_chains, -1)], axis=1)
        visited, accepted = _walk(log_w, np.log(rng.random(log_w.shape)))
        at = np.take_along_axis(z, visited[:, -1:, None], axis=1)
        log_w_at = np.take_along_axis(log_w, visited[:, -1:], axis=1)
        is_kept = (steps >= N_WARMUP) & ((steps - N_WARMUP) % thin == thin - 1)
        kept.append(np.take_along_axis(z, visited[:, -len(steps) :][:, is_kept, None], axis=1))
        acceptances.append(accepted[:, -len(steps) :])
    acceptance = np.concatenate(acceptances, axis=1)[:, N_WARMUP:].reshape(n_chains, n_steps, thin).mean(axis=2)
    return Draws(
        whitening=whitening,
        model=model,
        z=np.concatenate(kept, axis=1),
        acceptance=acceptance,
        work=np.full(acceptance.shape, thin, dtype=np.int32),
        settings={
            "sampler": "independent proposals from expectation propagation",
            "seed": seed,
            "n_warmup": N_WARMUP,
            "thin": thin,
            "dtype": "float64",
            "prior": prior.name,
            "stopped_by": "the last step",
            "seconds": time.perf_counter() - began,
        },
    )


def _walk(log_w: Array, log_uniform: Array) -> tuple[NDArray[np.int64], Array]:
    """Index of the proposal each chain is at after each step, and the acceptance probability of each proposal.

    Chains start at the first proposal.
    """
    chains = np.arange(len(log_w))
    current = np.zeros(len(log_w), dtype=np.int64)
    visited, acceptance = np.empty(log_w.shape, dtype=np.int64), np.empty(log_w.shape)
    for step in range(log_w.shape[1]):
        log_ratio = log_w[:, step] - log_w[chains, current]
        current = np.where(log_uniform[:, step] < log_ratio, step, current)
        visited[:, step], acceptance[:, step] = current, np.exp(np.minimum(log_ratio, 0.0))
    return visited, acceptance
