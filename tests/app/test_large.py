"""`graphuq fit` with features in a store."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from graphuq import GraphClassifier
from graphuq.app import large
from graphuq.app.cli import app

parquet = pytest.importorskip("pyarrow.parquet")

rng = np.random.default_rng(0)
TRUTH = rng.integers(0, 2, 300)
X = np.abs(rng.standard_normal((300, 4)) + 2 * TRUTH[:, None]) + 0.1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    lines = [f"{row},{['low', 'high'][TRUTH[row]]}" for row in range(0, 300, 20)]
    (tmp_path / "labels.csv").write_text("row,class\n" + "\n".join(lines) + "\n")
    return tmp_path


def graphuq(*words):
    return CliRunner().invoke(app, ["fit", *words])


GIVEN = ("x.npy", "--labels", "labels.csv", "--graph", "cosine", "--out", "out")


def test_a_store_is_fitted_and_fitted_again_at_once(folder):
    done = graphuq(*GIVEN, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["rows"], told["labeled"], told["classes"]) == (300, 15, ["high", "low"])
    run = json.loads((folder / "out/run.json").read_text())
    assert run["settings"]["graph"] == "cosine"
    assert {"graph", "spectrum", "features", "learning"} <= set(run["stages"])
    table = parquet.read_table(folder / "out/answers")
    assert np.mean(np.array(table["class"].to_pylist()) == np.where(TRUTH == 1, "high", "low")) > 0.8
    before = {path: path.stat().st_mtime_ns for path in (folder / "out/answers").glob("*.parquet")}
    again = graphuq(*GIVEN)
    assert again.exit_code == 0, again.output
    assert "300 rows, 15 with a class" in again.stdout
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "out/answers").glob("*.parquet")}
    (folder / "labels.csv").write_text("row,class\n0,low\n20,high\n")
    assert "the answers of another fit" in graphuq(*GIVEN).stderr
    assert graphuq(*GIVEN, "--force", "--quiet").exit_code == 0


def test_new_rows_in_a_store_are_answered_as_by_predict(folder):
    new = X[::3] + 0.05
    np.save("new.npy", new)
    done = graphuq(*GIVEN, "--new", "new.npy")
    assert done.exit_code == 0, done.output
    assert "New rows: out/new-answers" in done.stdout
    y = np.full(300, "", dtype="<U4")
    y[::20] = np.where(TRUTH[::20] == 1, "high", "low")
    known = GraphClassifier(graph="cosine").fit(X, y).predict_proba(new)
    table = parquet.read_table(folder / "out/new-answers")
    np.testing.assert_allclose(np.column_stack([table["p_high"], table["p_low"]]), known, atol=1e-9)
    np.save("new.npy", new[:, :3])
    assert "new.npy has 3 columns, and the fit has 4: give" in graphuq(*GIVEN, "--new", "new.npy").stderr


@pytest.mark.parametrize("where", ["x.npy", "new.npy"])
def test_rows_that_are_refused_are_told_by_their_numbers(folder, where):
    np.save("new.npy", X)
    bad = X.copy()
    bad[41] = 0.0
    np.save(where, bad)
    refused = graphuq(*GIVEN, "--new", "new.npy")
    assert refused.exit_code == 2
    assert "all zeros and have no direction, the first of them row 41" in " ".join(refused.stderr.split())


def test_rows_alike_with_different_classes_are_told_by_their_numbers(folder):
    alike = X.copy()
    other = 20 * np.flatnonzero(TRUTH[::20] != TRUTH[0])[0]
    alike[other] = X[0]
    np.save("x.npy", alike)
    done = graphuq(*GIVEN)
    assert done.exit_code == 0, done.output
    assert f"Rows 0 and {other} are the same in every feature" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x.npy", "--label", "y", "--new", "x.npy", "--out", "out"], "--new, --dask-scheduler, --workers"),
        (["x.npy", "--out", "out"], "Give --label with the column of a table, or --labels"),
        ([*GIVEN, "--label", "y"], "Give --label with the column of a table, or --labels"),
        ([*GIVEN, "--scale", "standard"], "taken as they are: leave out --id"),
        ([*GIVEN, "--workers", "2", "--dask-scheduler", "tcp://localhost:1"], "has workers of its own"),
        (["x.npy", "--label", "y", "--graph", "nystrom", "--width", "1", "--out", "out"], "features in a store: use --labels"),
        (["x.npy", "--labels", "labels.csv", "--graph", "self_tuning", "--out", "out"], "--graph must be one of cosine, nystrom, knn"),
        (["none.zarr", "--labels", "labels.csv", "--graph", "cosine", "--out", "out"], "There is no file or folder none.zarr"),
        (["x.npy", "--labels", "labels.csv", "--graph", "nystrom", "--out", "out"], "--width must be given for nystrom"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_sentence(words, told, folder):
    done = graphuq(*words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stderr.count("\n") <= 1 or "..." in done.stderr
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("row,class\n5,a\n5,b\n", "Row 5 stands in labels.csv more than once"),
        ("row,class\n5,a\n300,b\n", r"row numbers, 0 to 299, got 300"),
        ("row,class\n5,a\nx7,b\n", r"row numbers, 0 to 299, got 5"),
        ("row,klass\n5,a\n", "no column 'class'"),
    ],
)
def test_labels_that_make_no_sense(text, told, folder):
    (folder / "labels.csv").write_text(text)
    with pytest.raises(ValueError, match=told):
        large.read_store_labels(folder / "labels.csv", 300)
