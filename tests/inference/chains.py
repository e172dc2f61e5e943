"""Chains of a sampler on a target, by the sampler's own functions alone, and their z-scores."""

from functools import partial

import jax
import numpy as np

from graphuq.inference.target import Target
from graphuq.inference.whiten import whiten
from graphuq.posterior import Draws


def draws(prior, model, sampler, n_warmup, n_steps, *, seed=5, n_chains=32):
    """A posterior from draws after `n_warmup` others: nothing is adapted, so that one step alone is compiled.

    One compilation serves all priors of one kind of whitening.
    """
    whitening = whiten(prior, np.arange(prior.n_nodes) if model.sees_all_nodes else model.nodes)
    target = Target.of(whitening.field("float32"), model)
    z = jax.random.normal(jax.random.key(seed), (n_chains, target.n_latent))
    found, info, _ = run(sampler, target, z, n_warmup=0, n_steps=n_warmup + n_steps, seed=seed)
    return Draws(whitening, model, found[:, n_warmup:], info.acceptance[:, n_warmup:], info.work[:, n_warmup:], {})


def run(sampler, target, z, *, n_warmup, n_steps, seed=0):
    """Draws of shape (n_chains, n_steps, n_latent), the infos, and the last states; z holds the starts."""
    keys = jax.random.split(jax.random.key(seed), len(z))
    return jax.tree.map(np.asarray, _compiled(sampler, n_warmup, n_steps, keys, z, sampler.prepare(target)))


def shapes(sampler, target, z, *, n_warmup, n_steps):
    """Shapes and types of what `run` would return, without the running."""
    keys = jax.random.split(jax.random.key(0), len(z))
    return jax.eval_shape(partial(_chains, sampler, n_warmup, n_steps), keys, z, sampler.prepare(target))


def z_scores(quantities, expected):
    """How many standard errors the mean over independent chains is off; quantities (n_chains, n_steps, ...)."""
    means = quantities.mean(axis=1)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    return (means.mean(axis=0) - expected) / error


def _chains(sampler, n_warmup, n_steps, keys, z, problem):
    def warm(state, key):
        return sampler.step(key, state, problem, True)[0], None

    def step(state, key):
        state, info = sampler.step(key, state, problem, False)
        return state, (sampler.draw(state, problem), info)

    def chain(key, z):
        key_init, key_warm, key_steps = jax.random.split(key, 3)
        state = sampler.init(key_init, z, problem)
        if n_warmup:
            state, _ = jax.lax.scan(warm, state, jax.random.split(key_warm, n_warmup))
        state, (draws, info) = jax.lax.scan(step, state, jax.random.split(key_steps, n_steps))
        return draws, info, state

    return jax.vmap(chain)(keys, z)


# The targets of tests are small: most of the time would go into optimizing code that hardly runs.
_compiled = jax.jit(_chains, static_argnums=(0, 1, 2), compiler_options={"xla_backend_optimization_level": 0})
