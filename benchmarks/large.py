"""Features on disk, larger than the memory allowed, under a cap that the kernel enforces: seconds, peak memory, answers.

python -m benchmarks.large cosine nystrom knn [--rows N] [--keep]

Against one read of the data and the matrix products of the computation, bare, on the same machine in the same run.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.record import record

CAP = 4_000_000_000
SIZES = {"cosine": (10_000_000, 64), "nystrom": (10_000_000, 64), "knn": (1_000_000, 50)}
N_LABELS, N_CLOUDS = 100, 12
BLOCK = 100_000
N_SOME = 4096


def make(path, n_rows, n_features):
    """Overlapping clouds of nonnegative numbers, six a class, written a block at a time; the classes."""
    rng = np.random.default_rng(0)
    centers = rng.gamma(2.0, 2.0, size=(N_CLOUDS, n_features))
    X = np.lib.format.open_memmap(path, "w+", np.float64, (n_rows, n_features))
    cloud = rng.integers(0, N_CLOUDS, n_rows)
    for first in range(0, n_rows, BLOCK):
        rows = slice(first, min(first + BLOCK, n_rows))
        X[rows] = np.abs(centers[cloud[rows]] + 3.0 * rng.standard_normal((rows.stop - first, n_features)))
    X.flush()
    return cloud % 2


def join(processes):
    processes.write_text(str(os.getpid()))


def watch(found):
    """The most memory of its own that this process has: pages of a mapped file, which are given up when asked for, aside."""
    while True:
        status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        found["peak"] = max(found["peak"], 1024 * int(status["RssAnon"].split()[0]))
        time.sleep(0.1)


@contextmanager
def cap():
    """What a process calls first to be held to the cap: a cgroup of its own, or else a limit on its data."""
    for top, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = top / f"graphuq-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(CAP))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        try:
            yield partial(join, group / "cgroup.procs"), "cgroup"
        finally:
            group.rmdir()
        return
    yield lambda: resource.setrlimit(resource.RLIMIT_DATA, (CAP, CAP)), "RLIMIT_DATA"


def child(kind, folder):
    """Fit, write, and tell seconds, memory and the products that had to be made."""
    from graphuq import GraphClassifier
    from graphuq.tall import tall

    warnings.simplefilter("ignore")
    memory = {"peak": 0}
    Thread(target=watch, args=(memory,), daemon=True).start()
    y = np.load(folder / "y.npy")
    settings = {"width": 20.0} if kind == "nystrom" else {}
    began, cpu = time.perf_counter(), time.process_time()
    fitted = GraphClassifier(graph=kind, verbose=True, **settings).fit(tall(folder / "x.npy"), y)
    fitted_seconds = time.perf_counter() - began
    fitted.write_proba(folder / "answers")
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    found = {
        "seconds": seconds, "fit": fitted_seconds, "cpu": cpu, "stages": fitted.stages_, "products": products(fitted, kind),
        "peak": memory["peak"], "components": len(fitted.posterior_.components),
        "modes": fitted.spectrum_.n_modes,
    }  # fmt: skip
    (folder / "found.json").write_text(json.dumps(found))


def products(fitted, kind):
    """Shapes (inner, outer) of what every row of features, or of what is made of it, is multiplied by, in all passes."""
    piece = fitted._seen.linear
    n_features, n_linear = piece.weights.shape
    n_landmarks, n_bent = piece.turn.shape
    found = [(n_features, n_features), (n_features, n_linear)]  # covariance; the longest row
    found += [
        (n_features, n_linear),
        (n_linear, n_landmarks),
        (n_landmarks, n_bent),
    ]  # columns of the answers, the distances to landmarks as a product of their size
    n_kept = max(each.prior.columns.stop for each in fitted.posterior_.components)
    n_modes = max(2, n_kept - n_linear - n_bent)
    if kind == "cosine":
        found += [(n_features + 1, n_features + 1), (n_features, n_modes + 1)]
    if kind == "nystrom":
        whitening = fitted.graph_.feature_map.whitening
        kernel = (n_features, whitening.shape[0])
        rank = whitening.shape[1]
        found += [kernel, kernel, whitening.shape, (rank + 1, rank + 1), kernel, (whitening.shape[0], n_modes + 1)]
    for each in fitted.posterior_.components:
        found.append((each.whitening.n_latent, 1 + each.fit.touched[1].size))
    return found


def bare(path, shapes, n_rows):
    """Seconds of one read of the file, and of products of these shapes with as many rows, on the clock and of cores."""
    os.posix_fadvise(os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.read(2**25):
            pass
    read = time.perf_counter() - began
    pairs = [(np.ones((N_SOME, inner)), np.ones((inner, outer))) for inner, outer in shapes]

    def multiply(_):
        for A, B in pairs:
            A @ B

    n_times = 32
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        multiply(None)
        began, cpu = time.perf_counter(), time.process_time()
        list(pool.map(multiply, range(n_times)))
        scale = n_rows / (n_times * N_SOME)
        return read, scale * (time.perf_counter() - began), scale * (time.process_time() - cpu)


def run(kind, n_rows, n_features, folder):
    truth = make(folder / "x.npy", n_rows, n_features)
    y = np.full(n_rows, -1)
    chosen = np.random.default_rng(1).choice(n_rows, N_LABELS, replace=False)
    y[chosen] = truth[chosen]
    np.save(folder / "y.npy", y)
    os.posix_fadvise(os.open(folder / "x.npy", os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    load = os.getloadavg()[0]
    with cap() as (hold, means):
        subprocess.run(
            [sys.executable, "-m", "benchmarks.large", "--child", kind, str(folder)], check=True, preexec_fn=hold
        )
    found = json.loads((folder / "found.json").read_text())
    from pyarrow import parquet

    answers = parquet.read_table(folder / "answers", columns=["row", "class", "probability"])
    right = float(np.mean(answers["class"].to_numpy() == truth[answers["row"].to_numpy()]))
    read, product, product_cpu = bare(folder / "x.npy", found["products"], n_rows)
    flops = 2.0 * n_rows * sum(inner * outer for inner, outer in found["products"])
    ideal, size = read + product, (folder / "x.npy").stat().st_size
    print(
        f"{kind}, {n_rows:,} x {n_features} ({size / 1e9:.1f} GB), at most {CAP / 1e9:.0f} GB by {means}: "
        f"{found['seconds']:.0f} s ({found['cpu']:.0f} CPU s), peak {found['peak'] / 1e9:.2f} GB; right {right:.3f}\n"
        f"  one read {read:.1f} s + {len(found['products'])} products, {flops / 1e12:.1f} Tflop, {product:.0f} s bare = "
        f"{ideal:.0f} s: {found['seconds'] / ideal:.2f} times that; "
        f"{found['cpu']:.0f} against {product_cpu:.0f} CPU s; load before {load:.1f}\n  {found['stages']}"
    )
    record(
        f"large, {kind}, {n_rows:,} x {n_features}", ours=found["seconds"], peer=None if kind == "knn" else ideal, peak_gb=found["peak"] / 1e9,
        cpu=found["cpu"], cap_gb=CAP / 1e9, cap_by=means, read=read, products=product, products_cpu=product_cpu, teraflop=flops / 1e12,
        accuracy=right, load=load, stages=found["stages"], modes=found["modes"], components=found["components"],
    )  # fmt: skip
    return found["peak"] > CAP


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("kinds", nargs="*", default=list(SIZES))
    words.add_argument("--rows", type=int)
    words.add_argument("--child", nargs=2)
    words.add_argument("--folder", default="/var/tmp")
    given = words.parse_args()
    if given.child:
        child(given.child[0], Path(given.child[1]))
        return 0
    failed = False
    for kind in given.kinds:
        n_rows, n_features = SIZES[kind]
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            failed |= run(kind, given.rows or n_rows, n_features, Path(folder))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
