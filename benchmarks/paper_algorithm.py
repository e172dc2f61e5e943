"""Against the paper's algorithm in plain NumPy over all nodes: the same steps, label means of all nodes included.

Shapes of Table 2: MNIST 4/9 (11,791 nodes, 300 modes, 440 labels) and the plume (286,720 nodes, 50 modes,
8,000 labels). The peer is timed over fewer steps of one chain, since every step costs it the same.
"""

import sys
import time

import numpy as np
from scipy.special import log_ndtr

from benchmarks import problems
from benchmarks.record import record
from graphuq.inference.pcn import PCN
from graphuq.inference.run import sample

CASES = {  # name: problem, steps of each of our chains, thinning, steps of the peer, claimed ratio
    "MNIST 4/9": (lambda: problems.mnist(n_per_digit=None, n_labels=440), 5_000, 100, 300, 50),
    "plume": (problems.plume, 5_000, 200, 30, 200),
}
N_CHAINS = 32


def paper(problem, likelihood, *, beta, n_steps):
    """Algorithm 2 with the label mean of every node, in NumPy: seconds a step."""
    rng = np.random.default_rng(0)
    prior, nodes, y, gamma = problem.prior, problem.nodes, problem.y, problem.gamma
    factor = prior.vectors[:, 1:] * np.sqrt(prior.variances[1:])

    def phi(u):
        if likelihood == "probit":
            return -log_ndtr(y * u[nodes] / gamma).sum()
        return np.square(y - np.where(u[nodes] >= 0, 1, -1)).sum() / (2 * gamma**2)

    u = factor @ rng.standard_normal(factor.shape[1])
    energy, total = phi(u), np.zeros(prior.n_nodes)
    began = time.perf_counter()
    for _ in range(n_steps):
        w = np.sqrt(1 - beta**2) * u + beta * (factor @ rng.standard_normal(factor.shape[1]))
        proposed = phi(w)
        if np.log(rng.random()) < energy - proposed:
            u, energy = w, proposed
        total += u >= 0
    return (time.perf_counter() - began) / n_steps


def ours(problem, likelihood, *, n_steps, thin):
    """The same chain in whitened coordinates: seconds a step, label means of all nodes included."""
    settings = {"n_steps": n_steps, "n_warmup": 0, "thin": thin, "n_chains": N_CHAINS}
    sampler = PCN(beta=0.1, target_acceptance=None)
    sample(problem.prior, problem.model(likelihood), sampler, **settings).label_mean()  # compiles
    began = time.perf_counter()
    sample(problem.prior, problem.model(likelihood), sampler, **settings).label_mean()
    return (time.perf_counter() - began) / (n_steps * N_CHAINS)


def main() -> int:
    short = False
    for name, (make, n_steps, thin, peer_steps, claim) in CASES.items():
        problem = make()
        for likelihood in ("probit", "level_set"):
            mine = ours(problem, likelihood, n_steps=n_steps, thin=thin)
            theirs = paper(problem, likelihood, beta=0.1, n_steps=peer_steps)
            print(
                f"{name:<10} {likelihood:<10} NumPy over all nodes {1e3 * theirs:8.3f} ms a step, "
                f"graphuq {1e3 * mine:8.5f} ms, ratio {theirs / mine:7.0f} (at least {claim})",
                flush=True,
            )
            record(f"a step of {likelihood.replace('_', '-')}, {name}, all means", ours=mine, peer=theirs)
            short |= theirs / mine < claim
    return int(short)


if __name__ == "__main__":
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)  # cost is measured here, not convergence
    sys.exit(main())
