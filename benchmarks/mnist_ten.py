"""Ten classes of MNIST, 70,000 images, five labels each: from images to probabilities of every row, beside other tools.

Each tool runs in a process of its own, so that its peak memory is its own. Ours is `GraphClassifier(n_components=50)`
from the images on, with the seconds of each of its stages. The others get the finished graph: harmonic functions,
Poisson learning and threshold dynamics (ours, and GraphLearning's where it is installed), and scikit-learn's
LabelSpreading. Their seconds are those of scores of every row, without the graph and without a temperature; the record adds the graph.

`+ T` is a temperature: for ours from leave-one-out probabilities, for others from labels held out in five folds.
Threshold dynamics are told the true share of each class, and GraphLearning's has no scores to heat.
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from experiments import class_peers, graphlearning_peers
from scipy.sparse import load_npz, save_npz

from benchmarks.record import record
from graphuq import GraphClassifier, calibration, datasets, graph

PER_CLASS, N_CLASSES = 5, 10
LIMIT_SECONDS, LIMIT_GB = 180, 6
OURS = "graphuq GraphClassifier"


def data(n_rows, seed, per_class=PER_CLASS):
    """Images, digits, and the labeled rows."""
    digits = datasets.mnist()
    chosen = np.sort(np.random.default_rng(0).permutation(len(digits.y))[:n_rows])
    y = digits.y[chosen]
    rng = np.random.default_rng(seed)
    nodes = np.concatenate(
        [rng.choice(np.flatnonzero(y == k), per_class, replace=False) for k in range(N_CLASSES)]
    )
    return digits.X[chosen], y, nodes


def ours(n_rows, seed, weights):
    """Probabilities of every row, tempered ones, and seconds by stage; the graph is left in a file for the others."""
    X, y, nodes = data(n_rows, seed)
    given = np.full(len(y), -1)
    given[nodes] = y[nodes]
    began, cpu = time.perf_counter(), time.process_time()
    fitted = GraphClassifier(n_components=50).fit(X, given)
    probability = fitted.label_distributions_
    total, cpu = time.perf_counter() - began, time.process_time() - cpu
    seconds = {**fitted.stages_, "all, of CPU": cpu}
    peak = peak_gb()
    t = calibration.temperature(fitted.posterior_.left_out(), fitted.posterior_.model.y, spread=0.3)
    save_npz(weights, fitted.graph_.weights)
    return (
        {"": probability, " + T": calibration.apply_temperature(probability, t)},
        {**seconds, "all": total, "components": len(fitted.posterior_.components), "temperature": t},
        peak,
    )


def other(name, n_rows, seed, weights):
    """The same of another tool, from the graph on."""
    _, y, nodes = data(n_rows, seed)
    joined = graph.precomputed(load_npz(weights))
    shares = np.bincount(y) / len(y)
    if name.startswith("GraphLearning"):
        peer = graphlearning_peers.peers(joined, shares)[name]
    else:
        peer = class_peers.peers(joined, None, shares)[name]
    began = time.perf_counter()
    scores = peer.score(nodes, y[nodes])
    seconds, peak = time.perf_counter() - began, peak_gb()
    found = {"": np.eye(N_CLASSES)[scores.argmax(axis=1)] if peer.read is None else peer.read(scores)}
    tempered = class_peers.tempered(peer, nodes, y[nodes], scores, seed=seed)
    if tempered is not None:
        found[" + T"] = tempered
    return found, {"all": seconds, "has probabilities": peer.read is not None}, peak


def peak_gb():
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def names():
    found = ["harmonic", "Poisson", "Poisson-MBO, true shares", "LabelSpreading"]
    if find_spec("graphlearning"):
        found += ["GraphLearning Laplace", "GraphLearning Poisson", "GraphLearning Poisson-MBO, true shares"]
    return found


def show(name, found, seconds, peak, y, rest):
    """A line for each way to read the answers."""
    for mark, p in found.items():
        spent = "" if mark else f"{seconds['all']:8.1f} s {peak:5.2f} GB"
        line = f"{name + mark:<42}{spent:<19} accuracy {calibration.accuracy(p[rest], y[rest]):.4f}"
        if mark or seconds.get("has probabilities", True):
            loss, ece = calibration.log_loss(p[rest], y[rest]), calibration.reliability(p[rest], y[rest]).ece
            line += f"  log-loss {loss:.3f}  calibration error {ece:.3f}"
        print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=70_000, help="so many images at random")
    parser.add_argument("--seed", type=int, default=0, help="of the labels")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        _, y, nodes = data(asked.rows, asked.seed)
    except datasets.DatasetUnavailable as error:
        print(error)
        return 0
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    print(f"{len(y):,} images, {N_CLASSES} classes, {PER_CLASS} labels each, draw {asked.seed}")
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool,  # each started afresh
    ):
        weights = Path(folder) / "weights.npz"
        found, seconds, peak = pool.submit(ours, asked.rows, asked.seed, weights).result()
        show(OURS, found, seconds, peak, y, rest)
        for stage, each in seconds.items():
            if stage not in ("all", "components", "temperature"):
                print(f"    {stage:<30} {each:8.1f} s")
        print(f"    {seconds['components']} choices of hyper-parameters, temperature {seconds['temperature']:.2f}")
        others = {}
        for name in names():
            theirs = pool.submit(other, name, asked.rows, asked.seed, weights).result()
            show(name, *theirs, y, rest)
            others[name] = theirs[1]["all"]
    record(
        f"fit, {len(y):,} images of {N_CLASSES} classes", ours=seconds["all"], peer=seconds["graph"] + others["LabelSpreading"],
        peak_gb=peak, cpu=seconds["all, of CPU"],
    )  # fmt: skip
    print(f"limits: {LIMIT_SECONDS} s and {LIMIT_GB} GB for ours")
    return int(seconds["all"] > LIMIT_SECONDS or peak > LIMIT_GB)


if __name__ == "__main__":
    sys.exit(main())
