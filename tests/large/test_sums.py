"""A pass that was stopped goes on where it was, to the same bits."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from graphuq import GraphClassifier, graph, laplacian
from graphuq import tall as talls
from graphuq.app import large
from graphuq.graph import neighbors
from graphuq.large import passes, sums
from graphuq.large.passes import summed
from graphuq.large.sums import kept_sums
from graphuq.spectrum import accelerator, chebyshev
from graphuq.tall import tall

parquet = pytest.importorskip("pyarrow.parquet")

N = 400
rng = np.random.default_rng(0)
X = np.abs(rng.standard_normal((N, 4))) + 0.1


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(talls, "_BLOCK_BYTES", 50 * 4 * 8)  # fifty rows
    monkeypatch.setattr(sums, "KEEP_AFTER", -1.0)  # after every block


def work(X):
    """Sums of all kinds: an array, a number that may be infinite, a flag, and a list that grows."""
    return X.T @ X, float(X.max()) * 1e308 * 10, bool(X.min() < 0), [float(X[0, 0])]


class Stop(Exception):
    """As if the process had been killed."""


def counted(monkeypatch, stop_at=None):
    """The first rows of the blocks that are worked on; at one of them the run is stopped."""
    begun, plain = [], passes._in_parts

    def call(work, rows, X):
        if rows.start == stop_at:
            raise Stop
        begun.append(rows.start)
        return plain(work, rows, X)

    monkeypatch.setattr(passes, "_in_parts", call)
    return begun


def test_a_pass_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    known = summed(tall(X), work)
    with monkeypatch.context() as patched:
        counted(patched, stop_at=250)
        with pytest.raises(Stop), kept_sums(tmp_path / "sums", "x"):
            summed(tall(X), work)
    begun = counted(monkeypatch)
    with kept_sums(tmp_path / "sums", "x"):
        found = summed(tall(X), work)
        assert sorted(begun) == [250, 300, 350]
        assert summed(tall(X), work)[1:] == known[1:]  # and is not made again
        assert sorted(begun) == [250, 300, 350]
        summed(tall(X), other)
        assert len(begun) == 3 + 8
    np.testing.assert_array_equal(found[0], known[0])
    assert (found[1:], type(found[3])) == (known[1:], list)
    assert not (tmp_path / "sums").exists()


def other(X):
    return (X.sum(axis=0),)


def test_sums_of_other_features_or_damaged_ones_do_not_count(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        counted(patched, stop_at=250)
        with pytest.raises(Stop), kept_sums(tmp_path / "sums", "x"):
            summed(tall(X), work)
    (path,) = (tmp_path / "sums").iterdir()
    assert sums.read(path)[0] == 5
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    assert sums.read(path) == (0, None)
    path.write_bytes(content)
    begun = counted(monkeypatch)
    with kept_sums(tmp_path / "sums", "y"):
        summed(tall(X), work)
    assert len(begun) == 8


def test_nothing_is_kept_of_what_is_quick(tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "KEEP_AFTER", 30.0)
    with kept_sums(tmp_path / "sums", "x"):
        summed(tall(X), work)
        assert not (tmp_path / "sums").exists()


KILLED = """
import os, signal
from pathlib import Path
from graphuq import GraphClassifier, tall
from graphuq.large import sums
from graphuq.app import large
from graphuq.graph import neighbors

tall._BLOCK_BYTES, sums.KEEP_AFTER = 50 * 4 * 8, -1.0
neighbors._EXACT_UP_TO = neighbors._TREE_UP_TO = 0
plain, kept = sums.write, []

def killed(*given):
    plain(*given)
    kept.append(given)
    if len(kept) == N_KEPT:
        os.kill(os.getpid(), signal.SIGKILL)

sums.write = killed
large.fit_store(Path("x.npy"), Path("labels.csv"), GraphClassifier(graph="GRAPH"), Path("out"))
"""


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A store with two classes, and labels."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    lines = [f"{row},{'ab'[row // 20 % 2]}" for row in range(0, N, 20)]
    Path("labels.csv").write_text("row,class\n" + "\n".join(lines))
    return Path("x.npy"), Path("labels.csv")


def killed(graph, n_kept):
    """A fit in a process of its own, killed when something was kept for the n-th time."""
    script = KILLED.replace("N_KEPT", str(n_kept)).replace("GRAPH", graph)
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == -signal.SIGKILL


def probabilities(out):
    return parquet.read_table(Path(out, "answers"))["p_a"].to_numpy()


def test_a_fit_that_was_killed_in_a_pass_goes_on(given, monkeypatch):
    killed("cosine", 11)  # three blocks of the second pass
    assert len(list(Path("out/sums").iterdir())) == 2
    begun, told = counted(monkeypatch), []
    large.fit_store(*given, GraphClassifier(graph="cosine"), Path("out"), tell=told.append)
    again, _ = begun.copy(), begun.clear()
    assert not Path("out/sums").exists()
    assert told == [f"going on from what an earlier run kept in {Path('out/sums')} ..."]
    large.fit_store(*given, GraphClassifier(graph="cosine"), Path("whole"), tell=told.append)
    assert len(told) == 1
    assert len(begun) - 12 <= len(again) < len(begun) - 8  # the first pass, and some of the second
    np.testing.assert_allclose(probabilities("out"), probabilities("whole"), atol=1e-9)


def test_a_folder_of_the_same_name_loses_nothing_of_a_user(given):
    """Neither when a fit begins, nor when it ends, nor when there is its model already."""
    mine = {Path("out/sums/mine.npz"), Path("out/sums/notes.txt")}
    Path("out/sums").mkdir(parents=True)
    for path in mine:
        path.write_text("mine")
    for _ in range(2):
        large.fit_store(*given, GraphClassifier(graph="cosine"), Path("out"))
        assert set(Path("out/sums").iterdir()) == mine


@pytest.fixture
def made(monkeypatch):
    """How often cells were made, one was searched, and eigenvectors were filtered and rotated, of however few rows."""
    for name in ("_EXACT_UP_TO", "_TREE_UP_TO"):
        monkeypatch.setattr(neighbors, name, 0)
    found = Counter()
    for key, owner, name in (
        ("cells", neighbors, "kmeans_centers"),
        ("searches", neighbors._Nearest, "put"),
        ("searches", neighbors._Nearest, "take"),
        ("iterations", chebyshev, "_rayleigh_ritz"),
    ):
        monkeypatch.setattr(owner, name, noted(getattr(owner, name), key, found))
    return found


def noted(plain, key, found):
    def one(*given, **settings):
        found[key] += 1
        return plain(*given, **settings)

    return one


def test_a_search_that_was_killed_goes_on(given, made):
    killed("knn", 1 + 20 + 7)  # the cells, each of which searches itself, and seven that others visit
    assert sorted(sums.read(path)[0] for path in Path("out/sums").iterdir()) == [1, 20 + 7]
    large.fit_store(*given, GraphClassifier(), Path("out"))
    assert made == {"searches": 13}
    assert {path.name for path in Path("out").iterdir()} == {"answers", "model.npz", "run.json"}
    large.fit_store(*given, GraphClassifier(), Path("whole"))
    assert made == {"cells": 1, "searches": 13 + 40}
    np.testing.assert_allclose(probabilities("out"), probabilities("whole"), atol=1e-9)


@pytest.fixture
def many(given):
    """A store of which labels ask for more modes than are found at first."""
    many = np.random.default_rng(1).standard_normal((2500, 9))
    np.save("x.npy", many)
    lines = [f"{row},{'ab'[int(many[row, 0] * many[row, 1] > 0)]}" for row in range(0, 2500, 25)]
    Path("labels.csv").write_text("row,class\n" + "\n".join(lines))
    return *given, GraphClassifier(n_modes=60)


def stopped(monkeypatch, many, when):
    """A run that is stopped when such a thing was kept; or, if nothing is, when its model is to be written."""
    plain = sums.write

    def write(path, n_done, found):
        plain(path, n_done, found)
        if when(n_done, found):
            raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(sums, "write", write)
        patched.setattr(large.folder, "write", Mock(side_effect=Stop))
        with pytest.raises(Stop):
            large.fit_store(*many, Path("out"))


@pytest.mark.filterwarnings("ignore")
def test_whatever_stage_a_fit_is_stopped_in_nothing_is_made_twice(many, made, monkeypatch):
    large.fit_store(*many, Path("whole"))
    whole = made.copy()
    assert whole["searches"] == 2 * 50
    assert whole["iterations"] >= 4
    made.clear()
    for when in (
        lambda n_done, found: len(found) == 1,  # the cells
        lambda n_done, found: len(found) == 2 and n_done == 9,  # that searched themselves
        lambda n_done, found: len(found) == 2 and n_done == 59,  # that others visited
        lambda n_done, found: len(found) == 8 and n_done == 1,  # iterations of the first eigenvectors
        lambda n_done, found: len(found) == 8 and found[-1],  # all of these
        lambda n_done, found: len(found) == 8 and found[1].size > 50 and n_done == 1,  # of more eigenvectors
        lambda n_done, found: False,
    ):
        before = made.copy()
        stopped(monkeypatch, many, when)
        assert made != before
    assert made == whole
    large.fit_store(*many, Path("out"))
    assert made == whole
    assert not Path("out/sums").exists()
    np.testing.assert_allclose(probabilities("out"), probabilities("whole"), atol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_what_decayed_is_made_anew_and_what_another_run_left_goes(many, made, monkeypatch):
    stopped(monkeypatch, many, lambda n_done, found: False)
    whole, left = made.copy(), sorted(Path("out/sums").iterdir())
    for path in left:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    made.clear()
    stopped(monkeypatch, many, lambda n_done, found: False)
    assert made == whole
    assert sorted(Path("out/sums").iterdir()) == left
    other = GraphClassifier(n_modes=60, n_neighbors=6)
    stopped(monkeypatch, (*many[:2], other), lambda n_done, found: len(found) == 1)
    assert len(list(Path("out/sums").iterdir())) == 1
    large.fit_store(*many[:2], other, Path("out"))
    Path("out/sums").mkdir()
    (Path("out/sums") / left[0].name).touch()  # of a run that was killed when it had its model
    made.clear()
    large.fit_store(*many[:2], other, Path("out"))
    assert not made
    assert not Path("out/sums").exists()


LAPLACIAN = laplacian.normalized(graph.knn(np.random.default_rng(0).standard_normal((700, 3)), n_neighbors=5))


@pytest.mark.parametrize("tolerance", [1e-4, 1e-8], ids=["single", "double"])
@pytest.mark.parametrize("there", [False, True], ids=["processor", "accelerator"])
def test_eigenvectors_go_on_after_an_iteration(there, tolerance, tmp_path, made, monkeypatch):
    monkeypatch.setattr(accelerator, "is_worth_it", lambda matrix: there)
    whole = chebyshev.leading(LAPLACIAN, n_modes=30, tolerance=tolerance)
    n_whole = made["iterations"]
    assert n_whole > 1
    with kept_sums(tmp_path / "sums", "x"):
        with monkeypatch.context() as patched:
            patched.setattr(chebyshev, "_MAX_ITERATIONS", 1)
            with pytest.warns(RuntimeWarning, match="did not reach"):
                chebyshev.leading(LAPLACIAN, n_modes=30, tolerance=tolerance)
        found = chebyshev.leading(LAPLACIAN, n_modes=30, tolerance=tolerance)
    assert made["iterations"] == 2 * n_whole
    np.testing.assert_allclose(found.values, whole.values, atol=1e-6)
    if not there:
        np.testing.assert_array_equal(found.vectors, whole.vectors)


def test_eigenvectors_that_did_not_converge_are_told_again(tmp_path, made, monkeypatch):
    monkeypatch.setattr(chebyshev, "_MAX_ITERATIONS", 1)
    with kept_sums(tmp_path / "sums", "x"):
        for _ in range(2):
            with pytest.warns(RuntimeWarning, match=r"of 29 eigenpairs did not reach"):
                chebyshev.leading(LAPLACIAN, n_modes=30)
    assert made == {"iterations": 1}
