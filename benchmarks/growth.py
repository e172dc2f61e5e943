"""How the time of default `GraphClassifier.fit` grows with rows, labels and classes, against scikit-learn's LabelSpreading.

python -m benchmarks.growth rows labels classes
"""

import sys
import time
import warnings

import numpy as np
from sklearn.datasets import make_blobs
from sklearn.semi_supervised import LabelSpreading

from benchmarks.record import record
from graphuq import GraphClassifier

# What grows: rows, labels, classes.
SIZES = {
    "rows": [(n, 100, 2) for n in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)],
    "labels": [(10_000, n, 2) for n in (50, 100, 200, 400, 800, 1_600)],
    "classes": [(10_000, 20 * k, k) for k in (2, 3, 4, 6, 8)],
}


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


def seconds(step):
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def exponent(sizes, times):
    """Of a power law through all points, in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def main() -> int:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or SIZES:
        position = list(SIZES).index(name)
        sizes, ours, theirs = [], [], []
        for size in SIZES[name]:
            X, y = data(*size)
            ours.append(seconds(lambda X=X, y=y: GraphClassifier().fit(X, y)))
            theirs.append(seconds(lambda X=X, y=y: LabelSpreading(kernel="knn", n_neighbors=5).fit(X, y)))
            sizes.append(size[position])
            print(f"{sizes[-1]:>9,} {name:<8} {ours[-1]:8.2f} s, LabelSpreading {theirs[-1]:8.2f} s", flush=True)
        late = slice(-4, None)
        power, peer = exponent(sizes[late], ours[late]), exponent(sizes[late], theirs[late])
        print(f"of the last four: exponent {power:.2f}, LabelSpreading {peer:.2f}")
        record(
            f"growth with {name}", ours=ours[-1], peer=theirs[-1],
            sizes=sizes, seconds=ours, peer_seconds=theirs, exponent=power, peer_exponent=peer,
        )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
