"""Many classes cost in proportion: steps and sweeps against K, and draws a second for ten digits against NumPyro NUTS.

First, 160 labels of K = 2 to 32 classes, a field each: seconds of a trajectory of the orthant sampler, of one of its
bounces, of a pCN step and of a sweep of expectation propagation, and the exponent of K in each. The peer of a sweep
is one Cholesky factorization by LAPACK of the K J x K J matrix, which a sweep would need that does not tell fields
apart.

Then scikit-learn's digits, ten classes with five labels each, probit, under the learned prior at its peak: effective
draws a second by our default sampler and by NUTS, on the same whitened z and the same Phi. The figure is the bulk ESS
of the worst of ten fields at 20 watched nodes, less the mean of the fields, which no label sees; compilation and
warm-up are left out for both.
"""

import argparse
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor
from sklearn.datasets import load_digits, make_blobs

from benchmarks import effective_draws
from benchmarks.record import CONVERGED, best_rates, record_draws
from graphuq import PCN, Orthant, graph, laplacian, learn, prior, spectrum
from graphuq.feature_piece import FeaturePiece
from graphuq.inference.run import _block, _init
from graphuq.inference.target import Target
from graphuq.inference.watch import watched_nodes
from graphuq.inference.whiten import whiten
from graphuq.models import Probit

COUNTS = (2, 4, 8, 16, 32)
N_NODES, N_LABELED, N_MODES = 2000, 160, 300
LIMIT_EXPONENT = 1.3
LIMIT_RATIO = 10.0
N_CHAINS, REPEATS = 8, 5
N_STEPS = {"orthant trajectory": 20, "pCN step": 200}
SWEEP = "sweep of expectation propagation"
PER_CLASS = 5
# Ours gets a tenth of the seconds that NUTS needs to converge: of more draws the effective number takes minutes to count.
OUR_SHARE = 0.1


def blobs(n_classes):
    """2,000 points of 32 blobs that are shared out among the classes, five labels a blob: a prior and a model."""
    X, blob = make_blobs(N_NODES, n_features=10, centers=max(COUNTS), cluster_std=2.0, random_state=0)
    modes = spectrum.leading(laplacian.normalized(graph.knn(X, n_neighbors=10)), n_modes=N_MODES)
    nodes = some_of_each(blob, N_LABELED // max(COUNTS), seed=0)
    # Two classes as two fields, so that all are one model.
    model = Probit(nodes, blob[nodes] % n_classes, gamma=0.1, n_classes=n_classes, n_fields=n_classes)
    return prior.matern(modes, tau=0.3, alpha=4.0), model


def some_of_each(y, n, seed):
    """So many rows of each class, at random."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.choice(np.flatnonzero(y == k), n, replace=False) for k in np.unique(y)])


def stepper(believed, model, sampler, n_steps):
    """A call that runs so many steps of every chain from a state that is warm, and says how many bounces they had."""
    whitening = whiten(believed, model.nodes)
    target = Target.of(whitening.field("float32"), model)
    problem = sampler.prepare(target)
    seeds = effective_draws.seeds(jax.random.key(0), N_CHAINS)
    z = jax.random.normal(jax.random.key(1), (N_CHAINS, target.n_latent))
    state = _init(sampler, seeds, z, problem)
    for _ in range(3):
        state, _, _ = _block(sampler, n_steps, 1, True, seeds, state, problem)

    def run():
        _, _, info = jax.block_until_ready(_block(sampler, n_steps, 1, False, seeds, state, problem))
        return float(np.mean(info.work))

    run()
    return run


def sweeper(believed, model):
    """A call that runs expectation propagation from the start, and says how many sweeps that took."""
    factor = whiten(believed, model.nodes).matrix(model.nodes)
    sites = model.sites()
    return lambda: sites.fit(factor).n_sweeps


def timed(call):
    """Seconds, and the answer."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def costs(counts, repeats):
    """Milliseconds of each kind of work, one for each number of classes, by name."""
    problems = [blobs(n_classes) for n_classes in counts]
    calls = {
        "orthant trajectory": [stepper(*each, Orthant(), N_STEPS["orthant trajectory"]) for each in problems],
        "pCN step": [stepper(*each, PCN(), N_STEPS["pCN step"]) for each in problems],
        SWEEP: [sweeper(*each) for each in problems],
    }
    least = {name: np.full(len(counts), np.inf) for name in calls}
    answers = {name: np.empty(len(counts)) for name in calls}
    for _ in range(repeats):  # in turn, so that all see the same machine
        for name, row in calls.items():
            for i, call in enumerate(row):
                seconds, answers[name][i] = timed(call)
                least[name][i] = min(least[name][i], 1e3 * seconds)
    for name, n_steps in N_STEPS.items():
        least[name] /= N_CHAINS * n_steps
    least[SWEEP] /= answers[SWEEP]
    return {"orthant bounce": least["orthant trajectory"] / answers["orthant trajectory"], **least}


def factorization(n_rows):
    """Milliseconds of LAPACK for the Cholesky factorization of a dense matrix."""
    matrix = np.eye(n_rows) + 1 / n_rows
    return 1e3 * min(timed(lambda: cho_factor(matrix))[0] for _ in range(2))


def exponent(counts, seconds):
    """The slope of log seconds against log K."""
    return float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])


def digits():
    """The learned prior of ten digits at its peak, five labels each, and the model there."""
    X, y = load_digits(return_X_y=True)
    nodes = some_of_each(y, PER_CLASS, seed=0)
    modes = spectrum.leading(laplacian.normalized(graph.knn(X, n_neighbors=10)), n_modes=N_MODES)
    piece = FeaturePiece.of(X)
    found = learn(modes, Probit(nodes, y[nodes]), features=piece.columns(X), n_bent=piece.n_bent, average=False)
    return found.prior, found.model


def watcher(whitening, model):
    """A function from draws of z to u at the watched nodes, drawn as `Draws.latent` does, less the mean of the fields."""
    nodes, rng = watched_nodes(whitening, model), np.random.default_rng(0)
    std = whitening.std(nodes)

    def watched(z):
        m = whitening.mean(np.asarray(z).reshape(-1, whitening.n_latent), nodes)
        u = m + std * rng.standard_normal(m.shape, dtype=np.float32)
        u = u.reshape(*z.shape[:2], model.n_fields, len(nodes))
        return (u - u.mean(axis=2, keepdims=True)).reshape(*z.shape[:2], -1)

    return watched


def numpyro_nuts(target, watched, budget):
    """NUTS on z with the same Phi; its kernel in a loop of ours, compiled once, as in effective_draws.py."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS

    def model():
        z = numpyro.sample("z", dist.Normal(0, 1).expand([target.n_latent]).to_event(1))
        numpyro.factor("labels", -target.potential(z))

    kernel, n_chains, n_warmup, block = NUTS(model), 4, 300, 50
    keys = jax.random.split(jax.random.key(0), n_chains)
    state = kernel.init(keys, n_warmup, init_params=None, model_args=(), model_kwargs={})

    @jax.jit
    def steps(state):
        def step(state, _):
            state = kernel.sample(state, (), {})
            return state, state.z["z"]

        state, z = jax.lax.scan(step, state, length=block)
        return state, jnp.swapaxes(z, 0, 1)

    def run(state, _):
        state, z = steps(state)
        return state, watched(z)

    for _ in range(n_warmup // block):  # in which the kernel adapts
        state, _ = steps(state)
    return effective_draws.timed(run, state, lambda key: None, budget)


def ours(sampler):
    """One of our samplers."""

    def measure(target, watched, budget):
        problem, n_chains, block = sampler.prepare(target), 64, 50
        z = jax.random.normal(jax.random.key(1), (n_chains, target.n_latent), jnp.float32)
        state = _init(sampler, effective_draws.seeds(jax.random.key(0), n_chains), z, problem)
        for i in range(3):
            seeds = effective_draws.seeds(jax.random.key(i), n_chains)
            state, _, _ = _block(sampler, block, 1, True, seeds, state, problem)

        def run(state, seeds):
            state, z, _ = _block(sampler, block, 1, False, seeds, state, problem)
            return state, watched(z)

        return effective_draws.timed(run, state, lambda key: effective_draws.seeds(key, n_chains), budget)

    return measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 8 classes, and few draws")
    parser.add_argument("--seconds", type=float, default=200.0, help="of sampling for NUTS, a tenth for ours")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # cost is measured here, not convergence
    counts, repeats = (COUNTS[:3], 2) if arguments.quick else (COUNTS, REPEATS)
    budget = 10.0 if arguments.quick else arguments.seconds

    print(f"{N_LABELED} labels: milliseconds for {', '.join(map(str, counts))} classes, and how they grow")
    found = costs(counts, repeats)
    slopes = {name: exponent(counts, each) for name, each in found.items()}
    for name, each in found.items():
        print(f"{name:<34}{''.join(f'{ms:10.4f}' for ms in each)}   K^{slopes[name]:.2f}", flush=True)
    print(f"at most K^{LIMIT_EXPONENT} for each")
    n_rows = counts[-1] * N_LABELED
    dense = factorization(n_rows)
    print(
        f"LAPACK Cholesky of {n_rows:,} rows {dense:.0f} ms: a sweep at K = {counts[-1]} is "
        f"{dense / found[SWEEP][-1]:.0f} times as quick"
    )

    believed, model = digits()
    whitening = whiten(believed, model.nodes)
    target = Target.of(whitening.field("float32"), model)
    sampler = model.default_sampler()
    found = {}
    for name, measure, seconds in (
        ("NumPyro NUTS", numpyro_nuts, budget),
        (type(sampler).__name__, ours(sampler), budget * OUR_SHARE),
    ):
        found[name] = rate, r_hat = measure(target, watcher(whitening, model), seconds)
        shown = f"{rate:10,.1f}" if r_hat < CONVERGED else f"[{rate:8,.1f}]"
        print(
            f"digits, K = 10, J = {len(model.nodes)}  {name:<18} {shown} effective draws a second, R-hat {r_hat:.3f}"
        )
    peers = ("NumPyro NUTS",)
    if not arguments.quick:
        record_draws("ten digits, probit", found, peers)
    own, theirs = best_rates(found, peers)
    print(f"ratio {f'{own / theirs:.1f}' if theirs else 'none: NUTS has not converged'} (at least {LIMIT_RATIO})")
    return int(max(slopes.values()) > LIMIT_EXPONENT or not own or own < LIMIT_RATIO * theirs)


if __name__ == "__main__":
    sys.exit(main())
