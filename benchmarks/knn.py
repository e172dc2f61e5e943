"""The 20-nearest-neighbor graph of all 70,000 MNIST digits in 50 dimensions: well under a minute on two cores."""

import os
import sys
import time

import faiss
import numpy as np
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from benchmarks.record import record
from graphuq import graph
from graphuq.datasets import DatasetUnavailable, mnist
from graphuq.graph.neighbors import approximate_neighbors

N_NEIGHBORS = 20
LIMIT_SECONDS, LIMIT_RECALL = 60, 0.95


def recall(found, exact):
    """Share of the true neighbors that were found, over every node."""
    return np.mean([np.isin(row, truth).mean() for row, truth in zip(exact, found, strict=True)])


def scikit_learn(X):
    return NearestNeighbors(n_neighbors=N_NEIGHBORS, algorithm="brute").fit(X).kneighbors(return_distance=False)


def faiss_inverted_file(X):
    """The same idea as our approximate search, in C++ and float32, with the same cells and probes."""
    X = X.astype(np.float32)
    n_nodes, n_features = X.shape
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(n_features), n_features, round(np.sqrt(n_nodes)))
    index.train(X)
    index.add(X)
    index.nprobe = 16
    found = index.search(X, N_NEIGHBORS + 1)[1]
    return found[:, 1:]  # the first is the node itself


def timed(call, *arguments, **settings):
    began = time.perf_counter()
    result = call(*arguments, **settings)
    return result, time.perf_counter() - began


def main() -> int:
    try:
        X = PCA(50, svd_solver="covariance_eigh").fit_transform(mnist().X.astype(float))
    except DatasetUnavailable as error:
        print(error)
        return 0
    print(f"{len(X):,} x {X.shape[1]} features, K = {N_NEIGHBORS}, {os.cpu_count()} cores")

    exact, exact_peer_seconds = timed(scikit_learn, X)
    found, peer_seconds = timed(faiss_inverted_file, X)
    rows = [
        ("neighbors, scikit-learn NearestNeighbors (exact)", exact_peer_seconds, 1.0),
        ("neighbors, FAISS IndexIVFFlat", peer_seconds, recall(found, exact)),
    ]
    found, approximate_seconds = timed(approximate_neighbors, X, N_NEIGHBORS, seed=0)
    approximate_recall = recall(found, exact)
    rows.append(("neighbors, graphuq approximate", approximate_seconds, approximate_recall))
    _, exact_seconds = timed(graph.knn, X, n_neighbors=N_NEIGHBORS, method="exact")
    rows.append(("whole graph, graphuq exact", exact_seconds, 1.0))
    _, default_seconds = timed(graph.knn, X, n_neighbors=N_NEIGHBORS)
    rows.append(("whole graph, graphuq approximate (its default here)", default_seconds, approximate_recall))
    for name, seconds, found_share in rows:
        ratio = exact_peer_seconds / seconds
        print(f"{name:<52} {seconds:6.1f} s  {ratio:5.2f} x scikit-learn  recall {found_share:.4f}")
    record(f"neighbors of {len(X):,} digits", ours=approximate_seconds, peer=peer_seconds)
    print(f"limits: {LIMIT_SECONDS} s, recall {LIMIT_RECALL}")
    return int(default_seconds > LIMIT_SECONDS or approximate_recall < LIMIT_RECALL)


if __name__ == "__main__":
    sys.exit(main())
