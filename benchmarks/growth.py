"""How time grows: of default `GraphClassifier.fit` with rows, labels and classes, of the spectrum with modes, and of a
step of a chain with classes.

python -m benchmarks.growth rows labels classes modes steps

The peer of fits is scikit-learn's LabelSpreading, on as many rows as it takes minutes for, that of the spectrum SciPy's
eigsh on ``I - L``. Steps are those of pCN on the level-set model; they have no peer.
"""

import sys
import time
import warnings

import numpy as np
from scipy.sparse import eye_array
from scipy.sparse.linalg import eigsh
from sklearn.datasets import make_blobs
from sklearn.semi_supervised import LabelSpreading

from benchmarks.record import record
from graphuq import PCN, GraphClassifier, graph, laplacian, models, sample, spectrum
from graphuq.prior import GaussianPrior

# What grows: rows, labels or modes, classes.
SIZES = {
    "rows": [(n, 100, 2) for n in (1_000, 10_000, 50_000, 250_000, 1_000_000)],
    "labels": [(10_000, n, 2) for n in (50, 100, 200, 400, 800, 1_600)],
    "classes": [(10_000, 20 * k, k) for k in (2, 3, 4, 6, 8)],
    "modes": [(20_000, n, 2) for n in (25, 50, 100, 200, 400)],
    "steps": [(1_000, 256, k) for k in (4, 8, 16, 32, 64)],
}
GROWS = {"rows": 0, "labels": 1, "classes": 2, "modes": 1, "steps": 2}
RESIDUAL = 1e-6
PEER_ROWS = 250_000
N_STEPS, N_MODES, N_CHAINS = 5_000, 64, 8
MOST = {"rows": 1.15, "steps": 1.1}  # exponents


def data(n_rows, n_labels, n_classes):
    """Overlapping clouds, three a class, in ten of twenty dimensions."""
    rng = np.random.default_rng(0)
    X, cloud = make_blobs(n_rows, 10, centers=3 * n_classes, cluster_std=3.0, random_state=0)
    truth = cloud % n_classes
    y = np.full(n_rows, -1)
    for k in range(n_classes):
        mine = rng.permutation(np.flatnonzero(truth == k))[: n_labels // n_classes]
        y[mine] = k
    return np.hstack([X, rng.standard_normal((n_rows, 10))]), y


def fits(n_rows, n_labels, n_classes):
    """Seconds of a fit and of the peer's, or None where it would take too long."""
    X, y = data(n_rows, n_labels, n_classes)
    ours = seconds(lambda: GraphClassifier().fit(X, y))
    if n_rows > PEER_ROWS:
        return ours, None
    return ours, seconds(lambda: LabelSpreading(kernel="knn", n_neighbors=5).fit(X, y))


def modes(n_rows, n_modes, n_classes):
    """Seconds of the first eigenpairs of one graph, and of the peer's."""
    L = laplacian.normalized(graph.knn(data(n_rows, 100, n_classes)[0]))
    ours = seconds(lambda: spectrum.leading(L, n_modes=n_modes, tolerance=RESIDUAL))
    S = eye_array(n_rows, format="csr") - L.matrix
    return ours, seconds(lambda: eigsh(S, n_modes, which="LA", tol=RESIDUAL))


def steps(n_rows, n_labels, n_classes):
    """Seconds of many steps beyond those of a few, which is what chains take before and after."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((n_rows, N_MODES))).Q
    mu0 = GaussianPrior(vectors, np.full(N_MODES, n_rows / N_MODES))
    model = models.LevelSet(np.arange(n_labels), np.arange(n_labels) % n_classes, gamma=1.0)

    def run(n_steps):
        settings = {"n_warmup": 0, "thin": n_steps // 20, "n_chains": N_CHAINS, "dtype": "float32"}
        return sample(mu0, model, PCN(0.1, None), n_steps=n_steps, **settings)

    run(N_STEPS), run(N_STEPS // 10)  # compiles
    return seconds(lambda: run(N_STEPS)) - seconds(lambda: run(N_STEPS // 10)), None


def seconds(step):
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def exponent(sizes, times):
    """Of a power law through the last four points, in logarithms."""
    return float(np.polyfit(np.log(sizes[-4:]), np.log(times[-4:]), 1)[0])


def main() -> int:
    warnings.simplefilter("ignore")
    failed = False
    measured = {"modes": modes, "steps": steps}
    for name in sys.argv[1:] or SIZES:
        sizes, ours, theirs = [], [], []
        called = "eigsh" if name == "modes" else "LabelSpreading"
        for size in SIZES[name]:
            mine, peer = measured.get(name, fits)(*size)
            sizes.append(size[GROWS[name]])
            ours.append(mine)
            theirs += [] if peer is None else [peer]
            print(
                f"{sizes[-1]:>9,} {name:<8} {mine:8.2f} s" + ("" if peer is None else f", {called} {peer:8.2f} s"),
                flush=True,
            )
        power = exponent(sizes, ours)
        beside = exponent(sizes[: len(theirs)], theirs) if theirs else None
        print(f"of the last four: exponent {power:.2f}" + ("" if beside is None else f", {called} {beside:.2f}"))
        record(
            f"growth with {name}" if name != "steps" else "growth with classes, of a step", ours=ours[-1],
            peer=theirs[-1] if len(theirs) == len(ours) else None,
            sizes=sizes, seconds=ours, peer_name=called, peer_seconds=theirs, exponent=power, peer_exponent=beside,
        )  # fmt: skip
        failed |= power > MOST.get(name, np.inf)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
