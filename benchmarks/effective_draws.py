"""Effective draws a second on four posteriors: ours against NumPyro NUTS and BlackJAX elliptical slice.

Each peer is written as its own user would, on whitened spectral coefficients. The figure is the bulk ESS of
the worst of 20 watched nodes (10 labeled, 10 not) over the seconds of sampling; compilation and warm-up are
left out for everyone. A run whose R-hat exceeds 1.05 has no effective draws to speak of: it is shown in brackets.
What is found is kept in docs/reproduction/performance.json, from which docs/performance.md is made.
"""

import argparse
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats
from experiments.refractive import Refractive
from jax.scipy.special import log_ndtr
from sklearn.exceptions import ConvergenceWarning

from benchmarks import problems
from benchmarks.record import CONVERGED, best_rates, record_draws
from graphuq import NUTS, PCN, Orthant, Referenced
from graphuq.inference.run import _block, _init
from graphuq.inference.target import Target
from graphuq.inference.whiten import whiten


def score(u, seconds):
    """Bulk ESS a second of the worst quantity, and the worst R-hat, for u of shape (chains, draws, nodes)."""
    u = np.asarray(u, dtype=float)
    ess = np.min(array_stats.ess(u, chain_axis=0, draw_axis=1, method="bulk"))
    r_hat = np.max(array_stats.rhat(u, chain_axis=0, draw_axis=1, method="rank"))
    return ess / seconds, r_hat


def spectral_factor(problem, nodes):
    """``Q sqrt(v)`` at some nodes: u = factor @ z, as any user would whiten it."""
    active = problem.prior.variances > 0
    return (problem.prior.vectors[nodes][:, active] * np.sqrt(problem.prior.variances[active])).astype(np.float32)


def numpyro_nuts(problem, likelihood, budget):
    """NUTS on the spectral coefficients (probit only: level-set has no gradient).

    Its kernel in a loop of ours, compiled once: `MCMC.run` compiles anew each time, which is not to be counted.
    """
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS

    seen, watched = spectral_factor(problem, problem.nodes), spectral_factor(problem, problem.watched)

    def model():
        z = numpyro.sample("z", dist.Normal(0, 1).expand([seen.shape[1]]).to_event(1))
        numpyro.factor("labels", jnp.sum(log_ndtr(problem.y * (seen @ z) / problem.gamma)))

    kernel, n_chains, n_warmup, block = NUTS(model), 4, 300, 100
    keys = jax.random.split(jax.random.key(0), n_chains)
    state = kernel.init(keys, n_warmup, init_params=None, model_args=(), model_kwargs={})

    @jax.jit
    def run(state, _):
        def step(state, _):
            state = kernel.sample(state, (), {})
            return state, state.z["z"] @ watched.T

        state, u = jax.lax.scan(step, state, length=block)
        return state, jnp.swapaxes(u, 0, 1)

    for _ in range(n_warmup // block):  # in which the kernel adapts
        state, _ = run(state, None)
    return timed(run, state, lambda key: None, budget)


def blackjax_slice(problem, likelihood, budget):
    """Elliptical slice sampling on the spectral coefficients.

    In double precision on level-set: in single, the threshold log L + log U can round to log L itself, which no
    point of the ellipse exceeds, and the search never ends.
    """
    with jax.enable_x64(likelihood == "level_set"):
        return _blackjax_slice(problem, likelihood, budget)


def _blackjax_slice(problem, likelihood, budget):
    import blackjax

    seen, watched = (
        jnp.asarray(spectral_factor(problem, nodes), float) for nodes in (problem.nodes, problem.watched)
    )
    y, n_chains = jnp.asarray(problem.y), 16

    def loglikelihood(z):
        u = seen @ z
        if likelihood == "probit":
            return jnp.sum(log_ndtr(y * u / problem.gamma))
        return -jnp.sum((y - jnp.where(u >= 0, 1, -1)) ** 2) / (2 * problem.gamma**2)

    kernel = blackjax.elliptical_slice(loglikelihood, mean=jnp.zeros(seen.shape[1]), cov=jnp.ones(seen.shape[1]))

    def chain(state, key):
        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, watched @ state.position

        return jax.lax.scan(step, state, jax.random.split(key, 500))

    run = jax.jit(jax.vmap(chain))
    start = jax.random.normal(jax.random.key(0), (n_chains, seen.shape[1]))
    state = jax.vmap(kernel.init)(start)
    return timed(run, state, lambda key: jax.random.split(key, n_chains), budget)


# So many draws of all chains together tell the rate: ranking the millions that some samplers make takes minutes.
ENOUGH_DRAWS = 2**19


def timed(run, state, split, budget):
    """Blocks of a compiled run until the budget is spent or there are enough draws; the first third is warm-up."""
    state, _ = jax.block_until_ready(run(state, split(jax.random.key(1))))
    began, i = time.perf_counter(), 2
    while time.perf_counter() - began < budget / 3:
        state, _ = jax.block_until_ready(run(state, split(jax.random.key(i))))
        i += 1
    kept, seconds = [], 0.0
    while seconds < budget and sum(u[..., 0].size for u in kept) < ENOUGH_DRAWS:
        began = time.perf_counter()
        state, u = jax.block_until_ready(run(state, split(jax.random.key(i))))
        seconds += time.perf_counter() - began
        kept.append(np.asarray(u))
        i += 1
    return score(np.concatenate(kept, axis=1), seconds)


def seeds(key, n_chains):
    """What every chain draws from, as numbers."""
    return jax.random.key_data(jax.random.split(key, n_chains))


def graphuq(sampler):
    """One of our samplers, u at the watched nodes drawn as `Posterior.latent` does."""

    def measure(problem, likelihood, budget):
        whitening = whiten(problem.prior, problem.nodes)
        target = Target.of(whitening.field("float32"), problem.model(likelihood))
        prepared = sampler.prepare(target)
        n_latent = target.n_latent
        # Many chains make small steps a matrix product; where a step is large work already, few do.
        n_chains = 256 if len(problem.nodes) < 20 else 64 if len(problem.nodes) < 1000 else 4
        block = 100 if n_chains > 4 else 200
        z = jax.random.normal(jax.random.key(1), (n_chains, n_latent), jnp.float32)
        state = _init(sampler, seeds(jax.random.key(0), n_chains), z, prepared)
        for i in range(3):
            of_block = seeds(jax.random.key(i), n_chains)
            state, _, _ = _block(sampler, block, 1, True, of_block, state, prepared)
        watched, std, rng = problem.watched, whitening.std(problem.watched), np.random.default_rng(0)

        def run(state, of_block):
            state, draws, _ = _block(sampler, block, 1, False, of_block, state, prepared)
            m = whitening.mean(np.asarray(draws).reshape(-1, n_latent), watched).reshape(n_chains, block, -1)
            return state, m + std * rng.standard_normal(m.shape, dtype=np.float32)

        return timed(run, state, lambda key: seeds(key, n_chains), budget)

    return measure


PEERS = {"NumPyro NUTS": numpyro_nuts, "BlackJAX elliptical slice": blackjax_slice}
OURS = {
    "Orthant": graphuq(Orthant()),
    "Referenced(PCN)": graphuq(Referenced(PCN())),
    "Referenced(NUTS)": graphuq(Referenced(NUTS())),
    "Referenced(Refractive)": graphuq(Referenced(Refractive())),
    "PCN": graphuq(PCN()),
}
CASES = {  # problem, claimed ratio of our best to their best
    "voting": (problems.voting, 10.0),
    "two moons": (problems.two_moons, 10.0),
    "mnist": (problems.mnist, 10.0),
    "plume": (problems.plume, 1.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"some of {', '.join(CASES)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="of sampling for each sampler")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    short = False
    for name in arguments.cases:
        make, claim = CASES[name]
        problem = make()
        for likelihood in ("probit", "level_set"):
            found = {}
            for label, measure in (PEERS | OURS).items():
                if ("NUTS" if likelihood == "level_set" else "Refractive") in label:
                    continue  # level-set has no gradient, probit no finite walls
                found[label] = rate, r_hat = measure(problem, likelihood, arguments.seconds)
                shown = f"{rate:10,.1f}" if r_hat < CONVERGED else f"[{rate:8,.1f}]"
                print(f"{name:<10} {likelihood:<10} {label:<26} {shown}  R-hat {r_hat:.3f}", flush=True)
            record_draws(f"{name}, {likelihood}", found, tuple(PEERS))
            ours, theirs = best_rates(found, tuple(PEERS))
            said = f"{ours / theirs:.1f}" if theirs else "none of theirs has converged"
            print(f"{name:<10} {likelihood:<10} best of ours over best of theirs: {said} (at least {claim})")
            short |= not ours or ours < claim * theirs
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
