"""A pCN step costs the same on 2,867 nodes as on 286,720: 50 modes, 2,000 labels."""

import sys
import time

import jax
import numpy as np

from benchmarks import problems
from graphuq.inference.pcn import PCN
from graphuq.inference.run import _block, _init
from graphuq.inference.target import Target
from graphuq.inference.whiten import whiten

N_CHAINS, N_STEPS, REPEATS = 8, 500, 15
LIMIT = 1.2


def stepper(problem):
    """A call that runs a block of steps of every chain on this problem."""
    whitening = whiten(problem.prior, problem.nodes)
    target = Target.of(whitening.field("float32"), problem.model("probit"))
    sampler = PCN()
    seeds = np.arange(2 * N_CHAINS, dtype=np.uint32).reshape(N_CHAINS, 2)
    z = jax.random.normal(jax.random.key(1), (N_CHAINS, whitening.n_latent))
    state = _init(sampler, seeds, z, target)
    return lambda: jax.block_until_ready(_block(sampler, N_STEPS, 1, False, seeds, state, target))


def main() -> int:
    sizes = (2_867, 286_720)
    calls = [stepper(problems.plume(n_nodes=n, n_labels=2_000)) for n in sizes]
    for call in calls:
        call()
    seconds = np.empty((REPEATS, len(calls)))
    for repeat in range(REPEATS):  # in turn, so that both see the same machine
        for i, call in enumerate(calls):
            began = time.perf_counter()
            call()
            seconds[repeat, i] = time.perf_counter() - began
    best = seconds.min(axis=0) / (N_STEPS * N_CHAINS)
    for n, each in zip(sizes, best, strict=True):
        print(f"{n:>8,} nodes: {1e6 * each:6.2f} us a step of one chain")
    ratio = best[1] / best[0]
    print(f"ratio {ratio:.2f} (at most {LIMIT})")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
