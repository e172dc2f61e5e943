import warnings

import numpy as np
import pytest

from graphuq import GraphClassifier
from graphuq.app.label import adviser
from graphuq.app.label.look import Look
from graphuq.app.label.session import Session
from graphuq.app.label.store import open_store

N = 60
NAMES = ("ant", "bee", "cat")


def blobs(n=N, n_classes=3, seed=0):
    """Rows around corners, and which corner each is around."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    corners = 6 * np.eye(n_classes, 4)
    return corners[y] + rng.standard_normal((n, 4)), y


@pytest.fixture
def quiet():
    """Few labels decide little, and the thread that learns from them may not fail of a warning (`run.opened`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="session")
def seen():
    X, _ = blobs()
    return adviser.seen(GraphClassifier(n_neighbors=6), X, lambda stage: None)


@pytest.fixture
def make(seen, tmp_path, quiet):
    """A function that begins, or goes on with, a session of the blobs from some labels of the table."""
    opened = []

    def session(given=(), **look):
        for each in opened:
            close(each)
        opened.clear()
        X, _ = blobs()
        shown = Look(
            [f"row {i}" for i in range(N)], {"x": np.array([f"{x:.2f}" for x in X[:, 0]], dtype=object)}, **look
        )
        found = Session(seen, X, dict(given), shown, open_store(tmp_path / "out.answers"), title="blobs")
        opened.append(found)
        return found

    def close(each):
        each.adviser.stop()
        each.store.close()

    yield session
    for each in opened:
        close(each)
