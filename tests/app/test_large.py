"""`graphuq fit` and `graphuq predict` with features in a store."""

import csv
import json
import sys
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
from typer.testing import CliRunner

from graphuq import GraphClassifier, stages
from graphuq.app import folder as models
from graphuq.app import large
from graphuq.app.cli import app
from graphuq.files import held_folder
from graphuq.tall import tall

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


def predict(*words):
    return CliRunner().invoke(app, ["predict", *words])


GIVEN = ("x.npy", "--labels", "labels.csv", "--graph", "cosine", "--out", "out")


def test_a_store_is_fitted_and_fitted_again_at_once(folder):
    done = graphuq(*GIVEN, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["rows"], told["labeled"], told["classes"]) == (300, 15, ["high", "low"])
    run = json.loads((folder / "out/run.json").read_text())
    assert run["settings"]["graph"] == "cosine"
    assert {"graph", "spectrum", "features", "learning", "answers"} <= set(run["stages"])
    assert run["diagnostics"]["converged"] is told["converged"] is True  # where the run of a table has it
    assert run["diagnostics"]["verdict"] == told["verdict"]
    table = parquet.read_table(folder / "out/answers")
    assert np.mean(np.array(table["class"].to_pylist()) == np.where(TRUTH == 1, "high", "low")) > 0.8
    before = {path: path.stat().st_mtime_ns for path in (folder / "out/answers").glob("*.parquet")}
    again = graphuq(*GIVEN)
    assert again.exit_code == 0, again.output
    assert "300 rows, 15 with a class" in again.stdout
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "out/answers").glob("*.parquet")}
    part = folder / "out/answers/part-000000.parquet"
    part.write_bytes(part.read_bytes()[:-9])
    assert graphuq(*GIVEN).exit_code == 0
    np.testing.assert_allclose(probabilities("out/answers")[:, 0], table["p_high"], atol=1e-9)
    (folder / "labels.csv").write_text("row,class\n0,low\n20,high\n")
    assert "out holds the model of another fit, or of a store" in graphuq(*GIVEN).stderr
    assert graphuq(*GIVEN, "--force", "--quiet").exit_code == 0


def test_a_fit_that_was_killed_while_it_answered_is_not_made_again(folder, monkeypatch):
    plain = GraphClassifier.write_proba

    def killed(*given, **settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(GraphClassifier, "write_proba", killed)
        assert graphuq(*GIVEN).exit_code != 0
    assert not (folder / "out/answers").exists()
    monkeypatch.setattr(GraphClassifier, "fit", killed)
    done = graphuq(*GIVEN)
    assert done.exit_code == 0, done.output
    assert "out holds the model of this fit: going on with its answers ..." in done.stderr
    assert plain is GraphClassifier.write_proba
    assert json.loads((folder / "out/run.json").read_text())["stages"]["spectrum"] > 0
    assert len(parquet.read_table(folder / "out/answers")) == 300


@pytest.mark.parametrize("words", [(), ("--force",)])
def test_a_store_that_was_written_to_is_not_answered_from_its_old_model(words, folder):
    many = np.tile(X, (34, 1))[:10_001]  # of so many every second stands for all
    np.save("x.npy", many)
    assert graphuq(*GIVEN, "--quiet").exit_code == 0
    before = probabilities("out/answers")
    many[1::2] = many[1::2][::-1].copy()
    np.save("x.npy", many)
    done = graphuq(*GIVEN, *words)
    assert done.exit_code == (0 if words else 2)
    if not words:
        assert "or of a store that was written to since: choose another folder" in done.stderr
        np.testing.assert_array_equal(probabilities("out/answers"), before)
        return
    assert graphuq(*GIVEN[:-1], "fresh").exit_code == 0
    np.testing.assert_array_equal(probabilities("out/answers"), probabilities("fresh/answers"))


def test_a_store_is_fitted_where_clusters_and_zarr_are_not_installed(folder, monkeypatch):
    def version(name):
        if name in ("dask", "distributed", "zarr"):
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(stages, "version", version)
    done = graphuq(*GIVEN)
    assert done.exit_code == 0, done.output
    assert "jax" in json.loads((folder / "out/run.json").read_text())["versions"]


def test_one_process_at_a_time_writes_a_folder(folder):
    with held_folder(folder / "out"):
        assert "Another process is writing out: wait for it" in graphuq(*GIVEN).stderr
    assert not (folder / "out").exists()  # nothing was written
    assert graphuq(*GIVEN).exit_code == 0
    assert {each.name for each in (folder / "out").iterdir()} == {"answers", "model.npz", "run.json"}


@pytest.mark.parametrize("graph", ["cosine", "knn"])
def test_the_model_of_other_features_is_refused(graph, folder):
    models.write(folder / "out", GraphClassifier(graph=graph).fit(X, classes()))
    refused = graphuq("x.npy", "--labels", "labels.csv", "--graph", graph, "--out", "out")
    assert refused.exit_code == 2
    assert "out holds the model of other features" in refused.stderr
    models.write(folder / "kept", GraphClassifier(graph=graph).fit(tall(X), classes()))
    for other in (X[:-1], X[:, :-1], X[::-1]):
        with pytest.raises(ValueError, match="other features"):
            models.read(folder / "kept", store=tall(other.copy()))
    assert models.read(folder / "kept", store=tall(X))


def classes():
    y = np.full(300, "", dtype="<U4")
    y[::20] = np.where(TRUTH[::20] == 1, "high", "low")
    return y


def probabilities(path):
    table = parquet.read_table(path)
    return np.column_stack([table["p_high"], table["p_low"]])


@pytest.mark.parametrize("words", [["cosine"], ["nystrom", "--width", "2"], ["knn"]], ids=lambda words: words[0])
@pytest.mark.filterwarnings("ignore")
def test_the_model_answers_new_rows_when_the_store_is_gone(words, folder):
    new = X[::3] + 0.05
    np.save("new.npy", new)
    settings = {"width": 2.0} if words[0] == "nystrom" else {}
    known = GraphClassifier(graph=words[0], **settings).fit(X, classes()).predict_proba(new)
    assert graphuq("x.npy", "--labels", "labels.csv", "--out", "out", "--graph", *words).exit_code == 0
    (folder / "x.npy").unlink()
    done = predict("out", "new.npy", "--out", "answers", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 100
    np.testing.assert_allclose(probabilities("answers"), known, atol=1e-6)
    assert "100 rows, in" in predict("out", "new.npy", "--out", "answers.zarr").stdout
    (folder / "new.csv").write_text("a,b,c,d\n" + "\n".join(",".join(map(repr, row)) for row in new.tolist()))
    rows = list(csv.DictReader(predict("out", "new.csv").stdout.splitlines()))
    found = [[float(row[f"probability of {name}"]) for name in ("high", "low")] for row in rows]
    np.testing.assert_allclose(found, known, atol=1e-6)


def test_new_rows_that_cannot_be_answered_are_told(folder):
    import pandas

    named = pandas.DataFrame(X, columns=list("abcd"))
    named.to_parquet("x.parquet")
    assert graphuq("x.parquet", *GIVEN[1:]).exit_code == 0
    named[list("abdc")].to_parquet("turned.parquet")
    named.rename(columns={"c": "e"}).to_parquet("others.parquet")
    named[list("abdc")].to_csv("turned.csv", index=False)
    named.drop(columns="c").to_csv("fewer.csv", index=False)
    np.save("fewer.npy", X[:, :3])
    named.astype(str).to_parquet("text.parquet")
    bad = X.copy()
    bad[41, 2] = np.nan
    np.save("bad.npy", bad)
    for words, told in [
        (["fewer.npy", "--out", "a"], "fewer.npy has 3 columns, and the fit has 4: give the same features"),
        (["others.parquet", "--out", "a"], "others.parquet lacks the column 'c', which the fit has"),
        (["fewer.csv"], "no column 'c'"),
        (["bad.npy", "--out", "a"], "The block of rows 0 to 299 has NaN or infinite values in row 41"),
        (["none.npy", "--out", "a"], "There is no file or folder none.npy"),
        (["x.npy"], "x.npy is a store, whose answers are written block by block: give --out with a folder"),
        (["x.npy", "--out", "a.csv"], "a folder of Parquet files, or a Zarr array, and a.csv is the name of a .csv file"),
        (["turned.csv", "--workers", "2"], "turned.csv is a table"),
        (["text.parquet", "--out", "a"], "Column 'a' of text.parquet holds"),
        (["bad.npy", "--out", "a/b/c"], "values in row 41. Fill in"),
        (["x.npy", "--out", "a", "--sheet", "1"], "x.npy is a store of numbers, taken as they are: leave out --separator"),
        (["x.parquet", "--out", "a", "--separator", ";"], "x.parquet is a store of numbers"),
        (["x.npy", "--out", "a", "--unknown", "ignore"], "x.npy is a store of numbers"),
    ]:  # fmt: skip
        done = predict("out", *words)
        assert (done.exit_code, told in done.stderr) == (2, True), done.output
        assert [line.startswith("graphuq: ") for line in done.stderr.splitlines() if line[-3:] != "..."] == [True]
        assert not list(folder.glob("a*"))
    turned = predict("out", "turned.csv")  # by their names
    assert turned.exit_code == 0
    found = [float(row["probability of high"]) for row in csv.DictReader(turned.stdout.splitlines())]
    assert predict("out", "x.npy", "--out", "same").exit_code == 0
    np.testing.assert_allclose(found, probabilities("same")[:, 0], atol=1e-6)
    assert predict("out", "turned.parquet", "--out", "turned").exit_code == 0
    np.testing.assert_allclose(probabilities("turned"), probabilities("same"), atol=1e-12)
    assert "out holds a model that was not fitted to a table" in CliRunner().invoke(app, ["report", "out"]).stderr
    named.assign(y=classes()).to_csv("table.csv", index=False)
    assert graphuq("table.csv", "--label", "y", "--out", "of-table", "--graph", "cosine").exit_code == 0
    refused = predict("of-table", "x.npy", "--out", "a")
    assert (
        "The model was fitted to a table, whose columns may hold categories, and x.npy is a store"
        in refused.stderr
    )
    assert "of-table holds the fit of a table" in graphuq(*GIVEN[:-1], "of-table", "--force").stderr
    model = (folder / "out/model.npz").read_bytes()
    (folder / "out/model.npz").write_bytes(model[:1000] + bytes([model[1000] ^ 1]) + model[1001:])
    refused = predict("out", "x.npy", "--out", "a")
    assert refused.exit_code == 2
    assert "damaged" in refused.stderr


def test_a_table_for_a_store_without_names_has_its_columns(folder):
    assert graphuq(*GIVEN).exit_code == 0
    (folder / "new.csv").write_text("id,a,b,c,d\n1,1,1,1,1\n")
    told = "new.csv has 5 columns, and the fit has 4, which have no names: give the same features in their order"
    assert told in predict("out", "new.csv").stderr
    np.savez("new.npz", x=X[:5] + 0.05)
    assert len(predict("out", "new.npz").stdout.splitlines()) == 6
    np.savetxt("rows.csv", X[:5] + 0.05, delimiter=",")
    assert "The first line of rows.csv holds numbers" in predict("out", "rows.csv").stderr
    np.savetxt("rows.csv", X[:5] + 0.05, delimiter=",", header="0,1,2,3", comments="")
    assert len(predict("out", "rows.csv").stdout.splitlines()) == 6


def test_what_a_fit_takes_on_disk_is_told_before_it_begins(folder, monkeypatch):
    def begun(*given):
        pytest.fail("it has begun")

    monkeypatch.setattr(GraphClassifier, "fit", begun)
    monkeypatch.setattr("graphuq.memory.shutil.disk_usage", lambda path: type("Usage", (), {"free": 100_000}))
    refused = graphuq("x.npy", "--labels", "labels.csv", "--out", "out")
    # 300 rows of 4 features, 300 modes and 3 more numbers, 10 edges; meanwhile 16 cells, and 5 neighbors of 24 bytes and
    # 310 modes of 16, which is more than the 4 numbers of the answers
    told = "The model, with its answers or what is kept until it is there, takes 2.3 MB, but 0.1 MB are free"
    assert (refused.exit_code, told in " ".join(refused.stderr.split())) == (2, True)


def test_what_an_earlier_run_has_kept_needs_no_more_space(folder, monkeypatch):
    monkeypatch.setattr("graphuq.memory.shutil.disk_usage", lambda path: type("Usage", (), {"free": 1_400_000}))
    with pytest.raises(OSError, match=r"takes 2\.3 MB"):
        large._check_space(GraphClassifier(), tall("x.npy"), 2, folder)
    (folder / "sums").mkdir()
    (folder / "sums/some.npz").write_bytes(bytes(1_000_000))
    large._check_space(GraphClassifier(), tall("x.npy"), 2, folder)
    with pytest.raises(OSError, match=r"takes 1\.8 MB"):  # 21 bytes of a mode
        large._check_space(GraphClassifier(prior="matern"), tall("x.npy"), 2, folder)


@pytest.mark.parametrize("where", ["x.npy", "new.npy"])
def test_rows_that_are_refused_are_told_by_their_numbers(folder, where):
    np.save("new.npy", X)
    bad = X.copy()
    bad[41] = 0.0
    np.save(where, bad)
    refused = graphuq(*GIVEN)
    if where == "new.npy":
        refused = predict("out", "new.npy", "--out", "answers")
    assert refused.exit_code == 2
    assert "Row 41 of X is all zeros and has no direction" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("scale", [None, "robust", "none"])
def test_how_columns_are_compared_can_be_asked_for(scale, folder):
    """And nothing is then said of columns of very different ranges."""
    np.save("x.npy", X * [1, 1000, 1, 1])
    words = ["x.npy", "--labels", "labels.csv", "--out", "out", *(["--scale", scale] if scale else [])]
    done = graphuq(*words)
    assert done.exit_code == 0, done.output
    told = "Set --scale robust to do so without this warning, or --scale none to compare them as they are."
    assert (told in " ".join(done.stdout.split())) == (scale is None)
    assert json.loads((folder / "out/run.json").read_text())["settings"]["scale"] == (scale or "auto")


def test_rows_alike_with_different_classes_are_told_by_their_numbers(folder):
    alike = X.copy()
    other = 20 * np.flatnonzero(TRUTH[::20] != TRUTH[0])[0]
    alike[other] = X[0]
    np.save("x.npy", alike)
    done = graphuq(*GIVEN)
    assert done.exit_code == 0, done.output
    assert f"Rows 0 and {other} are the same in every feature" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("absent", "words", "told"),
    [
        ("zarr", ["x.zarr", *GIVEN[1:]], "graphuq[large]"),
        ("pyarrow.parquet", GIVEN, "The answers are Parquet files, which need pyarrow: pip install 'graphuq[parquet]'"),
        ("pyarrow.parquet", ["x.parquet", "--label", "y", "--out", "out"], "Parquet files need pyarrow: pip install 'graphuq[parquet]'"),
        ("openpyxl", ["x.xlsx", "--label", "y", "--out", "out"], "Excel files need openpyxl: pip install 'graphuq[excel]'"),
    ],
)  # fmt: skip
def test_a_library_that_is_not_installed_is_named(absent, words, told, folder, monkeypatch):
    (folder / "x.zarr").mkdir()
    for name in ("x.parquet", "x.xlsx"):
        (folder / name).write_text("anything")
    monkeypatch.setitem(sys.modules, absent, None)
    done = graphuq(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]  # after the stages
    assert last.startswith("graphuq: ")
    assert told in last


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x.npy", "--label", "y", "--workers", "2", "--out", "out"], "--dask-scheduler and --workers are for"),
        (["x.npy", "--out", "out"], "Give --label with the column of a table, or --labels"),
        ([*GIVEN, "--label", "y"], "Give --label with the column of a table, or --labels"),
        ([*GIVEN, "--model", "level_set", "--draws", "9"], "--draws makes no difference here, with 2 classes"),
        ([*GIVEN, "--id", "a"], "all of which are used: leave out --id"),
        ([*GIVEN, "--scale", "robust"], "--scale robust is for --graph knn where features are in a store"),
        ([*GIVEN, "--scale", "none"], "--scale makes no difference here"),
        ([*GIVEN, "--workers", "2", "--dask-scheduler", "tcp://localhost:1"], "has workers of its own"),
        (["x.npy", "--labels", "labels.csv", "--graph", "self_tuning", "--out", "out"], "--graph must be one of cosine, nystrom, knn"),
        (["none.zarr", "--labels", "labels.csv", "--graph", "cosine", "--out", "out"], "There is no file or folder none.zarr"),
        (["x.npy", "--labels", "labels.csv", "--graph", "nystrom", "--out", "out"], "--width must be given for nystrom"),
        (["x.npy", "--label", "y", "--out", "out"], "x.npy is a store, whose classes stand in a table of their own: give that as --labels"),
        (["parts", "--label", "y", "--out", "out"], "parts is a store, whose classes stand in a table of their own"),
        (["text.parquet", *GIVEN[1:]], "Column 'a' of text.parquet holds"),
        (["flat.npy", *GIVEN[1:]], "flat.npy must be a table of features, one row a node, got the shape (300,)"),
        ([*GIVEN[:-1], "mine"], "mine holds something that graphuq did not write: choose another folder"),
        ([*GIVEN[:-1], "new/deep/folder"], "row 41"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_sentence(words, told, folder):
    import pandas

    pandas.DataFrame({"a": ["x"] * 300}).to_parquet("text.parquet")
    (folder / "parts").mkdir()
    pandas.DataFrame(X, columns=list("abcd")).to_parquet("parts/0.parquet")
    np.save("flat.npy", X[:, 0])
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("years of work")
    if words[-1] == "new/deep/folder":
        np.save("x.npy", np.where(np.arange(300)[:, None] == 41, np.nan, X))
    done = graphuq(*words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stderr.count("\n") <= 1 or "..." in done.stderr
    assert not (folder / "out").exists()
    assert not (folder / "new").exists()
    assert [each.name for each in (folder / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("row,class\n5,a\n,b\n", "row numbers, 0 to 299, got nothing"),
        ("row,class\n5,a\n6,-1\n", "Column 'class' of labels.csv holds -1, which marks rows without a class"),
        ("row,class\n5,a\n5,b\n", "Row 5 stands in labels.csv more than once"),
        ("row,class\n5,a\n300,b\n", r"row numbers, 0 to 299, got 300"),
        ("row,class\n5,a\nx7,b\n", r"row numbers, 0 to 299, got x7"),
        ("row,klass\n5,a\n", "no column 'class'"),
    ],
)
def test_labels_that_make_no_sense(text, told, folder):
    (folder / "labels.csv").write_text(text)
    with pytest.raises(ValueError, match=told):
        large.read_store_labels(folder / "labels.csv", 300)


def test_classes_that_look_like_numbers_stay_as_they_are_written(folder):
    (folder / "labels.csv").write_text("row,class\n0,3.1\n1,3.10\n2,3.2\n")
    assert large.read_store_labels(folder / "labels.csv", 4).tolist() == ["3.1", "3.10", "3.2", ""]


def test_classes_that_hang_on_one_label_are_noted(folder):
    (folder / "labels.csv").write_text("row,class\n0,low\n20,high\n40,high\n")
    told = "Class 'low' has a single label: nothing would tell if it were a mistake."
    assert told in graphuq(*GIVEN, "--prior", "matern", "--inference", "ep").stdout
    (folder / "labels.csv").write_text("row,class\n" + "\n".join(f"{row},{row / 7}" for row in range(30)))
    refused = graphuq(*GIVEN[:-1], "amounts")
    assert "holds something different in each of 30 rows: those are not classes" in refused.stderr
    assert not (folder / "amounts").exists()


def test_the_model_of_a_fit_in_python_answers_at_the_shell(folder):
    fitted = GraphClassifier(graph="cosine", prior="matern", inference="ep").fit(
        X, np.where(classes() != "", TRUTH, -1)
    )
    models.write(folder / "mine", fitted)
    np.savez("new.npz", x=X[:5] + 0.05)
    rows = list(csv.DictReader(predict("mine", "new.npz").stdout.splitlines()))
    found = [float(row["probability of 1"]) for row in rows]
    np.testing.assert_allclose(found, fitted.predict_proba(X[:5] + 0.05)[:, 1], atol=1e-6)
    assert models.read(folder / "mine")[0].classes_.dtype.kind == "i"
    assert "it has no report" in CliRunner().invoke(app, ["report", "mine"]).stderr


def test_classes_that_are_days_are_told_as_text(folder):
    days = np.array(["2020-01-01", "2021-01-01"], "M8[D]")
    y = np.where(classes() != "", days[TRUTH], np.datetime64("NaT"))
    models.write(
        folder / "mine", GraphClassifier(graph="cosine", prior="matern", inference="ep").fit(tall("x.npy"), y)
    )
    done = predict("mine", "x.npy", "--out", "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["classes"] == ["2020-01-01", "2021-01-01"]
