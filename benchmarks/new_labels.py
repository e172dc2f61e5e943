"""A new label takes milliseconds: two digits of MNIST, 4,000 rows, and ten digits, 10,000 rows; one label at a time.

Ours is `partial_fit_labels`, then all probabilities, then the choice of the next row to ask by `next_queries`; and
`fit`, for comparison. The peer is scikit-learn's LabelSpreading on the same features, which fits anew for each label.
CPU seconds are printed beside those on the clock, which on a busy machine say little.
"""

import sys
import time

import numpy as np
from sklearn.semi_supervised import LabelSpreading

from benchmarks.record import record
from graphuq import GraphClassifier, datasets
from graphuq.graph.features import prepare

N_NEW, N_NEIGHBORS = 20, 20
# Digits, rows of each, labels at the start.
PROBLEMS = {"two classes": ((4, 9), 2000, 160), "ten classes": (tuple(range(10)), 1000, 50)}
# From an answer to all probabilities, and for the choice of the next row.
LIMIT_SECONDS, LIMIT_CHOICE = 0.2, 0.5


def timed(seconds, name, step):
    began, cpu = time.perf_counter(), time.process_time()
    result = step()
    seconds.setdefault(name, []).append((time.perf_counter() - began, time.process_time() - cpu))
    return result


def problem(digits, per_digit, n_labels):
    """Features, digits, and the labels at the start with -1 elsewhere; as many of each digit."""
    found, rng = datasets.mnist(), np.random.default_rng(0)
    rows = np.concatenate([rng.choice(np.flatnonzero(found.y == d), per_digit, replace=False) for d in digits])
    rows = rng.permutation(rows)
    truth = found.y[rows]
    given = np.full(len(rows), -1)
    for digit in digits:
        first = np.flatnonzero(truth == digit)[: n_labels // len(digits)]
        given[first] = digit
    return prepare(found.X[rows], 50).points, truth, given


def measure(digits, per_digit, n_labels):
    """Seconds on the clock and of CPU, medians over new labels."""
    X, truth, given = problem(digits, per_digit, n_labels)
    seconds = {}
    classifier = GraphClassifier(n_neighbors=N_NEIGHBORS)
    timed(seconds, "fit from the start", lambda: classifier.fit(X, given))
    peer = LabelSpreading(kernel="knn", n_neighbors=N_NEIGHBORS, alpha=0.99, max_iter=1000)
    for _ in range(N_NEW):
        row = timed(seconds, "next_queries", lambda: classifier.next_queries(1))
        given[row] = truth[row]
        timed(seconds, "partial_fit_labels", lambda row=row: classifier.partial_fit_labels(row, truth[row]))
        timed(seconds, "all probabilities", lambda: classifier.label_distributions_)
        timed(seconds, "LabelSpreading.fit", lambda: peer.fit(X, given))
    return {name: np.median(each, axis=0) for name, each in seconds.items()}


def main() -> int:
    failed = 0
    for name, (digits, per_digit, n_labels) in PROBLEMS.items():
        try:
            found = measure(digits, per_digit, n_labels)
        except datasets.DatasetUnavailable as error:
            print(error)
            return 0
        print(f"{name}, {per_digit * len(digits):,} rows, {n_labels} labels and {N_NEW} more")
        for step, (clock, cpu) in found.items():
            print(f"  {step:<20} {1000 * clock:9.1f} ms, {1000 * cpu:9.1f} ms of CPU")
        update = found["partial_fit_labels"][0] + found["all probabilities"][0]
        record(f"a new label, {name}", ours=update, peer=found["LabelSpreading.fit"][0])
        record(f"the next question, {name}", ours=found["next_queries"][0])
        ratio = found["LabelSpreading.fit"][0] / update
        print(f"  from an answer to all probabilities {1000 * update:.0f} ms (at most {1000 * LIMIT_SECONDS:.0f})")
        print(f"  {ratio:.1f} times as quick as the peer")
        failed |= update > LIMIT_SECONDS or found["next_queries"][0] > LIMIT_CHOICE
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
