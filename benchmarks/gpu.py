"""What a GPU brings: chains that see every node, modes of a large graph, and whole fits.

    python -m benchmarks.gpu                                    # where JAX finds a GPU
    JAX_PLATFORMS=cpu taskset -c 0,1 python -m benchmarks.gpu   # then the same on two cores

A step of 64 Ginzburg-Landau chains on 286,720 nodes takes Phi from a polynomial of the coordinates; one that looks at all
nodes reads the basis and writes and reads u, so that its time is compared with that of a copy. Fits are of MNIST images, all of them with 5 labels a
class and 20,000 with 30, and of two classes with 5,000 labels; on a GPU the first of each also compiles.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import mnist_ten
from benchmarks.fit import overlapping
from benchmarks.record import COLUMNS, read, record
from graphuq import GraphClassifier, datasets, graph, laplacian, spectrum
from graphuq.inference.pcn import PCN
from graphuq.inference.run import _block, _init
from graphuq.inference.target import Linear, Target
from graphuq.models import GinzburgLandau
from graphuq.spectrum import accelerator

WHERE = "GPU" if jax.default_backend() == "gpu" else "CPU"
N_NODES, N_MODES, N_CHAINS, N_STEPS = 286_720, 50, 64, 500 if WHERE == "GPU" else 20


def keep(item, seconds, **more):
    """Keep the seconds of the GPU and what more is told of it, or beside them those of the processor."""
    name = f"gpu, {item}"
    before = read().get(name)
    if WHERE == "GPU":
        record(name, ours=seconds, peer=None if before is None else before["peer"], **more)
    elif before is not None:
        told = {key: value for key, value in before.items() if key not in (*COLUMNS, "cores", "machine")}
        record(name, ours=before["ours"], peer=seconds, **told)


def best_of(call, repeats=5):
    """Seconds of the quickest of some calls, after one that compiles."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def copy_bandwidth():
    """Bytes a second that a copy reads and writes."""
    x = jnp.zeros(2**28, jnp.float32)
    add = jax.jit(lambda x: jax.lax.fori_loop(0, 10, lambda i, x: x + 1, x))
    return 10 * 2 * x.nbytes / best_of(lambda: add(x))


def chains():
    """Seconds of a step of all chains, of one that looks at every node, and those in which the polynomial is made."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((N_NODES, N_MODES), np.float32) / np.sqrt(N_MODES)
    nodes = np.arange(0, N_NODES, 36)
    model = GinzburgLandau(nodes, (factor[nodes, 0] > 0).astype(int))
    began = time.perf_counter()
    target = Target.of(Linear(jnp.asarray(factor)), model)
    made = time.perf_counter() - began
    sampler, seeds = PCN(0.05), np.arange(2 * N_CHAINS, dtype=np.uint32).reshape(N_CHAINS, 2)
    z = jax.random.normal(jax.random.key(1), (N_CHAINS, N_MODES))

    def seconds(target):
        state = _init(sampler, seeds, z, target)
        return best_of(lambda: _block(sampler, 1, N_STEPS, False, seeds, state, target)) / N_STEPS

    return seconds(target), seconds(Target(target.field, target.phi)), made


def modes(n_nodes, X):
    """Seconds of 300 modes of a graph."""
    L = laplacian.normalized(graph.knn(X[:n_nodes], n_neighbors=10, n_components=50))
    spectrum.leading(L, n_modes=20)  # compiles
    return best_of(lambda: spectrum.leading(L, n_modes=300).vectors, repeats=1)


def fits():
    """What is fitted: a name, features, classes, labeled rows, and settings."""
    yield "20,000 rows, 10 classes, 300 labels", *mnist_ten.data(20_000, 0, 30), {"n_components": 50}
    yield "20,000 rows, 2 classes, 5,000 labels", *overlapping(20_000, 5_000), {}
    yield "70,000 rows, 10 classes", *mnist_ten.data(70_000, 0), {"n_components": 50}


def fit(name, X, y, nodes, settings):
    """Keep the seconds of a fit, on a GPU those of the second, and of the first beside them."""
    labels = np.full(len(y), -1)
    labels[nodes] = y[nodes]
    seconds = []
    for _ in range(2 if WHERE == "GPU" else 1):
        began = time.perf_counter()
        found = GraphClassifier(**settings).fit(X, labels)
        accuracy = float((found.label_distributions_.argmax(axis=1) == y).mean())
        seconds.append(time.perf_counter() - began)
        stages = ", ".join(f"{stage} {took:.1f}" for stage, took in found.stages_.items())
        print(f"fit of {name} on the {WHERE}: {seconds[-1]:.1f} s, accuracy {accuracy:.4f} ({stages})", flush=True)
    keep(f"fit of {name}", seconds[-1], accuracy=accuracy, **({"first": seconds[0]} if WHERE == "GPU" else {}))


def main() -> int:
    bandwidth, (seconds, over_nodes, made) = copy_bandwidth(), chains()
    moved = 4 * (N_NODES * N_MODES + 2 * N_NODES * N_CHAINS)
    print(
        f"Ginzburg-Landau pCN, {N_CHAINS} chains: {1e6 * seconds:.1f} us a step after {made:.1f} s; over all nodes "
        f"{1e6 * over_nodes:.1f} us, {moved / over_nodes / 1e12:.2f} TB/s, {moved / over_nodes / bandwidth:.0%} of a copy's "
        f"{bandwidth / 1e12:.2f}",
        flush=True,
    )
    rates = {"terabytes": moved / over_nodes / 1e12, "copy_terabytes": bandwidth / 1e12, "over_nodes": over_nodes}
    keep(f"a Ginzburg-Landau step of {N_CHAINS} chains, {N_NODES:,} nodes", seconds, **rates)
    if WHERE == "GPU":
        accelerator.LEAST_NODES = 0  # every graph below goes there
    images = datasets.mnist_pair(4, 9, n_per_digit=None).X
    for n_nodes, X in ((11_791, images), (70_000, mnist_ten.data(70_000, 0)[0])):
        seconds = modes(n_nodes, X)
        print(f"300 modes of {n_nodes:,} nodes on the {WHERE}: {seconds:.2f} s", flush=True)
        keep(f"300 modes of {n_nodes:,} nodes", seconds)
    for each in fits():
        fit(*each)
    return 0


if __name__ == "__main__":
    sys.exit(main())
