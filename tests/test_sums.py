"""A pass that was stopped goes on where it was, to the same bits."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphuq import GraphClassifier, passes, sums
from graphuq import tall as talls
from graphuq.app import large
from graphuq.passes import summed
from graphuq.sums import kept_sums
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
    begun, plain = [], passes._InParts.__call__

    def call(self, rows, X):
        if rows.start == stop_at:
            raise Stop
        begun.append(rows.start)
        return plain(self, rows, X)

    monkeypatch.setattr(passes._InParts, "__call__", call)
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
from graphuq import GraphClassifier, sums, tall
from graphuq.app import large

tall._BLOCK_BYTES, sums.KEEP_AFTER = 50 * 4 * 8, -1.0
plain, kept = sums.write, []

def killed(*given):
    plain(*given)
    kept.append(given)
    if len(kept) == 11:  # three blocks of the second pass
        os.kill(os.getpid(), signal.SIGKILL)

sums.write = killed
large.fit_store(Path("x.npy"), Path("labels.csv"), GraphClassifier(graph="cosine"), Path("out"))
"""


def test_a_fit_that_was_killed_in_a_pass_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    lines = [f"{row},{'ab'[row // 20 % 2]}" for row in range(0, N, 20)]
    Path("labels.csv").write_text("row,class\n" + "\n".join(lines))
    done = subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == -signal.SIGKILL
    assert len(list(Path("out/sums").iterdir())) == 2
    begun = counted(monkeypatch)
    given = Path("x.npy"), Path("labels.csv")
    large.fit_store(*given, GraphClassifier(graph="cosine"), Path("out"))
    again, _ = begun.copy(), begun.clear()
    assert not Path("out/sums").exists()
    large.fit_store(*given, GraphClassifier(graph="cosine"), Path("whole"))
    assert len(begun) - 12 <= len(again) < len(begun) - 8  # the first pass, and some of the second
    tables = [parquet.read_table(Path(each, "answers"))["p_a"].to_numpy() for each in ("out", "whole")]
    np.testing.assert_allclose(*tables, atol=1e-9)
