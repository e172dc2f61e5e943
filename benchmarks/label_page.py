"""From an answer to the moved map: `graphuq label` in Chromium, 10,000 rows, ten classes and two; milliseconds in the page.

A person answers by keyboard, with the truth. The time is taken in the page, from the key to the map drawn anew; the peer
is scikit-learn's LabelSpreading, fitted anew to the same labels, without a page.
"""

import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.datasets import make_blobs
from sklearn.semi_supervised import LabelSpreading
from tests.app.label.chromium import browser

from benchmarks.record import record

N_ROWS, N_LABELS, N_ANSWERS, LIMIT_MS = 10_000, 50, 20, 300
ASKED = "document.documentElement.dataset.moved"
NAME = "document.getElementById('row-name').textContent"


def answered(folder: Path, n_classes: int) -> tuple[list[float], float]:
    """Milliseconds of every answer, and seconds of the peer."""
    X, cloud = make_blobs(N_ROWS, 10, centers=3 * n_classes, cluster_std=3.0, random_state=0)
    truth, given = cloud % n_classes, np.full(N_ROWS, -1)
    rows = np.random.default_rng(0).permutation(N_ROWS)[:N_LABELS]
    given[rows] = truth[rows]
    table = folder / "table.csv"
    columns = "name," + ",".join(f"x{i}" for i in range(10)) + ",kind\n"
    lines = (
        f"r{i}," + ",".join(f"{x:.4f}" for x in X[i]) + ("," if given[i] < 0 else f",class {given[i]}")
        for i in range(N_ROWS)
    )
    table.write_text(columns + "\n".join(lines) + "\n")
    words = ["label", table, "--label", "kind", "--id", "name", "--out", folder / "out", "--no-open"]
    command = [sys.executable, "-m", "graphuq", *map(str, words)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        with browser() as tab:
            page = tab()
            page.resize(1280, 900)
            page.open(address)
            found = []
            for _ in range(N_ANSWERS):
                row = int(page.until(f"!document.body.hasAttribute('aria-busy') && {NAME}").removeprefix("r"))
                page.ask("delete document.documentElement.dataset.moved")
                page.press(str((truth[row] + 1) % 10))
                found.append(float(page.until(ASKED)))
    finally:
        server.terminate()
        server.wait()
    began = time.perf_counter()
    LabelSpreading(kernel="knn", n_neighbors=5).fit(X, given)
    return found, time.perf_counter() - began


def main() -> int:
    slow = False
    for n_classes in (10, 2):
        with TemporaryDirectory() as folder:
            times, peer = answered(Path(folder), n_classes)
        middle, most = float(np.median(times)), max(times)
        print(
            f"{n_classes} classes: {middle:.0f} ms, at most {most:.0f}; LabelSpreading {1e3 * peer:.0f}",
            flush=True,
        )
        record(
            f"answer to moved map, 10,000 rows, {n_classes} classes",
            ours=middle / 1e3, peer=peer, most=most / 1e3, n_answers=N_ANSWERS,
        )  # fmt: skip
        slow |= middle > LIMIT_MS
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
