"""Default `GraphClassifier.fit`, stage by stage, and new rows, against scikit-learn's LabelSpreading.

The peer gives a point estimate and no hyper-parameters. Some cases: `python -m benchmarks.fit digits large many_labels`.
Each runs in a process of its own, so that its peak memory is its own.
"""

import subprocess
import sys
import time
import warnings

import numpy as np
from sklearn.datasets import make_classification
from sklearn.semi_supervised import LabelSpreading

from benchmarks.problems import fours_and_nines
from benchmarks.record import record
from graphuq import GraphClassifier, datasets


def overlapping(n_rows, n_labels):
    """Fifty features, eight clusters, labels of which one in twenty is wrong."""
    X, truth = make_classification(
        n_rows, 50, n_informative=10, n_redundant=10, n_clusters_per_class=4, flip_y=0.05, random_state=0
    )
    return X, truth, np.random.default_rng(0).choice(n_rows, n_labels, replace=False)


def digits():
    images, nodes, _ = fours_and_nines(160)
    return images.X.astype(float), (images.y > 0).astype(int), nodes


# Data, and the seconds that fit may take on two quiet cores, by the clock or of the processor.
CASES = {
    "digits": (digits, 1.5, "s"),
    "large": (lambda: overlapping(150_000, 100), 60.0, "CPU s"),
    "many_labels": (lambda: overlapping(20_000, 5_000), 20.0, "s"),
}
LIMIT_NEW, LIMIT_ONE = 1.0, 0.02


def timed(step):
    began, cpu = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - began, time.process_time() - cpu


def run(name: str) -> int:
    warnings.simplefilter("ignore")
    make, limit, unit = CASES[name]
    try:
        X, truth, nodes = make()
    except datasets.DatasetUnavailable as error:
        print(error)
        return 0
    y = np.full(len(X), -1)
    y[nodes] = truth[nodes]
    fitted = GraphClassifier()
    seconds, cpu = timed(lambda: fitted.fit(X, y))
    rest = np.setdiff1d(np.arange(len(X)), nodes)
    loss = -np.log(fitted.label_distributions_[rest, truth[rest]]).mean()
    peak = fitted.peak_gigabytes_
    peer, _ = timed(lambda: LabelSpreading(kernel="knn", n_neighbors=5).fit(X, y))
    item = f"fit, {len(X):,} x {X.shape[1]}, {len(nodes):,} labels"
    print(f"{item}: {seconds:.2f} s, {cpu:.2f} CPU s (at most {limit} {unit}), {peak:.2f} GB, log-loss {loss:.4f}")
    for stage, each in fitted.stages_.items():
        print(f"    {stage:<12} {each:8.2f} s")
    print(f"    {fitted.spectrum_.n_modes} modes; scikit-learn LabelSpreading.fit {peer:.2f} s")
    record(item, ours=seconds, peer=peer, peak_gb=peak, cpu=cpu, log_loss=loss, stages=fitted.stages_)
    new = X[:1000] + 0.1 * np.random.default_rng(1).standard_normal((1000, X.shape[1]))
    fitted.predict_proba(new[:2])  # what is prepared once
    many = timed(lambda: fitted.predict_proba(new))[0]
    one = float(np.median([timed(lambda i=i: fitted.predict_proba(new[i : i + 1]))[0] for i in range(9)]))
    print(
        f"    1,000 new rows {many:.2f} s (at most {LIMIT_NEW}), one {1000 * one:.1f} ms (at most {1000 * LIMIT_ONE:.0f})"
    )
    record(f"1,000 new rows of {len(X):,}", ours=many)
    record(f"one new row of {len(X):,}", ours=one)
    return int((cpu if unit == "CPU s" else seconds) > limit or many > LIMIT_NEW or one > LIMIT_ONE)


def main() -> int:
    chosen = sys.argv[1:] or list(CASES)
    if len(chosen) == 1:
        return run(chosen[0])
    return max(subprocess.run([sys.executable, "-m", "benchmarks.fit", name]).returncode for name in chosen)


if __name__ == "__main__":
    sys.exit(main())
